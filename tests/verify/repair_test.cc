// Repair, on damage of every kind that verify finds.
#include "quarry/verify/repair.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

#include "embedding/trained_tables.h"
#include "quarry/base/units.h"
#include "quarry/embedding/verify_embeddings.h"
#include "quarry/storage/compaction.h"
#include "quarry/storage/training_state.h"
#include "quarry/verify/verify.h"
#include "storage/small_store.h"
#include "storage/store_rows.h"
#include "support/flip_byte.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;
using testing_util::FaultsIn;
using testing_util::FlipByte;
using testing_util::Medium;
using testing_util::RandomBytes;
using testing_util::RowsNow;
using testing_util::SmallStore;
using testing_util::TableRows;
using testing_util::TrainedTables;

void Plant(const std::string& path) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path) << "planted";
}

std::set<std::string> Everything(const std::string& folder) {
  std::set<std::string> paths;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) paths.insert(entry.path());
  return paths;
}

// "feature 5 to 7 lost", one a range.
std::vector<std::string> Describe(const std::vector<DamagedRows>& rows) {
  std::vector<std::string> texts;
  for (const DamagedRows& r : rows) {
    texts.push_back(fmt::format("{} {} to {} {}", r.table, r.first_row, r.first_row + r.row_count - 1,
                                r.replaced ? "replaced" : "lost"));
  }
  return texts;
}

