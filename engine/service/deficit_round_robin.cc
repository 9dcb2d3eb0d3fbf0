#include "deficit_round_robin.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "quarry/base/units.h"

namespace quarry {
namespace {

// Small beside a batch: going round costs nothing, and shares are equal to within a quantum and a batch.
constexpr uint64_t kQuantumBytes = 1 * kMiB;

using Clock = std::chrono::steady_clock;

}  // namespace

size_t DeficitRoundRobin::waiting() const {
  MutexLock lock(mutex_);
  size_t waiting = 0;
  for (const Flow* const flow : round_) waiting += flow->waiters.size();
  return waiting;
}

DeficitRoundRobin::Producer::Producer(DeficitRoundRobin& turns, uint64_t flow) : turns_(turns), flow_(flow) {
  MutexLock lock(turns_.mutex_);
  ++turns_.flows_[flow].producers;
}

DeficitRoundRobin::Producer::~Producer() {
  EndTurn();
  MutexLock lock(turns_.mutex_);
  const auto flow = turns_.flows_.find(flow_);
  if (flow->second.floor == this) flow->second.floor = nullptr;
  turns_.changed_.NotifyAll();
  if (--flow->second.producers > 0) return;
  turns_.flows_.erase(flow);
  turns_.GrantTurns();  // there is a flow less to share them with
}

bool DeficitRoundRobin::Producer::WaitFloor(const std::stop_token& stop) {
  const std::stop_callback wake(stop, [this] {
    MutexLock lock(turns_.mutex_);
    turns_.changed_.NotifyAll();
  });
  MutexLock lock(turns_.mutex_);
  Flow& flow = turns_.flows_.at(flow_);
  if (flow.floor == this && (flow.slice_batches == 0 || Clock::now() >= flow.slice_end)) {
    flow.floor = nullptr;
    turns_.changed_.NotifyAll();
  }
  if (flow.floor != this) flow.line.push_back(this);
  while (!turns_.TakeFloor(flow, *this) && !stop.stop_requested()) turns_.changed_.Wait(turns_.mutex_);
  std::erase(flow.line, this);
  return !stop.stop_requested();
}

bool DeficitRoundRobin::Producer::WaitTurn(uint64_t bytes, const std::stop_token& stop) {
  assert(!has_turn_);
  // Made and destroyed without the latch, which it takes.
  const std::stop_callback wake(stop, [this] {
    MutexLock lock(turns_.mutex_);
    turns_.changed_.NotifyAll();
  });
  MutexLock lock(turns_.mutex_);
  Waiter waiter{.bytes = bytes};
  turns_.Enqueue(flow_, waiter);
  turns_.GrantTurns();
  while (!waiter.granted && !stop.stop_requested()) turns_.changed_.Wait(turns_.mutex_);
  if (!waiter.granted) turns_.Remove(flow_, waiter);
  has_turn_ = waiter.granted;
  return has_turn_;
}

void DeficitRoundRobin::Producer::EndTurn() {
  if (!std::exchange(has_turn_, false)) return;
  MutexLock lock(turns_.mutex_);
  --turns_.flows_.at(flow_).turns;
  --turns_.turns_;
  turns_.GrantTurns();
}

// Whoever is alone needs none.
bool DeficitRoundRobin::TakeFloor(Flow& flow, const Producer& producer) {
  if (flows_.size() == 1) return true;
  if (flow.floor == nullptr && flow.line.front() == &producer) {
    flow.floor = &producer;
    flow.slice_batches = kSliceBatches;
    flow.slice_end = Clock::now() + kSliceMax;
  }
  if (flow.floor != &producer) return false;
  flow.slice_batches -= std::min(flow.slice_batches, 1U);
  return true;
}

void DeficitRoundRobin::Enqueue(uint64_t flow_id, Waiter& waiter) {
  Flow& flow = flows_.at(flow_id);
  if (flow.waiters.empty()) round_.push_front(&flow);
  flow.waiters.push_back(&waiter);
}

void DeficitRoundRobin::Remove(uint64_t flow_id, const Waiter& waiter) {
  Flow& flow = flows_.at(flow_id);
  std::erase(flow.waiters, &waiter);
  if (flow.waiters.empty()) std::erase(round_, &flow);
}

void DeficitRoundRobin::GrantTurns() {
  while (turns_ < turns_max_) {
    Flow* const flow = NextFlow();
    if (flow == nullptr) return;
    Waiter& waiter = *flow->waiters.front();
    flow->waiters.pop_front();
    if (flow->waiters.empty()) std::erase(round_, flow);
    flow->credit -= waiter.bytes;
    ++flow->turns;
    ++turns_;
    waiter.granted = true;
    changed_.NotifyAll();
  }
}

// The first flow that can pay for its next batch, going round and crediting as often as that takes; null when
// each has all the turns that it may have.
DeficitRoundRobin::Flow* DeficitRoundRobin::NextFlow() {
  const auto share = static_cast<unsigned>(CeilDiv(turns_max_, std::max<size_t>(1, flows_.size())));
  if (std::ranges::all_of(round_, [share](const Flow* flow) { return flow->turns >= share; })) return nullptr;
  for (;;) {
    Flow* const flow = round_.front();
    if (flow->turns < share) {
      if (flow->credit >= flow->waiters.front()->bytes) return flow;
      flow->credit += kQuantumBytes;
    }
    round_.pop_front();
    round_.push_back(flow);
  }
}

}  // namespace quarry
