// Compactions that are interrupted, and go on where they were: cancelled, at any fault of the disk, and
// killed at operations on files. Whatever happens, the rows are those that were written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "compaction_pace.h"
#include "pipeline/tiny_database.h"
#include "quarry/storage/compaction_progress.h"
#include "quarry/verify/verify.h"
#include "storage/compaction_child.h"
#include "storage/small_store.h"
#include "storage/store_rows.h"
#include "support/file_text.h"
#include "support/flip_byte.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing_util::FaultsIn;
using testing_util::FlipByte;
using testing_util::RandomBytes;
using testing_util::RowsNow;
using testing_util::ScratchFolder;
using testing_util::TableRows;
using testing_util::TinyDatabase;
using testing_util::TinyGraph;

using Bytes = std::vector<std::byte>;

// A sixteenth of the rows at a time, synced after every second of these.
constexpr CompactionPace kPace{
    .piece_bytes = 16 << 10, .sync_bytes_min = 30 << 10, .sync_bytes_max = 30 << 10};
constexpr uint64_t kNodes = 512;

std::string Folder() { return access("/dev/shm", W_OK) == 0 ? "/dev/shm/" : testing::TempDir(); }

// Rows of 512 bytes have a checksum each; those of 300 share that of their page.
class CompactionResumeTest : public testing::TestWithParam<uint64_t> {
 protected:
  CompactionResumeTest() : rng_(1) {
    for (NodeId node = 0; node < kNodes; ++node) rows_.push_back(database_.graph().Row(node));
    Reopen();
  }
  void Reopen() {
    store_.reset();
    auto store = Store::Open(backend_, database_.path());
    ASSERT_OK(store);
    store_ = std::move(store).value();
  }
  void Write(uint64_t count) {
    WriteBatch batch;
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t row = rng_.Below(kNodes);
      if (rng_.Below(8) == 0) {
        rows_[row].assign(rows_[row].size(), std::byte{0});
        batch.Delete("feature", row);
      } else {
        for (std::byte& byte : rows_[row]) byte = static_cast<std::byte>(rng_.Below(256));
        batch.Put("feature", row, rows_[row]);
      }
    }
    const auto timestamp = store_->Write(batch);
    ASSERT_OK(timestamp);
  }
  // Stops once `rows` were written; ~0: never.
  Result<CompactionReport> Compact(uint64_t rows = ~uint64_t{0}) {
    const auto stop = [rows](std::string_view, uint64_t done, uint64_t) {
      return done >= rows ? Status(Code::kCancelled, "enough") : Status::Ok();
    };
    return CompactTable(*store_, budget_, "feature", false, stop, kPace);
  }
  void Interrupt(uint64_t rows = kNodes / 2) {
    const auto stopped = Compact(rows);
    ASSERT_EQ(stopped.status().code(), Code::kCancelled) << stopped.status().ToString();
  }
  void ExpectRows() {
    ASSERT_EQ(RowsNow(*store_, "feature"), rows_);
    EXPECT_EQ(FaultsIn(*store_), "");
  }
  std::string Path(const std::string& name) const { return database_.path() + "/features/" + name; }
  std::string Progress() const { return Path("feature-2.progress"); }
  std::string Partial() const { return Path("feature-2.qft"); }

  const TinyDatabase database_{TinyGraph{.nodes = kNodes, .dim = GetParam()}, Folder()};
  const std::unique_ptr<IoBackend> real_ = MakeDefaultBackend();
  IoBackend& backend_ = *real_;
  MemoryBudget budget_{kGiB};
  std::unique_ptr<Store> store_;
  Rng rng_;
  TableRows rows_;
};

