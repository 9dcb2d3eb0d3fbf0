// Folders pushed to a place and pulled from it, under every fault of a request; publishers that race.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <fstream>

#include "objects/fake_store.h"
#include "quarry/base/random.h"
#include "quarry/objects/push.h"
#include "support/fault_backend.h"
#include "support/file_text.h"
#include "support/repetitions.h"
#include "support/status_matchers.h"
#include "support/temporary_folder.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

const ObjectPlace kPushPlace{"bucket", "db"};
constexpr uint64_t kMebi = 1 << 20;

std::string RandomBytes(uint64_t seed, size_t bytes) {
  std::string text(bytes, 0);
  Rng rng(seed);
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    const uint64_t word = rng();
    std::memcpy(text.data() + i, &word, 8);
  }
  return text;
}

// A folder's files by their names.
std::map<std::string, std::string> FilesIn(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    files[fs::relative(entry.path(), folder).string()] = testing_util::FileText(entry.path());
  }
  return files;
}

class PushPullTest : public testing::Test {
 protected:
  std::unique_ptr<ObjectStore> Open() {
    auto store = ObjectStore::Open(kPushPlace, server_.access(), budget_,
                                   {.in_flight_max = 8,
                                    .backoff_seconds = 0.001,
                                    .first_deadline_seconds = deadline_seconds_,
                                    .deadline_min_seconds = deadline_seconds_,
                                    .seed = 5});
    EXPECT_OK(store);
    return std::move(store).value();
  }
  Result<TransferReport> Push(const std::string& folder, uint64_t timestamp, const std::string& publication,
                              const std::string& id = "id-1", bool replace = false,
                              const ProgressFunction& progress = {}) {
    const auto store = Open();
    return PushDatabase(*store, *backend_, budget_,
                        {.folder = folder,
                         .database_id = id,
                         .timestamp = timestamp,
                         .publication = publication,
                         .replace = replace},
                        progress);
  }
  Result<TransferReport> Pull(const std::string& path, const ProgressFunction& progress = {}) {
    const auto store = Open();
    return PullDatabase(*store, *backend_, budget_, path, progress);
  }
  Result<RemoteManifest> Published() {
    const auto store = Open();
    QUARRY_TRY(PublishedManifest there, ReadPublished(*store));
    return std::move(there.manifest);
  }
  // Small files, an empty one, one of a block and a byte, and one of three parts and a bit.
  std::string MakeFolder(const std::string& name, size_t large_bytes = 3 * 8 * kMebi + 12'345) {
    folder_.Write(name + "/VERSION", "3\n");
    folder_.Write(name + "/LOCK", "pid 1");
    folder_.Write(name + "/catalog/000001.log", "");
    folder_.Write(name + "/catalog/CURRENT", "MANIFEST-1\n");
    folder_.Write(name + "/features/x.qft", RandomBytes(1, 4 * kMebi + 1));
    folder_.Write(name + "/topology/graph.qtp", RandomBytes(2, large_bytes));
    folder_.Write(name + "/layouts/a/copy.qft", RandomBytes(1, 4 * kMebi + 1));
    return folder_ / name;
  }
  static std::map<std::string, std::string> WithoutLock(std::map<std::string, std::string> files) {
    files.erase("LOCK");
    return files;
  }

  TemporaryFolder folder_{"push"};
  double deadline_seconds_ = 0.3;  // so that what hangs costs little
  MemoryBudget budget_{1ULL << 30};
  const std::unique_ptr<IoBackend> backend_ = MakeDefaultBackend();
  FakeStore server_;
};

TEST_F(PushPullTest, WhatIsPulledIsWhatWasPushed) {
  const std::string folder = MakeFolder("a");
  ASSERT_OK_AND_ASSIGN(const TransferReport pushed, Push(folder, 4, "one"));
  EXPECT_EQ(pushed.files, 6U);
  EXPECT_EQ(pushed.files_moved, 5U);  // two have the same content
  ASSERT_OK_AND_ASSIGN(const RemoteManifest there, Published());
  EXPECT_EQ(there.timestamp, 4U);
  EXPECT_EQ(there.publication, "one");
  ASSERT_OK_AND_ASSIGN(const TransferReport pulled, Pull(folder_ / "b"));
  EXPECT_EQ(pulled.bytes_moved, pulled.bytes);
  EXPECT_EQ(FilesIn(folder_ / "b"), WithoutLock(FilesIn(folder)));
  EXPECT_FALSE(fs::exists(folder_ / "b.pulling"));
  EXPECT_THAT(Pull(folder_ / "b"), IsStatus(Code::kAlreadyExists));
  const auto store = Open();
  ASSERT_OK_AND_ASSIGN(const RemoteVerification sound, VerifyPublished(*store, budget_, there, {}));
  EXPECT_THAT(sound.faults, testing::IsEmpty());
  EXPECT_EQ(server_.uploads(), 0U);
}

