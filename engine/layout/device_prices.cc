// What is divided by where reads and the work on them are priced.
#include "quarry/layout/cost_model.h"

namespace quarry {

double ProcessorWork::Seconds(const CoreRates& core) const {
  const auto seconds = [](double bytes, double rate) { return rate > 0 ? bytes / rate : 0; };
  return seconds(checksum_bytes, core.checksum_bytes_per_second) +
         seconds(copied_bytes, core.copy_bytes_per_second) +
         seconds(decoded_bytes, core.decode_bytes_per_second) + requests * core.request_seconds;
}

DeviceRecord DeviceOf(const Manifest& manifest) {
  constexpr CoreRates kCore = {.checksum_bytes_per_second = 6e9,
                               .copy_bytes_per_second = 4e9,
                               .decode_bytes_per_second = 0.5e9,
                               .request_seconds = 4e-6};
  if (!manifest.device) {
    const DeviceProfile reads;
    return {.random_reads_per_second = reads.random_reads_per_second,
            .sequential_bytes_per_second = reads.sequential_bytes_per_second,
            .write_bytes_per_second = 2.0e9,
            .gather_bytes_per_second = 12e9,
            .core = kCore};
  }
  DeviceRecord device = *manifest.device;
  for (double CoreRates::*const rate :
       {&CoreRates::checksum_bytes_per_second, &CoreRates::copy_bytes_per_second,
        &CoreRates::decode_bytes_per_second, &CoreRates::request_seconds}) {
    if (!(device.core.*rate > 0)) device.core.*rate = kCore.*rate;
  }
  return device;
}

}  // namespace quarry
