#include "quarry/trainer/batch_seconds.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "quarry/base/process.h"
#include "quarry/base/trace.h"
#include "quarry/base/units.h"
#include "sage_model.h"

namespace quarry {

Result<BatchSeconds> MeasureBatchSeconds(const TrainOptions& options, uint32_t feature_dim,
                                         ElementType element_type, uint32_t class_count,
                                         const BatchView& batch, unsigned rounds) {
  constexpr uint64_t kRowsBytes = 16 * kMiB;  // more than processors cache, as rows in earnest are
  const ScopedSpan span("measure a step");
  const uint64_t stride = RowStride(element_type, feature_dim);
  const uint64_t rows = std::clamp<uint64_t>(kRowsBytes / stride, 1, std::max<size_t>(1, batch.nodes.size()));
  const std::vector<std::byte> features(rows * stride);
  std::vector<uint32_t> slots(batch.nodes.size());
  for (size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<uint32_t>(batch.nodes[i] % rows);
  const std::vector<int64_t> labels(batch.seed_count, 0);
  BatchView view = batch;
  view.labels = labels;
  view.features = {.rows = features,
                   .stride_bytes = stride,
                   .element_type = element_type,
                   .dim = feature_dim,
                   .slots = slots};
  QUARRY_TRY(const std::unique_ptr<SageModel> model, SageModel::Make(options, feature_dim, class_count));
  BatchSeconds seconds{.train = std::numeric_limits<double>::infinity(),
                       .evaluate = std::numeric_limits<double>::infinity()};
  for (unsigned round = 0; round < rounds; ++round) {
    double start = MonotonicSeconds();
    QUARRY_RETURN_IF_ERROR(model->TrainStep(view, round).status());
    seconds.train = std::min(seconds.train, MonotonicSeconds() - start);
    start = MonotonicSeconds();
    QUARRY_RETURN_IF_ERROR(model->Predict(view).status());
    seconds.evaluate = std::min(seconds.evaluate, MonotonicSeconds() - start);
  }
  return seconds;
}

}  // namespace quarry
