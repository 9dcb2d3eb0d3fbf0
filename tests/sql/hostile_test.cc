// Names, texts and blobs that were made to break something.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "quarry/base/random.h"
#include "sql/sql_database.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using sql::Value;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_util::Lines;
using testing_util::ReadRows;
using testing_util::SqlStore;
using testing_util::TenNodes;
using testing_util::TinyDataset;

constexpr uint64_t kHostileSeed = 6;

std::vector<std::string> HostileNames() {
  const std::string_view parts[] = {
      "'",     "\"",    ";",    "--",       "/*", "*/",     "`",  "[",    "]",
      "\\",    "%",     "_",    "?1",       "\n", "\r\n",   "\t", "\x7f", std::string_view("\0", 1),
      ",",     "é",     "漢字", "\xff\xfe", "🜁",  "\u202e", " ",  "NULL", "'; DROP TABLE nodes; --",
      "x'00'", "OR 1=1"};
  Rng rng(kHostileSeed);
  std::set<std::string> names;
  while (names.size() < 100) {
    std::string name;
    for (uint64_t i = 1 + rng.Below(6); i > 0; --i) name += parts[rng.Below(std::size(parts))];
    names.insert(name);
  }
  return {names.begin(), names.end()};
}

// Sorts more than SQLite's caches hold.
constexpr const char* kSort =
    "WITH RECURSIVE c(x) AS (VALUES (1) UNION ALL SELECT x + 1 FROM c WHERE x < 200000)"
    " SELECT x * 7919 % 200003 AS key, hex(randomblob(30)) FROM c ORDER BY key LIMIT 1 OFFSET 199999";

TEST(SqlHostileTest, TemporaryFilesAreOnAnAccount) {
  SqlStore store(TenNodes());
  int64_t used = 0, most = 0, allowed = int64_t{1} << 40;
  const auto account = [&](int64_t bytes) {
    if (used + bytes > allowed) return Status(Code::kNoSpace, "temporary files: it is enough");
    used += bytes;
    most = std::max(most, used);
    return Status::Ok();
  };
  const auto connection =
      sql::Connection::Open(store.store(), store.budget(), {.served = true, .temp_files = account}).value();
  const auto sort = [&]() -> Status {
    QUARRY_TRY(auto rows, connection->Query(kSort));
    return rows.Next().status();
  };
  ASSERT_OK(sort());
  EXPECT_GT(most, int64_t{4} << 20) << "what was sorted lay in files";
  EXPECT_EQ(used, 0) << "which are gone";
  allowed = most / 2;
  const Status refused = sort();
  EXPECT_THAT(refused, IsStatus(Code::kNoSpace, HasSubstr("it is enough")));
  EXPECT_EQ(used, 0);
  allowed = int64_t{1} << 40;
  EXPECT_OK(sort()) << "the connection goes on";
}

TEST(SqlHostileTest, NamesAreFoundWhateverTheyHold) {
  SCOPED_TRACE(testing::Message() << "seed " << kHostileSeed);
  const std::vector<std::string> names = HostileNames();
  Dataset dataset = TinyDataset({.nodes = 100, .dim = 4});
  dataset.entity_names = names;
  SqlStore store(std::move(dataset));
  for (size_t id = 0; id < names.size(); ++id) {
    SCOPED_TRACE(names[id]);
    ASSERT_OK_AND_ASSIGN(auto rows,
                         store.sql().Query("SELECT id, name FROM nodes WHERE name = ?", {names[id]}));
    ASSERT_TRUE(rows.Next().value());
    EXPECT_EQ(rows.Integer(0), static_cast<int64_t>(id));
    EXPECT_EQ(rows.Text(1), names[id]);
    EXPECT_FALSE(rows.Next().value());
    // In the text, a quote is doubled, and a NUL is none.
    std::string literal;
    for (const char c : names[id]) literal += c == '\'' ? "''" : std::string(1, c);
    const auto in_text = Lines(store.sql(), "SELECT id FROM nodes WHERE name = '" + literal + "'");
    if (names[id].find('\0') == std::string::npos) {
      EXPECT_THAT(in_text, ElementsAre(std::to_string(id)));
    } else {
      EXPECT_THAT(in_text, ElementsAre(HasSubstr("a NUL byte in the text")));
    }
  }
  EXPECT_THAT(Lines(store.sql(), "SELECT count(*) FROM nodes"), ElementsAre("100"));
}

