#include "quarry/cache/feature_buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <list>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include "quarry/base/mutex.h"
#include "quarry/base/random.h"
#include "support/sleeping_threads.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::unique_ptr<FeatureBuffer> MakeBuffer(uint64_t nodes, uint64_t slots, uint64_t retained,
                                          uint64_t slot_bytes = 8) {
  auto buffer = FeatureBuffer::Make(
      {.node_count = nodes, .slot_bytes = slot_bytes, .slot_count = slots, .retained_max = retained});
  EXPECT_OK(buffer);
  return std::move(buffer).value();
}

// What every row must hold once it is loaded.
uint64_t RowValue(NodeId node) { return Mix64(node); }

// A batch as an extractor sees it.
struct Held {
  std::vector<NodeId> nodes;
  std::vector<uint32_t> slots, misses, waits;

  std::vector<uint32_t> SlotsOf(const std::vector<uint32_t>& positions) const {
    std::vector<uint32_t> out;
    for (const uint32_t p : positions) out.push_back(slots[p]);
    return out;
  }
};

Status Acquire(FeatureBuffer& buffer, std::vector<NodeId> nodes, Held& held) {
  held.nodes = std::move(nodes);
  held.slots.assign(held.nodes.size(), ~0u);
  return buffer.Acquire(held.nodes, held.slots, held.misses, held.waits);
}

void LoadMisses(FeatureBuffer& buffer, const Held& held) {
  for (const uint32_t p : held.misses) {
    const uint64_t value = RowValue(held.nodes[p]);
    std::memcpy(buffer.SlotData(held.slots[p]), &value, sizeof(value));
  }
  buffer.FinishLoad(held.SlotsOf(held.misses));
}

// Acquires and loads; expects success.
Held Take(FeatureBuffer& buffer, std::vector<NodeId> nodes) {
  Held held;
  const Status status = Acquire(buffer, std::move(nodes), held);
  EXPECT_OK(status);
  LoadMisses(buffer, held);
  return held;
}

void ExpectRowsAreWhole(FeatureBuffer& buffer, const Held& held) {
  for (size_t i = 0; i < held.nodes.size(); ++i) {
    uint64_t value = 0;
    std::memcpy(&value, buffer.rows().data() + held.slots[i] * buffer.slot_bytes(), sizeof(value));
    ASSERT_EQ(value, RowValue(held.nodes[i])) << "node " << held.nodes[i] << " in slot " << held.slots[i];
  }
}

std::vector<NodeId> RandomNodes(Rng& rng, uint64_t node_count, size_t count) {
  std::set<NodeId> chosen;
  while (chosen.size() < count) {
    // Skewed, so that batches share rows.
    const double u = rng.Unit();
    chosen.insert(static_cast<NodeId>(u * u * static_cast<double>(node_count)));
  }
  std::vector<NodeId> nodes(chosen.begin(), chosen.end());
  for (size_t i = nodes.size(); i > 1; --i) std::swap(nodes[i - 1], nodes[rng.Below(i)]);
  return nodes;
}

// The oracle: the paper's structures as a map and a list.
class Model {
 public:
  Model(uint64_t slots, uint64_t retained_max) : slots_(slots), retained_max_(retained_max) {}

  // The positions that must be loaded; the batch must fit.
  std::vector<uint32_t> Acquire(const std::vector<NodeId>& nodes) {
    std::vector<uint32_t> misses;
    for (uint32_t i = 0; i < nodes.size(); ++i) {
      if (!references_.contains(nodes[i])) {
        misses.push_back(i);
      } else if (references_[nodes[i]]++ == 0) {
        standby_.remove(nodes[i]);
      }
    }
    for (const uint32_t p : misses) {
      if (references_.size() == slots_) Evict();
      references_[nodes[p]] = 1;
    }
    return misses;
  }
  void Release(const std::vector<NodeId>& nodes) {
    for (size_t i = nodes.size(); i-- > 0;) {
      if (--references_[nodes[i]] == 0) standby_.push_back(nodes[i]);
    }
    while (standby_.size() > retained_max_) Evict();
  }
  bool Fits(const std::vector<NodeId>& nodes) const {
    const auto held = std::count_if(nodes.begin(), nodes.end(), [&](NodeId node) {
      const auto it = references_.find(node);
      return it != references_.end() && it->second > 0;
    });
    return nodes.size() - held <= slots_ - references_.size() + standby_.size();
  }

