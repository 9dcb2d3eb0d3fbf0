#include "input_layer.h"

#include <algorithm>
#include <cstring>

#include "quarry/base/random.h"
#include "resize_void.h"
#include "tiles.h"

namespace quarry {
namespace {

// Rows of a tile, of what is multiplied and of products.
uint32_t InputTileRows(uint32_t dim, uint32_t width) { return TileRows(std::max({dim, width, 1U})); }

}  // namespace

InputLayer::InputLayer(LayerWork& work, const ModelInputs& inputs, uint32_t width, Rng& rng)
    : work_(work), width_(width), nodes_(inputs.nodes) {
  types_.reserve(inputs.types.size());
  for (const InputType& input : inputs.types) {
    Type type{.input = input,
              .weight = Parameter({int64_t{input.dim}, int64_t{width}}),
              .bias = Parameter({int64_t{width}})};
    if (input.dim > 0) {
      DrawGlorot(rng, uint64_t{input.dim} + width, Span(type.weight.value));
    } else {
      DrawGlorot(rng, uint64_t{1} + width, Span(type.bias.value));
    }
    types_.push_back(std::move(type));
  }
}

std::vector<Parameter*> InputLayer::Parameters() {
  std::vector<Parameter*> parameters;
  for (Type& type : types_) {
    if (type.input.dim > 0) parameters.push_back(&type.weight);
    parameters.push_back(&type.bias);
  }
  return parameters;
}

std::vector<std::string> InputLayer::ParameterNames() const {
  std::vector<std::string> names;
  for (const Type& type : types_) {
    const std::string prefix = type.input.name.empty() ? "inputs" : "inputs." + type.input.name;
    if (type.input.dim > 0) names.push_back(prefix + ".weight");
    names.push_back(prefix + ".bias");
  }
  return names;
}

Status InputLayer::CheckBatch(const BatchView& batch) const {
  const bool by_type = types_.size() > 1 || !batch.type_rows.empty();
  if (by_type && batch.type_rows.size() != types_.size()) {
    return MakeStatus(Code::kInternal, "a batch has rows of {} types of nodes for a model of {}",
                      batch.type_rows.size(), types_.size());
  }
  for (size_t t = 0; t < types_.size(); t++) {
    const uint32_t dim = RowsOf(batch, t).dim;
    if (dim == types_[t].input.dim) continue;
    return MakeStatus(Code::kInternal, "a batch has features of width {} for a model of width {}", dim,
                      types_[t].input.dim);
  }
  return Status::Ok();
}

Status InputLayer::Resize(const BatchView& batch) {
  const auto nodes = static_cast<uint32_t>(batch.nodes.size());
  for (Type& type : types_) type.end = 0;
  const uint64_t known = nodes_.ranges().empty() ? UINT64_MAX : nodes_.ranges().back().end;
  for (const NodeId node : batch.nodes) {
    if (node >= known) {
      return MakeStatus(Code::kInvalidArgument,
                        "a batch has node {}, which came after the model was told of {} nodes: start again",
                        node, known);
    }
    types_[TypeOf(node)].end++;
  }
  uint32_t begin = 0;
  uint64_t tile_floats = 0, product_floats = 0;
  for (Type& type : types_) {
    const uint32_t count = type.end;
    const uint64_t rows = std::min(count, InputTileRows(type.input.dim, width_));
    tile_floats = std::max(tile_floats, rows * type.input.dim);
    product_floats = std::max(product_floats, rows * width_);
    type.begin = type.end = begin;
    begin += count;
  }
  ResizeVoid(order_, nodes);
  ResizeVoid(slots_, nodes);
  const std::span<const uint32_t> slots = batch.features.slots;
  for (uint32_t i = 0; i < nodes; i++) {
    Type& type = types_[TypeOf(batch.nodes[i])];
    order_[type.end] = i;
    slots_[type.end] = slots.empty() ? i : slots[i];
    type.end++;
  }
  QUARRY_RETURN_IF_ERROR(tile_.Resize(1, tile_floats));
  QUARRY_RETURN_IF_ERROR(products_.Resize(1, product_floats));
  return output_.Resize(nodes, width_);
}

// Row i is that of the type's node i in order_.
FeatureView InputLayer::RowsOf(const BatchView& batch, size_t type) const {
  FeatureView rows = batch.features;
  if (!batch.type_rows.empty()) {
    rows.element_type = batch.type_rows[type].element_type;
    rows.dim = batch.type_rows[type].dim;
  }
  rows.slots =
      std::span<const uint32_t>(slots_).subspan(types_[type].begin, types_[type].end - types_[type].begin);
  return rows;
}

torch::Tensor InputLayer::Products(uint32_t rows) {
  return torch::from_blob(products_.row(0), {int64_t{rows}, int64_t{width_}});
}

template <typename Work>
void InputLayer::ForEachTile(const BatchView& batch, size_t type, RowNorm norm, const DropoutMask& mask,
                             const Work& work) {
  const FeatureView rows = RowsOf(batch, type);
  const uint32_t dim = types_[type].input.dim;
  // Rows of different types that stand at the same place are dropped by masks of their own.
  const DropoutMask own{mask.probability, MixSeed(mask.seed, type)};
  const auto count = static_cast<uint32_t>(rows.slots.size());
  const uint32_t tile_rows = InputTileRows(dim, width_);
  for (uint32_t begin = 0; begin < count; begin += tile_rows) {
    const uint32_t end = std::min(count, begin + tile_rows);
    torch::Tensor tile;
    if (dim > 0) {
      float* const values = tile_.row(0);
      work_.ForRows(begin, end, [&](uint32_t first, uint32_t last) {
        float* const out = values + uint64_t{first - begin} * dim;
        DecodeRows(rows, norm, first, last, out);
        DropRows(dim, own, first, last, out);
      });
      tile = torch::from_blob(values, {int64_t{end - begin}, int64_t{dim}});
    }
    work(begin, end, tile);
  }
}

void InputLayer::Forward(const BatchView& batch, RowNorm norm, const DropoutMask& mask) {
  for (size_t t = 0; t < types_.size(); t++) {
    const Type& type = types_[t];
    const float* const bias = type.bias.value.data_ptr<float>();
    ForEachTile(batch, t, norm, mask, [&](uint32_t begin, uint32_t end, const torch::Tensor& tile) {
      const bool has_rows = type.input.dim > 0;
      const float* const products = products_.row(0);
      if (has_rows) {
        work_.Multiply(tile, type.weight.value, Products(end - begin), LayerWork::kProductRows);
      }
      work_.ForRows(begin, end, [&](uint32_t first, uint32_t last) {
        for (uint32_t i = first; i < last; i++) {
          float* const out = output_.row(order_[type.begin + i]);
          const float* const product = products + uint64_t{i - begin} * width_;
          for (uint32_t c = 0; c < width_; c++) out[c] = has_rows ? product[c] + bias[c] : bias[c];
        }
      });
    });
  }
}

void InputLayer::Backward(const BatchView& batch, RowNorm norm, const DropoutMask& mask) {
  for (size_t t = 0; t < types_.size(); t++) {
    Type& type = types_[t];
    type.weight.gradient.zero_();
    type.bias.gradient.zero_();
    ForEachTile(batch, t, norm, mask, [&](uint32_t begin, uint32_t end, const torch::Tensor& tile) {
      float* const gathered = products_.row(0);
      work_.ForRows(begin, end, [&](uint32_t first, uint32_t last) {
        for (uint32_t i = first; i < last; i++) {
          std::memcpy(gathered + uint64_t{i - begin} * width_, output_.row(order_[type.begin + i]),
                      width_ * sizeof(float));
        }
      });
      const torch::Tensor gradient = Products(end - begin);
      if (type.input.dim > 0) {
        work_.MultiplyAdd(tile.t(), gradient, type.weight.gradient, LayerWork::kWeightRows);
      }
      type.bias.gradient.add_(gradient.sum(0));
    });
  }
}

uint64_t InputLayer::activation_bytes() const {
  return output_.mapped_bytes() + tile_.mapped_bytes() + products_.mapped_bytes() +
         (order_.capacity() + slots_.capacity()) * sizeof(uint32_t);
}

}  // namespace quarry
