// `quarry train --task link`: its options, and the run that they ask for.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cli.h"
#include "option_values.h"
#include "quarry/pipeline/partitioned_road.h"
#include "quarry/trainer/link_run.h"
#include "quarry/trainer/link_train.h"
#include "quarry/trainer/newest_links.h"

namespace quarry::cli {

inline Choices<AsyncMode> AsyncModes() {
  return {{"sync", AsyncMode::kSync},
          {"async", AsyncMode::kAsync},
          {"async-bounded", AsyncMode::kAsyncBounded},
          {"oac", AsyncMode::kOac}};
}
inline Choices<OptimizerKind> Optimizers() {
  return {{"sgd", OptimizerKind::kSgd}, {"adagrad", OptimizerKind::kAdagrad}, {"adam", OptimizerKind::kAdam}};
}

// Values of --road that are no RoadKind: to choose among those (link prediction: all edges at a time), and part by part.
inline constexpr std::string_view kAutoRoad = "auto";
inline constexpr std::string_view kPartitionedRoad = "partitioned";

struct LinkArguments {
  LinkTrainOptions train;
  std::optional<GnnKind> encoder;
  std::string features;  // --features: the table; empty: vectors are learned
  std::string valid_share = "0", test_share = "0";
  bool save = false;
  bool newest =
      false;  // --newest: each epoch trains on the edges that a server's database has when it begins
  bool partitioned = false;
  std::string partitioning = "default";
  PartitionedRoadOptions road;
  // What both tasks have, as it is read from `verb`:
  std::string path;
  bool inline_only = false;
  uint64_t memory_bytes = 0;
  HeldOutShares shares;
  LinkRunOptions run;
};

// Where edges are and checkpoints are kept: a database that is open in this process, or a server's. Outlives data and run.
class LinkOrigin {
 public:
  virtual ~LinkOrigin() = default;
  virtual MemoryBudget& budget() = 0;
  // Once. Refuses a budget that cannot hold all of the training before anything is read. Sets how many columns features
  // have in `arguments`.
  virtual Result<LinkData> LoadData() = 0;
  // Null where vectors are in memory and there is no checkpoint. REQUIRES: LoadData, which gave `data`.
  virtual Result<std::unique_ptr<LinkRun>> OpenRun(const LinkData& data) = 0;
};
// `arguments` outlive it.
Result<std::unique_ptr<LinkOrigin>> OpenLinkOrigin(LinkArguments& arguments);
std::string DescribeLinks(const LinkData& data);  // "9 nodes, 1 relations, 7 + 1 + 1 edges"
// The edges of a server's database, as they are whenever they are asked for. `arguments` and `budget` outlive it.
Result<NewestLinks> OpenNewestLinks(const LinkArguments& arguments, MemoryBudget& budget);

// Adds those options that only this task has.
void AddLinkOptions(CLI::App* verb, LinkArguments& arguments);

// kUsage when `verb` was given an option of the other kind of task: of `task`, "link", or those on nodes.
Status CheckTaskOptions(const CLI::App& verb, std::string_view task);

// Takes from `verb` what both tasks have: where the user gave none of these, link prediction has its own
// defaults.
Status TrainLink(const CLI::App& verb, LinkArguments& arguments);

}  // namespace quarry::cli
