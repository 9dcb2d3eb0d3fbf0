#include "parted_encoder.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "quarry/base/trace.h"
#include "quarry/base/units.h"
#include "quarry/io/buffer.h"
#include "quarry/partition/read_bucket.h"

namespace quarry {
namespace {

using RowReader = std::function<Status(std::span<const RowId>, std::span<float>)>;
using AdditionProgress = std::function<Status(uint64_t done, uint64_t total)>;

constexpr uint32_t kTaskNodes = 1024;  // whose sums one task adds to

uint64_t LargestPart(const PartitionDirectory& directory) {
  uint64_t nodes = 0;
  for (uint32_t part = 0; part < directory.parts(); part++) {
    nodes = std::max(nodes, directory.part_nodes(part));
  }
  return nodes;
}

// Rows that go through a layer at a time.
uint64_t TileNodes(const PartitionDirectory& directory, uint32_t dim) {
  constexpr uint64_t kInputBytes = 1 * kMiB;
  return std::min(directory.node_count(),
                  std::max<uint64_t>(kTileRowsMin, kInputBytes / (2 * sizeof(float) * dim)));
}

// What the sums of a part take.
uint64_t SumBytes(const PartitionDirectory& directory, uint32_t dim) {
  return LargestPart(directory) * (uint64_t{dim} * sizeof(float) + sizeof(uint32_t));
}

// A part's nodes, [first, first + count) of all.
struct Nodes {
  uint64_t first = 0, count = 0;
};

class PartsEncoder {
 public:
  PartsEncoder(const PartedEncoding& encoding, TaskPool& pool, uint32_t group,
               const AdditionProgress& progress)
      : encoding_(encoding),
        directory_(encoding.partitioning.directory()),
        dim_(encoding.dim),
        pool_(pool),
        group_(group),
        progress_(progress) {
    for (const uint64_t edges : directory_.BucketEdges()) additions_ += 2 * edges * encoding.layer_count;
  }

  Status Allocate() {
    QUARRY_TRY(bucket_, IoBuffer::Allocate(std::max(kPageBytes, LargestBucketBytes(directory_))));
    const uint64_t part = LargestPart(directory_), tile = TileNodes(directory_, dim_);
    sums_.resize(group_ * part * dim_);
    degrees_.resize(group_ * part);
    rows_.resize(part * dim_);
    ids_.resize(std::max(part, tile));
    inputs_.resize(tile * 2 * dim_);
    outputs_.resize(tile * dim_);
    return Status::Ok();
  }

  Result<std::unique_ptr<ScratchRows>> Encode(const RowReader& read_nodes) {
    std::unique_ptr<ScratchRows> before;
    for (uint32_t layer = 0; layer < encoding_.layer_count; layer++) {
      const ScopedSpan span("encode all", layer);
      const RowReader read =
          layer == 0 ? read_nodes : [&](std::span<const RowId> ids, std::span<float> values) {
            return before->Read(ids, values);
          };
      QUARRY_TRY(
          std::unique_ptr<ScratchRows> after,
          ScratchRows::Make(encoding_.backend, encoding_.scratch_folder, directory_.node_count(), dim_));
      for (uint32_t first = 0; first < directory_.parts(); first += group_) {
        const uint32_t end = std::min(first + group_, directory_.parts());
        QUARRY_RETURN_IF_ERROR(SumNeighbors(first, end, read));
        for (uint32_t part = first; part < end; part++) {
          QUARRY_RETURN_IF_ERROR(progress_(added_, additions_));
          QUARRY_RETURN_IF_ERROR(ApplyLayer(layer, part, directory_.part_starts[first], read, *after));
        }
      }
      before = std::move(after);
    }
    return before;
  }

 private:
  Nodes NodesOf(uint32_t part) const { return {directory_.part_starts[part], directory_.part_nodes(part)}; }

  // Fills `values` with the rows of these nodes.
  Status Read(const RowReader& read, Nodes nodes, std::span<float> values) {
    const std::span ids = std::span(ids_).first(nodes.count);
    std::iota(ids.begin(), ids.end(), RowId{nodes.first});
    return ids.empty() ? Status::Ok() : read(ids, values.first(nodes.count * dim_));
  }

  // Fills sums_ and degrees_ for the nodes of parts [first, end), from all buckets that have one of them at either end.
  Status SumNeighbors(uint32_t first, uint32_t end, const RowReader& read) {
    std::ranges::fill(sums_, 0.0F);
    std::ranges::fill(degrees_, 0U);
    const uint64_t first_node = directory_.part_starts[first];
    for (uint32_t other = 0; other < directory_.parts(); other++) {
      QUARRY_RETURN_IF_ERROR(progress_(added_, additions_));
      QUARRY_RETURN_IF_ERROR(Read(read, NodesOf(other), rows_));
      for (uint32_t part = first; part < end; part++) {
        const uint64_t at = directory_.part_starts[part] - first_node;
        QUARRY_TRY(const EdgeBucket to, Bucket(other, part));
        Add(to.in, directory_.part_nodes(part), at);
        QUARRY_TRY(const EdgeBucket from, Bucket(part, other));
        Add(from.out, directory_.part_nodes(part), at);
      }
    }
    return Status::Ok();
  }

