// The segmented disk cache against oracles of maps and sets.

#include "quarry/layout/segments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "layout/segment_grid.h"
#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using Misses = std::vector<std::vector<NodeId>>;  // misses of each batch

MissReader ReaderOf(const Misses& trace) {
  return [&trace](uint64_t batch) -> Result<std::span<const NodeId>> {
    return std::span<const NodeId>(trace.at(batch));
  };
}

std::vector<NodeId> Ascending(const std::set<NodeId>& nodes) { return {nodes.begin(), nodes.end()}; }

// Each batch misses up to `misses_max` nodes, low ids more often.
Misses RandomTrace(Rng& rng, uint64_t batch_count, uint64_t node_count, uint64_t misses_max) {
  Misses trace(batch_count);
  for (std::vector<NodeId>& batch : trace) {
    std::set<NodeId> nodes;
    for (uint64_t i = rng.Below(misses_max + 1); i > 0; --i) {
      nodes.insert(static_cast<NodeId>(rng.Unit() * rng.Unit() * static_cast<double>(node_count)));
    }
    batch = Ascending(nodes);
  }
  return trace;
}

// Nodes fall in groups, scattered over the ids; a batch needs most nodes of some groups, and a few others.
Misses GroupTrace(Rng& rng, uint64_t batch_count, uint64_t node_count) {
  constexpr uint64_t kGroups = 50;
  Misses trace(batch_count);
  for (std::vector<NodeId>& batch : trace) {
    std::set<uint64_t> groups;
    for (int i = 0; i < 8; ++i) groups.insert(rng.Below(kGroups));
    std::set<NodeId> nodes;
    for (NodeId node = 0; node < node_count; ++node) {
      const bool in_group = groups.contains(Mix64(node) % kGroups);
      if (rng.Unit() < (in_group ? 0.9 : 0.02)) nodes.insert(node);
    }
    batch = Ascending(nodes);
  }
  return trace;
}

SegmentOptions OptionsFor(const Misses& trace, uint64_t node_count, uint64_t row_bytes) {
  return {.node_count = node_count, .batch_count = trace.size(), .row_bytes = row_bytes, .seed = 42};
}

// The batches of [first, first + count) that miss each node.
std::map<NodeId, std::set<uint64_t>> BatchesOfNodes(const Misses& trace, uint64_t first, uint64_t count) {
  std::map<NodeId, std::set<uint64_t>> batches;
  for (uint64_t batch = first; batch < first + count; ++batch) {
    for (const NodeId node : trace[batch]) batches[node].insert(batch);
  }
  return batches;
}

std::map<NodeId, size_t> RunOfNodes(const SegmentCache& cache) {
  std::map<NodeId, size_t> run_of;
  for (size_t run = 0; run + 1 < cache.runs.size(); ++run) {
    for (uint64_t i = cache.runs[run]; i < cache.runs[run + 1]; ++i) run_of[cache.nodes[i]] = run;
  }
  return run_of;
}

void ExpectRunsAreAscendingAndWhole(const SegmentCache& cache) {
  ASSERT_FALSE(cache.runs.empty());
  EXPECT_EQ(cache.runs.front(), 0);
  EXPECT_EQ(cache.runs.back(), cache.nodes.size());
  for (size_t run = 0; run + 1 < cache.runs.size(); ++run) {
    ASSERT_LT(cache.runs[run], cache.runs[run + 1]);
    for (uint64_t i = cache.runs[run] + 1; i < cache.runs[run + 1]; ++i) {
      EXPECT_LT(cache.nodes[i - 1], cache.nodes[i]);
    }
  }
}