TEST_P(CompactionResumeTest, ItGoesOnWithTheRowsOfItsBeginning) {
  Write(100);
  Write(100);
  Interrupt();
  EXPECT_TRUE(fs::exists(Progress()) && fs::exists(Partial()));
  Write(50);  // stays a version, of rows before and behind the place
  testing::internal::CaptureStderr();
  Reopen();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "nothing was left over";
  ExpectRows();
  EXPECT_THAT(VerifyStore(*store_, {}).value().notes,
              testing::Contains(HasSubstr("an interrupted compaction of table \"feature\"")));
  const auto dry = CompactTable(*store_, budget_, "feature", true, {}, kPace);
  ASSERT_OK(dry);
  EXPECT_GT(dry->resumed_row, kNodes / 4);
  const auto report = Compact();
  ASSERT_OK(report);
  EXPECT_EQ(report->resumed_row, dry->resumed_row);
  EXPECT_LE(report->resumed_row, kNodes / 2);
  EXPECT_EQ(report->timestamp, 2u);
  EXPECT_EQ(report->rows_changed, dry->rows_changed);
  EXPECT_EQ(store_->manifest()->FindTable("feature")->folded, 2u);
  EXPECT_FALSE(fs::exists(Progress()));
  ExpectRows();
  Reopen();
  ExpectRows();
  EXPECT_EQ(Compact()->timestamp, 3u) << "what came meanwhile";
  ExpectRows();
}

// The file is what it would have been.
TEST_P(CompactionResumeTest, HowOftenItIsInterruptedDoesNotMatter) {
  Write(200);
  const auto copy = database_.path() + "-copy";
  fs::copy(database_.path(), copy, fs::copy_options::recursive);
  uint64_t resumed = 0;
  for (uint64_t rows = kNodes / 4; rows < kNodes; rows += kNodes / 8) {
    Interrupt(rows);
    Write(3);
    Reopen();
    resumed += fs::exists(Progress());
  }
  EXPECT_GT(resumed, 4u);
  ASSERT_OK(Compact());
  ExpectRows();
  const auto whole = Store::Open(backend_, copy);
  ASSERT_OK(whole);
  ASSERT_OK(CompactTable(**whole, budget_, "feature", false, {}));
  EXPECT_TRUE(testing_util::FileText(Partial()) == testing_util::FileText(copy + "/features/feature-2.qft"));
  fs::remove_all(copy);
}

TEST_P(CompactionResumeTest, LittleWorkIsNotKept) {
  Write(20);
  const auto stopped = Compact(kNodes / 16);
  EXPECT_EQ(stopped.status().message(), "enough");
  EXPECT_FALSE(fs::exists(Progress()));
  EXPECT_FALSE(fs::exists(Partial()));
  EXPECT_THAT(std::string(Compact(kNodes / 2).status().message()), HasSubstr("stay compacted"));
  // At the pace of a command such a table is too small for it.
  ASSERT_OK(CompactTable(*store_, budget_, "feature", false, {}));
  Write(20);
  const auto small =
      CompactTable(*store_, budget_, "feature", false,
                   [](std::string_view, uint64_t, uint64_t) { return Status(Code::kCancelled, "enough"); });
  EXPECT_EQ(small.status().code(), Code::kCancelled);
  EXPECT_FALSE(fs::exists(Path("feature-3.qft")));
  ExpectRows();
}

TEST_P(CompactionResumeTest, WhatDoesNotHoldIsRemovedAndBegunAnew) {
  Write(60);
  const std::vector<std::pair<std::string, std::function<void()>>> damages = {
      {"record, magic", [&] { FlipByte(Progress(), 0, 0x40); }},
      {"record, rows", [&] { FlipByte(Progress(), 48, 0x40); }},
      {"record, checksum", [&] { FlipByte(Progress(), 80, 0x40); }},
      {"record cut", [&] { fs::resize_file(Progress(), 40); }},
      {"no record", [&] { fs::remove(Progress()); }},
      {"no file", [&] { fs::remove(Partial()); }},
      {"file cut", [&] { fs::resize_file(Partial(), 4096); }},
      {"of another generation",
       [&] {
         fs::rename(Progress(), Path("feature-5.progress"));
         fs::rename(Partial(), Path("feature-5.qft"));
       }},
      {"half a record beside", [&] { fs::rename(Progress(), Progress() + ".new"); }},
  };
  for (const auto& [name, damage] : damages) {
    SCOPED_TRACE(name);
    Interrupt();
    damage();
    testing::internal::CaptureStderr();
    Reopen();
    EXPECT_OK(store_->PrepareToWrite());
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("removed, left over"));
    EXPECT_EQ(std::distance(fs::directory_iterator(Path("")), fs::directory_iterator()), 3) << "the tables";
    ExpectRows();
  }
  const auto report = Compact();
  ASSERT_OK(report);
  EXPECT_EQ(report->resumed_row, 0u);
  ExpectRows();
}

