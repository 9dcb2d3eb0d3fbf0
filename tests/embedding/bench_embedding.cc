// What a batch of link prediction (1,000 edges, 3,000 rows of 50 floats and their Adagrad state) costs: in
// the table, in the validation cache, in the optimizer, beside a plain copy of as many bytes.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <numeric>

#include "quarry/base/process.h"
#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/embedding/embedding_table.h"
#include "quarry/embedding/oac.h"
#include "quarry/embedding/optimizer.h"
#include "quarry/pipeline/embedding_pipeline.h"

namespace quarry {
namespace {

constexpr size_t kBatchRows = 3000;
constexpr size_t kBatches = 200;

std::vector<RowBlock> RandomBlocks(const EmbeddingSpec& spec) {
  std::vector<RowBlock> blocks(kBatches);
  Rng rng(1);
  for (RowBlock& block : blocks) {
    block.ids.resize(kBatchRows + kBatchRows / 4);
    for (RowId& id : block.ids) id = rng.Below(spec.row_count);
    std::sort(block.ids.begin(), block.ids.end());
    block.ids.erase(std::unique(block.ids.begin(), block.ids.end()), block.ids.end());
    block.ids.resize(std::min(block.ids.size(), kBatchRows));
    block.Resize(spec);
    std::fill(block.timestamps.begin(), block.timestamps.end(), kNeverWritten);
  }
  return blocks;
}

void Report(const char* what, const std::function<void(size_t batch)>& function) {
  double best = 1e30;
  for (int repeat = 0; repeat < 3; ++repeat) {
    const double start = MonotonicSeconds();
    for (size_t i = 0; i < kBatches; ++i) function(i);
    best = std::min(best, MonotonicSeconds() - start);
  }
  const double seconds = best / kBatches;
  fmt::print("  {:<34} {:7.3f} ms a batch, {:6.1f} M rows/s\n", what, seconds * 1e3,
             kBatchRows / seconds * 1e-6);
}

void Measure(EmbeddingSpec spec) {
  fmt::print("{} rows of {} {}s\n", spec.row_count, spec.dim, ElementTypeName(spec.element_type));
  const auto table = MakeMemoryEmbeddingTable(spec);
  std::vector<RowBlock> blocks = RandomBlocks(spec);
  RowBlock copy = blocks[0];
  Report("copy of the block", [&](size_t i) { copy = blocks[i]; });
  Report("Read", [&](size_t i) { (void)table->Read(blocks[i]).ok(); });
  int64_t now = 0;
  Report("Write", [&](size_t i) {
    std::fill(blocks[i].timestamps.begin(), blocks[i].timestamps.end(), now++);
    (void)table->Write(blocks[i]).ok();
  });
  const std::vector<float> gradient(spec.dim, 0.01F);
  Report("optimizer", [&](size_t i) {
    for (size_t row = 0; row < blocks[i].ids.size(); ++row) {
      OptimizerStep(spec.optimizer, {}, gradient, {&blocks[i].values[row * spec.dim], spec.dim},
                    {&blocks[i].state[row * spec.state_dim()], spec.state_dim()});
    }
  });
  const auto cache = MakeValidationCache(spec);
  Report("Validate and Insert, 8 in flight", [&](size_t i) {
    std::fill(blocks[i].timestamps.begin(), blocks[i].timestamps.end(), now - 8);
    cache->Validate({.mfct = now - 8, .safe_to_evict = now - 16}, blocks[i]);
    std::fill(blocks[i].timestamps.begin(), blocks[i].timestamps.end(), now++);
    cache->Insert(blocks[i]);
  });
}

// Batches whose computation is the optimizer alone, with 200 relations beside the nodes: what the pipeline
// costs.
class OptimizerOnly final : public EmbeddingTask {
 public:
  explicit OptimizerOnly(const EmbeddingSpec& spec) : spec_(spec), blocks_(RandomBlocks(spec)) {}
  Status Prepare(EmbeddingItem& item) override {
    item.blocks[0].ids = blocks_[item.batch % kBatches].ids;
    item.blocks[1].ids.resize(200);
    std::iota(item.blocks[1].ids.begin(), item.blocks[1].ids.end(), RowId{0});
    return Status();
  }
  Status Compute(EmbeddingItem& item) override {
    const std::vector<float> gradient(spec_.dim, 0.01F);
    for (RowBlock& block : item.blocks) {
      for (size_t row = 0; row < block.ids.size(); ++row) {
        OptimizerStep(spec_.optimizer, {}, gradient, {&block.values[row * spec_.dim], spec_.dim},
                      {&block.state[row * spec_.state_dim()], spec_.state_dim()});
      }
    }
    return Status();
  }

 private:
  const EmbeddingSpec spec_;
  const std::vector<RowBlock> blocks_;
};

void MeasurePipeline(const EmbeddingSpec& spec, AsyncMode mode, const char* name) {
  constexpr uint64_t kRun = 2000;
  EmbeddingSpec relations = spec;
  relations.row_count = 237;
  const auto nodes = MakeMemoryEmbeddingTable(spec), edges = MakeMemoryEmbeddingTable(relations);
  OptimizerOnly task(spec);
  EmbeddingTable* const tables[] = {nodes.get(), edges.get()};
  const auto pipeline = EmbeddingPipeline::Make(tables, task, {.mode = mode, .ordered = true});
  const double start = MonotonicSeconds();
  (void)pipeline->Run(0, kRun).ok();
  const double seconds = MonotonicSeconds() - start;
  const EmbeddingPipelineStats stats = pipeline->stats();
  fmt::print("  pipeline, {:<6} {:7.0f} batches/s, {:4.1f} % of rows replaced, busy ms a batch:", name,
             kRun / seconds,
             100.0 * static_cast<double>(stats.rows_replaced) / static_cast<double>(stats.rows_computed));
  for (const EmbeddingStageStats& stage : stats.stages)
    fmt::print(" {:.3f}", stage.busy_seconds / kRun * 1e3);
  fmt::print(", cache at most {} rows in {}\n", stats.cache_rows_peak, FormatBytes(stats.cache_bytes_peak));
}

void MeasurePipelines(const EmbeddingSpec& spec) {
  MeasurePipeline(spec, AsyncMode::kSync, "sync");
  MeasurePipeline(spec, AsyncMode::kAsync, "async");
  MeasurePipeline(spec, AsyncMode::kOac, "oac");
}

}  // namespace
}  // namespace quarry

int main() {
  quarry::Measure({.row_count = 14'541, .dim = 50});
  quarry::MeasurePipelines({.row_count = 14'541, .dim = 50});
  quarry::Measure({.row_count = 4'000'000, .dim = 50});
  quarry::MeasurePipelines({.row_count = 4'000'000, .dim = 50});
  quarry::Measure({.row_count = 4'000'000, .dim = 50, .element_type = quarry::ElementType::kBfloat16});
}
