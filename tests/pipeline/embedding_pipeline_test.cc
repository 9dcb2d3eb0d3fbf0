// The five-stage pipeline: under optimistic asynchrony control it ends, bit for bit, where a serial run of
// its computation order ends, whatever the threads do; without, it does not.
#include "quarry/pipeline/embedding_pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>

#include "embedding/pooled_table_util.h"
#include "quarry/base/random.h"
#include "quarry/embedding/optimizer.h"
#include "support/repetitions.h"
#include "support/sleeping_threads.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;

// A batch and its arithmetic, functions of (seed, batch): few rows, skewed, so that batches overlap heavily,
// and each new value depends on all rows of the batch, in both tables, and on the order of float additions.
class Workload {
 public:
  Workload(uint64_t seed, std::vector<EmbeddingSpec> specs) : seed_(seed), specs_(std::move(specs)) {}

  const std::vector<EmbeddingSpec>& specs() const { return specs_; }

  std::vector<RowId> Rows(uint64_t batch, size_t table) const {
    Rng rng(MixSeed(seed_, batch, table));
    const uint64_t row_count = specs_[table].row_count;
    std::vector<RowId> ids(1 + rng.Below(12));
    // 1 / x is Zipf's law with exponent 2.
    for (RowId& id : ids)
      id = static_cast<RowId>(1.0 / (rng.Unit() + 1.0 / (static_cast<double>(row_count) + 1))) % row_count;
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    return ids;
  }

  void Compute(uint64_t batch, std::vector<RowBlock>& blocks) const {
    float sum = 0;
    for (const RowBlock& block : blocks) {
      for (const float value : block.values) sum = sum * 0.9F + value;
    }
    for (size_t table = 0; table < blocks.size(); ++table) {
      const EmbeddingSpec& spec = specs_[table];
      RowBlock& block = blocks[table];
      std::vector<float> gradient(spec.dim);
      for (size_t i = 0; i < block.ids.size(); ++i) {
        const std::span<float> values(&block.values[i * spec.dim], spec.dim);
        const std::span<float> state(block.state.data() + i * spec.state_dim(), spec.state_dim());
        Rng noise(MixSeed(seed_, batch, table, block.ids[i]));
        for (uint32_t c = 0; c < spec.dim; ++c) {
          gradient[c] = 0.3F * values[c] + 0.1F * std::sin(sum) + static_cast<float>(noise.Unit()) - 0.5F;
        }
        OptimizerStep(spec.optimizer, {}, gradient, values, state);
      }
    }
  }

 private:
  const uint64_t seed_;
  const std::vector<EmbeddingSpec> specs_;
};

// Whole tables, to compare.
using Tables = std::vector<RowBlock>;

RowBlock AllRows(const EmbeddingSpec& spec) {
  RowBlock block;
  block.ids.resize(spec.row_count);
  std::iota(block.ids.begin(), block.ids.end(), RowId{0});
  block.Resize(spec);
  return block;
}

bool SameBits(const Tables& a, const Tables& b) {
  const auto same = [](const auto& x, const auto& y) {
    return x.size() == y.size() &&
           (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(x[0])) == 0);
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](const RowBlock& x, const RowBlock& y) {
    return same(x.values, y.values) && same(x.state, y.state) && same(x.timestamps, y.timestamps);
  });
}

// The oracle: one batch after the other, on arrays.
class SerialRun {
 public:
  explicit SerialRun(const Workload& workload) : workload_(workload) {
    for (const EmbeddingSpec& spec : workload.specs()) {
      tables_.push_back(AllRows(spec));
      RowBlock& all = tables_.back();
      for (const RowId row : all.ids) InitRow(spec, row, {&all.values[row * spec.dim], spec.dim});
      std::fill(all.timestamps.begin(), all.timestamps.end(), kNeverWritten);
    }
  }

  void Train(std::span<const uint64_t> batches) {
    for (const uint64_t batch : batches) Step(batch);
  }
  const Tables& tables() const { return tables_; }