 private:
  void Evict() {
    references_.erase(standby_.front());
    standby_.pop_front();
  }
  const uint64_t slots_, retained_max_;
  std::map<NodeId, int> references_;  // of every row in the buffer
  std::list<NodeId> standby_;         // least recently used first
};

TEST(FeatureBufferTest, MissesWhatItNeverSawAndHitsWhatItStillHolds) {
  auto buffer = MakeBuffer(100, 8, 8);
  const Held first = Take(*buffer, {5, 6, 7});
  EXPECT_THAT(first.misses, ElementsAre(0, 1, 2));
  buffer->Release(first.slots);
  const Held second = Take(*buffer, {7, 8, 5});
  EXPECT_THAT(second.misses, ElementsAre(1));
  EXPECT_THAT(second.waits, IsEmpty());
  ExpectRowsAreWhole(*buffer, second);
  const FeatureBufferStats stats = buffer->stats();
  EXPECT_EQ(stats.lookups, 6u);
  EXPECT_EQ(stats.misses, 4u);
  EXPECT_EQ(stats.hits, 2u);
  buffer->Release(second.slots);
}

TEST(FeatureBufferTest, EvictsTheLeastRecentlyReleasedRowAndWithinABatchTheOneFoundLast) {
  auto buffer = MakeBuffer(100, 4, 4);
  buffer->Release(Take(*buffer, {1, 2}).slots);
  buffer->Release(Take(*buffer, {3, 4}).slots);
  buffer->Release(Take(*buffer, {2}).slots);     // now, oldest first: 1 4 3 2
  buffer->Release(Take(*buffer, {9, 8}).slots);  // in place of 1 and 4
  EXPECT_THAT(Take(*buffer, {2, 3}).misses, IsEmpty());
}

TEST(FeatureBufferTest, RetainsNoMoreRowsBetweenBatchesThanAllowed) {
  auto buffer = MakeBuffer(100, 10, 3);
  buffer->Release(Take(*buffer, {10, 11, 12, 13, 14, 15}).slots);
  const Held again = Take(*buffer, {10, 11, 12, 13, 14, 15});
  EXPECT_THAT(again.misses, ElementsAre(3, 4, 5)) << "the three found first stay";
  buffer->Release(again.slots);

  auto forgetful = MakeBuffer(100, 10, 0);
  forgetful->Release(Take(*forgetful, {1, 2}).slots);
  EXPECT_THAT(Take(*forgetful, {1, 2}).misses, ElementsAre(0, 1));
}

TEST(FeatureBufferTest, SharesARowThatAnotherBatchIsLoadingAndWaitsForIt) {
  auto buffer = MakeBuffer(100, 8, 8);
  Held loader, sharer;
  ASSERT_OK(Acquire(*buffer, {1, 2}, loader));
  ASSERT_OK(Acquire(*buffer, {2, 3}, sharer));
  EXPECT_THAT(sharer.misses, ElementsAre(1));
  EXPECT_THAT(sharer.waits, ElementsAre(0));
  EXPECT_EQ(sharer.slots[0], loader.slots[1]);
  LoadMisses(*buffer, sharer);
  std::atomic<bool> done{false};
  std::thread waiter([&] {
    EXPECT_OK(buffer->WaitLoaded(sharer.SlotsOf(sharer.waits)));
    EXPECT_TRUE(done.load()) << "returned before the row was whole";
    ExpectRowsAreWhole(*buffer, sharer);
  });
  testing_util::WaitUntilAllSleep();
  done = true;
  LoadMisses(*buffer, loader);
  waiter.join();
  EXPECT_EQ(buffer->stats().shared, 1u);
}

