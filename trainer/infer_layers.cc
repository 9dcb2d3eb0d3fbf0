#include "infer_layers.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "layer_bytes.h"
#include "quarry/base/trace.h"
#include "quarry/base/units.h"
#include "quarry/sampling/sampler.h"
#include "range_edges.h"
#include "range_plan.h"
#include "resize_void.h"
#include "row_blocks.h"
#include "scratch_rows.h"
#include "tiles.h"

namespace quarry {
namespace {

// Edges of a bucket that a thread takes at a time.
constexpr uint64_t kBucketEdges = 4096;

using RowSink = std::function<Status(uint64_t first, std::span<const float> rows)>;
using NodeProgress = std::function<Status(uint64_t nodes)>;

// One layer, from its rows to those of the next.
class LayerRun {
 public:
  LayerRun(GraphLayer& layer, RowBlocks& rows, RangeEdges& edges, const RangePlan& plan, uint64_t node_count)
      : layer_(layer),
        form_(layer.form()),
        rows_(rows),
        edges_(edges),
        plan_(plan),
        node_count_(node_count),
        block_rows_(rows.block_rows()),
        block_count_(CeilDiv(node_count, block_rows_)),
        block_(std::min(block_rows_, node_count) * layer.in()),
        made_(form_.raw ? 0 : std::min(block_rows_, node_count) * form_.message),
        outputs_(OutputRows(layer.out(), plan.nodes_max) * layer.out()),
        wanted_(block_count_) {}

  static uint64_t OutputRows(uint32_t out, uint64_t nodes_max) {
    return std::min<uint64_t>(TileRows(out), nodes_max);
  }

  Status Run(const RowSink& sink, const NodeProgress& progress) {
    for (const NodeRange& range : plan_.ranges) {
      QUARRY_RETURN_IF_ERROR(RunRange(range, sink, progress));
    }
    return Status::Ok();
  }

 private:
  // A block's rows in memory, and what they become.
  struct Told {
    std::span<const float> rows, messages;
  };

  uint64_t BlockFirst(uint64_t block) const { return block * block_rows_; }
  uint64_t BlockEnd(uint64_t block) const { return std::min(node_count_, (block + 1) * block_rows_); }
  uint64_t BlockSize(uint64_t block) const { return BlockEnd(block) - BlockFirst(block); }

  // Reads the block, the first of a run that goes on to row `end`, and makes its messages in `made`.
  Result<Told> Read(uint64_t block, uint64_t end, std::span<float> made) {
    const std::span rows = std::span(block_).first(BlockSize(block) * layer_.in());
    QUARRY_RETURN_IF_ERROR(rows_.Read(BlockFirst(block), end, rows));
    QUARRY_TRY(const std::span<const float> messages, layer_.Messages(rows, made));
    return Told{rows, messages};
  }

  Status RunRange(const NodeRange& range, const RowSink& sink, const NodeProgress& progress) {
    range_ = range;
    const uint64_t nodes = range.end - range.first;
    states_.resize(nodes * form_.state);
    sizes_.resize(nodes);
    kept_.resize(plan_.keeps_own ? nodes * form_.message : 0);
    layer_.StartStates(states_);
    for (uint64_t i = 0; i < nodes; i++) sizes_[i] = edges_.ListSize(static_cast<NodeId>(range.first + i));
    if (form_.own_first) QUARRY_RETURN_IF_ERROR(TellThemselves());
    const auto sweeps = edges_.Sweeps(range.first, range.end, std::max<uint64_t>(1, range.edges_max()));
    for (size_t i = 0; i < sweeps.size(); i++) {
      QUARRY_RETURN_IF_ERROR(edges_.Load(range.first, sweeps[i]));
      QUARRY_RETURN_IF_ERROR(Sweep(/*adds_own=*/i == 0 && !form_.own_first, progress));
    }
    edges_.Release();
    QUARRY_RETURN_IF_ERROR(Finish(sink));
    // The next range may have fewer nodes and more edges.
    GiveBack(states_);
    GiveBack(sizes_);
    GiveBack(kept_);
    return progress(nodes);
  }

  bool IsOwn(uint64_t block) const {
    return BlockFirst(block) >= range_.first && BlockFirst(block) < range_.end;
  }

