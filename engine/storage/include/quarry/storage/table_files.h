// TableFiles: the files of feature tables, kept open from snapshot to snapshot.
//
// Opening a file reads all of its checksums, which a lookup of one row cannot pay for. For each table the
// file that was asked for last is kept open; an older one lives as long as somebody holds it. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "quarry/base/budget.h"
#include "quarry/base/mutex.h"
#include "quarry/base/status.h"
#include "quarry/storage/store.h"

namespace quarry {

class TableFiles {
 public:
  // Both outlive it and the files that it gives. Checksums draw on the budget.
  TableFiles(Store& store, MemoryBudget& budget) : store_(store), budget_(budget) {}

  // The file behind `record`, a table of `snapshot`. As Store::OpenTable; kOutOfBudget where the budget has
  // no room for its checksums.
  Result<std::shared_ptr<const FeatureTable>> Open(const Snapshot& snapshot, const TableRecord& record);

 private:
  struct OpenFile {
    MemoryBudget::Reservation reservation;
    std::weak_ptr<const void> pin;  // the snapshot's: a table that was dropped and made again has another one
    std::unique_ptr<FeatureTable> table;
  };

  Store& store_;
  MemoryBudget& budget_;
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<const OpenFile>, std::less<>> files_ QUARRY_GUARDED_BY(mutex_);
};

}  // namespace quarry
