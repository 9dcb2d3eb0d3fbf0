#include "transfer_slots.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace quarry {

constexpr auto kWaitPeriod = std::chrono::milliseconds(100);

Result<std::unique_ptr<TransferSlots>> TransferSlots::Make(ObjectStore& store, MemoryBudget& budget,
                                                           uint64_t bytes, unsigned count_max, Wait wait) {
  std::unique_ptr<TransferSlots> slots(new TransferSlots(store, std::move(wait)));
  const uint64_t mapped = IoBuffer::MappedBytes(bytes);
  const uint64_t room = std::max<uint64_t>(2, budget.available_bytes() / 2 / mapped);
  const auto count = static_cast<unsigned>(std::min<uint64_t>(std::max(2U, count_max), room));
  QUARRY_TRY(slots->reservation_, budget.Reserve(count * mapped, "buffers of an object store's transfers"));
  for (unsigned i = 0; i < count; i++) {
    auto slot = std::make_unique<Slot>();
    slot->slots_ = slots.get();
    QUARRY_TRY(slot->buffer_, IoBuffer::Allocate(bytes));
    slots->free_.push_back(slot.get());
    slots->all_.push_back(std::move(slot));
  }
  return slots;
}

TransferSlots::~TransferSlots() {
  if (out_ == 0) return;
  store_.Cancel();
  MutexLock lock(mutex_);
  while (answered_.size() < out_) changed_.Wait(mutex_);
}

ObjectStore::Done TransferSlots::Slot::Done(std::function<Status(const ObjectAnswer&)> then) {
  then_ = std::move(then);
  answer_.reset();
  out_ = true;
  ++slots_->out_;
  return [this](Result<ObjectAnswer> answer) {
    answer_.emplace(std::move(answer));
    MutexLock lock(slots_->mutex_);
    slots_->answered_.push_back(this);
    slots_->changed_.NotifyAll();
  };
}

Status TransferSlots::Settle(std::vector<Slot*> answered) {
  Status first;
  for (Slot* const slot : answered) {
    --out_;
    slot->out_ = false;
    Status status = slot->answer_->status();
    if (status.ok() && first.ok()) status = slot->then_(**slot->answer_);
    slot->then_ = {};
    free_.push_back(slot);
    if (first.ok()) first = std::move(status);
  }
  return first;
}

Status TransferSlots::Next() {
  while (true) {
    {
      MutexLock lock(mutex_);
      if (answered_.empty()) changed_.WaitUntil(mutex_, std::chrono::steady_clock::now() + kWaitPeriod);
      if (!answered_.empty()) break;
    }
    if (wait_) QUARRY_RETURN_IF_ERROR(wait_());
  }
  std::vector<Slot*> answered;
  {
    MutexLock lock(mutex_);
    answered.swap(answered_);
  }
  return Settle(std::move(answered));
}

Result<TransferSlots::Slot*> TransferSlots::Take() {
  while (free_.empty()) QUARRY_RETURN_IF_ERROR(Next());
  Slot* const slot = free_.back();
  free_.pop_back();
  return slot;
}

Status TransferSlots::Drain() {
  Status first;
  while (out_ > 0) {
    Status status = Next();
    if (status.code() == Code::kCancelled) return status;
    if (first.ok()) first = std::move(status);
  }
  return first;
}

}  // namespace quarry
