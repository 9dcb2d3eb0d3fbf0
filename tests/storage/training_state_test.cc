#include "quarry/storage/training_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <thread>

#include "quarry/base/units.h"
#include "quarry/verify/verify.h"
#include "storage/small_store.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;
using testing::UnorderedElementsAre;
using testing_util::Medium;
using testing_util::RandomBytes;
using testing_util::SmallStore;

using Bytes = std::vector<std::byte>;

class TrainingStateTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(small_.Write());
    Reopen();
  }
  void Reopen() {
    store_.reset();
    auto store = Store::Open(backend_, small_.path());
    ASSERT_OK(store);
    store_ = std::move(store).value();
  }
  Status Checkpoint(std::string_view name, const Bytes& state, std::string_view settings = "--seed 1") {
    return CheckpointTraining(*store_, {.name = name, .settings = settings, .timestamp = 7, .state = state},
                              [&](const ManifestChange& change) { return store_->UpdateManifest(change); });
  }
  Bytes Read(std::string_view name) {
    auto state = ReadTrainingState(*store_, name);
    EXPECT_OK(state);
    return state.ok() ? std::move(state).value() : Bytes();
  }
  std::string PathOf(std::string_view name) {
    return small_.path() + "/" + store_->manifest()->FindTraining(name)->file;
  }
  std::set<std::string> Files() const {
    std::set<std::string> files;
    for (const auto& entry : fs::directory_iterator(small_.path() + "/training")) {
      files.insert(entry.path().filename().string());
    }
    return files;
  }
  std::string Faults() {
    const auto report = VerifyStore(*store_, {});
    EXPECT_OK(report);
    std::string text;
    for (const Status& fault : report->faults) text += fault.ToString() + "\n";
    return text;
  }

  const std::unique_ptr<IoBackend> real_ = MakeDefaultBackend();
  IoBackend& backend_ = *real_;
  SmallStore small_{backend_, Medium::kMemory};
  std::unique_ptr<Store> store_;
};

TEST_F(TrainingStateTest, AStateComesBackByteForByteFromAnotherProcess) {
  for (const uint64_t bytes : {uint64_t{1}, kPageBytes - 1, kPageBytes, kPageBytes + 1, 9 * kMiB + 5}) {
    SCOPED_TRACE(bytes);
    const Bytes state = RandomBytes(bytes, bytes);
    ASSERT_OK(Checkpoint("node", state, "--layers 2 --seed 1"));
    EXPECT_EQ(Read("node"), state);
    Reopen();
    EXPECT_EQ(Read("node"), state);
  }
  const std::shared_ptr<const Manifest> manifest = store_->manifest();
  const TrainingRecord* const record = manifest->FindTraining("node");
  EXPECT_EQ(record->generation, 5u);
  EXPECT_EQ(record->file, "training/5.qts");
  EXPECT_EQ(record->settings, "--layers 2 --seed 1");
  EXPECT_EQ(record->timestamp, 7);
  EXPECT_EQ(record->file_bytes, fs::file_size(PathOf("node")));
  EXPECT_FALSE(record->created_utc.empty());
  EXPECT_EQ(Faults(), "");
}

TEST_F(TrainingStateTest, WhatARunWasStartedWithIsKeptWithItAndBounded) {
  const Bytes state = RandomBytes(10, 1);
  const auto commit = [&](const ManifestChange& change) { return store_->UpdateManifest(change); };
  std::string config = "[train]\nepochs = 3\n";
  ASSERT_OK(CheckpointTraining(*store_, {.name = "node", .config = config, .state = state}, commit));
  Reopen();
  EXPECT_EQ(store_->manifest()->FindTraining("node")->config, config);
  config.resize(32 * kKiB, '#');
  ASSERT_OK(CheckpointTraining(*store_, {.name = "node", .config = config, .state = state}, commit));
  EXPECT_EQ(store_->manifest()->FindTraining("node")->config, config) << "that of the last checkpoint";
  config += '#';
  const Status refused =
      CheckpointTraining(*store_, {.name = "node", .config = config, .state = state}, commit);
  EXPECT_EQ(refused.code(), Code::kUsage);
  EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr("\"node\""), HasSubstr("32.0 KiB")));
  EXPECT_EQ(Files().size(), 1u);
}

TEST_F(TrainingStateTest, RunsAreApartAndEachHasOneFile) {
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK(Checkpoint("a", RandomBytes(5000, i)));
    ASSERT_OK(Checkpoint("a-1", RandomBytes(6000, 100 + i)));
  }
  EXPECT_THAT(Files(), UnorderedElementsAre("5.qts", "6.qts"));
  Reopen();
  EXPECT_EQ(Read("a"), RandomBytes(5000, 2));
  EXPECT_EQ(Read("a-1"), RandomBytes(6000, 102));
  EXPECT_THAT(Files(), UnorderedElementsAre("5.qts", "6.qts"));
}

TEST_F(TrainingStateTest, AFileOfAnEarlierVersionIsReadUnderItsNameAndReplaced) {
  ASSERT_OK(Checkpoint("node", RandomBytes(5000, 1)));
  fs::rename(PathOf("node"), small_.path() + "/training/node-1.qts");
  ASSERT_OK(store_->UpdateManifest([](Manifest& manifest) {
    manifest.trainings[0].file = "training/node-1.qts";
    return Status::Ok();
  }));
  Reopen();
  EXPECT_EQ(Read("node"), RandomBytes(5000, 1));
  EXPECT_EQ(Faults(), "");
  ASSERT_OK(Checkpoint("node", RandomBytes(6000, 2)));
  EXPECT_THAT(Files(), UnorderedElementsAre("1.qts"));
  EXPECT_EQ(store_->manifest()->FindTraining("node")->generation, 2u);
  Reopen();
  EXPECT_EQ(Read("node"), RandomBytes(6000, 2));
}

