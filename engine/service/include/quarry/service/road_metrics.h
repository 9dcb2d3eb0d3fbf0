// RoadMetrics: what all streams of a kind of road have delivered and read since the server started. Unlike
// the figures of streams, which go with them, these never fall.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "quarry/format/wire_requests.h"
#include "quarry/pipeline/batch_stream.h"
#include "quarry/service/metrics.h"

namespace quarry {

// Thread-safe.
class RoadMetrics {
 public:
  explicit RoadMetrics(Metrics& metrics);

  // `road`: the alternative of wire::OpenStream::road.
  void AddBatch(size_t road, uint64_t bytes);
  // What a pass has come to since it had come to `before`.
  void AddStats(size_t road, const StreamStats& now, const StreamStats& before);

  static std::string_view RoadName(size_t road);  // "live"

 private:
  struct Road {
    Counter& batches;
    Counter& bytes;
    Counter& read_bytes;
    Counter& useful_bytes;
    Counter& cache_lookups;
    Counter& cache_hits;
  };
  static constexpr size_t kRoads = std::variant_size_v<decltype(wire::OpenStream::road)>;
  std::vector<Road> roads_;
};

}  // namespace quarry
