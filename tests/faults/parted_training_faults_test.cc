// Link prediction by parts, on a disk that fails: its swaps, and the checkpoints of its vectors and its state.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "faults/small_world.h"
#include "quarry/partition/stored_partitioning.h"
#include "quarry/storage/edges.h"
#include "quarry/trainer/link_run.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing_util::SmallWorld;
using Start = LinkRunOptions::Start;

constexpr uint32_t kParts = 4;

Status CutWorld(SmallWorld& world) {
  Assignment assignment{.parts = kParts, .part_of = {}};
  for (uint64_t node = 0; node < world.graph().nodes; ++node) {
    assignment.part_of.push_back(static_cast<uint32_t>(node * 7 % kParts));
  }
  return BuildPartitioning(world.store(), world.budget(), {.method = "test"}, std::move(assignment), {})
      .status();
}

// Trains from the last checkpoint on, if there is one, in vectors of which two of four parts are held. With an encoder, the
// ranking at the end writes and reads what it makes of all nodes.
Status TrainByParts(SmallWorld& world, bool encoder) {
  LinkTrainOptions train{.batch_edges = 150,
                         .chunk_edges = 50,
                         .negatives = 10,
                         .epochs = 2,
                         .valid_every = 0,
                         .mode = AsyncMode::kSync,
                         .ordered = true};
  train.spec.dim = 300;
  train.spec.decoder = DecoderKind::kDot;
  if (encoder) {
    train.encoder_fanouts = {3};
    train.spec.dim = 30;
    train.epochs = 1;
  }
  MemoryBudget budget(kGiB);
  QUARRY_TRY(const auto partitioning, StoredPartitioning::Open(world.store(), budget, "default"));
  QUARRY_TRY(const auto edges, EdgeList::Open(world.store(), budget, "graph"));
  LinkData data;
  data.node_count = world.graph().nodes;
  data.train.resize(edges->size());
  edges->Read(0, data.train);
  if (encoder) data.test.assign(data.train.begin(), data.train.begin() + 20);
  QUARRY_RETURN_IF_ERROR(RenumberNodes(*partitioning, budget, data));
  if (encoder) {
    QUARRY_RETURN_IF_ERROR(LeaveEdgesInParts(*partitioning, world.store(), budget, data));
  }
  const bool resumes = world.store().manifest()->FindTraining("link") != nullptr;
  QUARRY_TRY(const auto run, LinkRun::Open(world.store(), budget, data, train,
                                           {.start = resumes ? Start::kResume : Start::kNew,
                                            .checkpoint_every = 5,
                                            .partitioning = partitioning.get(),
                                            .road = {.buffer = 2, .logical = 4}}));
  return TrainLinks(data, train, budget, {}, *run).status();
}

void RunAllFaults(bool encoder) {
  std::optional<std::vector<std::byte>> whole;
  int64_t last = kNeverWritten;
  SmallWorld world({
      .prepare = CutWorld,
      .work = [=](SmallWorld& w) { return TrainByParts(w, encoder); },
      .check =
          [&](SmallWorld& w, bool done) {
            const std::shared_ptr<const Manifest> manifest = w.store().manifest();
            const TrainingRecord* const record = manifest->FindTraining("link");
            if (record == nullptr) {
              EXPECT_FALSE(done);
              return;
            }
            const EmbeddingRecord* const table = manifest->FindEmbedding("link-parts");
            ASSERT_TRUE(table != nullptr);
            EXPECT_EQ(table->timestamp, record->timestamp);
            if (!done) return;
            // The run is at its end, and opening it removes what is left over of its table.
            EXPECT_OK(TrainByParts(w, encoder));
            // In order, the state tells all losses, and so what the vectors were.
            ASSERT_OK_AND_ASSIGN(const auto state, ReadTrainingState(w.store(), "link"));
            if (!whole) {
              whole = state;
              last = record->timestamp;
            }
            EXPECT_TRUE(state == whole);
            EXPECT_EQ(record->timestamp, last);
          },
  });
  world.Run();
}

TEST(PartedTrainingFaultsTest, SwapsAndCheckpoints) { RunAllFaults(false); }
TEST(PartedTrainingFaultsTest, RankingsOfAnEncoder) { RunAllFaults(true); }

}  // namespace
}  // namespace quarry
