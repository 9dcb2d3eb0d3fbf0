// Embedding tables of a database: what a checkpoint has is there after any crash, and nothing else.
#include "quarry/embedding/embedding_store.h"
#include "quarry/embedding/verify_embeddings.h"
#include "quarry/verify/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <utility>

#include "embedding/row_block_util.h"
#include "embedding/trained_tables.h"
#include "quarry/storage/training_state.h"
#include "support/database.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing_util::FaultsOf;
using testing_util::FilesIn;
using testing_util::TrainedTables;

class EmbeddingStoreTest : public testing::Test {
 protected:
  EmbeddingStoreTest() {
    const Status status = testing_util::CreateEmptyDatabase(*backend_, path_);
    EXPECT_OK(status);
    store_.Reopen();
  }
  // Loses all that no checkpoint has.
  void Crash(TrainedTables& tables) {
    tables.Close();
    store_.Reopen();
  }
  void Restart(TrainedTables& tables) {
    Crash(tables);
    const Status status = tables.Open(*store_);
    ASSERT_OK(status);
  }
  Result<std::unique_ptr<StoredEmbeddings>> Open(std::string_view name) {
    return StoredEmbeddings::Open(*store_, budget_, name, testing_util::FewFrames(*store_, name));
  }
  void Touch(const std::string& file) const { std::ofstream(path_ + "/embeddings/" + file) << "x"; }

  const testing_util::ScratchFolder folder_{testing_util::Medium::kMemory};
  const std::string path_ = folder_.path() + "/db";
  const std::unique_ptr<IoBackend> backend_ = MakeDefaultBackend();
  MemoryBudget budget_{kGiB};
  testing_util::TestStore store_{*backend_, path_};
};

TEST_F(EmbeddingStoreTest, ANewTableIsASuperblockWhateverItsSize) {
  const EmbeddingSpec spec{.row_count = 10'000'000,
                           .dim = 50,
                           .element_type = ElementType::kBfloat16,
                           .optimizer = OptimizerKind::kSgd,
                           .init = InitKind::kNormal,
                           .init_scale = 0.5F,
                           .seed = 7};
  ASSERT_OK(CreateEmbeddings(*store_, "nodes", spec));
  EXPECT_EQ(fs::file_size(path_ + "/embeddings/nodes-1.qet"), 4096u);
  store_.Reopen();
  ASSERT_OK_AND_ASSIGN(const auto opened, Open("nodes"));
  EXPECT_EQ(opened->timestamp(), kNeverWritten);
  EXPECT_EQ(opened->record().page_bytes, kEmbeddingPageBytes);
  RowBlock block{.ids = {0, 9'999'999}};
  ASSERT_OK(opened->table().Read(block));
  for (size_t i = 0; i < 2; ++i) {
    std::vector<float> expected(spec.dim);
    InitRow(spec, block.ids[i], expected);
    EXPECT_EQ(RowValues(block, spec, i), expected);
    EXPECT_EQ(block.timestamps[i], kNeverWritten);
  }
  EXPECT_THAT(FilesIn(path_ + "/embeddings"), ElementsAre("nodes-1.qet"));
  EXPECT_THAT(FaultsOf(*store_), IsEmpty());
}

TEST_F(EmbeddingStoreTest, RefusesWhatCannotBe) {
  const EmbeddingSpec spec{.row_count = 10, .dim = 4};
  for (const char* name : {"", "a/b", "..", "a b", "\xc3\xa9"}) {
    EXPECT_THAT(CreateEmbeddings(*store_, name, spec), IsStatus(Code::kUsage)) << name;
  }
  const auto code = [&](EmbeddingSpec bad, uint32_t page_bytes = kEmbeddingPageBytes) {
    return CreateEmbeddings(*store_, "bad", bad, page_bytes).code();
  };
  EXPECT_EQ(code({.row_count = 0, .dim = 4}), Code::kInvalidArgument);
  EXPECT_EQ(code({.row_count = 10, .dim = 0}), Code::kInvalidArgument);
  EXPECT_EQ(code({.row_count = 10, .dim = 4, .element_type = ElementType::kInt8}), Code::kInvalidArgument);
  EXPECT_EQ(code({.row_count = 10, .dim = 4, .init_scale = std::numeric_limits<float>::infinity()}),
            Code::kInvalidArgument);
  EXPECT_EQ(code({.row_count = 10, .dim = 4000}), Code::kInvalidArgument) << "a row larger than a page";
  EXPECT_EQ(code(spec, 0), Code::kInvalidArgument);
  EXPECT_EQ(code(spec, 5000), Code::kInvalidArgument);
  EXPECT_FALSE(fs::exists(path_ + "/embeddings")) << "nothing was made";
  ASSERT_OK(CreateEmbeddings(*store_, "Nodes_2-x", spec));
  EXPECT_THAT(CreateEmbeddings(*store_, "Nodes_2-x", spec), IsStatus(Code::kAlreadyExists));
  const Status absent = StoredEmbeddings::Open(*store_, budget_, "nodes", {.memory_bytes = kMiB}).status();
  EXPECT_THAT(absent, IsStatus(Code::kNotFound, HasSubstr("embedding tables: Nodes_2-x")));
  EXPECT_THAT(StoredEmbeddings::Open(*store_, budget_, "Nodes_2-x", {.memory_bytes = 1}),
              IsStatus(Code::kOutOfBudget));
}

