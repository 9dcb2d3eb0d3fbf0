// HeldBatches: how many batches of a stream are out. Private to the client libraries.
//
// Thread-safe; lives as long as one of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace quarry::client {

class HeldBatches : public std::enable_shared_from_this<HeldBatches> {
 public:
  uint32_t count() const { return count_.load(); }
  // One more, until what comes back dies; `batch` dies before.
  std::shared_ptr<const void> Hold(std::shared_ptr<const void> batch = nullptr) {
    ++count_;
    return {this, [self = shared_from_this(), batch = std::move(batch)](const void*) mutable {
              batch.reset();
              --self->count_;
            }};
  }

 private:
  std::atomic<uint32_t> count_{0};
};

}  // namespace quarry::client
