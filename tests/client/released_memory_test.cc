// What a request, a stream or a connection of SQL held of a session's memory is free for the client's next request, although
// clients do not wait for the ends of streams and connections: each of these takes what does not fit beside the next.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/store_util.h"
#include "support/repetitions.h"

namespace quarry {
namespace {

using namespace testing_util;  // NOLINT: a test of what it has
using testing::HasSubstr;

const int kReleases = static_cast<int>(Repetitions(30));

class ReleasedMemoryTest : public testing::Test {
 protected:
  void Open(uint64_t memory_bytes) {
    ASSERT_OK_AND_ASSIGN(store_, client::Open(server_.address(), {.memory_bytes = memory_bytes}));
  }
  // There is something to compact from here on.
  void Put() {
    ASSERT_OK(store_->Put(
        {.tables = {RowsToPut("feature", {7}, {database_.graph().Row(static_cast<NodeId>(++row_))})}}));
  }
  Status Compact() { return store_->Maintain(wire::CompactTable{.table = "feature"}).status(); }
  void ExpectNoRoom() {
    EXPECT_THAT(Compact(), IsStatus(Code::kOutOfBudget, HasSubstr("cannot hold compacting a table")));
  }

  const TinyDatabase database_{{.nodes = 600, .dim = 32}};
  const TemporaryFolder folder_{"released"};
  TestServer server_{database_.path(), folder_ / "socket/q.sock"};
  std::unique_ptr<client::Store> store_;
  uint64_t row_ = 0;
};

TEST_F(ReleasedMemoryTest, OfAConnectionOfSql) {
  ASSERT_NO_FATAL_FAILURE(Open(192 * kMiB));
  const auto write = [&](const auto& beside) {
    ASSERT_OK_AND_ASSIGN(const auto sql, store_->Connect({.write = true}));
    for (const char* const text : {"BEGIN", "UPDATE nodes SET label = 1 WHERE id = 3"}) {
      ASSERT_OK_AND_ASSIGN(const auto cursor, sql->Query(text, {}));
      ASSERT_OK(cursor->Next());
    }
    ASSERT_NO_FATAL_FAILURE(Put());
    beside();
  };
  ASSERT_NO_FATAL_FAILURE(write([&] { ExpectNoRoom(); }));
  for (int round = 0; round < kReleases; ++round) {
    ASSERT_NO_FATAL_FAILURE(write([] {}));
    ASSERT_OK(Compact()) << "round " << round;
  }
}

TEST_F(ReleasedMemoryTest, OfAStream) {
  // The least session, to 2 MiB, in which a table can be compacted: beside a stream it has no room for that.
  uint64_t memory_bytes = 16 * kMiB;
  do {
    ASSERT_NO_FATAL_FAILURE(Open(memory_bytes += 2 * kMiB));
    ASSERT_NO_FATAL_FAILURE(Put());
  } while (Compact().code() == Code::kOutOfBudget);
  const auto pass = [&](const auto& beside) {
    ASSERT_OK_AND_ASSIGN(const auto stream, store_->OpenStream(SmallStream()));
    ASSERT_OK(stream->StartPass({.seeds = Split::kTrain}));
    ASSERT_OK_AND_ASSIGN(const auto batch, stream->Next());
    ASSERT_NE(batch, nullptr);
    ASSERT_NO_FATAL_FAILURE(Put());
    beside();
  };
  ASSERT_NO_FATAL_FAILURE(pass([&] { ExpectNoRoom(); }));
  for (int round = 0; round < kReleases; ++round) {
    ASSERT_NO_FATAL_FAILURE(pass([] {}));
    ASSERT_OK(Compact()) << "round " << round;
  }
}

TEST_F(ReleasedMemoryTest, OfAStateThatWasSaved) {
  ASSERT_NO_FATAL_FAILURE(Open(8 * kMiB));
  const std::vector<std::byte> state(4 * kMiB, std::byte{5});
  for (int round = 0; round < kReleases; ++round) {
    ASSERT_OK(store_->SaveTraining({.name = "run", .settings = "none", .state = state})) << "round " << round;
    ASSERT_OK_AND_ASSIGN(const auto read, store_->ReadTraining("run"));
    ASSERT_EQ(read.state.size(), state.size());
  }
}

}  // namespace
}  // namespace quarry
