// RowStream: rows of a table as a snapshot has them, by ascending row. Private to this room; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "id_set.h"
#include "quarry/base/status.h"
#include "session.h"

namespace quarry::sql {

class RowStream {
 public:
  // Rows `rows` of the table: a range is scanned front to back by large reads that run ahead, a list is read
  // in batches by merged requests.
  static Result<std::unique_ptr<RowStream>> Make(Session& session, std::shared_ptr<const TableView> table,
                                                 const IdSet& rows);
  virtual ~RowStream() = default;
  // Goes to the row at this place among `rows`, the one where it is or one behind it. What lies between is
  // not read, but for what has been asked for already. REQUIRES: there is one.
  Status Read(uint64_t place);
  // As encoded; valid until the next call of Read.
  std::span<const std::byte> bytes() const { return bytes_; }

 protected:
  RowStream(Session& session, std::shared_ptr<const TableView> table)
      : session_(session), table_(std::move(table)) {}
  // The row at this place, as the snapshot has it: sets row_ and bytes_. REQUIRES: places ascend.
  virtual Status Load(uint64_t place) = 0;

  Session& session_;
  const std::shared_ptr<const TableView> table_;
  uint64_t row_ = 0;
  std::span<const std::byte> bytes_;

 private:
  uint64_t next_place_ = 0;  // behind the one of bytes_
};

// What reading `rows` rows of a table of `count` takes, one by one or (scan) front to back.
double ReadRowsSeconds(const DeviceProfile& profile, const TableRecord& record, double rows, bool scan);

}  // namespace quarry::sql