 private:
  void Step(uint64_t batch) {
    std::vector<RowBlock> blocks(tables_.size());
    for (size_t t = 0; t < tables_.size(); ++t) {
      blocks[t].ids = workload_.Rows(batch, t);
      blocks[t].Resize(workload_.specs()[t]);
      CopyRows(t, blocks[t],
               [](auto in_table, auto in_block, size_t n) { std::copy_n(in_table, n, in_block); });
    }
    workload_.Compute(batch, blocks);
    for (size_t t = 0; t < tables_.size(); ++t) {
      RoundToStored(workload_.specs()[t].element_type, blocks[t].values);
      std::fill(blocks[t].timestamps.begin(), blocks[t].timestamps.end(), next_timestamp_);
      CopyRows(t, blocks[t],
               [](auto in_table, auto in_block, size_t n) { std::copy_n(in_block, n, in_table); });
    }
    ++next_timestamp_;
  }

  template <typename Copy>
  void CopyRows(size_t t, RowBlock& block, const Copy& copy) {
    const size_t dim = workload_.specs()[t].dim, state_dim = workload_.specs()[t].state_dim();
    RowBlock& table = tables_[t];
    for (size_t i = 0; i < block.ids.size(); ++i) {
      const RowId row = block.ids[i];
      copy(table.values.data() + row * dim, block.values.data() + i * dim, dim);
      copy(table.state.data() + row * state_dim, block.state.data() + i * state_dim, state_dim);
      copy(&table.timestamps[row], &block.timestamps[i], 1);
    }
  }

  const Workload& workload_;
  Tables tables_;
  int64_t next_timestamp_ = 0;
};

enum class Point : uint8_t { kPrepare, kRead, kCompute, kWrite };

// Called at every point of a pipeline, by the thread that is there.
using Hook = std::function<Status(Point, uint64_t batch)>;

// Sleeps, yields or does nothing, by (seed, point, call): what schedules this produces differs from run to
// run.
Hook RandomDelays(uint64_t seed) {
  auto calls = std::make_shared<std::atomic<uint64_t>>(0);
  return [=](Point point, uint64_t) {
    Rng rng(MixSeed(seed, static_cast<uint64_t>(point), (*calls)++));
    const uint64_t choice = rng.Below(8);
    if (choice == 0) std::this_thread::sleep_for(std::chrono::microseconds(rng.Below(300)));
    if (choice <= 3) std::this_thread::yield();
    return Status();
  };
}

class HookedTask final : public EmbeddingTask {
 public:
  HookedTask(const Workload& workload, Hook hook) : workload_(workload), hook_(std::move(hook)) {}
  Status Prepare(EmbeddingItem& item) override {
    for (size_t t = 0; t < item.blocks.size(); ++t) item.blocks[t].ids = workload_.Rows(item.batch, t);
    return hook_(Point::kPrepare, item.batch);
  }
  Status Compute(EmbeddingItem& item) override {
    workload_.Compute(item.batch, item.blocks);
    return hook_(Point::kCompute, item.batch);
  }

 private:
  const Workload& workload_;
  const Hook hook_;
};

// Delays a read before it and a write too, by the rows.
class HookedTable final : public EmbeddingTable {
 public:
  HookedTable(std::unique_ptr<EmbeddingTable> table, Hook hook)
      : table_(std::move(table)), hook_(std::move(hook)) {}
  const EmbeddingSpec& spec() const override { return table_->spec(); }
  Status Read(RowBlock& block) override {
    QUARRY_RETURN_IF_ERROR(hook_(Point::kRead, 0));
    return table_->Read(block);
  }
  Status Write(const RowBlock& block) override {
    QUARRY_RETURN_IF_ERROR(hook_(Point::kWrite, static_cast<uint64_t>(block.timestamps.at(0))));
    return table_->Write(block);
  }
  Status Prefetch(std::span<const RowId> ids) override { return table_->Prefetch(ids); }

 private:
  const std::unique_ptr<EmbeddingTable> table_;
  const Hook hook_;
};

enum class Where : uint8_t { kMemory, kPool };

// A pipeline over tables of its own with its task.
struct Training {
  Training(const Workload& workload, const EmbeddingPipelineOptions& options, const Hook& hook,
           Where where = Where::kMemory)
      : task(workload, hook) {
    for (const EmbeddingSpec& spec : workload.specs()) {
      std::unique_ptr<EmbeddingTable> table;
      if (where == Where::kPool) {
        pools.push_back(std::make_unique<testing_util::PooledTable>(spec));
        table = std::move(pools.back()->table);
      } else {
        table = MakeMemoryEmbeddingTable(spec);
      }
      tables.push_back(std::make_unique<HookedTable>(std::move(table), hook));
      pointers.push_back(tables.back().get());
    }
    pipeline = EmbeddingPipeline::Make(pointers, task, options);
  }

