#include "quarry/pipeline/partitioned_node_road.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "one_pass.h"
#include "partitioned_stream.h"
#include "quarry/base/random.h"
#include "quarry/base/units.h"

namespace quarry {
namespace {

constexpr uint64_t kNodePlanStream = 13;  // apart from other streams of the seed

// The sum of the `count` largest.
uint64_t SumOfLargest(std::vector<uint64_t> values, uint64_t count) {
  const auto end = values.begin() + static_cast<ptrdiff_t>(std::min<uint64_t>(count, values.size()));
  std::ranges::nth_element(values, end, std::greater());
  return std::accumulate(values.begin(), end, uint64_t{0});
}

uint64_t HeldNodesMax(const PartitionDirectory& directory, uint32_t buffer) {
  std::vector<uint64_t> nodes;
  for (uint32_t part = 0; part < directory.parts(); ++part) nodes.push_back(directory.part_nodes(part));
  return SumOfLargest(std::move(nodes), buffer);
}

BatchBounds BoundsOf(const PartitionDirectory& directory, const RoadSpec& spec, uint32_t buffer) {
  const uint64_t held_nodes = HeldNodesMax(directory, buffer);
  const uint64_t held_edges = spec.EdgesMax(SumOfLargest(directory.BucketEdges(), uint64_t{buffer} * buffer));
  BatchBounds bounds{.seeds = std::min<uint64_t>(spec.batch_size, held_nodes)};
  bounds.nodes = bounds.seeds;
  for (const uint32_t fanout : spec.fanouts) {
    bounds.targets = bounds.nodes;
    bounds.edges += bounds.nodes * fanout;
    bounds.nodes = std::min(held_nodes, bounds.nodes * (1 + uint64_t{fanout}));
  }
  bounds.edges = std::min(bounds.edges, held_edges);
  return bounds;
}

// Ids of a step's nodes: no more than its parts have of a split.
uint64_t SeedBytesMax(const PartitionDirectory& directory, uint32_t buffer) {
  uint64_t most = 0;
  for (const Split split : {Split::kTrain, Split::kValid, Split::kTest}) {
    std::vector<uint64_t> nodes;
    for (const SplitCounts& counts : directory.splits) nodes.push_back(counts.of(split));
    most = std::max(most, SumOfLargest(std::move(nodes), buffer));
  }
  return most * sizeof(NodeId);
}

PartitionBufferOptions BufferOptions(const PartitionedRoadOptions& parts) {
  return {.prefetch = parts.prefetch, .rows = true, .labels = true, .old_ids = true};
}

uint32_t Incoming(const PartitionDirectory& directory, const PartitionedRoadOptions& parts) {
  return parts.prefetch && parts.buffer < directory.parts() ? directory.parts() / parts.logical : 0;
}

uint32_t FrameCount(unsigned samplers) { return samplers + 2; }

uint64_t BatchBytes(const PartitionDirectory& directory, const RoadSpec& spec, uint32_t buffer,
                    uint32_t incoming, unsigned samplers) {
  const BatchBounds bounds = BoundsOf(directory, spec, buffer);
  return FrameCount(samplers) * bounds.frame_bytes() +
         samplers * NeighborSampler::ScratchBytesMax({}, bounds.nodes, bounds.edges, true) +
         HeldLists::Bytes(buffer, spec.direction) + SeedBytesMax(directory, buffer) +
         UsedRows::Bytes(directory, buffer + incoming);
}

SwapSpec SpecOf(const PartitionDirectory& directory, const PartitionedRoadOptions& parts, Split split) {
  return {.order = PartitionOrder::kNode,
          .parts = directory.parts(),
          .buffer = parts.buffer,
          .logical = parts.logical,
          .training_parts = split == Split::kTrain ? directory.training_parts() : directory.parts()};
}

// The plan of a buffer, for as many samplers.
PartitionedNodePlan PlanOf(const PartitionDirectory& directory, const PartitionedNodeRoadOptions& options,
                           uint32_t buffer, unsigned samplers) {
  PartitionedNodePlan plan{.parts = options.parts,
                           .part_count = directory.parts(),
                           .training_parts = directory.training_parts(),
                           .samplers = samplers};
  plan.parts.buffer = buffer;
  if (plan.parts.logical == 0) plan.parts.logical = plan.part_count;
  plan.training_stays = plan.training_parts < buffer;
  const BatchBounds bounds = BoundsOf(directory, options.spec, buffer);
  plan.batch_nodes_max = bounds.nodes;
  plan.batch_edges_max = bounds.edges;
  const uint32_t incoming = Incoming(directory, plan.parts);
  plan.buffer_bytes = PartitionBufferBytesMax(directory, buffer, incoming, BufferOptions(plan.parts));
  plan.batch_bytes = BatchBytes(directory, options.spec, buffer, incoming, samplers);
  return plan;
}

// The buffers that may be, ascending: that which was asked for, or any. kUsage where there is none.
Result<std::vector<uint32_t>> PossibleBuffers(const PartitionDirectory& directory,
                                              PartitionedRoadOptions parts) {
  const uint32_t count = directory.parts();
  const uint32_t asked = parts.buffer;
  if (parts.logical == 0) parts.logical = count;
  std::vector<uint32_t> buffers;
  Status refused = MakeStatus(Code::kUsage, "{} parts: a buffer swaps at least 2", count);
  for (parts.buffer = asked > 0 ? asked : 2; asked > 0 || parts.buffer <= count; ++parts.buffer) {
    Status status = CheckSwapSpec(SpecOf(directory, parts, Split::kTrain));
    if (status.ok()) status = CheckSwapSpec(SpecOf(directory, parts, Split::kTest));
    if (status.ok()) buffers.push_back(parts.buffer);
    if (!status.ok() && buffers.empty()) refused = std::move(status);
    if (asked > 0) break;
  }
  if (buffers.empty()) return refused;
  return buffers;
}

// The options with what they leave open. The buffer decides what batches hold, and one seed is to give the same for any
// number of threads: so it is the largest that leaves room for kTunedSamplers, and then as many of the samplers that were
// asked for are taken as fit.
Result<PartitionedNodePlan> Tune(const PartitionDirectory& directory,
                                 const PartitionedNodeRoadOptions& options, uint64_t memory_bytes) {
  if (options.parts.order != PartitionOrder::kNode) {
    return MakeStatus(Code::kUsage, "partition order {} is of link prediction; node classification has node",
                      PartitionOrderName(options.parts.order));
  }
  QUARRY_TRY(const std::vector<uint32_t> buffers, PossibleBuffers(directory, options.parts));
  const auto need = [&](uint32_t buffer, unsigned samplers) {
    const PartitionedNodePlan plan = PlanOf(directory, options, buffer, samplers);
    const bool alone = !options.beside_bytes;
    return plan.bytes() + (alone ? 0 : options.beside_bytes(plan.batch_nodes_max, plan.batch_edges_max));
  };
  // The larger the buffer, the more it needs: bisected, as each need is that of p^2 buckets.
  const auto first_too_large = std::ranges::partition_point(buffers, [&](uint32_t buffer) {
    return need(buffer, PartitionedNodeRoad::kTunedSamplers) <= memory_bytes;
  });
  const uint32_t buffer = first_too_large == buffers.begin() ? buffers.front() : *(first_too_large - 1);
  const uint64_t least = need(buffer, 1);
  if (least > memory_bytes) {
    return MakeStatus(Code::kOutOfBudget,
                      "{} of the {} parts with their batches take {}, and there are {}: give it more, make "
                      "more and smaller parts, or lower the batch size or the fanouts",
                      options.parts.buffer > 0 ? fmt::format("a buffer of {}", buffer)
                                               : fmt::format("the least buffer, {},", buffer),
                      directory.parts(), FormatBytes(least), FormatBytes(memory_bytes));
  }
  const uint64_t one_more = need(buffer, 2) - least;
  const uint64_t fit = 1 + (memory_bytes - least) / std::max<uint64_t>(1, one_more);
  const unsigned asked = std::max(1U, options.sampler_threads);
  return PlanOf(directory, options, buffer, static_cast<unsigned>(std::min<uint64_t>(asked, fit)));
}

class PartitionedNodeRoadImpl final : public PartitionedNodeRoad {
 public:
  PartitionedNodeRoadImpl(Store& store, MemoryBudget& budget, const PartitionedNodeRoadOptions& options)
      : backend_(store.backend()), budget_(budget), options_(options), lists_(options.spec.direction) {}

