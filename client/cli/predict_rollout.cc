#include "predict_rollout.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>

#include "quarry/base/random.h"
#include "quarry/pipeline/batch_stream.h"
#include "quarry/sampling/all_neighbors.h"
#include "quarry/sampling/sampler.h"
#include "quarry/storage/times.h"
#include "train_targets.h"

namespace quarry::cli {
namespace {

// A road of one batch, whose seeds are all places, and whose rows are held.
class PlacesRoad final : public Road {
 public:
  PlacesRoad(NeighborSampler& sampler, const RoadSpec& spec, std::span<const float> rows, uint32_t dim)
      : sampler_(sampler), spec_(spec), rows_(rows), dim_(dim) {}

  Result<std::unique_ptr<BatchStream>> StartPass(PassOptions options) override {
    QUARRY_RETURN_IF_ERROR(sampler_.Sample(options.seeds, spec_.SeedOf(options.pass, steps_++), block_));
    BatchView view = block_.view();
    view.features = {.rows = std::as_bytes(rows_), .stride_bytes = dim_ * sizeof(float), .dim = dim_};
    // A block's nodes stand in the order of its seeds, which are all there are.
    return std::unique_ptr<BatchStream>(std::make_unique<OneBatch>(view));
  }
  std::span<const int64_t> labels() const override { return {}; }
  std::vector<NodeId> SplitNodes(Split) const override { return {}; }
  uint32_t feature_dim() const override { return dim_; }

 private:
  class OneBatch final : public BatchStream {
   public:
    explicit OneBatch(const BatchView& view) : view_(view) {}
    uint64_t batch_count() const override { return 1; }
    Result<std::unique_ptr<Batch>> Next() override {
      if (std::exchange(given_, true)) return std::unique_ptr<Batch>();
      return std::make_unique<Batch>(view_, nullptr);
    }
    StreamStats stats() const override { return {}; }

   private:
    const BatchView view_;
    bool given_ = false;
  };

  NeighborSampler& sampler_;
  const RoadSpec& spec_;
  const std::span<const float> rows_;
  const uint32_t dim_;
  uint64_t steps_ = 0;
  Block block_;
};

class Rollout {
 public:
  Rollout(Database& database, const TrainedNode& trained, const RoadSpec& road, Predictor& predictor,
          const RolloutSpec& spec)
      : database_(database),
        store_(database.store()),
        trained_(trained),
        road_(road),
        predictor_(predictor),
        spec_(spec) {}

  Result<std::vector<RolloutStep>> Run(NpyFile& out, const std::function<Status(uint64_t)>& progress) {
    QUARRY_TRY(snapshot_, store_.TakeSnapshot());
    times_ = TimesOf(*snapshot_, road_.topology);
    QUARRY_TRY(lag_, RolloutLag(*database_.manifest(), trained_, spec_));
    QUARRY_RETURN_IF_ERROR(OpenLists());
    QUARRY_RETURN_IF_ERROR(ReadRows());
    PlacesRoad road(*sampler_, road_, rows_, dim_);
    std::vector<NodeId> places(times_.places);
    std::iota(places.begin(), places.end(), NodeId{0});
    std::vector<RolloutStep> steps;
    for (uint64_t step = 0; step < spec_.steps; step++) {
      QUARRY_RETURN_IF_ERROR(progress(step));
      const uint64_t time = spec_.time + step * lag_;
      QUARRY_RETURN_IF_ERROR(SetJoined(time));
      QUARRY_RETURN_IF_ERROR(predictor_.Predict(road, places, PredictedRows::kScores,
                                                [&](std::span<const NodeId>, std::span<const float> rows) {
                                                  next_.assign(rows.begin(), rows.end());
                                                  return Status::Ok();
                                                }));
      QUARRY_RETURN_IF_ERROR(out.Append(std::as_bytes(std::span(next_))));
      QUARRY_TRY(steps.emplace_back(), Judge(time));
      for (uint64_t place = 0; place < times_.places; place++) {
        std::copy_n(next_.begin() + static_cast<ptrdiff_t>(place * own_dim_), own_dim_,
                    rows_.begin() + static_cast<ptrdiff_t>(place * dim_));
      }
    }
    return steps;
  }

