// The scripts of tests/sql/scripts through a server's socket: through the client library, held against what
// the same statement says locally, errors too; and through `quarry sql unix:PATH`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "client/store_util.h"
#include "quarry/client/store.h"
#include "quarry/import/import.h"
#include "sql/script.h"
#include "sql/sql_database.h"
#include "support/status_matchers.h"
#include "support/temporary_folder.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using client::RowCursor;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing_util::CsvField;
using testing_util::ReadScript;
using testing_util::ScriptCase;
using testing_util::Scripts;
using testing_util::SqlStore;
using testing_util::TenNodes;
using testing_util::TestServer;

template <typename Rows, typename Columns, typename Field>
Status PrintWith(Rows& rows, const Columns& columns, const Field& field, std::vector<std::string>& lines) {
  std::string line;
  for (size_t i = 0; i < columns.size(); ++i) line += (i > 0 ? "," : "") + CsvField(std::string(columns[i]));
  if (!columns.empty()) lines.push_back(line);
  while (true) {
    QUARRY_TRY(const bool more, rows.Next());
    if (!more) return Status::Ok();
    line.clear();
    for (size_t i = 0; i < columns.size(); ++i) line += (i > 0 ? "," : "") + CsvField(field(i));
    lines.push_back(line);
  }
}

// What `quarry sql --csv` prints of a statement.
Status Print(RowCursor& rows, std::vector<std::string>& lines) {
  const auto field = [&](size_t i) {
    const client::ValueView value = rows.value(i);
    const auto* const blob = std::get_if<std::span<const std::byte>>(&value);
    return blob != nullptr ? testing_util::Hex(*blob) : rows.Text(i);
  };
  return PrintWith(rows, rows.columns(), field, lines);
}
Status Print(sql::Rows& rows, std::vector<std::string>& lines) {
  std::vector<std::string> columns;
  for (int i = 0; i < rows.column_count(); ++i) columns.emplace_back(rows.column_name(i));
  const auto field = [&](size_t place) {
    const int i = static_cast<int>(place);
    const bool blob = rows.type(i) == sql::Rows::Type::kBlob;
    return blob ? testing_util::Hex(rows.Blob(i)) : std::string(rows.Text(i));
  };
  return PrintWith(rows, columns, field, lines);
}

// What a case comes to: its lines, and last its error, if it has one.
template <typename Connection>
std::vector<std::string> Outcome(Connection& sql, const ScriptCase& c) {
  std::vector<std::string> lines;
  const Status status = sql.Run(c.sql, [&](auto& rows) { return Print(rows, lines); });
  if (!status.ok()) lines.push_back(status.ToString());
  return lines;
}

// The ten nodes, and in time a server of theirs.
class SocketTest : public testing::Test {
 protected:
  void Serve() {
    store_.CloseStore();
    server_.emplace(store_.path(), folder_ / "socket/q.sock");
  }
  std::string address() const { return server_->address(); }
#ifdef QUARRY_BINARY
  testing_util::Outcome Command(const std::string& arguments) {
    return testing_util::RunCommand(QUARRY_BINARY " sql " + address() + " " + arguments);
  }
#endif

  const TemporaryFolder folder_{"sql_socket"};
  SqlStore store_{TenNodes(), ImportOptions{.both_directions = true}};
  std::optional<TestServer> server_;
};

class SocketScriptTest : public SocketTest, public testing::WithParamInterface<fs::path> {};

TEST_P(SocketScriptTest, GivesTheSameThroughTheSocket) {
  const std::vector<ScriptCase> cases = ReadScript(GetParam());
  std::vector<std::vector<std::string>> local;
  for (const ScriptCase& c : cases) local.push_back(Outcome(store_.sql(), c));
  Serve();
  const auto served = client::Open(address(), {.memory_bytes = 64 * kMiB}).value();
  const auto sql = served->Connect().value();
  ASSERT_FALSE(cases.empty());
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(cases[i].group + ": " + cases[i].name);
    const std::vector<std::string> lines = Outcome(*sql, cases[i]);
    EXPECT_EQ(lines, local[i]);
    if (cases[i].fails) {
      ASSERT_FALSE(lines.empty());
      EXPECT_THAT(lines.back(), HasSubstr(cases[i].error));
    } else {
      EXPECT_EQ(lines, cases[i].lines);
    }
  }
}

