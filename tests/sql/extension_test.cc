// libquarry_sqlite.so in SQLite's shell and in Python: the same scripts, and the life of the tables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sql/script.h"
#include "sql/sql_database.h"
#include "support/temporary_folder.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using namespace testing_util;  // NOLINT: a test of what it has

class ExtensionTest : public testing::Test {
 protected:
  void SetUp() override { store_.CloseStore(); }  // the shell locks it

  // What the shell prints, errors included; a statement that fails does not end the script.
  std::string RunShell(const std::string& script, const std::string& file = ":memory:") {
    const std::string path = folder_.Write("script-" + std::to_string(scripts_++) + ".sql",
                                           ".load " QUARRY_EXTENSION "\n" + script);
    return RunCommand("sqlite3 -batch " + file + " <" + path + " 2>&1").out;
  }
  std::string Create(const std::string& name, const std::string& more = "") const {
    return "CREATE VIRTUAL TABLE " + name + " USING quarry('" + store_.path() + "'" + more + ");\n";
  }

  SqlStore store_{TenNodes(), {.both_directions = true}};
  const TemporaryFolder folder_{"extension"};
  int scripts_ = 0;
};

// Fields are separated by bytes that no field has.
std::string CsvOfShell(const std::string& out) {
  std::string csv, field;
  for (const char c : out) {
    if (c != '\x1e' && c != '\x1f') {
      field += c;
      continue;
    }
    csv += CsvField(field) + (c == '\x1f' ? "," : "\n");
    field.clear();
  }
  return csv + field;
}

TEST_F(ExtensionTest, TheShellGivesWhatTheScriptsExpect) {
  for (const fs::path& path : Scripts()) {
    SCOPED_TRACE(path);
    std::string script = ".headers on\n.separator \"\\037\" \"\\036\"\n" + Create("g"), expected;
    for (const ScriptCase& c : ReadScript(path)) {
      if (c.only_quarry || c.fails) continue;
      script += c.sql;
      // The shell prints no names where there are no rows.
      for (size_t i = 0; c.lines.size() > 1 && i < c.lines.size(); ++i) expected += c.lines[i] + "\n";
    }
    EXPECT_EQ(CsvOfShell(RunShell(script)), expected);
  }
}

TEST_F(ExtensionTest, TheShellRefusesWhatTheScriptsExpectToFail) {
  int failing = 0;
  for (const fs::path& path : Scripts()) {
    for (const ScriptCase& c : ReadScript(path)) {
      if (c.only_quarry || !c.fails) continue;
      ++failing;
      const std::string view = "CREATE VIEW seen AS SELECT id FROM nodes;\n";  // of a case before
      EXPECT_THAT(RunShell(Create("g") + view + c.sql), AllOf(HasSubstr("error"), HasSubstr(c.error)))
          << c.name;
    }
  }
  EXPECT_GT(failing, 10);
}

TEST_F(ExtensionTest, PythonGivesWhatTheScriptsExpect) {
  const Outcome outcome =
      RunCommand(QUARRY_PYTHON " " QUARRY_SQL_SCRIPTS "/../run_scripts.py " QUARRY_EXTENSION " " +
                 store_.path() + " " QUARRY_SQL_SCRIPTS);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out;
}

TEST_F(ExtensionTest, TablesHaveTheNameOfTheirDatabaseAndTheFirstOnesNone) {
  const SqlStore other_store(TenNodes());
  const std::string other = folder_.path() + "/other";
  fs::copy(store_.path(), other, fs::copy_options::recursive);
  const std::string out =
      RunShell(Create("g") + "CREATE VIRTUAL TABLE \"it's\" USING quarry('" + other + "', write);\n" +
               "UPDATE \"it's_nodes\" SET label = 40 WHERE id = 4;\n"
               "SELECT a.label, b.label, c.label FROM nodes a, g_nodes b, \"it's_nodes\" c WHERE a.id = 4 "
               "AND b.id = 4 "
               "AND c.id = 4;\n"
               "SELECT count(*) FROM g WHERE name IN ('nodes', 'edges', 'neighbors');\n"
               "DROP TABLE g;\nSELECT count(*) FROM nodes;\nSELECT count(*) FROM \"it's_nodes\";\n");
  EXPECT_THAT(out, AllOf(testing::StartsWith("1|1|40\n3\n"), HasSubstr("no such table: nodes"),
                         testing::EndsWith("\n10\n")));
}

