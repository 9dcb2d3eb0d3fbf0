// Edges for link prediction, given by numbers. Private to this room.
#pragma once

#include <memory>

#include "npy_reader.h"
#include "quarry/base/status.h"
#include "quarry/import/dataset.h"

namespace quarry {

// A database has a name for each.
inline constexpr uint64_t kRelationCountMax = 1 << 20;

// Ids are below these; a reader refuses others.
struct LinkBounds {
  uint64_t node_count = 0;
  uint64_t relation_count = 0;
};

// [E, 3]: head, relation, tail.
Result<std::unique_ptr<TripleReader>> MakeTripleReader(const NpyArray& triples, const LinkBounds& bounds);
// `relations`: as many as there are edges; null when every edge is of relation 0.
std::unique_ptr<TripleReader> MakeTripleReader(std::unique_ptr<EdgeReader> edges,
                                               std::unique_ptr<IntReader> relations,
                                               const LinkBounds& bounds);

}  // namespace quarry
