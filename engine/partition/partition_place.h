// Where a partitioning is made, and how it takes the place of the one before: atomic by the catalog. Private to this
// room.
//
//   partitions/NAME.building -> partitions/NAME-<gen> [rename] -> the catalog names it -> the folder before goes
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "quarry/storage/store.h"

namespace quarry {

struct PartitioningPlace {
  uint64_t generation = 1;
  std::string building;  // the folder where everything is made, empty when it is prepared
  std::string replaced;  // the folder of the partitioning of the same name; empty: there is none
};

Result<PartitioningPlace> PreparePartitioning(Store& store, std::string_view name);

// Everything in place.building must be synced, folder included. REQUIRES: the record's directory is
// PartitioningFolder(name, place.generation).
Status CommitPartitioning(Store& store, const PartitioningPlace& place, const PartitioningRecord& record);

}  // namespace quarry