TEST_F(EmbeddingStoreTest, ATableIsOpenOnceAtATime) {
  ASSERT_OK(CreateEmbeddings(*store_, "nodes", {.row_count = 10, .dim = 4}));
  {
    const auto first = Open("nodes");
    ASSERT_OK(first);
    EXPECT_THAT(Open("nodes"), IsStatus(Code::kBusy));
    EXPECT_THAT(DropEmbeddings(*store_, "nodes"), IsStatus(Code::kBusy));
  }
  EXPECT_OK(Open("nodes"));
}

TEST_F(EmbeddingStoreTest, ADroppedTableIsGoneWithItsFilesAndItsNameIsFree) {
  TrainedTables tables(1);
  ASSERT_OK(tables.Create(*store_));
  ASSERT_OK(tables.Open(*store_));
  ASSERT_OK(tables.Train(0));
  ASSERT_OK(tables.Checkpoint(*store_, 0));
  Crash(tables);
  ASSERT_OK(DropEmbeddings(*store_, "nodes"));
  EXPECT_THAT(DropEmbeddings(*store_, "nodes"), IsStatus(Code::kNotFound));
  EXPECT_THAT(FilesIn(path_ + "/embeddings"), ElementsAre("relations-1-1.qem", "relations-1.qet"));
  ASSERT_OK(CreateEmbeddings(*store_, "nodes", {.row_count = 10, .dim = 4}));
  store_.Reopen();
  EXPECT_EQ((*Open("nodes"))->timestamp(), kNeverWritten);
  EXPECT_THAT(FaultsOf(*store_), IsEmpty());
}

// Both tables are a few times larger than their pools, so most of what is written after a checkpoint is on
// disk when the crash comes, and none of it may be seen.
TEST_F(EmbeddingStoreTest, ACrashAtAnyPointLeavesExactlyTheLastCheckpoint) {
  uint64_t pages_lost = 0;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    TrainedTables tables(seed);
    ASSERT_OK(tables.Create(*store_));
    TrainedTables::LastWrites committed;
    int64_t checkpoint = kNeverWritten;
    int64_t now = 0;  // goes on through crashes, so that what was lost differs from what is written again
    for (int crash = 0; crash < 5; ++crash) {
      Restart(tables);
      tables.ExpectState(*store_, checkpoint, committed);
      if (HasFatalFailure()) return;
      TrainedTables::LastWrites writes = committed;
      uint64_t pages_at_checkpoint = 0;
      for (uint64_t left = rng.Below(100); left > 0; --left, ++now) {
        ASSERT_OK(tables.Train(now));
        tables.Note(now, writes);
        if (rng.Below(40) != 0) continue;
        ASSERT_OK(tables.Checkpoint(*store_, now));
        committed = writes;
        checkpoint = now;
        pages_at_checkpoint = tables[0].stats().pages_written;
      }
      pages_lost += tables[0].stats().pages_written - pages_at_checkpoint;
    }
    Crash(tables);
    EXPECT_THAT(FaultsOf(*store_), IsEmpty());
    for (const std::string_view name : TrainedTables::kNames) {
      ASSERT_OK(DropEmbeddings(*store_, name));
    }
  }
  EXPECT_GT(pages_lost, 300u) << "else nothing was at stake";
}

