// embedding_rows: the vectors of all embedding tables, as their last checkpoints have them.
#include "id_set.h"
#include "quarry/embedding/embedding_reader.h"
#include "tables.h"

namespace quarry::sql {
namespace {

enum EmbeddingColumn : int { kTable, kId, kVector, kTimestamp };

constexpr Column kEmbeddingColumns[] = {
    {"table", ColumnType::kText, Pushdown::kEquality},
    {"id", ColumnType::kInteger, Pushdown::kRange},
    {"vector", ColumnType::kBlob},
    {"timestamp", ColumnType::kInteger},
};

class EmbeddingsCursor final : public Cursor {
 public:
  EmbeddingsCursor(Session& session, const Query& query)
      : session_(session),
        manifest_(session.manifest()),
        query_(query),
        reads_(query.Wants(kVector) || query.Wants(kTimestamp)) {
    const std::vector<EmbeddingRecord>& records = manifest_->embeddings;
    for (size_t i = 0; i < records.size(); ++i) {
      if (query.Allows(kTable, records[i].name)) tables_.push_back({i, &records[i]});
    }
  }

  Result<bool> Next() override {
    while (next_ == ids_.size()) {
      if (next_table_ == tables_.size()) return false;
      QUARRY_RETURN_IF_ERROR(OpenTable());
    }
    id_ = ids_[next_++];
    if (reader_ == nullptr) return true;
    QUARRY_TRY(timestamp_, reader_->Read(id_, values_));
    return true;
  }

  Status Get(int column, Output& out) override {
    switch (column) {
      case kTable:
        out.Text(table().record->name);
        break;
      case kId:
        out.Integer(static_cast<int64_t>(id_));
        break;
      case kVector:
        out.Blob(std::as_bytes(std::span(values_)));
        break;
      default:
        if (timestamp_ != kNeverWritten) out.Integer(timestamp_);
    }
    return Status::Ok();
  }

  // Ids of rows have 32 bits here as well: they are nodes or relations.
  Result<int64_t> RowId() override { return static_cast<int64_t>(table().place << 32 | id_); }

 private:
  struct NumberedTable {
    size_t place = 0;  // in the manifest
    const EmbeddingRecord* record = nullptr;
  };
  const NumberedTable& table() const { return tables_[next_table_ - 1]; }

  Status OpenTable() {
    reader_.reset();  // gives back its memory before the next one takes it
    const EmbeddingRecord& record = *tables_[next_table_++].record;
    ids_ = IdSet::Make(query_, kId, record.row_count);
    next_ = 0;
    if (!reads_) return Status::Ok();
    QUARRY_TRY(reader_, EmbeddingReader::Open(session_.store(), session_.budget(), record.name));
    values_.resize(record.dim);
    return Status::Ok();
  }

  Session& session_;
  const std::shared_ptr<const Manifest> manifest_;  // whose records tables_ has
  const Query query_;
  const bool reads_;  // else ids are all that is asked for
  std::vector<NumberedTable> tables_;
  size_t next_table_ = 0;
  IdSet ids_;
  uint64_t next_ = 0;
  uint64_t id_ = 0;
  std::unique_ptr<EmbeddingReader> reader_;
  std::vector<float> values_;
  int64_t timestamp_ = kNeverWritten;
};

class EmbeddingRowsTable final : public Table {
 public:
  explicit EmbeddingRowsTable(Session& session) : session_(session) {}
  std::string_view name() const override { return "embedding_rows"; }
  std::span<const Column> columns() const override { return kEmbeddingColumns; }

  // Pages lie in no order of their rows: each is a request.
  std::optional<Estimate> Price(const Query& query) const override {
    Estimate estimate;
    const IdShare share = ShareOf(query, kId);
    const std::shared_ptr<const Manifest> manifest = session_.manifest();
    for (const EmbeddingRecord& record : manifest->embeddings) {
      const double rows = share.Of(static_cast<double>(record.row_count));
      estimate.rows += rows;
      if (!query.Wants(kVector) && !query.Wants(kTimestamp)) continue;
      const double pages = std::min(rows, static_cast<double>(record.page_count));
      estimate.seconds += session_.profile().ReadSeconds(static_cast<uint64_t>(pages) * record.page_bytes,
                                                         static_cast<uint64_t>(pages));
    }
    if (query.Has(kTable) && !manifest->embeddings.empty()) {
      const auto tables = static_cast<double>(manifest->embeddings.size());
      estimate = {estimate.rows / tables, estimate.seconds / tables};
    }
    return estimate;
  }
  std::vector<int> Order(const Query&) const override {
    return session_.manifest()->embeddings.size() == 1 ? std::vector<int>{kId} : std::vector<int>();
  }
  Result<std::unique_ptr<Cursor>> Open(const Query& query) override {
    return std::unique_ptr<Cursor>(std::make_unique<EmbeddingsCursor>(session_, query));
  }

 private:
  Session& session_;
};

}  // namespace

std::unique_ptr<Table> MakeEmbeddingRowsTable(Session& session) {
  return std::make_unique<EmbeddingRowsTable>(session);
}

}  // namespace quarry::sql