TEST(BuildSegmentCache, HoldsExactlyTheNodesThatAtLeastTwoBatchesMiss) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    const Misses trace = RandomTrace(rng, 1 + rng.Below(20), 300, 100);
    SegmentOptions options = OptionsFor(trace, 300, 64);
    options.hash_functions = static_cast<uint32_t>(rng.Below(5));
    const uint64_t first = rng.Below(trace.size());
    const uint64_t count = 1 + rng.Below(trace.size() - first);
    ASSERT_OK_AND_ASSIGN(const auto cache, BuildSegmentCache(ReaderOf(trace), first, count, options));
    ExpectRunsAreAscendingAndWhole(cache);
    std::vector<NodeId> expected;
    for (const auto& [node, batches] : BatchesOfNodes(trace, first, count)) {
      if (batches.size() > 1) expected.push_back(node);
    }
    std::vector<NodeId> nodes = cache.nodes;
    std::ranges::sort(nodes);
    EXPECT_EQ(nodes, expected);
  }
}

TEST(BuildSegmentCache, NodesOfEqualBatchesShareARunAndARunsNodesShareABatch) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    const Misses trace = RandomTrace(rng, 2 + rng.Below(12), 300, 150);
    SegmentOptions options = OptionsFor(trace, 300, 64);
    options.hash_functions = 1 + static_cast<uint32_t>(rng.Below(4));
    ASSERT_OK_AND_ASSIGN(const auto cache, BuildSegmentCache(ReaderOf(trace), 0, trace.size(), options));
    const auto batches_of = BatchesOfNodes(trace, 0, trace.size());
    std::map<std::set<uint64_t>, size_t> run_of_batches;
    std::map<size_t, std::set<uint64_t>> common;  // to all nodes of a run
    for (const auto& [node, run] : RunOfNodes(cache)) {
      const std::set<uint64_t>& batches = batches_of.at(node);
      EXPECT_EQ(run_of_batches.try_emplace(batches, run).first->second, run) << "node " << node;
      std::set<uint64_t>& rest = common.try_emplace(run, batches).first->second;
      std::erase_if(rest, [&](uint64_t batch) { return !batches.contains(batch); });
      EXPECT_FALSE(rest.empty()) << "run " << run;
    }
  }
}

TEST(BuildSegmentCache, EachHashFunctionRefinesTheRunsOfThoseBefore) {
  Rng rng(1);
  const Misses trace = RandomTrace(rng, 12, 500, 300);
  SegmentOptions options = OptionsFor(trace, 500, 64);
  std::map<NodeId, size_t> coarse;
  size_t runs = 0;
  for (uint32_t k = 0; k <= 4; ++k) {
    SCOPED_TRACE(testing::Message() << k << " hash functions");
    options.hash_functions = k;
    ASSERT_OK_AND_ASSIGN(const auto cache, BuildSegmentCache(ReaderOf(trace), 0, trace.size(), options));
    EXPECT_GT(cache.runs.size() - 1, runs);
    runs = cache.runs.size() - 1;
    if (k > 0) {
      EXPECT_TRUE(std::ranges::is_sorted(cache.nodes, {}, [&](NodeId node) { return coarse.at(node); }));
    }
    const std::map<NodeId, size_t> fine = RunOfNodes(cache);
    std::map<size_t, size_t> coarse_of_fine;
    for (const auto& [node, run] : coarse) {
      EXPECT_EQ(coarse_of_fine.try_emplace(fine.at(node), run).first->second, run);
    }
    coarse = fine;
  }
}

TEST(BuildSegmentCache, WithoutHashFunctionsIsInTheOrderOfIds) {
  Rng rng(1);
  const Misses trace = RandomTrace(rng, 12, 500, 300);
  SegmentOptions options = OptionsFor(trace, 500, 64);
  options.hash_functions = 0;
  ASSERT_OK_AND_ASSIGN(const auto cache, BuildSegmentCache(ReaderOf(trace), 0, trace.size(), options));
  EXPECT_TRUE(std::ranges::is_sorted(cache.nodes));
  EXPECT_THAT(cache.runs, testing::ElementsAre(0, cache.nodes.size()));
}

