// VerifyStore over databases with layouts, and DropLayout over what builds leave. Here and not with the tests
// of storage because layouts are built two rooms above it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "pipeline/tiny_database.h"
#include "quarry/base/progress.h"
#include "quarry/base/units.h"
#include "quarry/layout/layout.h"
#include "quarry/verify/verify.h"
#include "support/fault_backend.h"
#include "support/flip_byte.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing_util::FlipByte;
using testing_util::TinyDatabase;
using testing_util::TinyGraph;

class VerifyLayoutTest : public testing::Test {
 protected:
  // Most of the time would go into fsync.
  static std::string MemoryFolder() {
    return access("/dev/shm", W_OK) == 0 ? "/dev/shm/" : testing::TempDir();
  }
  VerifyLayoutTest() : database_(TinyGraph{.nodes = 1500}, MemoryFolder()) {
    store_ = Store::Open(faulty_, database_.path()).value();
  }

  Result<LayoutRecord> TryBuild(const std::string& name, const ProgressFunction& progress) {
    MemoryBudget budget(kGiB);
    const uint64_t feature_bytes = 1500 * 512;
    const LayoutSpec spec{
        .name = name,
        .road = {.fanouts = {4, 3}, .batch_size = 32, .cache_bytes = feature_bytes / 5, .seed = 5},
        .disk_bytes = name == "segmented" ? feature_bytes * 5 / 2 : 0,
        .threads = 2};
    return BuildLayout(*store_, budget, spec, /*resume=*/false, progress);
  }
  LayoutRecord Build(const std::string& name) {
    const auto record = TryBuild(name, {});
    EXPECT_OK(record);
    return record.ok() ? *record : LayoutRecord();
  }
  void Interrupt(const std::string& name) {
    const auto stopped = TryBuild(name, [](std::string_view phase, uint64_t, uint64_t) {
      return phase == "packing" ? MakeStatus(Code::kCancelled, "stop") : Status::Ok();
    });
    ASSERT_THAT(stopped, IsStatus(Code::kCancelled));
    ASSERT_TRUE(fs::exists(Path("layouts/" + name + ".building")));
  }
  std::string Path(const std::string& name) const { return database_.path() + "/" + name; }

  // What verify finds, and what it mentions.
  std::string Faults() {
    const auto report = VerifyStore(*store_, {});
    EXPECT_OK(report);
    notes_.clear();
    for (const std::string& note : report->notes) notes_ += note + "\n";
    std::string text;
    for (const Status& fault : report->faults) {
      EXPECT_THAT(fault, IsStatus(Code::kCorruption));
      text += std::string(fault.message()) + "\n";
    }
    return text;
  }

  std::unique_ptr<IoBackend> backend_ = MakeDefaultBackend();
  FaultBackend faulty_{*backend_};
  TinyDatabase database_;
  std::unique_ptr<Store> store_;
  std::string notes_;
};

TEST_F(VerifyLayoutTest, SoundLayoutsHaveNoFaultsAndEveryByteIsRead) {
  Build("plain");
  ASSERT_GT(Build("segmented").batches_per_segment, 0u);
  uint64_t total_last = 0;
  uint64_t done_last = 0;
  ASSERT_OK_AND_ASSIGN(const auto report,
                       VerifyStore(*store_, [&](std::string_view, uint64_t done, uint64_t total) {
                         if (total_last > 0) {
                           EXPECT_EQ(total, total_last) << "known from the beginning";
                         }
                         done_last = done;
                         total_last = total;
                         return Status::Ok();
                       }));
  EXPECT_TRUE(report.faults.empty()) << report.faults.front().message();
  uint64_t files = 0;
  uint64_t bytes = 0;
  for (const char* folder : {"features", "topology", "layouts"}) {
    for (const auto& entry : fs::recursive_directory_iterator(Path(folder))) {
      if (!entry.is_regular_file()) continue;
      ++files;
      bytes += entry.file_size();
    }
  }
  EXPECT_EQ(report.files, files);
  EXPECT_EQ(report.bytes, bytes);
  EXPECT_EQ(done_last, bytes);
  EXPECT_EQ(total_last, bytes);
}