 private:
  Status OpenLists() {
    const TopologyRecord* const record = snapshot_->FindTopology(road_.topology);
    const uint64_t sides = SidesOf(road_.direction).size();
    const uint64_t lists =
        NeighborSampler::ResidentBytes(*record, road_) + sides * record->edge_count * sizeof(NodeId);
    QUARRY_TRY(lists_bytes_, database_.budget().Reserve(lists, "lists of all places"));
    QUARRY_TRY(topology_, OpenPlaces(store_, *snapshot_, road_.topology));
    for (const Adjacency side : SidesOf(road_.direction)) {
      if (topology_->has(side)) QUARRY_RETURN_IF_ERROR(topology_->LoadIndices(store_.backend(), side));
    }
    QUARRY_RETURN_IF_ERROR(NeighborSampler::LoadWeights(store_.backend(), road_, *topology_));
    RoadSpec spec = road_;
    const bool takes_all = TakesAll(spec);
    QUARRY_RETURN_IF_ERROR(CountAllNeighbors(*topology_, nullptr, {}, spec));
    const NeighborSource source{
        .topology = topology_.get(), .takes_all = takes_all, .direction = spec.direction};
    QUARRY_TRY(block_bytes_, database_.budget().Reserve(BlockBytes(source, spec), "a block of all places"));
    QUARRY_TRY(sampler_, NeighborSampler::Make(source, spec));
    return Status::Ok();
  }

  // What a block of all places, whose arrays may be half empty, and drawing it take.
  uint64_t BlockBytes(const NeighborSource& source, const RoadSpec& spec) const {
    uint64_t edges = 0;
    for (const uint32_t fanout : spec.fanouts) edges += times_.places * fanout;
    edges = std::min(edges, spec.EdgesMax(topology_->edge_count()));
    const uint64_t edge_bytes = sizeof(uint32_t) + (spec.edge_ids ? sizeof(uint64_t) : 0);
    return 2 * (times_.places * (sizeof(NodeId) + sizeof(uint32_t)) + edges * edge_bytes) +
           NeighborSampler::ScratchBytesMax(source, times_.places, edges, /*in_memory=*/true, spec);
  }

  // The rows that the roll-out begins with, decoded, without what is joined to them.
  Status ReadRows() {
    QUARRY_TRY(const std::unique_ptr<FeatureTable> table, store_.OpenTable(*snapshot_, road_.feature_table));
    const FeatureGeometry& geometry = table->geometry();
    own_dim_ = static_cast<uint32_t>(geometry.dim);
    type_ = geometry.element_type;
    QUARRY_TRY(joined_, JoinedColumns::Load(store_, snapshot_, road_.topology, type_));
    dim_ = own_dim_ + JoinedDim(*snapshot_, road_.topology);
    const uint64_t first = spec_.time * times_.places, bytes = times_.places * geometry.row_bytes;
    QUARRY_TRY(rows_bytes_, database_.budget().Reserve(
                                bytes + times_.places * (dim_ + 2 * own_dim_) * sizeof(float) +
                                    JoinedColumns::ResidentBytes(*database_.manifest(), road_.topology),
                                "rows of all places"));
    std::vector<std::byte> encoded(bytes);
    QUARRY_RETURN_IF_ERROR(table->ReadRows(store_.backend(), first, times_.places, encoded));
    QUARRY_TRY(const std::unique_ptr<RowOverlay> overlay, store_.OpenOverlay(road_.feature_table, snapshot_));
    std::vector<uint64_t> touched = overlay->TouchedRows();
    std::erase_if(touched, [&](uint64_t row) { return row < first || row >= first + times_.places; });
    QUARRY_RETURN_IF_ERROR(overlay->Read(touched, [&](size_t i, std::span<const std::byte> value) {
      std::memcpy(encoded.data() + (touched[i] - first) * geometry.row_bytes, value.data(), value.size());
    }));
    rows_.resize(times_.places * dim_);
    first_.reserve(times_.places * own_dim_);
    for (uint64_t place = 0; place < times_.places; place++) {
      const std::span<float> own = std::span(rows_).subspan(place * dim_, own_dim_);
      DecodeRow(type_, std::span(encoded).subspan(place * geometry.row_bytes, geometry.row_bytes), own);
      first_.insert(first_.end(), own.begin(), own.end());
    }
    return Status::Ok();
  }