  Status Open(Store& store) {
    if (options_.spec.edge_ids) {
      return Status(Code::kUnsupported, "batches of the partitioned road have no edge ids: parts keep none");
    }
    QUARRY_TRY(partitioning_, StoredPartitioning::Open(store, budget_, options_.partitioning));
    const PartitioningRecord& record = partitioning_->record();
    if (record.topology != options_.spec.topology) {
      return MakeStatus(
          Code::kUnsupported,
          "{}: partitioning \"{}\" is of topology \"{}\", and batches need \"{}\": build it with "
          "--topology {}",
          store.path(), record.name, record.topology, options_.spec.topology, options_.spec.topology);
    }
    if (directory().row_bytes == 0 || record.table != options_.spec.feature_table) {
      return MakeStatus(
          Code::kUnsupported,
          "{}: partitioning \"{}\" has {}, and batches need those of table \"{}\": build it with --table {}",
          store.path(), record.name,
          record.table.empty() ? "no rows" : fmt::format("rows of table \"{}\"", record.table),
          options_.spec.feature_table, options_.spec.feature_table);
    }
    if (!directory().has_labels()) {
      return MakeStatus(
          Code::kUnsupported,
          "{}: partitioning \"{}\" has no labels and splits: the database had none when it was built, or "
          "an older Quarry built it; build it again",
          store.path(), record.name);
    }
    QUARRY_RETURN_IF_ERROR(CheckLabelsAreFresh(store, record));
    if (class_count() == PartitionDirectory::kClassesMax) {
      QUARRY_TRY(const LargestLabel largest, partitioning_->FindLargestLabel(budget_));
      return MakeStatus(
          Code::kInvalidArgument,
          "{}: the label of node {} is {}, and no model tells so many classes apart; the largest of "
          "the others is {}. Correct the label and build partitioning \"{}\" again, or, where labels "
          "are codes, import them anew with relabel",
          store.path(), largest.node, largest.label, largest.next, record.name);
    }
    const std::shared_ptr<const Manifest> manifest = store.manifest();
    const TableRecord* const table = manifest->FindTable(record.table);
    element_type_ = table->element_type;
    dim_ = static_cast<uint32_t>(table->dim);
    QUARRY_TRY(plan_, Tune(directory(), options_, budget_.available_bytes()));
    QUARRY_TRY(reservation_, budget_.Reserve(plan_.batch_bytes, "batches of a partitioned road"));
    QUARRY_RETURN_IF_ERROR(MakeBuffer());
    return MakeSamplers();
  }