  Tables Contents() const {
    Tables contents;
    for (EmbeddingTable* table : pointers) {
      contents.push_back(AllRows(table->spec()));
      EXPECT_OK(table->Read(contents.back()));
    }
    return contents;
  }

  HookedTask task;
  std::vector<std::unique_ptr<testing_util::PooledTable>> pools;  // under the tables, when they are on pools
  std::vector<std::unique_ptr<EmbeddingTable>> tables;
  std::vector<EmbeddingTable*> pointers;
  std::unique_ptr<EmbeddingPipeline> pipeline;
};

Status NoHook(Point, uint64_t) { return Status(); }

std::vector<EmbeddingSpec> RandomSpecs(Rng& rng) {
  constexpr OptimizerKind kOptimizers[] = {OptimizerKind::kSgd, OptimizerKind::kAdagrad,
                                           OptimizerKind::kAdam};
  std::vector<EmbeddingSpec> specs(1 + rng.Below(2));
  for (EmbeddingSpec& spec : specs) {
    spec.row_count = 10 + rng.Below(60);
    spec.dim = static_cast<uint32_t>(1 + rng.Below(9));
    spec.element_type = rng.Below(3) == 0 ? ElementType::kBfloat16 : ElementType::kFloat32;
    spec.optimizer = kOptimizers[rng.Below(3)];
    spec.seed = rng();
  }
  return specs;
}

EmbeddingPipelineOptions RandomOptions(Rng& rng) {
  EmbeddingPipelineOptions options{.record_order = true};
  options.ordered = rng.Below(3) == 0;
  options.batches_in_flight = static_cast<unsigned>(1 + rng.Below(20));
  for (unsigned* workers : {&options.prepare_workers, &options.update_workers}) {
    *workers = static_cast<unsigned>(1 + rng.Below(8));
  }
  return options;
}

// Whether a run of this mode ended as the serial run of its computation order, at each of two boundaries.
bool EndsAsTheSerialRun(uint64_t seed, AsyncMode mode, Where where = Where::kMemory) {
  Rng rng(seed);
  std::vector<EmbeddingSpec> specs = RandomSpecs(rng);
  if (where == Where::kPool) {  // a page holds three rows at most, and a pool has 16 frames
    for (EmbeddingSpec& spec : specs) {
      spec.dim += 150;
      spec.row_count += 100;
    }
  }
  const Workload workload(seed, specs);
  EmbeddingPipelineOptions options = RandomOptions(rng);
  options.mode = mode;
  Training training(workload, options, RandomDelays(seed), where);
  SerialRun serial(workload);
  bool same = true;
  uint64_t done = 0;
  for (const uint64_t count : {rng.Below(40), 1 + rng.Below(40)}) {
    EXPECT_OK(training.pipeline->Run(done, count));
    EXPECT_EQ(training.pipeline->order().size(), done + count);
    EXPECT_EQ(training.pipeline->last_timestamp(), static_cast<int64_t>(done + count) - 1);
    serial.Train(training.pipeline->order().subspan(done));
    done += count;
    same = same && SameBits(training.Contents(), serial.tables());
  }
  return same;
}

TEST(EmbeddingPipelineTest, OacEndsBitForBitAsTheSerialRunOfItsComputationOrder) {
  for (uint64_t seed = 1; seed <= testing_util::Repetitions(50); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    ASSERT_TRUE(EndsAsTheSerialRun(seed, AsyncMode::kOac));
  }
}

TEST(EmbeddingPipelineTest, OacEndsAsTheSerialRunOnPagesThatComeAndGo) {
  for (uint64_t seed = 1; seed <= testing_util::Repetitions(50) / 5; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    ASSERT_TRUE(EndsAsTheSerialRun(seed, AsyncMode::kOac, Where::kPool));
  }
}

// Else the tests above would say nothing.
TEST(EmbeddingPipelineTest, UnprotectedAsynchronyLosesUpdatesInTheSameWorkloads) {
  uint64_t differing = 0;
  for (uint64_t seed = 1; seed <= 50 && differing == 0; ++seed) {
    differing += EndsAsTheSerialRun(seed, AsyncMode::kAsync) ? 0 : 1;
  }
  EXPECT_GT(differing, 0u);
}

