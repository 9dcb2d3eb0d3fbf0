// Rates of a device that nobody has: for tests of prices, which are functions of them.
#pragma once

#include "quarry/format/device_record.h"

namespace quarry::testing_util {

inline const DeviceRecord kAnyDevice = {.random_reads_per_second = 78e3,
                                        .sequential_bytes_per_second = 3.2e9,
                                        .write_bytes_per_second = 2e9,
                                        .gather_bytes_per_second = 12e9,
                                        .core = {.checksum_bytes_per_second = 6e9,
                                                 .copy_bytes_per_second = 4e9,
                                                 .decode_bytes_per_second = 0.5e9,
                                                 .request_seconds = 4e-6}};

}  // namespace quarry::testing_util