  Status TellThemselves() {
    for (uint64_t block = range_.first / block_rows_; block < block_count_ && IsOwn(block); block++) {
      QUARRY_TRY(const Told told, Read(block, range_.end, plan_.keeps_own ? KeptOf(block) : made_));
      QUARRY_RETURN_IF_ERROR(AddOwn(block, told));
    }
    return Status::Ok();
  }

  std::span<float> KeptOf(uint64_t block) {
    return std::span(kept_).subspan((BlockFirst(block) - range_.first) * form_.message,
                                    BlockSize(block) * form_.message);
  }

  Status AddOwn(uint64_t block, const Told& told) {
    const uint64_t at = BlockFirst(block) - range_.first, count = BlockSize(block);
    return layer_.AddOwn(told.rows, told.messages, std::span(sizes_).subspan(at, count),
                         std::span(states_).subspan(at * form_.state, count * form_.state));
  }

  // The blocks that this sweep's edges ask for, each once, ascending.
  Status Sweep(bool adds_own, const NodeProgress& progress) {
    for (uint64_t block = 0; block < block_count_; block++) {
      wanted_[block] =
          (edges_.Has(block) && !(plan_.keeps_own && IsOwn(block))) || (adds_own && IsOwn(block));
    }
    uint64_t run_end = 0;  // block
    for (uint64_t block = 0; block < block_count_; block++) {
      Told told;
      if (wanted_[block]) {
        if (block >= run_end) {
          for (run_end = block + 1; run_end < block_count_ && wanted_[run_end];) run_end++;
        }
        QUARRY_TRY(told, Read(block, BlockEnd(run_end - 1), made_));
        if (adds_own && IsOwn(block)) QUARRY_RETURN_IF_ERROR(AddOwn(block, told));
        QUARRY_RETURN_IF_ERROR(progress(0));
      } else if (edges_.Has(block)) {
        told.messages = KeptOf(block);
      }
      for (size_t side = 0; side < edges_.sides().size(); side++) {
        AddEdges(edges_.Of(block, side), told.messages.data());
      }
    }
    return Status::Ok();
  }

  // Whoever takes the first edge of a node takes all that the bucket has of it.
  void AddEdges(const RangeEdges::Bucket& bucket, const float* messages) {
    const std::span<const uint32_t> nodes = bucket.nodes;
    const uint64_t pieces = CeilDiv(nodes.size(), kBucketEdges);
    layer_.ForEach(pieces, [&](uint64_t piece) {
      uint64_t at = piece * kBucketEdges;
      const uint64_t end = std::min<uint64_t>(nodes.size(), at + kBucketEdges);
      while (at < end && at > 0 && nodes[at] == nodes[at - 1]) at++;
      while (at < end) {
        const uint32_t node = nodes[at];
        uint64_t last = at + 1;
        while (last < nodes.size() && nodes[last] == node) last++;
        layer_.AddList({.sources = bucket.sources.subspan(at, last - at), .size = sizes_[node]}, messages,
                       states_.data() + uint64_t{node} * form_.state);
        at = last;
      }
    });
  }

  Status Finish(const RowSink& sink) {
    const uint64_t nodes = range_.end - range_.first, tile = outputs_.size() / layer_.out();
    for (uint64_t begin = 0; begin < nodes; begin += tile) {
      const uint64_t count = std::min(tile, nodes - begin);
      const std::span outputs = std::span(outputs_).first(count * layer_.out());
      QUARRY_RETURN_IF_ERROR(
          layer_.Finish(std::span(states_).subspan(begin * form_.state, count * form_.state), outputs));
      QUARRY_RETURN_IF_ERROR(sink(range_.first + begin, outputs));
    }
    return Status::Ok();
  }

  GraphLayer& layer_;
  const GraphForm form_;
  RowBlocks& rows_;
  RangeEdges& edges_;
  const RangePlan& plan_;
  const uint64_t node_count_, block_rows_, block_count_;
  std::vector<float> block_, made_, outputs_;
  std::vector<uint8_t> wanted_;  // by block
  // Of the range that is worked on:
  NodeRange range_;
  std::vector<float> states_, kept_;
  std::vector<uint64_t> sizes_;  // of lists
};

class GraphInference {
 public:
  GraphInference(GnnLayers& layers, uint32_t layer_count, const GraphSource& source, RowNorm norm)
      : layers_(layers), layer_count_(layer_count), source_(source), norm_(norm) {}