TEST(FeatureBufferTest, AnAbortedLoadFailsItsWaitersAndLaterBatchesLoadAnew) {
  auto buffer = MakeBuffer(100, 4, 4);
  Held loader, sharer, later;
  ASSERT_OK(Acquire(*buffer, {1, 2}, loader));
  ASSERT_OK(Acquire(*buffer, {2}, sharer));
  buffer->FinishLoad(std::vector<uint32_t>{loader.slots[0]});
  buffer->AbortLoad(loader.slots);
  EXPECT_THAT(buffer->WaitLoaded(sharer.slots), IsStatus(Code::kIoError));
  ASSERT_OK(Acquire(*buffer, {1, 2}, later));
  EXPECT_THAT(later.misses, ElementsAre(1)) << "row 1 had arrived";
  EXPECT_NE(later.slots[1], loader.slots[1]) << "the failed slot is still referenced";
  LoadMisses(*buffer, later);
  buffer->Release(loader.slots);
  buffer->Release(sharer.slots);
  buffer->Release(later.slots);
  const Held all = Take(*buffer, {3, 4, 5, 6});  // every slot came back
  EXPECT_EQ(all.misses.size(), 4u);
}

TEST(FeatureBufferTest, ASharerMayGiveUpBeforeTheLoaderIsDone) {
  auto buffer = MakeBuffer(100, 2, 2);
  Held loader, sharer;
  ASSERT_OK(Acquire(*buffer, {1, 2}, loader));
  ASSERT_OK(Acquire(*buffer, {2, 1}, sharer));
  buffer->Release(sharer.slots);
  LoadMisses(*buffer, loader);
  buffer->Release(loader.slots);
  EXPECT_THAT(Take(*buffer, {1, 2}).misses, IsEmpty());
}

TEST(FeatureBufferTest, RefusesABatchLargerThanTheBufferAndSaysWhatToDo) {
  auto buffer = MakeBuffer(100, 3, 0, 1024);
  Held held;
  const Status status = Acquire(*buffer, {1, 2, 3, 4}, held);
  EXPECT_THAT(status, IsStatus(Code::kOutOfBudget,
                               testing::HasSubstr("raise the memory budget by at least 1.00 KiB")));
  EXPECT_EQ(Take(*buffer, {1, 2, 3}).misses.size(), 3u) << "nothing was pinned";
}

TEST(FeatureBufferTest, AdmitsWaitingBatchesInTheOrderOfArrival) {
  auto buffer = MakeBuffer(100, 4, 0);
  const Held blocker = Take(*buffer, {1, 2, 3});
  Mutex mutex;
  std::vector<int> order;
  std::vector<std::thread> threads;
  // The first needs four slots, the second would fit at once but came later.
  const std::vector<std::vector<NodeId>> wanted = {{10, 11, 12, 13}, {20}};
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      Held held;
      ASSERT_OK(Acquire(*buffer, wanted[i], held));
      {
        MutexLock lock(mutex);
        order.push_back(i);
      }
      LoadMisses(*buffer, held);
      buffer->Release(held.slots);
    });
    testing_util::WaitUntilAllSleep();  // in line
  }
  buffer->Release(blocker.slots);
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(order, ElementsAre(0, 1));
}

TEST(FeatureBufferTest, ABatchNeedsNoSlotForRowsThatOthersHold) {
  auto buffer = MakeBuffer(100, 4, 0);
  const Held first = Take(*buffer, {1, 2, 3});
  const Held second = Take(*buffer, {3, 2, 1, 4});  // must not block: one free slot is enough
  EXPECT_THAT(second.misses, ElementsAre(3));
  buffer->Release(first.slots);
  ExpectRowsAreWhole(*buffer, second);
  buffer->Release(second.slots);
}

