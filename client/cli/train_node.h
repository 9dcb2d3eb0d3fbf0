// `quarry train --task node`: what the command line asks for, and the parts that training on a database and
// on a server have in common.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli.h"
#include "layout_options.h"
#include "quarry/pipeline/partitioned_node_road.h"
#include "quarry/pipeline/road_choice.h"
#include "quarry/trainer/communicator.h"
#include "quarry/trainer/train.h"
#include "server_address.h"
#include "train_report.h"
#include "train_run.h"
#include "workers.h"

namespace quarry::cli {

struct NodeArguments {
  std::string path;          // the database's, or "unix:" and the server's socket
  bool inline_only = false;  // with a server: no shared memory
  std::string model = "sage";
  std::string memory;
  unsigned torch_threads = 0;
  LayoutFlags plan_flags = {.road = {.fanouts = {}}};  // fanouts, if none are given: DefaultFanouts
  LiveRoadOptions road;                                // but for its spec: that of plan_flags
  TrainOptions train;
  RunFlags run;
  std::string layout;  // empty: the live road
  bool plan = false;
  bool resample = false;
  uint64_t superbatch = 0;  // --superbatch: batches; 0: an epoch, or, where the road is chosen, as is best
  bool json = false;
  bool dry_run = false;
  std::optional<RoadKind> given_road;  // --road; nothing: the cheapest is taken
  bool policy_is_given = false;        // --policy
  bool plan_is_given = false;          // --plan, which is another word for a road
  // --road partitioned; of the samples and threads, `road` says what.
  std::optional<PartitionedNodeRoadOptions> parts;
  bool explain = false;
  WorkerFlags workers;
  std::string config;  // all of this as text (config_file.h)
};

// --model, --layers, --hidden and the others of the model.
void AddModelOptions(CLI::App* verb, NodeArguments& arguments);

// What a run of node classification was trained with, as its settings say (NodeSettings): the model, and the samples.
struct TrainedNode {
  TrainOptions train;
  RoadSpec road;
};
// kInvalidArgument for a run of another task.
Result<TrainedNode> ReadNodeSettings(std::string_view run, const std::string& settings);

// Trains and reports: of several trainers the first alone reports. `setup` has all but what the road tells.
Status TrainReported(Road& road, const NodeArguments& arguments, const TrainSetup& setup,
                     Communicator* trainers, StreamStats& last_epoch);

// kUsage for an option of those that train on the database itself, with what to do instead.
Status CheckRemoteOptions(const CLI::App& verb, const NodeArguments& arguments);
// Trains on a server's streams, alone or as one of several trainers: which, the environment says.
Status TrainRemotely(NodeArguments& arguments);

}  // namespace quarry::cli
