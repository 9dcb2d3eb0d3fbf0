// What a server does with clients of SQL that ask for too much, or go away; and they with a server that does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <thread>

#include "client/query_util.h"
#include "client/store_util.h"
#include "server/served_database.h"
#include "server/wire_peer.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using namespace testing_util;  // NOLINT: a test of what it has
using testing::AllOf;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ServedQueryTest : public testing::Test {
 protected:
  std::string socket() const { return folder_ / "socket/q.sock"; }
  std::unique_ptr<client::Store> Connect() {
    return client::Open(server_.address(), {.memory_bytes = 64 * kMiB}).value();
  }
  // A snapshot pins the files of its tables: while there is one, the table cannot go.
  Status DropLabels() { return server_.store().DropTable("label"); }

  TemporaryFolder folder_{"query"};
  TinyDatabase database_{{.nodes = 200}};
  TestServer server_{database_.path(), folder_ / "socket/q.sock"};
};

class SqlPeer : public WirePeer {
 public:
  explicit SqlPeer(const std::string& socket) : WirePeer(socket) {
    EXPECT_OK(Open(16 << 20, wire::kInline | wire::kSql));
    const auto opened = CallFor<wire::SqlOpened>(wire::OpenSql{});
    EXPECT_OK(opened);
    sql = opened->connection;
  }
  wire::Query Query(std::string_view text) const {
    const auto bytes = std::as_bytes(std::span(text));
    return {.connection = sql, .text = std::vector<std::byte>(bytes.begin(), bytes.end())};
  }
  uint64_t sql = 0;
};

TEST_F(ServedQueryTest, TemporaryFilesAreOnTheAccountThatTheServerGives) {
  const auto runner = MakeSqlRunner(server_.store());
  MemoryBudget budget(64 * kMiB);
  const auto account = [](int64_t bytes) {
    return bytes > 0 ? Status(Code::kNoSpace, "no files for this one") : Status::Ok();
  };
  const auto connection = runner->Connect(budget, {.temp_files = account}).value();
  ASSERT_OK_AND_ASSIGN(
      const auto cursor,
      connection->Query("WITH RECURSIVE c(x) AS (VALUES (1) UNION ALL SELECT x + 1 FROM c WHERE x < 200000)"
                        " SELECT hex(randomblob(30)) AS key FROM c ORDER BY key",
                        {}));
  const auto rows = cursor->Rows(1000);
  EXPECT_THAT(rows, IsStatus(Code::kNoSpace, HasSubstr("no files for this one")));
}

TEST_F(ServedQueryTest, APeerThatVanishesWithACursorOpenLeavesNoSnapshot) {
  SqlPeer peer(socket());
  ASSERT_OK_AND_ASSIGN(
      const auto statement,
      peer.CallFor<wire::Statement>(peer.Query("SELECT a.id, a.label FROM nodes a, nodes b, nodes c")));
  ASSERT_OK_AND_ASSIGN(const auto page, peer.CallFor<wire::SqlRows>(wire::Fetch{statement.cursor}));
  EXPECT_FALSE(page.last);
  EXPECT_THAT(DropLabels(), IsStatus(Code::kBusy)) << "the cursor has a snapshot";
  peer.Close();
  Status dropped;
  EXPECT_TRUE(Eventually([&] {
    dropped = DropLabels();
    return dropped.ok();
  })) << dropped.ToString();
}

TEST_F(ServedQueryTest, APeerThatVanishesWhileItsStatementRunsLeavesNoSnapshot) {
  SqlPeer peer(socket());
  const auto cursor =
      peer.CallFor<wire::Statement>(peer.Query("SELECT a.label FROM nodes a, nodes b, nodes c"));
  const auto endless = peer.CallFor<wire::Statement>(peer.Query(kEndless));
  ASSERT_OK(cursor);
  ASSERT_OK(endless);
  ASSERT_OK(peer.CallFor<wire::SqlRows>(wire::Fetch{cursor->cursor}));
  EXPECT_THAT(DropLabels(), IsStatus(Code::kBusy)) << "the connection has a snapshot";
  peer.Send(wire::Fetch{endless->cursor});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // for it to run, and not only to wait
  peer.Close();
  EXPECT_TRUE(Eventually([&] { return DropLabels().ok(); }));
}

