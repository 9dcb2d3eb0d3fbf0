// ComputePlace: where the batches of an embedding pipeline compute: on the processor, beside their tables (host_place.cc),
// or on a device that they travel to and back from (device_place.cc). Private to this room.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "quarry/base/status.h"
#include "quarry/embedding/oac.h"
#include "quarry/pipeline/embedding_pipeline.h"

namespace quarry {

// A batch on its way, and the memory of those that follow it.
struct EmbeddingFlight {
  EmbeddingItem item;
  size_t index = 0;     // among the flights
  uint64_t number = 0;  // of the batch within the run
  CommitTracker::Ticket ticket;
  int64_t timestamp = kNeverWritten;
  uint64_t rows_replaced = 0;  // by validation
  // By stage, the device's own time where it has a part in one.
  std::array<double, kEmbeddingStageCount> device_seconds{};
};

// Transfer and TransferBack: any number of threads, for several flights at a time. Everything else: the thread that computes.
class ComputePlace {
 public:
  virtual ~ComputePlace() = default;
  // Whether batches have to travel: whether the two transfers have threads and queues.
  virtual bool has_transfers() const = 0;
  virtual Status Transfer(EmbeddingFlight& flight) = 0;
  // Validates the flight's rows, computes, and puts the results, with the flight's timestamp, into the caches. Results are
  // rounded to what the tables store before others can see them, so a row is the same whether it comes from a cache or
  // from its table. The order of calls is the order of timestamps.
  virtual Status Compute(EmbeddingFlight& flight) = 0;
  // Afterwards the flight's blocks have the results, and its other fields the figures.
  virtual Status TransferBack(EmbeddingFlight& flight) = 0;
  // Waits until nothing is under way that a run has left behind which an error ended.
  virtual void Drain() = 0;
  // All validation caches'.
  virtual uint64_t cache_rows() const = 0;
  virtual uint64_t cache_bytes() const = 0;
};

std::unique_ptr<ComputePlace> MakeHostPlace(std::span<EmbeddingTable* const> tables, EmbeddingTask& task,
                                            AsyncMode mode);

// How many batches are under way at most.
unsigned FlightCount(const EmbeddingPipelineOptions& options);

// `prepare` sets a batch's ids, as EmbeddingTask::Prepare does. It and the tables outlive the pipeline.
std::unique_ptr<EmbeddingPipeline> MakeEmbeddingPipeline(std::span<EmbeddingTable* const> tables,
                                                         std::function<Status(EmbeddingItem&)> prepare,
                                                         std::unique_ptr<ComputePlace> place,
                                                         const EmbeddingPipelineOptions& options);

}  // namespace quarry
