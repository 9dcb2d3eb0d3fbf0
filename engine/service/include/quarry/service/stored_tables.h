// StoredTables: the feature tables that lookups read, open for as long as the server runs.
//
// An overlay is a set of all changed rows, which a lookup of one row must not pay for: overlays are kept with
// the snapshot that they are of, and that of the newest commit until there is a newer one. Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "quarry/base/budget.h"
#include "quarry/base/mutex.h"
#include "quarry/base/status.h"
#include "quarry/storage/store.h"
#include "quarry/storage/table_files.h"
#include "quarry/storage/table_view.h"

namespace quarry {

class StoredTables {
  struct OpenTable {
    MemoryBudget::Reservation reservation;  // for the overlay
    TableView view;
  };

 public:
  // What is read as of one timestamp. Shared by the requests that read it.
  class View {
   public:
    View(StoredTables& tables, std::shared_ptr<const Snapshot> snapshot)
        : tables_(tables), snapshot_(std::move(snapshot)) {}
    const std::shared_ptr<const Snapshot>& snapshot() const { return snapshot_; }
    // kNotFound lists what there is. Valid as long as the view is.
    Result<const TableView*> Open(std::string_view name);

   private:
    StoredTables& tables_;
    const std::shared_ptr<const Snapshot> snapshot_;
    Mutex mutex_;
    std::map<std::string, std::unique_ptr<const OpenTable>, std::less<>> open_ QUARRY_GUARDED_BY(mutex_);
  };

  // Store and budget outlive it, and it its views.
  StoredTables(Store& store, MemoryBudget& budget) : store_(store), budget_(budget), files_(store, budget) {}

  // Everything committed so far; the same view as before while there was no commit.
  Result<std::shared_ptr<View>> Newest();
  // Keeps no view for the next request: a table that only it would hold can be dropped.
  void LetGo();
  // kNotFound lists what there is.
  Result<TableRecord> Find(std::string_view name) const;

 private:
  Result<std::unique_ptr<const OpenTable>> Open(std::string_view name,
                                                const std::shared_ptr<const Snapshot>& snapshot);

  Store& store_;
  MemoryBudget& budget_;
  TableFiles files_;
  Mutex mutex_;
  std::shared_ptr<View> newest_ QUARRY_GUARDED_BY(mutex_);
};

}  // namespace quarry
