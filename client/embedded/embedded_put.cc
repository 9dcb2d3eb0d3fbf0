#include "embedded_put.h"

#include <utility>
#include <vector>

#include "quarry/format/wire.h"
#include "quarry/service/put_rows.h"
#include "request_errors.h"

namespace quarry::client {
namespace {

struct PaidBatch {
  MemoryBudget::Reservation reservation;
  WriteBatch rows;
};

Result<PaidBatch> BatchOf(Database& database, const wire::Put& request) {
  uint64_t bytes = 0;
  for (const wire::PutRows& rows : request.tables) {
    const auto* block = std::get_if<std::vector<std::byte>>(&rows.block);
    if (block == nullptr) return NotInMemory("rows");
    bytes += block->size();
  }
  QUARRY_RETURN_IF_ERROR(wire::CheckRequest(request, kAnyNumber));
  PaidBatch batch;
  QUARRY_TRY(batch.reservation, database.budget().Reserve(3 * bytes, "the rows of a put"));
  for (const wire::PutRows& rows : request.tables) {
    const std::span<const std::byte> block = std::get<std::vector<std::byte>>(rows.block);
    QUARRY_RETURN_IF_ERROR(AddPutRows(*database.manifest(), rows, block, batch.rows));
  }
  return batch;
}

class EmbeddedLargePut final : public LargePut {
 public:
  explicit EmbeddedLargePut(Database& database) : database_(database) {}

  Status Add(std::span<const wire::PutRows> tables) override {
    if (fault_.ok()) fault_ = DoAdd(tables);
    if (!fault_.ok()) rows_.reset();
    return fault_;
  }
  Result<uint64_t> Commit() override {
    QUARRY_RETURN_IF_ERROR(fault_);
    fault_ = Begin();
    QUARRY_RETURN_IF_ERROR(fault_);
    const Result<uint64_t> written = rows_->Commit();
    fault_ = written.ok() ? Status(Code::kUsage, "the rows have been committed") : written.status();
    return written;
  }

 private:
  Status Begin() {
    if (rows_ != nullptr) return Status();
    QUARRY_TRY(rows_, database_.store().BeginLargeWrite());
    return Status();
  }
  Status DoAdd(std::span<const wire::PutRows> tables) {
    QUARRY_RETURN_IF_ERROR(Begin());
    QUARRY_TRY(const PaidBatch batch,
               BatchOf(database_, {.number = 1, .tables = {tables.begin(), tables.end()}}));
    return rows_->Add(batch.rows);
  }

  Database& database_;
  std::unique_ptr<LargeWrite> rows_;  // from the first on
  Status fault_;                      // given for all that follows
};

}  // namespace

Result<uint64_t> EmbeddedPut(Database& database, const wire::Put& request) {
  wire::Put put = request;
  put.number = 1;  // nobody sends it twice
  QUARRY_TRY(const PaidBatch batch, BatchOf(database, put));
  return database.store().Write(batch.rows, {.sync = put.sync});
}

std::unique_ptr<LargePut> BeginEmbeddedPut(Database& database) {
  return std::make_unique<EmbeddedLargePut>(database);
}

}  // namespace quarry::client
