// Where adjacency lists lie while a layout's batches are sampled: in memory where the budget has room for all of them,
// else on disk, behind a neighbor cache where that saves more reads than the scan that fills it.
#pragma once

#include <cstdint>

#include "quarry/format/manifest.h"
#include "quarry/layout/layout.h"

namespace quarry {

// What one batch of a trace takes that is sampled from disk, measured on one or estimated.
struct SampledBatch {
  uint64_t read_bytes = 0;     // of the indices
  uint64_t working_bytes = 0;  // that a thread holds: scratch, block, and its encoded form
};

struct TopologyPlace {
  bool in_memory = false;
  uint64_t cache_bytes = 0;  // of neighbor caches, in all
  friend bool operator==(const TopologyPlace&, const TopologyPlace&) = default;
};

// Neighbor caches before lists on disk.
struct ListsOnDisk {
  uint64_t indices_bytes = 0;
  uint64_t address_bytes = 0;  // of the caches: those of no more bytes hold no list, and are not filled
};
ListsOnDisk ListsOnDiskOf(const TopologyRecord& record, Direction direction);

// Whether sampling so many batches, each of which reads so many bytes of the lists, makes neighbor caches of `cache_bytes`
// in all: where the batches are enough, read more than the scan that fills the caches, and the caches hold lists.
bool MakesNeighborCaches(const ListsOnDisk& lists, uint64_t batch_count, double read_bytes,
                         uint64_t cache_bytes);

// What is read to open the source of a trace, for each layout anew: indptr, checksums, weights where they are drawn by,
// labels and splits.
uint64_t TraceSourceBytes(const Manifest& manifest, const TopologyRecord& record, const RoadSpec& road);

// In a budget of which so much is available.
TopologyPlace PlaceTopology(const Manifest& manifest, const LayoutSpec& spec, const SampledBatch& batch,
                            uint64_t batch_count, uint64_t available_bytes);

}  // namespace quarry
