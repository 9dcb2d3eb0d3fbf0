#include "quarry/pipeline/superbatch_road.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <functional>
#include <string_view>

#include "quarry/base/fields.h"
#include "quarry/base/log.h"
#include "quarry/base/process.h"
#include "quarry/base/thread.h"
#include "quarry/base/trace.h"
#include "quarry/pipeline/planned_road.h"
#include "quarry/storage/layout_files.h"
#include "quarry/storage/node_properties.h"
#include "quarry/storage/times.h"

namespace quarry {
namespace {

std::string DescribeChoice(const BuildReport& report) {
  const std::string way = report.packed ? "from packed chunks" : "by merged requests, without packing";
  if (report.merged_seconds == 0) return way;
  return fmt::format("{} (predicted: {:.2f} s to pack and read, {:.2f} s without)", way,
                     report.packed_seconds, report.merged_seconds);
}

StreamStats Together(StreamStats a, const StreamStats& b) {
  ForEachField(a, b, [](std::string_view, auto& sum, const auto& more) { sum += more; });
  return a;
}

// Which batches a layout is built for: those of a pass from `first_batch` on.
struct Superbatch {
  uint64_t pass = 0;
  uint64_t first_batch = 0;
  friend bool operator==(const Superbatch&, const Superbatch&) = default;
};

// The superbatches of a pass, one after the other. `serve` gives the stream of the one that begins at a batch; what it
// gave before is gone by then.
class SuperbatchStream final : public BatchStream {
 public:
  using Serve = std::function<Result<std::unique_ptr<BatchStream>>(uint64_t first_batch)>;
  SuperbatchStream(uint64_t batch_count, uint64_t superbatch_batches, std::unique_ptr<BatchStream> first,
                   Serve serve)
      : batch_count_(batch_count),
        superbatch_batches_(superbatch_batches),
        serve_(std::move(serve)),
        stream_(std::move(first)) {}

  uint64_t batch_count() const override { return batch_count_; }

  Result<std::unique_ptr<Batch>> Next() override {
    QUARRY_RETURN_IF_ERROR(error_);
    QUARRY_TRY(std::unique_ptr<Batch> batch, stream_->Next());
    while (batch == nullptr && first_batch_ + superbatch_batches_ < batch_count_) {
      error_ = GoOn();
      QUARRY_RETURN_IF_ERROR(error_);
      QUARRY_TRY(batch, stream_->Next());
    }
    if (batch == nullptr) return batch;
    BatchView view = batch->view();
    view.index += first_batch_;
    return std::make_unique<Batch>(view, std::shared_ptr<const void>(std::move(batch)));
  }

  StreamStats stats() const override { return stream_ ? Together(ended_, stream_->stats()) : ended_; }

 private:
  Status GoOn() {
    const double start = MonotonicSeconds();
    ended_ = Together(ended_, stream_->stats());
    stream_.reset();
    Result<std::unique_ptr<BatchStream>> next = serve_(first_batch_ + superbatch_batches_);
    ended_.consumer_wait_seconds += MonotonicSeconds() - start;
    QUARRY_TRY(stream_, std::move(next));
    first_batch_ += superbatch_batches_;
    return Status::Ok();
  }

  const uint64_t batch_count_, superbatch_batches_;
  const Serve serve_;
  std::unique_ptr<BatchStream> stream_;  // null only after an error
  uint64_t first_batch_ = 0;             // of stream_
  StreamStats ended_;                    // of the superbatches before
  Status error_;
};

class SuperbatchRoadImpl final : public SuperbatchRoad {
 public:
  SuperbatchRoadImpl(Store& store, MemoryBudget& budget, const SuperbatchRoadOptions& options)
      : store_(store), budget_(budget), options_(options) {}

  ~SuperbatchRoadImpl() override {
    GiveUpBuild();
    planned_.reset();
    RemoveFolder(serving_);
    RemoveFolder(1 - serving_);
  }