TEST(BuildSegmentCache, IsTheSameForTheSameSeedAndAnotherForAnother) {
  Rng rng(1);
  const Misses trace = RandomTrace(rng, 12, 500, 300);
  SegmentOptions options = OptionsFor(trace, 500, 64);
  const auto cache = BuildSegmentCache(ReaderOf(trace), 0, trace.size(), options);
  const auto again = BuildSegmentCache(ReaderOf(trace), 0, trace.size(), options);
  ++options.seed;
  const auto other = BuildSegmentCache(ReaderOf(trace), 0, trace.size(), options);
  ASSERT_OK(cache);
  ASSERT_OK(again);
  ASSERT_OK(other);
  EXPECT_EQ(cache->nodes, again->nodes);
  EXPECT_EQ(cache->runs, again->runs);
  EXPECT_NE(cache->nodes, other->nodes);
}

TEST(BuildSegmentCache, OfASegmentWithoutRepeatedMissesIsEmpty) {
  const Misses trace = {{1, 5}, {}, {2, 6}, {}};
  ASSERT_OK_AND_ASSIGN(const auto cache,
                       BuildSegmentCache(ReaderOf(trace), 0, trace.size(), OptionsFor(trace, 7, 64)));
  EXPECT_TRUE(cache.nodes.empty());
  EXPECT_THAT(cache.runs, testing::ElementsAre(0));
}

uint64_t PagesBytes(uint64_t bytes, uint64_t page_bytes) { return CeilDiv(bytes, page_bytes) * page_bytes; }

// What is read for the bytes of `pages`, with gaps.
uint64_t BridgedBytes(const std::set<uint64_t>& pages, const SegmentOptions& options) {
  uint64_t bytes = 0;
  const uint64_t* previous = nullptr;
  for (const uint64_t& page : pages) {
    const uint64_t gap = previous == nullptr ? 0 : (page - *previous - 1) * options.page_bytes;
    bytes += options.page_bytes + (gap <= options.gap_bytes_max ? gap : 0);
    previous = &page;
  }
  return bytes;
}

SegmentCost OracleCost(const Misses& trace, uint64_t batches_per_segment, const SegmentOptions& options) {
  SegmentCost cost;
  const uint64_t size = std::max<uint64_t>(batches_per_segment, 1);
  for (uint64_t first = 0; first < trace.size(); first += size) {
    const uint64_t count = std::min(size, trace.size() - first);
    const auto cache = BuildSegmentCache(ReaderOf(trace), first, count, options);
    std::map<NodeId, uint64_t> position_of;
    for (uint64_t p = 0; p < cache->nodes.size(); ++p) position_of[cache->nodes[p]] = p;
    cost.disk_bytes += PagesBytes(position_of.size() * options.row_bytes, options.page_bytes);
    for (uint64_t batch = first; batch < first + count; ++batch) {
      uint64_t chunk_bytes = 0;
      std::set<uint64_t> pages;
      for (const NodeId node : trace[batch]) {
        cost.useful_bytes += options.row_bytes;
        const auto position = position_of.find(node);
        if (position == position_of.end()) chunk_bytes += options.row_bytes;
        if (position == position_of.end()) continue;
        for (uint64_t byte = 0; byte < options.row_bytes; ++byte) {
          pages.insert((position->second * options.row_bytes + byte) / options.page_bytes);
        }
      }
      cost.disk_bytes += PagesBytes(chunk_bytes, options.page_bytes);
      cost.read_bytes += PagesBytes(chunk_bytes, options.page_bytes) + BridgedBytes(pages, options);
    }
  }
  return cost;
}

