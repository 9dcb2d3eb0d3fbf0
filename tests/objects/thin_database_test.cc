// Databases whose large files are in an object store, against the same databases on the disk: every byte, every batch,
// whatever befalls the requests.
#include "quarry/objects/thin_database.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "objects/fake_store.h"
#include "pipeline/pass_util.h"
#include "pipeline/tiny_database.h"
#include "quarry/io/ring.h"
#include "quarry/layout/layout.h"
#include "quarry/objects/push.h"
#include "quarry/partition/stored_partitioning.h"
#include "quarry/pipeline/partitioned_node_road.h"
#include "quarry/pipeline/planned_road.h"
#include "quarry/storage/checkpoint.h"
#include "support/file_text.h"
#include "support/status_matchers.h"
#include "support/temporary_folder.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing_util::RunPass;
using testing_util::SmallOptions;
using testing_util::TinyDatabase;
using testing_util::TinyGraph;
using testing_util::TryPass;
using Hashes = std::vector<std::pair<uint64_t, uint64_t>>;

const ObjectPlace kThinPlace{"bucket", "thin"};
constexpr uint64_t kBlock = kRemoteBlockBytes;

// Published once: features of 16 MiB, a layout of two epochs, and parts.
class ThinDatabaseTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = std::make_unique<FakeStore>();
    database_ = std::make_unique<TinyDatabase>(TinyGraph{.nodes = 4000, .dim = 1024});
    const auto backend = MakeDefaultBackend();
    MemoryBudget budget(kGiB);
    {
      ASSERT_OK_AND_ASSIGN(const auto store, Store::Open(*backend, database_->path()));
      LayoutSpec spec{.road = SmallOptions().spec.ForOtherPasses(), .epochs = 2, .threads = 2};
      spec.road.cache_bytes = 2 * kMiB;
      spec.disk_bytes = 60 * kMiB;
      ASSERT_OK(BuildLayout(*store, budget, spec, false, {}));
      Assignment assignment{.parts = 4};
      for (uint64_t node = 0; node < 4000; node++) assignment.part_of.push_back(node * 7 % 4);
      ASSERT_OK(BuildPartitioning(*store, budget, {.table = "feature"}, assignment, {}));
      ASSERT_OK_AND_ASSIGN(const auto road, PlannedRoad::Open(*store, budget, {}));
      for (Hashes& epoch : epochs_) epoch = RunPass(*road, {.seeds = TrainNodes()});
    }
    const auto objects = OpenObjects();
    ASSERT_OK(PushDatabase(*objects, *backend, budget,
                           {.folder = database_->path(), .database_id = "id", .publication = "p"}, {}));
  }
  static void TearDownTestSuite() {
    database_.reset();
    server_.reset();
  }
  void TearDown() override { server_->SetSchedule({}); }

  static ObjectStoreOptions Requests() {
    return {.attempts_max = 5,
            .backoff_seconds = 0.001,
            .first_deadline_seconds = 0.3,
            .deadline_min_seconds = 0.3,
            .seed = 5};
  }
  static std::unique_ptr<ObjectStore> OpenObjects() {
    static MemoryBudget budget(kGiB);
    auto store = ObjectStore::Open(kThinPlace, server_->access(), budget, Requests());
    EXPECT_OK(store);
    return std::move(store).value();
  }
  static std::vector<NodeId> TrainNodes() {
    std::vector<NodeId> nodes = database_->graph().SplitNodes(Split::kTrain);
    std::erase_if(nodes, [](NodeId node) { return database_->graph().Label(node) < 0; });
    return nodes;
  }

  // A thin copy at `path`.
  void PullThin() {
    const auto objects = OpenObjects();
    const auto backend = MakeDefaultBackend();
    ASSERT_OK(PullDatabase(*objects, *backend, budget_, path_, {}, /*thin=*/true));
  }
  Result<std::unique_ptr<ThinBackend>> OpenBackend(uint64_t memory_bytes = 32 * kMiB,
                                                   uint64_t cache_bytes = 0) {
    return OpenThin(MakeDefaultBackend(), path_, server_->access(),
                    {.memory_bytes = memory_bytes,
                     .cache_folder = cache_bytes > 0 ? folder_ / "cache" : "",
                     .cache_bytes = cache_bytes,
                     .store = Requests()});
  }
  // Both planned epochs, and the first again.
  void ExpectEpochs(ThinBackend& backend) {
    ASSERT_OK_AND_ASSIGN(const auto store, Store::Open(backend, path_));
    ASSERT_OK_AND_ASSIGN(const auto road, PlannedRoad::Open(*store, budget_, {}));
    for (const int epoch : {0, 1, 0}) {
      ASSERT_EQ(RunPass(*road, {.seeds = TrainNodes()}), epochs_[epoch]) << "epoch " << epoch;
    }
  }

  static std::unique_ptr<FakeStore> server_;
  static std::unique_ptr<TinyDatabase> database_;
  static Hashes epochs_[2];
  TemporaryFolder folder_{"thin"};
  const std::string path_ = folder_ / "db";
  MemoryBudget budget_{kGiB};
};
std::unique_ptr<FakeStore> ThinDatabaseTest::server_;
std::unique_ptr<TinyDatabase> ThinDatabaseTest::database_;
Hashes ThinDatabaseTest::epochs_[2];