TEST_F(PushPullTest, OnlyWhatIsNotThereIsSent) {
  const std::string folder = MakeFolder("a");
  ASSERT_OK(Push(folder, 4, "one"));
  folder_.Write("a/features/y.qft", "new");
  ASSERT_OK_AND_ASSIGN(const TransferReport second, Push(folder, 5, "two"));
  EXPECT_EQ(second.files_moved, 1U);
  EXPECT_EQ(second.bytes_moved, 3U);
  ASSERT_OK(Pull(folder_ / "b"));
  EXPECT_EQ(FilesIn(folder_ / "b"), WithoutLock(FilesIn(folder)));
}

TEST_F(PushPullTest, AnotherDatabaseAndALaterCommitAreNotReplaced) {
  const std::string folder = MakeFolder("a", 100);
  ASSERT_OK(Push(folder, 4, "one"));
  EXPECT_THAT(Push(folder, 9, "two", "id-2"),
              IsStatus(Code::kAlreadyExists,
                       AllOf(HasSubstr("another database (id-1"), HasSubstr("s3://bucket/db"))));
  EXPECT_THAT(Push(folder, 3, "three"), IsStatus(Code::kAlreadyExists, HasSubstr("has commit 4")));
  ASSERT_OK(Push(folder, 3, "four", "id-2", /*replace=*/true));
  ASSERT_OK_AND_ASSIGN(const RemoteManifest there, Published());
  EXPECT_EQ(there.database_id, "id-2");
}

TEST_F(PushPullTest, NothingThereIsNotFound) {
  EXPECT_THAT(Pull(folder_ / "b"),
              IsStatus(Code::kNotFound, HasSubstr("s3://bucket/db: no database was pushed there")));
  EXPECT_FALSE(fs::exists(folder_ / "b"));
}

// The k-th request of a push, and of a pull, meets each fate, for every k.
TEST_F(PushPullTest, EveryRequestMayFailOnce) {
  const std::string folder = MakeFolder("a", 2 * 8 * kMebi + 5);
  const auto files = WithoutLock(FilesIn(folder));
  for (const Fate::Kind kind :
       {Fate::kError, Fate::kLost, Fate::kTorn, Fate::kSpoilt, Fate::kHang, Fate::kHangDone}) {
    const bool hangs = kind == Fate::kHang || kind == Fate::kHangDone;
    uint64_t pushes = 1, pulls = 1;
    for (uint64_t k = 1; k <= std::max(pushes, pulls); k += testing_util::OneIn() * (hangs ? 3 : 1)) {
      SCOPED_TRACE(fmt::format("fate {} of request {}", static_cast<int>(kind), k));
      server_.Clear();
      const auto fate = [&](uint64_t before) {
        return [k, kind, before](const SeenRequest& request) {
          // Lists and the manifest are not checksummed on their way, so a wrong bit there is an error, seen below.
          const bool plain = request.method == "GET" && request.range.empty();
          if (kind == Fate::kSpoilt && (plain || request.method == "POST")) return Fate{};
          return Fate{request.number - before == k ? kind : Fate::kAnswer};
        };
      };
      server_.SetSchedule(fate(server_.requests()));
      const auto pushed = Push(folder, 1, "p");
      ASSERT_OK(pushed);
      pushes = pushed->requests;
      server_.SetSchedule(fate(server_.requests()));
      const auto pulled = Pull(folder_ / "b");
      ASSERT_OK(pulled);
      pulls = pulled->requests;
      ASSERT_EQ(FilesIn(folder_ / "b"), files);
      fs::remove_all(folder_ / "b");
    }
    EXPECT_GT(pushes, 10U);
  }
}

