// Embedding tables that several trainers train: whatever they do at a time, the tables are what the commits
// that happened give one after the other.
#include "quarry/service/embedding_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <thread>

#include "embedding/trained_tables.h"
#include "quarry/base/mutex.h"
#include "support/fault_backend.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint64_t kServiceSeed = 20261;
constexpr size_t kTables = 2;
constexpr std::array<std::string_view, kTables> kNames = {"nodes", "relations"};

std::array<EmbeddingSpec, kTables> Specs() {
  return {EmbeddingSpec{.row_count = 300, .dim = 100, .seed = kServiceSeed},
          EmbeddingSpec{.row_count = 40,
                        .dim = 170,
                        .element_type = ElementType::kBfloat16,
                        .optimizer = OptimizerKind::kAdam,
                        .seed = kServiceSeed + 1}};
}

wire::RowBlockShape ShapeOf(const EmbeddingSpec& spec, uint64_t rows) {
  return {.rows = rows, .dim = spec.dim, .state_dim = spec.state_dim()};
}

// A trainer's batch: rows of both tables, and what it makes of them.
struct RowBatch {
  explicit RowBatch(uint64_t number) : number_(number) {
    Rng rng(MixSeed(kServiceSeed, number));
    for (size_t i = 0; i < kTables; ++i) {
      // A few rows that everybody wants, and others.
      const uint64_t among = rng.Below(2) == 0 ? 10 : Specs()[i].row_count;
      std::vector<RowId>& ids = blocks[i].ids;
      ids.resize(1 + rng.Below(6));
      for (RowId& id : ids) id = rng.Below(among);
      std::ranges::sort(ids);
      ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    }
  }

  // All values of a row become one number, which depends on what was read, and all its state another one: so
  // a reader sees whether a row is whole, and another order of commits gives other bits.
  void Compute() {
    for (size_t i = 0; i < kTables; ++i) {
      const EmbeddingSpec spec = Specs()[i];
      RowBlock& block = blocks[i];
      for (size_t k = 0; k < block.ids.size(); ++k) {
        Rng rng(MixSeed(number_, i, block.ids[k]));
        const std::span<float> values(&block.values[k * spec.dim], spec.dim);
        const std::span<float> state(block.state.data() + k * spec.state_dim(), spec.state_dim());
        std::ranges::fill(values, 0.5F * values[0] + static_cast<float>(rng.Unit()));
        std::ranges::fill(state, 0.5F * state[0] + static_cast<float>(rng.Unit()));
      }
    }
  }

  std::array<RowBlock, kTables> blocks;

 private:
  const uint64_t number_;
};

class EmbeddingServiceTest : public testing::Test {
 protected:
  EmbeddingServiceTest() {
    const Status status = testing_util::CreateEmptyDatabase(*backend_, path_);
    EXPECT_OK(status);
    Reopen(*backend_);
    for (size_t i = 0; i < kTables; ++i) {
      EXPECT_OK(CreateEmbeddings(*store_, kNames[i], Specs()[i], 4096));
    }
    pool_bytes_ = testing_util::FewFrames(*store_, "nodes").memory_bytes;  // pages leave all the time
    Start();
  }

  void Start() { service_ = std::make_unique<EmbeddingService>(*store_, budget_, pool_bytes_); }
  // Loses all that no checkpoint has.
  void Reopen(IoBackend& backend) {
    service_.reset();
    store_.reset();
    auto store = Store::Open(backend, path_);
    ASSERT_OK(store);
    store_ = std::move(store).value();
  }
  void Restart() {
    Reopen(*backend_);
    Start();
  }

