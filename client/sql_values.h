// Rows and tables of sql/ as messages and client::RowCursor have them. Private to this room.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "quarry/base/mutex.h"
#include "quarry/base/status.h"
#include "quarry/format/wire_sql.h"
#include "quarry/sql/connection.h"

namespace quarry {

inline wire::SqlValueView ViewOf(const sql::Rows& rows, int column) {
  switch (rows.type(column)) {
    case sql::Rows::Type::kInteger:
      return rows.Integer(column);
    case sql::Rows::Type::kReal:
      return rows.Real(column);
    case sql::Rows::Type::kText:
      return rows.Text(column);
    case sql::Rows::Type::kBlob:
      return rows.Blob(column);
    case sql::Rows::Type::kNull:
      break;
  }
  return std::monostate();
}

inline std::vector<std::string> ColumnsOf(const sql::Rows& rows) {
  std::vector<std::string> names;
  for (int i = 0; i < rows.column_count(); ++i) names.emplace_back(rows.column_name(i));
  return names;
}

inline std::vector<wire::SqlTable> TablesOf(const sql::Connection& connection) {
  std::vector<wire::SqlTable> tables;
  for (sql::TableInfo& info : connection.tables()) {
    wire::SqlTable& table = tables.emplace_back(wire::SqlTable{.name = std::move(info.name)});
    for (auto& column : info.columns) {
      table.columns.push_back({std::move(column.name), std::move(column.type), column.hidden});
    }
  }
  return tables;
}

}  // namespace quarry