TEST_F(VerifyLayoutTest, AnyFlippedByteIsFoundAndTheRemedyNamed) {
  constexpr uint64_t kSeed = 31;
  Rng rng(kSeed);
  const LayoutRecord record = Build("segmented");
  for (const char* name : {"/layout.qlc", "/trace.qlt"}) {
    const std::string path = Path(record.directory) + name;
    const uint64_t bytes = fs::file_size(path);
    std::vector<uint64_t> offsets = {0, 90, kPageBytes - 1, kPageBytes, bytes - 1, bytes - kPageBytes};
    // Half of the flips strike anywhere, half in the last pages: checksums, directory, footer, padding.
    for (int i = 0; i < 24; ++i) {
      offsets.push_back(rng.Below(bytes));
      offsets.push_back(bytes - 1 - rng.Below(std::min(bytes, 12 * kPageBytes)));
    }
    for (const uint64_t offset : offsets) {
      SCOPED_TRACE(fmt::format("seed {}, {} at {} of {}", kSeed, name, offset, bytes));
      const auto mask = static_cast<char>(1 << rng.Below(8));
      FlipByte(path, offset, mask);
      EXPECT_THAT(Faults(), AllOf(HasSubstr(path), HasSubstr("page "),
                                  HasSubstr("quarry layout rebuild " + database_.path() + " segmented")));
      FlipByte(path, offset, mask);
    }
  }
  EXPECT_EQ(Faults(), "") << "all flips were undone";
}

TEST_F(VerifyLayoutTest, MissingAndShortAndExchangedFilesAreFaultsAndTheOthersAreStillRead) {
  const std::string one = Path(Build("one").directory);
  const std::string two = Path(Build("two").directory);
  fs::resize_file(one + "/layout.qlc", fs::file_size(one + "/layout.qlc") - kPageBytes);
  fs::rename(two + "/trace.qlt", Path("trace"));
  FlipByte(Path("features/feature-1.qft"), 2 * kPageBytes, 1);
  EXPECT_THAT(Faults(), AllOf(HasSubstr(one + "/layout.qlc: "), HasSubstr("truncated"),
                              HasSubstr(two + "/trace.qlt: the catalog names this file, and it is missing"),
                              HasSubstr("feature-1.qft: page 2 "), HasSubstr("import again\n")));
  FlipByte(Path("features/feature-1.qft"), 2 * kPageBytes, 1);

  fs::copy_file(one + "/trace.qlt", two + "/trace.qlt");  // of an equal layout: nothing is wrong with it
  EXPECT_THAT(Faults(), testing::Not(HasSubstr("trace.qlt")));
  Build("one");  // the next generation
  fs::copy_file(Path("trace"), Path("layouts/one-2/trace.qlt"), fs::copy_options::overwrite_existing);
  EXPECT_THAT(Faults(), HasSubstr("one-2/trace.qlt: page 0: generation 1 where the catalog says 2"));
  fs::copy_file(Path("layouts/one-2/layout.qlc"), Path("layouts/one-2/trace.qlt"),
                fs::copy_options::overwrite_existing);
  EXPECT_THAT(Faults(), HasSubstr("one-2/trace.qlt: page 0: file kind 3 where the catalog says 4"));
}

TEST_F(VerifyLayoutTest, TheCatalogMustAgreeAndTellsWhetherALayoutIsFresh) {
  Build("one");
  Manifest manifest = *store_->manifest();
  manifest.layouts[0].batch_count += 1;
  ASSERT_OK(store_->UpdateManifest([&](Manifest& m) { return m = manifest, Status::Ok(); }));
  EXPECT_THAT(Faults(), HasSubstr("batches where the catalog says"));
  manifest.layouts[0].batch_count -= 1;
  manifest.layouts[0].trace_bytes += kPageBytes;
  ASSERT_OK(store_->UpdateManifest([&](Manifest& m) { return m = manifest, Status::Ok(); }));
  EXPECT_THAT(Faults(), HasSubstr("trace.qlt: "));

  EXPECT_TRUE(IsFresh(manifest, manifest.layouts[0]));
  manifest.layouts[0].topology_generation += 1;
  EXPECT_FALSE(IsFresh(manifest, manifest.layouts[0]));
  manifest.layouts[0].topology_generation -= 1;
  manifest.tables.back().generation += 1;
  manifest.layouts[0].spec.feature_table = manifest.tables.back().name;
  EXPECT_FALSE(IsFresh(manifest, manifest.layouts[0]));
}