#ifdef QUARRY_BINARY
TEST_P(SocketScriptTest, GivesTheSameThroughTheCommandLine) {
  Serve();
  std::string script, expected;
  for (const ScriptCase& c : ReadScript(GetParam())) {
    if (c.fails) continue;
    script += "-- " + c.name + "\n" + c.sql;
    for (const std::string& line : c.lines) expected += line + "\n";
  }
  const testing_util::Outcome outcome = Command("--csv <" + folder_.Write("script.sql", script));
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, expected);
}

TEST_F(SocketTest, TheCommandPrintsEndsAndFailsAsOnAFolder) {
  Serve();
  const testing_util::Outcome failed = Command("'SELECT 1;\n SELECT id FORM nodes; SELECT 2;' --csv 2>&1");
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_THAT(failed.out, AllOf(HasSubstr("1\n1\n"), Not(HasSubstr("2\n2\n")),
                                HasSubstr("quarry: invalid argument: line 2: near \"nodes\"")));
  EXPECT_EQ(Command("\"SELECT id, name, label FROM nodes WHERE id > 7; SELECT 1 WHERE 0\" --json").out,
            "[{\"id\":8,\"name\":\"node-8\",\"label\":2},\n"
            " {\"id\":9,\"name\":\"O'Neil; DROP \\\"x\\\"\",\"label\":null}]\n"
            "[]\n");
  EXPECT_EQ(Command("\"SELECT id, name FROM nodes WHERE id = 8\"").out,
            "┌────┬────────┐\n"
            "│ id │ name   │\n"
            "├────┼────────┤\n"
            "│  8 │ node-8 │\n"
            "└────┴────────┘\n");
}

TEST_F(SocketTest, TheCommandStopsAndWritesAsItIsTold) {
  Serve();
  const testing_util::Outcome late = Command(
      "\"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n\" "
      "--timeout 0.2 2>&1");
  EXPECT_EQ(late.exit_code, 1);
  EXPECT_THAT(late.out, HasSubstr("the statement took longer than 0.2 s"));
  const std::string update = "\"UPDATE nodes SET label = 5 WHERE id = 1\" ";
  const testing_util::Outcome refused = Command(update + "2>&1");
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.out, HasSubstr("may not be modified"));
  const testing_util::Outcome written = Command(update + "--write 2>&1");
  EXPECT_EQ(written.exit_code, 0);
  EXPECT_THAT(written.out, IsEmpty());
  EXPECT_EQ(Command("\"SELECT label FROM nodes WHERE id = 1\" --csv").out, "label\n5\n");
}

TEST_F(SocketTest, TheCommandLeavesRoomForSqlWhereLittleIsFree) {
  Serve();
  const uint64_t shared = 640 * kMiB / 4 * 3;
  const auto open_but = [&](uint64_t left) {
    return client::Open(
        address(), {.memory_bytes = shared - left, .memory_bytes_min = shared - left, .wait_seconds = 10});
  };
  auto trainer = open_but(64 * kMiB);
  ASSERT_OK(trainer);
  EXPECT_EQ(Command("'SELECT 1' --csv").out, "1\n1\n");
  trainer = Status(Code::kCancelled, "closed");
  trainer = open_but(40 * kMiB);
  ASSERT_OK(trainer);
  const testing_util::Outcome refused = Command("'SELECT 1' --csv 2>&1");
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.out, HasSubstr("out of budget: SQL takes at least 16.0 MiB of what sessions share"));
}

TEST_F(SocketTest, ACommandWithoutAServerSaysSo) {
  const testing_util::Outcome outcome =
      testing_util::RunCommand(QUARRY_BINARY " sql unix:" + (folder_ / "none.sock") + " 'SELECT 1' 2>&1");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("none.sock"));
}
#endif

INSTANTIATE_TEST_SUITE_P(Sql, SocketScriptTest, testing::ValuesIn(Scripts()),
                         [](const auto& test) { return test.param.stem().string(); });

}  // namespace
}  // namespace quarry
