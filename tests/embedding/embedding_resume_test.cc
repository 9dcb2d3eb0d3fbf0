// Training with the pipeline on stored tables: stopped anywhere and taken up from its last checkpoint, it
// ends bit for bit as a run that was never stopped.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "embedding/trained_tables.h"
#include "quarry/embedding/optimizer.h"
#include "quarry/pipeline/embedding_pipeline.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing_util::AllRowsOf;

constexpr uint64_t kBatches = 120;
constexpr std::array<std::string_view, 2> kNames = {"nodes", "relations"};

// Few rows, so that batches overlap, and new values that depend on all rows of the batch in both tables.
class Task final : public EmbeddingTask {
 public:
  explicit Task(uint64_t seed) : seed_(seed) {
    specs_[0] = {.row_count = 150, .dim = 150, .optimizer = OptimizerKind::kAdam, .seed = seed};
    specs_[1] = {.row_count = 60, .dim = 200, .element_type = ElementType::kBfloat16, .seed = seed + 1};
  }
  const std::array<EmbeddingSpec, 2>& specs() const { return specs_; }

  Status Prepare(EmbeddingItem& item) override {
    for (size_t t = 0; t < specs_.size(); ++t) {
      Rng rng(MixSeed(seed_, item.batch, t));
      std::vector<RowId>& ids = item.blocks[t].ids;
      ids.resize(1 + rng.Below(10));
      for (RowId& id : ids) id = rng.Below(specs_[t].row_count);
      std::ranges::sort(ids);
      ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    }
    return Status::Ok();
  }

  Status Compute(EmbeddingItem& item) override {
    float sum = static_cast<float>(item.batch);
    for (const RowBlock& block : item.blocks) {
      for (const float value : block.values) sum = sum * 0.9F + value;
    }
    for (size_t t = 0; t < specs_.size(); ++t) {
      const EmbeddingSpec& spec = specs_[t];
      RowBlock& block = item.blocks[t];
      std::vector<float> gradient(spec.dim);
      for (size_t i = 0; i < block.ids.size(); ++i) {
        const std::span<float> values(&block.values[i * spec.dim], spec.dim);
        for (uint32_t c = 0; c < spec.dim; ++c) gradient[c] = 0.3F * values[c] + 0.1F * std::sin(sum);
        OptimizerStep(spec.optimizer, {}, gradient, values,
                      {block.state.data() + i * spec.state_dim(), spec.state_dim()});
      }
    }
    return Status::Ok();
  }

 private:
  const uint64_t seed_;
  std::array<EmbeddingSpec, 2> specs_;
};

EmbeddingPipelineOptions Options(Rng& rng, int64_t last_timestamp) {
  EmbeddingPipelineOptions options{.ordered = true, .last_timestamp = last_timestamp};
  options.batches_in_flight = static_cast<unsigned>(1 + rng.Below(12));
  for (unsigned* workers : {&options.prepare_workers, &options.update_workers}) {
    *workers = static_cast<unsigned>(1 + rng.Below(3));
  }
  return options;
}

using Contents = std::array<RowBlock, 2>;

Contents Read(std::span<EmbeddingTable* const> tables) {
  Contents contents;
  for (size_t t = 0; t < tables.size(); ++t) {
    contents[t] = AllRowsOf(tables[t]->spec());
    EXPECT_OK(tables[t]->Read(contents[t]));
  }
  return contents;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void ExpectSame(const Contents& a, const Contents& b) {
  for (size_t t = 0; t < a.size(); ++t) {
    EXPECT_EQ(a[t].timestamps, b[t].timestamps) << kNames[t];
    EXPECT_TRUE(SameBits(a[t].values, b[t].values) && SameBits(a[t].state, b[t].state)) << kNames[t];
  }
}

// In memory, without a stop.
Contents TrainAtOnce(Task& task, Rng& rng) {
  std::array<std::unique_ptr<EmbeddingTable>, 2> tables;
  std::array<EmbeddingTable*, 2> pointers;
  for (size_t t = 0; t < tables.size(); ++t) {
    tables[t] = MakeMemoryEmbeddingTable(task.specs()[t]);
    pointers[t] = tables[t].get();
  }
  const auto pipeline = EmbeddingPipeline::Make(pointers, task, Options(rng, kNeverWritten));
  EXPECT_OK(pipeline->Run(0, kBatches));
  return Read(pointers);
}

// A training of a database's tables from their last checkpoint on. Batch n computes as timestamp n.
class Session {
 public:
  Session(IoBackend& backend, const std::string& path, Task& task, Rng& rng)
      : store_(Store::Open(backend, path).value()) {
    for (size_t t = 0; t < tables_.size(); ++t) {
      tables_[t] =
          StoredEmbeddings::Open(*store_, budget_, kNames[t], testing_util::FewFrames(*store_, kNames[t]))
              .value();
      table_pointers_[t] = tables_[t].get();
      pointers_[t] = &tables_[t]->table();
    }
    pipeline_ = EmbeddingPipeline::Make(pointers_, task, Options(rng, tables_[0]->timestamp()));
  }

  uint64_t batches_done() const { return static_cast<uint64_t>(pipeline_->last_timestamp() + 1); }
  void Run(uint64_t count) {
    const Status status = pipeline_->Run(batches_done(), std::min(count, kBatches - batches_done()));
    ASSERT_OK(status);
  }
  void Checkpoint() {
    const Status status = CheckpointAll(*store_, table_pointers_, pipeline_->last_timestamp());
    ASSERT_OK(status);
  }
  Contents Rows() { return Read(pointers_); }

 private:
  MemoryBudget budget_{256 * kMiB};
  const std::unique_ptr<Store> store_;
  std::array<std::unique_ptr<StoredEmbeddings>, 2> tables_;
  std::array<StoredEmbeddings*, 2> table_pointers_{};
  std::array<EmbeddingTable*, 2> pointers_{};
  std::unique_ptr<EmbeddingPipeline> pipeline_;
};

TEST(EmbeddingResumeTest, OrderedTrainingThatIsStoppedAnywhereEndsAsIfItHadNotBeen) {
  const auto backend = MakeDefaultBackend();
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    Task task(seed);
    const testing_util::ScratchFolder folder(testing_util::Medium::kMemory);
    const std::string path = folder.path() + "/db";
    ASSERT_OK(testing_util::CreateEmptyDatabase(*backend, path));
    {
      ASSERT_OK_AND_ASSIGN(const auto store, Store::Open(*backend, path));
      for (size_t t = 0; t < kNames.size(); ++t) {
        ASSERT_OK(CreateEmbeddings(*store, kNames[t], task.specs()[t], 4096));
      }
    }
    uint64_t done = 0;
    while (done < kBatches) {
      Session session(*backend, path, task, rng);
      ASSERT_EQ(session.batches_done(), done) << "as many as at the last checkpoint";
      session.Run(1 + rng.Below(40));
      session.Checkpoint();
      done = session.batches_done();
      session.Run(rng.Below(40));  // and all of it is lost
    }
    ExpectSame(Session(*backend, path, task, rng).Rows(), TrainAtOnce(task, rng));
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace quarry
