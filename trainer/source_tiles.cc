#include "source_tiles.h"

#include <cstring>

namespace quarry {
namespace {

void StoreSources(LayerWork& work, const LayerInput& input, uint32_t width, uint32_t begin, uint32_t end,
                  float* gradients, const SourceGradients& sources) {
  work.ForRows(begin, end, [&](uint32_t first, uint32_t last) {
    float* const rows = gradients + uint64_t{first - begin} * width;
    if (!input.first) {
      float* const outputs = sources.rows + uint64_t{first} * width;
      BackwardElu(width, sources.mask, first, last, outputs, rows);
      std::memcpy(outputs, rows, uint64_t{last - first} * width * sizeof(float));
      return;
    }
    for (uint32_t u = first; u < last; u++) {
      std::memcpy(sources.rows + uint64_t{sources.slots[u]} * width, rows + uint64_t{u - first} * width,
                  width * sizeof(float));
    }
  });
}

}  // namespace

void BackwardSourceTiles(LayerWork& work, const LayerInput& input, uint32_t width, Matrix& tile, Matrix& z,
                         Parameter& weight, const SourceGradients* sources) {
  weight.gradient.zero_();
  const torch::Tensor transposed_weight = weight.value.t();
  ForEachSourceTile(work, input, width, tile, [&](uint32_t begin, uint32_t end, const torch::Tensor& rows) {
    const torch::Tensor z_gradient = z.Rows(begin, end);
    work.MultiplyAdd(rows.t(), z_gradient, weight.gradient, LayerWork::kWeightRows);
    if (sources == nullptr) return;
    work.Multiply(z_gradient, transposed_weight, rows, LayerWork::kProductRows);
    StoreSources(work, input, width, begin, end, rows.data_ptr<float>(), *sources);
  });
}

void SumRowsInOrder(Matrix& pieces, std::span<float> sum) {
  std::ranges::fill(sum, 0.0F);
  for (uint64_t piece = 0; piece < pieces.rows(); piece++) {
    const float* const row = pieces.row(piece);
    for (size_t i = 0; i < sum.size(); i++) sum[i] += row[i];
  }
}

}  // namespace quarry
