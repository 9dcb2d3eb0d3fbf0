// MultiDeviceCache: feature rows in the memory of devices, and a level of them in host memory above, that change as rows are
// used (BGL §3.2.3, §4). For orders and roads that are not known beforehand: what is planned needs no map, no list of misses
// and no thread of its own.
//
// There is one buffer for each GPU, and node v belongs to buffer v mod G, so no row is there twice. A buffer has a map (by
// node, its slot), a queue of queries and one thread, which alone reads and changes map and slots, so nothing is locked: it
// looks the nodes up, has the rows that are in no cache fetched, and enqueues all copies on the buffer's own stream. Either
// level is first in, first out. Slots are taken in the order of a batch's misses, so hits and evictions are the same in
// every run (the published one counts an atomic tail up, which gives them in any order).
//
// All buffers lie on one device: a device does not reach another's memory here yet.
//
//   batch -> [Begin] -> G queues -> G threads -> G streams -> [Finish] the batch's stream waits for all of them
//
// One thread begins and finishes batches, each in order.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/format/types.h"
#include "quarry/gpu/device.h"

namespace quarry {

struct MultiDeviceCacheOptions {
  gpu::Device* device = nullptr;  // outlives the cache
  uint32_t buffers = 1;
  uint64_t node_count = 0;
  uint64_t stride_bytes = 0;  // of a row as it is stored, fetched and written: whole floats
  uint64_t device_rows = 0;   // over all buffers
  uint64_t host_rows = 0;     // the same, of the level above; 0: there is none
  uint64_t batch_nodes_max = 0;
  uint32_t batches_in_flight = 2;
  uint64_t staging_bytes = uint64_t{8}
                           << 20;  // pinned, of each buffer: fetched rows on their way, in two halves
};

struct MultiDeviceCacheCounts {
  uint64_t device_hits = 0, device_evictions = 0;
  uint64_t host_hits = 0, host_evictions = 0;  // of what missed the device
  uint64_t fetched = 0;
};

class MultiDeviceCache {
 public:
  // Row i of `rows` becomes nodes[i]'s. Called by the buffers' threads, at the same time.
  using Fetch = std::function<Status(std::span<const NodeId> nodes, std::span<std::byte> rows)>;
  // A batch that was begun.
  struct Ticket {
    uint32_t flight = 0;
  };

  // Reserves and allocates everything. kUsage for options that make no cache; kOutOfBudget where host memory or the device's
  // does not do.
  static Result<std::unique_ptr<MultiDeviceCache>> Open(const MultiDeviceCacheOptions& options, Fetch fetch,
                                                        MemoryBudget& budget);
  // What Open reserves, and what it allocates on the device.
  static uint64_t HostBytes(const MultiDeviceCacheOptions& options);
  static uint64_t DeviceBytes(const MultiDeviceCacheOptions& options);
  // Ends what was begun first.
  ~MultiDeviceCache();

  // Row i of `out`, device memory, will be nodes[i]'s (unique). It is written after what was enqueued on `stream` before.
  // kUsage for a node beyond node_count, too many nodes, or too many batches in flight.
  Result<Ticket> Begin(std::span<const NodeId> nodes, std::byte* out, gpu::StreamHandle stream);
  // Waits until all is enqueued, which takes as long as the fetches do, and makes the batch's stream wait for the rows. An
  // error of a fetch or of the device; the cache is of no use then, and every later batch fails with it.
  Status Finish(Ticket ticket);

  MultiDeviceCacheCounts counts() const;

 private:
  class Buffer;
  struct Flight;

  explicit MultiDeviceCache(const MultiDeviceCacheOptions& options, Fetch fetch);

  const MultiDeviceCacheOptions options_;
  const Fetch fetch_;
  MemoryBudget::Reservation reservation_;
  std::vector<std::unique_ptr<Flight>> flights_;
  std::vector<std::unique_ptr<Buffer>> buffers_;  // last: their threads use all the others
};

}  // namespace quarry
