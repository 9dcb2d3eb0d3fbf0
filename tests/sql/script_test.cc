// The scripts of tests/sql/scripts, through the API and through `quarry sql`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "quarry/import/import.h"
#include "sql/script.h"
#include "sql/sql_database.h"
#include "support/file_text.h"
#include "support/temporary_folder.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using namespace testing_util;  // NOLINT: a test of what it has

// What `quarry sql --csv` prints of a statement.
Status Print(sql::Rows& rows, std::vector<std::string>& lines) {
  std::string line;
  for (int i = 0; i < rows.column_count(); ++i) {
    line += (i > 0 ? "," : "") + CsvField(std::string(rows.column_name(i)));
  }
  if (rows.column_count() > 0) lines.push_back(line);
  while (true) {
    QUARRY_TRY(const bool more, rows.Next());
    if (!more) return Status::Ok();
    line.clear();
    for (int i = 0; i < rows.column_count(); ++i) {
      const bool blob = rows.type(i) == sql::Rows::Type::kBlob;
      line += (i > 0 ? "," : "") + CsvField(blob ? Hex(rows.Blob(i)) : std::string(rows.Text(i)));
    }
    lines.push_back(line);
  }
}

class ScriptTest : public testing::TestWithParam<fs::path> {
 protected:
  static std::unique_ptr<SqlStore> MakeStore(bool both_directions) {
    return std::make_unique<SqlStore>(TenNodes(), ImportOptions{.both_directions = both_directions});
  }
};

TEST_P(ScriptTest, GivesTheSameThroughTheApiWithAndWithoutOutgoingLists) {
  for (const bool both_directions : {false, true}) {
    const auto store = MakeStore(both_directions);
    for (const ScriptCase& c : ReadScript(GetParam())) {
      SCOPED_TRACE(c.group + ": " + c.name + (both_directions ? " (CSR)" : ""));
      std::vector<std::string> lines;
      const Status status = store->sql().Run(c.sql, [&](sql::Rows& rows) { return Print(rows, lines); });
      EXPECT_EQ(status.ok(), !c.fails) << status.ToString();
      if (c.fails) {
        EXPECT_THAT(status.ToString(), HasSubstr(c.error));
      } else {
        EXPECT_EQ(lines, c.lines);
      }
    }
  }
}

#ifdef QUARRY_BINARY
Outcome RunQuarry(const std::string& arguments) { return RunCommand(QUARRY_BINARY " " + arguments); }

TEST_P(ScriptTest, GivesTheSameThroughTheCommandLine) {
  const auto store = MakeStore(/*both_directions=*/true);
  store->CloseStore();  // the command locks it
  const TemporaryFolder folder("script");
  std::string script, expected;
  for (const ScriptCase& c : ReadScript(GetParam())) {
    if (c.fails) continue;
    script += "-- " + c.name + "\n" + c.sql;
    for (const std::string& line : c.lines) expected += line + "\n";
  }
  const Outcome outcome = RunQuarry("sql " + store->path() + " --csv <" + folder.Write("script.sql", script));
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, expected);
}

TEST(SqlCommandTest, EndsAtTheFirstErrorWithItsLine) {
  SqlStore store(TenNodes());
  store.CloseStore();
  const Outcome outcome =
      RunQuarry("sql " + store.path() + " 'SELECT 1;\n SELECT id FORM nodes; SELECT 2;' --csv 2>&1");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("1\n1\n"), Not(HasSubstr("2\n2\n")),
                                 HasSubstr("quarry: invalid argument: line 2: near \"nodes\"")));
}

TEST(SqlCommandTest, PrintsJsonAndFrames) {
  SqlStore store(TenNodes());
  store.CloseStore();
  const std::string statement = " \"SELECT id, name, label FROM nodes WHERE id > 7; SELECT 1 WHERE 0\"";
  EXPECT_EQ(RunQuarry("sql " + store.path() + statement + " --json").out,
            "[{\"id\":8,\"name\":\"node-8\",\"label\":2},\n"
            " {\"id\":9,\"name\":\"O'Neil; DROP \\\"x\\\"\",\"label\":null}]\n"
            "[]\n");
  EXPECT_EQ(RunQuarry("sql " + store.path() + " \"SELECT id, name FROM nodes WHERE id = 8\"").out,
            "┌────┬────────┐\n"
            "│ id │ name   │\n"
            "├────┼────────┤\n"
            "│  8 │ node-8 │\n"
            "└────┴────────┘\n");
}

