// Measuring the device that a database lies on, and the memory and the processors of this machine.
#pragma once

#include <cstdint>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/format/manifest.h"
#include "quarry/io/device.h"
#include "quarry/storage/store.h"

namespace quarry {

// A fresh measurement: the part that is kept, and the part that is for people only.
struct Calibration {
  DeviceRecord device;
  uint32_t row_bytes = 0;              // size of the reads of device.random_reads_per_second
  std::vector<ReadRate> random_reads;  // rates for other sizes
};

// Measures for 3.5 s, holding up to 300 MiB of the budget and writing up to 512 MiB to a file in the database
// that is gone afterwards, and stores the result. What else uses the disk meanwhile is measured with it.
// kUnsupported on a file system without direct reads, kNoSpace when the disk has too little room to be
// measured, kOutOfBudget.
Result<Calibration> MeasureDevice(Store& store, MemoryBudget& budget);

}  // namespace quarry
