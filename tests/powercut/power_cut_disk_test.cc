// What the disk of the power cut tests keeps and loses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "storage/small_store.h"
#include "support/file_text.h"
#include "support/power_cut_disk.h"
#include "support/status_matchers.h"

namespace quarry::testing_util {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::UnorderedElementsAre;

constexpr uint64_t kSeeds = 300;

class PowerCutDiskTest : public testing::Test {
 protected:
  PowerCutDiskTest() {
    fs::create_directories(live_ + "/old");
    std::ofstream(live_ + "/old/file") << "there for good";
    disk_ = std::make_unique<PowerCutDisk>(live_);
    backend_ = std::make_unique<PowerCutBackend>(*plain_, *disk_);
  }
  ~PowerCutDiskTest() override { EXPECT_EQ(disk_->Difference(), ""); }

  File Create(const std::string& name, std::string_view text = "") {
    File file = backend_->Open(live_ + "/" + name, OpenMode::kCreate).value();
    Write(file, 0, text);
    return file;
  }
  void Write(const File& file, uint64_t offset, std::string_view text) {
    EXPECT_OK(backend_->WriteAt(file, offset, std::as_bytes(std::span(text))));
  }
  void SyncFolder(const std::string& name = "") { EXPECT_OK(backend_->SyncDirectory(live_ + name)); }

  // What may be there after a cut now: names of files with their content, one string a state.
  std::set<std::string> States() const { return StatesAt(disk_->now()); }
  std::set<std::string> StatesAt(uint64_t at) const {
    std::set<std::string> states;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      const std::string to = scratch_.path() + "/state";
      fs::remove_all(to);
      disk_->Build(at, seed, to);
      std::set<std::string> files;
      for (const auto& entry : fs::recursive_directory_iterator(to)) {
        std::string name = fs::relative(entry.path(), to).string();
        if (entry.is_regular_file()) name += "=" + testing_util::FileText(entry.path());
        if (name != "old" && name != "old/file=there for good") files.insert(name);
      }
      std::string all;
      for (const std::string& file : files) all += (all.empty() ? "" : " ") + file;
      states.insert(all);
    }
    return states;
  }

  const ScratchFolder scratch_{Medium::kMemory};
  const std::string live_ = scratch_.path() + "/live";
  const std::unique_ptr<IoBackend> plain_ = MakeThreadBackend(1);
  std::unique_ptr<PowerCutDisk> disk_;
  std::unique_ptr<PowerCutBackend> backend_;
};

TEST_F(PowerCutDiskTest, AFileNeedsASyncAndItsNameAnother) {
  const File file = Create("a", "text");
  const std::string zeros(4, '\0');
  EXPECT_THAT(States(), UnorderedElementsAre("", "a=", "a=" + zeros, "a=text"));
  EXPECT_OK(backend_->SyncFile(file));
  EXPECT_THAT(States(), UnorderedElementsAre("", "a=text"));
  SyncFolder();
  EXPECT_THAT(States(), ElementsAre("a=text"));
  EXPECT_THAT(StatesAt(1), UnorderedElementsAre("", "a=")) << "before it was written";
}

TEST_F(PowerCutDiskTest, ANameMayBeThereBeforeWhatIsInTheFile) {
  const File file = Create("a", "text");
  SyncFolder();
  EXPECT_THAT(States(), UnorderedElementsAre("a=", "a=" + std::string(4, '\0'), "a=text"));
}

TEST_F(PowerCutDiskTest, WritesComeInAnyOrderAndAreTornBySectors) {
  const std::string one(512, '1'), two(512, '2');
  const File file = Create("a", std::string(1024, '0'));
  EXPECT_OK(backend_->SyncFile(file));
  SyncFolder();
  Write(file, 0, one + two);
  const std::string zero(512, '0');
  EXPECT_THAT(States(), UnorderedElementsAre("a=" + zero + zero, "a=" + one + zero, "a=" + zero + two,
                                             "a=" + one + two));
}

TEST_F(PowerCutDiskTest, ASyncIsOfThatFileAlone) {
  const File a = Create("a", "a"), b = Create("b", "b");
  EXPECT_OK(backend_->SyncFile(a));
  SyncFolder();
  EXPECT_THAT(States(), UnorderedElementsAre("a=a b=", "a=a b=b", std::string("a=a b=") + '\0'));
}