// The checksums that the record covers are not those of the file: it is seen when it is gone on with.
TEST_P(CompactionResumeTest, OtherChecksumsInTheFileAreBegunAnew) {
  Write(60);
  Interrupt();
  const auto geometry = FeatureGeometry::Make(ElementType::kFloat32, GetParam(), kNodes);
  FlipByte(Partial(), geometry->data_end() + 9, 0x40);
  Reopen();
  testing::internal::CaptureStderr();
  const auto report = Compact();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("compacting table \"feature\" begins anew"));
  ASSERT_OK(report);
  EXPECT_EQ(report->resumed_row, 0u);
  ExpectRows();
}

// One that began when nothing had changed yet, on what was written in between: were it gone on with, it would
// have nothing to do, now and at every later time.
TEST_P(CompactionResumeTest, OneOfAnInstantWithoutVersionsIsBegunAnew) {
  Write(60);
  Interrupt();
  {
    const std::shared_ptr<const Manifest> manifest = store_->manifest();
    const TableRecord& table = *manifest->FindTable("feature");
    auto record = ReadCompactionProgress(backend_, database_.path(), manifest->database_id, table);
    ASSERT_OK(record);
    record->timestamp = 0;
    ASSERT_OK(WriteCompactionProgress(backend_, database_.path(), manifest->database_id, table, *record));
  }
  Reopen();
  const auto report = Compact();
  ASSERT_OK(report);
  EXPECT_EQ(report->resumed_row, 0u);
  EXPECT_EQ(report->timestamp, 1u);
  EXPECT_EQ(store_->manifest()->FindTable("feature")->generation, 2u);
  EXPECT_FALSE(fs::exists(Progress()));
  ExpectRows();
}

TEST_P(CompactionResumeTest, AfterTheSwitchARecordThatStayedIsRemoved) {
  Write(60);
  Interrupt();
  fs::copy(Progress(), Path("kept"));
  ASSERT_OK(Compact());
  fs::rename(Path("kept"), Progress());
  Reopen();
  ASSERT_OK(store_->PrepareToWrite());
  EXPECT_FALSE(fs::exists(Progress()));
  EXPECT_TRUE(fs::exists(Partial())) << "it is the table's now";
  ExpectRows();
}

INSTANTIATE_TEST_SUITE_P(Rows, CompactionResumeTest, testing::Values(75, 128));