class RepairTest : public testing::Test {
 protected:
  RepairTest() {
    EXPECT_OK(small_.Write());
    Reopen();
  }
  void Reopen() {
    store_.reset();
    auto store = Store::Open(backend_, path_);
    ASSERT_OK(store);
    store_ = std::move(store).value();
  }
  RepairReport Repair(const RepairOptions& options = {}) {
    VerifyReport found = VerifyStore(*store_, {}).value();
    EXPECT_OK(VerifyEmbeddings(*store_, {}, found));
    const auto report = RepairStore(*store_, found, options);
    EXPECT_OK(report);
    return report.ok() ? *report : RepairReport{};
  }
  Status Compact(const std::string& table) {
    return CompactTable(*store_, budget_, table, false, {}).status();
  }
  // Rows [first, first + count), with values of (seed, row).
  void Put(const std::string& table, uint64_t first, uint64_t count, uint64_t seed) {
    const uint64_t row_bytes = small_.FindTable(table).rows.size() / SmallStore::kNodes;
    WriteBatch batch;
    for (uint64_t row = first; row < first + count; ++row) {
      batch.Put(table, row, RandomBytes(row_bytes, MixSeed(seed, row)));
    }
    const auto written = store_->Write(batch);
    ASSERT_OK(written);
  }
  void PutTraining(std::string_view name) {
    const std::vector<std::byte> state = RandomBytes(9000, 1);
    const Status status =
        CheckpointTraining(*store_, {.name = name, .settings = "", .timestamp = 1, .state = state},
                           [&](const ManifestChange& change) { return store_->UpdateManifest(change); });
    ASSERT_OK(status);
  }
  uint64_t WriteLayoutFile(const std::string& path, FileKind kind) {
    auto writer = DataFileWriter::Create(backend_, path).value();
    writer->BeginSection("bytes", DataFileWriter::Cover::kPages);
    EXPECT_TRUE(writer->Append(RandomBytes(10'000, 3)).ok());
    EXPECT_OK(writer->EndSection());
    return writer->Finish({.kind = kind, .database_id = small_.manifest.database_id, .row_count = 4}).value();
  }
  // Files that verify takes for a layout.
  void PutLayout(const std::string& name) {
    LayoutRecord record{.name = name,
                        .directory = "layouts/" + name + "-1",
                        .spec = {.fanouts = {3, 2}, .batch_size = 8},
                        .epochs = 1,
                        .batch_count = 4};
    fs::create_directories(path_ + "/" + record.directory);
    record.file_bytes = WriteLayoutFile(path_ + "/" + record.directory + "/layout.qlc", FileKind::kLayout);
    record.trace_bytes = WriteLayoutFile(path_ + "/" + record.directory + "/trace.qlt", FileKind::kTrace);
    const Status status = store_->UpdateManifest([&](Manifest& manifest) {
      manifest.layouts.push_back(record);
      return Status::Ok();
    });
    ASSERT_OK(status);
  }

  const std::unique_ptr<IoBackend> real_ = MakeDefaultBackend();
  IoBackend& backend_ = *real_;
  SmallStore small_{backend_, Medium::kMemory};
  const std::string path_ = small_.path();
  MemoryBudget budget_{kGiB};
  std::unique_ptr<Store> store_;
};

TEST_F(RepairTest, ASoundDatabaseIsLeftAlone) {
  PutLayout("one");
  PutTraining("run");
  const std::set<std::string> before = Everything(path_);
  const RepairReport report = Repair({.drop_damaged = true});
  EXPECT_TRUE(report.sound());
  EXPECT_EQ(report.removed.size() + report.folders.size() + report.layouts.size() + report.trainings.size() +
                report.embeddings.size(),
            0u);
  EXPECT_EQ(Everything(path_), before) << "not even a commit";
}

TEST_F(RepairTest, WhatNoRecordNamesIsRemovedAndADryRunOnlySaysSo) {
  PutLayout("one");
  const std::set<std::string> sound = Everything(path_);
  Plant(path_ + "/features/notes.txt");
  Plant(path_ + "/topology/folder/inside");
  Plant(path_ + "/layouts/two.building/trace.qlt");
  Plant(path_ + "/layouts/three-x/anything");
  Plant(path_ + "/layouts/one-1/more");
  Plant(path_ + "/training/x");
  Plant(path_ + "/embeddings/nodes-1-7.qem");
  Plant(path_ + "/embeddings/stranger");
  const std::set<std::string> planted = Everything(path_);
  const auto expected = UnorderedElementsAre("features/notes.txt", "topology/folder", "layouts/two.building",
                                             "layouts/three-x", "layouts/one-1/more", "training/x",
                                             "embeddings/nodes-1-7.qem", "embeddings/stranger");
  const RepairReport dry = Repair({.dry_run = true});
  EXPECT_THAT(dry.removed, expected);
  EXPECT_EQ(Everything(path_), planted);
  const RepairReport report = Repair();
  EXPECT_THAT(report.removed, expected);
  EXPECT_TRUE(report.sound());
  for (const std::string& path : planted) {
    const std::string folder = fs::path(path).filename().string();
    if (folder == "training" || folder == "embeddings") continue;
    EXPECT_TRUE(sound.contains(path) || path.find("/catalog") != std::string::npos || !fs::exists(path))
        << path;
  }
  EXPECT_EQ(FaultsIn(*store_), "");
  EXPECT_THAT(Repair().removed, IsEmpty());
}

// It may be anything, even somebody's only copy of something.
TEST_F(RepairTest, WhatSomebodyPutBesideTheFoldersStays) {
  Plant(path_ + "/thesis/chapter.txt");
  Plant(path_ + "/catalog.repairing/half");
  const RepairReport report = Repair({.drop_damaged = true});
  EXPECT_THAT(report.removed, ElementsAre("catalog.repairing"));
  EXPECT_FALSE(report.sound());
  ASSERT_EQ(report.lost.size(), 1u);
  EXPECT_EQ(report.lost[0].kind, Damage::Kind::kForeign);
  EXPECT_EQ(report.lost[0].name, "thesis");
  EXPECT_TRUE(fs::exists(path_ + "/thesis/chapter.txt"));
  EXPECT_FALSE(fs::exists(path_ + "/catalog.repairing"));
}

TEST_F(RepairTest, AMissingFolderIsMadeAndWhatWasInItIsLost) {
  fs::remove_all(path_ + "/topology");
  const RepairReport report = Repair();
  EXPECT_THAT(report.folders, ElementsAre("topology"));
  EXPECT_TRUE(fs::is_directory(path_ + "/topology"));
  ASSERT_EQ(report.lost.size(), 1u);
  EXPECT_EQ(report.lost[0].kind, Damage::Kind::kTopology);
  EXPECT_EQ(report.lost[0].name, "graph");
  EXPECT_FALSE(report.sound());
}

TEST_F(RepairTest, ADamagedLayoutIsDroppedAndAnotherStays) {
  PutLayout("one");
  PutLayout("two");
  PutLayout("three");
  FlipByte(path_ + "/layouts/one-1/layout.qlc", 4096 + 5000, 0x5a);
  fs::remove(path_ + "/layouts/three-1/trace.qlt");
  const RepairReport dry = Repair({.dry_run = true});
  EXPECT_EQ(dry.layouts.size(), 2u);
  EXPECT_EQ(store_->manifest()->layouts.size(), 3u);
  const RepairReport report = Repair();
  ASSERT_EQ(report.layouts.size(), 2u) << "each once";
  EXPECT_EQ(report.layouts[0].name, "one");
  EXPECT_EQ(report.layouts[0].spec.fanouts, (std::vector<uint32_t>{3, 2})) << "enough to build it again";
  EXPECT_EQ(report.layouts[1].name, "three");
  EXPECT_TRUE(report.sound());
  EXPECT_FALSE(fs::exists(path_ + "/layouts/one-1"));
  EXPECT_FALSE(fs::exists(path_ + "/layouts/three-1"));
  Reopen();
  ASSERT_EQ(store_->manifest()->layouts.size(), 1u);
  EXPECT_EQ(store_->manifest()->layouts[0].name, "two");
  EXPECT_EQ(FaultsIn(*store_), "");
}

TEST_F(RepairTest, ADamagedStateOfATrainingRunIsDroppedOnlyWhenAsked) {
  PutTraining("one");
  PutTraining("two");
  FlipByte(path_ + "/training/1.qts", 4096 + 100, 0x5a);
  const RepairReport kept = Repair();
  ASSERT_EQ(kept.lost.size(), 1u);
  EXPECT_EQ(kept.lost[0].kind, Damage::Kind::kTraining);
  EXPECT_EQ(kept.lost[0].name, "one");
  EXPECT_TRUE(fs::exists(path_ + "/training/1.qts"));
  const RepairReport dropped = Repair({.drop_damaged = true});
  ASSERT_EQ(dropped.trainings.size(), 1u);
  EXPECT_EQ(dropped.trainings[0].name, "one");
  EXPECT_TRUE(dropped.sound());
  EXPECT_FALSE(fs::exists(path_ + "/training/1.qts"));
  EXPECT_EQ(FaultsIn(*store_), "");
  EXPECT_OK(ReadTrainingState(*store_, "two"));
}

TEST_F(RepairTest, DamagedEmbeddingsAreForTheCallerToDrop) {
  TrainedTables tables(3);
  ASSERT_OK(tables.Create(*store_));
  ASSERT_OK(tables.Open(*store_));
  ASSERT_OK(tables.Train(0));
  ASSERT_OK(tables.Checkpoint(*store_, 0));
  tables.Close();
  FlipByte(path_ + "/embeddings/relations-1.qet", 4096 + 200, 0x5a);
  const RepairReport kept = Repair();
  ASSERT_EQ(kept.lost.size(), 1u);
  EXPECT_EQ(kept.lost[0].kind, Damage::Kind::kEmbedding);
  EXPECT_EQ(kept.lost[0].name, "relations");
  const RepairReport dropped = Repair({.drop_damaged = true});
  EXPECT_THAT(dropped.embeddings, ElementsAre("relations"));
  EXPECT_TRUE(dropped.sound());
  ASSERT_OK(DropEmbeddings(*store_, "relations"));
  EXPECT_THAT(testing_util::FaultsOf(*store_), IsEmpty());
  EXPECT_NE(store_->manifest()->FindEmbedding("nodes"), nullptr);
}

TEST_F(RepairTest, LostRowsAreToldExactlyAndCompactionHealsThoseThatWereReplaced) {
  // A row of "feature" has a checksum of its own, 146 rows of "narrow" share one.
  const auto feature_row = [](uint64_t row) { return 4096 + row * 512; };
  for (const uint64_t row : {5, 6, 9})
    FlipByte(path_ + "/features/feature-1.qft", feature_row(row) + 7, 0x5a);
  FlipByte(path_ + "/features/narrow-1.qft", 4096 + 4096 + 50, 0x5a);
  Put("feature", 5, 2, 1);
  Put("feature", 9, 1, 1);
  Put("narrow", 100, 100, 1);
  const RepairReport report = Repair();
  EXPECT_THAT(Describe(report.rows), ElementsAre("feature 5 to 6 replaced", "feature 9 to 9 replaced",
                                                 "narrow 146 to 199 replaced", "narrow 200 to 291 lost"));
  EXPECT_THAT(report.lost, IsEmpty());
  EXPECT_FALSE(report.sound());

  EXPECT_OK(Compact("feature"));
  EXPECT_THAT(Describe(Repair().rows), ElementsAre("narrow 146 to 199 replaced", "narrow 200 to 291 lost"));
  EXPECT_TRUE(RowsNow(*store_, "feature")[6] == RandomBytes(512, MixSeed(1, 6)));
  EXPECT_EQ(Compact("narrow").code(), Code::kCorruption);
  EXPECT_EQ(store_->manifest()->FindTable("narrow")->generation, 1u);
  Put("narrow", 200, 92, 2);
  EXPECT_THAT(Describe(Repair().rows), ElementsAre("narrow 146 to 291 replaced"));
  const Status compacted = Compact("narrow");
  EXPECT_OK(compacted);
  EXPECT_TRUE(Repair().sound());
  EXPECT_EQ(FaultsIn(*store_), "");
  const TableRows rows = RowsNow(*store_, "narrow");
  const std::vector<std::byte>& before = small_.FindTable("narrow").rows;
  for (uint64_t row = 0; row < SmallStore::kNodes; ++row) {
    const uint64_t seed = row < 100 ? 0 : row < 200 ? 1 : row < 292 ? 2 : 0;
    const auto base = before.begin() + static_cast<ptrdiff_t>(row * 28);
    ASSERT_TRUE(rows[row] ==
                (seed == 0 ? std::vector<std::byte>(base, base + 28) : RandomBytes(28, MixSeed(seed, row))))
        << row;
  }
}

TEST_F(RepairTest, OfATableWithoutAFileAllRowsAreLost) {
  fs::resize_file(path_ + "/features/wide-1.qft", 40960);
  Put("wide", 17, 1, 1);
  const RepairReport report = Repair();
  EXPECT_THAT(Describe(report.rows),
              ElementsAre("wide 0 to 16 lost", "wide 17 to 17 replaced", "wide 18 to 599 lost"));
  ASSERT_EQ(report.lost.size(), 1u);
  EXPECT_EQ(report.lost[0].kind, Damage::Kind::kTable);
  EXPECT_EQ(report.lost[0].name, "wide");
}

TEST_F(RepairTest, DamageBesideTheRowsOfATableLosesNone) {
  // Rows of 4200 bytes are 4608 apart; what lies between is no row's.
  FlipByte(path_ + "/features/wide-1.qft", 4096 + 4200, 0x5a);
  const RepairReport report = Repair();
  EXPECT_THAT(report.rows, IsEmpty());
  ASSERT_EQ(report.lost.size(), 1u);
  EXPECT_EQ(report.lost[0].kind, Damage::Kind::kTable);
}

TEST_F(RepairTest, RunsOfDamagedRowsAreBounded) {
  VerifyReport found;
  for (uint64_t row = 0; row < 3 * kVerifyFaultsMax; ++row) {
    found.Add(Status(Code::kCorruption, "row"), {Damage::Kind::kTable, "feature", 2 * row, 1});
  }
  EXPECT_EQ(found.faults.size(), kVerifyFaultsMax);
  ASSERT_EQ(found.damages.size(), kVerifyFaultsMax);
  EXPECT_EQ(found.damages.back().first_row, 2 * (kVerifyFaultsMax - 1));
  EXPECT_EQ(found.damages.back().first_row + found.damages.back().row_count, 6 * kVerifyFaultsMax - 1);
}

class CatalogRepairTest : public RepairTest {
 protected:
  CatalogRepairTest() {
    for (uint64_t i = 0; i < 3; ++i) Put("feature", 10 + i, 1, i);
    rows_ = RowsNow(*store_, "feature");
    store_.reset();
  }
  std::string FirstFile(const std::string& prefix, const std::string& suffix = "") const {
    for (const auto& entry : fs::directory_iterator(path_ + "/catalog")) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with(prefix) && name.ends_with(suffix)) return entry.path().string();
    }
    ADD_FAILURE() << "no " << prefix << "*" << suffix;
    return "";
  }
  void ExpectWhole() {
    Reopen();
    EXPECT_EQ(FaultsIn(*store_), "");
    EXPECT_TRUE(RowsNow(*store_, "feature") == rows_);
    EXPECT_EQ(store_->TakeSnapshot().value()->timestamp, 3u);
    Put("feature", 1, 1, 9);
    store_.reset();
  }
  TableRows rows_;
};

TEST_F(CatalogRepairTest, ACatalogThatOpensIsLeftAlone) {
  const std::set<std::string> before = Everything(path_);
  const auto repair = RepairCatalog(backend_, path_, false);
  ASSERT_OK(repair);
  EXPECT_FALSE(repair->has_value());
  EXPECT_EQ(Everything(path_), before);
  const auto none = RepairCatalog(backend_, path_ + "-none", false);
  ASSERT_OK(none);
  EXPECT_FALSE(none->has_value());
}

TEST_F(CatalogRepairTest, ACatalogWithoutItsDirectoryIsMadeAnewOfItsTables) {
  const std::vector<std::function<void()>> damages = {
      [&] { fs::remove(path_ + "/catalog/CURRENT"); },
      [&] { fs::resize_file(FirstFile("MANIFEST-"), 0); },
      [&] { std::ofstream(path_ + "/catalog/CURRENT") << "MANIFEST-999999\n"; },
  };
  for (size_t i = 0; i < damages.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "damage " << i);
    const fs::path saved = small_.folder.path() + "/saved";
    fs::remove_all(saved);
    fs::copy(path_, saved, fs::copy_options::recursive);
    damages[i]();
    ASSERT_EQ(Store::Open(backend_, path_).status().code(), Code::kCorruption);
    const std::set<std::string> before = Everything(path_);
    const auto dry = RepairCatalog(backend_, path_, true).value();
    ASSERT_TRUE(dry.has_value());
    EXPECT_EQ(dry->fault.code(), Code::kCorruption);
    EXPECT_EQ(Everything(path_), before);
    const auto repair = RepairCatalog(backend_, path_, false);
    ASSERT_OK(repair);
    ASSERT_TRUE(repair->has_value());
    EXPECT_EQ((*repair)->timestamp, 3u);
    EXPECT_THAT((*repair)->lost_tables, IsEmpty());
    EXPECT_TRUE(fs::is_directory((*repair)->damaged_path));
    EXPECT_FALSE(fs::exists(path_ + "/catalog.repairing"));
    ExpectWhole();
    fs::remove_all(path_);
    fs::rename(saved, path_);
  }
}

