#include "graph_layer.h"

#include <algorithm>
#include <utility>

#include "gnn_layers.h"
#include "layer.h"

namespace quarry {
namespace {

// A view of rows of so many columns.
torch::Tensor RowsOf(std::span<const float> values, uint32_t columns) {
  return torch::from_blob(const_cast<float*>(values.data()),
                          {static_cast<int64_t>(values.size() / columns), int64_t{columns}});
}

}  // namespace

GraphLayer::GraphLayer(Layer& layer, LayerWork& work, GraphOrder order, Activation activate)
    : layer_(layer), work_(work), form_(layer.StartGraph(order)), activate_(std::move(activate)) {}

uint32_t GraphLayer::in() const { return layer_.in(); }
uint32_t GraphLayer::out() const { return layer_.out(); }

void GraphLayer::StartStates(std::span<float> states) const { layer_.StartStates(states); }

Result<std::span<const float>> GraphLayer::Messages(std::span<const float> rows, std::span<float> buffer) {
  if (form_.raw || rows.empty()) return rows;
  const std::span<float> messages = buffer.first(rows.size() / in() * form_.message);
  QUARRY_RETURN_IF_ERROR(GuardTorch([&] {
    layer_.MakeMessages(RowsOf(rows, in()), RowsOf(messages, form_.message));
    return Status::Ok();
  }));
  return std::span<const float>(messages);
}

Status GraphLayer::AddOwn(std::span<const float> rows, std::span<const float> messages,
                          std::span<const uint64_t> list_sizes, std::span<float> states) {
  if (rows.empty()) return Status::Ok();
  return GuardTorch([&] {
    layer_.AddOwn(RowsOf(rows, in()), RowsOf(messages, form_.message), list_sizes,
                  RowsOf(states, form_.state));
    return Status::Ok();
  });
}

void GraphLayer::AddList(const GraphList& list, const float* messages, float* state) const {
  layer_.AddList(list, messages, state);
}

Status GraphLayer::Finish(std::span<float> states, std::span<float> outputs) {
  if (outputs.empty()) return Status::Ok();
  return GuardTorch([&]() -> Status {
    QUARRY_RETURN_IF_ERROR(layer_.FinishStates(RowsOf(states, form_.state), RowsOf(outputs, out())));
    activate_(outputs);
    return Status::Ok();
  });
}

void GraphLayer::ForNodes(uint64_t count, const std::function<void(uint64_t begin, uint64_t end)>& work) {
  if (count > 0) work_.ForRows(0, static_cast<uint32_t>(count), work);
}

void GraphLayer::ForEach(uint64_t count, const std::function<void(uint64_t i)>& work) {
  work_.ForPieces(0, static_cast<uint32_t>(count), 1,
                  [&](uint32_t piece, uint32_t /*first*/, uint32_t /*end*/) { work(piece); });
}

}  // namespace quarry