  Status OpenAll() {
    QUARRY_RETURN_IF_ERROR(CheckPlannable(options_.layout.road));
    QUARRY_TRY(build_reservation_, budget_.Reserve(budget_.available_bytes() / 2, "building the next epoch"));
    build_budget_ = std::make_unique<MemoryBudget>(build_reservation_.bytes());
    snapshot_ = options_.live.snapshot;
    if (snapshot_ == nullptr) {
      QUARRY_TRY(snapshot_, store_.TakeSnapshot());
    }
    LiveRoadOptions live = options_.live;
    live.snapshot = snapshot_;
    const std::shared_ptr<const Manifest> manifest = store_.manifest();
    QUARRY_TRY(const uint64_t train_nodes, CountTrainNodes());
    pass_batches_ = CeilDiv(train_nodes, uint64_t{options_.layout.road.batch_size});
    const uint64_t batches = options_.layout.batches;
    superbatch_batches_ = batches == 0 ? pass_batches_ : std::min(batches, pass_batches_);
    const auto others = live.beside_bytes;
    live.beside_bytes = [this, manifest, train_nodes, others](uint64_t batch_nodes_max,
                                                              uint64_t batch_edges_max) {
      return NodePropertiesBytes(*manifest) +
             PlannedRoad::LeastBytes(*manifest, options_.layout, train_nodes, batch_nodes_max) +
             (others ? others(batch_nodes_max, batch_edges_max) : 0);
    };
    Result<std::unique_ptr<LiveRoad>> opened = LiveRoad::Open(store_, budget_, live);
    QUARRY_RETURN_IF_ERROR(WithHalf(opened.status()));
    live_ = std::move(opened).value();
    seed_hash_ = HashSeeds(live_->TrainNodes());
    return Status::Ok();
  }

  Result<std::unique_ptr<BatchStream>> StartPass(PassOptions pass) override {
    if (HashSeeds(pass.seeds) != seed_hash_) return live_->StartPass(std::move(pass));
    const uint64_t number = pass.pass;
    QUARRY_TRY(std::unique_ptr<BatchStream> first, Serve({.pass = number}, pass));
    if (superbatch_batches_ >= pass_batches_) return first;
    return std::make_unique<SuperbatchStream>(pass_batches_, superbatch_batches_, std::move(first),
                                              [this, pass = std::move(pass)](uint64_t first_batch) {
                                                return Serve({.pass = pass.pass, .first_batch = first_batch},
                                                             pass);
                                              });
  }

  std::span<const int64_t> labels() const override { return live_->labels(); }
  std::vector<NodeId> SplitNodes(Split split) const override { return live_->SplitNodes(split); }
  uint32_t feature_dim() const override { return live_->feature_dim(); }
  const LiveRoad& live() const override { return *live_; }
  double plan_wait_seconds() const override { return plan_wait_seconds_; }
  uint64_t packed_superbatches() const override { return packed_; }
  uint64_t merged_superbatches() const override { return merged_; }

 private:
  // Two are there at a time: the one that is served and the one that is made.
  // Their folders need no locks: whoever opens the database holds its lock, which falls with the process and
  // not before, so nobody who made a folder that is found at an open is still alive.
  std::string NameOf(int which) const { return fmt::format("{}-superbatch-{}", options_.layout.name, which); }

  // The figure of a refusal is what one half lacks.
  static Status WithHalf(const Status& status) {
    if (status.code() != Code::kOutOfBudget) return status;
    return MakeStatus(Code::kOutOfBudget,
                      "{}; epochs are built in half of a road's memory, so give it twice that",
                      status.message());
  }

  Result<uint64_t> CountTrainNodes() const {
    const TopologyRecord* const topology = snapshot_->FindTopology(options_.layout.road.topology);
    if (topology == nullptr) return store_.OpenTopology(options_.layout.road.topology).status();
    const uint64_t nodes = Times::Of(*topology, snapshot_->node_count).nodes();
    QUARRY_TRY(const NodeProperties properties, LoadNodeProperties(store_, nodes, snapshot_));
    return properties.TrainNodes().size();
  }

  void RemoveFolder(int which) const {
    Discard(store_.backend(), store_.path() + "/" + PassingFolder(NameOf(which)));
  }