TEST_F(ServedQueryTest, ACancelledFetchEndsItsStatement) {
  SqlPeer peer(socket());
  ASSERT_OK_AND_ASSIGN(const auto statement, peer.CallFor<wire::Statement>(peer.Query(kEndless)));
  const uint64_t fetch = peer.Send(wire::Fetch{statement.cursor});
  EXPECT_OK(peer.CallFor<wire::Done>(wire::Ping{})) << "others are answered meanwhile";
  EXPECT_OK(peer.CallFor<wire::Done>(wire::Cancel{fetch}));
  EXPECT_THAT(peer.Await(fetch, 2), IsStatus(Code::kCancelled));
}

// As many statements as there are threads for them, which none of them ever leaves.
class BusyThreads {
 public:
  explicit BusyThreads(const std::string& socket) {
    for (auto& peer : peers_) {
      peer = std::make_unique<SqlPeer>(socket);
      const auto statement = peer->CallFor<wire::Statement>(peer->Query(kEndless));
      EXPECT_OK(statement);
      fetches_.push_back(peer->Send(wire::Fetch{statement->cursor}));
    }
  }
  void FreeOne() { EXPECT_OK(peers_[0]->CallFor<wire::Done>(wire::Cancel{fetches_[0]})); }

 private:
  std::array<std::unique_ptr<SqlPeer>, 4> peers_;
  std::vector<uint64_t> fetches_;
};

TEST_F(ServedQueryTest, BesideStatementsOfOthersAConnectionOpensAtOnceAndAStatementWaitsForItsTimeout) {
  BusyThreads busy(socket());
  const auto store = Connect();
  std::unique_ptr<client::SqlConnection> sql, patient;
  const double opening = SecondsOf([&] {
    sql = store->Connect({.timeout_seconds = 0.5}).value();
    patient = store->Connect({.timeout_seconds = 20}).value();
  });
  EXPECT_LT(opening, 30) << "the store's timeout is a minute";
  std::vector<std::string> lines;
  const double waited = SecondsOf([&] { lines = LinesOf(*sql, "SELECT 1"); });
  EXPECT_THAT(lines, ElementsAre(AllOf(HasSubstr("has waited 0.5 s"), HasSubstr("run other statements"))));
  EXPECT_GE(waited, 0.5);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    busy.FreeOne();
  });
  EXPECT_THAT(LinesOf(*patient, "SELECT 2"), ElementsAre("2"));
  later.join();
  EXPECT_THAT(LinesOf(*sql, "SELECT 3"), ElementsAre("3")) << "it lost nothing";
}

TEST_F(ServedQueryTest, BesideItsOwnStatementAConnectionOpensAtOnce) {
  SqlPeer peer(socket());
  ASSERT_OK_AND_ASSIGN(const auto statement, peer.CallFor<wire::Statement>(peer.Query(kEndless)));
  const uint64_t fetch = peer.Send(wire::Fetch{statement.cursor});
  ASSERT_OK_AND_ASSIGN(const auto opened,
                       peer.CallFor<wire::SqlOpened>(wire::OpenSql{.timeout_seconds = 0.2}));
  wire::Query query = peer.Query("SELECT 1");
  query.connection = opened.connection;
  const Status waited = peer.Call(query).status();
  EXPECT_THAT(waited, IsStatus(Code::kCancelled, HasSubstr("has waited 0.2 s")));
  EXPECT_OK(peer.CallFor<wire::Done>(wire::Cancel{fetch}));
  EXPECT_THAT(peer.Await(fetch), IsStatus(Code::kCancelled));
  EXPECT_OK(peer.CallFor<wire::Statement>(query));
}

// Ids are no secret: who guesses one before it is told has no connection yet.
TEST_F(ServedQueryTest, AConnectionIsThereOnceItIsTold) {
  SqlPeer peer(socket());
  for (int round = 0; round < 20; ++round) {
    const uint64_t opening = peer.Send(wire::OpenSql{});
    wire::Query query = peer.Query("SELECT 1");
    query.connection = ++peer.sql;
    const uint64_t asked = peer.Send(query);
    ASSERT_OK_AND_ASSIGN(const auto opened, peer.Await(opening));
    const uint64_t id = std::get<wire::SqlOpened>(opened).connection;
    const auto answer = peer.Await(asked);
    EXPECT_TRUE(answer.ok() || answer.status().code() == Code::kUsage) << answer.status().ToString();
    EXPECT_OK(peer.CallFor<wire::Done>(wire::CloseSql{id}));
    peer.sql = answer.ok() ? std::get<wire::Statement>(*answer).cursor : id;
  }
}

