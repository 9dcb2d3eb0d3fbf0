// SQL from C++: a question with parameters, and a transaction: sql DATABASE
//
// DATABASE is a folder, or unix:SOCKET of `quarry serve`. Moves the node of the highest in-degree to the split `valid`.
#include <cstdio>
#include <vector>

#include "quarry/client/store.h"

namespace {

quarry::Status MoveHub(const char* address) {
  QUARRY_TRY(const auto store, quarry::client::Open(address, {.memory_bytes = 256 << 20}));
  QUARRY_TRY(const auto sql, store->Connect({.write = true}));
  int64_t hub = 0;
  {
    QUARRY_TRY(const auto rows,
               sql->Query("SELECT id, in_degree, split FROM nodes ORDER BY in_degree DESC, id LIMIT 1"));
    QUARRY_TRY(const bool found, rows->Next());
    if (!found) return quarry::Status(quarry::Code::kNotFound, "the graph has no nodes");
    hub = std::get<int64_t>(rows->value(0));
    std::printf("node %s: in-degree %s, split %s\n", rows->Text(0).c_str(), rows->Text(1).c_str(),
                rows->Text(2).c_str());
  }
  // One transaction is one durable commit, which others see whole or not at all.
  QUARRY_RETURN_IF_ERROR(
      sql->Run("BEGIN", [](quarry::client::RowCursor& rows) { return rows.Next().status(); }));
  const std::vector<quarry::client::Value> parameters = {hub};
  {
    QUARRY_TRY(const auto update, sql->Query("UPDATE nodes SET split = 'valid' WHERE id = ?1", parameters));
    QUARRY_TRY([[maybe_unused]] const bool more, update->Next());
  }
  QUARRY_RETURN_IF_ERROR(
      sql->Run("COMMIT", [](quarry::client::RowCursor& rows) { return rows.Next().status(); }));
  QUARRY_TRY(const auto rows, store->Query("SELECT split FROM nodes WHERE id = ?1", parameters));
  QUARRY_TRY(const bool found, rows->Next());
  std::printf("now: %s\n", found ? rows->Text(0).c_str() : "gone");
  return quarry::Status();
}

}  // namespace

int main(int argc, char** argv) {
  const quarry::Status status =
      argc == 2 ? MoveHub(argv[1]) : quarry::Status(quarry::Code::kUsage, "sql DATABASE");
  if (!status.ok()) std::fprintf(stderr, "sql: %s\n", status.ToString().c_str());
  return quarry::ExitCode(status.code());
}