// From the k-th request on nothing is answered any more: the push or pull fails, and the next one goes on.
TEST_F(PushPullTest, WhatWasBroughtOverCountsAfterAFailure) {
  const std::string folder = MakeFolder("a");
  const auto files = WithoutLock(FilesIn(folder));
  for (const uint64_t k : {2, 5, 8, 11}) {
    SCOPED_TRACE(fmt::format("request {}", k));
    server_.Clear();
    const auto fails = [&](uint64_t before) {
      return [k, before](const SeenRequest& request) {
        return Fate{request.number - before >= k ? Fate::kError : Fate::kAnswer};
      };
    };
    server_.SetSchedule(fails(server_.requests()));
    EXPECT_THAT(Push(folder, 1, "p"), IsStatus(Code::kIoError, HasSubstr("500 InternalError")));
    EXPECT_FALSE(server_.objects().contains("bucket/db/manifest"));
    server_.SetSchedule({});
    ASSERT_OK_AND_ASSIGN(const TransferReport pushed, Push(folder, 1, "q"));
    EXPECT_LE(server_.uploads(), 1U);
    EXPECT_LT(pushed.bytes_moved, pushed.bytes - (k >= 8 ? 4 * kMebi + 1 : 0));
    server_.SetSchedule(fails(server_.requests()));
    EXPECT_THAT(Pull(folder_ / "b"), IsStatus(Code::kIoError));
    EXPECT_FALSE(fs::exists(folder_ / "b"));
    server_.SetSchedule({});
    ASSERT_OK_AND_ASSIGN(const TransferReport pulled, Pull(folder_ / "b"));
    EXPECT_LT(pulled.bytes_moved, pulled.bytes + (k >= 5 ? 0 : 1));
    ASSERT_EQ(FilesIn(folder_ / "b"), files);
    fs::remove_all(folder_ / "b");
  }
}

// Every operation on the disk of a push and a pull fails once. What was made is whole, or not there; then it can be made.
TEST_F(PushPullTest, EveryOperationOfTheDiskMayFail) {
  const std::string folder = MakeFolder("a", 8 * kMebi + 5);
  const auto files = WithoutLock(FilesIn(folder));
  FaultBackend faults(*backend_);
  const auto push = [&](const std::string& publication) {
    const auto store = Open();
    return PushDatabase(*store, faults, budget_,
                        {.folder = folder, .database_id = "id", .timestamp = 1, .publication = publication},
                        {})
        .status();
  };
  const auto pull = [&] {
    const auto store = Open();
    return PullDatabase(*store, faults, budget_, folder_ / "b", {}).status();
  };
  for (const FaultKind kind : {FaultKind::kOpen, FaultKind::kRead}) {
    for (uint64_t k = 1, strikes = 1; strikes > 0; k += testing_util::OneIn()) {
      SCOPED_TRACE(fmt::format("push: kind {}, operation {}", static_cast<int>(kind), k));
      server_.Clear();
      faults.SetPlans({{.kind = kind, .at = k, .error = EIO}});
      const Status status = push("p");
      strikes = faults.strikes();
      if (strikes == 0) {
        ASSERT_OK(status);
      } else {
        ASSERT_THAT(status, IsStatus(Code::kIoError, HasSubstr("a/")));
        ASSERT_FALSE(server_.objects().contains("bucket/db/manifest"));
      }
      faults.SetPlans({});
      ASSERT_OK(push("q"));
    }
  }
  for (const FaultKind kind : {FaultKind::kOpen, FaultKind::kCreate, FaultKind::kRead, FaultKind::kWrite,
                               FaultKind::kSync, FaultKind::kRename, FaultKind::kCreateDirectory}) {
    for (uint64_t k = 1, strikes = 1; strikes > 0; k += testing_util::OneIn()) {
      SCOPED_TRACE(fmt::format("pull: kind {}, operation {}", static_cast<int>(kind), k));
      faults.SetPlans({{.kind = kind, .at = k, .error = kind == FaultKind::kWrite ? ENOSPC : EIO}});
      const Status status = pull();
      strikes = faults.strikes();
      if (strikes == 0 || kind == FaultKind::kRead) {  // a block that cannot be read is fetched
        ASSERT_OK(status);
      } else {
        ASSERT_THAT(status, IsStatus(kind == FaultKind::kWrite ? Code::kNoSpace : Code::kIoError,
                                     HasSubstr(folder_.path())));
        ASSERT_FALSE(fs::exists(folder_ / "b"));
        faults.SetPlans({});
        ASSERT_OK(pull());
      }
      ASSERT_EQ(FilesIn(folder_ / "b"), files);
      fs::remove_all(folder_ / "b");
    }
  }
}

TEST_F(PushPullTest, ProgressStopsBoth) {
  const std::string folder = MakeFolder("a");
  const ProgressFunction stop = [](std::string_view phase, uint64_t done, uint64_t) {
    return phase != "checksums" && done > 0 ? Status(Code::kCancelled, "stopped") : Status::Ok();
  };
  EXPECT_THAT(Push(folder, 1, "p", "id-1", false, stop), IsStatus(Code::kCancelled));
  EXPECT_FALSE(server_.objects().contains("bucket/db/manifest"));
  ASSERT_OK(Push(folder, 1, "p"));
  EXPECT_THAT(Pull(folder_ / "b", stop), IsStatus(Code::kCancelled));
  EXPECT_FALSE(fs::exists(folder_ / "b"));
  ASSERT_OK(Pull(folder_ / "b"));
  EXPECT_EQ(FilesIn(folder_ / "b"), WithoutLock(FilesIn(folder)));
}

