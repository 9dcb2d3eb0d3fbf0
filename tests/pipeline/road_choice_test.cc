// The choice of a road beside a brute force over everything that is on offer, and its edge cases.
#include "quarry/pipeline/road_choice.h"

#include <gtest/gtest.h>

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

constexpr DeviceRecord kDevice = {.random_reads_per_second = 80e3,
                                  .sequential_bytes_per_second = 3e9,
                                  .write_bytes_per_second = 1.5e9,
                                  .gather_bytes_per_second = 10e9,
                                  .core = {.checksum_bytes_per_second = 8e9,
                                           .copy_bytes_per_second = 5e9,
                                           .decode_bytes_per_second = 0.5e9,
                                           .request_seconds = 3e-6}};

// 8 batches of about 100 thousand of a million nodes, some of which are in most of them.
UseProfile Uses() {
  return UseProfile::Fit(
      std::vector<uint64_t>{540'000, 280'000, 110'000, 40'000, 15'000, 8'000, 4'000, 2'000, 1'000});
}

RoadFacts Facts() {
  RoadFacts facts;
  facts.geometry = FeatureGeometry::Make(ElementType::kFloat32, 128, 1'000'000).value();
  facts.device = kDevice;
  facts.processors = 4;
  facts.sampler_threads = facts.extractor_threads = 2;
  facts.epochs = 30;
  facts.train_batches = 100;
  facts.valid_batches = 2;
  facts.test_batches = 2;
  facts.uses = Uses();
  facts.batch_edges = 150'000;
  facts.sample_seconds = 0.01;
  facts.train = {.wall = 0.02, .processor = 0.08};
  facts.evaluate = {.wall = 0.008, .processor = 0.03};
  facts.live = {.offered = true, .cache_rows_max = 100'000};
  facts.planned = {.offered = true, .cache_rows_max = 100'000};
  facts.fresh = {.offered = true, .cache_rows_max = 40'000};
  facts.disk_bytes = 100 * kGiB;
  return facts;
}

RoadFacts RandomFacts(uint64_t seed) {
  Rng rng(seed);
  const auto between = [&](double low, double high) {
    return low * std::pow(high / low, static_cast<double>(rng.Below(1'000)) / 1'000);
  };
  RoadFacts facts = Facts();
  for (double DeviceRecord::*const rate :
       {&DeviceRecord::random_reads_per_second, &DeviceRecord::sequential_bytes_per_second,
        &DeviceRecord::write_bytes_per_second}) {
    facts.device.*rate *= between(0.05, 4);
  }
  facts.processors = 1 + static_cast<unsigned>(rng.Below(8));
  facts.epochs = 1 + rng.Below(40);
  facts.train_batches = 1 + rng.Below(300);
  facts.valid_batches = static_cast<double>(rng.Below(20));
  facts.planned_epochs = 1 + rng.Below(2);
  facts.sample_seconds = between(0.001, 0.1);
  facts.train = {.wall = between(0.001, 0.3)};
  facts.train.processor = facts.train.wall * between(1, facts.processors);
  facts.lists = {.lists = between(1e2, 1e5),
                 .in_memory = rng.Below(2) > 0,
                 .cache_bytes = rng.Below(100 * kMiB),
                 .indices_bytes = 100 * kMiB,
                 .mean_list_bytes = between(4, 1e4)};
  facts.lists.hits = facts.lists.lists * between(0.01, 1);
  facts.lists.reads = {.bytes = between(1e3, 1e8), .requests = between(1, 1e4)};
  facts.live = {.offered = rng.Below(4) > 0, .cache_rows_max = rng.Below(1'100'000)};
  facts.planned = {.offered = rng.Below(4) > 0, .cache_rows_max = rng.Below(1'100'000)};
  facts.fresh = {.offered = !facts.live.offered && !facts.planned.offered ? true : rng.Below(2) > 0,
                 .cache_rows_max = rng.Below(500'000)};
  for (RoadFacts::Offer* const offer : {&facts.live, &facts.planned, &facts.fresh}) {
    offer->building = {.in_memory = rng.Below(2) > 0, .cache_bytes = rng.Below(120 * kMiB)};
    // Lists are in memory beside few rows, beside any, or never.
    if (const uint64_t kind = rng.Below(3); kind < 2) {
      offer->rows_beside_lists.reset();
      if (kind == 1) offer->rows_beside_lists = rng.Below(offer->cache_rows_max + 1);
      offer->rows_free = rng.Below(offer->cache_rows_max + 1) / 8;
      offer->row_bytes = 530;
      offer->lists_bytes =
          static_cast<uint64_t>(offer->row_bytes * static_cast<double>(offer->cache_rows_max)) +
          rng.Below(20 * kMiB);
    }
  }
  facts.planned.cache_is_given = rng.Below(2) > 0;
  facts.disk_bytes = facts.live.offered ? static_cast<uint64_t>(between(1e8, 1e11)) : 100'000 * kGiB;
  return facts;
}

// The least seconds of all plans that the facts allow: every policy and packing, superbatches of `sizes`, and so many
// caches of each, evenly apart and where the lists leave memory.
double LeastSeconds(const RoadFacts& facts, uint64_t caches, const std::vector<uint64_t>& sizes = {0}) {
  double least = std::numeric_limits<double>::infinity();
  const auto price = [&](const RoadFacts::Offer& offer, uint64_t rows_max, RoadPlan plan) {
    const uint64_t most = std::min(rows_max, facts.geometry.row_count);
    std::vector<uint64_t> rows = {most};
    for (uint64_t i = 0; !offer.cache_is_given && i < caches; ++i) rows.push_back(most * i / caches);
    if (!offer.cache_is_given && offer.rows_beside_lists && *offer.rows_beside_lists < most) {
      rows.push_back(*offer.rows_beside_lists);
    }
    for (const uint64_t cache_rows : rows) {
      plan.cache_rows = cache_rows;
      const RoadCost cost = PriceRoad(facts, plan);
      if (plan.road == RoadKind::kLive || cost.disk_bytes <= facts.disk_bytes) {
        least = std::min(least, cost.seconds);
      }
    }
  };
  if (facts.live.offered) {
    price(facts.live, facts.live.cache_rows_max, {.road = RoadKind::kLive, .policy = PolicyKind::kLru});
  }
  for (const PolicyKind policy : facts.policies) {
    if (!facts.planned.offered) break;
    price(facts.planned, facts.planned.cache_rows_max,
          {.road = RoadKind::kPlanned, .policy = policy, .packed = true});
  }
  for (const bool packed : {true, false}) {
    for (const uint64_t batches : sizes) {
      if (!facts.fresh.offered) break;
      price(
          facts.fresh, facts.fresh.cache_rows_max,
          {.road = RoadKind::kFresh, .policy = facts.fresh_policy, .packed = packed, .superbatch = batches});
    }
  }
  return least;
}

TEST(RoadChoiceTest, TakesTheLeastOfAllThatIsOnOffer) {
  int taken[3] = {}, split = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const RoadFacts facts = RandomFacts(seed);
    const RoadChoice choice = ChooseRoad(facts);
    ASSERT_FALSE(choice.roads.empty());
    const double least = LeastSeconds(facts, 100);
    const RoadCost& best = choice.best();
    ++taken[static_cast<size_t>(best.plan.road)];
    split += best.lists.in_memory ? 0 : 1;
    // The live road is kept where nothing saves a twentieth, and half a second; and a hundredth is left to the search.
    const bool live = best.plan.road == RoadKind::kLive;
    EXPECT_LE(best.seconds, 1.01 * std::max(live ? least / 0.95 : least, live ? least + 0.5 : least));
    EXPECT_TRUE(std::ranges::is_sorted(choice.roads.begin() + 1, choice.roads.end(), {}, &RoadCost::seconds));
    for (const RoadCost& cost : choice.roads) {
      EXPECT_TRUE(cost.plan.road == RoadKind::kLive || cost.disk_bytes <= facts.disk_bytes);
    }
  }
  EXPECT_GT(taken[0], 0);
  EXPECT_GT(taken[1], 0);
  EXPECT_GT(split, 10);
}

// Small fanouts and few batches, whose caches find little or nearly all; disks that turn, and ones that are nearly full.
RoadFacts OtherFacts(uint64_t seed) {
  RoadFacts facts = RandomFacts(seed);
  Rng rng(seed * 7919);
  const uint64_t probed = 2 + rng.Below(7);
  std::vector<uint64_t> nodes_by_uses(probed + 1);
  uint64_t nodes = 1'000'000;
  for (uint64_t uses = probed; uses > 0; --uses) {
    nodes_by_uses[uses] = rng.Below(nodes / (2 + 8 * uses) + 1);
    nodes -= nodes_by_uses[uses];
  }
  nodes_by_uses[0] = nodes;
  facts.uses = UseProfile::Fit(nodes_by_uses);
  facts.batch_edges = facts.uses.BatchNodes() * 2;
  facts.train_batches = 1 + rng.Below(40);
  facts.epochs = 1 + rng.Below(60);
  if (rng.Below(3) == 0) {
    facts.device.random_reads_per_second = 150;
    facts.device.sequential_bytes_per_second = facts.device.write_bytes_per_second = 180e6;
  }
  facts.live.offered = rng.Below(2) > 0;
  facts.planned.offered = rng.Below(3) > 0;
  facts.fresh.offered = true;
  facts.fresh.cache_rows_max = 1 + rng.Below(500'000);
  facts.lists.cache_scans = 1 + static_cast<double>(rng.Below(2));
  if (rng.Below(2) > 0) facts.open_live_rows = rng.Below(facts.live.cache_rows_max + 1);
  return facts;
}

// Whether epochs are cut, how finely, and what its memory is given to are one choice.
TEST(RoadChoiceTest, SuperbatchesAndTheSplitAreWithinAHundredthOfAllThereAre) {
  int cut = 0, whole = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    RoadFacts facts = OtherFacts(seed);
    std::vector<uint64_t> all;
    for (uint64_t batches = 1; batches <= facts.train_batches; ++batches) all.push_back(batches);
    for (const uint64_t batches : SuperbatchSizes(facts.train_batches)) {
      facts.superbatches.push_back({batches, facts.fresh.cache_rows_max});
    }
    // Half of the disks have no room for two epochs.
    const uint64_t epoch_bytes =
        PriceRoad(facts, {.road = RoadKind::kFresh, .policy = PolicyKind::kBelady, .packed = true})
            .disk_bytes;
    if (seed % 2 == 0) facts.disk_bytes = epoch_bytes / 3;
    const RoadChoice choice = ChooseRoad(facts);
    const double least = LeastSeconds(facts, 40, all);
    if (choice.roads.empty()) {
      EXPECT_TRUE(std::isinf(least));
      continue;
    }
    const RoadCost& best = choice.best();
    const bool live = best.plan.road == RoadKind::kLive;
    EXPECT_LE(best.seconds, 1.01 * std::max(live ? least / 0.95 : least, live ? least + 0.5 : least))
        << choice.Table();
    if (best.plan.road == RoadKind::kFresh) ++(best.plan.superbatch > 0 ? cut : whole);
  }
  EXPECT_GT(cut, 0);
  EXPECT_GT(whole, 0);
}

TEST(RoadChoiceTest, SuperbatchSizesDescendFromAPassToItsParts) {
  for (const uint64_t batches : {1, 2, 3, 10, 97, 1000, 123'456}) {
    const std::vector<uint64_t> sizes = SuperbatchSizes(batches);
    ASSERT_FALSE(sizes.empty());
    EXPECT_EQ(sizes.front(), batches);
    EXPECT_TRUE(std::ranges::is_sorted(sizes, std::greater()));
    EXPECT_GE(sizes.back(), 1U);
    EXPECT_LE(sizes.size(), 30U);
  }
}

// One superbatch is what an epoch was; where it is cut, each part packs by a scan, and the first is there sooner.
TEST(RoadChoiceTest, ASuperbatchOfAllBatchesIsAnEpoch) {
  const RoadFacts facts = Facts();
  const RoadPlan epoch = {
      .road = RoadKind::kFresh, .policy = PolicyKind::kBelady, .packed = true, .cache_rows = 40'000};
  RoadPlan same = epoch, parts = epoch;
  same.superbatch = facts.train_batches;
  parts.superbatch = facts.train_batches / 4;
  EXPECT_EQ(PriceRoad(facts, same).seconds, PriceRoad(facts, epoch).seconds);
  EXPECT_LT(PriceRoad(facts, parts).build_seconds, PriceRoad(facts, epoch).build_seconds);
  EXPECT_LT(PriceRoad(facts, parts).disk_bytes, PriceRoad(facts, epoch).disk_bytes);
  EXPECT_GT(PriceRoad(facts, parts).read_bytes, PriceRoad(facts, epoch).read_bytes);
}

// Each superbatch opens a source of its own: indptr, labels and splits are read, and the seeds of the pass ordered.
TEST(RoadChoiceTest, EachSuperbatchOpensASource) {
  RoadFacts facts = Facts();
  facts.epochs = 3;
  facts.train = {};
  facts.sample_seconds = 0;
  const auto source_seconds = [&](uint64_t superbatch) {
    const RoadPlan plan = {.road = RoadKind::kFresh,
                           .policy = PolicyKind::kBelady,
                           .packed = true,
                           .cache_rows = 40'000,
                           .superbatch = superbatch};
    RoadFacts with = facts;
    with.source_bytes = 100 * kGiB;  // so much that nothing hides it
    return PriceRoad(with, plan).seconds - PriceRoad(facts, plan).seconds;
  };
  const double read = 100.0 * kGiB / kDevice.sequential_bytes_per_second;
  EXPECT_GT(source_seconds(facts.train_batches), 2.5 * read);
  EXPECT_GT(source_seconds(facts.train_batches / 10), 25 * read);
  const RoadPlan epoch = {.road = RoadKind::kFresh, .policy = PolicyKind::kBelady, .packed = true};
  const double before = PriceRoad(facts, epoch).build.sample;
  facts.train_nodes = 1'000'000'000;
  EXPECT_GT(PriceRoad(facts, epoch).build.sample, before + 1);
}

// With few batches the first one, sampled twice, is too much of the work; and a cache of addresses alone finds nothing.
TEST(RoadChoiceTest, CachesThatAreNotMadeAreNotPriced) {
  RoadFacts facts = Facts();
  facts.lists = {.lists = 1e6,
                 .reads = {.bytes = 1e9, .requests = 1e5},
                 .in_memory = false,
                 .indices_bytes = kGiB,
                 .address_bytes = 16 * kMiB,
                 .mean_list_bytes = 60};
  const auto sample_seconds = [&](uint64_t superbatch, uint64_t cache_bytes) {
    facts.fresh.building = {.cache_bytes = cache_bytes};
    return PriceRoad(facts, {.road = RoadKind::kFresh,
                             .policy = PolicyKind::kBelady,
                             .packed = true,
                             .superbatch = superbatch})
        .build.sample;
  };
  EXPECT_EQ(sample_seconds(3, kGiB), sample_seconds(3, 0));
  EXPECT_LT(sample_seconds(4, kGiB), sample_seconds(4, 0));
  EXPECT_EQ(sample_seconds(4, 16 * kMiB), sample_seconds(4, 0));
}

TEST(RoadChoiceTest, ASingleEpochOverDataThatFitsBuildsNoLayout) {
  RoadFacts facts = Facts();
  facts.live.cache_rows_max = facts.planned.cache_rows_max = facts.geometry.row_count;
  facts.epochs = 1;
  EXPECT_EQ(ChooseRoad(facts).best().plan.road, RoadKind::kLive);
}

TEST(RoadChoiceTest, ManyEpochsBeyondMemoryArePacked) {
  RoadFacts facts = Facts();
  facts.train = {.wall = 0.001, .processor = 0.004};
  EXPECT_EQ(ChooseRoad(facts).best().plan.road, RoadKind::kPlanned);
  facts.epochs = facts.train_batches = 1;  // too few for anything that is built
  EXPECT_EQ(ChooseRoad(facts).best().plan.road, RoadKind::kLive);
}

TEST(RoadChoiceTest, WhatSetsTheTimeWhateverTheRoadIsLeftAlone) {
  RoadFacts facts = Facts();
  facts.train = {.wall = 10, .processor = 40};
  const RoadChoice choice = ChooseRoad(facts);
  EXPECT_EQ(choice.best().plan.road, RoadKind::kLive);
  EXPECT_TRUE(choice.best().processor_bound);
}

TEST(RoadChoiceTest, WithoutRoomOnDiskNothingIsBuilt) {
  RoadFacts facts = Facts();
  facts.train = {.wall = 0.001, .processor = 0.004};
  facts.disk_bytes = kMiB;
  const RoadChoice choice = ChooseRoad(facts);
  EXPECT_EQ(choice.roads.size(), 1u);
  EXPECT_EQ(choice.best().plan.road, RoadKind::kLive);
  EXPECT_EQ(choice.code, Code::kNoSpace);
  ASSERT_EQ(choice.left_out.size(), 2u);
  EXPECT_THAT(choice.left_out[0], testing::HasSubstr("room for 1.00 MiB"));
  EXPECT_THAT(choice.ToString(), testing::HasSubstr("no other road"));
}

// Whoever asked for a layout of a size gets one with segment caches, or building's refusal.
TEST(RoadChoiceTest, ALayoutThatWasAskedForIsOfferedWhateverItTakes) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    RoadFacts facts = RandomFacts(seed);
    facts.live.offered = facts.fresh.offered = false;
    facts.planned.offered = true;
    facts.disk_bytes = 1'000'000 * kGiB;
    const RoadChoice roomy = ChooseRoad(facts);
    Rng rng(seed);
    facts.disk_bytes = roomy.best().disk_bytes * (1 + rng.Below(99)) / 100;
    const RoadChoice refused = ChooseRoad(facts);
    facts.planned.segments = true;
    const RoadChoice choice = ChooseRoad(facts);
    ASSERT_FALSE(choice.roads.empty());

    if (!refused.roads.empty()) {
      EXPECT_EQ(choice.best().plan, refused.best().plan) << "segments are for what does not fit without";
      continue;
    }
    EXPECT_EQ(refused.code, Code::kNoSpace);
    // The cheapest of those that surely fit, by all sizes and policies; or the smallest.
    double seconds = std::numeric_limits<double>::infinity();
    uint64_t smallest = ~uint64_t{0};
    const uint64_t most = std::min(facts.planned.cache_rows_max, facts.geometry.row_count);
    for (uint64_t quarters = facts.planned.cache_is_given ? 4 : 1; quarters <= 4; ++quarters) {
      for (const PolicyKind policy : facts.policies) {
        const RoadCost cost = PriceRoad(facts, {RoadKind::kPlanned, policy, true, most * quarters / 4});
        smallest = std::min(smallest, cost.least_disk_bytes);
        if (cost.least_disk_bytes + cost.least_disk_bytes / 10 > facts.disk_bytes) continue;
        seconds = std::min(seconds, cost.seconds);
      }
    }
    if (choice.best().least_disk_bytes + choice.best().least_disk_bytes / 10 > facts.disk_bytes) {
      EXPECT_TRUE(std::isinf(seconds));
      EXPECT_LE(choice.best().least_disk_bytes, smallest);
    } else {
      EXPECT_LE(choice.best().seconds, seconds);
    }
  }
}

// A model of one thread leaves the other cores to what builds the next epoch.
TEST(RoadChoiceTest, FreshEpochsAreBuiltOnCoresThatTheModelLeavesIdle) {
  RoadFacts facts = Facts();
  facts.processors = 4;
  facts.device = {.random_reads_per_second = 1e9,
                  .sequential_bytes_per_second = 1e12,
                  .write_bytes_per_second = 1e12,
                  .gather_bytes_per_second = 1e12};
  facts.sample_seconds = 0.05;
  facts.train = {.wall = 0.1, .processor = 0.1};
  const RoadPlan fresh = {RoadKind::kFresh, PolicyKind::kBelady, true, 40'000};
  const RoadCost cost = PriceRoad(facts, fresh);
  ASSERT_LT(cost.build.sample + cost.build.plan + cost.build.pack, 100 * 0.1);
  EXPECT_NEAR(cost.epoch_seconds, 100 * 0.1, 0.02);
}

// The road that is opened for validation and test loads the lists, or fills its cache of them.
TEST(RoadChoiceTest, PassesBesideALayoutScanTheListsOnce) {
  RoadFacts facts = Facts();
  facts.lists = {.lists = 1e4, .indices_bytes = 30 * kGiB, .mean_list_bytes = 60};
  for (const RoadPlan& plan : {RoadPlan{RoadKind::kPlanned, PolicyKind::kBelady, true, 40'000},
                               RoadPlan{RoadKind::kFresh, PolicyKind::kBelady, true, 40'000}}) {
    RoadFacts without = facts;
    without.lists.indices_bytes = 0;
    const double scan = 30.0 * kGiB / kDevice.sequential_bytes_per_second;
    EXPECT_NEAR(PriceRoad(facts, plan).other_seconds - PriceRoad(without, plan).other_seconds, scan, 1e-6);
  }
}

TEST(RoadChoiceTest, WhatDoesNotFitIntoMemoryIsNotOffered) {
  RoadFacts facts = Facts();
  facts.train = {.wall = 0.001, .processor = 0.004};
  facts.planned = {.offered = false, .why_not = "needs 495 MiB of memory"};
  facts.fresh = {.offered = false, .why_not = "needs 600 MiB of memory"};
  const RoadChoice choice = ChooseRoad(facts);
  EXPECT_EQ(choice.best().plan.road, RoadKind::kLive);
  EXPECT_THAT(choice.Table(), testing::HasSubstr("planned: needs 495 MiB of memory"));
}

TEST(RoadChoiceTest, ALayoutThatIsThereIsNotBuiltAgain) {
  RoadFacts facts = Facts();
  const RoadPlan built = {RoadKind::kPlanned, PolicyKind::kBelady, true, 77'000};
  const double anew = PriceRoad(facts, built).seconds;
  facts.built = built;
  EXPECT_LT(PriceRoad(facts, built).seconds, anew);
  facts.epochs = 1;
  facts.disk_bytes = 0;
  facts.train = {.wall = 0.001, .processor = 0.004};
  EXPECT_EQ(ChooseRoad(facts).best().plan, built);
}

TEST(RoadChoiceTest, AGivenCacheIsTheOneThatIsPriced) {
  RoadFacts facts = Facts();
  facts.planned.cache_is_given = true;
  for (const RoadCost& cost : ChooseRoad(facts).roads) {
    if (cost.plan.road != RoadKind::kPlanned) continue;
    EXPECT_EQ(cost.plan.cache_rows, 100'000u);
  }
}

// On a device of 6.7 GB/s, merged reads were once predicted at the disk's 70 s and took 115 because of checksums and
// copies.
TEST(RoadChoiceTest, ProcessorsBoundAFastDevice) {
  RoadFacts facts = Facts();
  facts.device.sequential_bytes_per_second = 100e9;
  facts.device.random_reads_per_second = 10e6;
  facts.processors = 1;
  facts.sampler_threads = facts.extractor_threads = 1;
  facts.sample_seconds = 0;
  facts.train = facts.evaluate = {};
  const RoadPlan live = {.road = RoadKind::kLive, .policy = PolicyKind::kLru};
  const RoadCost cost = PriceRoad(facts, live);
  EXPECT_TRUE(cost.processor_bound);
  const double rows = facts.uses.BatchNodes() * 100;
  const double bytes = rows * 512;
  // The checksums and copies of every row, and its request.
  EXPECT_GE(cost.epoch_seconds, bytes / 8e9 + bytes / 5e9);
  EXPECT_LE(cost.epoch_seconds, bytes / 8e9 + bytes / 5e9 + rows * 3.3e-6);
  facts.device.core = {};
  EXPECT_LT(PriceRoad(facts, live).epoch_seconds, cost.epoch_seconds / 2);
}

// The model leaves idle what its threads do not use: other work has that for nothing.
TEST(RoadChoiceTest, WorkBesideAModelOfOneThreadHasTheOtherCores) {
  RoadFacts facts = Facts();
  facts.processors = 2;
  facts.sampler_threads = facts.extractor_threads = 1;
  facts.device = {.random_reads_per_second = 1e9,
                  .sequential_bytes_per_second = 1e12,
                  .write_bytes_per_second = 1e12,
                  .gather_bytes_per_second = 1e12};
  facts.sample_seconds = 0.04 - facts.uses.BatchNodes() * 130e-9;  // and looking nodes up
  const RoadPlan live = {.road = RoadKind::kLive, .policy = PolicyKind::kLru};
  facts.train = {.wall = 0.05, .processor = 0.05};
  EXPECT_NEAR(PriceRoad(facts, live).epoch_seconds, 100 * 0.05, 1e-3);
  facts.train = {.wall = 0.05, .processor = 0.1};
  EXPECT_NEAR(PriceRoad(facts, live).epoch_seconds, 100 * 0.07, 1e-3);
}

// Lists on disk are scattered: so many requests, whatever the bytes.
TEST(RoadChoiceTest, ListsOnDiskArePricedByTheirRequests) {
  RoadFacts facts = Facts();
  facts.train = facts.evaluate = {};
  facts.sample_seconds = 0;
  facts.geometry = FeatureGeometry::Make(ElementType::kFloat32, 1, 1'000'000).value();
  facts.lists = {.lists = 8000,
                 .hits = 0,
                 .reads = {.bytes = 8000 * 4096.0, .requests = 8000},
                 .in_memory = false,
                 .indices_bytes = 100 * kGiB,
                 .mean_list_bytes = 60};
  const RoadPlan live = {.road = RoadKind::kLive, .policy = PolicyKind::kLru, .cache_rows = 1'000'000};
  const double in_memory = PriceRoad(facts, live).epoch.disk_seconds;
  facts.live.rows_beside_lists.reset();
  const double on_disk = PriceRoad(facts, live).epoch.disk_seconds;
  EXPECT_NEAR(on_disk - in_memory, 100 * 8000 / 80e3, 0.1);
}

// Runs of edges: composing them is paid by whoever opens the graph, searching them by what is drawn from lists on disk.
constexpr RunsPrice kRuns = {
    .open_seconds = 2, .open_disk_seconds = 0.5, .merge_seconds = 0.25, .draw_seconds = 2e-6};

TEST(RoadChoiceTest, RunsOfEdgesArePaidWhereTheGraphIsOpenedAndWhereListsAreSearched) {
  RoadFacts facts = Facts();
  facts.lists = {.lists = 8000, .indices_bytes = 100 * kMiB, .mean_list_bytes = 60};
  const RoadPlan live = {.road = RoadKind::kLive, .policy = PolicyKind::kLru, .cache_rows = 50'000};
  const RoadPlan planned = {
      .road = RoadKind::kPlanned, .policy = PolicyKind::kBelady, .packed = true, .cache_rows = 50'000};
  facts.open_live_rows = live.cache_rows;
  RoadFacts runs = facts;
  runs.runs = kRuns;
  // It is open already, and its lists are in memory, merged.
  EXPECT_EQ(PriceRoad(runs, live).seconds, PriceRoad(facts, live).seconds);
  // Opened anew it composes and merges them.
  RoadPlan other = live;
  other.cache_rows = 40'000;
  EXPECT_NEAR(PriceRoad(runs, other).seconds - PriceRoad(facts, other).seconds, 1.5, 1e-6);
  // A layout is sampled from the graph as it is opened for that, and its other passes from the graph as they open it.
  const RoadCost layout = PriceRoad(runs, planned), without = PriceRoad(facts, planned);
  EXPECT_NEAR(layout.build.sample - without.build.sample, 1.5, 1e-6);
  EXPECT_NEAR(layout.other_seconds - without.other_seconds, 1.5, 1e-6);
  EXPECT_EQ(layout.epoch_seconds, without.epoch_seconds) << "its batches are there";
  // Superbatches open it as often as there are some.
  RoadPlan fresh = {
      .road = RoadKind::kFresh, .policy = PolicyKind::kBelady, .packed = false, .superbatch = 25};
  const double whole = PriceRoad(runs, {.road = RoadKind::kFresh, .policy = PolicyKind::kBelady}).seconds;
  EXPECT_GT(PriceRoad(runs, fresh).train_processor_seconds - PriceRoad(facts, fresh).train_processor_seconds,
            (30 * 4 - 2) * 1.5);
  EXPECT_GT(whole, PriceRoad(facts, {.road = RoadKind::kFresh, .policy = PolicyKind::kBelady}).seconds);
  // From lists on disk every draw of 150 thousand a batch is searched for; a neighbor cache of half of them spares half.
  facts.live.rows_beside_lists.reset();
  runs.live.rows_beside_lists.reset();
  const auto searching = [&](const RoadFacts& with, const RoadFacts& none) {
    return (PriceRoad(with, live).epoch.sample_seconds - PriceRoad(none, live).epoch.sample_seconds) / 100;
  };
  EXPECT_NEAR(searching(runs, facts), 150'000 * 2e-6, 1e-9);
  facts.live.lists_bytes = runs.live.lists_bytes = 50 * kMiB;
  EXPECT_NEAR(searching(runs, facts), 75'000 * 2e-6, 1e-9);
}

// A probe on disk has seen the search: it is not counted twice, and lists in memory are spared it.
TEST(RoadChoiceTest, WhatWasProbedWithRunsIsNotPricedTwice) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    RoadFacts memory = RandomFacts(seed);
    memory.runs = kRuns;
    memory.lists.in_memory = true;
    memory.lists.hits = 0;
    memory.lists.cache_bytes = 0;
    memory.device.core.request_seconds = 0;
    RoadFacts disk = memory;
    disk.lists.in_memory = false;
    disk.lists.reads = {};
    disk.sample_seconds += disk.batch_edges * kRuns.draw_seconds;
    for (const RoadKind road : {RoadKind::kLive, RoadKind::kPlanned, RoadKind::kFresh}) {
      const RoadPlan plan = {
          .road = road, .policy = PolicyKind::kBelady, .packed = true, .cache_rows = 90'000};
      EXPECT_NEAR(PriceRoad(memory, plan).epoch.sample_seconds, PriceRoad(disk, plan).epoch.sample_seconds,
                  1e-6);
    }
  }
}

// Whatever is priced: runs make nothing cheaper, and nothing dearer than opening and searching take.
TEST(RoadChoiceTest, RunsMakeNoRoadCheaper) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    RoadFacts facts = RandomFacts(seed);
    facts.lists.in_memory = true;
    RoadFacts runs = facts;
    runs.runs = kRuns;
    for (const RoadCost& cost : ChooseRoad(facts).roads) {
      EXPECT_GE(PriceRoad(runs, cost.plan).seconds, cost.seconds * (1 - 1e-12));
    }
    EXPECT_NE(ChooseRoad(runs).Table().find("runs of edges, in all of these: 2 s"), std::string::npos);
    EXPECT_EQ(ChooseRoad(facts).Table().find("runs of edges"), std::string::npos);
  }
}

TEST(RoadChoiceTest, MoreCacheNeverCostsTheLiveRoad) {
  const RoadFacts facts = Facts();
  double before = std::numeric_limits<double>::infinity();
  for (uint64_t rows = 0; rows < 1'000'000; rows += 50'000) {
    const RoadCost cost =
        PriceRoad(facts, {.road = RoadKind::kLive, .policy = PolicyKind::kLru, .cache_rows = rows});
    EXPECT_LE(cost.seconds, before * 1.001) << rows;
    before = cost.seconds;
  }
}

}  // namespace
}  // namespace quarry