// As above, and at some crashes training returns to the checkpoint that it kept.
TEST_F(EmbeddingStoreTest, TheKeptCheckpointIsThereToReturnToHoweverLongTrainingGoesOn) {
  int returns = 0, files_beside = 0;
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    TrainedTables tables(seed);
    ASSERT_OK(tables.Create(*store_));
    TrainedTables::LastWrites committed, kept;
    int64_t checkpoint = kNeverWritten, kept_at = kNeverWritten;
    int64_t now = 0;
    for (int crash = 0; crash < 6; ++crash) {
      Restart(tables);
      EXPECT_THAT(FaultsOf(*store_), IsEmpty());
      tables.ExpectState(*store_, checkpoint, committed);
      if (HasFatalFailure()) return;
      TrainedTables::LastWrites writes = committed;
      for (uint64_t left = 20 + rng.Below(60); left > 0; --left, ++now) {
        ASSERT_OK(tables.Train(now));
        tables.Note(now, writes);
        if (rng.Below(12) != 0) continue;
        // A commit that is refused changes nothing of what is kept.
        if (rng.Below(3) == 0) {
          EXPECT_FALSE(tables.Checkpoint(*store_, now, Status(Code::kCancelled, "no"), KeptMap::kThis).ok());
          continue;
        }
        const KeptMap which = rng.Below(3) == 0 ? KeptMap::kThis : KeptMap::kAsBefore;
        ASSERT_OK(tables.Checkpoint(*store_, now, {}, which));
        committed = writes;
        checkpoint = now;
        if (which == KeptMap::kThis) kept = writes, kept_at = now;
        files_beside += kept_at != kNeverWritten && kept_at != now ? 1 : 0;
        ASSERT_THAT(FilesIn(path_ + "/embeddings"),
                    SizeIs(kept_at == kNeverWritten || kept_at == now ? 4 : 6));
      }
      if (kept_at == kNeverWritten || rng.Below(2) == 0) continue;
      Crash(tables);
      ASSERT_OK(TrainedTables::ReturnTo(*store_, kept_at));
      EXPECT_THAT(FilesIn(path_ + "/embeddings"), SizeIs(testing::Ge(4u)));
      EXPECT_THAT(TrainedTables::ReturnTo(*store_, kept_at), IsStatus(Code::kInvalidArgument))
          << "nothing is kept any more";
      committed = kept;
      checkpoint = std::exchange(kept_at, kNeverWritten);
      ++returns;
    }
    Crash(tables);
    EXPECT_THAT(FaultsOf(*store_), IsEmpty());
    for (const std::string_view name : TrainedTables::kNames) {
      ASSERT_OK(DropEmbeddings(*store_, name));
    }
    EXPECT_THAT(FilesIn(path_ + "/embeddings"), IsEmpty());
  }
  EXPECT_GT(returns, 1);
  EXPECT_GT(files_beside, 2);
}

// A run that is dropped before it has ended: its tables stay as they were last, and the best epoch's vectors go, also from a
// table that is open.
TEST_F(EmbeddingStoreTest, TheKeptCheckpointOfARunGoesWithTheRun) {
  const EmbeddingSpec spec{.row_count = 200, .dim = 100, .seed = 3};
  std::map<std::string, std::unique_ptr<StoredEmbeddings>> tables;
  for (const std::string name : {"x-nodes", "x-relations", "y-nodes", "x-other"}) {
    ASSERT_OK(CreateEmbeddings(*store_, name, spec, 4096));
    ASSERT_OK_AND_ASSIGN(tables[name], Open(name));
    StoredEmbeddings* const table = tables[name].get();
    ASSERT_OK(CheckpointAll(*store_, {&table, 1}, 1, {}, KeptMap::kThis));
    // That of x-relations is the last one, too.
    if (name != "x-relations") {
      ASSERT_OK(CheckpointAll(*store_, {&table, 1}, 2));
    }
  }
  const std::vector<std::byte> state(8);
  ASSERT_OK(CheckpointTraining(*store_, {.name = "x", .settings = "--task link", .state = state},
                               [&](const ManifestChange& change) { return store_->UpdateManifest(change); }));
  EXPECT_THAT(FilesIn(path_ + "/embeddings"), SizeIs(3 + 2 + 3 + 3));
  const std::string before = store_->manifest()->FindEmbedding("x-relations")->map_file;
  ASSERT_OK(DropTraining(*store_, "x"));
  const auto keeps = [&](std::string_view name) {
    return !store_->manifest()->FindEmbedding(name)->kept_map_file.empty();
  };
  EXPECT_FALSE(keeps("x-nodes"));
  EXPECT_FALSE(keeps("x-relations"));
  EXPECT_EQ(store_->manifest()->FindEmbedding("x-relations")->map_file, before);
  EXPECT_TRUE(keeps("y-nodes")) << "of another run";
  EXPECT_TRUE(keeps("x-other")) << "of no run";
  EXPECT_THAT(FilesIn(path_ + "/embeddings"), SizeIs(2 + 2 + 3 + 3));
  for (const auto& [name, opened] : tables) {
    StoredEmbeddings* const table = opened.get();
    ASSERT_OK(CheckpointAll(*store_, {&table, 1}, 3));
  }
  EXPECT_FALSE(keeps("x-nodes"));
  EXPECT_FALSE(keeps("x-relations"));
  EXPECT_THAT(FilesIn(path_ + "/embeddings"), SizeIs(2 + 2 + 3 + 3));
  tables.clear();
  store_.Reopen();
  EXPECT_THAT(FaultsOf(*store_), IsEmpty());
  EXPECT_THAT(FilesIn(path_ + "/embeddings"), SizeIs(2 + 2 + 3 + 3));
}

