#include "parted_encoder.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>
#include <vector>

#include "layer_bytes.h"
#include "quarry/base/trace.h"
#include "quarry/base/units.h"
#include "quarry/io/buffer.h"
#include "quarry/partition/read_bucket.h"
#include "tiles.h"

namespace quarry {
namespace {

using RowReader = std::function<Status(std::span<const RowId>, std::span<float>)>;
using AdditionProgress = std::function<Status(uint64_t done, uint64_t total)>;

uint64_t LargestPart(const PartitionDirectory& directory) {
  uint64_t nodes = 0;
  for (uint32_t part = 0; part < directory.parts(); part++) {
    nodes = std::max(nodes, directory.part_nodes(part));
  }
  return nodes;
}

// Floats of the widest of the layers, whose last is like no other.
GraphForm WidestForm(const ModelSpec& spec, uint32_t dim, uint32_t layer_count) {
  GraphForm widest;
  for (uint32_t l = 0; l < layer_count; l++) {
    const LayerBounds layer{.in = dim, .out = dim, .last = l + 1 == layer_count};
    const GraphForm form = GraphFormOf(spec, layer, GraphOrder::kLeastState);
    widest.state = std::max(widest.state, form.state);
    if (!form.raw) widest.message = std::max(widest.message, form.message);
  }
  return widest;
}

// Rows that come out of a layer at a time.
uint64_t TileNodes(const PartitionDirectory& directory, uint32_t dim) {
  constexpr uint64_t kOutputBytes = 1 * kMiB;
  return std::min(directory.node_count(),
                  std::max<uint64_t>(kTileRowsMin, kOutputBytes / (sizeof(float) * dim)));
}

// What the states of a part take.
uint64_t StateBytes(const PartitionDirectory& directory, const GraphForm& widest) {
  return LargestPart(directory) * (widest.state * sizeof(float) + sizeof(uint64_t));
}

// A part's nodes, [first, first + count) of all.
struct Nodes {
  uint64_t first = 0, count = 0;
};

class PartsEncoder {
 public:
  PartsEncoder(const PartedEncoding& encoding, uint32_t group, const AdditionProgress& progress)
      : encoding_(encoding),
        directory_(encoding.partitioning.directory()),
        dim_(encoding.dim),
        group_(group),
        progress_(progress) {
    const uint32_t layers = encoding.layers.layer_count();
    for (const uint64_t edges : directory_.BucketEdges()) additions_ += 2 * edges * layers;
  }

  Status Allocate() {
    QUARRY_TRY(bucket_, IoBuffer::Allocate(std::max(kPageBytes, LargestBucketBytes(directory_))));
    const uint64_t part = LargestPart(directory_), tile = TileNodes(directory_, dim_);
    const GraphForm widest = WidestForm(encoding_.spec, dim_, encoding_.layers.layer_count());
    states_.resize(group_ * part * widest.state);
    sizes_.resize(group_ * part);
    rows_.resize(part * dim_);
    made_.resize(part * widest.message);
    ids_.resize(part);
    outputs_.resize(tile * dim_);
    return Status::Ok();
  }

  Result<std::unique_ptr<ScratchRows>> Encode(const RowReader& read_nodes) {
    QUARRY_RETURN_IF_ERROR(CountNeighbors());
    std::unique_ptr<ScratchRows> before;
    for (uint32_t l = 0; l < encoding_.layers.layer_count(); l++) {
      const ScopedSpan span("encode all", l);
      GraphLayer layer = encoding_.layers.ForGraph(l, GraphOrder::kLeastState);
      const RowReader read = l == 0 ? read_nodes : [&](std::span<const RowId> ids, std::span<float> values) {
        return before->Read(ids, values);
      };
      QUARRY_TRY(std::unique_ptr<ScratchRows> after, MakeScratch(dim_));
      for (uint32_t first = 0; first < directory_.parts(); first += group_) {
        const uint32_t end = std::min(first + group_, directory_.parts());
        QUARRY_RETURN_IF_ERROR(AddRows(layer, first, end, read));
        for (uint32_t part = first; part < end; part++) {
          QUARRY_RETURN_IF_ERROR(progress_(added_, additions_));
          QUARRY_RETURN_IF_ERROR(Finish(layer, part, directory_.part_starts[first], *after));
        }
      }
      before = std::move(after);
    }
    return before;
  }

 private:
  Result<std::unique_ptr<ScratchRows>> MakeScratch(uint32_t dim) {
    return ScratchRows::Make(encoding_.backend, encoding_.scratch_folder, directory_.node_count(), dim);
  }