TEST_F(TrainingStateTest, RunsThatAreSavedAtTheSameTimeWriteToFilesOfTheirOwn) {
  const auto save = [this](const std::string& name, uint64_t seed) {
    for (int i = 0; i < 20; ++i) EXPECT_OK(Checkpoint(name, RandomBytes(5000, seed)));
  };
  std::thread other(save, "other", 2);
  save("node", 1);
  other.join();
  EXPECT_THAT(Files(), SizeIs(2));
  EXPECT_EQ(Read("node"), RandomBytes(5000, 1));
  EXPECT_EQ(Read("other"), RandomBytes(5000, 2));
  EXPECT_EQ(Faults(), "");
}

TEST_F(TrainingStateTest, ADroppedRunIsGone) {
  ASSERT_OK(Checkpoint("node", RandomBytes(100, 1)));
  ASSERT_OK(Checkpoint("other", RandomBytes(100, 2)));
  ASSERT_OK(DropTraining(*store_, "node"));
  EXPECT_THAT(Files(), UnorderedElementsAre("2.qts"));
  for (const Status& status : {ReadTrainingState(*store_, "node").status(), DropTraining(*store_, "node")}) {
    EXPECT_EQ(status.code(), Code::kNotFound);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("\"node\""), HasSubstr("runs: other")));
  }
}

TEST_F(TrainingStateTest, ANameThatLeadsElsewhereIsRefused) {
  for (const char* name : {"", "../x", "a/b", "a b", "a.b"}) {
    EXPECT_EQ(Checkpoint(name, RandomBytes(100, 1)).code(), Code::kUsage) << name;
  }
  EXPECT_FALSE(fs::exists(small_.path() + "/training"));
}

TEST_F(TrainingStateTest, WhatACrashLeftIsRemovedByTheNextWriterAndStrangersStay) {
  ASSERT_OK(Checkpoint("node", RandomBytes(5000, 1)));
  const std::string folder = small_.path() + "/training/";
  fs::copy(PathOf("node"), folder + "2.qts");        // written, and not named
  fs::copy(PathOf("node"), folder + "first-1.qts");  // likewise, by an earlier version
  fs::copy(PathOf("node"), folder + "notes.txt");
  Reopen();
  EXPECT_THAT(Files(), UnorderedElementsAre("1.qts", "2.qts", "first-1.qts", "notes.txt")) << "reading";
  EXPECT_THAT(Faults(), AllOf(HasSubstr("training/notes.txt"), Not(HasSubstr("2.qts")))) << "no faults";
  ASSERT_OK(store_->PrepareToWrite());
  EXPECT_THAT(Files(), UnorderedElementsAre("1.qts", "notes.txt"));
  EXPECT_EQ(Read("node"), RandomBytes(5000, 1));
  EXPECT_THAT(Faults(), AllOf(HasSubstr("training/notes.txt"), Not(HasSubstr("1.qts"))));
}

TEST_F(TrainingStateTest, EveryDamagedByteIsFoundByReadingAndByVerify) {
  constexpr uint64_t kSeed = 11;
  SCOPED_TRACE(kSeed);
  Rng rng(kSeed);
  const Bytes state = RandomBytes(3 * kPageBytes + 17, 1);
  ASSERT_OK(Checkpoint("node", state));
  const std::string path = PathOf("node");
  const uint64_t file_bytes = fs::file_size(path);
  for (uint64_t page = 0; page * kPageBytes < file_bytes; ++page) {
    const uint64_t at = page * kPageBytes + rng.Below(16);  // never in padding
    SCOPED_TRACE(at);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    const auto flip = [&] {
      file.seekg(static_cast<std::streamoff>(at));
      const int byte = file.get();
      file.seekp(static_cast<std::streamoff>(at));
      file.put(static_cast<char>(byte ^ 0x40));
      file.flush();
    };
    flip();
    const Status status = ReadTrainingState(*store_, "node").status();
    EXPECT_EQ(status.code(), Code::kCorruption);
    EXPECT_THAT(std::string(status.message()), HasSubstr("training/1.qts"));
    EXPECT_THAT(Faults(), HasSubstr("training/1.qts"));
    flip();
  }
  EXPECT_EQ(Read("node"), state);
  fs::resize_file(path, file_bytes - kPageBytes);
  EXPECT_EQ(ReadTrainingState(*store_, "node").status().code(), Code::kCorruption);
  fs::remove(path);
  EXPECT_EQ(ReadTrainingState(*store_, "node").status().code(), Code::kCorruption);
}

TEST_F(TrainingStateTest, ACommitThatFailedKeepsItsFileUntilTheNextOpen) {
  const Bytes before = RandomBytes(5000, 1);
  ASSERT_OK(Checkpoint("node", before));
  const Status failed =
      CheckpointTraining(*store_, {.name = "node", .state = before},
                         [](const ManifestChange&) { return Status(Code::kIoError, "the disk is gone"); });
  EXPECT_EQ(failed.code(), Code::kIoError);
  EXPECT_EQ(Read("node"), before);
  // It may be what the disk names now: nothing else is written in its place.
  EXPECT_THAT(Files(), UnorderedElementsAre("1.qts", "2.qts"));
  const Bytes after = RandomBytes(6000, 2);
  ASSERT_OK(Checkpoint("node", after));
  EXPECT_THAT(Files(), UnorderedElementsAre("2.qts", "3.qts"));
  Reopen();
  ASSERT_OK(store_->PrepareToWrite());
  EXPECT_THAT(Files(), UnorderedElementsAre("3.qts"));
  EXPECT_EQ(Read("node"), after);
}

}  // namespace
}  // namespace quarry
