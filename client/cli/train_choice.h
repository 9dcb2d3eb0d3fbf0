// The road that `quarry train` takes on a database of its own, where the command line leaves it open.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "quarry/database.h"
#include "quarry/pipeline/live_road.h"
#include "quarry/pipeline/road_choice.h"
#include "train_link.h"
#include "train_node.h"
#include "train_report.h"
#include "trained_on.h"

namespace quarry::cli {

// --road and --explain.
void AddRoadChoice(CLI::App* verb, NodeArguments& arguments, bool& partitioned);

// For --road partitioned, what link prediction's options say of it.
void TakePartOptions(const CLI::App& verb, const LinkArguments& link, NodeArguments& node);

// kUsage for what is only read where a layout may be planned, and for what cannot be read: before anything is opened.
Status CheckPlanOptions(const CLI::App& verb, const NodeArguments& arguments);

// Where --cache is auto, makes the live road keep as many rows as the budget has room for beside what training takes.
// `arguments` outlive the road's opening.
void TakeWhatIsLeft(NodeArguments& arguments, Database& database, uint32_t classes);

struct RoadDecision {
  std::optional<RoadCost> cost;    // nothing where there was nothing to choose, or too little to train
  std::unique_ptr<LiveRoad> live;  // open, where it is the road
  // For --dry-run, where there is a cost.
  std::string said;          // what was chosen and why, in two lines
  uint64_t least_bytes = 0;  // the least budget of the road
  uint64_t batch_nodes_max = 0;
};

// Probes, prices and chooses; sets in `arguments` what the road needs (plan, resample, cache, policy), and says in two
// lines on stderr what was chosen and why. With --explain it prints all roads on stdout instead, and opens none. A run
// that goes on takes the road that its checkpoint was trained on.
Result<RoadDecision> DecideRoad(NodeArguments& arguments, Database& database, const TrainedOn& trained_on);

}  // namespace quarry::cli