  Status Open() {
    Store& store = source_.store;
    QUARRY_TRY(snapshot_, store.TakeSnapshot());
    const TopologyRecord* const record = snapshot_->FindTopology(source_.topology);
    if (record == nullptr) return store.OpenTopology(source_.topology).status();
    QUARRY_TRY(topology_bytes_,
               source_.budget.Reserve(Topology::ResidentBytes(*record), "where each node's edges lie"));
    QUARRY_TRY(topology_, store.OpenTopology(*snapshot_, source_.topology));
    for (const Adjacency side : SidesOf(source_.direction)) {
      if (topology_->has(side)) continue;
      return MakeStatus(
          Code::kInvalidArgument,
          "{}: topology \"{}\" has its edges in one direction, and the run takes them in another",
          store.path(), source_.topology);
    }
    QUARRY_TRY(table_, store.OpenTable(*snapshot_, source_.feature_table));
    QUARRY_TRY(overlay_, store.OpenOverlay(source_.feature_table, snapshot_));
    QUARRY_TRY(table_bytes_, source_.budget.Reserve(table_->resident_bytes() + overlay_->resident_bytes(),
                                                    "checksums of features"));
    QUARRY_RETURN_IF_ERROR(store.PrepareToWrite());
    folder_ = store.path() + "/embeddings";
    QUARRY_RETURN_IF_ERROR(EnsureSyncedDirectory(store.backend(), folder_));
    RangeEdges edges(store.backend(), *topology_, source_.direction, 1);
    QUARRY_TRY(sample_, EdgeSample::Draw(*topology_, edges));
    pass_.sample_bytes = edges.read_bytes();
    QUARRY_TRY(rows_, FeatureBlocks::Make(store.backend(), *table_, *overlay_, norm_, source_.block_bytes));
    return Status::Ok();
  }

  // Plans every layer as it would be run.
  Status Check() const {
    uint64_t block_rows = rows_->block_rows();
    for (uint32_t l = 0; l < layer_count_; l++) {
      GraphLayer layer = layers_.ForGraph(l, GraphOrder::kLeastState);
      const RangeEdges edges(source_.store.backend(), *topology_, source_.direction, block_rows);
      QUARRY_RETURN_IF_ERROR(PlanLayer(layer, l, block_rows, edges).status());
      block_rows = ScratchRows::BlockRows(layer.out(), source_.block_bytes);
    }
    return Status::Ok();
  }

  Result<GraphPass> Run(const NodeRowSink& sink,
                        const std::function<Status(uint64_t done, uint64_t total)>& progress) {
    const uint64_t total = topology_->node_count() * layer_count_;
    uint64_t done = 0;
    const NodeProgress told = [&](uint64_t nodes) { return progress(done += nodes, total); };
    for (uint32_t l = 0; l < layer_count_; l++) {
      const ScopedSpan span("layer of all nodes", l);
      QUARRY_RETURN_IF_ERROR(RunLayer(l, sink, told));
    }
    return pass_;
  }

 private:
  uint64_t ScratchBytes(uint32_t dim) const {
    return ScratchRows::Bytes(topology_->node_count(), dim, source_.block_bytes);
  }

  // What a layer holds beside its ranges.
  uint64_t FixedBytes(const GraphLayer& layer, uint32_t l, uint64_t block_rows) const {
    const uint64_t nodes = topology_->node_count();
    const uint64_t block = std::min(block_rows, nodes);
    const uint64_t tile = LayerRun::OutputRows(layer.out(), nodes);
    const GraphForm& form = layer.form();
    uint64_t bytes = block * (layer.in() + (form.raw ? 0 : form.message)) * sizeof(float);
    bytes += tile * layer.out() * sizeof(float) + GrownBytes(tile * layer.out()) + RangeEdges::kScanBytes;
    bytes +=
        l == 0 ? FeatureBlocks::Bytes(table_->geometry(), source_.block_bytes) : ScratchBytes(layer.in());
    return l + 1 < layer_count_ ? bytes + ScratchBytes(layer.out()) : bytes;
  }

