// `quarry train unix:SOCKET`: the road is a server's, the model is here; alone, or as one of several trainers
// that share the road's batches.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/client/store.h"
#include "quarry/pipeline/newest_road.h"
#include "remote_road.h"
#include "remote_states.h"
#include "train_node.h"
#include "train_types.h"

namespace quarry::cli {
namespace {

struct Refusal {
  const char* option;
  const char* why;
};
constexpr const char* kServers = "is the server's to decide";
constexpr Refusal kRefusals[] = {
    {"--threads", kServers},
    {"--topology", kServers},
    {"--dry-run", "is of memory that is divided here, and this is the server's"},
    {"--road",
     "is chosen where one process opens the database itself: here give --layout, --resample, --road "
     "partitioned, or none of them"},
    {"--superbatch", kServers},
    {"--explain", "is of the road that is chosen where one process opens the database itself"},
    {"--epochs-planned", "is of layouts that are built here: `quarry layout build`, then --layout"},
    {"--hash-functions", "is of layouts that are built here: `quarry layout build`, then --layout"},
};

// The road that these arguments ask for.
Result<wire::OpenStream> StreamOf(const NodeArguments& arguments, const Manifest& manifest) {
  const RoadSpec& live = arguments.road.spec;
  wire::OpenStream request;
  if (arguments.parts) {
    const PartitionedRoadOptions& parts = arguments.parts->parts;
    request.road = wire::PartitionedSpec{.live = live,
                                         .partitioning = arguments.parts->partitioning,
                                         .buffer = parts.buffer,
                                         .logical = parts.logical};
  } else if (arguments.resample) {
    wire::SuperbatchSpec superbatches{.live = live, .policy = arguments.plan_flags.policy};
    if (!arguments.plan_flags.disk.empty()) {
      QUARRY_TRY(const uint64_t feature_bytes, FeatureBytes(manifest, live.feature_table));
      QUARRY_TRY(superbatches.disk_bytes, ParseDisk(arguments.plan_flags.disk, feature_bytes));
    }
    request.road = std::move(superbatches);
  } else if (!arguments.layout.empty()) {
    request.road = wire::PlannedSpec{.layout = arguments.layout, .live = live.ForOtherPasses()};
  } else {
    request.road = live;
  }
  return request;
}

// One rank after the other; all get the error of one.
Status InTurn(Communicator* trainers, const std::function<Status()>& work) {
  if (trainers == nullptr) return work();
  for (uint32_t rank = 0; rank < trainers->size(); rank++) {
    QUARRY_RETURN_IF_ERROR(Agree(trainers, rank == trainers->rank() ? work() : Status::Ok()));
  }
  return Status::Ok();
}

// What rank 0 has, all have afterwards.
template <typename T>
Status TellAll(Communicator& trainers, std::vector<T>& values) {
  std::array<uint64_t, 1> count = {values.size()};
  QUARRY_RETURN_IF_ERROR(trainers.Broadcast(std::as_writable_bytes(std::span(count)), 0));
  values.resize(count[0]);
  return values.empty() ? Status::Ok() : trainers.Broadcast(std::as_writable_bytes(std::span(values)), 0);
}

class ServerSource final : public TrainingSource {
 public:
  ServerSource(NodeArguments& arguments, std::string address, std::unique_ptr<Communicator> trainers)
      : arguments_(arguments),
        trainers_(std::move(trainers)),
        size_(trainers_ != nullptr ? trainers_->size() : 1),
        first_(trainers_ == nullptr || trainers_->rank() == 0),
        address_(std::move(address)) {}
  ~ServerSource() override { arguments_.train.targets.reset(); }  // they read the store, which goes with this

  Communicator* trainers() override { return trainers_.get(); }