TEST(EmbeddingPipelineTest, OneBatchAtATimeIsSerialByItself) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    EXPECT_TRUE(EndsAsTheSerialRun(seed, AsyncMode::kSync));
  }
}

TEST(EmbeddingPipelineTest, OrderedRunsOfOneSeedEndTheSameForAnyNumberOfThreads) {
  Rng rng(11);
  const Workload workload(11, RandomSpecs(rng));
  SerialRun serial(workload);
  std::vector<uint64_t> in_order(100);
  std::iota(in_order.begin(), in_order.end(), 0);
  serial.Train(in_order);
  for (int repeat = 0; repeat < 5; ++repeat) {
    EmbeddingPipelineOptions options = RandomOptions(rng);
    options.ordered = true;
    Training training(workload, options, RandomDelays(rng()));
    ASSERT_OK(training.pipeline->Run(0, 100));
    EXPECT_THAT(training.pipeline->order(), testing::ElementsAreArray(in_order));
    EXPECT_TRUE(SameBits(training.Contents(), serial.tables()));
  }
}

// How many batches were between reading and having written at most. The hook sees a batch leave at its write,
// before it has ended: what is counted is never more than there were. Nobody writes before `least` have been under way.
uint64_t MostBatchesUnderWay(EmbeddingPipelineOptions options, int64_t least) {
  const Workload workload(1, {{.row_count = 50, .dim = 4}});
  std::atomic<int64_t> under_way = 0, most = 0;
  const Hook count = [&](Point point, uint64_t) {
    if (point == Point::kRead) {
      const int64_t now = ++under_way;
      int64_t before = most;
      while (before < now && !most.compare_exchange_weak(before, now)) {
      }
      most.notify_all();
    }
    if (point == Point::kWrite) {
      for (int64_t now = most; now < least; now = most) most.wait(now);
      --under_way;
    }
    return Status();
  };
  options.prepare_workers = options.update_workers = 6;
  Training training(workload, options, count);
  EXPECT_OK(training.pipeline->Run(0, 100));
  return static_cast<uint64_t>(most);
}

TEST(EmbeddingPipelineTest, ModesBoundTheBatchesUnderWay) {
  EXPECT_EQ(MostBatchesUnderWay({.mode = AsyncMode::kSync, .batches_in_flight = 6}, 1), 1u);
  EXPECT_EQ(
      MostBatchesUnderWay({.mode = AsyncMode::kAsyncBounded, .batches_in_flight = 6, .staleness = 3}, 3), 3u);
  EXPECT_EQ(MostBatchesUnderWay({.mode = AsyncMode::kAsync, .batches_in_flight = 6}, 6), 6u);
}

