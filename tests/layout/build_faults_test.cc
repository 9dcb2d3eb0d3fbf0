// What is left of a database when the disk fails while a layout is built, at any operation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <set>

#include "layout/unsynced_backend.h"
#include "pipeline/tiny_database.h"
#include "quarry/base/units.h"
#include "quarry/io/fault_backend.h"
#include "quarry/layout/layout.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing_util::TinyDatabase;
using testing_util::TinyGraph;

std::string Bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// What a layout holds: its two files but for their superblocks, which name the generation.
using Contents = std::pair<std::string, std::string>;

const TinyGraph kGraph{.nodes = 700};

// One with rows of every kind: cached, packed, of segment caches.
LayoutSpec Spec(std::string name = "default") {
  const uint64_t feature_bytes = kGraph.nodes * RowBytes(kGraph.type, kGraph.dim);
  return {.name = std::move(name),
          .fanouts = {4, 3},
          .batch_size = 48,
          .seed = 5,
          .epochs = 2,
          .cache_bytes = feature_bytes / 6,
          .disk_bytes = feature_bytes * 4,
          .threads = 2};
}

// An open database over a disk that can fail.
class Workbench {
 public:
  explicit Workbench(std::string path) : path_(std::move(path)) { Reopen(); }
  void Reopen() {
    store_.reset();
    auto store = Store::Open(backend_, path_);
    ASSERT_TRUE(store.ok()) << store.status().ToString();
    store_ = std::move(store).value();
  }
  void Strike(const FaultPlan& plan) { backend_.SetPlans({plan}); }
  void Heal() { backend_.SetPlans({}); }
  const FaultBackend& backend() const { return backend_; }
  const Manifest& manifest() const { return store_->manifest(); }
  std::vector<std::byte> ManifestBytes() const { return EncodeManifest(manifest()); }

  Result<LayoutRecord> Build(const LayoutSpec& spec, bool resume = false,
                             const ProgressFunction& progress = {}) {
    auto record = BuildLayout(*store_, budget_, spec, resume, progress, &report_);
    EXPECT_EQ(budget_.used_bytes(), 0u);
    return record;
  }
  bool resumed() const { return report_.resumed; }  // of the last build

  // Of the layout that the catalog names; expects all its pages to verify.
  Contents Read(std::string_view name = "default") {
    const auto layout = Layout::Open(*store_, name);
    EXPECT_TRUE(layout.ok()) << layout.status().ToString();
    if (!layout.ok()) return {};
    const LayoutRecord& record = (*layout)->record();
    Contents contents = {Bytes(Folder(record) / "layout.qlc"), Bytes(Folder(record) / "trace.qlt")};
    EXPECT_EQ(contents.first.size(), record.file_bytes);
    EXPECT_EQ(contents.second.size(), record.trace_bytes);
    const std::string_view regions =
        std::string_view(contents.first)
            .substr((*layout)->Locate(0, kPageBytes).offset, (*layout)->directory().regions_bytes);
    const Status status = (*layout)->VerifyPages(0, std::as_bytes(std::span(regions)));
    EXPECT_TRUE(status.ok()) << status.ToString();
    contents.first.erase(0, kPageBytes);
    contents.second.erase(0, kPageBytes);
    return contents;
  }
  fs::path Folder(const LayoutRecord& record) const { return fs::path(path_) / record.directory; }
  std::set<std::string> Folders() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(path_ + "/layouts")) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }
  std::set<std::string> FoldersOfRecords() const {
    std::set<std::string> names;
    for (const LayoutRecord& record : manifest().layouts) names.insert(Folder(record).filename());
    return names;
  }

 private:
  const std::string path_;
  testing_util::UnsyncedBackend unsynced_;
  FaultBackend backend_{unsynced_};
  MemoryBudget budget_{kGiB};
  std::unique_ptr<Store> store_;
  BuildReport report_;
};

// All tests share a database with a layout of Spec.
class BuildFaultsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    database_ = std::make_unique<TinyDatabase>(kGraph);
    Workbench bench(database_->path());
    const auto record = bench.Build(Spec());
    ASSERT_TRUE(record.ok()) << record.status().ToString();
    ASSERT_GT(record->batches_per_segment, 0u);
    contents_ = bench.Read();
    for (const FaultKind kind : kKinds) counts_.push_back(bench.backend().count(kind));
  }
  static void TearDownTestSuite() { database_.reset(); }

  static constexpr FaultKind kKinds[] = {FaultKind::kOpen, FaultKind::kRead, FaultKind::kWrite,
                                         FaultKind::kSync, FaultKind::kRename};
  static std::unique_ptr<TinyDatabase> database_;
  static Contents contents_;
  static std::vector<uint64_t> counts_;  // operations of a build, by kKinds
  Workbench bench_{database_->path()};
};
std::unique_ptr<TinyDatabase> BuildFaultsTest::database_;
Contents BuildFaultsTest::contents_;
std::vector<uint64_t> BuildFaultsTest::counts_;