  Result<std::unique_ptr<BatchStream>> StartPass(PassOptions) override {
    return Status(Code::kUnsupported,
                  "the partitioned road has batches of splits: those of given nodes are the other roads'");
  }
  Result<std::unique_ptr<BatchStream>> StartSplit(Split split, PassOptions options) override;
  std::span<const int64_t> labels() const override { return {}; }
  std::vector<NodeId> SplitNodes(Split) const override { return {}; }
  uint64_t CountNodes(Split split) const override { return directory().NodesIn(split); }
  uint32_t class_count() const override { return directory().class_count; }
  uint32_t feature_dim() const override { return dim_; }
  const PartitionedNodePlan& plan() const override { return plan_; }
  const StoredPartitioning& partitioning() const override { return *partitioning_; }

 private:
  const PartitionDirectory& directory() const { return partitioning_->directory(); }

  Status MakeBuffer() {
    QUARRY_TRY(buffer_,
               PartitionBuffer::MakeForPlans(*partitioning_, backend_, budget_, plan_.parts.buffer,
                                             Incoming(directory(), plan_.parts), BufferOptions(plan_.parts)));
    return Status::Ok();
  }

  Status MakeSamplers() {
    samplers_.clear();
    for (unsigned i = 0; i < plan_.samplers; ++i) {
      QUARRY_TRY(auto sampler, NeighborSampler::Make({.lists = &lists_, .direction = options_.spec.direction},
                                                     options_.spec));
      samplers_.push_back(std::move(sampler));
    }
    return Status::Ok();
  }