// Every batch has ten rows of its own, and some are slow to be written: what the cache holds is what it has
// to.
TEST(EmbeddingPipelineTest, TheValidationCacheIsBoundedByTheBatchesInFlight) {
  class DisjointRows final : public EmbeddingTask {
   public:
    Status Prepare(EmbeddingItem& item) override {
      item.blocks[0].ids.resize(10);
      std::iota(item.blocks[0].ids.begin(), item.blocks[0].ids.end(), item.batch * 10);
      return Status();
    }
    Status Compute(EmbeddingItem&) override { return Status(); }
  } task;
  HookedTable table(MakeMemoryEmbeddingTable({.row_count = 10'000, .dim = 4}),
                    [](Point point, uint64_t timestamp) {
                      if (point == Point::kWrite && timestamp % 50 == 0) {
                        std::this_thread::sleep_for(std::chrono::milliseconds(2));
                      }
                      return Status();
                    });
  EmbeddingTable* const tables[] = {&table};
  const auto pipeline = EmbeddingPipeline::Make(
      tables, task, {.batches_in_flight = 4, .update_workers = 3, .last_timestamp = 99});
  ASSERT_OK(pipeline->Run(0, 1000));
  const EmbeddingPipelineStats stats = pipeline->stats();
  EXPECT_LE(stats.cache_rows_peak, 4u * 4 * 10);
  EXPECT_GE(stats.cache_rows_peak, 10u);
  EXPECT_GT(stats.cache_bytes_peak, stats.cache_rows_peak * 4 * sizeof(float));
  EXPECT_LT(stats.cache_bytes_peak, 100'000u);
  EXPECT_EQ(stats.rows_replaced, 0u);
}

TEST(EmbeddingPipelineTest, AccountsEveryStage) {
  const Workload workload(1, {{.row_count = 20, .dim = 4}, {.row_count = 5, .dim = 2}});
  const Hook slow_compute = [](Point point, uint64_t batch) {
    // The first is computed once all others wait for it to leave.
    if (point == Point::kCompute && batch == 0) testing_util::WaitUntilAllSleep();
    if (point == Point::kCompute) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return Status();
  };
  Training training(workload, {}, slow_compute);
  ASSERT_OK(training.pipeline->Run(0, 30));
  const EmbeddingPipelineStats stats = training.pipeline->stats();
  for (const auto stage : {EmbeddingStage::kPrepare, EmbeddingStage::kCompute, EmbeddingStage::kUpdate}) {
    EXPECT_EQ(stats.stage(stage).batches, 30u);
  }
  EXPECT_EQ(stats.stage(EmbeddingStage::kTransfer).batches, 0u) << "there is no device";
  EXPECT_GT(stats.stage(EmbeddingStage::kCompute).busy_seconds, 0.030);
  EXPECT_GT(stats.stage(EmbeddingStage::kPrepare).wait_seconds, 0) << "it waits for batches to leave";
  EXPECT_GT(stats.rows_replaced, 0u);
  EXPECT_LT(stats.rows_replaced, stats.rows_computed);
}

TEST(EmbeddingPipelineTest, TimestampsGoOnFromACheckpoint) {
  const Workload workload(1, {{.row_count = 20, .dim = 4}});
  Training training(workload, {.record_order = true, .last_timestamp = 99}, NoHook);
  ASSERT_OK(training.pipeline->Run(500, 3));
  EXPECT_EQ(training.pipeline->last_timestamp(), 102);
  EXPECT_THAT(training.pipeline->order(), testing::UnorderedElementsAre(500, 501, 502));
  const Tables contents = training.Contents();
  EXPECT_EQ(*std::max_element(contents[0].timestamps.begin(), contents[0].timestamps.end()), 102);
}

TEST(EmbeddingPipelineTest, AnErrorOfAnyStageEndsTheRunAndComesBackOnce) {
  const Workload workload(1, {{.row_count = 20, .dim = 4}});
  for (const Point point : {Point::kPrepare, Point::kRead, Point::kCompute, Point::kWrite}) {
    for (const bool ordered : {false, true}) {
      SCOPED_TRACE(testing::Message() << "point " << static_cast<int>(point) << " ordered " << ordered);
      std::atomic<int> calls = 0;
      const Hook failing = [&](Point at, uint64_t) {
        if (at != point || ++calls < 20) return Status();
        return MakeStatus(Code::kIoError, "injected");
      };
      Training training(workload, {.ordered = ordered, .prepare_workers = 3, .update_workers = 3}, failing);
      const Status status = training.pipeline->Run(0, 1000);
      EXPECT_THAT(status, IsStatus(Code::kIoError));
      EXPECT_EQ(status.message(), "injected");
      const Status again = training.pipeline->Run(1000, 1);
      EXPECT_THAT(again, IsStatus(Code::kCancelled, HasSubstr("injected")));
    }
  }
}

TEST(EmbeddingPipelineTest, CancelEndsARunFromAnyThread) {
  const Workload workload(1, {{.row_count = 20, .dim = 4}});
  std::atomic<bool> computing = false, cancelled = false;
  const Hook hook = [&](Point point, uint64_t) {
    if (point == Point::kCompute) {
      computing = true;
      computing.notify_all();
      cancelled.wait(false);
    }
    return Status();
  };
  Training training(workload, {}, hook);
  std::thread canceller([&] {
    computing.wait(false);
    training.pipeline->Cancel();
    cancelled = true;
    cancelled.notify_all();
  });
  EXPECT_THAT(training.pipeline->Run(0, 1'000'000), IsStatus(Code::kCancelled));
  canceller.join();
  EXPECT_THAT(training.pipeline->Run(0, 1), IsStatus(Code::kCancelled));
}

TEST(EmbeddingPipelineTest, ARunOfNoBatchesIsDoneAtOnce) {
  const Workload workload(1, {{.row_count = 20, .dim = 4}});
  Training training(workload, {}, NoHook);
  EXPECT_OK(training.pipeline->Run(7, 0));
  EXPECT_EQ(training.pipeline->last_timestamp(), kNeverWritten);
}

}  // namespace
}  // namespace quarry