  Result<TrainingRoad> OpenRoad() override {
    QUARRY_RETURN_IF_ERROR(CheckNewest());
    // The road is the first one's, and so is the memory; the others take the least that a session can have,
    // and before it takes what there is.
    if (trainers_ != nullptr) {
      QUARRY_RETURN_IF_ERROR(Agree(trainers(), first_ ? Status::Ok() : Connect(1)));
    }
    QUARRY_RETURN_IF_ERROR(
        Agree(trainers(), first_ ? Connect(arguments_.workers.memory_bytes) : Status::Ok()));
    QUARRY_RETURN_IF_ERROR(Agree(trainers(), TakeTargets(*opened_.store, opened_.manifest, arguments_)));
    QUARRY_RETURN_IF_ERROR(ShareDegrees());
    QUARRY_RETURN_IF_ERROR(ShareKinds());
    if (arguments_.train.torch_threads == 0) {
      arguments_.train.torch_threads = std::max(1U, ProcessorCount() / size_);
    }
    TrainingRoad open{.batch_nodes_max = opened_.manifest.node_count};
    if (arguments_.parts) {  // how they are tuned is known once there is a road, and belongs to the run
      QUARRY_RETURN_IF_ERROR(TakePartsOfRun());
      QUARRY_RETURN_IF_ERROR(OpenStream(open.road));
      open.batch_nodes_max = parts_->batch_nodes_max;
      QUARRY_RETURN_IF_ERROR(Agree(trainers(), OpenRun(open.setup.run)));
    } else {
      QUARRY_RETURN_IF_ERROR(Agree(trainers(), OpenRun(open.setup.run)));
      QUARRY_RETURN_IF_ERROR(arguments_.newest ? OpenNewest(open.road) : OpenStream(open.road));
    }
    QUARRY_RETURN_IF_ERROR(Agree(trainers(), CheckEdgesStayed(*opened_.store, address_, opened_.manifest,
                                                              arguments_.road.spec, arguments_.train)));
    open.setup.remote = true;
    open.setup.trainers = size_;
    open.setup.memory_budget_bytes = opened_.memory_bytes;
    open.setup.road = arguments_.road;
    open.setup.road.sampler_threads = open.setup.road.extractor_threads = 0;
    QUARRY_RETURN_IF_ERROR(Agree(trainers(), CheckMemory(open)));
    return open;
  }

 private:
  // What is looked up once would not know of nodes that come.
  Status CheckNewest() const {
    const ModelSpec& model = arguments_.train.spec;
    std::string_view once;
    if (model.needs_degrees()) once = "this model looks the degrees of all nodes up";
    if (model.needs_relations()) once = "this model looks the relations of all edges up";
    if (!arguments_.target.empty()) once = "--target opens its table";
    if (!arguments_.newest || once.empty()) return Status::Ok();
    return MakeStatus(Code::kUsage,
                      "--newest takes in nodes that come meanwhile, and {} once: leave one of them out",
                      once);
  }

  // All trainers open it anew at the same epochs: the first one says when.
  Status OpenNewest(std::unique_ptr<Road>& road) {
    const auto tell_all = [this](uint64_t timestamp) -> Result<uint64_t> {
      std::array<uint64_t, 1> told = {timestamp};
      if (trainers_ != nullptr) {
        QUARRY_RETURN_IF_ERROR(trainers_->Broadcast(std::as_writable_bytes(std::span(told)), 0));
      }
      return told[0];
    };
    NewestRoad::Source source;
    source.newest = [this, tell_all]() -> Result<uint64_t> {
      uint64_t timestamp = 0;
      QUARRY_RETURN_IF_ERROR(Agree(trainers(), [&]() -> Status {
        if (!first_) return Status::Ok();
        QUARRY_TRY(const std::unique_ptr<client::Snapshot> now, opened_.store->TakeSnapshot());
        timestamp = now->timestamp();
        return Status::Ok();
      }()));
      return tell_all(timestamp);
    };
    source.open = [this, tell_all]() -> Result<NewestRoad::Opened> {
      NewestRoad::Opened opened;
      QUARRY_RETURN_IF_ERROR(OpenStream(opened.road));
      QUARRY_TRY(opened.timestamp, tell_all(first_ ? snapshot_->timestamp() : 0));
      return opened;
    };
    QUARRY_TRY(road, NewestRoad::Make(std::move(source)));
    return Status::Ok();
  }

  // Looked up once, by the first one, whose memory is the road's.
  Status ShareDegrees() {
    TrainOptions& train = arguments_.train;
    if (!train.spec.needs_degrees()) return Status::Ok();
    const Direction direction = arguments_.road.spec.direction;
    const uint64_t node_count = opened_.manifest.node_count;
    QUARRY_RETURN_IF_ERROR(
        Agree(trainers(), first_ ? TakeDegrees(*opened_.store, node_count, direction, train) : Status::Ok()));
    if (trainers_ == nullptr) return Status::Ok();
    std::vector<uint32_t> degrees;
    if (first_) degrees = *train.degrees;
    QUARRY_RETURN_IF_ERROR(TellAll(*trainers_, degrees));
    train.degrees = std::make_shared<const std::vector<uint32_t>>(std::move(degrees));
    return Status::Ok();
  }