  Status SetJoined(uint64_t time) {
    if (joined_ == nullptr) return Status::Ok();
    std::vector<std::byte> encoded(joined_->row_bytes());
    for (uint64_t place = 0; place < times_.places; place++) {
      joined_->Write(time * times_.places + place, encoded.data());
      DecodeRow(type_, encoded, std::span(rows_).subspan(place * dim_ + own_dim_, dim_ - own_dim_));
    }
    return Status::Ok();
  }

  // What the step from `time` is off, where there are rows of the time that it leads to.
  Result<RolloutStep> Judge(uint64_t time) const {
    RolloutStep step{.time = time + lag_};
    if (step.time >= times_.count || trained_.train.targets == nullptr) return step;
    std::vector<NodeId> nodes(times_.places);
    std::iota(nodes.begin(), nodes.end(), static_cast<NodeId>(time * times_.places));
    QUARRY_RETURN_IF_ERROR(step.errors.Add(*trained_.train.targets, nodes, next_));
    QUARRY_RETURN_IF_ERROR(step.persistence.Add(*trained_.train.targets, nodes, first_));
    return step;
  }

  Database& database_;
  Store& store_;
  const TrainedNode& trained_;
  const RoadSpec& road_;
  Predictor& predictor_;
  const RolloutSpec spec_;
  std::shared_ptr<const Snapshot> snapshot_;
  Times times_;
  uint64_t lag_ = 0;
  MemoryBudget::Reservation lists_bytes_, block_bytes_, rows_bytes_;
  std::unique_ptr<Topology> topology_;
  std::unique_ptr<NeighborSampler> sampler_;
  std::unique_ptr<const JoinedColumns> joined_;
  ElementType type_ = ElementType::kFloat32;
  uint32_t own_dim_ = 0, dim_ = 0;  // columns of the table's rows, and of the model's
  std::vector<float> rows_, next_;  // what the model is given, and what it says
  std::vector<float> first_;        // own columns at the beginning
};

}  // namespace

Result<uint64_t> RolloutLag(const Manifest& manifest, const TrainedNode& trained,
                            const RolloutSpec& rollout) {
  const Times times = TimesOf(manifest, trained.road.topology);
  if (!times.any()) {
    return Status(Code::kUsage, "--steps is of databases with times, and this one has none");
  }
  QUARRY_TRY(const TargetName name, ParseTarget(trained.target));
  if (trained.train.task != NodeTask::kRegression || name.lag == 0 ||
      name.table != trained.road.feature_table) {
    return MakeStatus(Code::kUsage,
                      "--steps feeds predictions back, so it takes a run that learned later rows of what it "
                      "reads, as --target {}@+6; this one has {}",
                      trained.road.feature_table,
                      trained.target.empty() ? "no target" : "--target " + trained.target);
  }
  if (rollout.time >= times.count) {
    return MakeStatus(Code::kUsage, "--time {}: there are {} times, from 0", rollout.time, times.count);
  }
  const bool has_columns = manifest.FindTable(kTimeColumns) != nullptr;
  const uint64_t steps_max = (times.count - 1 - rollout.time) / name.lag + 1;
  if (has_columns && rollout.steps > steps_max) {
    return MakeStatus(Code::kUsage,
                      "--steps {}: the last of them would begin at time {}, and table \"{}\" has columns of "
                      "{} times: take at most {}",
                      rollout.steps, rollout.time + (rollout.steps - 1) * name.lag, kTimeColumns, times.count,
                      steps_max);
  }
  return name.lag;
}

Result<std::vector<RolloutStep>> RollOut(Database& database, const TrainedNode& trained, const RoadSpec& road,
                                         Predictor& predictor, const RolloutSpec& rollout, NpyFile& out,
                                         const std::function<Status(uint64_t)>& progress) {
  return Rollout(database, trained, road, predictor, rollout).Run(out, progress);
}

}  // namespace quarry::cli
