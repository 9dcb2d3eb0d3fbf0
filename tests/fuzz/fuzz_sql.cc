// Fuzz target: SQL over a small database that may be written to. Whatever the text is, it is run or refused
// with a reason, and what it held is given back.
//
// clang with -DQUARRY_FUZZ=ON: a libFuzzer program, best with -dict=tests/fuzz/sql.dict. Any compiler:
// fuzz_sql_replay, which runs the corpus.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "quarry/embedding/embedding_store.h"
#include "quarry/layout/layout.h"
#include "sql/sql_database.h"

namespace quarry {
namespace {

constexpr size_t kTextBytesMax = 4096;
constexpr int kLooksMax = 100;  // of a statement at the clock, which it has not: a run is the same every time
constexpr int kRowsMax = 1000;

void Require(bool holds) {
  if (!holds) std::abort();
}

// With a row in each of the tables.
class Subject {
 public:
  Subject() {
    store_.CloseConnection();
    const LayoutSpec layout = {.road = {.fanouts = {2, 2}, .batch_size = 2, .cache_bytes = 64}};
    Require(BuildLayout(store_.store(), store_.budget(), layout, false, {}).ok());
    Require(CreateEmbeddings(store_.store(), "learned", {.row_count = 10, .dim = 4}, 4096).ok());
  }

  void Run(std::string_view text) {
    int looks = 0;
    {
      const auto connection =
          store_.Connect({.write = true, .cancelled = [&] { return ++looks > kLooksMax; }});
      // What is not committed by the text itself is taken back.
      Require(connection->Run("BEGIN", [](sql::Rows& rows) { return rows.Next().status(); }).ok());
      const Status status = connection->Run(text, [&](sql::Rows& rows) {
        looks = 0;
        return Read(rows);
      });
      Require(status.ok() || !status.message().empty());
      Require(status.code() != Code::kInternal && status.code() != Code::kCorruption);
    }
    Require(store_.budget().used_bytes() == 0);
  }

 private:
  static Status Read(sql::Rows& rows) {
    for (int i = 0; i < kRowsMax; ++i) {
      QUARRY_TRY(const bool more, rows.Next());
      if (!more) break;
      for (int column = 0; column < rows.column_count(); ++column) {
        if (rows.type(column) == sql::Rows::Type::kBlob) {
          Touch(rows.Blob(column));
        } else {
          Touch(std::as_bytes(std::span(rows.Text(column))));
        }
      }
    }
    return Status::Ok();
  }
  // Loads that the compiler may not leave out.
  static void Touch(std::span<const std::byte> bytes) {
    for (const std::byte& byte : bytes) (void)*static_cast<const volatile std::byte*>(&byte);
  }

  testing_util::SqlStore store_{testing_util::TenNodes(), {.both_directions = true}};
};

}  // namespace
}  // namespace quarry

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static quarry::Subject subject;  // making a database takes longer than most texts
  if (size <= quarry::kTextBytesMax) subject.Run({reinterpret_cast<const char*>(data), size});
  return 0;
}
