#include "quarry/pipeline/embedding_pipeline.h"

#include <algorithm>
#include <cassert>
#include <optional>
#include <utility>

#include "compute_place.h"
#include "quarry/base/bounded_queue.h"
#include "quarry/base/exhaustion.h"
#include "quarry/base/process.h"
#include "quarry/base/thread.h"
#include "quarry/base/trace.h"
#include "quarry/embedding/oac.h"
#include "sequenced_queue.h"

namespace quarry {
namespace {

// The queues of one run.
//
//   idle ─prepare─► prepared ─[transfer]─► transferred ─compute─► computed ─[transfer back]─► returned ─update─► idle
//
// A flight goes idle as the one for the batch `flights` later, and is popped in the order of these numbers:
// that is the bound on how far batches may overtake each other, and why compute in order cannot starve. Without
// transfers a stage pushes to the queue after theirs.
struct RunQueues {
  RunQueues(uint64_t count, size_t flights, bool ordered)
      : idle(count, true),
        prepared(flights),
        transferred(count, ordered),
        computed(flights),
        returned(flights) {}
  void Cancel() {
    idle.Cancel();
    prepared.Cancel();
    transferred.Cancel();
    computed.Cancel();
    returned.Cancel();
  }

  SequencedQueue<EmbeddingFlight*> idle;
  BoundedQueue<EmbeddingFlight*> prepared;
  SequencedQueue<EmbeddingFlight*> transferred;
  BoundedQueue<EmbeddingFlight*> computed, returned;
};

class EmbeddingPipelineImpl final : public EmbeddingPipeline {
 public:
  EmbeddingPipelineImpl(std::span<EmbeddingTable* const> tables,
                        std::function<Status(EmbeddingItem&)> prepare, std::unique_ptr<ComputePlace> place,
                        const EmbeddingPipelineOptions& options)
      : tables_(tables.begin(), tables.end()),
        prepare_(std::move(prepare)),
        options_(options),
        tracker_(options.last_timestamp),
        flights_(FlightCount(options)),
        place_(std::move(place)),
        last_timestamp_(options.last_timestamp) {
    for (size_t i = 0; i < flights_.size(); ++i) {
      flights_[i].index = i;
      flights_[i].item.blocks.resize(tables_.size());
    }
  }

  Status Run(uint64_t first_batch, uint64_t count) override;
  void Cancel() override { Stop(Status(Code::kCancelled, "training was cancelled")); }

  int64_t last_timestamp() const override { return last_timestamp_; }
  std::span<const uint64_t> order() const override { return order_; }
  EmbeddingPipelineStats stats() const override {
    MutexLock lock(mutex_);
    return stats_;
  }

 private:
  void RunStages(RunQueues& queues, uint64_t first_batch);
  template <typename Queue, typename Body>
  void WorkOn(EmbeddingStage stage, Queue& input, const Body& body);
  template <typename Queue, typename Body>
  Status StartWorkers(EmbeddingStage stage, unsigned count, Queue& input, const Body& body,
                      std::vector<Thread>& workers);

  Status Prepare(EmbeddingFlight& flight);
  Status Compute(EmbeddingFlight& flight);
  Status Update(EmbeddingFlight& flight);
  void AccountCompute(const EmbeddingFlight& flight);

  void Stop(const Status& status);

  const std::vector<EmbeddingTable*> tables_;
  const std::function<Status(EmbeddingItem&)> prepare_;
  const EmbeddingPipelineOptions options_;
  CommitTracker tracker_;
  std::vector<EmbeddingFlight> flights_;
  const std::unique_ptr<ComputePlace> place_;

  // The computing thread owns these.
  int64_t last_timestamp_;
  std::vector<uint64_t> order_;

