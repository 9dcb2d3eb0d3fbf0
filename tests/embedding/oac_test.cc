// CommitTracker and ValidationCache, by themselves and together as in the running example of §3.2.
#include "quarry/embedding/oac.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>

#include "embedding/row_block_util.h"
#include "quarry/base/random.h"
#include "support/repetitions.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::Each;
using testing::ElementsAre;
using Ticket = CommitTracker::Ticket;

TEST(CommitTrackerTest, MfctIsTheLongestRunOfFinishedTimestamps) {
  CommitTracker tracker;
  std::vector<Ticket> tickets;
  for (int i = 0; i < 7; ++i) tickets.push_back(tracker.Begin());
  EXPECT_EQ(tracker.mfct(), -1);
  for (const int64_t timestamp : {5, 0, 2, 6, 1}) {
    tracker.Finish(tickets[static_cast<size_t>(timestamp)], timestamp);
  }
  EXPECT_EQ(tracker.mfct(), 2) << "{0, 1, 2, 5, 6}";
  EXPECT_EQ(tracker.outstanding(), 2u);
  tracker.Finish(tickets[4], 4);
  EXPECT_EQ(tracker.mfct(), 2);
  tracker.Finish(tickets[3], 3);
  EXPECT_EQ(tracker.mfct(), 6);
  EXPECT_EQ(tracker.outstanding(), 0u);
}

TEST(CommitTrackerTest, SafeToEvictIsTheLeastMfctOfAllUnderWay) {
  CommitTracker tracker;
  const Ticket slow = tracker.Begin();
  const Ticket a = tracker.Begin();
  tracker.Finish(a, 0);
  const Ticket b = tracker.Begin();
  EXPECT_EQ(b.mfct, 0);
  EXPECT_EQ(b.safe_to_evict, -1) << "the slow one read before 0 was there";
  tracker.Finish(b, 1);
  const Ticket c = tracker.Begin();
  EXPECT_EQ(c.mfct, 1);
  EXPECT_EQ(c.safe_to_evict, -1);
  tracker.Finish(slow, 2);
  const Ticket d = tracker.Begin();
  EXPECT_EQ(d.mfct, 2);
  EXPECT_EQ(d.safe_to_evict, 1) << "c is the oldest now";
  tracker.Abandon(c);
  EXPECT_EQ(tracker.Begin().safe_to_evict, 2) << "an abandoned batch holds nothing back";
}

TEST(CommitTrackerTest, GoesOnFromACheckpoint) {
  CommitTracker tracker(41);
  const Ticket ticket = tracker.Begin();
  EXPECT_EQ(ticket.mfct, 41);
  EXPECT_EQ(ticket.safe_to_evict, 41);
  tracker.Finish(ticket, 42);
  EXPECT_EQ(tracker.mfct(), 42);
}

TEST(ValidationCacheTest, ReplacesOnlyWhatIsOlder) {
  const EmbeddingSpec spec{.row_count = 10, .dim = 2};
  const auto cache = MakeValidationCache(spec);
  cache->Insert(FilledBlock(spec, {1, 3, 5}, 7, 70));
  RowBlock block = FilledBlock(spec, {1, 2, 3}, 6, 60);
  block.timestamps[2] = 7;
  EXPECT_EQ(cache->Validate({}, block), 1u);
  EXPECT_THAT(block.timestamps, ElementsAre(7, 6, 7));
  EXPECT_THAT(block.values, ElementsAre(70, 70, 60, 60, 60, 60));
  EXPECT_THAT(block.state, ElementsAre(70, 70, 60, 60, 60, 60));
  RowBlock late = FilledBlock(spec, {5}, 6, 60);
  EXPECT_EQ(cache->Validate({.mfct = 7}, late), 0u) << "up to its MFCT a batch has read everything";
}

TEST(ValidationCacheTest, EvictsWhatIsSafeAndKeepsNewerVersions) {
  const EmbeddingSpec spec{.row_count = 10, .dim = 2};
  const auto cache = MakeValidationCache(spec);
  cache->Insert(FilledBlock(spec, {1, 2}, 0, 0));
  cache->Insert(FilledBlock(spec, {2, 3}, 1, 10));
  EXPECT_EQ(cache->row_count(), 3u);
  RowBlock none;
  cache->Validate({.safe_to_evict = 0}, none);
  EXPECT_EQ(cache->row_count(), 2u) << "1 goes; 2 has a newer version";
  RowBlock block = FilledBlock(spec, {1, 2}, -1, -1);
  EXPECT_EQ(cache->Validate({.safe_to_evict = 0}, block), 1u);
  EXPECT_THAT(block.timestamps, ElementsAre(-1, 1));
  cache->Validate({.safe_to_evict = 1}, none);
  EXPECT_EQ(cache->row_count(), 0u);
}