  IoBackend& backend_;
  MemoryBudget& budget_;
  const PartitionedNodeRoadOptions options_;
  std::unique_ptr<StoredPartitioning> partitioning_;
  PartitionedNodePlan plan_;
  ElementType element_type_ = ElementType::kFloat32;
  uint32_t dim_ = 0;
  MemoryBudget::Reservation reservation_;
  std::unique_ptr<PartitionBuffer> buffer_;  // null after a pass that ended in an error
  HeldLists lists_;
  std::vector<std::unique_ptr<NeighborSampler>> samplers_;
  OnePass pass_;
};

Result<std::unique_ptr<BatchStream>> PartitionedNodeRoadImpl::StartSplit(Split split, PassOptions options) {
  QUARRY_RETURN_IF_ERROR(pass_.Check());
  if (buffer_ == nullptr) {
    QUARRY_RETURN_IF_ERROR(MakeBuffer());
    QUARRY_RETURN_IF_ERROR(MakeSamplers());
  }
  SwapSpec spec = SpecOf(directory(), plan_.parts, split);
  spec.seed = MixSeed(options_.spec.seed, kNodePlanStream, options.pass);
  QUARRY_TRY(SwapPlan plan, PlanSwaps(spec));
  std::vector<uint64_t> step_seeds(plan.steps().size());
  uint64_t number = 0;  // of a node among those of the split, in the order of parts
  for (uint32_t part = 0; part < directory().parts(); ++part) {
    const uint64_t end = number + directory().splits[part].of(split);
    for (; number < end; ++number) ++step_seeds[plan.StepOfNode(part, number)];
  }
  if (const Status followed = buffer_->Follow(std::move(plan)); !followed.ok()) {
    buffer_.reset();
    return followed;
  }
  const PartitionedResources resources{.buffer = buffer_.get(),
                                       .lists = &lists_,
                                       .samplers = samplers_,
                                       .element_type = element_type_,
                                       .dim = dim_,
                                       .batch_size = options_.spec.batch_size,
                                       .bounds = BoundsOf(directory(), options_.spec, plan_.parts.buffer),
                                       .frame_count = FrameCount(plan_.samplers),
                                       .seed = options_.spec.seed,
                                       .split = split};
  return pass_.Start(
      [&](std::function<void(bool)> on_end) {
        return std::make_unique<PartitionedStream>(resources, std::move(options), std::move(step_seeds),
                                                   std::move(on_end));
      },
      [this] { buffer_.reset(); });
}

}  // namespace

std::string PartitionedNodePlan::ToString() const {
  return fmt::format(
      "partitioned road: {} of {} parts are held, {} logical ones; training nodes lie in {}, {}; {} for "
      "parts + {} for batches of up to {} nodes",
      parts.buffer, part_count, parts.logical, training_parts,
      training_stays ? "which stay" : "which swap (every part is read once a pass)",
      FormatBytes(buffer_bytes), FormatBytes(batch_bytes), batch_nodes_max);
}

Result<std::unique_ptr<PartitionedNodeRoad>> PartitionedNodeRoad::Open(
    Store& store, MemoryBudget& budget, const PartitionedNodeRoadOptions& options) {
  auto road = std::make_unique<PartitionedNodeRoadImpl>(store, budget, options);
  QUARRY_RETURN_IF_ERROR(road->Open(store));
  return std::unique_ptr<PartitionedNodeRoad>(std::move(road));
}

}  // namespace quarry
