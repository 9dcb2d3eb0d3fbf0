// Training of embedding tables on a GPU: the five stages of embedding_pipeline.h with both transfers.
//
//   transfer       packs the batch into its flight's pinned memory, and enqueues one copy, on a stream of its own
//   compute        enqueues validation, the task's kernels and insertion, on a stream of theirs: its order is the order
//                  of timestamps, which the host gives out as it enqueues
//   transfer back  enqueued as well, on the third stream. Its worker waits for the copy to end: the only wait for the
//                  device, since the rows have to be in the tables before the batch counts as finished
//
// Streams wait for each other by events alone. All memory, of the device and pinned, is had before the first batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/embedding/device_cache.h"
#include "quarry/gpu/device.h"
#include "quarry/pipeline/embedding_pipeline.h"

namespace quarry {

// What the batches of a task are at most.
struct DeviceTaskSizes {
  std::vector<uint64_t> rows;  // of a batch, by table
  uint64_t payload_bytes = 0;  // that travel with it: edges, for example
  uint64_t scratch_bytes = 0;  // that its kernels need, in the device's memory
};

// A batch in device memory.
struct DeviceEmbeddingBatch {
  std::span<const DeviceRowBlock> blocks;  // by table
  const std::byte* payload = nullptr;      // aligned to 16 bytes
  std::byte* scratch = nullptr;  // that of all batches, which compute one after the other; to 256 bytes
};

// The training itself. An error from any of these calls ends the run.
class DeviceEmbeddingTask {
 public:
  virtual ~DeviceEmbeddingTask() = default;
  virtual DeviceTaskSizes sizes() const = 0;
  // As EmbeddingTask::Prepare.
  virtual Status Prepare(EmbeddingItem& item) = 0;
  // What of a prepared item travels with its rows. Valid until Prepare is called with the item again. Called by workers.
  virtual std::span<const std::byte> Payload(const EmbeddingItem& item) const = 0;
  // Enqueues the kernels that bring values and state of the blocks forward, in place. Called by one thread, that of Run.
  // Results are to depend on nothing but the batch: no sums by atomics. Rounding and timestamps are the pipeline's.
  virtual Status Compute(const EmbeddingItem& item, const DeviceEmbeddingBatch& batch, gpu::Device& device,
                         gpu::StreamHandle stream) = 0;
};

// What the pipeline holds.
struct DevicePipelineBytes {
  uint64_t device = 0;  // validation caches, a frame for each batch in flight, the task's scratch
  uint64_t pinned = 0;  // of the host
};
DevicePipelineBytes DevicePipelineMemory(std::span<EmbeddingTable* const> tables,
                                         const DeviceTaskSizes& sizes,
                                         const EmbeddingPipelineOptions& options);

// Tables, task and device outlive the pipeline. `memory_bytes`: what it may take of the device's memory; 0: whatever there
// is. kOutOfBudget where that, or the device, has too little: the least that would do is named, and nothing is held.
Result<std::unique_ptr<EmbeddingPipeline>> MakeDeviceEmbeddingPipeline(
    std::span<EmbeddingTable* const> tables, DeviceEmbeddingTask& task, gpu::Device& device,
    uint64_t memory_bytes, const EmbeddingPipelineOptions& options);

}  // namespace quarry
