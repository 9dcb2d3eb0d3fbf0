// A whole graph through layers, all of it in memory: what it is through them from disk (quarry/trainer/infer_layers.h) and
// by parts (parted_encoder.h), where there is room.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gnn_layers.h"
#include "quarry/base/status.h"
#include "quarry/format/types.h"

namespace quarry {

// Carries the rows of all nodes ([nodes, first width]) through the layers, from all neighbors and without dropout: they
// become [nodes, last width]. Holds both, messages where they are not the rows themselves, and a tile of states. The same
// bits for any number of threads where products are split. `kinds`: by edge, where layers tell them apart. Errors of
// CheckGraph.
Status ForwardGraph(GnnLayers& layers, std::span<const uint64_t> indptr, std::span<const NodeId> indices,
                    std::vector<float>& rows, std::span<const uint32_t> kinds = {});

// The most that ForwardGraph holds, the rows that it is given among it.
uint64_t ForwardGraphBytes(const ModelSpec& spec, std::span<const uint32_t> widths, uint64_t nodes);

}  // namespace quarry
