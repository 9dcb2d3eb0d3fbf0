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
#include <utility>
#include <vector>

#include "opened_store.h"
#include "option_values.h"
#include "quarry/base/log.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/client/store.h"
#include "remote_road.h"
#include "remote_states.h"
#include "server_address.h"
#include "train_node.h"

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
     "is chosen where one process opens the database itself: here give --layout, --resample, or neither"},
    {"--superbatch", kServers},
    {"--explain", "is of the road that is chosen where one process opens the database itself"},
    {"--epochs-planned", "is of layouts that are built here: `quarry layout build`, then --layout"},
    {"--hash-functions", "is of layouts that are built here: `quarry layout build`, then --layout"},
};

// The road that these arguments ask for.
Result<wire::OpenStream> StreamOf(const NodeArguments& arguments, uint64_t feature_bytes) {
  RoadSpec live = arguments.road.spec;
  QUARRY_TRY(live.cache_bytes, ParseCache(arguments.plan_flags.cache, feature_bytes));
  wire::OpenStream request;
  if (arguments.resample) {
    wire::SuperbatchSpec superbatches{.live = std::move(live), .policy = arguments.plan_flags.policy};
    if (!arguments.plan_flags.disk.empty()) {
      QUARRY_TRY(superbatches.disk_bytes, ParseDisk(arguments.plan_flags.disk, feature_bytes));
    }
    request.road = std::move(superbatches);
  } else if (!arguments.layout.empty()) {
    request.road = wire::PlannedSpec{.layout = arguments.layout, .live = live.ForOtherPasses()};
  } else {
    request.road = std::move(live);
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

class RemoteTraining {
 public:
  RemoteTraining(NodeArguments& arguments, Communicator* trainers)
      : arguments_(arguments),
        trainers_(trainers),
        size_(trainers != nullptr ? trainers->size() : 1),
        first_(trainers == nullptr || trainers->rank() == 0),
        address_(arguments.workers.address.empty() ? arguments.path : arguments.workers.address) {}

  Status Run() {
    QUARRY_RETURN_IF_ERROR(Connect());
    if (arguments_.train.torch_threads == 0) {
      arguments_.train.torch_threads = std::max(1U, ProcessorCount() / size_);
    }
    QUARRY_RETURN_IF_ERROR(Agree(trainers_, OpenRun()));
    QUARRY_RETURN_IF_ERROR(OpenRoad());
    const TrainSetup setup = Setup();
    QUARRY_RETURN_IF_ERROR(
        Agree(trainers_, CheckTrainerMemory(arguments_.train, road_->feature_dim(), road_->labels(),
                                            BoundHopNodes(arguments_.road.spec.batch_size,
                                                          arguments_.road.spec.fanouts, manifest_.node_count),
                                            run_.states != nullptr, 0, MemoryLimitBytes())));
    if (first_) {
      LogInfo("{}: {} trainer{}, {} threads each in LibTorch; memory: {} each for LibTorch and code",
              address_, size_, size_ == 1 ? "" : "s", setup.train.torch_threads,
              FormatBytes(setup.overhead_bytes));
    }
    StreamStats last_epoch;
    return TrainReported(*road_, arguments_, setup, trainers_, last_epoch);
  }

 private:
  Result<std::unique_ptr<client::Store>> ConnectWith(uint64_t memory_bytes) {
    return client::OpenRemote(address_, {.memory_bytes = memory_bytes,
                                         .timeout_seconds = kTrainerTimeoutSeconds,
                                         .inline_only = arguments_.inline_only});
  }

  // The road is the first one's, and so is the memory; the others take the least that a session can have,
  // and before it takes what there is.
  Status Connect() {
    if (trainers_ != nullptr) QUARRY_RETURN_IF_ERROR(Agree(trainers_, first_ ? Status::Ok() : ConnectLate()));
    return Agree(trainers_, first_ ? ConnectFirst() : Status::Ok());
  }

  Status ConnectLate() {
    QUARRY_TRY(store_, ConnectWith(1));
    return Describe();
  }

  // A share is of the feature bytes, which the server tells: it is asked without memory.
  Status ConnectFirst() {
    memory_bytes_ = arguments_.workers.memory_bytes;
    if (memory_bytes_ == 0 && arguments_.memory.ends_with('%')) {
      QUARRY_TRY(store_, ConnectWith(1));
      QUARRY_RETURN_IF_ERROR(Describe());
      QUARRY_TRY(memory_bytes_, ParseSize("--memory", arguments_.memory, feature_bytes_));
      store_.reset();
    } else if (memory_bytes_ == 0 && !arguments_.memory.empty()) {
      QUARRY_TRY(memory_bytes_, ParseSize("--memory", arguments_.memory, 0));
    }
    QUARRY_TRY(store_, ConnectWith(memory_bytes_));
    return Describe();
  }

  Status Describe() {
    QUARRY_TRY(manifest_, ManifestOf(*store_, address_));
    QUARRY_TRY(feature_bytes_, FeatureBytes(manifest_, arguments_.road.spec.feature_table));
    return Status::Ok();
  }

  // The first one's checkpoints are those of all. What cannot be is refused before there is a road.
  Status OpenRun() {
    QUARRY_TRY(const std::optional<TrainRun> run, arguments_.run.NodeRun());
    if (!run) return Status::Ok();
    run_ = *run;
    NodeSettings settings{.road = arguments_.road.spec,
                          .train = arguments_.train,
                          .resample = arguments_.resample,
                          .trainers = size_};
    QUARRY_TRY(const wire::OpenStream stream, StreamOf(arguments_, feature_bytes_));
    const auto* const superbatches = std::get_if<wire::SuperbatchSpec>(&stream.road);
    LayoutSpec planned;
    if (superbatches != nullptr) {
      planned = {
          .road = superbatches->live, .policy = superbatches->policy, .disk_bytes = superbatches->disk_bytes};
      settings.planned = &planned;
    }
    settings.built = manifest_.FindLayout(arguments_.layout);
    if (settings.built != nullptr) run_.epochs_of_cycle = settings.built->epochs;
    if (!first_) return Status::Ok();
    run_.settings = settings.ToString();
    run_.config = arguments_.config;
    states_ = std::make_unique<RemoteStates>(*store_, address_);
    run_.states = states_.get();
    return CheckTrainRun(run_);
  }

  // Batch i goes to the rank that opened the stream as number i mod ranks, so they open it in order.
  Status OpenRoad() {
    std::array<uint64_t, 1> group = {std::random_device()()};
    if (trainers_ != nullptr) {
      QUARRY_RETURN_IF_ERROR(trainers_->Broadcast(std::as_writable_bytes(std::span(group)), 0));
    }
    std::unique_ptr<client::Stream> stream;
    NodeProperties properties;
    QUARRY_RETURN_IF_ERROR(InTurn(trainers_, [&]() -> Status {
      QUARRY_TRY(wire::OpenStream request, StreamOf(arguments_, feature_bytes_));
      if (trainers_ != nullptr) {
        request.mode = wire::StreamMode::kSplit;
        request.group = fmt::format("train-{:x}", group[0]);
        request.members = size_;
      }
      if (first_) {
        QUARRY_TRY(snapshot_, store_->TakeSnapshot());
        QUARRY_TRY(properties, LookUpProperties(*store_, *snapshot_));
        request.snapshot = snapshot_->id();
        QUARRY_TRY(stream, store_->OpenStream(request));
        return Status::Ok();
      }
      QUARRY_TRY(stream, store_->OpenStream(request));
      return Status::Ok();
    }));
    if (trainers_ != nullptr) {
      QUARRY_RETURN_IF_ERROR(TellAll(*trainers_, properties.labels));
      QUARRY_RETURN_IF_ERROR(TellAll(*trainers_, properties.splits));
    }
    road_ = std::make_unique<RemoteRoad>(std::move(stream), std::move(properties), size_);
    return Status::Ok();
  }

  TrainSetup Setup() const {
    TrainSetup setup;
    setup.remote = true;
    setup.trainers = size_;
    setup.memory_budget_bytes = memory_bytes_;
    setup.overhead_bytes = EstimateTrainerBytes(
        arguments_.train, road_->feature_dim(), CountClasses(road_->labels()),
        BoundHopNodes(arguments_.road.spec.batch_size, arguments_.road.spec.fanouts, manifest_.node_count),
        run_.states != nullptr);
    setup.run = run_;
    setup.config = arguments_.config;
    setup.road = arguments_.road;
    setup.road.sampler_threads = setup.road.extractor_threads = 0;
    setup.train = arguments_.train;
    return setup;
  }

  NodeArguments& arguments_;
  Communicator* const trainers_;
  const uint32_t size_;
  const bool first_;
  const std::string address_;
  uint64_t memory_bytes_ = 0;             // asked of the server; 0: as it likes
  std::unique_ptr<client::Store> store_;  // goes last
  std::unique_ptr<RemoteStates> states_;
  TrainRun run_;
  Manifest manifest_;
  uint64_t feature_bytes_ = 0;
  std::unique_ptr<client::Snapshot>
      snapshot_;  // the road's; of the first, as long as it may have to open it anew
  std::unique_ptr<RemoteRoad> road_;
};

}  // namespace

Status CheckRemoteOptions(const CLI::App& verb, const NodeArguments& arguments) {
  for (const Refusal& refusal : kRefusals) {
    if (verb.count(refusal.option) == 0) continue;
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

Status TrainRemotely(NodeArguments& arguments) {
  QUARRY_TRY(const std::optional<Rendezvous> rendezvous, RendezvousFromEnvironment(std::getenv));
  std::unique_ptr<Communicator> trainers;
  if (rendezvous) {
    QUARRY_TRY(trainers, JoinTrainers(*rendezvous));
  }
  return RemoteTraining(arguments, trainers.get()).Run();
}

}  // namespace quarry::cli