TEST_F(ThinDatabaseTest, LargeFilesStayInTheStore) {
  PullThin();
  ASSERT_OK_AND_ASSIGN(const ThinFiles files, ReadThinFiles(path_));
  EXPECT_EQ(files.place.address(), "s3://bucket/thin");
  uint64_t staying = 0;
  for (const RemoteFile& file : files.manifest.files) {
    struct stat info {};
    ASSERT_EQ(stat((path_ + "/" + file.name).c_str(), &info), 0);
    EXPECT_EQ(static_cast<uint64_t>(info.st_size), file.bytes);
    EXPECT_EQ(info.st_blocks, 0) << file.name;
    staying += file.bytes;
  }
  EXPECT_GT(staying, 60 * kMiB);  // features, layout, parts
  ASSERT_OK_AND_ASSIGN(const auto backend, OpenBackend());
  ASSERT_OK_AND_ASSIGN(const auto store, Store::Open(*backend, path_));
  EXPECT_EQ(store->manifest()->node_count, 4000U);
  // Without the store it is no database.
  EXPECT_THAT(Store::Open(*MakeDefaultBackend(), path_),
              IsStatus(Code::kUnsupported, AllOf(HasSubstr("thin database"), HasSubstr("quarry pull"))));
}

TEST_F(ThinDatabaseTest, EveryByteIsThatOfTheFile) {
  constexpr uint64_t kSeed = 3;
  SCOPED_TRACE(fmt::format("seed {}", kSeed));
  PullThin();
  for (const uint64_t memory : {kThinBlocksMin * (kBlock + kMiB / 2), 64 * kMiB}) {
    ASSERT_OK_AND_ASSIGN(const auto backend, OpenBackend(memory));
    const auto local = MakeDefaultBackend();
    ASSERT_OK_AND_ASSIGN(const ThinFiles files, ReadThinFiles(path_));
    Rng rng(kSeed);
    ASSERT_OK_AND_ASSIGN(const auto ring, IoRing::Make(*backend, 8));
    // A small file, too: a ring has reads of both kinds under way.
    std::vector<std::string> names = {"VERSION"};
    for (const RemoteFile& file : files.manifest.files) names.push_back(file.name);
    struct Wanted {
      std::unique_ptr<File> file;
      std::vector<std::byte> expected, got;
    };
    std::vector<Wanted> wanted;
    for (int i = 0; i < 30; i++) {
      const std::string& name = names[rng.Below(names.size())];
      ASSERT_OK_AND_ASSIGN(const File whole,
                           local->Open(database_->path() + "/" + name, OpenMode::kReadBuffered));
      ASSERT_OK_AND_ASSIGN(const uint64_t size, local->FileBytes(whole));
      const uint64_t offset = rng.Below(size);
      const uint64_t bytes =
          std::min<uint64_t>(size - offset, 1 + rng.Below(i % 10 == 0 ? 9 * kMiB : 100'000));
      ASSERT_OK_AND_ASSIGN(File opened, backend->Open(path_ + "/" + name, OpenMode::kReadBuffered));
      wanted.push_back({std::make_unique<File>(std::move(opened)), std::vector<std::byte>(bytes),
                        std::vector<std::byte>(bytes)});
      Wanted& last = wanted.back();
      ASSERT_OK(local->ReadAt(whole, offset, last.expected));
      if (i % 3 == 0) {
        ASSERT_OK(backend->ReadAt(*last.file, offset, last.got));
        continue;
      }
      const IoRequest request{last.file.get(), offset, static_cast<uint32_t>(bytes), last.got.data(), 0};
      ASSERT_OK(ring->Submit({&request, 1}));
    }
    std::vector<uint64_t> done;
    while (ring->pending() > 0) ASSERT_OK(ring->Wait(done));
    for (const Wanted& read : wanted) ASSERT_EQ(read.got, read.expected) << read.file->path();
    // Behind the end there is nothing.
    ASSERT_OK_AND_ASSIGN(const File file, backend->Open(path_ + "/" + names[1], OpenMode::kReadDirect));
    const IoRequest behind{&file, files.manifest.files[0].bytes - 1, 2, wanted[0].got.data(), 0};
    EXPECT_THAT(backend->ReadAt(file, behind.offset, std::span(wanted.back().got).first(2)),
                IsStatus(Code::kCorruption, HasSubstr("ends at offset")));
  }
}

TEST_F(ThinDatabaseTest, PlannedEpochsAreThoseOfTheDisk) {
  PullThin();
  ASSERT_OK_AND_ASSIGN(const auto backend, OpenBackend(64 * kMiB));
  ExpectEpochs(*backend);
  const ObjectReadStatistics read = backend->statistics();
  EXPECT_GT(read.blocks_ahead, read.blocks_from_store / 4);  // on their way before they were needed
  EXPECT_LT(read.bytes_from_store, 2 * read.bytes_used);
}

// One of every hundred requests fails and one hangs; others are torn, lost or have a wrong bit.
TEST_F(ThinDatabaseTest, RequestsThatFailCostTimeAndNothingElse) {
  constexpr uint64_t kSeed = 11;
  SCOPED_TRACE(fmt::format("seed {}", kSeed));
  PullThin();
  std::atomic<uint64_t> hung{0}, failed{0};
  const uint64_t before = server_->requests();
  server_->SetSchedule([&, before](const SeenRequest& request) -> Fate {
    const uint64_t number = request.number - before;
    if (number % 100 == 7) {
      ++hung;
      return {Fate::kHang};
    }
    if (number % 100 == 3) {
      ++failed;
      return {Fate::kError};
    }
    constexpr Fate::Kind kOthers[] = {Fate::kTorn, Fate::kSpoilt, Fate::kSlowDown, Fate::kLost};
    const uint64_t draw = MixSeed(kSeed, number) % 100;
    return draw < 4 ? Fate{kOthers[draw]} : Fate{.delay_seconds = draw < 10 ? 0.02 : 0};
  });
  ASSERT_OK_AND_ASSIGN(const auto backend, OpenBackend(32 * kMiB));
  ExpectEpochs(*backend);
  EXPECT_GT(hung, 0U);
  EXPECT_GT(failed, 0U);
}

TEST_F(ThinDatabaseTest, TheCacheOutlivesTheProcessAndIsNeverBelieved) {
  PullThin();
  for (int run = 0; run < 3; run++) {
    SCOPED_TRACE(fmt::format("run {}", run));
    ASSERT_OK_AND_ASSIGN(const auto backend, OpenBackend(64 * kMiB, 512 * kMiB));
    ExpectEpochs(*backend);
    const ObjectReadStatistics read = backend->statistics();
    if (run == 1) {
      EXPECT_EQ(read.blocks_from_store, 0U);
    } else {
      EXPECT_GT(read.blocks_from_store, 5U);
    }
    // Wrong bits in blocks that are there.
    std::fstream file(folder_ / "cache/blocks", std::ios::in | std::ios::out | std::ios::binary);
    const uint64_t slots = fs::file_size(folder_ / "cache/blocks") / kBlock;
    for (uint64_t slot = 0; run == 1 && slot < slots; slot++) {
      file.seekp(static_cast<std::streamoff>(slot * kBlock + slot * 1009 % kBlock));
      file.put('?');
    }
  }
}

TEST_F(ThinDatabaseTest, PartsAreReadFromTheStore) {
  PullThin();
  PartitionedNodeRoadOptions options{.spec = SmallOptions().spec.ForOtherPasses(), .sampler_threads = 1};
  options.parts.buffer = 2;
  options.parts.logical = 4;
  Hashes expected[4], got[4];  // by Split
  const auto run = [&](IoBackend& backend, const std::string& path, Hashes* passes) {
    ASSERT_OK_AND_ASSIGN(const auto store, Store::Open(backend, path));
    ASSERT_OK_AND_ASSIGN(const auto road, PartitionedNodeRoad::Open(*store, budget_, options));
    for (const Split split : {Split::kTrain, Split::kValid, Split::kTest}) {
      ASSERT_OK_AND_ASSIGN(const auto stream, road->StartSplit(split, {.pass = 3, .ordered = true}));
      while (true) {
        ASSERT_OK_AND_ASSIGN(const auto batch, stream->Next());
        if (batch == nullptr) break;
        passes[static_cast<size_t>(split)].emplace_back(batch->index(),
                                                        testing_util::HashBatch(batch->view()));
      }
    }
  };
  run(*MakeDefaultBackend(), database_->path(), expected);
  ASSERT_OK_AND_ASSIGN(const auto backend, OpenBackend());
  run(*backend, path_, got);
  for (int split = 1; split < 4; split++) {
    EXPECT_FALSE(expected[split].empty());
    EXPECT_EQ(got[split], expected[split]);
  }
}

TEST_F(ThinDatabaseTest, WhatTheStoreDoesNotGiveIsAnError) {
  PullThin();
  ASSERT_OK_AND_ASSIGN(const ThinFiles files, ReadThinFiles(path_));
  const auto layout = std::ranges::find_if(
      files.manifest.files, [](const RemoteFile& file) { return file.name.starts_with("layouts/"); });
  ASSERT_NE(layout, files.manifest.files.end());
  const std::string key = "bucket/thin/" + layout->Key();
  const std::string bytes = server_->objects().at(key);
  const auto run = [&]() -> Status {
    QUARRY_TRY(const auto backend, OpenBackend());
    QUARRY_TRY(const auto store, Store::Open(*backend, path_));
    QUARRY_TRY(const auto road, PlannedRoad::Open(*store, budget_, {}));
    return TryPass(*road, {.seeds = TrainNodes()}).status;
  };
  std::string wrong = bytes;
  wrong[wrong.size() / 4] = static_cast<char>(wrong[wrong.size() / 4] ^ 4);
  server_->PutObject(key, wrong);
  EXPECT_THAT(run(), IsStatus(Code::kCorruption, AllOf(HasSubstr(layout->name), HasSubstr("block"))));
  server_->PutObject(key, bytes);
  ASSERT_OK(run());
  server_->SetSchedule([](const SeenRequest&) { return Fate{Fate::kError}; });
  EXPECT_THAT(run(), IsStatus(Code::kIoError, HasSubstr("500")));
}

TEST_F(ThinDatabaseTest, ScatteredRowsAreRefusedAndWritesStayHere) {
  PullThin();
  ASSERT_OK_AND_ASSIGN(const auto backend, OpenBackend());
  ASSERT_OK_AND_ASSIGN(const auto store, Store::Open(*backend, path_));
  EXPECT_THAT(LiveRoad::Open(*store, budget_, SmallOptions()),
              IsStatus(Code::kUnsupported, AllOf(HasSubstr("80 thousand"), HasSubstr("--road planned"),
                                                 HasSubstr("quarry pull"))));
  // A road whose other passes would be live has none, says so, and has its own.
  PlannedRoadOptions options;
  options.live = SmallOptions();
  ASSERT_OK_AND_ASSIGN(auto road, PlannedRoad::Open(*store, budget_, options));
  EXPECT_TRUE(road->Serves(Split::kTrain));
  EXPECT_FALSE(road->Serves(Split::kValid));
  EXPECT_THAT(road->StartSplit(Split::kValid, {}), IsStatus(Code::kUnsupported, HasSubstr("quarry pull")));
  road.reset();
  // A row that is put is served, over the layout too.
  WriteBatch batch;
  const NodeId node = TrainNodes()[0];
  std::vector<std::byte> row(RowBytes(ElementType::kFloat32, 1024), std::byte{0x3f});
  batch.Put("feature", node, row);
  ASSERT_OK(store->Write(batch));
  ASSERT_OK_AND_ASSIGN(road, PlannedRoad::Open(*store, budget_, {}));
  ASSERT_OK_AND_ASSIGN(const auto stream, road->StartPass({.seeds = TrainNodes()}));
  int seen = 0;
  while (true) {
    ASSERT_OK_AND_ASSIGN(const auto next, stream->Next());
    if (next == nullptr) break;
    const auto& view = next->view();
    for (size_t i = 0; i < view.nodes.size(); i++) {
      if (view.nodes[i] != node) continue;
      ++seen;
      EXPECT_EQ(std::memcmp(view.features.Row(i), row.data(), row.size()), 0);
    }
  }
  EXPECT_GT(seen, 0);
  const std::string table = path_ + "/" + store->manifest()->FindTable("feature")->file;
  EXPECT_THAT(backend->Open(table, OpenMode::kReadWriteDirect), IsStatus(Code::kUnsupported));
  EXPECT_THAT(backend->Link(table, path_ + "/other"), IsStatus(Code::kUnsupported));
  EXPECT_THAT(backend->Rename(path_ + "/features", path_ + "/other"), IsStatus(Code::kUnsupported));
}

// A checkpoint has all of it: what cannot be linked is copied, through the store.
TEST_F(ThinDatabaseTest, ACheckpointOfItIsWhole) {
  PullThin();
  ASSERT_OK_AND_ASSIGN(const auto backend, OpenBackend());
  ASSERT_OK_AND_ASSIGN(const auto store, Store::Open(*backend, path_));
  ASSERT_OK(CheckpointStore(*store, budget_, folder_ / "whole", {}));
  const auto local = MakeDefaultBackend();
  ASSERT_OK_AND_ASSIGN(const auto whole, Store::Open(*local, folder_ / "whole"));
  ASSERT_OK_AND_ASSIGN(const auto road, PlannedRoad::Open(*whole, budget_, {}));
  EXPECT_EQ(RunPass(*road, {.seeds = TrainNodes()}), epochs_[0]);
}

TEST_F(ThinDatabaseTest, ItsListOfFilesIsChecked) {
  PullThin();
  const std::string text = testing_util::FileText(path_ + "/OBJECTS");
  for (const std::string& wrong :
       {std::string(), text.substr(0, text.size() - 1), "quarry-thin 9 s3://a/b\n" + text,
        "quarry-thin 1 s3://\n" + text.substr(text.find('\n') + 1)}) {
    folder_.Write("db/OBJECTS", wrong);
    EXPECT_THAT(OpenBackend(), IsStatus(Code::kCorruption, HasSubstr("OBJECTS")));
  }
  folder_.Write("db/OBJECTS", text);
  EXPECT_THAT(OpenBackend(8 * kMiB), IsStatus(Code::kOutOfBudget));
  EXPECT_THAT(ThinMemoryBytes(10 * kMiB), IsStatus(Code::kOutOfBudget, HasSubstr("72.0 MiB")));
  EXPECT_OK(OpenBackend());
}

}  // namespace
}  // namespace quarry