  // The ranges of a layer, and the memory that it runs in.
  struct PlannedLayer {
    MemoryBudget::Reservation fixed, ranges;
    RangePlan plan;
  };
  Result<PlannedLayer> PlanLayer(const GraphLayer& layer, uint32_t l, uint64_t block_rows,
                                 const RangeEdges& edges) const {
    PlannedLayer planned;
    QUARRY_TRY(planned.fixed,
               source_.budget.Reserve(FixedBytes(layer, l, block_rows), "a block of a layer's rows"));
    QUARRY_TRY(planned.plan,
               RangePlan::Make(layer.form(), edges, topology_->node_count(), block_rows, sample_,
                               std::min(source_.range_bytes_max, source_.budget.available_bytes())));
    QUARRY_TRY(planned.ranges,
               source_.budget.Reserve(planned.plan.bytes, "states of nodes, and their edges"));
    return planned;
  }

  Status RunLayer(uint32_t l, const NodeRowSink& sink, const NodeProgress& progress) {
    const uint64_t nodes = topology_->node_count();
    IoBackend& backend = source_.store.backend();
    GraphLayer layer = layers_.ForGraph(l, GraphOrder::kLeastState);
    RangeEdges edges(backend, *topology_, source_.direction, rows_->block_rows());
    QUARRY_TRY(const PlannedLayer planned, PlanLayer(layer, l, rows_->block_rows(), edges));
    const RangePlan& plan = planned.plan;
    std::unique_ptr<ScratchRows> next;
    if (l + 1 < layer_count_) {
      QUARRY_TRY(next, ScratchRows::Make(backend, folder_, nodes, layer.out(), source_.block_bytes));
    }
    LayerRun run(layer, *rows_, edges, plan, nodes);
    QUARRY_RETURN_IF_ERROR(run.Run(
        [&](uint64_t first, std::span<const float> rows) {
          return next ? next->Append(rows) : sink(static_cast<NodeId>(first), rows);
        },
        progress));
    const uint64_t edge_bytes = edges.sides().size() * topology_->IndicesBytes();
    const double row_bytes = static_cast<double>(rows_->bytes()) / static_cast<double>(nodes);
    pass_.layers.push_back({.in = layer.in(),
                            .out = layer.out(),
                            .ranges = plan.ranges.size(),
                            .least_bytes = rows_->bytes() + edge_bytes,
                            .predicted_bytes = static_cast<uint64_t>(plan.rows_read * row_bytes) + edge_bytes,
                            .row_bytes = rows_->read_bytes(),
                            .edge_bytes = edges.read_bytes(),
                            .written_bytes = next ? next->written_bytes() : 0});
    if (next) {
      const uint64_t block_rows = ScratchRows::BlockRows(layer.out(), source_.block_bytes);
      rows_ = std::make_unique<ScratchBlocks>(std::move(next), block_rows);
    }
    return Status::Ok();
  }

  GnnLayers& layers_;
  const uint32_t layer_count_;
  const GraphSource& source_;
  const RowNorm norm_;
  MemoryBudget::Reservation topology_bytes_, table_bytes_;
  std::shared_ptr<const Snapshot> snapshot_;
  std::unique_ptr<Topology> topology_;
  std::unique_ptr<FeatureTable> table_;
  std::unique_ptr<RowOverlay> overlay_;
  std::string folder_;
  EdgeSample sample_;
  std::unique_ptr<RowBlocks> rows_;  // what the next layer takes
  GraphPass pass_;
};

}  // namespace

Result<GraphPass> InferLayers(GnnLayers& layers, uint32_t layer_count, const GraphSource& source,
                              RowNorm norm, const NodeRowSink& sink,
                              const std::function<Status(uint64_t done, uint64_t total)>& progress) {
  QUARRY_RETURN_IF_ERROR(layers.CheckGraph());
  GraphInference inference(layers, layer_count, source, norm);
  QUARRY_RETURN_IF_ERROR(inference.Open());
  return inference.Run(sink, progress);
}

Status CheckInferLayers(GnnLayers& layers, uint32_t layer_count, const GraphSource& source, RowNorm norm) {
  QUARRY_RETURN_IF_ERROR(layers.CheckGraph());
  GraphInference inference(layers, layer_count, source, norm);
  QUARRY_RETURN_IF_ERROR(inference.Open());
  return inference.Check();
}

}  // namespace quarry