TEST_F(PushPullTest, AWrongBitIsFoundWhereverItIs) {
  const std::string folder = MakeFolder("a", 100);
  ASSERT_OK(Push(folder, 1, "p"));
  ASSERT_OK_AND_ASSIGN(const RemoteManifest there, Published());
  for (const auto& [path, bytes] : server_.objects()) {
    if (bytes.empty()) continue;
    SCOPED_TRACE(path);
    std::string wrong = bytes;
    wrong[wrong.size() / 2] = static_cast<char>(wrong[wrong.size() / 2] ^ 1);
    server_.PutObject(path, wrong);
    EXPECT_THAT(Pull(folder_ / "b"), IsStatus(Code::kCorruption));
    EXPECT_FALSE(fs::exists(folder_ / "b"));
    fs::remove_all(folder_ / "b.pulling");  // what the next one would take blocks from
    if (path != "bucket/db/manifest") {
      const auto store = Open();
      ASSERT_OK_AND_ASSIGN(const RemoteVerification found, VerifyPublished(*store, budget_, there, {}));
      ASSERT_EQ(found.faults.size(), 1U);
      EXPECT_THAT(found.faults[0], IsStatus(Code::kCorruption, HasSubstr("block")));
    }
    server_.PutObject(path, bytes);
  }
  ASSERT_OK(Pull(folder_ / "b"));
}

// Rounds in which both publishers have read the same manifest before either writes: one wins, the other is told, and
// what the winner published is there, whole. In every third round answers are lost and requests fail besides.
TEST_F(PushPullTest, OfTwoPublishersOneWins) {
  const auto rounds = static_cast<int>(testing_util::Repetitions(1000));
  deadline_seconds_ = 60;  // one that waits for the other is not replaced
  constexpr uint64_t kSeed = 19;
  SCOPED_TRACE(fmt::format("seed {}", kSeed));
  folder_.Write("a/VERSION", "3\n");
  folder_.Write("b/VERSION", "3\n");
  int wins[2] = {};
  for (int round = 0; round < rounds; round++) {
    SCOPED_TRACE(fmt::format("round {}", round));
    if (round % 10 == 0) server_.Clear();  // the next is the first of its place
    folder_.Write("a/row", fmt::format("a{}", round));
    folder_.Write("b/row", fmt::format("b{}", round));
    std::barrier both(2);
    std::atomic<int> reads{0};
    const uint64_t before = server_.requests();
    server_.SetSchedule([&, round, before](const SeenRequest& request) {
      if (round % 3 == 2 && request.number - before > 2) {
        const uint64_t draw = MixSeed(kSeed, round, request.number - before) % 20;
        if (draw == 0) return Fate{Fate::kLost};
        if (draw == 1) return Fate{Fate::kError};
      }
      const bool manifest = request.method == "GET" && request.target == "/bucket/db/manifest";
      const bool first = manifest && reads++ < 2;
      return first ? Fate{.before_answer = [&] { both.arrive_and_wait(); }} : Fate{};
    });
    Status statuses[2];
    const std::string publications[2] = {fmt::format("a-{}", round), fmt::format("b-{}", round)};
    {
      std::thread other([&] { statuses[1] = Push(folder_ / "b", 1, publications[1]).status(); });
      statuses[0] = Push(folder_ / "a", 1, publications[0]).status();
      other.join();
    }
    server_.SetSchedule({});
    ASSERT_NE(statuses[0].ok(), statuses[1].ok()) << statuses[0].ToString() << "\n" << statuses[1].ToString();
    const int winner = statuses[0].ok() ? 0 : 1;
    ++wins[winner];
    ASSERT_THAT(statuses[1 - winner],
                IsStatus(Code::kBusy, HasSubstr("another push was published meanwhile")));
    ASSERT_OK_AND_ASSIGN(const RemoteManifest there, Published());
    ASSERT_EQ(there.publication, publications[winner]);
    const auto objects = server_.objects();
    for (const RemoteFile& file : there.files) ASSERT_TRUE(objects.contains("bucket/db/" + file.Key()));
  }
  std::printf("won: %d and %d of %d\n", wins[0], wins[1], rounds);
}

}  // namespace
}  // namespace quarry