TEST_F(ExtensionTest, ADatabaseIsOpenOnceUnderAllOfItsNamesAndClosedWithTheLast) {
  const std::string out =
      RunShell(Create("g") + Create("h") + Create("k", ", write") + "SELECT count(*) FROM h_nodes;\n" +
               "DROP TABLE g;\nDROP TABLE h;\n" + Create("k", ", write") +
               "UPDATE nodes SET label = 5 WHERE id = 2;\nSELECT label FROM k_nodes WHERE id = 2;\n");
  EXPECT_THAT(out,
              AllOf(HasSubstr("table \"g\" has it open without writing"), testing::EndsWith("\n10\n5\n")));
}

TEST_F(ExtensionTest, ATransactionIsOneCommitOrNone) {
  const std::string out =
      RunShell(Create("g", ", write") +
               "BEGIN;\nUPDATE nodes SET label = 21 WHERE id = 1;\nUPDATE features SET feature = "
               "vec_from_json('[9,9,9,9]') "
               "WHERE id = 1;\nSELECT label FROM nodes WHERE id = 1;\nROLLBACK;\nSELECT label FROM nodes "
               "WHERE id = 1;\n"
               "BEGIN;\nUPDATE nodes SET label = 22 WHERE id = 1;\nUPDATE features SET feature = "
               "vec_from_json('[9,9,9,9]') "
               "WHERE id = 1;\nCOMMIT;\nSELECT label, n.timestamp, vec_to_json(feature), f.timestamp FROM "
               "nodes n JOIN "
               "features f ON f.id = n.id WHERE n.id = 1;\nUPDATE nodes SET label = -5 WHERE id = 1;\n");
  EXPECT_THAT(out, AllOf(testing::StartsWith("21\n1\n22|1|[9,9,9,9]|1\n"), HasSubstr("the label of node 1")));
  EXPECT_EQ(RunShell(Create("g") + "SELECT label FROM nodes WHERE id = 1;\n"), "22\n");
}

TEST_F(ExtensionTest, TheGraphGrowsStatementByStatement) {
  SqlStore plain{testing_util::TinyGraph{.nodes = 20, .dim = 1}};  // of one relation
  plain.CloseStore();
  const std::string out =
      RunShell("CREATE VIRTUAL TABLE g USING quarry('" + plain.path() + "', write);\n" +
               "INSERT INTO nodes (label) VALUES (7);\nINSERT INTO nodes (label) VALUES (8);\nSELECT "
               "last_insert_rowid();\n"
               "INSERT OR REPLACE INTO features (id, feature) VALUES (21, vec_from_json('[5]'));\n"
               "INSERT INTO edges (src, dst) VALUES (20, 21), (21, 20);\nDELETE FROM edges WHERE src = 21;\n"
               "SELECT id, label, vec_to_json(feature) FROM nodes JOIN features USING (id) WHERE id > 19;\n"
               "SELECT src, dst FROM edges WHERE src > 19 OR dst > 19;\n");
  EXPECT_EQ(out, "21\n20|7|[0]\n21|8|[5]\n20|21\n");
}

TEST_F(ExtensionTest, ALaterSessionHasTheTableAndThenTheOthers) {
  const std::string file = folder_.path() + "/notes.sqlite";
  EXPECT_EQ(
      RunShell(Create("g") + "CREATE TABLE notes(id, text);\nINSERT INTO notes VALUES (3, 'mine');\n", file),
      "");
  EXPECT_EQ(
      RunShell("SELECT name FROM g LIMIT 1;\nSELECT text, label FROM notes JOIN nodes USING (id);\n", file),
      "nodes\nmine|0\n");
}

TEST_F(ExtensionTest, SaysWhatIsWrong) {
  EXPECT_THAT(RunShell("CREATE VIRTUAL TABLE g USING quarry('/nowhere');\n"),
              HasSubstr("there is no such database"));
  for (const char* arguments : {"", "()", "(nowhere)", "('a', 'b')", "('a', write, 'c')", "('a)"}) {
    EXPECT_THAT(RunShell("CREATE VIRTUAL TABLE g USING quarry" + std::string(arguments) + ";\n"),
                HasSubstr("error"))
        << arguments;
  }
  EXPECT_THAT(RunShell(Create("g") + "UPDATE nodes SET label = 1;\n"),
              HasSubstr("nodes may not be modified"));
  EXPECT_THAT(RunShell(Create("g") + "UPDATE g SET name = 1;\n"), HasSubstr("g may not be modified"));
}

TEST(ExtensionSymbolsTest, OnlyTheEntryIsSeenOutside) {
  const Outcome outcome = RunCommand("nm -D --defined-only " QUARRY_EXTENSION ".so");
  EXPECT_THAT(outcome.out, HasSubstr(" T sqlite3_extension_init\n"));
  EXPECT_EQ(std::ranges::count(outcome.out, '\n'), 1) << outcome.out;
}

}  // namespace
}  // namespace quarry