TEST_F(EmbeddingStoreTest, ACheckpointThatIsRefusedLeavesTheOneBefore) {
  TrainedTables tables(5);
  ASSERT_OK(tables.Create(*store_));
  ASSERT_OK(tables.Open(*store_));
  const auto train = [&](int64_t first, int64_t end) {
    for (; first < end; ++first) ASSERT_OK(tables.Train(first));
  };
  train(0, 50);
  ASSERT_OK(tables.Checkpoint(*store_, 49));
  train(50, 100);
  const Status cancelled = MakeStatus(Code::kCancelled, "no");
  EXPECT_THAT(tables.Checkpoint(*store_, 99, cancelled), IsStatus(Code::kCancelled));
  EXPECT_EQ(tables[0].timestamp(), 49);
  train(100, 150);
  EXPECT_THAT(tables.Checkpoint(*store_, 48), IsStatus(Code::kInvalidArgument))
      << "time does not run backwards";
  Restart(tables);
  tables.ExpectState(*store_, 49, tables.WritesUpTo(49));
  EXPECT_THAT(FaultsOf(*store_), IsEmpty());
  // And training goes on behind a checkpoint that was refused.
  train(50, 80);
  EXPECT_THAT(tables.Checkpoint(*store_, 79, cancelled), IsStatus(Code::kCancelled));
  train(80, 120);
  ASSERT_OK(tables.Checkpoint(*store_, 119));
  EXPECT_THAT(FilesIn(path_ + "/embeddings"), SizeIs(4)) << "the maps before are gone, the refused ones too";
  train(120, 150);
  Restart(tables);
  tables.ExpectState(*store_, 119, tables.WritesUpTo(119));
}

TEST_F(EmbeddingStoreTest, OneTableOfSeveralMayBeCheckpointedByItself) {
  TrainedTables tables(6);
  ASSERT_OK(tables.Create(*store_));
  ASSERT_OK(tables.Open(*store_));
  ASSERT_OK(tables.Train(0));
  ASSERT_OK(tables.Checkpoint(*store_, 0));
  ASSERT_OK(tables.Train(1));
  ASSERT_OK(tables[1].Checkpoint(1));
  Restart(tables);
  EXPECT_EQ(tables[0].timestamp(), 0);
  EXPECT_EQ(tables[1].timestamp(), 1);
  tables.ExpectRows(0, tables.WritesUpTo(0)[0]);
  tables.ExpectRows(1, tables.WritesUpTo(1)[1]);
}

TEST_F(EmbeddingStoreTest, LeftoversGoWhenATableIsOpenedAndNotBefore) {
  TrainedTables tables(7);
  ASSERT_OK(tables.Create(*store_));
  const std::vector<std::string> ours = {"ghost-1.qet", "ghost-1-3.qem", "nodes-1-9.qem", "nodes-2.qet"};
  const std::vector<std::string> others = {"README", "nodes.qet", "-1.qet", "nodes-1x.qet",
                                           "relations-1-9.qem"};  // the last may be of a checkpoint under way
  for (const auto& files : {ours, others}) {
    for (const std::string& file : files) Touch(file);
  }
  store_.Reopen();
  EXPECT_THAT(FaultsOf(*store_), SizeIs(4)) << "strangers are faults, leftovers are none";
  for (const std::string& file : ours) EXPECT_TRUE(fs::exists(path_ + "/embeddings/" + file)) << file;
  ASSERT_OK(Open("nodes"));
  for (const std::string& file : ours) EXPECT_FALSE(fs::exists(path_ + "/embeddings/" + file)) << file;
  for (const std::string& file : others) EXPECT_TRUE(fs::exists(path_ + "/embeddings/" + file)) << file;
  Touch("ghost-1.qet");
  EXPECT_OK(CreateEmbeddings(*store_, "ghost", tables.spec(0))) << "a creation that did not commit";
  ASSERT_OK(tables.Open(*store_));
  tables.ExpectState(*store_, kNeverWritten, {});
}

