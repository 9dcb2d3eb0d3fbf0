// What `quarry train` prints on stdout: a table for people, or one JSON object a line (docs/cli.md, "quarry
// train").
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "quarry/pipeline/live_road.h"
#include "quarry/pipeline/road_choice.h"
#include "quarry/pipeline/superbatch_road.h"
#include "quarry/trainer/train.h"

namespace quarry::cli {

// What a run was given.
struct TrainSetup {
  bool remote = false;    // the engine is a server's
  uint32_t trainers = 1;  // trainers that share the model
  uint64_t memory_budget_bytes = 0;
  uint64_t least_budget_bytes = 0;  // of the road; 0 where nobody asked
  uint64_t cache_budget_bytes = 0;
  uint64_t overhead_bytes = 0;  // beyond the memory budget: peak RSS stays under the sum
  // What building the planned road's layout took in this run; 0 when the layout was there.
  double plan_seconds = 0;
  uint64_t plan_bytes_written = 0;
  uint64_t plan_bytes_read = 0;
  std::optional<double> predicted_seconds;       // reading an epoch; empty on the live road
  std::optional<RoadCost> decision;              // what the road was chosen by, where one was
  const SuperbatchRoad* superbatches = nullptr;  // for --resample every-epoch; outlives the report
  LiveRoadOptions road;
  TrainOptions train;
  TrainRun run;
  std::string config;
  std::string ToString() const;  // what it takes: threads and memory
};

class TrainReport {
 public:
  TrainReport(const TrainSetup& setup, bool json);
  // What --dry-run tells: of the live road, how it would divide its memory.
  void Plan(const LiveRoadPlan& plan);
  // A road that was chosen, in the words of the choice; `live`: open, where it is that road.
  void Decision(const std::string& said, const LiveRoad* live);
  void Epoch(const EpochReport& epoch);
  void Summary(const TrainSummary& summary);

 private:
  void PrintPeak() const;

  const TrainSetup setup_;
  const bool json_;
  const double began_processor_seconds_;  // used before, by probing and building
  bool header_printed_ = false;
};

// What --explain tells of all roads. --patience may leave fewer epochs than are priced.
void PrintRoads(const RoadChoice& choice, uint64_t epochs, uint32_t patience, bool json);

}  // namespace quarry::cli
