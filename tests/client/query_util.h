// Statements that do not end, and what statements come to.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/client/sql.h"

namespace quarry::testing_util {

inline constexpr const char* kEndless =
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
inline constexpr const char* kEndlessRows =
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n";

inline double SecondsOf(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// A line for each row, values separated by "|"; then the error, if there is one.
inline std::vector<std::string> LinesOf(client::RowCursor& rows) {
  std::vector<std::string> lines;
  while (true) {
    const Result<bool> more = rows.Next();
    if (!more.ok()) lines.push_back(more.status().ToString());
    if (!more.ok() || !*more) return lines;
    std::string line;
    for (size_t i = 0; i < rows.columns().size(); ++i) line += (i > 0 ? "|" : "") + rows.Text(i);
    lines.push_back(line);
  }
}
inline std::vector<std::string> LinesOf(const Result<std::unique_ptr<client::RowCursor>>& rows) {
  if (!rows.ok()) return {rows.status().ToString()};
  return LinesOf(**rows);
}
inline std::vector<std::string> LinesOf(client::SqlConnection& sql, std::string_view text) {
  return LinesOf(sql.Query(text));
}

}  // namespace quarry::testing_util
