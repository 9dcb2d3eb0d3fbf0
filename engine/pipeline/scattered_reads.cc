#include "quarry/pipeline/scattered_reads.h"

#include <algorithm>
#include <cmath>

#include "quarry/format/feature_table.h"

namespace quarry {

double ScatteredReads::Seconds(const DeviceProfile& device) const {
  return device.ReadSeconds(static_cast<uint64_t>(bytes), static_cast<uint64_t>(requests));
}

ScatteredReads MergedReadsOf(double units, double unit_bytes, double chance, const DeviceProfile& device) {
  const double missed = units * chance;
  const auto gap_units = std::floor(static_cast<double>(device.GapBytesMax()) / unit_bytes);
  const double none_within = std::pow(1 - chance, gap_units + 1);
  // The mean of j where j <= gap_units, by parts.
  const double q = 1 - chance;
  const double bridged =
      chance >= 1 || chance <= 0 ? 0 : q * (1 - none_within / q * (1 + gap_units * chance)) / chance;
  return {.bytes = unit_bytes * (missed + missed * std::max(0.0, bridged)),
          .requests = std::max(missed > 0 ? 1.0 : 0.0, missed * none_within)};
}

ScatteredReads ReadsOfLists(const ListsProbe& probe, uint64_t cache_bytes, const DeviceProfile& device) {
  if (!probe.in_memory && cache_bytes == probe.cache_bytes) return probe.reads;
  const auto whole = static_cast<double>(probe.indices_bytes);
  const double cache = std::min(static_cast<double>(cache_bytes), whole);
  if (whole <= 0 || cache >= whole) return {};
  const double known = probe.in_memory ? 0 : std::min(static_cast<double>(probe.cache_bytes), whole);
  const double hits_of_known = known > 0 ? probe.hits : 0;
  const double hits = cache < known || known >= whole
                          ? hits_of_known * cache / known
                          : hits_of_known + (probe.lists - hits_of_known) * (cache - known) / (whole - known);
  // A list lies in the page that it begins in, and in as many more as it is long.
  const double pages = std::max(1.0, std::ceil(whole / kPageBytes));
  const double touched = (probe.lists - hits) * (1 + probe.mean_list_bytes / kPageBytes);
  return MergedReadsOf(pages, kPageBytes, -std::expm1(-touched / pages), device);
}

}  // namespace quarry
