#include "fixed_rows.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>

#include "link_memory.h"
#include "quarry/trainer/link_features.h"

namespace quarry {

FixedRows::FixedRows(const EmbeddingSpec& spec, std::span<const float> rows)
    : spec_(spec), rows_(rows), timestamps_(spec.row_count) {
  assert(spec.state_dim() == 0 && spec.element_type == ElementType::kFloat32);
  assert(rows.size() == spec.row_count * spec.dim);
  for (std::atomic<int64_t>& timestamp : timestamps_) timestamp = kNeverWritten;
}

Status FixedRows::CheckIds(std::span<const RowId> ids) const {
  if (ids.empty() || ids.back() < spec_.row_count) return Status::Ok();
  return MakeStatus(Code::kInvalidArgument, "row {} is beyond the {} rows of features", ids.back(),
                    spec_.row_count);
}

Status FixedRows::Read(RowBlock& block) {
  QUARRY_RETURN_IF_ERROR(CheckIds(block.ids));
  block.Resize(spec_);
  for (size_t i = 0; i < block.ids.size(); i++) {
    const auto row = rows_.subspan(block.ids[i] * spec_.dim, spec_.dim);
    std::ranges::copy(row, block.values.begin() + static_cast<ptrdiff_t>(i * spec_.dim));
    block.timestamps[i] = timestamps_[block.ids[i]].load(std::memory_order_relaxed);
  }
  return Status::Ok();
}

Status FixedRows::Write(const RowBlock& block) {
  QUARRY_RETURN_IF_ERROR(CheckIds(block.ids));
  for (size_t i = 0; i < block.ids.size(); i++) {
    std::atomic<int64_t>& newest = timestamps_[block.ids[i]];
    int64_t there = newest.load(std::memory_order_relaxed);
    while (there < block.timestamps[i] &&
           !newest.compare_exchange_weak(there, block.timestamps[i], std::memory_order_relaxed)) {
    }
  }
  return Status::Ok();
}

Status CheckFeatures(const LinkData& data, const LinkTrainOptions& options) {
  if (data.features.size() == data.node_count * options.feature_dim) return Status::Ok();
  return MakeStatus(Code::kInvalidArgument, "{} nodes have {} numbers as features, and not {} each",
                    data.node_count, data.features.size(), options.feature_dim);
}

Status LoadFeatures(const LinkFeatures& source, const LinkTrainOptions& options, MemoryBudget& budget,
                    LinkData& data) {
  QUARRY_TRY(data.features_reserved,
             budget.Reserve(LinkFeatureBytes(options, data.node_count), "the features of nodes"));
  const uint64_t dim = options.feature_dim;
  data.features.resize(data.node_count * dim);
  std::vector<NodeId> nodes;
  for (uint64_t first = 0; first < data.node_count; first += kReadRows) {
    nodes.resize(std::min(kReadRows, data.node_count - first));
    std::iota(nodes.begin(), nodes.end(), static_cast<NodeId>(first));
    const auto rows = std::span(data.features).subspan(first * dim, nodes.size() * dim);
    QUARRY_RETURN_IF_ERROR(source.read(nodes, rows));
    const auto bad = std::ranges::find_if_not(rows, [](float value) { return std::isfinite(value); });
    if (bad == rows.end()) continue;
    const auto at = static_cast<uint64_t>(bad - rows.begin());
    return MakeStatus(Code::kInvalidArgument,
                      "table \"{}\", row {}, column {} is {}, and an encoder takes finite numbers alone",
                      source.table, first + at / dim, at % dim, *bad);
  }
  return Status::Ok();
}

}  // namespace quarry