TEST_F(CatalogRepairTest, ItNamesTheTablesOfWhichNothingCouldBeRead) {
  fs::remove(path_ + "/catalog/CURRENT");
  // One more table, of which RocksDB can make nothing.
  std::ofstream(path_ + "/catalog/000999.sst") << std::string(5000, 'x');
  const auto repair = RepairCatalog(backend_, path_, false);
  ASSERT_OK(repair);
  EXPECT_THAT((*repair)->lost_tables, ElementsAre("000999.sst"));
  ExpectWhole();
}

TEST_F(CatalogRepairTest, WithoutAManifestInWhatCanBeReadAllStaysAsItWas) {
  fs::remove(path_ + "/catalog/CURRENT");
  for (const auto& entry : fs::directory_iterator(path_ + "/catalog")) {
    const std::string extension = entry.path().extension().string();
    if (extension == ".sst" || extension == ".log") fs::resize_file(entry.path(), 0);
  }
  const std::set<std::string> before = Everything(path_);
  const auto repair = RepairCatalog(backend_, path_, false);
  EXPECT_EQ(repair.status().code(), Code::kCorruption) << repair.status().ToString();
  EXPECT_EQ(Everything(path_), before);
}

TEST_F(CatalogRepairTest, TheCatalogOfAnEarlierRepairIsNotOverwritten) {
  fs::remove(path_ + "/catalog/CURRENT");
  ASSERT_OK(RepairCatalog(backend_, path_, false));
  fs::remove(path_ + "/catalog/CURRENT");
  const Status status = RepairCatalog(backend_, path_, false).status();
  EXPECT_EQ(status.code(), Code::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), HasSubstr("catalog.damaged"));
}

TEST_F(CatalogRepairTest, ADeathBetweenTheRenamesIsUndone) {
  fs::rename(path_ + "/catalog", path_ + "/catalog.damaged");
  const auto repair = RepairCatalog(backend_, path_, false);
  ASSERT_OK(repair);
  EXPECT_FALSE(repair->has_value()) << "it opens";
  ExpectWhole();
}

}  // namespace
}  // namespace quarry