  Nodes NodesOf(uint32_t part) const { return {directory_.part_starts[part], directory_.part_nodes(part)}; }

  // Fills `values` with the rows of these nodes.
  Status Read(const RowReader& read, Nodes nodes, std::span<float> values) {
    const std::span ids = std::span(ids_).first(nodes.count);
    std::iota(ids.begin(), ids.end(), RowId{nodes.first});
    return ids.empty() ? Status::Ok() : read(ids, values.first(nodes.count * dim_));
  }

  // How many neighbors each node has, as the bits of a float. What is added to a node's state depends on it.
  Status CountNeighbors() {
    QUARRY_TRY(counts_, MakeScratch(1));
    for (uint32_t part = 0; part < directory_.parts(); part++) {
      QUARRY_RETURN_IF_ERROR(progress_(added_, additions_));
      std::vector<uint32_t> counts(directory_.part_nodes(part));
      const auto count = [&](const BucketLists& lists) {
        if (lists.shape().edge_count == 0) return;
        for (uint32_t node = 0; node < counts.size(); node++) {
          counts[node] += static_cast<uint32_t>(lists.Neighbors(node).size());
        }
      };
      for (uint32_t other = 0; other < directory_.parts(); other++) {
        QUARRY_TRY(const EdgeBucket to, Bucket(other, part));
        count(to.in);
        QUARRY_TRY(const EdgeBucket from, Bucket(part, other));
        count(from.out);
      }
      std::vector<float> bits;
      for (const uint32_t value : counts) bits.push_back(std::bit_cast<float>(value));
      QUARRY_RETURN_IF_ERROR(counts_->Append(bits));
    }
    return Status::Ok();
  }

  // Reads the counts of parts [first, end).
  Status ReadSizes(uint32_t first, uint32_t end) {
    uint64_t at = 0;
    for (uint32_t part = first; part < end; part++) {
      std::vector<float> bits(directory_.part_nodes(part));
      QUARRY_RETURN_IF_ERROR(counts_->Read(RowId{directory_.part_starts[part]}, bits));
      for (const float value : bits) sizes_[at++] = std::bit_cast<uint32_t>(value);
    }
    return Status::Ok();
  }

  // Makes the states of parts [first, end), from their own rows and all buckets that have one of them at either end.
  Status AddRows(GraphLayer& layer, uint32_t first, uint32_t end, const RowReader& read) {
    QUARRY_RETURN_IF_ERROR(ReadSizes(first, end));
    layer.StartStates(StatesAt(layer, 0, sizes_.size()));
    const uint64_t first_node = directory_.part_starts[first];
    if (layer.form().own_first) {
      for (uint32_t part = first; part < end; part++) {
        QUARRY_TRY(const std::span<const float> messages, ReadMessages(layer, part, read));
        QUARRY_RETURN_IF_ERROR(AddOwn(layer, part, first_node, messages));
      }
    }
    for (uint32_t other = 0; other < directory_.parts(); other++) {
      QUARRY_RETURN_IF_ERROR(progress_(added_, additions_));
      QUARRY_TRY(const std::span<const float> messages, ReadMessages(layer, other, read));
      if (!layer.form().own_first && other >= first && other < end) {
        QUARRY_RETURN_IF_ERROR(AddOwn(layer, other, first_node, messages));
      }
      for (uint32_t part = first; part < end; part++) {
        const uint64_t at = directory_.part_starts[part] - first_node;
        QUARRY_TRY(const EdgeBucket to, Bucket(other, part));
        Add(layer, to.in, directory_.part_nodes(part), at, messages.data());
        QUARRY_TRY(const EdgeBucket from, Bucket(part, other));
        Add(layer, from.out, directory_.part_nodes(part), at, messages.data());
      }
    }
    return Status::Ok();
  }

  Result<EdgeBucket> Bucket(uint32_t source, uint32_t destination) {
    return ReadBucket(encoding_.partitioning, encoding_.backend, source, destination, bucket_.span());
  }

  Result<std::span<const float>> ReadMessages(GraphLayer& layer, uint32_t part, const RowReader& read) {
    QUARRY_RETURN_IF_ERROR(Read(read, NodesOf(part), rows_));
    return layer.Messages(std::span<const float>(rows_).first(directory_.part_nodes(part) * dim_), made_);
  }