TEST_F(PowerCutDiskTest, ARenameIsThereOrNot) {
  const File file = Create("a", "new");
  const File old = Create("b", "old");
  EXPECT_OK(backend_->SyncFile(file));
  EXPECT_OK(backend_->SyncFile(old));
  SyncFolder();
  EXPECT_OK(backend_->Rename(live_ + "/a", live_ + "/b"));
  // The old name may stay for a while, and never is there neither.
  EXPECT_THAT(States(), UnorderedElementsAre("a=new b=old", "a=new b=new", "b=new"));
  SyncFolder();
  EXPECT_THAT(States(), ElementsAre("b=new"));
}

TEST_F(PowerCutDiskTest, AFolderThatMovesIsInOnePlaceAndNeedsTheSyncOfTheNewOne) {
  EXPECT_OK(backend_->CreateDirectory(live_ + "/made"));
  const File file = Create("made/f", "x");
  EXPECT_OK(backend_->SyncFile(file));
  SyncFolder("/made");
  SyncFolder();
  EXPECT_THAT(States(), ElementsAre("made made/f=x"));
  EXPECT_OK(backend_->Rename(live_ + "/made", live_ + "/old/moved"));
  EXPECT_THAT(States(), UnorderedElementsAre("made made/f=x", "old/moved old/moved/f=x"));
  SyncFolder("/old");
  EXPECT_THAT(States(), ElementsAre("old/moved old/moved/f=x"));
}

TEST_F(PowerCutDiskTest, WhatWasRemovedMayComeBackUntilItsFolderIsSynced) {
  const File file = Create("a", "x");
  EXPECT_OK(backend_->SyncFile(file));
  SyncFolder();
  EXPECT_OK(backend_->Link(live_ + "/a", live_ + "/b"));
  EXPECT_OK(backend_->Remove(live_ + "/a"));
  EXPECT_THAT(States(), UnorderedElementsAre("", "a=x", "b=x", "a=x b=x"));
  SyncFolder();
  EXPECT_THAT(States(), ElementsAre("b=x"));
}

TEST_F(PowerCutDiskTest, ATruncationNeedsASyncToo) {
  const File file = Create("a", "long text");
  EXPECT_OK(backend_->SyncFile(file));
  SyncFolder();
  EXPECT_OK(backend_->Truncate(file, 4));
  EXPECT_THAT(States(), UnorderedElementsAre("a=long", "a=long text"));
  EXPECT_OK(backend_->SyncFile(file));
  EXPECT_THAT(States(), ElementsAre("a=long"));
}

TEST_F(PowerCutDiskTest, AWriteOfAPortIsSyncedOnceItsCompletionWasSeen) {
  const File file = Create("a", "....");
  EXPECT_OK(backend_->SyncFile(file));
  SyncFolder();
  const std::unique_ptr<IoPort> port = backend_->NewPort(1).value();
  std::string text = "text";
  const RawRequest request{.kind = RawRequest::Kind::kWrite,
                           .descriptor = file.descriptor(),
                           .buffer = reinterpret_cast<std::byte*>(text.data()),
                           .bytes = 4,
                           .user_data = 9};
  ASSERT_OK(port->Submit({&request, 1}));
  EXPECT_OK(backend_->SyncFile(file));
  EXPECT_THAT(States(), UnorderedElementsAre("a=....", "a=text")) << "it may have come later";
  RawCompletion completion;
  ASSERT_EQ(port->Wait(1, {&completion, 1}).value(), 1u);
  EXPECT_OK(backend_->SyncFile(file));
  EXPECT_THAT(States(), ElementsAre("a=text"));
}

TEST_F(PowerCutDiskTest, SyncsThatAreIgnoredKeepNothing) {
  disk_->IgnoreSyncs([](std::string_view path, bool folder) { return folder || path.ends_with("/a"); });
  const File a = Create("a", "a"), b = Create("b", "b");
  EXPECT_OK(backend_->SyncFile(a));
  EXPECT_OK(backend_->SyncFile(b));
  SyncFolder();
  EXPECT_THAT(States(), testing::IsSupersetOf({"", "a=", "a=a b=b", "b=b"}));
}

TEST_F(PowerCutDiskTest, WhatGoesPastTheDiskIsNoticed) {
  std::ofstream(live_ + "/old/LOCK") << "holds nothing";
  EXPECT_EQ(disk_->Difference(), "");
  std::ofstream(live_ + "/old/stray") << "x";
  EXPECT_EQ(disk_->Difference(), live_ + "/old/stray: nobody made it");
  fs::remove(live_ + "/old/stray");
  std::ofstream(live_ + "/old/file") << "changed";
  EXPECT_EQ(disk_->Difference(), live_ + "/old/file: holds something else");
  std::ofstream(live_ + "/old/file") << "there for good";
}

}  // namespace
}  // namespace quarry::testing_util
