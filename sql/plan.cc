#include "plan.h"

#include <algorithm>
#include <string>

namespace quarry::sql {
namespace {

// A plan goes from xBestIndex to xFilter as idxNum, the mask of columns, and idxStr, the constraints in the
// order of their values: "id>=, id<". That is what EXPLAIN QUERY PLAN prints.
constexpr std::pair<Op, std::string_view> kOpNames[] = {
    {Op::kIn, " IN"},          {Op::kLessEqual, "<="}, {Op::kLess, "<"},
    {Op::kGreaterEqual, ">="}, {Op::kGreater, ">"},    {Op::kEqual, "="},
};

std::optional<Op> OpOf(int op) {
  switch (op) {
    case SQLITE_INDEX_CONSTRAINT_EQ:
      return Op::kEqual;
    case SQLITE_INDEX_CONSTRAINT_LT:
      return Op::kLess;
    case SQLITE_INDEX_CONSTRAINT_LE:
      return Op::kLessEqual;
    case SQLITE_INDEX_CONSTRAINT_GT:
      return Op::kGreater;
    case SQLITE_INDEX_CONSTRAINT_GE:
      return Op::kGreaterEqual;
    default:
      return std::nullopt;
  }
}

std::string_view NameOf(Op op) {
  return std::ranges::find(kOpNames, op, &std::pair<Op, std::string_view>::first)->second;
}

// What of a statement's constraints the table takes over. LIMIT and OFFSET stay with SQLite: 3.40 offers them
// also beside conditions that it does not show (`WHERE in_degree = out_degree`).
class Planner {
 public:
  Planner(const Table& table, sqlite3_index_info& info) : table_(table), info_(info) {
    query_.columns = info.colUsed;
  }

  int Plan() {
    for (int i = 0; i < info_.nConstraint; ++i) TakeConstraint(i);
    std::optional<Estimate> estimate = table_.Price(query_);
    if (!estimate) return SQLITE_CONSTRAINT;
    info_.orderByConsumed = static_cast<int>(IsOrdered());
    info_.estimatedRows = std::max<sqlite3_int64>(1, static_cast<sqlite3_int64>(estimate->rows));
    // By the device profile, so that SQLite weighs a scan of one table against lookups in another as the disk
    // does. In tenths of a microsecond, which is about what a row costs that SQLite is handed: it cuts off
    // what is behind the point, and a condition that a lookup takes over has to make it cheaper.
    info_.estimatedCost = estimate->seconds * 1e7 + estimate->rows + 10;
    info_.idxNum = static_cast<int>(query_.columns & 0x7fffffff);
    info_.idxStr = sqlite3_mprintf("%s", text_.c_str());
    info_.needToFreeIdxStr = 1;
    return info_.idxStr == nullptr ? SQLITE_NOMEM : SQLITE_OK;
  }

 private:
  void TakeConstraint(int i) {
    const auto& constraint = info_.aConstraint[i];
    std::optional<Op> op = OpOf(constraint.op);
    if (op == Op::kEqual && sqlite3_vtab_in(&info_, i, -1) != 0) op = Op::kIn;
    if (constraint.usable == 0 || !op || !Takes(i, constraint.iColumn, *op)) return;
    if (*op == Op::kIn) sqlite3_vtab_in(&info_, i, 1);
    query_.constraints.push_back({.column = constraint.iColumn, .op = *op, .values = {}});
    const Column& column = ColumnOf(constraint.iColumn);
    // How a text is compared with a number depends on where the number comes from: SQLite looks again.
    const bool decided = column.type != ColumnType::kText || column.pushdown == Pushdown::kArgument;
    Take(i, fmt::format("{}{}", column.name, NameOf(*op)), decided);
  }

  bool Takes(int i, int column, Op op) const {
    if (column < 0) return false;
    const Column& what = ColumnOf(column);
    // The tables compare texts byte by byte.
    if (what.type == ColumnType::kText && sqlite3_stricmp(sqlite3_vtab_collation(&info_, i), "BINARY") != 0) {
      return false;
    }
    switch (what.pushdown) {
      case Pushdown::kNone:
        return false;
      case Pushdown::kArgument:
        return op == Op::kEqual && !query_.Has(column, op);
      case Pushdown::kEquality:
        return op == Op::kEqual || op == Op::kIn;
      case Pushdown::kRange:
        return true;
    }
    return false;
  }

  // `decided`: SQLite need not test it.
  void Take(int i, std::string_view word, bool decided) {
    info_.aConstraintUsage[i].argvIndex = ++taken_;
    info_.aConstraintUsage[i].omit = static_cast<unsigned char>(decided);
    if (!text_.empty()) text_ += ", ";
    text_ += word;
  }