TEST_F(ServedQueryTest, RequestsForTenGigabytesAreRefused) {
  SqlPeer peer(socket());
  const wire::Range large = {.region = 1, .bytes = uint64_t{10} << 30};
  const wire::Limits any;
  EXPECT_FALSE(wire::EncodeRequest(1, wire::Query{.connection = peer.sql, .text = large}, any).ok());
  // Values of a peer's own making: what decodes is checked again.
  wire::Query query = peer.Query("SELECT ?1");
  query.parameters = 1;
  query.values =
      std::vector<std::byte>{std::byte{4}, std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0xf0}};
  EXPECT_THAT(peer.Call(query).status().ToString(), HasSubstr("parameter 1: a value of 4026531840 bytes"));
  query.values = std::vector<std::byte>{std::byte{3}, std::byte{9}, std::byte{0}, std::byte{0}, std::byte{0}};
  EXPECT_THAT(peer.Call(query).status().ToString(), HasSubstr("parameter 1: its bytes are cut short"));
  query.values = std::vector<std::byte>{std::byte{77}};
  EXPECT_THAT(peer.Call(query).status().ToString(), HasSubstr("a value of type 77"));
  query.values = std::vector<std::byte>(3);
  EXPECT_THAT(peer.Call(query).status().ToString(), HasSubstr("2 bytes behind the last of 1 parameters"));
  query.parameters = 0;
  query.values = large;
  EXPECT_FALSE(wire::EncodeRequest(1, query).ok());
}

TEST_F(ServedQueryTest, StatementsCannotTakeTheServersMemory) {
  const auto store = Connect();
  const auto sql = store->Connect().value();
  const auto other = Connect()->Connect();
  for (const char* text :
       {// An aggregate tells of memory that it did not get when it has seen all rows.
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100000) SELECT count(*), "
        "group_concat(hex(randomblob(1000))) FROM n",
        "CREATE TABLE t AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT "
        "randomblob(100000) FROM n",
        "SELECT length(randomblob(50000000)) + length(randomblob(50000000) || randomblob(50000000))"}) {
    SCOPED_TRACE(text);
    const auto lines = LinesOf(*sql, text);
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_THAT(lines[0], AnyOf(HasSubstr("out of memory"), HasSubstr("too big"),
                                HasSubstr("database or disk is full")));
  }
  EXPECT_THAT(LinesOf(*sql, "SELECT count(*) FROM nodes"), ElementsAre("200"));
}

// In a server of 640 MiB, sessions share three quarters, and SQL takes an eighth of the whole from them.
constexpr uint64_t kShared = 480 * kMiB, kSql = 80 * kMiB;
constexpr uint64_t kSqlAndInline = wire::kInline | wire::kSql;

double CounterOf(WirePeer& peer, std::string_view name) {
  const auto counters = peer.CallFor<wire::Counters>(wire::Stats{});
  EXPECT_OK(counters);
  const auto found = std::ranges::find(counters->counters, name, &wire::Counter::name);
  EXPECT_NE(found, counters->counters.end()) << name;
  return found == counters->counters.end() ? -1 : found->value;
}

// What sessions and SQL have of what sessions share.
uint64_t GrantedBytes(WirePeer& peer) {
  return static_cast<uint64_t>(CounterOf(peer, "quarry_budget_granted_bytes"));
}

