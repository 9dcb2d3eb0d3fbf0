// What a graph that grows costs: one list of figures for all who show them (`quarry info`, `stats` and `layout explain`, the tables
// `stats` and `growth` of SQL, a server's metrics).
//
//   GrowthCost     of a topology: what its record says of runs, and what these are predicted to cost; the same whoever asks
//   GrowthWritten  what this process has written to a topology since it opened the database: a figure of the writer, of which
//                  the catalog keeps nothing
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>

#include "quarry/base/fields.h"
#include "quarry/base/mutex.h"
#include "quarry/format/device_record.h"
#include "quarry/format/topology_record.h"
#include "quarry/storage/runs_price.h"

namespace quarry {

// Bytes that whoever adds or removes an edge gives: its two ends. What is written is held against them.
inline constexpr uint64_t kEdgeGivenBytes = 8;

struct GrowthCost {
  std::string topology;
  uint64_t runs = 0;               // over the topology's file
  uint64_t run_commits = 0;        // that are in them
  uint64_t run_edges_added = 0;    // by the runs
  uint64_t run_edges_removed = 0;  // by the runs: tombstones
  uint64_t run_bytes = 0;          // of their files
  uint64_t added_nodes = 0;        // since the topology's file was written
  double run_amplification =
      0;  // bytes of runs beside those that their edges were given by; 0: there are none
  RunsPrice price;
};

// REQUIRES: rates above 0, as DeviceOf gives them.
GrowthCost CostOf(const TopologyRecord& topology, const DeviceRecord& device);

struct GrowthWritten {
  uint64_t commits = 0;            // of nodes and edges
  uint64_t changed_edges = 0;      // that they added and removed
  uint64_t nodes_removed = 0;      // by them
  uint64_t given_bytes = 0;        // of these edges
  uint64_t commit_bytes = 0;       // of the runs that they made
  uint64_t merge_bytes = 0;        // of runs that several were merged into
  uint64_t compaction_bytes = 0;   // of files that runs were folded into
  double write_amplification = 0;  // bytes of the last three beside those given; 0: none were

  // Sums everything up.
  void Add(const GrowthWritten& more);
};

// By topology. Thread-safe.
class GrowthTally {
 public:
  void Add(std::string_view topology, const GrowthWritten& written) QUARRY_EXCLUDES(mutex_);
  GrowthWritten Of(std::string_view topology) const QUARRY_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::map<std::string, GrowthWritten, std::less<>> written_ QUARRY_GUARDED_BY(mutex_);
};

// What a figure is, in a sentence.
std::string_view MeaningOfFigure(std::string_view name);

// Calls visit(name, value) for each figure that is a number; those of a struct within stand in its place.
template <Record T, typename Visit>
void ForEachFigure(const T& figures, const Visit& visit) {
  ForEachField(figures, [&](std::string_view name, const auto& value) {
    using Value = std::remove_cvref_t<decltype(value)>;
    if constexpr (std::is_arithmetic_v<Value>) {
      visit(name, value);
    } else if constexpr (Record<Value>) {
      ForEachFigure(value, visit);
    }
  });
}

}  // namespace quarry
