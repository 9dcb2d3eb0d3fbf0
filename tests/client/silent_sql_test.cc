// SQL of a server that does not answer: nobody waits for ever, and a statement that takes long is waited for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "client/fake_server.h"
#include "client/query_util.h"
#include "quarry/client/store.h"
#include "support/status_matchers.h"
#include "support/temporary_folder.h"

namespace quarry {
namespace {

using namespace testing_util;  // NOLINT: a test of what it has
using Reply = FakeServer::Reply;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr double kTimeoutSeconds = 0.5;
constexpr double kLongSeconds = 5;  // more than a pause between pings, the timeout, and a slow machine

// Tests with a server that takes statements, and answers all requests but the first of one kind.
class SilentSqlTest : public testing::Test {
 protected:
  enum class Silent { kQuery, kFetch, kNext };

  std::string socket() const { return folder_ / "q.sock"; }
  static std::unique_ptr<client::Store> Connect(const FakeServer& server) {
    auto store = client::OpenRemote(server.address(), {.timeout_seconds = kTimeoutSeconds});
    EXPECT_OK(store);
    return std::move(store).value();
  }
  // To be silent about a ping, too, is to hang as a whole.
  std::optional<Reply> AnswerTo(uint64_t id, const wire::Request& request, Silent silent, bool pings) {
    if (std::holds_alternative<wire::Hello>(request)) {
      return FakeServer::Answer(id, wire::Welcome{.capabilities = wire::kInline | wire::kSql,
                                                  .limits = {.sessions_max = 4, .budget_bytes = 64 << 20}});
    }
    if (std::holds_alternative<wire::OpenSql>(request)) {
      return FakeServer::Answer(id, wire::SqlOpened{.connection = ++connections_});
    }
    if (std::holds_alternative<wire::Ping>(request)) {
      ++pings_;
      if (!pings) return std::nullopt;
    }
    const auto* fetch = std::get_if<wire::Fetch>(&request);
    const bool query = std::holds_alternative<wire::Query>(request);
    const bool asked = silent == Silent::kQuery  ? query
                       : silent == Silent::kNext ? fetch != nullptr && fetch->next
                                                 : fetch != nullptr && !fetch->next;
    if (asked && !fell_silent_.exchange(true)) {
      unanswered_ = id;
      return std::nullopt;
    }
    if (query) return FakeServer::Answer(id, wire::Statement{.cursor = 1});
    if (fetch != nullptr) return FakeServer::Answer(id, wire::SqlRows{.last = true});
    if (std::holds_alternative<wire::OpenSession>(request)) return Reply();
    return FakeServer::Answer(id, wire::Done{});
  }

  const TemporaryFolder folder_{"silent"};
  std::atomic<uint64_t> connections_{0};
  std::atomic<int> pings_{0};
  std::atomic<bool> fell_silent_{false};
  uint64_t unanswered_ = 0;  // the server's thread's
};

TEST_F(SilentSqlTest, AServerThatHangsIsNotWaitedForForEver) {
  for (const Silent silent : {Silent::kQuery, Silent::kFetch, Silent::kNext}) {
    SCOPED_TRACE(static_cast<int>(silent));
    connections_ = 0;
    fell_silent_ = false;
    const FakeServer server(socket(), [&](uint64_t id, const wire::Request& request) {
      return AnswerTo(id, request, silent, false);
    });
    const auto store = Connect(server);
    const auto sql = store->Connect().value();
    Status status;
    const double seconds = SecondsOf([&] {
      status = silent == Silent::kNext ? sql->Run("SELECT 1", [](client::RowCursor&) { return Status(); })
                                       : Status(Code::kIoError, LinesOf(*sql, "SELECT 1").at(0));
    });
    EXPECT_THAT(status, IsStatus(Code::kIoError, HasSubstr("the server has not answered in time")));
    EXPECT_GE(seconds, kTimeoutSeconds);
    EXPECT_LT(seconds, kLongSeconds);
    EXPECT_THAT(LinesOf(*sql, "SELECT 1"), IsEmpty()) << "the next statement";
    EXPECT_EQ(connections_, 2u) << "what became of the first is not known";
  }
}

TEST_F(SilentSqlTest, AStatementIsWaitedForWhileItsServerLives) {
  const FakeServer server(socket(), [&](uint64_t id, const wire::Request& request) {
    auto reply = AnswerTo(id, request, Silent::kFetch, true);
    if (std::holds_alternative<wire::Ping>(request) && pings_ == 3) {
      const auto late = FakeServer::Answer(unanswered_, wire::SqlRows{.last = true});
      reply->frame.insert(reply->frame.end(), late.frame.begin(), late.frame.end());
    }
    return reply;
  });
  const auto store = Connect(server);
  const auto sql = store->Connect().value();
  const double seconds = SecondsOf([&] { EXPECT_THAT(LinesOf(*sql, "SELECT 1"), IsEmpty()); });
  EXPECT_GT(seconds, 4 * kTimeoutSeconds);
  EXPECT_EQ(pings_, 3);
  EXPECT_EQ(connections_, 1u);
}

TEST_F(SilentSqlTest, AStatementWithATimeoutEndsThoughItsServerLives) {
  const FakeServer server(socket(), [&](uint64_t id, const wire::Request& request) {
    return AnswerTo(id, request, Silent::kFetch, true);
  });
  const auto store = Connect(server);
  const auto sql = store->Connect({.timeout_seconds = 1.5}).value();
  const double seconds = SecondsOf([&] {
    EXPECT_THAT(LinesOf(*sql, "SELECT 1"), ElementsAre(HasSubstr("the server has not answered in time")));
  });
  EXPECT_GE(seconds, 1.5 + kTimeoutSeconds);
  EXPECT_LT(seconds, kLongSeconds);
  EXPECT_GE(pings_, 1);
}

}  // namespace
}  // namespace quarry