TEST(SqlHostileTest, TextsThatNameNoTableNoLayoutAndNoSplitFindNothing) {
  SqlStore store(TenNodes());
  const auto writer = store.Connect({.write = true});
  for (const std::string& name : HostileNames()) {
    SCOPED_TRACE(name);
    for (const char* text :
         {"SELECT id FROM features WHERE \"table\" = ?", "SELECT id FROM nodes WHERE split = ?",
          "SELECT batch FROM batches WHERE layout = ?", "SELECT id FROM embedding_rows WHERE \"table\" = ?",
          "SELECT name FROM pragma_table_info(?)"}) {
      EXPECT_THAT(ReadRows(store.sql().Query(text, {name})).value(), IsEmpty()) << text;
    }
    EXPECT_FALSE(ReadRows(writer->Query("UPDATE nodes SET split = ? WHERE id = 1", {name})).ok());
    EXPECT_FALSE(
        ReadRows(writer->Query("INSERT OR REPLACE INTO features (id, \"table\", feature) VALUES (1, ?, "
                               "zeroblob(16))",
                               {name}))
            .ok());
    EXPECT_FALSE(ReadRows(store.sql().Query("SELECT * FROM sample_block(?, '[1]')", {name})).ok());
    EXPECT_FALSE(ReadRows(store.sql().Query("SELECT * FROM neighbors(1, 1, ?)", {name})).ok());
    EXPECT_FALSE(ReadRows(store.sql().Query("SELECT vec_from_json(?)", {name})).ok());
  }
  EXPECT_EQ(store.store().TakeSnapshot().value()->timestamp, 0u);
}

TEST(SqlHostileTest, BlobsOfTheWrongLengthAreRefused) {
  SqlStore store(TenNodes());
  const auto writer = store.Connect({.write = true});
  for (size_t bytes = 0; bytes <= 64; ++bytes) {
    SCOPED_TRACE(bytes);
    const std::vector<std::byte> blob(bytes);
    EXPECT_EQ(ReadRows(store.sql().Query("SELECT vec_l2(feature, ?) FROM features", {blob})).ok(),
              bytes == 16);
    EXPECT_EQ(ReadRows(store.sql().Query("SELECT vec_dim(?)", {blob})).ok(), bytes % 4 == 0);
    const auto written = ReadRows(writer->Query("UPDATE features SET feature = ? WHERE id = 3", {blob}));
    EXPECT_EQ(written.ok(), bytes == 16);
    if (written.ok()) continue;
    EXPECT_THAT(written.status().ToString(), HasSubstr("a row is a blob of 16 bytes"));
  }
}

TEST(SqlHostileTest, ValuesHaveALimit) {
  SqlStore store(TenNodes());
  for (const char* text : {"SELECT length(zeroblob(1000000000))", "SELECT length(hex(zeroblob(60000000)))"}) {
    EXPECT_THAT(Lines(store.sql(), text), ElementsAre(HasSubstr("too big"))) << text;
  }
}

TEST(SqlHostileTest, RecursionAndJoinsEndAtTheTimeout) {
  SqlStore store(TenNodes());
  const auto connection = store.Connect({.timeout_seconds = 0.05});
  for (const char* text :
       {"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
        "WITH RECURSIVE n(i) AS (SELECT id FROM nodes UNION ALL SELECT i FROM n, edges) SELECT count(*) FROM "
        "n",
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT dst FROM n JOIN edges ON src = i) SELECT sum(i) "
        "FROM n",
        "SELECT count(*) FROM edges a, edges b, edges c, edges d, edges e, edges f, edges g, edges h"}) {
    EXPECT_THAT(Lines(*connection, text), ElementsAre(HasSubstr("took longer than 0.05 s"))) << text;
  }
  EXPECT_THAT(Lines(*connection, "SELECT count(*) FROM nodes"), ElementsAre("10"));
}

}  // namespace
}  // namespace quarry