  Status Read(std::string_view table, const EmbeddingSpec& spec, RowBlock& block) {
    block.Resize(spec);
    std::vector<uint64_t> ids(block.ids.size());
    QUARRY_RETURN_IF_ERROR(
        service_->Read(table, block.ids, {ids, block.timestamps, block.values, block.state}));
    EXPECT_EQ(ids, block.ids);
    return Status::Ok();
  }
  Result<wire::EmbeddingsCommitted> Commit(RowBatch& batch) {
    std::vector<EmbeddingService::Update> updates;
    for (size_t i = 0; i < kTables; ++i) updates.push_back(UpdateOf(i, batch.blocks[i]));
    return service_->Commit(updates);
  }
  static EmbeddingService::Update UpdateOf(size_t i, const RowBlock& block) {
    const wire::RowBlockShape shape = ShapeOf(Specs()[i], block.ids.size());
    EmbeddingService::Update update{std::string(kNames[i]), shape,
                                    std::vector<std::byte>(wire::RowBlockBytes(shape))};
    const auto arrays = wire::OpenRowBlock(std::span<std::byte>(update.block), shape);
    EXPECT_OK(arrays);
    std::ranges::copy(block.ids, arrays->ids.begin());
    std::ranges::copy(block.timestamps, arrays->timestamps.begin());
    std::ranges::copy(block.values, arrays->values.begin());
    std::ranges::copy(block.state, arrays->state.begin());
    return update;
  }

  // Reads, computes and commits until nobody was in between. Counts the refusals.
  int64_t Train(uint64_t number, uint64_t& refused) {
    for (;; ++refused) {
      RowBatch batch(number);
      for (size_t i = 0; i < kTables; ++i) {
        const Status status = Read(kNames[i], Specs()[i], batch.blocks[i]);
        EXPECT_OK(status);
      }
      batch.Compute();
      const auto committed = Commit(batch);
      EXPECT_OK(committed);
      if (!committed.ok() || committed->stale_rows == 0) return committed.ok() ? committed->timestamp : -1;
      EXPECT_EQ(committed->timestamp, -1);
    }
  }
  int64_t Train(uint64_t number) {
    uint64_t refused = 0;
    return Train(number, refused);
  }

  // The tables hold what one trainer alone would have made of these batches, in the order of timestamps, up
  // to `last`.
  void ExpectSerial(const std::map<int64_t, uint64_t>& order, int64_t last) {
    std::array<std::unique_ptr<EmbeddingTable>, kTables> tables;
    for (size_t i = 0; i < kTables; ++i) tables[i] = MakeMemoryEmbeddingTable(Specs()[i]);
    for (const auto& [timestamp, number] : order) {
      if (timestamp > last) break;
      RowBatch batch(number);
      for (size_t i = 0; i < kTables; ++i) ASSERT_OK(tables[i]->Read(batch.blocks[i]));
      batch.Compute();
      for (size_t i = 0; i < kTables; ++i) {
        std::ranges::fill(batch.blocks[i].timestamps, timestamp);
        ASSERT_OK(tables[i]->Write(batch.blocks[i]));
      }
    }
    for (size_t i = 0; i < kTables; ++i) {
      SCOPED_TRACE(kNames[i]);
      RowBlock expected = testing_util::AllRowsOf(Specs()[i]), found{.ids = expected.ids};
      ASSERT_OK(tables[i]->Read(expected));
      ASSERT_OK(Read(kNames[i], Specs()[i], found));
      ASSERT_EQ(found.timestamps, expected.timestamps);
      ASSERT_EQ(std::memcmp(found.values.data(), expected.values.data(), 4 * found.values.size()), 0);
      ASSERT_EQ(std::memcmp(found.state.data(), expected.state.data(), 4 * found.state.size()), 0);
    }
  }

  int64_t CheckpointTimestamp(std::string_view table) const {
    return store_->manifest()->FindEmbedding(table)->timestamp;
  }

  const testing_util::ScratchFolder folder_{testing_util::Medium::kMemory};
  const std::string path_ = folder_.path() + "/db";
  const std::unique_ptr<IoBackend> backend_ = MakeDefaultBackend();
  MemoryBudget budget_{kGiB};
  uint64_t pool_bytes_ = 0;
  std::unique_ptr<Store> store_;
  std::unique_ptr<EmbeddingService> service_;
};

