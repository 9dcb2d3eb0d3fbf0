#include "graph_memory.h"

#include <algorithm>
#include <utility>

#include "layer_bytes.h"
#include "tiles.h"

namespace quarry {
namespace {

Status ForwardGraphLayer(GraphLayer layer, std::span<const uint64_t> indptr, std::span<const NodeId> indices,
                         std::span<const uint32_t> kinds, std::vector<float>& rows) {
  const GraphForm form = layer.form();
  const uint64_t nodes = indptr.size() - 1, tile = std::min<uint64_t>(TileRows(form.state), nodes);
  std::vector<float> made(form.raw ? 0 : nodes * form.message), states(tile * form.state);
  std::vector<float> outputs(nodes * layer.out());
  std::vector<uint64_t> sizes(tile);
  QUARRY_TRY(const std::span<const float> messages, layer.Messages(rows, made));
  for (uint64_t begin = 0; begin < nodes; begin += tile) {
    const uint64_t count = std::min(tile, nodes - begin);
    const std::span of_tile = std::span(states).first(count * form.state);
    for (uint64_t i = 0; i < count; i++) sizes[i] = indptr[begin + i + 1] - indptr[begin + i];
    layer.StartStates(of_tile);
    QUARRY_RETURN_IF_ERROR(
        layer.AddOwn(std::span<const float>(rows).subspan(begin * layer.in(), count * layer.in()),
                     messages.subspan(begin * form.message, count * form.message),
                     std::span(sizes).first(count), of_tile));
    layer.ForNodes(count, [&](uint64_t first, uint64_t end) {
      for (uint64_t i = first; i < end; i++) {
        if (sizes[i] == 0) continue;
        const uint64_t from = indptr[begin + i];
        layer.AddList({.sources = indices.subspan(from, sizes[i]),
                       .kinds = kinds.empty() ? kinds : kinds.subspan(from, sizes[i]),
                       .size = sizes[i]},
                      messages.data(), of_tile.data() + i * form.state);
      }
    });
    QUARRY_RETURN_IF_ERROR(
        layer.Finish(of_tile, std::span(outputs).subspan(begin * layer.out(), count * layer.out())));
  }
  rows = std::move(outputs);
  return Status::Ok();
}

}  // namespace

Status ForwardGraph(GnnLayers& layers, std::span<const uint64_t> indptr, std::span<const NodeId> indices,
                    std::vector<float>& rows, std::span<const uint32_t> kinds) {
  QUARRY_RETURN_IF_ERROR(layers.CheckGraph());
  for (uint32_t l = 0; l < layers.layer_count(); l++) {
    QUARRY_RETURN_IF_ERROR(
        ForwardGraphLayer(layers.ForGraph(l, GraphOrder::kProductLast), indptr, indices, kinds, rows));
  }
  return Status::Ok();
}

uint64_t ForwardGraphBytes(const ModelSpec& spec, std::span<const uint32_t> widths, uint64_t nodes) {
  uint64_t most = 0;
  for (size_t l = 0; l + 1 < widths.size(); l++) {
    const LayerBounds layer{.in = widths[l], .out = widths[l + 1], .last = l + 2 == widths.size()};
    const GraphForm form = GraphFormOf(spec, layer, GraphOrder::kProductLast);
    const uint64_t floats = uint64_t{layer.in} + layer.out + (form.raw ? 0 : form.message);
    const uint64_t tile = std::min<uint64_t>(TileRows(form.state), nodes);
    // GIN has a tile in the middle.
    most = std::max(most, nodes * floats * sizeof(float) +
                              tile * (form.state * sizeof(float) + sizeof(uint64_t)) +
                              GrownBytes(tile * layer.out));
  }
  return most;
}

}  // namespace quarry
