// Whether a catalog that was opened holds what was promised of it. Private to this room.
#pragma once

#include <optional>
#include <string>

#include "anchor.h"
#include "ledger.h"
#include "quarry/base/status.h"
#include "rocks.h"

namespace quarry {

// kCorruption when a catalog whose ledger ends with `head` holds less than the anchor promises, or another
// state than the one that it was closed with. `heard`: what RocksDB left out when it opened it.
Status CheckPromise(const AnchorRecord& anchor, const std::optional<LedgerHead>& head,
                    const std::string& catalog_path, const std::string& heard);

// The whole proof, for a catalog that is open for reading: the anchor's promise, the marks in its logs, and
// what the ledger says of each family. `anchored` is false for one from before there were anchors.
Status CheckReader(const std::string& database_path, const std::string& path, const OpenDatabase& open,
                   bool anchored);

}  // namespace quarry