// Rows of a written table, as they were at some moment.
void ExpectWholeRows(const EmbeddingSpec& spec, const RowBlock& block) {
  for (size_t k = 0; k < block.ids.size(); ++k) {
    if (block.timestamps[k] == kNeverWritten) continue;
    const auto same = [k](const std::vector<float>& all, size_t width) {
      const auto first = all.begin() + static_cast<ptrdiff_t>(k * width);
      return std::all_of(first, first + static_cast<ptrdiff_t>(width), [&](float x) { return x == *first; });
    };
    EXPECT_TRUE(same(block.values, spec.dim)) << "row " << block.ids[k];
    EXPECT_TRUE(same(block.state, spec.state_dim())) << "row " << block.ids[k];
  }
}

TEST_F(EmbeddingServiceTest, ManyTrainersGiveWhatOneGivesInTheOrderOfTimestamps) {
  SCOPED_TRACE(kServiceSeed);
  constexpr uint64_t kTrainers = 6, kBatches = 60;
  Mutex mutex;
  std::map<int64_t, uint64_t> order;
  uint64_t refused = 0;
  std::atomic<bool> done{false};
  std::vector<std::thread> trainers;
  for (uint64_t trainer = 0; trainer < kTrainers; ++trainer) {
    trainers.emplace_back([&, trainer] {
      for (uint64_t k = 0; k < kBatches; ++k) {
        const uint64_t number = trainer * kBatches + k;
        uint64_t refusals = 0;
        const int64_t timestamp = Train(number, refusals);
        MutexLock lock(mutex);
        refused += refusals;
        EXPECT_TRUE(order.emplace(timestamp, number).second) << "timestamp " << timestamp << " twice";
      }
    });
  }
  std::thread reader([&] {
    for (Rng rng(MixSeed(kServiceSeed, 1)); !done;) {
      const size_t i = rng.Below(kTables);
      RowBlock block{.ids = testing_util::AllRowsOf(Specs()[i]).ids};
      EXPECT_OK(Read(kNames[i], Specs()[i], block));
      ExpectWholeRows(Specs()[i], block);
    }
  });
  std::thread checkpointer([&] {
    while (!done) EXPECT_OK(service_->Checkpoint());
  });
  for (std::thread& trainer : trainers) trainer.join();
  done = true;
  reader.join();
  checkpointer.join();
  EXPECT_GT(refused, 0u) << "nobody ever met another one";
  ASSERT_EQ(order.size(), kTrainers * kBatches);
  EXPECT_EQ(order.begin()->first, 0);
  EXPECT_EQ(order.rbegin()->first, static_cast<int64_t>(order.size()) - 1);
  ExpectSerial(order, order.rbegin()->first);
  // As if it had been killed: exactly the commits up to the last checkpoint.
  Restart();
  const int64_t last = CheckpointTimestamp("nodes");
  EXPECT_GE(last, 0);
  EXPECT_EQ(CheckpointTimestamp("relations"), last);
  ExpectSerial(order, last);
  EXPECT_THAT(testing_util::FaultsOf(*store_), IsEmpty());
}

TEST_F(EmbeddingServiceTest, TimestampsGoOnFromTheLastCheckpoint) {
  std::map<int64_t, uint64_t> order;
  for (uint64_t number = 0; number < 5; ++number) order[Train(number)] = number;
  ASSERT_OK(service_->Checkpoint());
  for (uint64_t number = 5; number < 8; ++number) Train(number);
  Restart();
  EXPECT_EQ(CheckpointTimestamp("nodes"), 4);
  ExpectSerial(order, 4);
  EXPECT_EQ(Train(9), 5) << "those after the checkpoint never were";
  order[5] = 9;
  ASSERT_OK(service_->Checkpoint());
  Restart();
  EXPECT_EQ(CheckpointTimestamp("relations"), 5);
  ExpectSerial(order, 5);
}

