// Options of C become those of the engine by the names of their fields.
#include "c/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/status_matchers.h"

namespace quarry::client {
namespace {

using testing::HasSubstr;

// NOLINTBEGIN(readability-identifier-naming): names as C has them
struct stray {
  size_t size;
  uint32_t batch_size;
  int fan_out;
};
struct other_kind {
  size_t size;
  const char* batch_size;
};
struct narrower {
  size_t size;
  uint64_t batch_size;
};
struct no_list {
  size_t size;
  size_t topology_count;
  uint32_t fanouts;
  size_t fanout_count;
};
// NOLINTEND(readability-identifier-naming)
static_assert(TakesAllBut<quarry_live_spec, RoadSpec>({"padding", "padding_of_edge_ids"}));
static_assert(!TakesAllBut<stray, RoadSpec>({}), "the engine has no such field");
static_assert(TakesAllBut<stray, RoadSpec>({"fan_out"}));
static_assert(!TakesAllBut<other_kind, RoadSpec>({}), "nothing makes a number of a text");
static_assert(!TakesAllBut<narrower, RoadSpec>({}), "2^32 would be 0");
static_assert(!TakesAllBut<no_list, RoadSpec>({"fanouts", "topology_count"}), "a length is of a list");

TEST(COptionsTest, FieldsAreTakenByName) {
  const uint32_t fanouts[] = {7, 5, 3};
  const quarry_live_spec given = {.size = sizeof(given),
                                  .feature_table = "f",
                                  .topology = "t",
                                  .direction = QUARRY_BOTH,
                                  .fanouts = fanouts,
                                  .fanout_count = 3,
                                  .batch_size = 9,
                                  .cache_bytes = 11,
                                  .seed = 13,
                                  .replace = 2,
                                  .padding = 1,
                                  .edge_ids = -1,
                                  .padding_of_edge_ids = 1,
                                  .sampler = "labor",
                                  .batch_dependency = 17,
                                  .weighted = 3};
  RoadSpec taken;
  ASSERT_OK(TakeOptions(given, taken));
  EXPECT_EQ(taken, (RoadSpec{.feature_table = "f",
                             .topology = "t",
                             .direction = Direction::kBoth,
                             .fanouts = {7, 5, 3},
                             .batch_size = 9,
                             .cache_bytes = 11,
                             .seed = 13,
                             .replace = true,
                             .sampler = SamplerKind::kLabor,
                             .batch_dependency = 17,
                             .weighted = true,
                             .edge_ids = true}));
}

TEST(COptionsTest, OneBatchAlikeIsEveryBatchAnew) {
  for (const auto& [given, taken] : {std::pair(0U, 0U), std::pair(1U, 0U), std::pair(2U, 2U)}) {
    const quarry_live_spec spec = {.size = sizeof(spec), .sampler = "labor", .batch_dependency = given};
    ASSERT_OK_AND_ASSIGN(const RoadSpec live, SpecOf(&spec));
    EXPECT_EQ(live.batch_dependency, taken);
  }
}

TEST(COptionsTest, WhatIsZeroLeavesTheDefault) {
  const RoadSpec before = {.topology = "t",
                           .fanouts = {4},
                           .batch_size = 8,
                           .cache_bytes = 16,
                           .seed_order = SeedOrder::kProximity,
                           .replace = true,
                           .sampler = SamplerKind::kLabor,
                           .batch_dependency = 2,
                           .weighted = true};
  RoadSpec taken = before;
  ASSERT_OK(TakeOptions(quarry_live_spec{}, taken));
  EXPECT_EQ(taken, before);
  wire::SuperbatchSpec superbatch;
  ASSERT_OK(TakeOptions(quarry_superbatch_spec{}, superbatch));
  EXPECT_EQ(superbatch, wire::SuperbatchSpec());
  EmbeddingSpec embedding;
  ASSERT_OK(TakeOptions(quarry_embedding_spec{}, embedding));
  EXPECT_EQ(embedding, EmbeddingSpec());
}

TEST(COptionsTest, EnumsAreNumbersOfCOrNames) {
  wire::SuperbatchSpec taken;
  ASSERT_OK(TakeOptions(quarry_superbatch_spec{.policy = "lru", .packing = QUARRY_PACK_NEVER}, taken));
  EXPECT_EQ(taken.policy, PolicyKind::kLru);
  EXPECT_EQ(taken.packing, Packing::kNever);
  ASSERT_OK(TakeOptions(quarry_superbatch_spec{.packing = QUARRY_PACK_ALWAYS}, taken));
  EXPECT_EQ(taken.packing, Packing::kAlways);
  EmbeddingSpec embedding;
  ASSERT_OK(
      TakeOptions(quarry_embedding_spec{.optimizer = QUARRY_SGD, .init = QUARRY_INIT_ZEROS}, embedding));
  EXPECT_EQ(embedding.optimizer, OptimizerKind::kSgd);
  EXPECT_EQ(embedding.init, InitKind::kZeros);
  wire::OpenStream open;
  ASSERT_OK(TakeOptions(quarry_stream_options{.mode = QUARRY_SPLIT, .group = "g"}, open));
  EXPECT_EQ(open.mode, wire::StreamMode::kSplit);
  EXPECT_EQ(open.group, "g");
  EXPECT_EQ(open.members, 1u);
}

TEST(COptionsTest, WhatIsUnknownIsNamed) {
  wire::SuperbatchSpec taken;
  for (const int packing : {-1, 3, 1 << 30}) {
    const Status status = TakeOptions(quarry_superbatch_spec{.packing = packing}, taken);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("packing " + std::to_string(packing)));
  }
  const Status status = TakeOptions(quarry_superbatch_spec{.policy = "best"}, taken);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("best"));
  EXPECT_EQ(taken, wire::SuperbatchSpec());
}

}  // namespace
}  // namespace quarry::client
