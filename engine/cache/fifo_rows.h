// FifoRows: which nodes of one buffer of a MultiDeviceCache are resident, and where. Private to this room; one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quarry/cache/cache_policy.h"
#include "quarry/format/types.h"

namespace quarry {

class FifoRows {
 public:
  static constexpr uint32_t kNoSlot = 0xffffffff;

  struct Options {
    uint64_t node_count = 0;  // 0: nothing stays
    uint32_t buffers = 1;     // nodes are those that are one number modulo this
    uint64_t capacity = 0;
    uint64_t batch_nodes_max = 0;
  };

  explicit FifoRows(const Options& options);
  static uint64_t Bytes(const Options& options);

  // By position: the node's slot before the batch, and the one that it enters afterwards; kNoSlot where there is none.
  // Returns how many were evicted for that.
  uint64_t Step(std::span<const NodeId> nodes, std::span<uint32_t> found, std::span<uint32_t> entered);

 private:
  const Options options_;
  std::unique_ptr<CachePolicy> policy_;
  std::vector<uint32_t> slots_;  // by node / buffers
  std::vector<uint8_t> resident_;
  CacheChange change_;
  uint32_t batch_ = 0;
  uint64_t taken_ = 0;  // slots, from the first on
};

}  // namespace quarry
