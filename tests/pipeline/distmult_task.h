// Link prediction by DistMult as a task of a device pipeline, its kernels run on the processor as well: what batches are is
// a function of (seed, batch), and so is what a serial run makes of the tables.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "quarry/base/random.h"
#include "quarry/gpu/device.h"
#include "quarry/gpu/distmult_kernels.h"
#include "quarry/gpu/row_table_kernels.h"
#include "quarry/pipeline/device_task.h"

namespace quarry::testing_util {

struct DistMultOptions {
  uint64_t seed = 1;
  uint32_t edges = 16;  // of a batch, one at least; some batches have fewer if `ragged`
  uint32_t chunk_edges = 4, chunk_negatives = 3;
  bool ragged = true;
  bool skewed = true;  // few rows are in most batches, so that batches overlap
  float learning_rate = 0.1F, epsilon = 1e-6F;
};

// The edges of a batch, as its kernels take them: places in the blocks, and which shares of gradients each row has.
struct DistMultEdges final : EmbeddingItemData {
  std::vector<uint32_t>
      words;  // edges | negatives | node offsets | node uses | relation offsets | relation uses
  uint32_t edge_count = 0, chunk_count = 0;
};

class DistMultTask final : public DeviceEmbeddingTask {
 public:
  // Tables: nodes, relations, of one dim, with Adagrad's state.
  DistMultTask(const EmbeddingSpec& nodes, const EmbeddingSpec& relations, const DistMultOptions& options)
      : nodes_(nodes), relations_(relations), options_(options) {}

  DeviceTaskSizes sizes() const override {
    const uint64_t edges = options_.edges;
    const uint64_t uses = 2 * edges + ChunkCount(options_.edges) * options_.chunk_negatives;
    const uint64_t words =
        3 * edges + ChunkCount(options_.edges) * options_.chunk_negatives + 2 * uses + 1 + 2 * edges + 1;
    return {.rows = {std::min(uses, nodes_.row_count), std::min(edges, relations_.row_count)},
            .payload_bytes = words * sizeof(uint32_t),
            .scratch_bytes = ScratchFloats(options_.edges) * sizeof(float)};
  }

  Status Prepare(EmbeddingItem& item) override {
    if (item.data == nullptr) item.data = std::make_unique<DistMultEdges>();
    Draw(item.batch, item.blocks, static_cast<DistMultEdges&>(*item.data));
    return Status::Ok();
  }

  std::span<const std::byte> Payload(const EmbeddingItem& item) const override {
    return std::as_bytes(std::span(static_cast<const DistMultEdges&>(*item.data).words));
  }

  Status Compute(const EmbeddingItem& item, const DeviceEmbeddingBatch& batch, gpu::Device& device,
                 gpu::StreamHandle stream) override {
    return RunKernels(static_cast<const DistMultEdges&>(*item.data), batch.blocks,
                      reinterpret_cast<const uint32_t*>(batch.payload),
                      reinterpret_cast<float*>(batch.scratch),
                      [&](const auto& kernel) { return gpu::Run(device, kernel, stream); });
  }

  // The same batch on the processor, of rows that lie as a device has them. For the oracle.
  void ComputeHere(const DistMultEdges& edges, std::span<const DeviceRowBlock> blocks) const {
    std::vector<float> scratch(ScratchFloats(options_.edges));
    static_cast<void>(RunKernels(edges, blocks, edges.words.data(), scratch.data(), [](const auto& kernel) {
      for (uint64_t i = 0; i < kernel.count(); ++i) kernel(i);
      return Status::Ok();
    }));
  }