  mutable Mutex mutex_;
  RunQueues* queues_ QUARRY_GUARDED_BY(mutex_) = nullptr;  // the current run's, if there is one
  Status stopped_ QUARRY_GUARDED_BY(mutex_);               // the first error, or that it was cancelled
  uint64_t finished_ QUARRY_GUARDED_BY(mutex_) = 0;        // batches of the run
  EmbeddingPipelineStats stats_ QUARRY_GUARDED_BY(mutex_);
};

Status EmbeddingPipelineImpl::Run(uint64_t first_batch, uint64_t count) {
  RunQueues queues(count, flights_.size(), options_.ordered);
  for (size_t i = 0; i < flights_.size(); ++i) {
    flights_[i].number = i;
    queues.idle.Push(i, &flights_[i]);
  }
  {
    MutexLock lock(mutex_);
    if (!stopped_.ok()) {
      return MakeStatus(Code::kCancelled, "the pipeline has been stopped before: {}", stopped_.message());
    }
    queues_ = &queues;
    finished_ = 0;
  }
  RunStages(queues, first_batch);
  Status ended;
  {
    MutexLock lock(mutex_);
    queues_ = nullptr;
    // What stops a run after its last batch stops only the next one.
    if (finished_ != count) ended = stopped_;
  }
  if (!ended.ok()) place_->Drain();
  return ended;
}

// The stages are joined by queues that never fill, since a flight is idle or in exactly one of them. Updates
// give a flight back as the one for the batch `flights` later: that bounds how far batches may run ahead of
// each other. Compute runs on the calling thread, so the task needs no lock of its own.
void EmbeddingPipelineImpl::RunStages(RunQueues& queues, uint64_t first_batch) {
  const bool transfers = place_->has_transfers();
  const auto prepare = [this, &queues, first_batch, transfers](EmbeddingFlight& flight) {
    flight.item.batch = first_batch + flight.number;
    QUARRY_RETURN_IF_ERROR(Prepare(flight));
    if (transfers) {
      queues.prepared.Push(&flight);
    } else {
      queues.transferred.Push(flight.number, &flight);
    }
    return Status();
  };
  const auto transfer = [this, &queues](EmbeddingFlight& flight) {
    QUARRY_RETURN_IF_ERROR(place_->Transfer(flight));
    queues.transferred.Push(flight.number, &flight);
    return Status();
  };
  const auto compute = [this, &queues, transfers](EmbeddingFlight& flight) {
    QUARRY_RETURN_IF_ERROR(Compute(flight));
    (transfers ? queues.computed : queues.returned).Push(&flight);
    return Status();
  };
  const auto transfer_back = [this, &queues](EmbeddingFlight& flight) {
    QUARRY_RETURN_IF_ERROR(place_->TransferBack(flight));
    queues.returned.Push(&flight);
    return Status();
  };
  const auto update = [this, &queues](EmbeddingFlight& flight) {
    QUARRY_RETURN_IF_ERROR(Update(flight));
    flight.number += flights_.size();
    queues.idle.Push(flight.number, &flight);
    return Status();
  };
  std::vector<Thread> preparing, transferring, transferring_back, updating;
  const Status status = CatchExhaustion("compute", [&]() -> Status {
    using enum EmbeddingStage;
    QUARRY_RETURN_IF_ERROR(StartWorkers(kPrepare, options_.prepare_workers, queues.idle, prepare, preparing));
    if (transfers) {
      const unsigned workers = options_.transfer_workers;
      QUARRY_RETURN_IF_ERROR(StartWorkers(kTransfer, workers, queues.prepared, transfer, transferring));
      QUARRY_RETURN_IF_ERROR(
          StartWorkers(kTransferBack, workers, queues.computed, transfer_back, transferring_back));
    }
    QUARRY_RETURN_IF_ERROR(StartWorkers(kUpdate, options_.update_workers, queues.returned, update, updating));
    WorkOn(kCompute, queues.transferred, compute);
    return Status();
  });
  if (!status.ok()) Stop(status);  // those that have begun would wait for the others
  // Here all batches have computed, or the run was stopped: what is left ends, stage by stage, when its queue is empty.
  queues.prepared.Close();
  queues.computed.Close();
  transferring.clear();
  transferring_back.clear();
  queues.returned.Close();
  preparing.clear();
  updating.clear();
}

template <typename Queue, typename Body>
void EmbeddingPipelineImpl::WorkOn(EmbeddingStage stage, Queue& input, const Body& body) {
  for (;;) {
    const double start = MonotonicSeconds();
    const std::optional<EmbeddingFlight*> flight = input.Pop();
    if (!flight) return;
    const double popped = MonotonicSeconds();
    const char* const name = kEmbeddingStageNames[static_cast<size_t>(stage)];
    const Status status = InSpan(name, (*flight)->number, [&] { return body(**flight); });
    {
      MutexLock lock(mutex_);
      EmbeddingStageStats& stats = stats_.stages[static_cast<size_t>(stage)];
      stats.batches += status.ok() ? 1 : 0;
      stats.wait_seconds += popped - start;
      stats.busy_seconds += MonotonicSeconds() - popped;
    }
    if (!status.ok()) return Stop(status);
  }
}

template <typename Queue, typename Body>
Status EmbeddingPipelineImpl::StartWorkers(EmbeddingStage stage, unsigned count, Queue& input,
                                           const Body& body, std::vector<Thread>& workers) {
  return StartThreads(
      kEmbeddingStageNames[static_cast<size_t>(stage)], count,
      [this, stage, &input, body](unsigned) { WorkOn(stage, input, body); },
      [this](const Status& why) { Stop(why); }, workers);
}

// The ticket is taken before the first row is read: every update that the read may miss is then newer than
// the ticket's MFCT, and the validation cache keeps it until this batch has computed. Pages are brought in
// before, so that the time between the two is short.
Status EmbeddingPipelineImpl::Prepare(EmbeddingFlight& flight) {
  QUARRY_RETURN_IF_ERROR(prepare_(flight.item));
  std::vector<RowBlock>& blocks = flight.item.blocks;
  for (size_t i = 0; i < tables_.size(); ++i) QUARRY_RETURN_IF_ERROR(tables_[i]->Prefetch(blocks[i].ids));
  flight.ticket = tracker_.Begin();
  for (size_t i = 0; i < tables_.size(); ++i) QUARRY_RETURN_IF_ERROR(tables_[i]->Read(blocks[i]));
  return Status();
}

// The order of computation is the order of timestamps.
Status EmbeddingPipelineImpl::Compute(EmbeddingFlight& flight) {
  flight.timestamp = last_timestamp_ + 1;
  QUARRY_RETURN_IF_ERROR(place_->Compute(flight));
  last_timestamp_ = flight.timestamp;
  if (options_.record_order) order_.push_back(flight.item.batch);
  AccountCompute(flight);
  return Status();
}

Status EmbeddingPipelineImpl::Update(EmbeddingFlight& flight) {
  for (size_t i = 0; i < tables_.size(); ++i) {
    QUARRY_RETURN_IF_ERROR(tables_[i]->Write(flight.item.blocks[i]));
  }
  tracker_.Finish(flight.ticket, flight.timestamp);
  MutexLock lock(mutex_);
  ++finished_;
  stats_.rows_replaced += flight.rows_replaced;
  for (size_t i = 0; i < kEmbeddingStageCount; ++i) {
    stats_.stages[i].device_seconds += flight.device_seconds[i];
  }
  return Status();
}

void EmbeddingPipelineImpl::AccountCompute(const EmbeddingFlight& flight) {
  const uint64_t cache_rows = place_->cache_rows(), cache_bytes = place_->cache_bytes();
  MutexLock lock(mutex_);
  for (const RowBlock& block : flight.item.blocks) stats_.rows_computed += block.ids.size();
  stats_.cache_rows_peak = std::max(stats_.cache_rows_peak, cache_rows);
  stats_.cache_bytes_peak = std::max(stats_.cache_bytes_peak, cache_bytes);
}

// What the cancellation of the queues makes others report comes later, and is not kept.
void EmbeddingPipelineImpl::Stop(const Status& status) {
  MutexLock lock(mutex_);
  if (stopped_.ok()) stopped_ = status;
  if (queues_ != nullptr) queues_->Cancel();
}

}  // namespace

unsigned FlightCount(const EmbeddingPipelineOptions& options) {
  switch (options.mode) {
    case AsyncMode::kSync:
      return 1;
    case AsyncMode::kAsyncBounded:
      return std::min(options.staleness, options.batches_in_flight);
    case AsyncMode::kAsync:
    case AsyncMode::kOac:
      return options.batches_in_flight;
  }
  return 1;
}

std::unique_ptr<EmbeddingPipeline> MakeEmbeddingPipeline(std::span<EmbeddingTable* const> tables,
                                                         std::function<Status(EmbeddingItem&)> prepare,
                                                         std::unique_ptr<ComputePlace> place,
                                                         const EmbeddingPipelineOptions& options) {
  assert(options.batches_in_flight > 0 && options.staleness > 0 && options.prepare_workers > 0 &&
         options.transfer_workers > 0 && options.update_workers > 0);
  return std::make_unique<EmbeddingPipelineImpl>(tables, std::move(prepare), std::move(place), options);
}

std::unique_ptr<EmbeddingPipeline> EmbeddingPipeline::Make(std::span<EmbeddingTable* const> tables,
                                                           EmbeddingTask& task,
                                                           const EmbeddingPipelineOptions& options) {
  return MakeEmbeddingPipeline(
      tables, [&task](EmbeddingItem& item) { return task.Prepare(item); },
      MakeHostPlace(tables, task, options.mode), options);
}

}  // namespace quarry
