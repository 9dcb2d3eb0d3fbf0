#include "quarry/trainer/batch_seconds.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "node_model.h"
#include "quarry/base/process.h"
#include "quarry/base/processor_time.h"
#include "quarry/base/trace.h"
#include "quarry/base/units.h"

namespace quarry {
namespace {

// The fastest of `rounds`, by `clock`.
struct Fastest {
  double train = std::numeric_limits<double>::infinity();
  double evaluate = std::numeric_limits<double>::infinity();
};

Result<Fastest> Measure(NodeModel& model, const BatchView& view, std::span<const float> targets,
                        unsigned rounds, double (*clock)()) {
  Fastest fastest;
  for (unsigned round = 0; round < rounds; ++round) {
    double start = clock();
    QUARRY_RETURN_IF_ERROR(model.TrainStep(view, round, targets).status());
    fastest.train = std::min(fastest.train, clock() - start);
    start = clock();
    QUARRY_RETURN_IF_ERROR(model.Predict(view).status());
    fastest.evaluate = std::min(fastest.evaluate, clock() - start);
  }
  return fastest;
}

// No faster than all threads together could be, and no slower than one.
ModelSeconds Within(double wall, double processor, unsigned threads) {
  return {.wall = std::clamp(wall, processor / threads, processor), .processor = processor};
}

}  // namespace

Result<BatchSeconds> MeasureBatchSeconds(const TrainOptions& options, uint32_t feature_dim,
                                         ElementType element_type, uint32_t class_count,
                                         const BatchView& batch, unsigned rounds) {
  constexpr uint64_t kRowsBytes = 16 * kMiB;  // more than processors cache, as rows in earnest are
  const ScopedSpan span("measure a step");
  // In a graph with types, rows of each are as long as the model was told, and in the same elements.
  const bool typed = !batch.relations.empty();
  std::vector<TypeRows> type_rows;
  uint64_t stride = RowStride(element_type, feature_dim);
  for (size_t type = 0; typed && type < options.inputs.types.size(); ++type) {
    type_rows.push_back({element_type, options.inputs.types[type].dim});
    stride = std::max(stride, RowStride(element_type, type_rows.back().dim));
  }
  const uint64_t rows = std::clamp<uint64_t>(kRowsBytes / stride, 1, std::max<size_t>(1, batch.nodes.size()));
  const std::vector<std::byte> features(rows * stride);
  std::vector<uint32_t> slots(batch.nodes.size());
  for (size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<uint32_t>(batch.nodes[i] % rows);
  const std::vector<int64_t> labels(batch.seed_count, 0);
  const std::vector<float> targets(
      options.task == NodeTask::kClasses ? 0 : uint64_t{batch.seed_count} * class_count);
  BatchView view = batch;
  view.labels = labels;
  view.features = {.rows = features,
                   .stride_bytes = stride,
                   .element_type = element_type,
                   .dim = feature_dim,
                   .slots = slots};
  view.type_rows = type_rows;
  TrainOptions alone = options;
  alone.torch_threads = 1;
  const auto measure = [&](const TrainOptions& with, double (*clock)()) -> Result<Fastest> {
    QUARRY_TRY(const std::unique_ptr<NodeModel> model, NodeModel::Make(with, feature_dim, class_count));
    return Measure(*model, view, targets, rounds, clock);
  };
  QUARRY_TRY(const Fastest one, measure(alone, ThreadProcessorSeconds));
  Fastest all = one;
  if (options.torch_threads > 1) {
    QUARRY_TRY(all, measure(options, MonotonicSeconds));
  }
  const unsigned threads = std::max(1U, options.torch_threads);
  return BatchSeconds{.train = Within(all.train, one.train, threads),
                      .evaluate = Within(all.evaluate, one.evaluate, threads)};
}

}  // namespace quarry