// Scripts, of which lines that begin with a dot are commands.
class SqlScriptTest : public testing::Test {
 protected:
  SqlScriptTest() { store_.CloseStore(); }
  Outcome Run(const std::string& script) {
    return RunQuarry("sql " + store_.path() + " <" + folder_.Write("script.sql", script) + " 2>&1");
  }
  std::string Path(const std::string& name) const { return folder_.path() + "/" + name; }
  std::string ReadText(const std::string& name) const { return testing_util::FileText(Path(name)); }

  SqlStore store_{TenNodes()};
  TemporaryFolder folder_{"sql_script_test"};
};

TEST_F(SqlScriptTest, ModesSayHowRowsArePrinted) {
  const std::string select = "SELECT id, name FROM nodes WHERE id = 8;\n";
  EXPECT_EQ(Run(".mode line\n" + select).out, "  id = 8\nname = node-8\n");
  EXPECT_EQ(Run(".mode markdown\n" + select).out,
            "| id | name |\n"
            "| --- | --- |\n"
            "| 8 | node-8 |\n");
  EXPECT_EQ(Run(".mode csv\n" + select).out, "id,name\n8,node-8\n");
  const Outcome none = Run(".mode tabs\n" + select);
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.out, HasSubstr("line 1: .mode tabs: it is one of box, csv, json, line, markdown"));
}

TEST_F(SqlScriptTest, OutputsGoToFiles) {
  const std::string script = ".mode csv\n.once " + Path("once.csv") +
                             "\nSELECT 1 AS a;\nSELECT 2 AS b;\n.output " + Path("rest.csv") +
                             "\nSELECT 3 AS c;\nSELECT 4 AS d;\n.output\nSELECT 5 AS e;\n";
  EXPECT_EQ(Run(script).out, "b\n2\ne\n5\n");
  EXPECT_EQ(ReadText("once.csv"), "a\n1\n");
  EXPECT_EQ(ReadText("rest.csv"), "c\n3\nd\n4\n");
  const Outcome refused = Run(".output /nowhere/file\nSELECT 1;\n");
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.out, HasSubstr("/nowhere/file"));
}

TEST_F(SqlScriptTest, FilesOfStatementsAreRead) {
  folder_.Write("inner.sql", "SELECT 1 AS a;\nSELECT nobody FROM nodes;\n");
  const Outcome outcome = Run(".mode csv\n.read " + Path("inner.sql") + "\nSELECT 2;\n");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("a\n1\n"), HasSubstr("inner.sql"), HasSubstr("line 2"),
                                 HasSubstr("no such column: nobody"), Not(HasSubstr("2\n2\n"))));
  folder_.Write("itself.sql", ".read " + Path("itself.sql") + "\n");
  EXPECT_THAT(Run(".read " + Path("itself.sql") + "\n").out, HasSubstr("files read one another already"));
}

TEST_F(SqlScriptTest, RowsBehindTheLimitAreCounted) {
  const std::string out = Run(".limit 3\nSELECT id FROM nodes;\n").out;
  EXPECT_THAT(out, AllOf(HasSubstr("│  2 │"), Not(HasSubstr("│  3 │")), HasSubstr("10 rows"))) << out;
  EXPECT_THAT(Run("SELECT id FROM nodes;\n").out, HasSubstr("│  9 │")) << "files and pipes get all";
  EXPECT_EQ(Run(".limit few\n").exit_code, 2);
}

TEST_F(SqlScriptTest, WhatWasProbablyMeantIsSaid) {
  EXPECT_THAT(Run("SELECT * FROM node;\n").out, HasSubstr("did you mean 'nodes'?"));
  EXPECT_THAT(Run("SELECT lable FROM nodes;\n").out, HasSubstr("did you mean 'label'?"));
  EXPECT_THAT(Run(".shema\n").out, HasSubstr("did you mean '.schema'?"));
  EXPECT_THAT(Run("UPDATE nodes SET label = 1 WHERE id = 1;\n").out,
              HasSubstr("may not be modified without --write"));
}

TEST(SqlCommandTest, AStatementThatRunsTooLongIsStopped) {
  SqlStore store(TenNodes());
  store.CloseStore();
  const Outcome outcome = RunQuarry("sql " + store.path() +
                                    " \"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
                                    "SELECT count(*) FROM n\" --timeout 0.2 2>&1");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("the statement took longer than 0.2 s"));
}
#endif

INSTANTIATE_TEST_SUITE_P(Sql, ScriptTest, testing::ValuesIn(Scripts()),
                         [](const auto& test) { return test.param.stem().string(); });

}  // namespace
}  // namespace quarry
