// Pushes and pulls that are killed: at each of their requests, before or after the store did what it asked for, a pull at
// operations on files too. What was published, or made here, is whole or not there, and the next one goes on.
//
// Children are this program, run anew (a process with threads must not fork one that goes on by itself): they run
// TransferOfAChild, with the rest in the environment. QUARRY_TEST_ALL_FAULTS=1 kills pulls at every operation.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "objects/fake_store.h"
#include "quarry/base/random.h"
#include "quarry/objects/push.h"
#include "support/file_text.h"
#include "support/killing_backend.h"
#include "support/repetitions.h"
#include "support/status_matchers.h"
#include "support/temporary_folder.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;

const ObjectPlace kKilledPlace{"bucket", "killed"};
constexpr const char* kTransfer = "QUARRY_TEST_TRANSFER";  // "push" or "pull"
constexpr const char* kEndpoint = "QUARRY_TEST_ENDPOINT";
constexpr const char* kFolder = "QUARRY_TEST_FOLDER";
constexpr const char* kName = "QUARRY_TEST_PUBLICATION";
constexpr const char* kKillAt = "QUARRY_TEST_KILL_AT";  // operation on files; 0: none

Result<std::unique_ptr<ObjectStore>> OpenKilledPlace(const std::string& endpoint, MemoryBudget& budget) {
  return ObjectStore::Open(kKilledPlace,
                           {.key_id = "id",
                            .secret = "secret",
                            .token = {},
                            .region = "us-east-1",
                            .endpoint = endpoint,
                            .ca_bundle = {}},
                           budget, {.in_flight_max = 4, .backoff_seconds = 0.001, .seed = 1});
}

Status Transfer(IoBackend& backend, const std::string& endpoint, const std::string& verb,
                const std::string& folder, const std::string& publication) {
  MemoryBudget budget(256 << 20);
  QUARRY_TRY(const auto store, OpenKilledPlace(endpoint, budget));
  if (verb == "pull") return PullDatabase(*store, backend, budget, folder, {}).status();
  return PushDatabase(*store, backend, budget,
                      {.folder = folder, .database_id = "id", .publication = publication}, {})
      .status();
}

TEST(TransferOfAChild, IsDone) {
  const auto variable = [](const char* name) { return ProcessEnvironment(name).value_or(""); };
  if (variable(kTransfer).empty()) GTEST_SKIP() << "run by the tests below";
  const auto real = MakeDefaultBackend();
  testing_util::KillingBackend backend(*real, std::stoull(variable(kKillAt)));
  ASSERT_OK(Transfer(backend, variable(kEndpoint), variable(kTransfer), variable(kFolder), variable(kName)));
}