// A commit that fails may have reached the disk all the same.
class DoubtfulCommitTest : public EmbeddingStoreTest {
 protected:
  // A checkpoint at 49, a refused one at 99.
  void SetUp() override {
    ASSERT_OK(tables_.Create(*store_));
    ASSERT_OK(tables_.Open(*store_));
    Train(0, 50);
    ASSERT_OK(tables_.Checkpoint(*store_, 49));
    Train(50, 100);
    const Status refused = MakeStatus(Code::kIoError, "who knows");
    ASSERT_THAT(tables_.Checkpoint(*store_, 99, refused), IsStatus(Code::kIoError));
  }
  void Train(int64_t first, int64_t end) {
    for (; first < end; ++first) ASSERT_OK(tables_.Train(first));
  }
  // What was refused at 99 is on disk, and the store does not know.
  void CommitBehindTheStore() {
    Manifest manifest = *store_->manifest();
    manifest.source = "99";
    for (EmbeddingRecord& record : manifest.embeddings) {
      record.map_file = fmt::format("embeddings/{}-1-{}.qem", record.name, ++record.map_generation);
      record.timestamp = 99;
    }
    ASSERT_OK_AND_ASSIGN(const auto catalog, Catalog::Open(path_, /*read_only=*/false));
    ASSERT_OK(catalog->CommitManifest(manifest));
    ASSERT_OK(catalog->Close());
  }
  void ExpectAfterRestart(int64_t timestamp) {
    Restart(tables_);
    tables_.ExpectState(*store_, timestamp, tables_.WritesUpTo(timestamp));
    EXPECT_THAT(FaultsOf(*store_), IsEmpty());
  }

  TrainedTables tables_{8};
};

TEST_F(DoubtfulCommitTest, TrainingOnSparesThePagesOfBoth) {
  Train(100, 200);
  CommitBehindTheStore();
  ExpectAfterRestart(99);
}

TEST_F(DoubtfulCommitTest, TheNextCheckpointReplacesBoth) {
  CommitBehindTheStore();
  Train(100, 200);
  ASSERT_OK(tables_.Checkpoint(*store_, 199));
  Train(200, 250);
  ExpectAfterRestart(199);
}

TEST_F(DoubtfulCommitTest, OpeningAgainInTheSameStoreSettlesWhatTheDatabaseNames) {
  CommitBehindTheStore();
  tables_.Close();
  ASSERT_OK(tables_.Open(*store_));
  tables_.ExpectState(*store_, 49, tables_.WritesUpTo(49));
  Train(50, 150);
  ExpectAfterRestart(49);
}

// Damage to what the checkpoint names.
class DamagedEmbeddingsTest : public EmbeddingStoreTest {
 protected:
  void SetUp() override {
    ASSERT_OK(tables_.Create(*store_));
    ASSERT_OK(tables_.Open(*store_));
    for (int64_t now = 0; now < 60; ++now) ASSERT_OK(tables_.Train(now));
    ASSERT_OK(tables_.Checkpoint(*store_, 59));
    Crash(tables_);
    ASSERT_THAT(FaultsOf(*store_), IsEmpty());
  }
  void Flip(const std::string& path, uint64_t offset) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const auto byte = static_cast<char>(file.get() ^ 0x10);
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(byte);
    ASSERT_TRUE(file.good());
  }
  // The slots that the map names, by their offset.
  std::vector<uint64_t> NamedSlots() const {
    const std::shared_ptr<const Manifest> manifest = store_->manifest();
    const EmbeddingRecord& record = *manifest->FindEmbedding("nodes");
    const auto file = PageFile::Open(*backend_,
                                     {.path = Path(record.file),
                                      .database_id = manifest->database_id,
                                      .page_bytes = record.page_bytes,
                                      .page_count = record.page_count},
                                     {Path(record.map_file), record.map_generation});
    std::vector<uint64_t> offsets;
    for (PageNumber page = 0; page < record.page_count; ++page) {
      const PageEntry entry = (*file)->entry(page);
      if (entry.slot != kNoPageSlot) offsets.push_back((*file)->SlotOffset(entry.slot));
    }
    return offsets;
  }
  std::string Path(const std::string& file) const { return path_ + "/" + file; }
  Code OpenDamaged() {
    return StoredEmbeddings::Open(*store_, budget_, "nodes", {.memory_bytes = 8 * kMiB}).status().code();
  }

  TrainedTables tables_{9};
};

