// CatalogWriter: commits pending writes with their part of the ledger, and lets the anchor promise them.
//
//   kGood    -> kStale    a write failed otherwise than in a sync [Commit]
//   kStale   -> kGood     the catalog was opened anew [the owner, by Load]
//   any      -> kBroken   a sync of the log or the MANIFEST failed [Commit]; stays
//
// Private to this room. One thread at a time: the owner's latch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "anchor.h"
#include "ledger.h"
#include "pending_write.h"
#include "quarry/base/status.h"
#include "rocks.h"

namespace quarry {

class CatalogWriter {
 public:
  CatalogWriter(std::string database_path, std::string catalog_path)
      : database_path_(std::move(database_path)), path_(std::move(catalog_path)) {}

  // Before RocksDB opens the catalog for writing: takes back that it is closed. Makes the anchor where there
  // is none.
  Status TakeAnchor(bool anchored);
  // After that: reads the ledger, and makes one where there is none. kCorruption when it is not the one that
  // the anchor promises.
  Status Load(const OpenDatabase& open);
  // Gives up what Load read: the catalog is closed.
  void Unload() {
    tallies_.clear();
    unfolded_.clear();
  }

  Status Commit(const OpenDatabase& open, PendingWrite& write, bool sync, std::string_view what);
  // Replaces the ledger by what the entries amount to, and forgets doubts.
  Status Rewrite(const OpenDatabase& open, const Tallies& counted);
  // After RocksDB was closed, with everything on disk.
  Status Closed();

  const Status& broken() const { return broken_; }
  bool stale() const { return stale_; }
  const LedgerHead& head() const { return head_; }
  const AnchorRecord& promised() const { return anchor_->record(); }
  const Tallies& tallies() const { return tallies_; }

 private:
  AnchorRecord Promise() const;
  // True: the commit writes tallies, its own and those that steps before it have changed.
  Status Commit(const OpenDatabase& open, PendingWrite& write, bool sync, bool fold, std::string_view what);
  void AddTallies(const Tallies& changes, PendingWrite& write) const;
  void Apply(const Tallies& changes, const LedgerHead& head);

  const std::string database_path_, path_;
  std::optional<Anchor> anchor_;
  LedgerHead head_;
  Tallies tallies_;                    // with the steps
  std::vector<std::string> unfolded_;  // keys of tallies that steps have changed; one may come several times
  uint64_t synced_ = 0;                // commits that are
  Status broken_;
  bool stale_ = false;
};

}  // namespace quarry