TEST(MeasureSegments, AgreesWithSetsOfPages) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    const Misses trace = RandomTrace(rng, rng.Below(14), 300, 80);
    SegmentOptions options = OptionsFor(trace, 300, 1 + rng.Below(40));
    options.page_bytes = uint64_t{1} << rng.Below(7);
    options.gap_bytes_max = rng.Below(4) * options.page_bytes + rng.Below(2);
    options.hash_functions = static_cast<uint32_t>(rng.Below(3));
    const uint64_t size = rng.Below(trace.size() + 3);
    ASSERT_OK_AND_ASSIGN(const auto cost, MeasureSegments(ReaderOf(trace), size, options));
    const SegmentCost expected = OracleCost(trace, size, options);
    EXPECT_EQ(cost.disk_bytes, expected.disk_bytes);
    EXPECT_EQ(cost.useful_bytes, expected.useful_bytes);
    EXPECT_EQ(cost.read_bytes, expected.read_bytes);
  }
}

TEST(MeasureSegments, ReadsLessInTheOrderOfMinHash) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    const Misses trace = GroupTrace(rng, 20, 4000);
    SegmentOptions options = OptionsFor(trace, 4000, 64);
    options.page_bytes = 1024;
    for (const uint64_t size : {5, 10, 20}) {
      options.hash_functions = 0;
      const auto by_id = MeasureSegments(ReaderOf(trace), size, options);
      options.hash_functions = 2;
      const auto by_hash = MeasureSegments(ReaderOf(trace), size, options);
      ASSERT_OK(by_id);
      ASSERT_OK(by_hash);
      EXPECT_EQ(by_hash->disk_bytes, by_id->disk_bytes);
      EXPECT_LT(by_hash->read_bytes, by_id->read_bytes) << size << " batches";
    }
  }
}

// [segment size] exact space
std::vector<uint64_t> SpaceOfSizes(const Misses& trace, const SegmentOptions& options) {
  std::vector<uint64_t> space;
  for (uint64_t size = 0; size <= trace.size(); ++size) {
    space.push_back(MeasureSegments(ReaderOf(trace), size, options)->disk_bytes);
  }
  return space;
}

TEST(SearchSegmentSize, FindsTheSmallestThatFitsOrNamesTheLeastSpace) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Rng rng(seed);
    const Misses trace = RandomTrace(rng, 1 + rng.Below(25), 400, 120);
    SegmentOptions options = OptionsFor(trace, 400, 1 + rng.Below(100));
    options.page_bytes = uint64_t{1} << rng.Below(9);
    const std::vector<uint64_t> space = SpaceOfSizes(trace, options);
    std::vector<uint64_t> budgets = {0};
    for (const uint64_t bytes : space) {
      budgets.insert(budgets.end(), {bytes - std::min<uint64_t>(bytes, 1), bytes, bytes + 1});
    }
    for (const uint64_t budget : budgets) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << " budget " << budget);
      const auto search = SearchSegmentSize(ReaderOf(trace), budget, options);
      const auto fits = std::ranges::find_if(space, [&](uint64_t bytes) { return bytes <= budget; });
      if (fits == space.end()) {
        ASSERT_THAT(search, IsStatus(Code::kNoSpace));
        EXPECT_THAT(search.status().message(),
                    testing::HasSubstr(fmt::format("give {} bytes", std::ranges::min(space))));
        continue;
      }
      ASSERT_OK(search);
      EXPECT_EQ(search->batches_per_segment, static_cast<uint64_t>(fits - space.begin()));
      EXPECT_EQ(search->estimate.disk_bytes, *fits);
    }
  }
}

TEST(SearchSegmentSize, EstimatesReadsOfTheWholeFromTheFirstSegment) {
  Rng rng(1);
  const Misses trace = GroupTrace(rng, 60, 4000);
  SegmentOptions options = OptionsFor(trace, 4000, 64);
  options.page_bytes = 1024;
  ASSERT_OK_AND_ASSIGN(const auto chunks, MeasureSegments(ReaderOf(trace), 0, options));
  for (const uint64_t percent : {90, 70, 50, 30}) {
    SCOPED_TRACE(testing::Message() << percent << " % of the chunks' space");
    ASSERT_OK_AND_ASSIGN(const auto search,
                         SearchSegmentSize(ReaderOf(trace), chunks.disk_bytes * percent / 100, options));
    ASSERT_OK_AND_ASSIGN(const auto exact,
                         MeasureSegments(ReaderOf(trace), search.batches_per_segment, options));
    EXPECT_GT(search.batches_per_segment, 0);
    EXPECT_EQ(search.estimate.useful_bytes, exact.useful_bytes);
    EXPECT_NEAR(search.estimate.amplification(), exact.amplification(), 0.15 * exact.amplification());
  }
}