TEST(FeatureBufferTest, CancelWakesWhoeverWaitsAndResumeServesAgain) {
  auto buffer = MakeBuffer(100, 2, 2);
  Held loader;
  ASSERT_OK(Acquire(*buffer, {1, 2}, loader));
  std::thread admission([&] {
    Held held;
    EXPECT_THAT(Acquire(*buffer, {3}, held), IsStatus(Code::kCancelled));
  });
  std::thread load([&] { EXPECT_THAT(buffer->WaitLoaded(loader.slots), IsStatus(Code::kCancelled)); });
  testing_util::WaitUntilAllSleep();
  buffer->Cancel();
  admission.join();
  load.join();
  Held refused;
  EXPECT_THAT(Acquire(*buffer, {1}, refused), IsStatus(Code::kCancelled));
  buffer->Resume();
  LoadMisses(*buffer, loader);
  buffer->Release(loader.slots);
  EXPECT_THAT(Take(*buffer, {2, 1}).misses, IsEmpty());
}

TEST(FeatureBufferTest, BehavesLikeTheModelForRandomBatchesInFlight) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    const uint64_t nodes = 20 + rng.Below(400);
    const uint64_t slots = 10 + rng.Below(nodes);
    const uint64_t retained = rng.Below(slots + 1);
    auto buffer = MakeBuffer(nodes, slots, retained);
    Model model(slots, retained);
    std::list<Held> in_flight;
    for (int step = 0; step < 400; ++step) {
      std::vector<NodeId> wanted = RandomNodes(rng, nodes, 1 + rng.Below(std::min(slots, nodes / 2)));
      if (model.Fits(wanted) && rng.Below(3) > 0) {
        const Held held = Take(*buffer, wanted);
        ASSERT_EQ(held.misses, model.Acquire(wanted)) << "step " << step;
        in_flight.push_back(held);
      } else if (!in_flight.empty()) {
        auto it = std::next(in_flight.begin(), static_cast<ptrdiff_t>(rng.Below(in_flight.size())));
        buffer->Release(it->slots);
        model.Release(it->nodes);
        in_flight.erase(it);
      }
      for (const Held& held : in_flight) ExpectRowsAreWhole(*buffer, held);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(FeatureBufferTest, ConcurrentBatchesAlwaysSeeWholeRowsAndNeverDeadlock) {
  for (const uint64_t retained : {0, 40, 150}) {
    const uint64_t nodes = 500, slots = 150;
    auto buffer = MakeBuffer(nodes, slots, retained);
    std::atomic<uint64_t> rows{0};
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        Rng rng(MixSeed(retained, t));
        for (int step = 0; step < 300; ++step) {
          Held held;
          // Up to the whole buffer: then it waits for all the others.
          const size_t count = rng.Below(20) == 0 ? slots : 1 + rng.Below(60);
          ASSERT_OK(Acquire(*buffer, RandomNodes(rng, nodes, count), held));
          const bool give_up = rng.Below(50) == 0;
          if (give_up) {
            buffer->AbortLoad(held.SlotsOf(held.misses));
          } else {
            LoadMisses(*buffer, held);
            if (buffer->WaitLoaded(held.SlotsOf(held.waits)).ok()) ExpectRowsAreWhole(*buffer, held);
          }
          buffer->Release(held.slots);
          rows += count;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    const FeatureBufferStats stats = buffer->stats();
    EXPECT_EQ(stats.lookups, rows.load());
    EXPECT_EQ(stats.hits + stats.shared + stats.misses, stats.lookups);
    // All slots came back: a batch of the whole buffer is admitted.
    std::vector<NodeId> all(slots);
    std::iota(all.begin(), all.end(), NodeId{0});
    buffer->Release(Take(*buffer, all).slots);
  }
}

TEST(FeatureBufferTest, KeepsEverythingOnceItHoldsTheWholeTable) {
  auto buffer = MakeBuffer(300, 300, 300);
  Rng rng(7);
  std::set<NodeId> seen;
  for (int step = 0; step < 200; ++step) {
    const Held held = Take(*buffer, RandomNodes(rng, 300, 40));
    for (const uint32_t p : held.misses) EXPECT_TRUE(seen.insert(held.nodes[p]).second);
    buffer->Release(held.slots);
  }
}

}  // namespace
}  // namespace quarry
