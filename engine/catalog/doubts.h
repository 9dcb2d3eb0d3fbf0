// Doubts: what of a catalog cannot be proven to be the newest. Private to this room.
#pragma once

#include <string>
#include <vector>

#include "ledger.h"
#include "quarry/base/status.h"
#include "quarry/catalog/catalog.h"
#include "rocks.h"

namespace quarry {

// The newest that was ever committed.
Result<uint64_t> ReadTimestamp(const OpenDatabase& open, const std::string& path);

// Where two counts differ, neighboring ranges together.
std::vector<Doubt> Differences(const Tallies& counted, const Tallies& expected);

// Catalog::FindDoubts.
Result<std::vector<Doubt>> ReadDoubts(const OpenDatabase& open, const rocksdb::ReadOptions& options,
                                      const std::string& path);

// Makes the anchor of a catalog in the folder `database_path`, which promises all that it holds.
Status PromiseAll(const OpenDatabase& open, const std::string& database_path);

}  // namespace quarry