TEST_F(EmbeddingServiceTest, ATableThatWasTrainedFurtherAloneSetsTheClock) {
  {
    auto nodes = StoredEmbeddings::Open(*store_, budget_, "nodes", {.memory_bytes = pool_bytes_});
    ASSERT_OK(nodes);
    ASSERT_OK((*nodes)->Checkpoint(41));
  }
  Restart();
  EXPECT_EQ(Train(1), 42);
  EXPECT_OK(service_->Checkpoint());
}

TEST_F(EmbeddingServiceTest, WithoutACommitACheckpointWritesNothing) {
  RowBlock block{.ids = {1, 2, 3}};
  ASSERT_OK(Read("nodes", Specs()[0], block));
  const auto files = testing_util::FilesIn(path_ + "/embeddings");
  ASSERT_OK(service_->Checkpoint());
  EXPECT_EQ(testing_util::FilesIn(path_ + "/embeddings"), files);
  EXPECT_EQ(CheckpointTimestamp("nodes"), kNeverWritten);
}

TEST_F(EmbeddingServiceTest, OneStaleRowOfOneTableStopsTheWholeCommit) {
  RowBatch mine(1), theirs(1);
  for (RowBatch* const batch : {&mine, &theirs}) {
    for (size_t i = 0; i < kTables; ++i) ASSERT_OK(Read(kNames[i], Specs()[i], batch->blocks[i]));
    batch->Compute();
  }
  // They write one row of the second table, which is the last to be validated.
  const RowBlock& relations = theirs.blocks[1];
  RowBlock one{.ids = {relations.ids.back()}};
  ASSERT_OK(Read("relations", Specs()[1], one));
  const EmbeddingService::Update update = UpdateOf(1, one);
  const auto first = service_->Commit({&update, 1});
  ASSERT_OK(first);
  EXPECT_EQ(*first, (wire::EmbeddingsCommitted{.timestamp = 0, .stale_rows = 0}));
  const auto second = Commit(mine);
  ASSERT_OK(second);
  EXPECT_EQ(*second, (wire::EmbeddingsCommitted{.timestamp = -1, .stale_rows = 1}));
  RowBlock nodes{.ids = mine.blocks[0].ids};
  ASSERT_OK(Read("nodes", Specs()[0], nodes));
  EXPECT_THAT(nodes.timestamps, testing::Each(kNeverWritten));
  // A timestamp from the future is as wrong as one from the past.
  for (int64_t& timestamp : mine.blocks[0].timestamps) timestamp = 7;
  const auto third = Commit(mine);
  ASSERT_OK(third);
  EXPECT_EQ(third->stale_rows, 1 + mine.blocks[0].ids.size());
  EXPECT_EQ(Train(2), 1) << "refused commits take no timestamp";
}