  // States lie from that of node `first_node` on.
  Status AddOwn(GraphLayer& layer, uint32_t part, uint64_t first_node, std::span<const float> messages) {
    const Nodes nodes = NodesOf(part);
    const uint64_t at = nodes.first - first_node;
    return layer.AddOwn(std::span<const float>(rows_).first(nodes.count * dim_), messages,
                        std::span(sizes_).subspan(at, nodes.count), StatesAt(layer, at, nodes.count));
  }

  std::span<float> StatesAt(const GraphLayer& layer, uint64_t at, uint64_t count) {
    return std::span(states_).subspan(at * layer.form().state, count * layer.form().state);
  }

  // Adds to the states of `nodes` nodes, from the one at `at` on, those messages that their lists name.
  void Add(GraphLayer& layer, const BucketLists& lists, uint64_t nodes, uint64_t at, const float* messages) {
    if (lists.shape().edge_count == 0) return;
    added_ += lists.shape().edge_count;
    layer.ForNodes(nodes, [&](uint64_t begin, uint64_t end) {
      for (uint64_t node = begin; node < end; node++) {
        const std::span<const uint32_t> neighbors = lists.Neighbors(static_cast<uint32_t>(node));
        if (neighbors.empty()) continue;
        layer.AddList({.sources = neighbors, .size = sizes_[at + node]}, messages,
                      states_.data() + (at + node) * layer.form().state);
      }
    });
  }

  // A row's place in a product may show in its last bits, so tiles begin with the part, whatever group it is in.
  Status Finish(GraphLayer& layer, uint32_t part, uint64_t first_node, ScratchRows& out) {
    const Nodes nodes = NodesOf(part);
    const uint64_t tile = outputs_.size() / dim_;
    for (uint64_t begin = 0; begin < nodes.count; begin += tile) {
      const uint64_t count = std::min(tile, nodes.count - begin);
      const std::span outputs = std::span(outputs_).first(count * dim_);
      QUARRY_RETURN_IF_ERROR(layer.Finish(StatesAt(layer, nodes.first - first_node + begin, count), outputs));
      QUARRY_RETURN_IF_ERROR(out.Append(outputs));
    }
    return Status::Ok();
  }

  const PartedEncoding& encoding_;
  const PartitionDirectory& directory_;
  const uint32_t dim_;
  const uint32_t group_;
  const AdditionProgress& progress_;
  uint64_t additions_ = 0, added_ = 0;  // of messages to states
  IoBuffer bucket_;
  std::unique_ptr<ScratchRows> counts_;  // of neighbors, by node
  std::vector<float> states_;            // by node of the group
  std::vector<uint64_t> sizes_;          // likewise: of lists
  std::vector<float> rows_, made_;       // of one part
  std::vector<RowId> ids_;
  std::vector<float> outputs_;  // of a tile
};

}  // namespace

uint64_t EncodePartsBytes(const PartitionDirectory& directory, const ModelSpec& spec, uint32_t dim,
                          uint32_t layer_count, uint32_t group) {
  const uint64_t part = LargestPart(directory), tile = TileNodes(directory, dim);
  const GraphForm widest = WidestForm(spec, dim, layer_count);
  return group * StateBytes(directory, widest) + part * (dim + widest.message) * sizeof(float) +
         part * (sizeof(RowId) + 2 * sizeof(uint32_t)) + tile * dim * sizeof(float) + GrownBytes(tile * dim) +
         IoBuffer::MappedBytes(std::max(kPageBytes, LargestBucketBytes(directory))) +
         ScratchRows::Bytes(directory.node_count(), 1) +
         std::min(2U, layer_count) * ScratchRows::Bytes(directory.node_count(), dim);
}

Result<std::unique_ptr<ScratchRows>> EncodeParts(
    const PartedEncoding& encoding, MemoryBudget& budget,
    const std::function<Status(std::span<const RowId> ids, std::span<float> values)>& read_nodes,
    const std::function<Status(uint64_t done, uint64_t total)>& progress) {
  const PartitionDirectory& directory = encoding.partitioning.directory();
  const GraphForm widest = WidestForm(encoding.spec, encoding.dim, encoding.layers.layer_count());
  const uint64_t states = std::max<uint64_t>(1, StateBytes(directory, widest));
  const uint64_t more = std::min<uint64_t>(directory.parts() - 1, budget.available_bytes() / states);
  QUARRY_TRY(const MemoryBudget::Reservation reserved, budget.Reserve(more * states, "states of nodes"));
  PartsEncoder encoder(encoding, static_cast<uint32_t>(1 + more), progress);
  QUARRY_RETURN_IF_ERROR(encoder.Allocate());
  return encoder.Encode(read_nodes);
}

}  // namespace quarry
