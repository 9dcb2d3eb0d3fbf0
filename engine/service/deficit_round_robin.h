// DeficitRoundRobin: whose turn it is to copy a batch (Shreedhar, Varghese 1995).
//
// A *flow* is what gets an equal share of the bytes, whatever the number of its producers and the size of
// their batches: a session. A few turns are held at a time. Going round, each flow whose producers wait is
// credited a quantum, until one can pay for its next batch.
//
// Producers ask for a turn only once they have a batch, so a flow of one producer never waits when a turn
// ends, and a flow of many always does: left to itself that would give the many nearly everything. So turns
// are divided among the flows that produce, waiting or not; credit is kept as long as a flow produces; and
// who comes back is looked at first.
//
// The turns do not bound what the roads behind the producers take of processors and disk, which is most of
// it. So while others produce, the producers of a flow have its *floor* one at a time, for a slice of some
// batches: whoever has many gets about as much as who has one. The roads of the others have read ahead, and
// rest.
//
// Thread-safe. Outlives its producers.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <stop_token>

#include "quarry/base/mutex.h"

namespace quarry {

class DeficitRoundRobin {
 public:
  // REQUIRES: turns_max > 0
  explicit DeficitRoundRobin(unsigned turns_max) : turns_max_(turns_max) {}
  DeficitRoundRobin(const DeficitRoundRobin&) = delete;
  DeficitRoundRobin& operator=(const DeficitRoundRobin&) = delete;

  size_t waiting() const;  // producers that wait for a turn

  // Somebody who produces for a flow, as long as it lives: between its turns too. For one thread.
  class Producer {
   public:
    Producer(DeficitRoundRobin& turns, uint64_t flow);
    ~Producer();  // ends turn and slice, too
    Producer(const Producer&) = delete;
    Producer& operator=(const Producer&) = delete;

    // Waits until it may ask its road for a batch. False when `stop` is requested before.
    bool WaitFloor(const std::stop_token& stop);
    // Waits for a turn to copy `bytes`. False, without a turn, when `stop` is requested before. REQUIRES: it
    // has none.
    bool WaitTurn(uint64_t bytes, const std::stop_token& stop);
    void EndTurn();  // without one: nothing

   private:
    DeficitRoundRobin& turns_;
    const uint64_t flow_;
    bool has_turn_ = false;
  };
  static constexpr unsigned kSliceBatches = 256;  // many beside those that a road reads ahead
  static constexpr std::chrono::seconds kSliceMax{2};

 private:
  struct Waiter {
    uint64_t bytes = 0;
    bool granted = false;
  };
  struct Flow {
    uint64_t credit = 0;  // bytes
    unsigned producers = 0;
    unsigned turns = 0;
    std::deque<Waiter*> waiters;
    const Producer* floor = nullptr;  // holds it for a number of batches, or for a time
    unsigned slice_batches = 0;
    std::chrono::steady_clock::time_point slice_end;
    std::deque<const Producer*> line;  // who waits for it
  };

  void Enqueue(uint64_t flow, Waiter& waiter) QUARRY_REQUIRES(mutex_);
  void Remove(uint64_t flow, const Waiter& waiter) QUARRY_REQUIRES(mutex_);
  void GrantTurns() QUARRY_REQUIRES(mutex_);
  bool TakeFloor(Flow& flow, const Producer& producer) QUARRY_REQUIRES(mutex_);
  Flow* NextFlow() QUARRY_REQUIRES(mutex_);

  const unsigned turns_max_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::map<uint64_t, Flow> flows_ QUARRY_GUARDED_BY(mutex_);
  std::deque<Flow*> round_ QUARRY_GUARDED_BY(mutex_);  // those with waiters, the next one first
  unsigned turns_ QUARRY_GUARDED_BY(mutex_) = 0;
};

}  // namespace quarry