TEST_F(DamagedEmbeddingsTest, AnyFlippedByteIsFound) {
  constexpr uint64_t kSeed = 3;
  SCOPED_TRACE(kSeed);
  Rng rng(kSeed);
  const std::shared_ptr<const Manifest> manifest = store_->manifest();
  const EmbeddingRecord record = *manifest->FindEmbedding("nodes");
  const std::vector<uint64_t> slots = NamedSlots();
  ASSERT_THAT(slots, Not(IsEmpty()));
  for (int i = 0; i < 90; ++i) {
    const uint64_t slot = slots[rng.Below(slots.size())];
    const auto [file, offset] = i % 3 == 0   ? std::pair(record.map_file, rng.Below(8192))
                                : i % 3 == 1 ? std::pair(record.file, rng.Below(4096))
                                             : std::pair(record.file, slot + rng.Below(4096));
    SCOPED_TRACE(testing::Message() << file << " byte " << offset);
    Flip(Path(file), offset);
    const std::vector<Status> faults = FaultsOf(*store_);
    ASSERT_THAT(faults, SizeIs(1));
    EXPECT_THAT(faults[0], IsStatus(Code::kCorruption));
    EXPECT_THAT(std::string(faults[0].message()), HasSubstr(file));
    if (i % 3 < 2) {
      EXPECT_EQ(OpenDamaged(), Code::kCorruption);
    }
    Flip(Path(file), offset);
  }
  EXPECT_THAT(FaultsOf(*store_), IsEmpty());
}

TEST_F(DamagedEmbeddingsTest, MissingFilesAreFound) {
  for (const char* file : {"embeddings/nodes-1-1.qem", "embeddings/nodes-1.qet"}) {
    fs::remove(Path(file));
    const std::vector<Status> faults = FaultsOf(*store_);
    ASSERT_THAT(faults, SizeIs(1));
    EXPECT_THAT(std::string(faults[0].message()), HasSubstr(file));
    EXPECT_EQ(OpenDamaged(), Code::kCorruption);
  }
  EXPECT_OK(DropEmbeddings(*store_, "nodes")) << "what is damaged can be dropped";
  EXPECT_THAT(FaultsOf(*store_), IsEmpty());
}

TEST_F(DamagedEmbeddingsTest, ARowThatIsLaterThanTheCheckpointIsFound) {
  const auto change = [&](const std::function<void(EmbeddingRecord&)>& damage) {
    return store_->UpdateManifest([&](Manifest& manifest) {
      damage(manifest.embeddings[0]);
      return Status::Ok();
    });
  };
  ASSERT_OK(change([](EmbeddingRecord& record) { record.timestamp = 58; }));
  const std::vector<Status> faults = FaultsOf(*store_);
  ASSERT_THAT(faults, Not(IsEmpty()));
  EXPECT_THAT(std::string(faults[0].message()), HasSubstr("timestamp 59, and the checkpoint is that of 58"));
  ASSERT_OK(change([](EmbeddingRecord& record) { record.row_count = 1'000'000; }));
  EXPECT_THAT(FaultsOf(*store_), SizeIs(1)) << "a table that cannot be";
  ASSERT_OK(change([](EmbeddingRecord& record) { record.optimizer = 77; }));
  VerifyReport report;
  EXPECT_THAT(VerifyEmbeddings(*store_, {}, report), IsStatus(Code::kUnsupported));
}

TEST_F(DamagedEmbeddingsTest, VerifyingCanBeStopped) {
  VerifyReport report;
  const auto stop = [](std::string_view, uint64_t, uint64_t) { return MakeStatus(Code::kCancelled, "stop"); };
  EXPECT_THAT(VerifyEmbeddings(*store_, stop, report), IsStatus(Code::kCancelled));
}

}  // namespace
}  // namespace quarry