  // Waits for the layout of `wanted`, and begins to build the one that will be wanted then.
  Result<std::unique_ptr<BatchStream>> Serve(const Superbatch& wanted, const PassOptions& pass) {
    const double start = MonotonicSeconds();
    if (!building_.valid() || built_ != wanted) {
      GiveUpBuild();
      StartBuild(wanted);
    }
    QUARRY_TRY(const LayoutRecord record, WaitForBuild(pass));
    plan_wait_seconds_ += MonotonicSeconds() - start;
    const LogLevel level =
        options_.live.tells_plan && wanted.first_batch == 0 ? LogLevel::kInfo : LogLevel::kDebug;
    LogLine(level, fmt::format("epoch {} is read {}", wanted.pass, DescribeChoice(report_)));
    ++(report_.packed ? packed_ : merged_);
    planned_.reset();
    RemoveFolder(serving_);
    serving_ = 1 - serving_;
    QUARRY_TRY(planned_, PlannedRoad::Open(store_, budget_,
                                           {.record = record,
                                            .tells_plan = options_.live.tells_plan && wanted.first_batch == 0,
                                            .snapshot = snapshot_}));
    Superbatch next = {.pass = wanted.pass, .first_batch = wanted.first_batch + superbatch_batches_};
    if (next.first_batch >= pass_batches_) next = {.pass = wanted.pass + 1};
    if (options_.last_pass == 0 || next.pass <= options_.last_pass) StartBuild(next);
    return planned_->StartPass(pass);
  }

  void GiveUpBuild() {
    cancelled_ = true;
    building_ = {};
  }

  Result<LayoutRecord> WaitForBuild(const PassOptions& pass) {
    const ScopedSpan span("wait for the plan", pass.pass);
    const std::stop_callback give_up(pass.stop, [this] { cancelled_ = true; });
    Result<LayoutRecord> built = building_.Get();
    QUARRY_RETURN_IF_ERROR(WithHalf(built.status()));
    return built;
  }

  void StartBuild(const Superbatch& wanted) {
    cancelled_ = false;
    built_ = wanted;
    LayoutSpec spec = options_.layout;
    spec.name = NameOf(1 - serving_);
    spec.epochs = 1;
    spec.first_pass = wanted.pass;
    spec.first_batch = wanted.first_batch;
    spec.batches = superbatch_batches_ < pass_batches_ ? superbatch_batches_ : 0;
    spec.cyclic = false;
    spec.snapshot = snapshot_;
    report_ = {};
    building_ = BackgroundTask<Result<LayoutRecord>>::Start("plan", [this, spec]() -> Result<LayoutRecord> {
      const auto progress = [this](std::string_view, uint64_t, uint64_t) {
        return cancelled_ ? Status(Code::kCancelled, "the epoch that is being built is not wanted any more")
                          : Status::Ok();
      };
      return BuildPassingLayout(store_, *build_budget_, spec, progress, &report_);
    });
  }

  Store& store_;
  MemoryBudget& budget_;
  const SuperbatchRoadOptions options_;
  MemoryBudget::Reservation build_reservation_;
  std::unique_ptr<MemoryBudget> build_budget_;
  std::shared_ptr<const Snapshot> snapshot_;  // all passes share it
  std::unique_ptr<LiveRoad> live_;
  std::unique_ptr<PlannedRoad> planned_;
  uint64_t seed_hash_ = 0;
  uint64_t pass_batches_ = 0, superbatch_batches_ = 0;
  Superbatch built_;  // what building_ builds, or has built
  int serving_ = 0;
  double plan_wait_seconds_ = 0;
  uint64_t packed_ = 0, merged_ = 0;
  std::atomic<bool> cancelled_{false};
  BuildReport report_;  // the builder's until it has ended
  BackgroundTask<Result<LayoutRecord>> building_;
};

}  // namespace

Result<std::unique_ptr<SuperbatchRoad>> SuperbatchRoad::Open(Store& store, MemoryBudget& budget,
                                                             const SuperbatchRoadOptions& options) {
  auto road = std::make_unique<SuperbatchRoadImpl>(store, budget, options);
  QUARRY_RETURN_IF_ERROR(road->OpenAll());
  return std::unique_ptr<SuperbatchRoad>(std::move(road));
}

}  // namespace quarry