TEST_F(EmbeddingServiceTest, RefusesWhatCannotBe) {
  const auto read = [&](std::string_view table, std::vector<RowId> ids) {
    RowBlock block{.ids = std::move(ids)};
    return Read(table, Specs()[0], block);
  };
  const Status absent = read("../../x", {1});
  EXPECT_EQ(absent.code(), Code::kNotFound);
  EXPECT_THAT(std::string(absent.message()), HasSubstr("embedding tables: nodes, relations"));
  EXPECT_EQ(service_->Spec("x").status().code(), Code::kNotFound);
  EXPECT_EQ(service_->Spec("nodes")->row_count, 300u);
  EXPECT_EQ(read("nodes", {300}).code(), Code::kInvalidArgument);
  EXPECT_EQ(read("nodes", {~uint64_t{0}}).code(), Code::kInvalidArgument);
  EXPECT_EQ(read("nodes", {2, 1}).code(), Code::kInvalidArgument);
  EXPECT_EQ(read("nodes", {1, 1}).code(), Code::kInvalidArgument);
  EXPECT_EQ(read("relations", {1}).code(), Code::kInvalidArgument) << "the arrays are of the other table";
  EXPECT_OK(read("nodes", {}));

  RowBlock block{.ids = {1, 2}};
  ASSERT_OK(Read("nodes", Specs()[0], block));
  const EmbeddingService::Update good = UpdateOf(0, block);
  const auto code = [&](auto... updates) {
    const std::vector<EmbeddingService::Update> all = {updates...};
    return service_->Commit(all).status().code();
  };
  const auto changed = [&](const auto& change) {
    EmbeddingService::Update update = good;
    change(update);
    return update;
  };
  EXPECT_EQ(code(good, good), Code::kInvalidArgument) << "twice";
  EXPECT_EQ(code(good, changed([](auto& update) { update.table = "x"; })), Code::kNotFound);
  EXPECT_EQ(code(changed([](auto& update) { update.table = "relations"; })), Code::kInvalidArgument);
  EXPECT_EQ(code(changed([](auto& update) { update.shape.rows = 1; })), Code::kInvalidArgument);
  EXPECT_EQ(code(changed([](auto& update) { update.shape.rows = ~uint64_t{0}; })), Code::kInvalidArgument);
  EXPECT_EQ(code(changed([](auto& update) { update.shape.dim = 0; })), Code::kInvalidArgument);
  EXPECT_EQ(code(changed([](auto& update) { update.shape.state_dim = 1; })), Code::kInvalidArgument);
  EXPECT_EQ(code(changed([](auto& update) { update.block.pop_back(); })), Code::kInvalidArgument);
  EXPECT_EQ(code(changed([](auto& update) { update.block[0] = std::byte{200}; })), Code::kInvalidArgument)
      << "rows 200, 2";
  EXPECT_EQ(code(changed([](auto& update) { update.block[9] = std::byte{200}; })), Code::kInvalidArgument)
      << "row 2 + 200 * 256";
  EXPECT_EQ(Train(1), 0) << "none of it happened";
}

TEST_F(EmbeddingServiceTest, AMemoryThatIsTooSmallIsSaid) {
  MemoryBudget little(64 * kKiB);
  const auto service = std::make_unique<EmbeddingService>(*store_, little, kGiB);
  const Status status = service->Spec("nodes").status();
  EXPECT_EQ(status.code(), Code::kOutOfBudget) << status.ToString();
}

TEST_F(EmbeddingServiceTest, BehindAFailedWriteNothingIsCommittedAndARestartFindsTheCheckpoint) {
  FaultBackend faults(*backend_);
  Reopen(faults);
  Start();
  std::map<int64_t, uint64_t> order;
  for (uint64_t number = 0; number < 5; ++number) order[Train(number)] = number;
  ASSERT_OK(service_->Checkpoint());
  RowBlock all = testing_util::AllRowsOf(Specs()[0]);
  ASSERT_OK(Read("nodes", Specs()[0], all));
  std::ranges::fill(all.values, 1.0F);
  faults.SetPlans({{.kind = FaultKind::kWrite, .at = 1, .sticky = true, .error = EIO}});
  const EmbeddingService::Update update = UpdateOf(0, all);
  EXPECT_EQ(service_->Commit({&update, 1}).status().code(), Code::kIoError) << "more pages than frames";
  faults.SetPlans({});
  RowBlock other{.ids = {1}};
  ASSERT_OK(Read("relations", Specs()[1], other));
  const EmbeddingService::Update sound = UpdateOf(1, other);
  EXPECT_EQ(service_->Commit({&sound, 1}).status().code(), Code::kIoError)
      << "of the table that is sound, too";
  EXPECT_EQ(service_->Checkpoint().code(), Code::kIoError);
  Restart();
  ExpectSerial(order, 4);
  EXPECT_EQ(Train(6), 5);
}

}  // namespace
}  // namespace quarry