// A file of which the writing was gone on with, from every synced place, is the same to the last byte.
TEST(ResumedWriterTest, TheFileIsAsIfItHadBeenWrittenAtOnce) {
  struct Shape {
    uint64_t dim, rows, step;
  };
  // The last has more checksums than the writer's buffer; its steps end at, before and behind that.
  for (const Shape& shape : {Shape{7, 2000, 146}, Shape{100, 500, 10}, Shape{767, 40, 1}, Shape{1433, 41, 2},
                             Shape{128, 70'000, 32'768}}) {
    SCOPED_TRACE(testing::Message() << shape.rows << " rows of " << shape.dim);
    const ScratchFolder folder(testing_util::Medium::kMemory);
    const std::unique_ptr<IoBackend> backend = MakeDefaultBackend();
    const std::array<std::byte, 16> id{std::byte{7}};
    const auto geometry = FeatureGeometry::Make(ElementType::kFloat32, shape.dim, shape.rows).value();
    const Bytes rows = RandomBytes(shape.rows * geometry.row_bytes, shape.dim);
    const auto range = [&](uint64_t first, uint64_t end) {
      return std::span(rows).subspan(first * geometry.row_bytes, (end - first) * geometry.row_bytes);
    };
    const std::string whole = folder.path() + "/whole", path = folder.path() + "/resumed";
    auto writer = FeatureTableWriter::Create(*backend, whole, geometry, id, 3).value();
    ASSERT_OK(writer->Append(rows));
    const uint64_t bytes = writer->Finish().value();

    writer = FeatureTableWriter::Create(*backend, path, geometry, id, 3).value();
    uint64_t done = 0;
    DataFileWriter::Mark mark;
    for (; done + shape.step < shape.rows; done += shape.step) {
      ASSERT_OK(writer->Append(range(done, done + shape.step)));
      mark = writer->Sync().value();
      // Rows that are lost, written or not.
      ASSERT_OK(writer->Append(range(done + shape.step, std::min(done + 2 * shape.step, shape.rows))));
      auto resumed = FeatureTableWriter::Resume(*backend, path, geometry, id, 3, done + shape.step, mark);
      ASSERT_OK(resumed);
      writer = std::move(resumed).value();
    }
    ASSERT_OK(writer->Append(range(done, shape.rows)));
    EXPECT_EQ(writer->Finish().value(), bytes);
    EXPECT_TRUE(testing_util::FileText(whole) == testing_util::FileText(path));
    mark.section_bytes += kPageBytes;
    EXPECT_EQ(FeatureTableWriter::Resume(*backend, path, geometry, id, 3, done, mark).status().code(),
              Code::kCorruption);
  }
}

TEST(CompactionChild, Work) {
  testing_util::CompactAndDie([](Store& store, MemoryBudget& budget) {
    return CompactTable(store, budget, "feature", false, {}, kPace).ok();
  });
}

TEST(CompactionKillTest, KilledAtAnyOperationItGoesOn) {
  constexpr uint64_t kSeed = 5;
  SCOPED_TRACE(kSeed);
  Rng rng(kSeed);
  const TinyDatabase database(TinyGraph{.nodes = kNodes}, Folder());
  const std::unique_ptr<IoBackend> backend = MakeDefaultBackend();
  MemoryBudget budget(kGiB);
  TableRows rows;
  for (NodeId node = 0; node < kNodes; ++node) rows.push_back(database.graph().Row(node));
  uint64_t kills = 0, finished = 0, resumed = 0;
  while (finished < 4 && kills < 60) {
    {
      const auto store = Store::Open(*backend, database.path());
      ASSERT_OK(store);
      ASSERT_EQ(RowsNow(**store, "feature"), rows) << "after kill " << kills;
      ASSERT_EQ(FaultsIn(**store), "");
      WriteBatch batch;
      for (int i = 0; i < 5; ++i) {
        const uint64_t row = rng.Below(kNodes);
        for (std::byte& byte : rows[row]) byte = static_cast<std::byte>(rng.Below(256));
        batch.Put("feature", row, rows[row]);
      }
      ASSERT_OK((*store)->Write(batch));
      const auto dry = CompactTable(**store, budget, "feature", true, {}, kPace);
      ASSERT_OK(dry);
      resumed += dry->resumed_row > 0;
    }
    if (testing_util::RunCompactionChild("CompactionChild.Work", 1 + rng.Below(24 + kills),
                                         database.path())) {
      ++kills;
    } else {
      ASSERT_FALSE(testing::Test::HasFailure());
      ++finished;
    }
  }
  EXPECT_EQ(finished, 4u);
  EXPECT_GT(kills, 8u);
  EXPECT_GT(resumed, 5u);
}

}  // namespace
}  // namespace quarry
