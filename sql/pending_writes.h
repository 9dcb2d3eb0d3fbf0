// PendingWrites: what a transaction has written and not committed. Private to this room; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/storage/store.h"

namespace quarry::sql {

class PendingWrites {
 public:
  explicit PendingWrites(MemoryBudget& budget) : budget_(budget) {}

  // `row` of the table, encoded. kOutOfBudget names the most that one transaction may write.
  Status Put(std::string_view table, uint64_t row, std::vector<std::byte> bytes);
  // What was put there last; empty: nothing. Valid until it is rolled back or committed.
  std::span<const std::byte> Find(std::string_view table, uint64_t row) const;
  bool empty() const { return log_.empty(); }

  // All of it as one commit. Also after an error nothing is pending any more.
  Status Commit(Store& store);
  void Rollback();

  // Savepoints are numbered from 0, inner ones higher. Several tables may announce the same one.
  void Mark(int savepoint);
  void Release(int savepoint);     // and those within it
  void RollbackTo(int savepoint);  // which stays

 private:
  using Key = std::pair<std::string, uint64_t>;
  struct Entry {
    Key key;
    std::vector<std::byte> bytes;
  };
  void PopTo(size_t entries);

  MemoryBudget& budget_;
  MemoryBudget::Reservation reservation_;  // for the most, while anything is pending
  std::deque<Entry> log_;
  std::map<Key, std::vector<size_t>> places_;  // in the log, of each row
  uint64_t bytes_ = 0;
  std::vector<size_t> marks_;  // the log's length at each savepoint
};

}  // namespace quarry::sql