  const Column& ColumnOf(int column) const { return table_.columns()[static_cast<size_t>(column)]; }

  bool IsOrdered() const {
    std::vector<int> order = table_.Order(query_);
    // All rows are equal in a column that is compared with one value.
    const auto is_fixed = [&](int column) { return query_.Has(column, Op::kEqual); };
    std::erase_if(order, is_fixed);
    size_t place = 0;
    for (int i = 0; i < info_.nOrderBy; ++i) {
      const auto& by = info_.aOrderBy[i];
      if (is_fixed(by.iColumn)) continue;
      if (place == order.size() || by.desc != 0 || by.iColumn != order[place++]) return false;
    }
    return info_.nOrderBy > 0;
  }

  const Table& table_;
  sqlite3_index_info& info_;
  Query query_;
  std::string text_;
  int taken_ = 0;
};

bool IsNumber(const Value& value) {
  return std::holds_alternative<int64_t>(value) || std::holds_alternative<double>(value);
}

Result<std::vector<Value>> ValuesOf(sqlite3_value* argument, Op op, ColumnType type) {
  std::vector<Value> values;
  if (op != Op::kIn) {
    values.push_back(ValueOf(argument, type));
    return values;
  }
  sqlite3_value* value = nullptr;
  int rc = sqlite3_vtab_in_first(argument, &value);
  for (; rc == SQLITE_OK && value != nullptr; rc = sqlite3_vtab_in_next(argument, &value)) {
    values.push_back(ValueOf(value, type));
  }
  if (rc != SQLITE_OK && rc != SQLITE_DONE) return Status(Code::kInternal, sqlite3_errstr(rc));
  return values;
}

}  // namespace

int PlanQuery(const Table& table, sqlite3_index_info& info) { return Planner(table, info).Plan(); }

Value ValueOf(sqlite3_value* value, ColumnType type) {
  const bool number = type == ColumnType::kInteger || type == ColumnType::kReal;
  switch (number ? sqlite3_value_numeric_type(value) : sqlite3_value_type(value)) {
    case SQLITE_INTEGER:
      return int64_t{sqlite3_value_int64(value)};
    case SQLITE_FLOAT:
      return sqlite3_value_double(value);
    case SQLITE_TEXT: {
      const auto* text = reinterpret_cast<const char*>(sqlite3_value_text(value));
      return text == nullptr ? Value(std::string())
                             : Value(std::string(text, static_cast<size_t>(sqlite3_value_bytes(value))));
    }
    case SQLITE_BLOB: {
      const auto* bytes = static_cast<const std::byte*>(sqlite3_value_blob(value));
      return std::vector<std::byte>(bytes, bytes + sqlite3_value_bytes(value));
    }
    default:
      return std::monostate();
  }
}

bool RereadPlan(const Table& table, std::span<sqlite3_value* const> arguments, Query& query) {
  if (query.constraints.size() != arguments.size()) return false;
  const std::span<const Column> columns = table.columns();
  for (size_t i = 0; i < arguments.size(); ++i) {
    Constraint& constraint = query.constraints[i];
    const ColumnType type = columns[static_cast<size_t>(constraint.column)].type;
    if (constraint.op == Op::kIn || type == ColumnType::kText) return false;
    if (sqlite3_value_type(arguments[i]) == SQLITE_INTEGER) {
      constraint.values.front() = int64_t{sqlite3_value_int64(arguments[i])};
    } else {
      constraint.values.front() = ValueOf(arguments[i], type);
    }
  }
  return true;
}

Result<Query> ReadPlan(const Table& table, int columns, std::string_view text,
                       std::span<sqlite3_value* const> arguments) {
  Query query{.columns = static_cast<uint64_t>(columns)};
  for (sqlite3_value* const argument : arguments) {
    const size_t comma = std::min(text.find(", "), text.size());
    const std::string_view word = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 2, text.size()));
    const auto op =
        std::ranges::find_if(kOpNames, [&](const auto& name) { return word.ends_with(name.second); });
    const auto column = std::ranges::find_if(table.columns(), [&](const Column& c) {
      return word.substr(0, word.size() - op->second.size()) == c.name;
    });
    QUARRY_TRY(std::vector<Value> values, ValuesOf(argument, op->first, column->type));
    const bool compared = column->type == ColumnType::kText && column->pushdown != Pushdown::kArgument;
    if (compared && std::ranges::any_of(values, IsNumber)) continue;
    query.constraints.push_back({.column = static_cast<int>(column - table.columns().begin()),
                                 .op = op->first,
                                 .values = std::move(values)});
  }
  return query;
}

}  // namespace quarry::sql