  // What batch `batch` is: ids of the blocks, and edges.
  void Draw(uint64_t batch, std::span<RowBlock> blocks, DistMultEdges& to) const {
    Rng rng(MixSeed(options_.seed, batch));
    to.edge_count = options_.ragged ? 1 + static_cast<uint32_t>(rng.Below(options_.edges)) : options_.edges;
    to.chunk_count = ChunkCount(to.edge_count);
    const uint32_t negatives = to.chunk_count * options_.chunk_negatives;
    // By use: sources, destinations, negatives; then the relations.
    std::vector<RowId> nodes(2 * to.edge_count + negatives), relations(to.edge_count);
    for (RowId& node : nodes) node = DrawRow(rng, nodes_.row_count);
    for (RowId& relation : relations) relation = DrawRow(rng, relations_.row_count);
    std::vector<uint32_t> node_offsets, node_uses, relation_offsets, relation_uses;
    const std::vector<uint32_t> node_places = Place(nodes, blocks[0].ids, node_offsets, node_uses);
    const std::vector<uint32_t> relation_places =
        Place(relations, blocks[1].ids, relation_offsets, relation_uses);
    to.words.clear();
    for (uint32_t edge = 0; edge < to.edge_count; ++edge) {
      to.words.insert(to.words.end(),
                      {node_places[edge], relation_places[edge], node_places[to.edge_count + edge]});
    }
    to.words.insert(to.words.end(), node_places.begin() + 2 * to.edge_count, node_places.end());
    for (const auto* part : {&node_offsets, &node_uses, &relation_offsets, &relation_uses}) {
      to.words.insert(to.words.end(), part->begin(), part->end());
    }
  }

 private:
  uint32_t ChunkCount(uint32_t edges) const {
    return (edges + options_.chunk_edges - 1) / options_.chunk_edges;
  }
  uint64_t NodeUses(uint32_t edges) const {
    return 2 * uint64_t{edges} + uint64_t{ChunkCount(edges)} * options_.chunk_negatives;
  }
  uint64_t ScratchFloats(uint32_t edges) const {
    return uint64_t{edges} * (1 + options_.chunk_negatives) + (NodeUses(edges) + edges) * nodes_.dim;
  }

  // Skewed: 1 / x is Zipf's law with exponent 2.
  RowId DrawRow(Rng& rng, uint64_t row_count) const {
    if (!options_.skewed) return rng.Below(row_count);
    return static_cast<RowId>(1.0 / (rng.Unit() + 1.0 / (static_cast<double>(row_count) + 1))) % row_count;
  }

  // The place of each row among the distinct ones, which become `ids`, and the uses of each of these, ascending.
  static std::vector<uint32_t> Place(std::span<const RowId> rows, std::vector<RowId>& ids,
                                     std::vector<uint32_t>& offsets, std::vector<uint32_t>& uses) {
    std::vector<std::pair<RowId, uint32_t>> sorted;
    for (uint32_t use = 0; use < rows.size(); ++use) sorted.emplace_back(rows[use], use);
    std::sort(sorted.begin(), sorted.end());
    std::vector<uint32_t> places(rows.size());
    ids.clear();
    for (const auto& [row, use] : sorted) {
      if (ids.empty() || ids.back() != row) {
        offsets.push_back(static_cast<uint32_t>(uses.size()));
        ids.push_back(row);
      }
      places[use] = static_cast<uint32_t>(ids.size() - 1);
      uses.push_back(use);
    }
    offsets.push_back(static_cast<uint32_t>(uses.size()));
    return places;
  }

  static gpu::AdagradRows Rows(const EmbeddingSpec& spec, const DeviceRowBlock& rows) {
    return {.data = rows.rows, .count = rows.count, .stride = DeviceRowStride(spec), .dim = spec.dim};
  }

  template <typename RunKernel>
  Status RunKernels(const DistMultEdges& edges, std::span<const DeviceRowBlock> blocks, const uint32_t* words,
                    float* scratch, const RunKernel& run) const {
    const uint32_t count = edges.edge_count, negatives = edges.chunk_count * options_.chunk_negatives;
    const gpu::DistMultBatch batch = {
        .nodes = Rows(nodes_, blocks[0]),
        .relations = Rows(relations_, blocks[1]),
        .edges = words,
        .negatives = words + 3 * uint64_t{count},
        .edge_count = count,
        .chunk_edges = options_.chunk_edges,
        .chunk_negatives = options_.chunk_negatives,
        .candidates = 1 + options_.chunk_negatives,
        .slopes = scratch,
        .node_shares = scratch + uint64_t{count} * (1 + options_.chunk_negatives),
        .relation_shares =
            scratch + uint64_t{count} * (1 + options_.chunk_negatives) + NodeUses(count) * nodes_.dim};
    QUARRY_RETURN_IF_ERROR(run(gpu::ScoreDistMult{batch}));
    QUARRY_RETURN_IF_ERROR(run(gpu::ShareDistMultEdges{batch}));
    QUARRY_RETURN_IF_ERROR(run(gpu::ShareDistMultNegatives{batch}));
    gpu::StepAdagradRows step = {.rows = batch.nodes,
                                 .offsets = batch.negatives + negatives,
                                 .uses = batch.negatives + negatives + blocks[0].count + 1,
                                 .shares = batch.node_shares,
                                 .learning_rate = options_.learning_rate,
                                 .epsilon = options_.epsilon};
    QUARRY_RETURN_IF_ERROR(run(step));
    step.rows = batch.relations;
    step.offsets = step.uses + NodeUses(count);
    step.uses = step.offsets + blocks[1].count + 1;
    step.shares = batch.relation_shares;
    return run(step);
  }

