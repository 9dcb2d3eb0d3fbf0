#include "table.h"

#include <algorithm>

namespace quarry::sql {

bool Query::Has(int column, Op op) const {
  return std::ranges::any_of(constraints,
                             [&](const Constraint& c) { return c.column == column && c.op == op; });
}

bool Query::Has(int column) const {
  return std::ranges::any_of(constraints, [&](const Constraint& c) { return c.column == column; });
}

bool Query::Allows(int column, std::string_view text) const {
  return std::ranges::all_of(constraints, [&](const Constraint& constraint) {
    return constraint.column != column || std::ranges::any_of(constraint.values, [&](const Value& value) {
             const auto* wanted = std::get_if<std::string>(&value);
             return wanted != nullptr && *wanted == text;
           });
  });
}

const char* TypeName(ColumnType type) {
  switch (type) {
    case ColumnType::kInteger:
      return "INTEGER";
    case ColumnType::kReal:
      return "REAL";
    case ColumnType::kText:
      return "TEXT";
    case ColumnType::kBlob:
      return "BLOB";
  }
  return "";
}

Status Table::Update(int64_t, int, const Value&) {
  return MakeStatus(Code::kUnsupported, "{} is only read", name());
}
Result<int64_t> Table::Insert(std::span<const Value>) {
  return MakeStatus(Code::kUnsupported, "rows of {} cannot be inserted", name());
}
Status Table::Delete(int64_t) {
  return MakeStatus(Code::kUnsupported, "rows of {} cannot be deleted", name());
}

}  // namespace quarry::sql
