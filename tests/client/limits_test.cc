// The real binary under limits of threads, descriptors and memory: a verb is done, or ends with a sentence
// and exit code 1, and the database is sound. And the server, whose streams use up what there is: writes go
// on.
//
// QUARRY_TEST_ALL_LIMITS=1 tries every limit of a range instead of some.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <thread>

#include "client/quarry_process.h"
#include "client/store_util.h"
#include "server/served_database.h"
#include "support/pids_group.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing_util::Eventually;
using testing_util::RowsToPut;

constexpr uint32_t kDim = 64;

bool Limit(__rlimit_resource resource, rlim_t value) {
  const rlimit limit{.rlim_cur = value, .rlim_max = value};
  return setrlimit(resource, &limit) == 0;
}

bool All() { return std::getenv("QUARRY_TEST_ALL_LIMITS") != nullptr; }

// `some`, or every limit from its first to its last.
std::vector<uint64_t> Limits(std::vector<uint64_t> some, uint64_t step = 1) {
  if (!All()) return some;
  std::vector<uint64_t> all;
  for (uint64_t limit = some.front(); limit <= some.back(); limit += step) all.push_back(limit);
  return all;
}

class LimitsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = MakeGeneratedDatabase("quarry-limits",
                                    "--nodes 3k --degree 6 --dim 64 --classes 4 --train-share 30% "
                                    "--valid-share 10% --test-share 10% --seed 3");
    EXPECT_EQ(Run("export db rows --what features").exit_code, 0);
    std::ofstream ids(folder_ / "ids.csv");
    for (int id = 0; id < 3000; ++id) ids << id << "\n";
  }
  static void TearDownTestSuite() { fs::remove_all(folder_); }

  static Outcome Run(const std::string& arguments, const std::function<bool()>& prepare = {}) {
    return Process(arguments, folder_, {}, prepare).Wait();
  }

  // Each verb, `prepare`d, is done or fails with a sentence; in between, without limits, the database is
  // sound.
  static void RunVerbs(const std::function<bool()>& prepare) {
    for (const std::string verb : {"generate made --nodes 2k --dim 8", "import made.db graph", "info db",
                                   "verify db", "put db --ids ids.csv --features rows/features.npy",
                                   "layout build db limited --fanout 3,3 --batch-size 256", "compact db",
                                   "export db out", "checkpoint db copy", "sql db VALUES(1)",
                                   "train db --epochs 1 --fanout 3,3 --hidden 8 --batch-size 256"}) {
      SCOPED_TRACE(verb);
      const Outcome outcome = Run(verb, prepare);
      if (outcome.exit_code == 0) continue;
      // LibTorch, for which there is no room at all: the program has not begun, and the loader says so.
      if (outcome.err.find("error while loading shared libraries") != std::string::npos) continue;
      EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
      EXPECT_FALSE(outcome.err.empty());
    }
    for (const char* name : {"made", "made.db", "out", "copy"}) fs::remove_all(folder_ / name);
    static_cast<void>(Run("drop db layout limited"));
    const Outcome verified = Run("verify db");
    EXPECT_EQ(verified.exit_code, 0) << verified.err;
  }

  static fs::path folder_;
};
fs::path LimitsTest::folder_;

TEST_F(LimitsTest, FewDescriptors) {
  for (const uint64_t descriptors : Limits({8, 20, 60})) {
    SCOPED_TRACE(testing::Message() << descriptors << " descriptors");
    RunVerbs([&] { return Limit(RLIMIT_NOFILE, descriptors); });
  }
}

TEST_F(LimitsTest, LittleMemory) {
  for (const uint64_t mib : Limits({60, 200, 1000}, 20)) {
    SCOPED_TRACE(testing::Message() << mib << " MiB");
    RunVerbs([&] { return Limit(RLIMIT_AS, mib << 20); });
  }
}

// Where libraries would end the process, or wait for ever.
TEST_F(LimitsTest, NoAddressSpaceForLibraries) {
  for (const auto& [verb, mib] : {std::pair("info db", 120), {"train db --epochs 1", 700}}) {
    const Outcome refused = Run(verb, [&] { return Limit(RLIMIT_AS, rlim_t{1} * mib << 20); });
    EXPECT_EQ(refused.exit_code, 1) << refused.err;
    EXPECT_NE(refused.err.find("the limit of address space leaves"), std::string::npos) << refused.err;
  }
}

TEST_F(LimitsTest, FewThreads) {
  for (const uint64_t pids : Limits({1, 4, 5, 6, 8, 12})) {
    SCOPED_TRACE(testing::Message() << pids << " threads");
    const PidsGroup group(pids);
    if (!group.made()) GTEST_SKIP() << kNoPidsGroup;
    RunVerbs([&] { return group.Enter(); });
  }
}

