// What a graph that grows costs: one list of figures for all who show them (`quarry info`, `stats` and `layout explain`, the tables
// `stats` and `growth` of SQL, a server's metrics).
//
//   GrowthCost     of a topology: what its record says of runs, and what these are predicted to cost; the same whoever asks
//   GrowthMeasured what they have cost whoever drew samples in this process; predictions stand in until enough is measured
//   GrowthWritten  what this process has written to a topology since it opened the database: a figure of the writer, of which
//                  the catalog keeps nothing
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
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

// Sums over blocks that were drawn, of the topology's present file, the newest of which weigh the most.
struct GrowthMeasured {
  uint64_t measured_draws = 0;     // neighbors that were drawn
  uint64_t measured_searches = 0;  // of them, looked up among edits: those from lists on the disk
  double measured_seconds = 0;     // of drawing them, and of opening the graph for it
  double measured_run_seconds =
      0;                         // of these, what runs took: looking up, and reading and composing at opening
  uint64_t measured_edits = 0;   // that the runs had
  double measured_slowdown = 0;  // as SlowdownOf says

  // Sums everything up; of edits, the more. What is old is worth half whenever there is plenty of it.
  void Add(const GrowthMeasured& more);
};

// Draws from which a slowdown is told: looking one up takes 0.1 to 2 us, and what the system makes of a clock in between is
// some percent of so many.
inline constexpr uint64_t kDrawsMeasuredMin = uint64_t{1} << 17;

// Times that drawing and opening took longer because of runs; 0 where fewer than kDrawsMeasuredMin are measured.
double SlowdownOf(const GrowthMeasured& measured);

// As PaysToFold (runs_price.h), by what is measured: unless nothing can be told of it, or the runs have more than twice the edits
// that were measured; then by what is predicted.
bool PaysToFold(const TopologyRecord& topology, const DeviceRecord& device, const GrowthMeasured& measured,
                double slowdown_max);

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

// What opening a topology took, and of it, reading and composing runs.
struct OpeningSeconds {
  double all = 0, runs = 0;
};

class RunsMeter;

// By topology. Thread-safe.
class GrowthTally {
 public:
  // For whoever draws from a topology that was opened by this record. What it measures counts while the topology has this file.
  std::shared_ptr<RunsMeter> MeterOf(const TopologyRecord& record, const OpeningSeconds& opening)
      QUARRY_EXCLUDES(mutex_);
  GrowthMeasured Measured(const TopologyRecord& topology) const QUARRY_EXCLUDES(mutex_);
  void Add(std::string_view topology, const GrowthWritten& written) QUARRY_EXCLUDES(mutex_);
  GrowthWritten Of(std::string_view topology) const QUARRY_EXCLUDES(mutex_);

 private:
  struct Sums;
  friend class RunsMeter;
  mutable Mutex mutex_;
  std::map<std::string, std::shared_ptr<Sums>, std::less<>> measured_ QUARRY_GUARDED_BY(mutex_);
  std::map<std::string, GrowthWritten, std::less<>> written_ QUARRY_GUARDED_BY(mutex_);
};

// What is measured of one topology that is open. Thread-safe.
class RunsMeter {
 public:
  // So many neighbors were drawn in `seconds`, and of them so many were looked up among edits in `search_seconds`.
  void Add(uint64_t draws, double seconds, uint64_t searches, double search_seconds);

 private:
  friend class GrowthTally;
  std::shared_ptr<GrowthTally::Sums> sums_;
  uint64_t edits_ = 0;
  OpeningSeconds opening_;
  std::atomic<bool> opening_counted_ = false;  // with the first that was drawn: others open it, too
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
