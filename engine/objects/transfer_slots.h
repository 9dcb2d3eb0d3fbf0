// TransferSlots: buffers of requests that run side by side, for one thread that starts them and does with each answer
// what is to be done. Private to this room.
//
//   free -> out [Start: a request has its buffer] -> answered (on the store's thread) -> free [`then`, by Take or Drain]
//
// The owner's thread alone calls its functions. It must not die before Drain, or the destructor, saw all answers.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/mutex.h"
#include "quarry/io/buffer.h"
#include "quarry/objects/object_store.h"

namespace quarry {

class TransferSlots {
 public:
  using Wait = std::function<Status()>;  // called now and then while waiting; an error ends it

  class Slot {
   public:
    std::span<std::byte> buffer() const { return buffer_.span(); }
    // For the request that uses the buffer. `then` runs on the owner's thread, unless an error came before.
    ObjectStore::Done Done(std::function<Status(const ObjectAnswer&)> then);

   private:
    friend class TransferSlots;
    TransferSlots* slots_ = nullptr;
    IoBuffer buffer_;
    std::function<Status(const ObjectAnswer&)> then_;
    std::optional<Result<ObjectAnswer>> answer_;
    bool out_ = false;
  };

  // As many buffers of so many bytes as the budget has room for, up to `count_max`. kOutOfBudget for not even two.
  static Result<std::unique_ptr<TransferSlots>> Make(ObjectStore& store, MemoryBudget& budget, uint64_t bytes,
                                                     unsigned count_max, Wait wait);
  ~TransferSlots();  // cancels the store's requests, where some are still out
  TransferSlots(const TransferSlots&) = delete;
  TransferSlots& operator=(const TransferSlots&) = delete;

  // A free slot, after whatever was answered was done. The first error of an answer or of its `then` comes here.
  Result<Slot*> Take();
  void Return(Slot* slot) { free_.push_back(slot); }  // one whose request was not made
  // Waits until all are answered and done, those behind an error too, unless it is kCancelled; returns the first.
  Status Drain();

 private:
  TransferSlots(ObjectStore& store, Wait wait) : store_(store), wait_(std::move(wait)) {}
  Status Settle(std::vector<Slot*> answered);
  Status Next();  // waits for an answer, and settles it

  ObjectStore& store_;
  const Wait wait_;
  MemoryBudget::Reservation reservation_;
  std::vector<std::unique_ptr<Slot>> all_;
  std::vector<Slot*> free_;
  size_t out_ = 0;
  Mutex mutex_;
  CondVar changed_;
  std::vector<Slot*> answered_ QUARRY_GUARDED_BY(mutex_);
};

}  // namespace quarry