TEST_F(BuildFaultsTest, AnyFailingOperationLeavesTheLayoutThatWasThereAndTheNextBuildIsWhole) {
  for (size_t i = 0; i < counts_.size(); ++i) {
    const auto manifest = bench_.ManifestBytes();
    uint64_t failed = 0;
    // The last operations are of the commit, which is the most delicate.
    for (uint64_t at = 1;; at += at + 6 >= counts_[i] ? 1 : 1 + counts_[i] / 12) {
      const bool sticky = at % 2 == 0;
      const int error = kKinds[i] == FaultKind::kRead ? EIO : ENOSPC;
      SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(kKinds[i]) << ", operation " << at
                                      << " of " << counts_[i] << (sticky ? " and every later one" : ""));
      bench_.Strike({.kind = kKinds[i], .at = at, .sticky = sticky, .error = error});
      const auto built = bench_.Build(Spec());
      const bool struck = bench_.backend().strikes() > 0;
      bench_.Heal();
      if (!struck) {  // this was the next build
        ASSERT_TRUE(built.ok()) << built.status().ToString();
        ASSERT_TRUE(bench_.Read() == contents_);
        EXPECT_EQ(bench_.Folders(), bench_.FoldersOfRecords()) << "what failed builds left is gone";
        break;
      }
      ++failed;
      ASSERT_EQ(built.status().code(), error == EIO ? Code::kIoError : Code::kNoSpace)
          << built.status().ToString();
      bench_.Reopen();
      ASSERT_EQ(bench_.ManifestBytes(), manifest);
      ASSERT_TRUE(bench_.Read() == contents_) << "the layout that was there";
    }
    EXPECT_GE(failed, std::min<uint64_t>(counts_[i] - 1, 10));
  }
}

// Write errors of the disk besides ENOSPC, and transfers that come in parts.
TEST_F(BuildFaultsTest, AnyErrorIsReportedAndShortTransfersAreContinued) {
  for (size_t i = 0; i < counts_.size(); ++i) {
    for (uint64_t at = 1; at < counts_[i]; at += 1 + counts_[i] / 5) {
      for (const int error : {EIO, 0, EINTR, EAGAIN}) {
        const bool transfer = kKinds[i] == FaultKind::kRead || kKinds[i] == FaultKind::kWrite;
        if (error != EIO && !transfer) continue;
        SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(kKinds[i]) << ", operation " << at
                                        << ", error " << error);
        bench_.Strike({.kind = kKinds[i], .at = at, .error = error});
        const auto built = bench_.Build(Spec());
        EXPECT_EQ(bench_.backend().strikes(), 1u);
        bench_.Heal();
        if (error == EIO) {
          EXPECT_EQ(built.status().code(), Code::kIoError) << built.status().ToString();
        } else {
          EXPECT_TRUE(built.ok()) << built.status().ToString();
        }
        ASSERT_TRUE(bench_.Read() == contents_);
      }
    }
  }
  ASSERT_TRUE(bench_.Build(Spec()).ok());  // nothing is left of the last one that failed
}

TEST_F(BuildFaultsTest, AFirstBuildThatFailsLeavesNoLayoutAndTheNextIsWhole) {
  const auto manifest = bench_.ManifestBytes();
  for (const FaultKind kind : kKinds) {
    bench_.Strike({.kind = kind, .at = 1, .error = EIO});
    ASSERT_EQ(bench_.Build(Spec("first")).status().code(), Code::kIoError);
    bench_.Heal();
    bench_.Reopen();
    EXPECT_EQ(bench_.ManifestBytes(), manifest);
    EXPECT_EQ(bench_.manifest().FindLayout("first"), nullptr);
  }
  ASSERT_TRUE(bench_.Build(Spec("first")).ok());
  EXPECT_TRUE(bench_.Read("first") == contents_);
  EXPECT_EQ(bench_.Folders(), bench_.FoldersOfRecords());
}

// A resumed build takes the trace over or, where it cannot read it, samples anew; either way it is the same.
TEST_F(BuildFaultsTest, AResumedBuildIsWholeOrFailsWhateverReadFails) {
  const auto stop = [](std::string_view phase, uint64_t, uint64_t) {
    return phase == "packing" ? Status(Code::kCancelled, "stop") : Status::Ok();
  };
  ASSERT_EQ(bench_.Build(Spec(), false, stop).status().code(), Code::kCancelled);
  bench_.Heal();
  ASSERT_EQ(bench_.Build(Spec(), true, stop).status().code(), Code::kCancelled);
  ASSERT_TRUE(bench_.resumed());
  const uint64_t reads = bench_.backend().count(FaultKind::kRead);
  uint64_t sampled_anew = 0;
  for (uint64_t at = 1; at <= reads; at += at < 25 ? 1 : 1 + reads / 6) {
    SCOPED_TRACE(testing::Message() << "read " << at << " of " << reads);
    bench_.Strike({.kind = FaultKind::kRead, .at = at, .error = EIO});
    const Status status = bench_.Build(Spec(), true, stop).status();
    EXPECT_EQ(bench_.backend().strikes(), 1u);
    if (status.code() == Code::kIoError) continue;
    ASSERT_EQ(status.code(), Code::kCancelled) << status.ToString();  // it came as far as without the fault
    EXPECT_FALSE(bench_.resumed()) << "the read was of the trace";
    ++sampled_anew;
  }
  EXPECT_GT(sampled_anew, 0u);
  bench_.Heal();
  ASSERT_TRUE(bench_.Build(Spec(), true).ok());
  EXPECT_TRUE(bench_.resumed());
  EXPECT_TRUE(bench_.Read() == contents_);
}

TEST_F(BuildFaultsTest, TheLayoutThatIsReplacedIsThereUntilTheNewOneIsCommitted) {
  const fs::path folder = bench_.Folder(*bench_.manifest().FindLayout("default"));
  std::set<std::string> phases;
  const auto built = bench_.Build(Spec(), false, [&](std::string_view phase, uint64_t, uint64_t) {
    phases.emplace(phase);
    EXPECT_TRUE(fs::exists(folder / "layout.qlc") && fs::exists(folder / "trace.qlt")) << phase;
    return Status::Ok();
  });
  ASSERT_TRUE(built.ok()) << built.status().ToString();
  EXPECT_EQ(phases, (std::set<std::string>{"sampling", "planning", "encoding", "packing"}));
  EXPECT_FALSE(fs::exists(folder));
}

}  // namespace
}  // namespace quarry