  // What a model is told of types and relations. The relation of each edge is looked up once, by the first one, whose memory
  // is the road's.
  Status ShareKinds() {
    TrainOptions& train = arguments_.train;
    if (!train.spec.needs_relations()) return Status::Ok();
    const RoadSpec& road = arguments_.road.spec;
    const auto take = [&]() -> Status {
      QUARRY_RETURN_IF_ERROR(CheckRoadOfTypes(arguments_));
      QUARRY_RETURN_IF_ERROR(TakeInputs(opened_.manifest, road, train));
      return first_ ? TakeKindsOf(*opened_.store, opened_.manifest, road, train) : Status::Ok();
    };
    QUARRY_RETURN_IF_ERROR(Agree(trainers(), take()));
    if (trainers_ == nullptr || !road.relation_fanouts.empty()) return Status::Ok();
    std::vector<uint32_t> kinds;
    if (first_) kinds = *train.inputs.kinds;
    QUARRY_RETURN_IF_ERROR(TellAll(*trainers_, kinds));
    train.inputs.kinds = std::make_shared<const std::vector<uint32_t>>(std::move(kinds));
    return Status::Ok();
  }

  Status CheckMemory(const TrainingRoad& open) const {
    const Road& road = *open.road;
    const RoadSpec& spec = arguments_.road.spec;
    const BlockBounds bounds = BoundBlock(spec.batch_size, spec.fanouts, open.batch_nodes_max);
    const bool checkpoints = open.setup.run.states != nullptr;
    if (!parts_) {
      return CheckTrainerMemory(arguments_.train, road.feature_dim(), road.labels(), bounds, checkpoints, 0,
                                MemoryLimitBytes());
    }
    const auto largest_label = [this]() -> Result<LargestLabel> {  // which the server alone can find
      return MakeStatus(
          Code::kOutOfBudget,
          "a model that tells {} classes apart, as the largest label of partitioning \"{}\" "
          "asks for, takes more than the machine or cgroup allows, {}: where one label is wrong, "
          "`quarry train` on the database itself names its node",
          parts_->class_count, arguments_.parts->partitioning, FormatBytes(MemoryLimitBytes()));
    };
    return CheckTrainerMemory(arguments_.train, road.feature_dim(), road.class_count(), largest_label, bounds,
                              checkpoints, 0, MemoryLimitBytes());
  }

  // What tuning gave a run that goes on, for all trainers, since they open the same road.
  Status TakePartsOfRun() {
    PartitionedRoadOptions& parts = arguments_.parts->parts;
    const auto take = [&]() -> Status {
      QUARRY_TRY(const std::optional<TrainRun> run, arguments_.run.NodeRun());
      if (!run || !run->resume) return Status::Ok();
      QUARRY_TRY(const TrainingRecord record, States().Find(run->name));
      return TakeTunedParts(run->name, record.settings, parts);
    };
    QUARRY_RETURN_IF_ERROR(Agree(trainers(), first_ ? take() : Status::Ok()));
    if (trainers_ == nullptr) return Status::Ok();
    std::array<uint32_t, 2> tuned = {parts.buffer, parts.logical};
    QUARRY_RETURN_IF_ERROR(trainers_->Broadcast(std::as_writable_bytes(std::span(tuned)), 0));
    parts.buffer = tuned[0];
    parts.logical = tuned[1];
    return Status::Ok();
  }

  TrainingStates& States() {
    if (states_ == nullptr) states_ = StatesOf(*opened_.store, address_);
    return *states_;
  }

  Status Connect(uint64_t memory_bytes) {
    QUARRY_TRY(opened_, OpenWithMemory(arguments_, address_, memory_bytes));
    return Status::Ok();
  }