TEST_F(VerifyLayoutTest, StraysAreFaultsAndAnInterruptedBuildIsMentioned) {
  const std::string folder = Path(Build("one").directory);
  Interrupt("half");
  EXPECT_EQ(Faults(), "");
  EXPECT_THAT(notes_, AllOf(HasSubstr("layouts/half.building"),
                            HasSubstr("quarry layout drop " + database_.path() + " half")));

  std::ofstream(folder + "/plan.tmp") << "scratch";
  std::ofstream(Path("layouts/file.building")) << "no folder";
  fs::create_directory(Path("layouts/one-0"));
  const std::string faults = Faults();
  EXPECT_THAT(faults, HasSubstr("one-1/plan.tmp: the catalog names no such file"));
  EXPECT_THAT(faults, HasSubstr("layouts/file.building: the catalog names no such file"));
  EXPECT_THAT(faults, HasSubstr("layouts/one-0: the catalog names no such folder"));
  EXPECT_THAT(faults, testing::Not(HasSubstr("half")));
  EXPECT_EQ(std::ranges::count(faults, '\n'), 3);
}

TEST_F(VerifyLayoutTest, PassingLayoutsAreNoFaultsAndGoWithTheNextWriter) {
  const std::string folder = Path(Build("one").directory);
  Interrupt("half");
  for (const char* name : {"layouts/one-superbatch-0.passing", "layouts/plot-cache.passing"}) {
    fs::create_directory(Path(name));
    std::ofstream(Path(name) + "/trace.qlt") << "of an epoch";
  }
  EXPECT_EQ(Faults(), "");
  EXPECT_THAT(notes_, testing::Not(HasSubstr("passing")));
  std::ofstream(Path("layouts/file.passing")) << "no folder";
  EXPECT_THAT(Faults(), HasSubstr("layouts/file.passing: the catalog names no such file"));

  store_.reset();
  ASSERT_OK_AND_ASSIGN(auto opened, Store::Open(faulty_, database_.path()));
  store_ = std::move(opened);
  EXPECT_THAT(Faults(), testing::Not(HasSubstr("superbatch"))) << "reading neither faults nor removes them";
  EXPECT_TRUE(fs::exists(Path("layouts/one-superbatch-0.passing")));
  ASSERT_OK(store_->PrepareToWrite());
  EXPECT_FALSE(fs::exists(Path("layouts/one-superbatch-0.passing")));
  EXPECT_FALSE(fs::exists(Path("layouts/plot-cache.passing")));
  EXPECT_TRUE(fs::exists(folder));
  EXPECT_TRUE(fs::exists(Path("layouts/half.building"))) << "its trace can be taken over";
  EXPECT_TRUE(fs::exists(Path("layouts/file.passing"))) << "none of ours";
}

TEST_F(VerifyLayoutTest, AReadErrorIsAnErrorAndNotAFault) {
  Build("one");
  for (uint64_t at = 1; at < 500; at += 5) {
    faulty_.SetPlans({{.kind = FaultKind::kRead, .at = at, .error = EIO}});
    const uint64_t strikes = faulty_.strikes();
    const auto result = VerifyStore(*store_, {});
    if (faulty_.strikes() == strikes) {
      EXPECT_OK(result);
      EXPECT_GT(at, 20u);
      return;
    }
    ASSERT_THAT(result, IsStatus(Code::kIoError)) << at;
  }
  FAIL() << "500 reads do not verify a small database";
}

TEST_F(VerifyLayoutTest, DropRemovesALayoutAndWhatAnInterruptedBuildLeft) {
  Interrupt("half");
  EXPECT_OK(DropLayout(*store_, "half"));
  EXPECT_FALSE(fs::exists(Path("layouts/half.building")));
  EXPECT_THAT(DropLayout(*store_, "half"), IsStatus(Code::kNotFound)) << "nothing is left";

  const std::string folder = Path(Build("both").directory);
  Interrupt("both");
  Build("other");
  EXPECT_OK(DropLayout(*store_, "both"));
  EXPECT_FALSE(fs::exists(folder));
  EXPECT_FALSE(fs::exists(Path("layouts/both.building")));
  EXPECT_EQ(store_->manifest()->FindLayout("both"), nullptr);
  EXPECT_NE(store_->manifest()->FindLayout("other"), nullptr);

  fs::create_directory(Path("features/other.building"));
  EXPECT_THAT(DropLayout(*store_, "../features/other"), IsStatus(Code::kNotFound));
  EXPECT_TRUE(fs::exists(Path("features/other.building"))) << "outside layouts/ nothing is removed";
  fs::remove(Path("features/other.building"));
  EXPECT_EQ(Faults(), "");
}

}  // namespace
}  // namespace quarry
