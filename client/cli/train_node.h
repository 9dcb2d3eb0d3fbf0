// `quarry train` of tasks on nodes: what the command line asks for, and the parts that training on a database and
// on a server have in common.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli.h"
#include "layout_options.h"
#include "quarry/client/store.h"
#include "quarry/format/manifest.h"
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
  std::string memory;
  std::string cache_folder, cache_size;  // --cache-dir, --cache-size: of a database in an object store
  unsigned torch_threads = 0;
  LayoutFlags plan_flags = {.road = {.fanouts = {}}};  // fanouts, if none are given: DefaultFanouts
  LiveRoadOptions road;                                // but for its spec: that of plan_flags
  TrainOptions train;
  std::string target;  // --target: TABLE or TABLE@+LAG
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
  bool eval_layers = false;  // --eval layers
  bool newest = false;       // --newest: each epoch trains on what the server's database has when it begins
  WorkerFlags workers;
  std::string config;  // all of this as text (config_file.h)
};

// --model, --layers, --hidden and the others of the model.
void AddModelOptions(CLI::App* verb, NodeArguments& arguments);
// kUsage for an option of another model than the one that is trained.
Status CheckModelOptions(const CLI::App& verb, const ModelSpec& spec);

// kUsage where the rate's options do not fit each other; fills in how many epochs a schedule has where that is left open.
Status FinishSchedule(LearningSchedule schedule, uint32_t epochs, uint32_t& schedule_epochs);

// What a run on nodes was trained with, as its settings say (NodeSettings): the model, the samples and the targets.
struct TrainedNode {
  TrainOptions train;
  RoadSpec road;
  std::string target = {};
};
// kInvalidArgument for a run of link prediction.
Result<TrainedNode> ReadNodeSettings(std::string_view run, const std::string& settings);

// What a run on nodes is asked for, beside its state: the settings above, with what its model is told of types and
// relations, and the columns of the features that it reads, where these are of one table.
struct TrainedShape {
  TrainedNode trained;
  uint32_t feature_dim = 0;
};
// kNotFound where the run, or the table that it reads, is not there.
Result<TrainedShape> ShapeOfRun(const Manifest& manifest, TrainingStates& states, std::string_view run);

// Looks the degrees up that a model asks for, along the direction of its road: 4 bytes a node, which are the trainer's.
// kOutOfBudget where the machine or cgroup has not as much.
Status TakeDegrees(client::Store& store, uint64_t node_count, Direction direction, TrainOptions& train);

// What asks which edges a batch has, as it is written: "--edge-weights on", "--model rgcn". REQUIRES: looks_at_edges.
std::string EdgeOption(const ModelSpec& model);
// kUsage where a model that looks at edges cannot have them: of another direction than in, and weights of a database that is
// a server's. Batches then say which edges they have.
Status AskForEdges(const ModelSpec& model, bool remote, RoadSpec& road);
// kUnsupported where all neighbors alike cannot stand for the samples that a model takes. `who` draws them ("this training"),
// and `option` does not.
Status CheckAllNeighbors(std::string_view who, std::string_view option, const ModelSpec& model,
                         const RoadSpec& road);
// kUsage for the road of parts, where the model draws by types of edges. REQUIRES: AskByType.
Status CheckRoadOfTypes(const NodeArguments& arguments);
// Loads the weights that a model asks for, along the edges that lead to a node: 4 bytes an edge of the database's budget.
// Whoever has the database lets go of them before it. kInvalidArgument where edges have none, or a negative one.
Status TakeWeights(Database& database, const std::string& topology, TrainOptions& train);

// Opens the targets that a task learns (train_targets.h). Whoever has the store lets go of them before it.
Status TakeTargets(client::Store& store, const Manifest& manifest, NodeArguments& arguments);

// Has the run begin with the weights that --from names, if it does. Refuses a run or a file that cannot be read; whether
// they fit the model is seen when there is one. `states` outlive the run.
Status TakeFirstWeights(const NodeArguments& arguments, const Manifest& manifest, TrainingStates& states,
                        TrainRun& run);

// A road that is open to be trained on, and what is known of it.
struct TrainingRoad {
  std::unique_ptr<Road> road;  // null: there was a question, which is answered (--explain, --dry-run)
  // Samples whatever a layout does not hold; null of a server's road, and by parts.
  const LiveRoad* live = nullptr;
  uint64_t batch_nodes_max = 0;
  TrainSetup setup;  // but for what the model and the command line say
};

// What there is to train on: a database that is open in this process, or a server's. Outlives its road.
class TrainingSource {
 public:
  virtual ~TrainingSource() = default;
  // Once. Refuses what cannot be trained, or has no memory, before a road is made.
  virtual Result<TrainingRoad> OpenRoad() = 0;
  // All that train this model together; null: this process alone.
  virtual Communicator* trainers() { return nullptr; }
  // Keeps what the last epoch took, once its road is gone.
  virtual Status Remember(const StreamStats& /*last_epoch*/) { return Status::Ok(); }
};

// Opens what `arguments` name: their path or, of a worker, the address that it was started with. Which trainers there are,
// the environment says.
Result<std::unique_ptr<TrainingSource>> OpenTrainingSource(NodeArguments& arguments);

// The database at an address, as training opens it.
struct OpenedDatabase {
  std::unique_ptr<client::Store> store;
  Manifest manifest;
  uint64_t memory_bytes = 0;  // 0: as much as is usual
};
// With so much memory; 0: with what --memory says. That and --cache may be shares of the feature bytes, which the database
// tells. Sets the cache of `arguments`.
Result<OpenedDatabase> OpenWithMemory(NodeArguments& arguments, const std::string& address,
                                      uint64_t memory_bytes = 0);

// The source of a store in this process, and that of a server's.
std::unique_ptr<TrainingSource> SourceOfDatabase(NodeArguments& arguments,
                                                 std::unique_ptr<client::Store> store);
Result<std::unique_ptr<TrainingSource>> SourceOfServer(NodeArguments& arguments, const std::string& address);

// Trains and reports: of several trainers the first alone reports.
Status TrainFrom(TrainingSource& source, const NodeArguments& arguments);

// kUsage for an option of those that train on the database itself, with what to do instead.
Status CheckRemoteOptions(const CLI::App& verb, const NodeArguments& arguments);

}  // namespace quarry::cli
