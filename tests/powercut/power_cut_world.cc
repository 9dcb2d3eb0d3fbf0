#include "powercut/power_cut_world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "quarry/layout/layout.h"
#include "quarry/storage/training_state.h"
#include "quarry/verify/repair.h"
#include "quarry/verify/verify.h"
#include "storage/store_rows.h"
#include "support/flip_byte.h"
#include "support/status_matchers.h"

namespace quarry::powercut {
namespace {

namespace fs = std::filesystem;
using crash::BatchOf;
using crash::Bytes;
using crash::kWriters;
using crash::WriterBatch;
using testing_util::FaultsOf;
using testing_util::TinyGraph;
using testing_util::TrainedTables;

// The graph of the small databases.
const TinyGraph kSmall{.nodes = 40, .dim = 8};

WriteBatch ToWriteBatch(const WriterBatch& rows) {
  WriteBatch batch;
  for (const auto& [row, value] : rows.rows) batch.Put("feature", row, value);
  for (const auto& [node, label] : rows.labels) batch.SetLabel(node, label);
  return batch;
}

Bytes SmallRow(float value) {
  const std::vector<float> values(kSmall.dim, value);
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

// Row 3 is written to, so that there is a version.
Status MakeSmall(IoBackend& backend, const std::string& path) {
  QUARRY_RETURN_IF_ERROR(ImportTinyGraph(backend, kSmall, path));
  QUARRY_TRY(const std::unique_ptr<Store> store, Store::Open(backend, path));
  WriteBatch batch;
  batch.Put("feature", 3, SmallRow(7));
  return store->Write(batch).status();
}

testing_util::TableRows SmallRows() {
  testing_util::TableRows rows;
  for (NodeId node = 0; node < kSmall.nodes; ++node) rows.push_back(kSmall.Row(node));
  rows[3] = SmallRow(7);
  return rows;
}

Status Damage(IoBackend& backend, const std::string& path) {
  {
    QUARRY_TRY(const std::unique_ptr<Store> store, Store::Open(backend, path));
    MemoryBudget budget(64 * kMiB);
    const LayoutSpec spec{
        .road = {.fanouts = {3}, .batch_size = 16, .cache_bytes = 8 * kSmall.dim * sizeof(float), .seed = 5}};
    QUARRY_RETURN_IF_ERROR(BuildLayout(*store, budget, spec, /*resume=*/false, {}).status());
  }
  testing_util::FlipByte(path + "/layouts/default-1/layout.qlc", 5000, 0x5a);
  std::ofstream(path + "/features/notes.txt") << "planted";
  fs::create_directories(path + "/topology/stranger/inside");
  return Status::Ok();
}

}  // namespace

Status PrepareWorld(const std::string& folder, uint64_t seed) {
  testing_util::UnsyncedBackend backend;
  // As works see them: without a watch, RocksDB reserves space for its logs.
  const CatalogWatch watch([](const CatalogOperation&, const CatalogWatch::Perform& perform) { perform(); });
  fs::create_directory(folder);
  const std::string path = folder + std::string(kDatabase);
  QUARRY_RETURN_IF_ERROR(ImportTinyGraph(backend, crash::Graph(), path));
  {
    QUARRY_TRY(const std::unique_ptr<Store> store, Store::Open(backend, path));
    QUARRY_RETURN_IF_ERROR(TrainedTables(seed).Create(*store));
    for (uint64_t writer = 0; writer < kWriters; ++writer) {
      QUARRY_RETURN_IF_ERROR(store->Write(ToWriteBatch(BatchOf(seed, writer, 1))).status());
    }
    MemoryBudget budget(kGiB);
    QUARRY_RETURN_IF_ERROR(BuildLayout(*store, budget, crash::LayoutToBuild(), false, {}).status());
  }
  for (const std::string_view name : {kOther, kDamaged, kBroken}) {
    QUARRY_RETURN_IF_ERROR(MakeSmall(backend, folder + std::string(name)));
  }
  QUARRY_RETURN_IF_ERROR(Damage(backend, folder + std::string(kDamaged)));
  QUARRY_RETURN_IF_ERROR(crash::TypesOf(seed).Import(backend, folder + std::string(kTypes)));
  fs::remove(folder + std::string(kBroken) + "/catalog/CURRENT");
  return Status::Ok();
}

Bytes ServedStateOf(uint64_t number) { return crash::TrainingStateOf(99, static_cast<int64_t>(number)); }

World::World(const Work& work, const std::string& prepared, std::string folder, uint64_t seed)
    : work_(work),
      folder_(std::move(folder)),
      live_(folder_ + "/live"),
      seed_(seed),
      tables_(seed),
      types_(crash::TypesOf(seed)) {
  fs::create_directories(live_);
  for (const std::string_view database : work.databases) {
    fs::copy(prepared + std::string(database), path(database), fs::copy_options::recursive);
  }
  if (work.databases.contains(kDatabase)) PromiseWhatIsThere();
  disk_ = std::make_unique<testing_util::PowerCutDisk>(live_);
  backend_ = std::make_unique<testing_util::PowerCutBackend>(plain_, *disk_);
  watch_ = std::make_unique<CatalogWatch>(
      [this](const CatalogOperation& operation, const CatalogWatch::Perform& perform) {
        disk_->Watch(operation, perform);
      });
  history_.emplace_back(0, promises_);
}

// By a copy, since opening a database changes it.
void World::PromiseWhatIsThere() {
  const std::string copy = folder_ + "/asked";
  fs::copy(path(), copy, fs::copy_options::recursive);
  {
    const auto store = Store::Open(plain_, copy);
    ASSERT_OK(store);
    crash::Oracle oracle(seed_);
    ASSERT_NO_FATAL_FAILURE(oracle.Check(**store));
    for (uint64_t writer = 0; writer < kWriters; ++writer) {
      promises_.begun[writer] = promises_.loose[writer] = promises_.written[writer] = oracle.batches(writer);
    }
    promises_.trained = oracle.trained();
    promises_.edges_begun = promises_.edges_written = oracle.edge_commits();
    promises_.has_layout = (*store)->manifest()->FindLayout("default") != nullptr;
    promises_.has_partitioning = (*store)->manifest()->FindPartitioning("default") != nullptr;
  }
  fs::remove_all(copy);
}

World::~World() {
  Close();
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

void World::Run() {
  const Status status = work_.run(*this);
  ASSERT_OK(status);
  Close();
  ASSERT_EQ(disk_->Difference(), "") << "which did not go through the disk";
}

Status World::Open() {
  Close();
  QUARRY_TRY(store_, Store::Open(*backend_, path()));
  return Status::Ok();
}

void World::Close() {
  tables_.Close();
  store_.reset();
}

Promises World::promises() const {
  MutexLock lock(mutex_);
  return promises_;
}

Promises World::PromisesAt(uint64_t at) const {
  MutexLock lock(mutex_);
  Promises promises;
  for (const auto& [when, then] : history_) {
    if (when <= at) promises = then;
  }
  return promises;
}

Status World::Put(uint64_t writer) {
  return WriteBatchBy(writer,
                      [&](const WriterBatch& rows) { return store_->Write(ToWriteBatch(rows)).status(); });
}

Status World::PutUnsynced(uint64_t writer) {
  uint64_t number = 0;
  Promise([&](Promises& p) { number = ++p.begun[writer]; });
  QUARRY_RETURN_IF_ERROR(
      store_->Write(ToWriteBatch(BatchOf(seed_, writer, number)), {.sync = false}).status());
  Promise([&](Promises& p) { p.loose[writer] = number; });
  return Status::Ok();
}

Status World::PutInPieces(uint64_t writer) {
  return WriteBatchBy(writer, [&](const WriterBatch& rows) -> Status {
    QUARRY_TRY(const std::unique_ptr<LargeWrite> large, store_->BeginLargeWrite());
    for (const auto& [row, value] : rows.rows) {
      WriteBatch piece;
      piece.Put("feature", row, value);
      QUARRY_RETURN_IF_ERROR(large->Add(piece));
    }
    for (const auto& [node, label] : rows.labels) {
      WriteBatch piece;
      piece.SetLabel(node, label);
      QUARRY_RETURN_IF_ERROR(large->Add(piece));
    }
    return large->Commit().status();
  });
}

Status World::Train(int64_t steps) {
  tables_.Close();
  QUARRY_RETURN_IF_ERROR(tables_.Open(*store_));
  int64_t now = tables_[0].timestamp();
  for (int64_t step = 0; step < steps; ++step) QUARRY_RETURN_IF_ERROR(tables_.Train(++now));
  const std::array<StoredEmbeddings*, TrainedTables::kTables> tables = {&tables_[0], &tables_[1]};
  const auto commit = [&](const ManifestChange& change) {
    return CheckpointAll(*store_, tables, now, [&](Manifest& manifest) {
      manifest.source = std::to_string(now);
      return change(manifest);
    });
  };
  const Bytes state = crash::TrainingStateOf(seed_, now);
  QUARRY_RETURN_IF_ERROR(
      CheckpointTraining(*store_, {.name = "run", .timestamp = now, .state = state}, commit));
  Promise([&](Promises& p) { p.trained = now; });
  tables_.Close();
  return Status::Ok();
}

Status World::ChangeGraph() {
  return ChangeGraphBy(
      [&](const crash::EdgeBatch& batch) { return crash::CommitEdges(*store_, budget_, batch); });
}

// Half of them where something was just acknowledged, or begun.
uint64_t World::SomeOperation(uint64_t seed) const {
  Rng rng(MixSeed(seed, 3));
  const uint64_t at = rng.Below(operations() + 1);
  MutexLock lock(mutex_);
  return rng.Below(2) == 0 ? history_[rng.Below(history_.size())].first : at;
}

void World::Leave(uint64_t seed, const std::string& folder) {
  const std::string state = folder_ + "/state";
  fs::remove_all(state);
  disk_->Build(SomeOperation(seed), seed, state);
  fs::create_directory(folder);
  fs::rename(state + std::string(kDatabase), folder + std::string(kDatabase));
}

void World::CutAndCheck(uint64_t seed) {
  const uint64_t at = SomeOperation(seed);
  SCOPED_TRACE(testing::Message() << "cut " << seed << ", after operation " << at << " of " << operations()
                                  << "\n"
                                  << disk_->Operations(at, 12));
  const std::string state = folder_ + "/state";
  fs::remove_all(state);
  disk_->Build(at, seed, state);
  const Promises promises = PromisesAt(at);
  for (const std::string_view database : work_.databases) {
    const std::string path = state + std::string(database);
    if (database == kDatabase) {
      ASSERT_NO_FATAL_FAILURE(CheckDatabase(path, promises, seed));
    }
    if (database == kTypes) {
      ASSERT_NO_FATAL_FAILURE(CheckTypes(path, promises, seed));
    }
    if (database == kOther) {
      ASSERT_NO_FATAL_FAILURE(CheckOther(path, promises));
    }
    if (database == kBroken) {
      ASSERT_NO_FATAL_FAILURE(CheckBroken(path, promises));
    }
    if (database == kDamaged) {
      ASSERT_NO_FATAL_FAILURE(CheckRepaired(path, promises));
    }
  }
  ASSERT_NO_FATAL_FAILURE(CheckImported(state + "/imported", promises));
  ASSERT_NO_FATAL_FAILURE(CheckCopies(state, promises));
}

void World::CheckDatabase(const std::string& state, const Promises& promises, uint64_t seed) {
  Rng rng(MixSeed(seed, 4));
  crash::Oracle oracle(seed_);
  {
    const auto store = Store::Open(plain_, state);
    ASSERT_OK(store);
    ASSERT_NO_FATAL_FAILURE(oracle.Check(**store));
    for (uint64_t writer = 0; writer < kWriters; ++writer) {
      ASSERT_GE(oracle.batches(writer), promises.written[writer])
          << "a batch of writer " << writer << " is lost";
      ASSERT_LE(oracle.batches(writer), promises.begun[writer]) << "writer " << writer << " never made it";
    }
    ASSERT_GE(oracle.edge_commits(), promises.edges_written) << "a commit of nodes and edges is lost";
    ASSERT_LE(oracle.edge_commits(), promises.edges_begun) << "commits of nodes and edges that nobody made";
    ASSERT_GE(oracle.trained(), promises.trained) << "a checkpoint of training is lost";
    const bool has_layout = (*store)->manifest()->FindLayout("default") != nullptr;
    ASSERT_EQ(has_layout, promises.has_layout.value_or(has_layout));
    if (has_layout && rng.Below(4) == 0) {
      ASSERT_NO_FATAL_FAILURE(oracle.CheckLayout(**store));
    }
    const bool has_partitioning = (*store)->manifest()->FindPartitioning("default") != nullptr;
    ASSERT_EQ(has_partitioning, promises.has_partitioning.value_or(has_partitioning));
    if (has_partitioning && rng.Below(2) == 0) {
      ASSERT_NO_FATAL_FAILURE(oracle.CheckPartitioning(**store));
    }
    ASSERT_NO_FATAL_FAILURE(CheckServed(**store, promises));
    // It goes on.
    const uint64_t writer = rng.Below(kWriters);
    const auto written = (*store)->Write(ToWriteBatch(BatchOf(seed_, writer, oracle.batches(writer) + 1)));
    ASSERT_OK(written);
    if (promises.edges_begun > 0 && rng.Below(2) == 0) {
      MemoryBudget budget(kGiB);
      ASSERT_OK(crash::CommitEdges(**store, budget, crash::EdgeBatchOf(seed_, oracle.edge_commits() + 1)));
    }
  }
  if (rng.Below(4) != 0) return;
  const auto store = Store::Open(plain_, state);
  ASSERT_OK(store);
  oracle.Check(**store);
}

void World::CheckServed(Store& store, const Promises& promises) {
  if (promises.saving == 0) return;
  const auto state = ReadTrainingState(store, "served");
  if (state.status().code() == Code::kNotFound) {
    ASSERT_EQ(promises.saved, 0u) << "a saved state is lost";
    return;
  }
  ASSERT_OK(state);
  if (promises.saved == 0) return;  // of a world before, perhaps
  ASSERT_TRUE(*state == ServedStateOf(promises.saved) || *state == ServedStateOf(promises.saving));
}

void World::CheckTypes(const std::string& state, const Promises& promises, uint64_t seed) {
  ASSERT_OK_AND_ASSIGN(const auto store, Store::Open(plain_, state));
  ASSERT_THAT(FaultsOf(*store), testing::IsEmpty());
  ASSERT_OK_AND_ASSIGN(const uint64_t commits, testing_util::GrowingGraph::CommitsIn(*store));
  ASSERT_GE(commits, promises.types_written) << "a commit to the graph with types is lost";
  ASSERT_LE(commits, promises.types_begun) << "commits to the graph with types that nobody made";
  testing_util::GrowingGraph graph = crash::TypesOf(seed_);
  while (graph.commits() < commits) graph.Take(graph.Next());
  ASSERT_NO_FATAL_FAILURE(graph.ExpectIn(*store));
  if (Rng(MixSeed(seed, 4)).Below(2) == 0) return;
  // It goes on.
  MemoryBudget budget(kGiB);
  const testing_util::GrowingGraph::Commit next = graph.Next();
  ASSERT_OK(graph.CommitTo(*store, budget, next));
  graph.Take(next);
  graph.ExpectIn(*store);
}

void World::CheckImported(const std::string& state, const Promises& promises) {
  ASSERT_TRUE(fs::exists(state) || !promises.imported) << "an import is lost";
  if (fs::exists(state)) {
    const auto store = Store::Open(plain_, state);
    ASSERT_OK(store);
    ASSERT_THAT(FaultsOf(**store), testing::IsEmpty());
    const auto rows = crash::ReadFeatures(**store, (*store)->TakeSnapshot().value());
    ASSERT_OK(rows);
    for (NodeId node = 0; node < crash::Graph().nodes; ++node) {
      ASSERT_TRUE((*rows)[node] == crash::Graph().Row(node));
    }
  } else if (fs::exists(state + ".importing")) {
    const Status again = ImportTinyGraph(plain_, crash::Graph(), state);
    ASSERT_OK(again);
  }
}

void World::CheckCopies(const std::string& state, const Promises& promises) {
  ASSERT_TRUE(fs::exists(state + "/copy") || !promises.copied) << "a checkpoint is lost";
  ASSERT_TRUE(fs::exists(state + "/restored") || !promises.restored) << "a restored database is lost";
  for (const char* const name : {"/copy", "/restored"}) {
    if (!fs::exists(state + name)) continue;
    SCOPED_TRACE(name);
    const auto store = Store::Open(plain_, state + name);
    ASSERT_OK(store);
    crash::Oracle oracle(seed_);
    ASSERT_NO_FATAL_FAILURE(oracle.Check(**store));
    ASSERT_EQ(oracle.timestamp(), promises.copied.value_or(oracle.timestamp()));
    const uint64_t writer = 1;
    const auto written = (*store)->Write(ToWriteBatch(BatchOf(seed_, writer, oracle.batches(writer) + 1)));
    ASSERT_OK(written);
  }
}

void World::CheckOther(const std::string& state, const Promises& promises) {
  const auto store = Store::Open(plain_, state);
  ASSERT_OK(store);
  ASSERT_THAT(FaultsOf(**store), testing::IsEmpty());
  ASSERT_TRUE(testing_util::RowsNow(**store, "feature") == SmallRows());
  const bool dropped = (*store)->manifest()->FindTable("split") == nullptr;
  ASSERT_TRUE(dropped || !promises.dropped) << "a dropped table is there again";
}

// What was not repaired to the end can be repaired.
void World::CheckBroken(const std::string& state, const Promises& promises) {
  const auto again = RepairCatalog(plain_, state, /*dry_run=*/false);
  ASSERT_OK(again);
  ASSERT_TRUE(!*again || !promises.catalog_repaired) << "a repaired catalog is damaged again";
  const auto store = Store::Open(plain_, state);
  ASSERT_OK(store);
  ASSERT_TRUE(testing_util::RowsNow(**store, "feature") == SmallRows());
}

void World::CheckRepaired(const std::string& state, const Promises& promises) {
  const auto store = Store::Open(plain_, state);
  ASSERT_OK(store);
  const auto found = VerifyStore(**store, {});
  ASSERT_OK(found);
  if (!found->faults.empty()) {
    ASSERT_FALSE(promises.repaired) << found->faults.front().ToString();
    const auto repaired = RepairStore(**store, *found, {});
    ASSERT_OK(repaired);
  }
  ASSERT_THAT(FaultsOf(**store), testing::IsEmpty());
  ASSERT_TRUE(testing_util::RowsNow(**store, "feature") == SmallRows());
}

}  // namespace quarry::powercut
