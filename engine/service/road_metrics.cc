#include "quarry/service/road_metrics.h"

#include <iterator>
#include <string>

namespace quarry {
namespace {

constexpr std::string_view kRoadNames[] = {"live", "planned", "superbatch", "partitioned"};

}  // namespace

RoadMetrics::RoadMetrics(Metrics& metrics) {
  static_assert(std::size(kRoadNames) == kRoads);
  for (const std::string_view road : kRoadNames) {
    const auto add = [&](std::string_view what, const char* help) -> Counter& {
      return metrics.AddCounter(fmt::format("quarry_road_{}_total", what),
                                fmt::format("{{road=\"{}\"}}", road), help);
    };
    roads_.push_back({add("batches", "Batches given to clients, in groups to each member."),
                      add("bytes", "Bytes of these batches."),
                      add("read_bytes", "Bytes that streams read from disk, of rows and of topology."),
                      add("useful_bytes", "Bytes of rows that batches needed and memory did not have."),
                      add("cache_lookups", "Rows that streams looked for in memory."),
                      add("cache_hits", "Rows of these that cost no read.")});
  }
}

void RoadMetrics::AddBatch(size_t road, uint64_t bytes) {
  roads_[road].batches.Add();
  roads_[road].bytes.Add(bytes);
}

void RoadMetrics::AddStats(size_t road, const StreamStats& now, const StreamStats& before) {
  const Road& counters = roads_[road];
  counters.read_bytes.Add(now.feature_bytes_read - before.feature_bytes_read);
  counters.read_bytes.Add(now.topology_bytes_read - before.topology_bytes_read);
  counters.useful_bytes.Add(now.bytes_useful - before.bytes_useful);
  counters.cache_lookups.Add(now.cache_lookups - before.cache_lookups);
  counters.cache_hits.Add(now.cache_hits - before.cache_hits);
}

std::string_view RoadMetrics::RoadName(size_t road) { return kRoadNames[road]; }

}  // namespace quarry