  const EmbeddingSpec nodes_, relations_;
  const DistMultOptions options_;
};

// The oracle: one batch after the other, on arrays of the processor.
class SerialDistMult {
 public:
  SerialDistMult(const EmbeddingSpec& nodes, const EmbeddingSpec& relations, const DistMultTask& task)
      : specs_{nodes, relations}, task_(task) {
    for (size_t t = 0; t < 2; ++t) {
      RowBlock& table = tables_[t];
      table.ids.resize(specs_[t].row_count);
      for (RowId row = 0; row < table.ids.size(); ++row) table.ids[row] = row;
      table.Resize(specs_[t]);
      for (const RowId row : table.ids) {
        InitRow(specs_[t], row, {&table.values[row * specs_[t].dim], specs_[t].dim});
      }
      std::fill(table.timestamps.begin(), table.timestamps.end(), kNeverWritten);
    }
  }

  void Train(std::span<const uint64_t> batches) {
    for (const uint64_t batch : batches) Step(batch);
  }

  // Whether the table, of this number, has these rows bit by bit.
  bool Has(size_t t, const RowBlock& all) const {
    const auto same = [](const auto& x, const auto& y) {
      return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(x[0])) == 0;
    };
    return same(tables_[t].values, all.values) && same(tables_[t].state, all.state) &&
           same(tables_[t].timestamps, all.timestamps);
  }

 private:
  void Step(uint64_t batch) {
    RowBlock blocks[2];
    DistMultEdges edges;
    task_.Draw(batch, blocks, edges);
    std::vector<float> floats[2];
    DeviceRowBlock rows[2];
    for (size_t t = 0; t < 2; ++t) {
      const size_t dim = specs_[t].dim, stride = DeviceRowStride(specs_[t]);
      floats[t].resize(blocks[t].ids.size() * stride);
      for (size_t i = 0; i < blocks[t].ids.size(); ++i) {
        const RowId row = blocks[t].ids[i];
        std::copy_n(&tables_[t].values[row * dim], dim, &floats[t][i * stride]);
        std::copy_n(&tables_[t].state[row * dim], dim, &floats[t][i * stride + dim]);
      }
      rows[t] = {.ids = blocks[t].ids.data(), .rows = floats[t].data(), .count = blocks[t].ids.size()};
    }
    task_.ComputeHere(edges, rows);
    for (size_t t = 0; t < 2; ++t) {
      const size_t dim = specs_[t].dim, stride = DeviceRowStride(specs_[t]);
      for (size_t i = 0; i < blocks[t].ids.size(); ++i) {
        const RowId row = blocks[t].ids[i];
        RoundToStored(specs_[t].element_type, {&floats[t][i * stride], dim});
        std::copy_n(&floats[t][i * stride], dim, &tables_[t].values[row * dim]);
        std::copy_n(&floats[t][i * stride + dim], dim, &tables_[t].state[row * dim]);
        tables_[t].timestamps[row] = next_timestamp_;
      }
    }
    ++next_timestamp_;
  }

  const EmbeddingSpec specs_[2];
  const DistMultTask& task_;
  RowBlock tables_[2];
  int64_t next_timestamp_ = 0;
};

}  // namespace quarry::testing_util