// The grid also varies m, the rows of a cache: worth up to 5 % here.
TEST(SearchSegmentSize, ReadsHardlyMoreThanTheBestOfTheGrid) {
  for (uint64_t seed = 0; seed < 3; ++seed) {
    Rng rng(seed);
    const Misses trace = GroupTrace(rng, 16, 1000);
    SegmentOptions options = OptionsFor(trace, 1000, 64);
    options.page_bytes = 256;
    ASSERT_OK_AND_ASSIGN(const auto chunks, MeasureSegments(ReaderOf(trace), 0, options));
    for (const uint64_t percent : {80, 60, 45}) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << percent << " % of the chunks' space");
      const uint64_t budget = chunks.disk_bytes * percent / 100;
      ASSERT_OK_AND_ASSIGN(const auto search, SearchSegmentSize(ReaderOf(trace), budget, options));
      const auto found = MeasureSegments(ReaderOf(trace), search.batches_per_segment, options);
      const auto best = SearchSegmentGrid(ReaderOf(trace), budget, options, {.cache_rows = 100});
      ASSERT_OK(found);
      ASSERT_OK(best);
      ASSERT_TRUE(best->has_value());
      EXPECT_LE((*best)->cost.disk_bytes, budget);
      EXPECT_LE(found->amplification(), 1.05 * (*best)->cost.amplification());
    }
  }
}

TEST(SegmentGrid, WithAllRowsCachedMeasuresTheSegmentsAndWithNoneTheChunks) {
  Rng rng(1);
  const Misses trace = RandomTrace(rng, 9, 300, 120);
  const SegmentOptions options = OptionsFor(trace, 300, 600);
  for (const auto& [rows, size] : {std::pair<uint64_t, uint64_t>{300, 4}, {0, 0}}) {
    const auto expected = MeasureSegments(ReaderOf(trace), size, options);
    const auto point = MeasureGridPoint(ReaderOf(trace), 4, rows, options);
    ASSERT_OK(expected);
    ASSERT_OK(point);
    EXPECT_EQ(point->cost.disk_bytes, expected->disk_bytes);
    EXPECT_EQ(point->cost.useful_bytes, expected->useful_bytes);
    EXPECT_EQ(point->cost.read_bytes, expected->read_bytes);
  }
}

TEST(Segments, ReturnTheErrorsOfTheReader) {
  Rng rng(1);
  const Misses trace = RandomTrace(rng, 6, 300, 120);
  const SegmentOptions options = OptionsFor(trace, 300, 64);
  const uint64_t space = MeasureSegments(ReaderOf(trace), trace.size(), options)->disk_bytes;
  for (uint64_t calls = 0; calls < 2 * trace.size(); ++calls) {  // every function reads each batch twice
    SCOPED_TRACE(testing::Message() << "call " << calls << " fails");
    uint64_t left = calls;
    const MissReader failing = [&](uint64_t batch) -> Result<std::span<const NodeId>> {
      if (left-- == 0) return MakeStatus(Code::kCorruption, "batch {}", batch);
      return std::span<const NodeId>(trace[batch]);
    };
    EXPECT_THAT(BuildSegmentCache(failing, 0, trace.size(), options), IsStatus(Code::kCorruption));
    left = calls;
    EXPECT_THAT(MeasureSegments(failing, trace.size(), options), IsStatus(Code::kCorruption));
    left = calls;
    EXPECT_THAT(SearchSegmentSize(failing, space, options), IsStatus(Code::kCorruption));
  }
}

}  // namespace
}  // namespace quarry
