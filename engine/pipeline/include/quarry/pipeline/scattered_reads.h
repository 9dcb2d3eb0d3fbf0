// How many requests and bytes reads of scattered places come to, where those near each other are merged (coalesce.h), by
// their number alone; and what sampling reads of adjacency lists on disk, behind a neighbor cache of any size.
#pragma once

#include <cstdint>

#include "quarry/io/coalesce.h"

namespace quarry {

struct ScatteredReads {
  double bytes = 0;     // gaps that are read through included
  double requests = 0;  // that start at a new place
  double Seconds(const DeviceProfile& device) const;
  friend bool operator==(const ScatteredReads&, const ScatteredReads&) = default;
};

// So many units lie in a row, and each is wanted with the same chance: a gap of j units is there with
// d (1 - d)^j, and those up to the device's are read through.
ScatteredReads MergedReadsOf(double units, double unit_bytes, double chance, const DeviceProfile& device);

// What a few batches told of the lists that sampling a batch asks for.
struct ListsProbe {
  double lists = 0;            // a batch, the mean
  double hits = 0;             // of these, found in the neighbor cache
  ScatteredReads reads = {};   // of the others
  bool in_memory = true;       // where they were: then no hits and no reads were seen
  uint64_t cache_bytes = 0;    // the neighbor cache's, where they were not
  uint64_t indices_bytes = 0;  // of all lists
  uint64_t address_bytes = 0;  // of a neighbor cache: one of no more bytes holds no list
  double cache_scans =
      1;  // of all lists, that filling a neighbor cache takes: two where degrees are counted first
  double mean_list_bytes = 0;  // of a list
};

// What a batch would read of lists on disk behind a cache of so many bytes. As it was measured, where that is the cache
// they were probed with. For others, hits are taken for proportional to the cache between those that are known: none
// without one, those that were measured, all of a cache of all lists. Since the most important lists are cached
// first, that is no fewer reads than there will be.
ScatteredReads ReadsOfLists(const ListsProbe& probe, uint64_t cache_bytes, const DeviceProfile& device);

}  // namespace quarry
