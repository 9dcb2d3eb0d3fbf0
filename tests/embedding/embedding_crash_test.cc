// Training that is killed at random instants, again and again, each time going on from what the kill left.
//
// A program by itself: its process has no threads, so that its children may be forked (RocksDB's threads,
// once there, are not in a child). Every child first checks what the kill before it has left: exactly the
// state of a checkpoint, none older than the last one that was acknowledged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "embedding/trained_tables.h"

namespace quarry {
namespace {

using testing_util::TrainedTables;

constexpr uint64_t kSeed = 12;

void Acknowledge(int pipe_end, int64_t timestamp) {
  if (write(pipe_end, &timestamp, sizeof(timestamp)) != sizeof(timestamp)) _exit(3);
}

// Writes the number of each checkpoint to the pipe; `checked` after what was found there.
class Child {
 public:
  Child(std::string path, int pipe_end) : path_(std::move(path)), pipe_(pipe_end) {}

  void Create() {
    const Status created = testing_util::CreateEmptyDatabase(*backend_, path_);
    ASSERT_TRUE(created.ok()) << created.ToString();
    OpenStore();
    ASSERT_TRUE(tables_.Create(*store_).ok());
  }

  void Check(int64_t acknowledged) {
    OpenStore();
    EXPECT_THAT(testing_util::FaultsOf(*store_), testing::IsEmpty());
    const Status status = tables_.Open(*store_);
    ASSERT_TRUE(status.ok()) << status.ToString();
    const int64_t timestamp = tables_[0].timestamp();
    ASSERT_GE(timestamp, acknowledged);
    tables_.ExpectState(*store_, timestamp, tables_.WritesUpTo(timestamp));
    EXPECT_THAT(testing_util::FilesIn(path_ + "/embeddings"),
                testing::SizeIs(timestamp == kNeverWritten ? 2 : 4));
    Acknowledge(pipe_, timestamp);
  }

  // Until it is killed.
  void Train() {
    Rng rng(MixSeed(kSeed, tables_[0].timestamp()));
    for (int64_t now = tables_[0].timestamp() + 1;; ++now) {
      ASSERT_TRUE(tables_.Train(now).ok());
      if (rng.Below(12) != 0) continue;
      const Status status = tables_.Checkpoint(*store_, now);
      ASSERT_TRUE(status.ok()) << status.ToString();
      Acknowledge(pipe_, now);
    }
  }

 private:
  void OpenStore() {
    auto store = Store::Open(*backend_, path_);
    ASSERT_TRUE(store.ok()) << store.status().ToString();
    store_ = std::move(store).value();
  }

  const std::string path_;
  const int pipe_;
  const std::unique_ptr<IoBackend> backend_ = MakeDefaultBackend();
  std::unique_ptr<Store> store_;
  TrainedTables tables_{kSeed};
};

// A child that does what `run` says.
class Process {
 public:
  template <typename Run>
  explicit Process(const Run& run) {
    EXPECT_EQ(pipe(pipe_.data()), 0);
    child_ = fork();
    if (child_ != 0) {
      close(pipe_[1]);
      return;
    }
    close(pipe_[0]);
    run(pipe_[1]);
    std::fflush(stdout);  // what failed
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  ~Process() { close(pipe_[0]); }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // The next number that it writes; waits for it. False when it has ended.
  bool Next(int64_t& timestamp) { return read(pipe_[0], &timestamp, sizeof(timestamp)) == sizeof(timestamp); }
  void Kill() { kill(child_, SIGKILL); }
  // True when it ended well, or was killed by us.
  bool Wait() {
    int state = 0;
    EXPECT_EQ(waitpid(child_, &state, 0), child_);
    return (WIFEXITED(state) && WEXITSTATUS(state) == 0) ||
           (WIFSIGNALED(state) && WTERMSIG(state) == SIGKILL);
  }

 private:
  std::array<int, 2> pipe_{};
  pid_t child_ = -1;
};

uint64_t KillCount() {
  const char* const text = std::getenv("QUARRY_TEST_KILLS");
  return text == nullptr ? 30 : std::strtoull(text, nullptr, 10);
}

TEST(EmbeddingCrashTest, AKillAtAnyInstantLeavesACheckpointThatWasAcknowledgedOrALaterOne) {
  const testing_util::ScratchFolder folder(testing_util::Medium::kMemory);
  const std::string path = folder.path() + "/db";
  ASSERT_TRUE(Process([&](int pipe_end) { Child(path, pipe_end).Create(); }).Wait());
  Rng rng(kSeed);
  int64_t acknowledged = kNeverWritten;
  for (uint64_t round = 0; round < KillCount(); ++round) {
    SCOPED_TRACE(testing::Message() << "kill " << round << " of seed " << kSeed);
    Process child([&](int pipe_end) {
      Child work(path, pipe_end);
      work.Check(acknowledged);
      if (!testing::Test::HasFailure()) work.Train();
    });
    // At any time after some of its messages: most while they train, some while they open and check.
    for (uint64_t messages = rng.Below(4); messages > 0 && child.Next(acknowledged); --messages) {
    }
    std::this_thread::sleep_for(std::chrono::microseconds(rng.Below(15'000)));
    child.Kill();
    ASSERT_TRUE(child.Wait());
    while (child.Next(acknowledged)) {
    }
  }
  Process last([&](int pipe_end) { Child(path, pipe_end).Check(acknowledged); });
  ASSERT_TRUE(last.Wait());
  EXPECT_GT(acknowledged, 0) << "else nothing was checked";
}

}  // namespace
}  // namespace quarry
