// The rates of a machine, as `quarry calibrate` stores them in the manifest: reads, and the work on what was read, are
// priced by them.
#pragma once

#include <string>

namespace quarry {

// What one core of the machine does beside the device; 0 = not measured.
struct CoreRates {
  double checksum_bytes_per_second = 0;
  double copy_bytes_per_second = 0;    // rows from where they were read to where they are used
  double decode_bytes_per_second = 0;  // encoded bytes of planned blocks
  double request_seconds = 0;          // of processor, for one read request
};

// What the device and the memory of the machine do, as `quarry calibrate` measured them. Every rate is
// positive.
struct DeviceRecord {
  double random_reads_per_second = 0;  // of one row of the table "feature" each
  double sequential_bytes_per_second = 0;
  double write_bytes_per_second = 0;
  double gather_bytes_per_second = 0;  // rows copied from memory to memory
  std::string measured_utc = {};       // RFC 3339
  CoreRates core = {};
};

}  // namespace quarry