// A server under a limit, and clients that open streams until they are refused.
class ServerLimitsTest : public LimitsTest {
 protected:
  static Status Put(client::Store& store, uint32_t version) {
    std::vector<uint64_t> ids(3000);
    std::vector<std::vector<std::byte>> rows;
    for (uint64_t id = 0; id < ids.size(); ++id) {
      ids[id] = id;
      const std::vector<float> row(kDim, static_cast<float>(version + id));
      const auto bytes = std::as_bytes(std::span(row));
      rows.emplace_back(bytes.begin(), bytes.end());
    }
    return store.Put({.tables = {RowsToPut("feature", ids, rows)}}).status();
  }

  // How many streams there were when they were refused; 0 where the server says that it cannot start.
  static size_t OpenStreams(const std::function<bool()>& prepare, const std::string& refusal) {
    const std::string socket = "run/s-" + std::to_string(serial_++);
    const Process server("serve db --socket " + socket + " --memory 12GiB", folder_, {}, prepare);
    const std::string address = "unix:" + (folder_ / socket).string();
    auto store = Connect(server, address);
    if (store == nullptr) {
      const Outcome ended = server.Wait();
      EXPECT_EQ(ended.exit_code, 1) << ended.err;
      EXPECT_THAT(ended.err, HasSubstr("quarry: "));
      return 0;
    }
    std::vector<std::unique_ptr<client::Store>> stores;
    std::vector<std::unique_ptr<client::Stream>> streams;
    stores.push_back(std::move(store));
    Status refused;
    for (uint32_t version = 1; refused.ok() && streams.size() < kStreams; ++version) {
      if (streams.size() % 16 == 0) {
        auto next = client::Open(address, kSession);
        refused = next.status();
        if (!next.ok()) break;
        stores.push_back(std::move(next).value());
      }
      auto stream = stores.back()->OpenStream(kStream);
      refused = stream.status();
      if (stream.ok()) {
        streams.push_back(std::move(stream).value());
        const auto started = streams.back()->StartPass({.seeds = Split::kTrain});
        EXPECT_OK(started);
      }
      if (streams.size() % 8 != 1 && refused.ok()) continue;
      const Status put = Put(*stores.front(), version);
      EXPECT_OK(put) << streams.size() << " streams";
    }
    EXPECT_FALSE(refused.ok());
    EXPECT_THAT(refused.ToString(), HasSubstr(refusal));
    for (uint32_t version = 100; version < 124; ++version) {  // new logs, and new tables of the catalog
      const Status put = Put(*stores.front(), version);
      EXPECT_OK(put);
    }
    const size_t opened = streams.size();
    if (opened > 0) {  // what one gives back, another has
      streams.pop_back();
      EXPECT_TRUE(Eventually([&] { return stores.back()->OpenStream(kStream).ok(); }));
    }
    streams.clear();
    stores.clear();
    server.Signal(SIGTERM);
    const Outcome ended = server.Wait();
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return opened;
  }

 private:
  static constexpr size_t kStreams = 400;
  static inline const client::OpenOptions kSession = {.memory_bytes = 256 << 20};  // for sixteen streams
  static inline const wire::OpenStream kStream = {.road =
                                                      wire::LiveSpec{.fanouts = {3, 3}, .batch_size = 64}};
  static inline int serial_ = 0;

  // Null when it has ended.
  static std::unique_ptr<client::Store> Connect(const Process& server, const std::string& address) {
    for (;;) {
      if (fs::exists(address.substr(address.find(':') + 1))) {
        auto store = client::Open(address, kSession);
        if (store.ok()) return std::move(store).value();  // else it found no thread to answer with, and ends
      }
      siginfo_t info{};
      if (waitid(P_PID, static_cast<id_t>(server.id()), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
          info.si_pid != 0) {
        return nullptr;
      }
    }
  }
};

TEST_F(ServerLimitsTest, StreamsAreRefusedBeforeTheyTakeTheLastDescriptors) {
  for (const uint64_t descriptors : {30, 40, 60, 128, 1024}) {
    SCOPED_TRACE(testing::Message() << descriptors << " descriptors");
    const size_t opened = OpenStreams([&] { return Limit(RLIMIT_NOFILE, descriptors); }, "ulimit -n");
    if (descriptors >= 128) {
      EXPECT_GE(opened, descriptors / 32);
    }
  }
  EXPECT_EQ(Run("verify db").exit_code, 0);
}

TEST_F(ServerLimitsTest, StreamsAreRefusedBeforeTheyTakeTheLastThreads) {
  for (const uint64_t pids : {12, 41, 100, 400}) {
    SCOPED_TRACE(testing::Message() << pids << " threads");
    const PidsGroup group(pids);
    if (!group.made()) GTEST_SKIP() << kNoPidsGroup;
    const size_t opened = OpenStreams([&] { return group.Enter(); }, "pids.max");
    if (pids >= 41) {
      EXPECT_GE(opened, pids / 32);
    }
  }
  EXPECT_EQ(Run("verify db").exit_code, 0);
}

}  // namespace
}  // namespace quarry