TEST(ValidationCacheTest, AgreesWithAMapUnderRandomInsertsAndEvictions) {
  for (uint64_t seed = 1; seed <= testing_util::Repetitions(10); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    const uint64_t rows = 1 + rng.Below(3000);
    const EmbeddingSpec spec{.row_count = rows, .dim = 1, .optimizer = OptimizerKind::kSgd};
    const auto cache = MakeValidationCache(spec);
    std::map<RowId, int64_t> oracle;
    int64_t safe = kNeverWritten;
    for (int64_t now = 0; now < 100; ++now) {
      std::vector<RowId> ids(1 + rng.Below(rows));
      for (RowId& id : ids) id = rng.Below(rows);
      std::sort(ids.begin(), ids.end());
      ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
      safe = std::max(safe, now - 1 - static_cast<int64_t>(rng.Below(6)));
      std::erase_if(oracle, [&](const auto& entry) { return entry.second <= safe; });
      RowBlock block = FilledBlock(spec, ids, safe, -1);
      uint64_t expected = 0;
      for (const RowId id : ids) expected += oracle.count(id);
      ASSERT_EQ(cache->Validate({.mfct = safe, .safe_to_evict = safe}, block), expected);
      for (size_t i = 0; i < ids.size(); ++i) {
        const auto found = oracle.find(ids[i]);
        ASSERT_EQ(block.timestamps[i], found == oracle.end() ? safe : found->second);
        ASSERT_EQ(block.values[i], found == oracle.end() ? -1.0F : static_cast<float>(found->second));
      }
      cache->Insert(FilledBlock(spec, ids, now, static_cast<float>(now)));
      for (const RowId id : ids) oracle[id] = now;
      ASSERT_EQ(cache->row_count(), oracle.size());
    }
  }
}

TEST(ValidationCacheTest, MemoryStaysBoundedByTheRowsThatAreNotSafe) {
  const EmbeddingSpec spec{.row_count = 1'000'000, .dim = 10};
  const auto cache = MakeValidationCache(spec);
  uint64_t bytes_after_start = 0;
  for (int64_t now = 0; now < 2000; ++now) {
    std::vector<RowId> ids;
    for (uint64_t i = 0; i < 100; ++i) ids.push_back(static_cast<uint64_t>(now) * 100 + i);
    RowBlock block = FilledBlock(spec, ids, kNeverWritten, 0);
    cache->Validate({.mfct = now - 1, .safe_to_evict = now - 5}, block);
    cache->Insert(FilledBlock(spec, ids, now, 0));
    ASSERT_LE(cache->row_count(), 500u);
    if (now == 50) bytes_after_start = cache->memory_bytes();
  }
  EXPECT_EQ(cache->memory_bytes(), bytes_after_start);
}

// §3.2.2.2, figure 3.2: {a, c, f} and {a, b, h} are read at the same time, compute one after the other, and
// write back in the opposite order.
TEST(OacTest, RunningExampleOfThePaper) {
  constexpr RowId kA = 0, kB = 1, kC = 2, kF = 5, kH = 7;
  const EmbeddingSpec spec{
      .row_count = 8, .dim = 1, .optimizer = OptimizerKind::kSgd, .init = InitKind::kZeros};
  const auto table = MakeMemoryEmbeddingTable(spec);
  CommitTracker tracker;
  const auto cache = MakeValidationCache(spec);
  const auto read = [&](std::vector<RowId> ids) {
    RowBlock block{.ids = std::move(ids)};
    EXPECT_OK(table->Read(block));
    return block;
  };
  // A prime more for each row of the batch.
  const auto compute = [&](const Ticket& ticket, RowBlock& block, int64_t timestamp) {
    const uint64_t replaced = cache->Validate(ticket, block);
    for (float& value : block.values) value += 1;
    std::fill(block.timestamps.begin(), block.timestamps.end(), timestamp);
    cache->Insert(block);
    return replaced;
  };

  const Ticket first_ticket = tracker.Begin();
  RowBlock first = read({kA, kC, kF});
  const Ticket second_ticket = tracker.Begin();
  RowBlock second = read({kA, kB, kH});
  EXPECT_THAT(second.timestamps, Each(kNeverWritten));

  EXPECT_EQ(compute(first_ticket, first, 0), 0u);
  EXPECT_EQ(compute(second_ticket, second, 1), 1u) << "a becomes a' before the computation";
  EXPECT_THAT(second.values, ElementsAre(2, 1, 1)) << "a'', b', h'";
  EXPECT_EQ(cache->row_count(), 5u);

  ASSERT_OK(table->Write(second));
  tracker.Finish(second_ticket, 1);
  EXPECT_EQ(tracker.mfct(), kNeverWritten);
  ASSERT_OK(table->Write(first));
  tracker.Finish(first_ticket, 0);
  EXPECT_EQ(tracker.mfct(), 1);

  const RowBlock end = read({0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_THAT(end.values, ElementsAre(2, 1, 1, 0, 0, 1, 0, 1)) << "a'' b' c' d e f' g h'";
  EXPECT_THAT(end.timestamps, ElementsAre(1, 1, 0, -1, -1, 0, -1, 1));

  const Ticket third_ticket = tracker.Begin();
  RowBlock third = read({kA});
  EXPECT_EQ(compute(third_ticket, third, 2), 0u) << "it read everything";
  EXPECT_EQ(cache->row_count(), 1u) << "and nobody needs what came before it";
}

}  // namespace
}  // namespace quarry