TEST_F(ServedQueryTest, MemoryForSqlIsTakenFromTheFirstConnectionToTheLast) {
  WirePeer watcher(socket());
  ASSERT_OK(watcher.Hello());
  EXPECT_EQ(GrantedBytes(watcher), 0u);
  {
    WirePeer greedy(socket());
    EXPECT_OK(greedy.Open(kShared)) << "without SQL, a session gets all that sessions share";
  }
  ASSERT_TRUE(Eventually([&] { return GrantedBytes(watcher) == 0; }));
  SqlPeer first(socket());
  EXPECT_EQ(GrantedBytes(watcher), 16 * kMiB + kSql);
  SqlPeer second(socket());
  EXPECT_EQ(GrantedBytes(watcher), 2 * 16 * kMiB + kSql) << "once for all";
  ASSERT_OK(first.CallFor<wire::Statement>(first.Query("SELECT id FROM nodes")));
  first.Close();
  EXPECT_TRUE(Eventually([&] { return GrantedBytes(watcher) == 16 * kMiB + kSql; }));
  // Whoever waits for memory gets it when the last connection closes.
  WirePeer patient(socket());
  ASSERT_OK(patient.Hello());
  const uint64_t rest = kShared - 16 * kMiB;
  const uint64_t open =
      patient.Send(wire::OpenSession{.budget_bytes = rest, .budget_bytes_min = rest, .wait_ms = 20'000});
  EXPECT_TRUE(Eventually([&] { return CounterOf(watcher, "quarry_outstanding_requests") == 2; }));
  ASSERT_OK(second.CallFor<wire::Done>(wire::CloseSql{second.sql}));
  EXPECT_OK(patient.Await(open));
  EXPECT_EQ(GrantedBytes(watcher), kShared);
}

TEST_F(ServedQueryTest, SqlWithoutMemoryIsRefusedAndHasItWhenOthersHaveLeft) {
  WirePeer greedy(socket());
  ASSERT_OK(greedy.Open(kShared - 24 * kMiB));
  WirePeer peer(socket());
  ASSERT_OK(peer.Open(16 * kMiB, kSqlAndInline));
  EXPECT_EQ(
      peer.Call(wire::OpenSql{}).status().ToString(),
      "out of budget: SQL takes at least 16.0 MiB of what sessions share, and 8.00 MiB of the 480 MiB are "
      "free: open a session of less, or wait for others to leave");
  greedy.Close();
  EXPECT_TRUE(Eventually([&] { return peer.CallFor<wire::SqlOpened>(wire::OpenSql{}).ok(); }));
  EXPECT_EQ(GrantedBytes(peer), 16 * kMiB + kSql);
}

TEST_F(ServedQueryTest, SqlHasWhatIsFreeOfItAndIsHeldToThat) {
  WirePeer greedy(socket());
  ASSERT_OK(greedy.Open(kShared - 36 * kMiB));
  SqlPeer peer(socket());
  EXPECT_EQ(GrantedBytes(peer), kShared) << "20 MiB for SQL";
  const char* const text = "SELECT length(randomblob(30000000))";
  ASSERT_OK_AND_ASSIGN(const auto refused, peer.CallFor<wire::Statement>(peer.Query(text)));
  EXPECT_THAT(peer.Call(wire::Fetch{refused.cursor}), IsStatus(Code::kOutOfBudget));
  peer.Close();
  greedy.Close();
  WirePeer watcher(socket());
  ASSERT_OK(watcher.Hello());
  ASSERT_TRUE(Eventually([&] { return GrantedBytes(watcher) == 0; }));
  SqlPeer other(socket());
  EXPECT_EQ(GrantedBytes(watcher), 16 * kMiB + kSql);
  ASSERT_OK_AND_ASSIGN(const auto statement, other.CallFor<wire::Statement>(other.Query(text)));
  EXPECT_OK(other.CallFor<wire::SqlRows>(wire::Fetch{statement.cursor}));
}

TEST_F(ServedQueryTest, WhatIsOfTheProcessIsNotForAStranger) {
  const auto store = Connect();
  const auto sql = store->Connect({.write = true}).value();
  for (const char* text :
       {"PRAGMA hard_heap_limit = 1", "PRAGMA soft_heap_limit = 1", "PRAGMA Hard_Heap_Limit(1)",
        "PRAGMA temp_store_directory = '/'", "PRAGMA temp_store = memory", "PRAGMA cache_size = -1000000000",
        "PRAGMA writable_schema = 1"}) {
    SCOPED_TRACE(text);
    const auto lines = LinesOf(*sql, text);
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_THAT(lines[0], HasSubstr("not authorized"));
  }
  const std::string file = folder_ / "stolen";
  for (const std::string& text : {"ATTACH '" + file + "' AS a", "VACUUM INTO '" + file + "'",
                                  std::string("SELECT load_extension('x')")}) {
    EXPECT_THAT(LinesOf(*sql, text), ElementsAre(HasSubstr("invalid argument"))) << text;
  }
  EXPECT_FALSE(std::filesystem::exists(file));
  EXPECT_THAT(LinesOf(*sql, "SELECT count(*) FROM pragma_table_info('nodes') WHERE name = 'id'"),
              ElementsAre("1"));
}

TEST_F(ServedQueryTest, ASessionHasSoManyConnectionsAndCursors) {
  SqlPeer peer(socket());
  std::vector<uint64_t> connections = {peer.sql};
  while (true) {
    const auto opened = peer.CallFor<wire::SqlOpened>(wire::OpenSql{});
    if (!opened.ok()) {
      EXPECT_EQ(opened.status().ToString(), "out of budget: this session has 16 SQL connections: close some");
      break;
    }
    connections.push_back(opened->connection);
    ASSERT_LE(connections.size(), 16u);
  }
  EXPECT_EQ(connections.size(), 16u);
  uint64_t cursors = 0, last = 0;
  while (true) {
    const auto statement = peer.CallFor<wire::Statement>(peer.Query("SELECT id FROM nodes"));
    if (!statement.ok()) {
      EXPECT_EQ(statement.status().ToString(), "out of budget: this session has 64 cursors open: close some");
      break;
    }
    last = statement->cursor;
    ASSERT_LE(++cursors, 64u);
  }
  EXPECT_EQ(cursors, 64u);
  EXPECT_OK(peer.CallFor<wire::Done>(wire::CloseQuery{last}));
  EXPECT_OK(peer.CallFor<wire::Statement>(peer.Query("SELECT 1")));
  EXPECT_THAT(peer.Call(wire::Fetch{last}), IsStatus(Code::kUsage));
  EXPECT_THAT(peer.Call(wire::CloseQuery{last}), IsStatus(Code::kUsage));
  EXPECT_OK(peer.CallFor<wire::Done>(wire::CloseSql{peer.sql}));
  EXPECT_THAT(peer.Call(peer.Query("SELECT 1")), IsStatus(Code::kUsage));
  EXPECT_THAT(peer.Call(wire::CloseSql{peer.sql}), IsStatus(Code::kUsage));
  EXPECT_THAT(peer.Call(wire::Fetch{last - 1}), IsStatus(Code::kUsage)) << "it went with its connection";
  EXPECT_OK(peer.CallFor<wire::SqlOpened>(wire::OpenSql{}));
}

TEST_F(ServedQueryTest, AStatementThatLosesItsServerSaysSoAndTheNextHasAnother) {
  const auto store = Connect();
  const auto sql = store->Connect().value();
  ASSERT_THAT(LinesOf(*sql, "CREATE TABLE t(a)"), IsEmpty());
  server_.Stop();
  server_.Start();
  EXPECT_THAT(LinesOf(*sql, "SELECT * FROM t"),
              ElementsAre(HasSubstr("the server went away, and what was not committed is gone")));
  EXPECT_THAT(LinesOf(*sql, "SELECT * FROM t"), ElementsAre(HasSubstr("no such table: t")));
  EXPECT_THAT(LinesOf(*sql, "SELECT 1"), ElementsAre("1"));
}

TEST_F(ServedQueryTest, AServerThatStopsEndsItsStatements) {
  const auto store = Connect();
  const auto sql = store->Connect().value();
  std::thread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // mostly, the statement runs by then
    server_.Stop();
  });
  const auto lines = LinesOf(*sql, kEndless);
  stopper.join();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], AnyOf(HasSubstr("cancelled"), HasSubstr("the server went away")));
}

TEST_F(ServedQueryTest, AServerWithoutSqlSaysSo) {
  server_.Stop();
  const auto backend = MakeDefaultBackend();
  const auto opened = quarry::Store::Open(*backend, database_.path()).value();
  MemoryBudget budget(64 * kMiB);
  const auto server = Server::Start(*opened, budget, {.socket_path = folder_ / "plain/q.sock"}).value();
  const auto store = client::Open("unix:" + (folder_ / "plain/q.sock")).value();
  const Status refused = store->Query("SELECT 1").status();
  EXPECT_THAT(refused, IsStatus(Code::kUnsupported, HasSubstr("the server runs no SQL")));
}

}  // namespace
}  // namespace quarry