  // The first one's checkpoints are those of all. What cannot be is refused before there is a road.
  Status OpenRun(TrainRun& taken) {
    QUARRY_TRY(const std::optional<TrainRun> run, arguments_.run.NodeRun());
    taken = run.value_or(TrainRun());
    taken.from = arguments_.run.from;
    if (first_) QUARRY_RETURN_IF_ERROR(TakeFirstWeights(arguments_, opened_.manifest, States(), taken));
    if (!run) return Status::Ok();
    NodeSettings settings{.road = arguments_.road.spec,
                          .train = arguments_.train,
                          .parts = parts_ ? &*parts_ : nullptr,
                          .resample = arguments_.resample,
                          .trainers = size_,
                          .from = taken.from,
                          .target = arguments_.target};
    QUARRY_TRY(const wire::OpenStream stream, StreamOf(arguments_, opened_.manifest));
    const auto* const superbatches = std::get_if<wire::SuperbatchSpec>(&stream.road);
    LayoutSpec planned;
    if (superbatches != nullptr) {
      planned = {
          .road = superbatches->live, .policy = superbatches->policy, .disk_bytes = superbatches->disk_bytes};
      settings.planned = &planned;
    }
    settings.built = opened_.manifest.FindLayout(arguments_.layout);
    if (settings.built != nullptr) taken.epochs_of_cycle = settings.built->epochs;
    if (!first_) return Status::Ok();
    taken.settings = settings.ToString();
    taken.config = arguments_.config;
    taken.states = &States();
    return CheckTrainRun(taken);
  }

  // Batch i goes to the rank that opened the stream as number i mod ranks, so they open it in order.
  Status OpenStream(std::unique_ptr<Road>& road) {
    std::array<uint64_t, 1> group = {std::random_device()()};
    if (trainers_ != nullptr) {
      QUARRY_RETURN_IF_ERROR(trainers_->Broadcast(std::as_writable_bytes(std::span(group)), 0));
    }
    std::unique_ptr<client::Stream> stream;
    NodeProperties properties;
    QUARRY_RETURN_IF_ERROR(InTurn(trainers(), [&]() -> Status {
      QUARRY_TRY(wire::OpenStream request, StreamOf(arguments_, opened_.manifest));
      if (trainers_ != nullptr) {
        request.mode = wire::StreamMode::kSplit;
        request.group = fmt::format("train-{:x}", group[0]);
        request.members = size_;
      }
      client::Store& store = *opened_.store;
      // By parts nobody holds anything of each node, and rows are those of the partitioning's build.
      if (first_ && !arguments_.parts) {
        QUARRY_TRY(snapshot_, store.TakeSnapshot());
        QUARRY_TRY(properties, LookUpProperties(store, *snapshot_));
        request.snapshot = snapshot_->id();
      }
      QUARRY_TRY(stream, store.OpenStream(request));
      return Status::Ok();
    }));
    if (trainers_ != nullptr) {
      QUARRY_RETURN_IF_ERROR(TellAll(*trainers_, properties.labels));
      QUARRY_RETURN_IF_ERROR(TellAll(*trainers_, properties.splits));
    }
    parts_ = stream->parts();
    road = std::make_unique<RemoteRoad>(std::move(stream), std::move(properties), size_);
    return Status::Ok();
  }

  NodeArguments& arguments_;
  const std::unique_ptr<Communicator> trainers_;
  const uint32_t size_;
  const bool first_;
  const std::string address_;
  OpenedDatabase opened_;  // goes last
  std::unique_ptr<TrainingStates> states_;
  std::optional<wire::OpenedParts> parts_;  // --road partitioned
  // The road's; of the first, as long as it may have to open it anew.
  std::unique_ptr<client::Snapshot> snapshot_;
};

}  // namespace

Status CheckRemoteOptions(const CLI::App& verb, const NodeArguments& arguments) {
  for (const Refusal& refusal : kRefusals) {
    if (verb.count(refusal.option) == 0) continue;
    if (arguments.parts && refusal.option == std::string_view("--road")) continue;
    return MakeStatus(Code::kUsage, "{} {}", refusal.option, refusal.why);
  }
  if (arguments.plan && !arguments.resample) {
    return Status(
        Code::kUsage,
        "--plan builds a layout in the database: `quarry layout build`, then --layout; or sample and "
        "plan every epoch anew: --resample every-epoch");
  }
  return arguments.run.NodeRun().status();
}

Result<std::unique_ptr<TrainingSource>> SourceOfServer(NodeArguments& arguments, const std::string& address) {
  QUARRY_TRY(const std::optional<Rendezvous> rendezvous, RendezvousFromEnvironment(std::getenv));
  std::unique_ptr<Communicator> trainers;
  if (rendezvous) {
    QUARRY_TRY(trainers, JoinTrainers(*rendezvous));
  }
  return std::make_unique<ServerSource>(arguments, address, std::move(trainers));
}

}  // namespace quarry::cli
