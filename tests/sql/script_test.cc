// The scripts of tests/sql/scripts, through the API and through `quarry sql`. What they expect is what plain
// SQLite tables of the same content give.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "sql/sql_database.h"
#include "support/temporary_folder.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing_util::SqlStore;
using testing_util::TenNodes;

// -- name: a sentence
// -- group: the script
// SELECT ...;
// ----                 or, in its place: ---- error: what the message contains
// the lines that `quarry sql --csv` prints
struct Case {
  std::string name, group, sql;
  bool fails = false;
  std::string error;
  std::vector<std::string> lines;
};

std::vector<Case> ReadScript(const fs::path& path) {
  constexpr std::string_view kName = "-- name: ", kGroup = "-- group: ", kResult = "----",
                             kError = "---- error: ";
  std::vector<Case> cases;
  std::ifstream file(path);
  bool in_result = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(kName)) {
      in_result = false;
      cases.push_back({.name = line.substr(kName.size())});
    } else if (line.starts_with(kGroup)) {
      cases.back().group = line.substr(kGroup.size());
    } else if (line.starts_with(kResult)) {
      in_result = true;
      cases.back().fails = line.starts_with(kError);
      if (cases.back().fails) cases.back().error = line.substr(kError.size());
    } else if (in_result) {
      cases.back().lines.push_back(line);
    } else {
      cases.back().sql += line + "\n";
    }
  }
  for (Case& c : cases) {
    if (!c.lines.empty() && c.lines.back().empty()) c.lines.pop_back();  // between two cases
  }
  return cases;
}

std::vector<fs::path> Scripts() {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(QUARRY_SQL_SCRIPTS)) paths.push_back(entry.path());
  std::ranges::sort(paths);
  return paths;
}

std::string CsvField(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

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
      line +=
          (i > 0 ? "," : "") + CsvField(blob ? testing_util::Hex(rows.Blob(i)) : std::string(rows.Text(i)));
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
    for (const Case& c : ReadScript(GetParam())) {
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
struct Outcome {
  int exit_code = -1;
  std::string out;
};

Outcome RunQuarry(const std::string& arguments) {
  FILE* const pipe = popen((QUARRY_BINARY " " + arguments).c_str(), "r");
  if (pipe == nullptr) return {};
  Outcome outcome;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) outcome.out += static_cast<char>(c);
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

TEST_P(ScriptTest, GivesTheSameThroughTheCommandLine) {
  const auto store = MakeStore(/*both_directions=*/true);
  store->CloseStore();  // the command locks it
  const TemporaryFolder folder("script");
  std::string script, expected;
  for (const Case& c : ReadScript(GetParam())) {
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
            "│ 8  │ node-8 │\n"
            "└────┴────────┘\n");
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
