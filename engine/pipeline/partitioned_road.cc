#include "quarry/pipeline/partitioned_road.h"

#include <algorithm>
#include <cassert>
#include <functional>
#include <numeric>
#include <utility>

#include "quarry/base/random.h"
#include "quarry/base/trace.h"
#include "quarry/base/units.h"

namespace quarry {
namespace {

// Apart from other streams of the seed.
constexpr uint64_t kPlanStream = 11;
constexpr uint64_t kEdgeStream = 12;

uint32_t Incoming(uint32_t parts, const PartitionedRoadOptions& options) {
  if (!options.prefetch || options.buffer >= parts) return 0;
  return options.order == PartitionOrder::kBeta ? 1 : parts / options.logical;
}

// Edges in the c^2 largest buckets: no step has more.
uint64_t StepEdgesMax(const PartitionDirectory& directory, uint32_t buffer) {
  std::vector<uint64_t> edges = directory.BucketEdges();
  const size_t count = std::min(edges.size(), size_t{buffer} * buffer);
  std::ranges::partial_sort(edges, edges.begin() + static_cast<ptrdiff_t>(count), std::greater());
  return std::accumulate(edges.begin(), edges.begin() + static_cast<ptrdiff_t>(count), uint64_t{0});
}

// Vectors have frames of their own, and the table's rows are not what link prediction trains on.
PartitionBufferOptions EdgesAlone(const PartitionedRoadOptions& options) {
  return {.prefetch = options.prefetch, .rows = false};
}

SwapSpec SpecOf(const PartitionDirectory& directory, const PartitionedRoadOptions& options, uint64_t seed) {
  return {.order = options.order,
          .parts = directory.parts(),
          .buffer = options.buffer,
          .logical = options.logical,
          .seed = seed};
}

}  // namespace

Result<PartitionedRoadOptions> TuneRoad(const PartitionDirectory& directory,
                                        const PartitionedRoadOptions& options, uint64_t frame_bytes,
                                        uint64_t memory_bytes) {
  const uint32_t parts = directory.parts();
  if (options.order == PartitionOrder::kNode) {
    return Status(
        Code::kUsage,
        "partition order node is for node classification; link prediction has beta, comet and euler");
  }
  const bool is_beta = options.order == PartitionOrder::kBeta;
  if (is_beta && options.logical != 0 && options.logical != parts) {
    return MakeStatus(Code::kUsage,
                      "{} logical parts: those are of comet and euler, and partition order beta has none",
                      options.logical);
  }
  uint64_t least = 0;
  Status refused = MakeStatus(Code::kUsage, "{} parts: no buffer suits partition order {} with what is given",
                              parts, PartitionOrderName(options.order));
  // From large buffers to small ones.
  for (uint32_t cut = 2; cut <= std::max(2U, parts); ++cut) {
    PartitionedRoadOptions tuned = options;
    if (!is_beta && tuned.logical == 0) tuned.logical = cut;
    if (is_beta) tuned.logical = parts;
    if (tuned.buffer == 0) tuned.buffer = is_beta ? parts + 2 - cut : 2 * parts / tuned.logical;
    const Status status = CheckSwapSpec(SpecOf(directory, tuned, 0));
    if (!status.ok()) {
      const bool given = options.buffer > 0 && (is_beta || options.logical > 0);
      if (given) refused = status;
      continue;
    }
    least = PartitionedRoad::Bytes(directory, tuned) + RoadFrames(directory, tuned) * frame_bytes;
    if (least <= memory_bytes) return tuned;
  }
  if (least == 0) return refused;
  const std::string buffer =
      options.buffer > 0 ? fmt::format("a buffer of {}", options.buffer) : "the least buffer";
  return MakeStatus(
      Code::kOutOfBudget,
      "{} of the {} parts takes {}, and there are {}: give it more, or make more and smaller parts", buffer,
      parts, FormatBytes(least), FormatBytes(memory_bytes));
}

uint32_t RoadFrames(const PartitionDirectory& directory, const PartitionedRoadOptions& options) {
  return std::min(directory.parts(), options.buffer + Incoming(directory.parts(), options));
}

NodeId EdgeStep::NodeAt(uint64_t place) const {
  const auto part = std::ranges::upper_bound(place_starts_, place) - place_starts_.begin() - 1;
  return static_cast<NodeId>(node_starts_[static_cast<size_t>(part)] +
                             (place - place_starts_[static_cast<size_t>(part)]));
}

PartitionedRoad::PartitionedRoad(const StoredPartitioning& partitioning, IoBackend& backend,
                                 PartedTable* rows, const PartitionedRoadOptions& options, uint64_t seed,
                                 uint32_t batch_edges)
    : partitioning_(partitioning),
      backend_(backend),
      rows_(rows),
      options_(options),
      seed_(seed),
      batch_edges_(batch_edges) {}

uint64_t PartitionedRoad::Bytes(const PartitionDirectory& directory, const PartitionedRoadOptions& options) {
  return PartitionBufferBytesMax(directory, options.buffer, Incoming(directory.parts(), options),
                                 EdgesAlone(options)) +
         HeldLists::Bytes(options.buffer, Direction::kBoth) +
         StepEdgesMax(directory, options.buffer) * sizeof(Triple);
}

Result<std::unique_ptr<PartitionedRoad>> PartitionedRoad::Make(const StoredPartitioning& partitioning,
                                                               IoBackend& backend, MemoryBudget& budget,
                                                               PartedTable* rows,
                                                               const PartitionedRoadOptions& options,
                                                               uint64_t seed, uint32_t batch_edges) {
  const PartitionDirectory& directory = partitioning.directory();
  QUARRY_RETURN_IF_ERROR(CheckSwapSpec(SpecOf(directory, options, seed)));
  std::unique_ptr<PartitionedRoad> road(
      new PartitionedRoad(partitioning, backend, rows, options, seed, batch_edges));
  QUARRY_TRY(road->reservation_,
             budget.Reserve(Bytes(directory, options),
                            fmt::format("edges of {} of {} parts", options.buffer, directory.parts())));
  road->buffer_budget_ = std::make_unique<MemoryBudget>(PartitionBufferBytesMax(
      directory, options.buffer, Incoming(directory.parts(), options), EdgesAlone(options)));
  return road;
}

Result<SwapPlan> PartitionedRoad::PlanOf(uint32_t epoch) const {
  return PlanSwaps(SpecOf(directory(), options_, MixSeed(seed_, kPlanStream, epoch)));
}

uint64_t PartitionedRoad::StepEdges(const SwapStep& step) const {
  uint64_t edges = 0;
  for (const PartPair& pair : step.buckets) edges += directory().bucket(pair.source, pair.destination).edges;
  return edges;
}

uint64_t PartitionedRoad::StepBatches(const SwapStep& step) const {
  return CeilDiv(StepEdges(step), batch_edges_);
}

Result<uint64_t> PartitionedRoad::BatchesBefore(uint32_t epoch) {
  while (epoch_starts_.size() < epoch) {
    QUARRY_TRY(const SwapPlan plan, PlanOf(static_cast<uint32_t>(epoch_starts_.size())));
    uint64_t batches = epoch_starts_.back();
    for (const SwapStep& step : plan.steps()) batches += StepBatches(step);
    epoch_starts_.push_back(batches);
  }
  return epoch_starts_[epoch - 1];
}

Result<uint64_t> PartitionedRoad::BatchesOf(uint32_t epoch) {
  QUARRY_TRY(const uint64_t before, BatchesBefore(epoch));
  QUARRY_TRY(const uint64_t with, BatchesBefore(epoch + 1));
  return with - before;
}

Status PartitionedRoad::StartEpoch(uint32_t epoch) {
  stats_ = stats();
  buffer_.reset();
  step_ = EdgeStep();
  epoch_ = epoch;
  QUARRY_TRY(SwapPlan plan, PlanOf(epoch));
  batch_starts_.assign(1, 0);
  edge_starts_.assign(1, 0);
  step_edges_max_ = 0;
  for (const SwapStep& step : plan.steps()) {
    step_edges_max_ = std::max(step_edges_max_, StepEdges(step));
    batch_starts_.push_back(batch_starts_.back() + StepBatches(step));
    edge_starts_.push_back(edge_starts_.back() + StepEdges(step));
  }
  QUARRY_TRY(buffer_, PartitionBuffer::Make(partitioning_, backend_, *buffer_budget_, std::move(plan),
                                            EdgesAlone(options_)));
  return Status::Ok();
}

uint64_t PartitionedRoad::EdgesBefore(uint64_t batch) const {
  const auto end = std::ranges::upper_bound(batch_starts_, batch);
  const auto step = static_cast<size_t>(end - batch_starts_.begin() - 1);
  if (step + 1 == batch_starts_.size()) return edge_starts_.back();
  return edge_starts_[step] + (batch - batch_starts_[step]) * batch_edges_;
}

Result<bool> PartitionedRoad::Enter(uint64_t batch) {
  assert(batch < batch_count());
  if (step_.batch_count_ > 0 && batch < step_.first_batch_ + step_.batch_count_) return false;
  const ScopedSpan span("next parts");
  for (;;) {
    QUARRY_TRY(const bool more, buffer_->Next());
    assert(more);
    if (!more) return MakeStatus(Code::kInternal, "epoch {} has no batch {}", epoch_, batch);
    if (batch < batch_starts_[buffer_->step_number() + 1]) break;
  }
  if (rows_ != nullptr) {
    const std::vector<SwapStep>& steps = buffer_->plan().steps();
    size_t next = buffer_->step_number() + 1;  // that has batches
    while (next < steps.size() && batch_starts_[next + 1] == batch_starts_[next]) ++next;
    QUARRY_RETURN_IF_ERROR(rows_->Hold(buffer_->step().parts, next < steps.size()
                                                                  ? std::span(steps[next].parts)
                                                                  : std::span<const uint32_t>()));
  }
  FillStep();
  return true;
}

// A step's edges are shuffled as a whole, so that its buckets mix.
void PartitionedRoad::FillStep() {
  const SwapStep& step = buffer_->step();
  const uint64_t number = buffer_->step_number();
  step_.parts_ = step.parts;
  step_.first_batch_ = batch_starts_[number];
  step_.batch_count_ = batch_starts_[number + 1] - batch_starts_[number];
  step_.place_starts_.assign(1, 0);
  step_.node_starts_.clear();
  for (const uint32_t part : step.parts) {
    step_.place_starts_.push_back(step_.place_starts_.back() + directory().part_nodes(part));
    step_.node_starts_.push_back(static_cast<NodeId>(directory().part_starts[part]));
  }
  const auto places_of = [&](uint32_t part) {
    return step_
        .place_starts_[static_cast<size_t>(std::ranges::lower_bound(step.parts, part) - step.parts.begin())];
  };
  std::vector<Triple>& edges = step_.edges_;
  edges.clear();
  edges.reserve(step_edges_max_);
  for (const PartPair& pair : step.buckets) {
    const EdgeBucket bucket = buffer_->Bucket(pair.source, pair.destination);
    const uint64_t heads = places_of(pair.source), tails = places_of(pair.destination);
    const bool typed = bucket.in.shape().relation_bytes > 0;
    bucket.in.ForEachList([&](uint32_t node, uint32_t first, std::span<const uint32_t> neighbors) {
      for (size_t i = 0; i < neighbors.size(); ++i) {
        edges.push_back({static_cast<NodeId>(heads + neighbors[i]), typed ? bucket.in.Relation(first + i) : 0,
                         static_cast<NodeId>(tails + node)});
      }
    });
  }
  Rng rng(MixSeed(seed_, kEdgeStream, epoch_, number));
  for (size_t i = edges.size(); i > 1; i--) std::swap(edges[i - 1], edges[rng.Below(i)]);
}

PartitionBufferStats PartitionedRoad::stats() const {
  PartitionBufferStats stats = stats_;
  if (buffer_ == nullptr) return stats;
  const PartitionBufferStats now = buffer_->stats();
  stats.parts_read += now.parts_read;
  stats.buckets_read += now.buckets_read;
  stats.bytes_read += now.bytes_read;
  stats.wait_seconds += now.wait_seconds;
  return stats;
}

}  // namespace quarry
