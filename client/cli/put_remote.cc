#include "put_remote.h"

#include <utility>
#include <vector>

namespace quarry::cli {
namespace {

Manifest ManifestOf(const wire::Description& description) {
  Manifest manifest;
  manifest.node_count = description.node_count;
  for (const wire::TableInfo& info : description.tables) {
    TableRecord& table = manifest.tables.emplace_back();
    table.name = info.name;
    table.element_type = info.element_type;
    table.row_count = info.row_count;
    table.dim = info.dim;
  }
  return manifest;
}

// Rows of one table, or of one where they are deleted.
wire::PutRows RowsOf(const WriteBatch& batch, uint32_t table, bool deleted) {
  wire::PutRows rows = {.table = batch.tables()[table]};
  std::vector<std::byte> ids, values;
  for (const WriteBatch::Entry& entry : batch.entries()) {
    if (entry.table != table || (entry.bytes == 0) != deleted) continue;
    const auto id = std::as_bytes(std::span(&entry.row, 1));
    ids.insert(ids.end(), id.begin(), id.end());
    const auto value = batch.value(entry);
    values.insert(values.end(), value.begin(), value.end());
    rows.row_bytes = static_cast<uint32_t>(entry.bytes);
    ++rows.rows;
  }
  ids.insert(ids.end(), values.begin(), values.end());
  rows.block = std::move(ids);
  return rows;
}

std::vector<wire::PutRows> TablesOf(const WriteBatch& batch) {
  std::vector<wire::PutRows> tables;
  for (uint32_t table = 0; table < batch.tables().size(); ++table) {
    for (const bool deleted : {false, true}) {
      wire::PutRows rows = RowsOf(batch, table, deleted);
      if (rows.rows > 0) tables.push_back(std::move(rows));
    }
  }
  return tables;
}

class RemoteLargeWrite final : public LargeWrite {
 public:
  explicit RemoteLargeWrite(std::unique_ptr<client::LargePut> put) : put_(std::move(put)) {}
  Status Add(const WriteBatch& batch) override {
    const std::vector<wire::PutRows> tables = TablesOf(batch);
    return tables.empty() ? Status::Ok() : put_->Add(tables);
  }
  Result<uint64_t> Commit() override { return put_->Commit(); }

 private:
  const std::unique_ptr<client::LargePut> put_;
};

}  // namespace

Result<PutTarget> RemoteTarget(client::Store& store) {
  QUARRY_TRY(const wire::Description description, store.Describe());
  return PutTarget{
      .manifest = ManifestOf(description),
      .write = [&store](const WriteBatch& batch) { return store.Put({.tables = TablesOf(batch)}); },
      .begin_large_write = [&store]() -> Result<std::unique_ptr<LargeWrite>> {
        QUARRY_TRY(std::unique_ptr<client::LargePut> put, store.BeginPut());
        return std::unique_ptr<LargeWrite>(std::make_unique<RemoteLargeWrite>(std::move(put)));
      }};
}

}  // namespace quarry::cli