class TransferKillsTest : public testing::Test {
 protected:
  // Starts a child; its number is known to the store's schedule from its first request on.
  void Start(const std::string& verb, const std::string& folder, const std::string& publication,
             uint64_t kill_at = 0) {
    const std::vector<std::string> more = {
        fmt::format("{}={}", kTransfer, verb), fmt::format("{}={}", kEndpoint, server_.endpoint()),
        fmt::format("{}={}", kFolder, folder), fmt::format("{}={}", kName, publication),
        fmt::format("{}={}", kKillAt, kill_at)};
    std::vector<char*> environment;
    for (char** entry = environ; *entry != nullptr; entry++) environment.push_back(*entry);
    for (const std::string& entry : more) environment.push_back(const_cast<char*>(entry.c_str()));
    environment.push_back(nullptr);
    char program[] = "/proc/self/exe", filter[] = "--gtest_filter=TransferOfAChild.IsDone";
    char* const arguments[] = {program, filter, nullptr};
    posix_spawn_file_actions_t quiet;
    posix_spawn_file_actions_init(&quiet);
    posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    pid_t child = -1;
    ASSERT_EQ(posix_spawn(&child, program, &quiet, nullptr, arguments, environment.data()), 0);
    posix_spawn_file_actions_destroy(&quiet);
    child_ = child;
  }
  // Whether it was killed. Any other end than its being done is a failure.
  bool Died() {
    int status = 0;
    const pid_t child = child_;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status)) {
      EXPECT_EQ(WTERMSIG(status), SIGKILL);
    }
    EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    return WIFSIGNALED(status);
  }
  // The store kills the child when its k-th request from now on comes: before or after doing what it asks for.
  void KillAt(uint64_t k, bool after) {
    const uint64_t before = server_.requests();
    server_.SetSchedule([this, k, after, before](const SeenRequest& request) -> Fate {
      if (request.number - before != k) return {};
      const auto kill_it = [this] {
        while (child_ < 0) std::this_thread::yield();
        kill(child_, SIGKILL);
      };
      if (after) return {.kind = Fate::kLost, .before_answer = kill_it};
      kill_it();
      return {Fate::kError};
    });
  }
  std::map<std::string, std::string> FilesOf(const std::string& folder) const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (!entry.is_regular_file() || entry.path().filename() == "LOCK") continue;
      files[fs::relative(entry.path(), folder).string()] = testing_util::FileText(entry.path());
    }
    return files;
  }
  std::string MakeFolder(const std::string& name, char fill) {
    folder_.Write(name + "/VERSION", "3\n");
    folder_.Write(name + "/features/x.qft", std::string(100'000, fill));
    folder_.Write(name + "/topology/y.qtp", std::string((8 << 20) + 5, fill));  // two parts
    return folder_ / name;
  }
  // What is published now is one of the two, and every byte of it is there.
  void ExpectWhole(const std::set<std::string>& publications) {
    server_.SetSchedule({});
    MemoryBudget budget(256 << 20);
    ASSERT_OK_AND_ASSIGN(const auto store, OpenKilledPlace(server_.endpoint(), budget));
    const auto there = ReadPublished(*store);
    if (there.status().code() == Code::kNotFound) {
      EXPECT_TRUE(publications.contains(""));
      return;
    }
    ASSERT_OK(there);
    EXPECT_TRUE(publications.contains(there->manifest.publication)) << there->manifest.publication;
    ASSERT_OK_AND_ASSIGN(const RemoteVerification found,
                         VerifyPublished(*store, budget, there->manifest, {}));
    EXPECT_THAT(found.faults, testing::IsEmpty());
  }

  TemporaryFolder folder_{"killed"};
  FakeStore server_;
  std::atomic<pid_t> child_{-1};
  const std::unique_ptr<IoBackend> backend_ = MakeDefaultBackend();
};

TEST_F(TransferKillsTest, APushMayDieAtEveryRequest) {
  const std::string old = MakeFolder("old", 'o'), fresh = MakeFolder("fresh", 'f');
  for (const bool replaces : {false, true}) {
    bool died = true, after = false;
    for (uint64_t k = 1; died; k += testing_util::OneIn() * (replaces ? 2 : 1)) {
      after = !after;
      SCOPED_TRACE(
          fmt::format("request {}, {}, {}", k, after ? "done" : "not done", replaces ? "second" : "first"));
      server_.SetSchedule({});
      server_.Clear();
      if (replaces) {
        ASSERT_OK(Transfer(*backend_, server_.endpoint(), "push", old, "old"));
      }
      KillAt(k, after);
      child_ = -1;
      Start("push", fresh, "fresh");
      died = Died();
      ExpectWhole(died ? std::set<std::string>{replaces ? "old" : "", "fresh"}
                       : std::set<std::string>{"fresh"});
      ASSERT_OK(Transfer(*backend_, server_.endpoint(), "push", fresh, "again"));
      ExpectWhole({"again"});
      EXPECT_EQ(server_.uploads(), 0U);
      ASSERT_LT(k, 100U);
    }
  }
}

TEST_F(TransferKillsTest, APullMayDieAtEveryRequestAndOperation) {
  const std::string folder = MakeFolder("db", 'd'), path = folder_ / "pulled";
  const auto files = FilesOf(folder);
  ASSERT_OK(Transfer(*backend_, server_.endpoint(), "push", folder, "p"));
  const uint64_t one_in = testing_util::OneIn();
  const uint64_t step = ProcessEnvironment("QUARRY_TEST_ALL_FAULTS") ? 1 : 5 * one_in;
  for (const bool by_request : {true, false}) {
    bool died = true, after = true;
    for (uint64_t k = 1; died; k += by_request ? one_in : step) {
      after = !after;
      SCOPED_TRACE(fmt::format("{} {}", by_request ? "request" : "operation", k));
      server_.SetSchedule({});
      if (by_request) KillAt(k, after);
      child_ = -1;
      Start("pull", path, "", by_request ? 0 : k);
      died = Died();
      server_.SetSchedule({});
      if (fs::exists(path)) {
        EXPECT_EQ(FilesOf(path), files);
      } else {
        EXPECT_TRUE(died);
        ASSERT_OK(Transfer(*backend_, server_.endpoint(), "pull", path, ""));
        EXPECT_EQ(FilesOf(path), files);
      }
      fs::remove_all(path);
      fs::remove_all(path + ".pulling");
      ASSERT_LT(k, 1000U);
    }
  }
}

}  // namespace
}  // namespace quarry