  Result<EdgeBucket> Bucket(uint32_t source, uint32_t destination) {
    return ReadBucket(encoding_.partitioning, encoding_.backend, source, destination, bucket_.span());
  }

  // Adds to the sums of `nodes` nodes, from the one at `at` on, those rows that their lists name.
  void Add(const BucketLists& lists, uint64_t nodes, uint64_t at) {
    if (lists.shape().edge_count == 0) return;
    added_ += lists.shape().edge_count;
    pool_.Run(static_cast<uint32_t>(CeilDiv(nodes, kTaskNodes)), [&](uint32_t task, unsigned) {
      const uint64_t end = std::min<uint64_t>(nodes, (uint64_t{task} + 1) * kTaskNodes);
      for (uint64_t node = uint64_t{task} * kTaskNodes; node < end; node++) {
        const std::span<const uint32_t> neighbors = lists.Neighbors(static_cast<uint32_t>(node));
        float* const sum = sums_.data() + (at + node) * dim_;
        for (const uint32_t neighbor : neighbors) {
          const float* const row = rows_.data() + uint64_t{neighbor} * dim_;
          for (uint32_t c = 0; c < dim_; c++) sum[c] += row[c];
        }
        degrees_[at + node] += static_cast<uint32_t>(neighbors.size());
      }
    });
  }

  // Own rows of a part beside the means of its sums, which lie among those from `sums_first`, a node, on; a tile at a
  // time. A row's place in a product may show in its last bits, so tiles begin with the part, whatever group it is in.
  Status ApplyLayer(uint32_t layer, uint32_t part, uint64_t sums_first, const RowReader& read,
                    ScratchRows& out) {
    const Nodes nodes = NodesOf(part);
    const uint64_t at = nodes.first - sums_first;
    const uint64_t tile = outputs_.size() / dim_;
    for (uint64_t begin = 0; begin < nodes.count; begin += tile) {
      const uint64_t count = std::min(tile, nodes.count - begin);
      const std::span own = std::span(outputs_).first(count * dim_);
      QUARRY_RETURN_IF_ERROR(Read(read, {nodes.first + begin, count}, own));
      for (uint64_t i = 0; i < count; i++) {
        float* const input = inputs_.data() + i * 2 * dim_;
        std::copy_n(own.data() + i * dim_, dim_, input);
        const uint32_t degree = degrees_[at + begin + i];
        const float scale = degree == 0 ? 0.0F : 1.0F / static_cast<float>(degree);
        const float* const sum = sums_.data() + (at + begin + i) * dim_;
        for (uint32_t c = 0; c < dim_; c++) input[dim_ + c] = scale * sum[c];
      }
      QUARRY_RETURN_IF_ERROR(
          encoding_.layers.ForwardTile(layer, std::span(inputs_).first(count * 2 * dim_), own));
      QUARRY_RETURN_IF_ERROR(out.Append(own));
    }
    return Status::Ok();
  }

  const PartedEncoding& encoding_;
  const PartitionDirectory& directory_;
  const uint32_t dim_;
  TaskPool& pool_;
  const uint32_t group_;
  const AdditionProgress& progress_;
  uint64_t additions_ = 0, added_ = 0;  // of rows to sums
  IoBuffer bucket_;
  std::vector<float> sums_;  // of neighbors, by node of the group
  std::vector<uint32_t> degrees_;
  std::vector<float> rows_;  // of one part
  std::vector<RowId> ids_;
  std::vector<float> inputs_, outputs_;  // of a tile
};

}  // namespace

uint64_t EncodePartsBytes(const PartitionDirectory& directory, uint32_t dim, uint32_t layer_count,
                          uint32_t group) {
  const uint64_t part = LargestPart(directory), tile = TileNodes(directory, dim);
  return group * SumBytes(directory, dim) + part * dim * sizeof(float) +
         std::max(part, tile) * sizeof(RowId) + tile * 3 * dim * sizeof(float) +
         IoBuffer::MappedBytes(std::max(kPageBytes, LargestBucketBytes(directory))) +
         std::min(2U, layer_count) * ScratchRows::Bytes(directory.node_count(), dim);
}

Result<std::unique_ptr<ScratchRows>> EncodeParts(
    const PartedEncoding& encoding, MemoryBudget& budget, TaskPool& pool,
    const std::function<Status(std::span<const RowId> ids, std::span<float> values)>& read_nodes,
    const std::function<Status(uint64_t done, uint64_t total)>& progress) {
  const PartitionDirectory& directory = encoding.partitioning.directory();
  const uint64_t sums = std::max<uint64_t>(1, SumBytes(directory, encoding.dim));
  const uint64_t more = std::min<uint64_t>(directory.parts() - 1, budget.available_bytes() / sums);
  QUARRY_TRY(const MemoryBudget::Reservation reserved, budget.Reserve(more * sums, "sums of neighbors"));
  PartsEncoder encoder(encoding, pool, static_cast<uint32_t>(1 + more), progress);
  QUARRY_RETURN_IF_ERROR(encoder.Allocate());
  return encoder.Encode(read_nodes);
}

}  // namespace quarry
