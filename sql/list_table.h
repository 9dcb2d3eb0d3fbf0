// ListTable: a short list, made whole when a query begins. Private to this room.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "session.h"
#include "table.h"

namespace quarry::sql {

// Rows, numbered in the order in which they are added.
class RowList {
 public:
  void Add(std::vector<Value> row) { rows_.push_back({next_id_++, std::move(row)}); }
  // Rows are numbered from here on: where some are left out, the others keep their numbers.
  void NumberFrom(int64_t id) { next_id_ = id; }

 private:
  friend class ListCursor;
  struct Row {
    int64_t id = 0;
    std::vector<Value> values;
  };
  std::vector<Row> rows_;
  int64_t next_id_ = 0;
};

inline Value Integer(uint64_t value) { return static_cast<int64_t>(value); }
inline Value Flag(bool value) { return int64_t{value ? 1 : 0}; }

class ListCursor final : public Cursor {
 public:
  explicit ListCursor(RowList list) : rows_(std::move(list.rows_)) {}
  Result<bool> Next() override { return next_++ < rows_.size(); }
  Status Get(int column, Output& out) override {
    out.Put(rows_[next_ - 1].values[static_cast<size_t>(column)]);
    return Status::Ok();
  }
  Result<int64_t> RowId() override { return rows_[next_ - 1].id; }

 private:
  const std::vector<RowList::Row> rows_;
  size_t next_ = 0;
};

// A list by its name, its columns, and the function that makes it: of all rows, or of those that the query's
// constraints leave, where these spare it work.
class ListTable final : public Table {
 public:
  using Make = std::function<Result<RowList>(Session&, const Query&)>;
  ListTable(Session& session, std::string_view name, std::vector<Column> columns, Make make)
      : session_(session), name_(name), columns_(std::move(columns)), make_(std::move(make)) {}
  std::string_view name() const override { return name_; }
  std::span<const Column> columns() const override { return columns_; }
  // Making it costs next to nothing; a row is a few microseconds of SQLite's time.
  std::optional<Estimate> Price(const Query& query) const override {
    return Estimate{.rows = query.constraints.empty() ? kRows : kRows / 10};
  }
  std::vector<int> Order(const Query&) const override { return {}; }
  Result<std::unique_ptr<Cursor>> Open(const Query& query) override {
    QUARRY_TRY(RowList rows, make_(session_, query));
    return std::unique_ptr<Cursor>(std::make_unique<ListCursor>(std::move(rows)));
  }

 private:
  static constexpr double kRows = 10;

  Session& session_;
  const std::string_view name_;
  const std::vector<Column> columns_;
  const Make make_;
};

// A table of records of the manifest: what each column is called, its type, and its value of a record, told once.
template <typename T>
struct RecordColumn {
  Column column;
  Value (*value)(const Manifest& manifest, const T& record);
};

// `records` gives those of a manifest.
template <typename T, typename Records>
std::unique_ptr<Table> MakeRecordTable(Session& session, std::string_view name,
                                       std::vector<RecordColumn<T>> columns, Records records) {
  std::vector<Column> shown;
  for (const RecordColumn<T>& column : columns) shown.push_back(column.column);
  auto make = [columns = std::move(columns), records](Session& asked, const Query&) -> Result<RowList> {
    RowList rows;
    const std::shared_ptr<const Manifest> manifest = asked.manifest();
    for (const T& record : records(*manifest)) {
      std::vector<Value> row;
      for (const RecordColumn<T>& column : columns) row.push_back(column.value(*manifest, record));
      rows.Add(std::move(row));
    }
    return rows;
  };
  return std::make_unique<ListTable>(session, name, std::move(shown), std::move(make));
}

}  // namespace quarry::sql
