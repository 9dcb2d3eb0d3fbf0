// Blocks of rows for tests.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "quarry/base/random.h"
#include "quarry/embedding/embedding_table.h"

namespace quarry {

// At most `count` ids of `row_count`, in their order, each once.
inline std::vector<RowId> RandomIds(Rng& rng, uint64_t row_count, uint64_t count) {
  std::vector<RowId> ids(count);
  for (RowId& id : ids) id = rng.Below(row_count);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

// All values and all state are `value`.
inline RowBlock FilledBlock(const EmbeddingSpec& spec, std::vector<RowId> ids, int64_t timestamp,
                            float value) {
  RowBlock block{.ids = std::move(ids)};
  block.Resize(spec);
  std::fill(block.values.begin(), block.values.end(), value);
  std::fill(block.state.begin(), block.state.end(), value);
  std::fill(block.timestamps.begin(), block.timestamps.end(), timestamp);
  return block;
}

inline std::vector<float> RowValues(const RowBlock& block, const EmbeddingSpec& spec, size_t i) {
  const auto begin = block.values.begin() + static_cast<ptrdiff_t>(i * spec.dim);
  return {begin, begin + spec.dim};
}

// Whether all values and all state of row i are `value`.
inline bool RowIsFilled(const RowBlock& block, const EmbeddingSpec& spec, size_t i, float value) {
  const auto filled = [&](const std::vector<float>& all, size_t width) {
    const auto begin = all.begin() + static_cast<ptrdiff_t>(i * width);
    return std::all_of(begin, begin + static_cast<ptrdiff_t>(width), [&](float x) { return x == value; });
  };
  return filled(block.values, spec.dim) && filled(block.state, spec.state_dim());
}

}  // namespace quarry
