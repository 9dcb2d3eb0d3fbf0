#include "quarry/pipeline/embedding_pipeline.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <optional>

#include "quarry/base/bounded_queue.h"
#include "quarry/base/exhaustion.h"
#include "quarry/base/process.h"
#include "quarry/base/thread.h"
#include "quarry/base/trace.h"
#include "quarry/embedding/oac.h"
#include "sequenced_queue.h"

namespace quarry {
namespace {

// A batch on its way, and the memory of those that follow it.
struct Flight {
  EmbeddingItem item;
  uint64_t number = 0;  // within the run
  CommitTracker::Ticket ticket;
  int64_t timestamp = kNeverWritten;
};

// The queues of one run.
//
//   idle ─prepare─► prepared ─compute─► computed ─update─► idle
//
// A flight goes idle as the one for the batch `flights` later, and is popped in the order of these numbers:
// that is the bound on how far batches may overtake each other, and why compute in order cannot starve.
struct RunQueues {
  RunQueues(uint64_t count, size_t flights, bool ordered)
      : idle(count, true), prepared(count, ordered), computed(flights) {}
  void Cancel() {
    idle.Cancel();
    prepared.Cancel();
    computed.Cancel();
  }

  SequencedQueue<Flight*> idle;
  SequencedQueue<Flight*> prepared;
  BoundedQueue<Flight*> computed;
};

// As the enumeration has them.
constexpr const char* kStageNames[] = {"prepare", "compute", "update"};
static_assert(std::size(kStageNames) == kEmbeddingStageCount);

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

class EmbeddingPipelineImpl final : public EmbeddingPipeline {
 public:
  EmbeddingPipelineImpl(std::span<EmbeddingTable* const> tables, EmbeddingTask& task,
                        const EmbeddingPipelineOptions& options)
      : tables_(tables.begin(), tables.end()),
        task_(task),
        options_(options),
        tracker_(options.last_timestamp),
        flights_(FlightCount(options)),
        last_timestamp_(options.last_timestamp) {
    for (Flight& flight : flights_) flight.item.blocks.resize(tables_.size());
    if (options_.mode != AsyncMode::kOac) return;
    for (const EmbeddingTable* table : tables_) caches_.push_back(MakeValidationCache(table->spec()));
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

  Status Prepare(Flight& flight);
  Status Compute(Flight& flight);
  Status Update(Flight& flight);
  uint64_t Validate(Flight& flight);
  void InsertIntoCaches(const Flight& flight);
  void AccountCompute(const Flight& flight, uint64_t replaced);

  void Stop(const Status& status);

  const std::vector<EmbeddingTable*> tables_;
  EmbeddingTask& task_;
  const EmbeddingPipelineOptions options_;
  CommitTracker tracker_;
  std::vector<Flight> flights_;

  // The computing thread owns these.
  std::vector<std::unique_ptr<ValidationCache>> caches_;  // by table; none without OAC
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
  MutexLock lock(mutex_);
  queues_ = nullptr;
  // What stops a run after its last batch stops only the next one.
  return finished_ == count ? Status() : stopped_;
}

// The stages are joined by queues that never fill, since a flight is idle or in exactly one of them. Updates
// give a flight back as the one for the batch `flights` later: that bounds how far batches may run ahead of
// each other. Compute runs on the calling thread, so the task needs no lock of its own.
void EmbeddingPipelineImpl::RunStages(RunQueues& queues, uint64_t first_batch) {
  const auto prepare = [this, &queues, first_batch](Flight& flight) {
    flight.item.batch = first_batch + flight.number;
    QUARRY_RETURN_IF_ERROR(Prepare(flight));
    queues.prepared.Push(flight.number, &flight);
    return Status();
  };
  const auto compute = [this, &queues](Flight& flight) {
    QUARRY_RETURN_IF_ERROR(Compute(flight));
    queues.computed.Push(&flight);
    return Status();
  };
  const auto update = [this, &queues](Flight& flight) {
    QUARRY_RETURN_IF_ERROR(Update(flight));
    flight.number += flights_.size();
    queues.idle.Push(flight.number, &flight);
    return Status();
  };
  std::vector<Thread> preparing, updating;
  const Status status = CatchExhaustion("compute", [&]() -> Status {
    using enum EmbeddingStage;
    QUARRY_RETURN_IF_ERROR(StartWorkers(kPrepare, options_.prepare_workers, queues.idle, prepare, preparing));
    QUARRY_RETURN_IF_ERROR(StartWorkers(kUpdate, options_.update_workers, queues.computed, update, updating));
    WorkOn(kCompute, queues.prepared, compute);
    return Status();
  });
  if (!status.ok()) Stop(status);  // those that have begun would wait for the others
  // Here all batches have computed, or the run was stopped: updating ends when its queue is empty.
  queues.computed.Close();
  preparing.clear();
  updating.clear();
}

template <typename Queue, typename Body>
void EmbeddingPipelineImpl::WorkOn(EmbeddingStage stage, Queue& input, const Body& body) {
  for (;;) {
    const double start = MonotonicSeconds();
    const std::optional<Flight*> flight = input.Pop();
    if (!flight) return;
    const double popped = MonotonicSeconds();
    const char* const name = kStageNames[static_cast<size_t>(stage)];
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
      kStageNames[static_cast<size_t>(stage)], count,
      [this, stage, &input, body](unsigned) { WorkOn(stage, input, body); },
      [this](const Status& why) { Stop(why); }, workers);
}

// The ticket is taken before the first row is read: every update that the read may miss is then newer than
// the ticket's MFCT, and the validation cache keeps it until this batch has computed. Pages are brought in
// before, so that the time between the two is short.
Status EmbeddingPipelineImpl::Prepare(Flight& flight) {
  QUARRY_RETURN_IF_ERROR(task_.Prepare(flight.item));
  std::vector<RowBlock>& blocks = flight.item.blocks;
  for (size_t i = 0; i < tables_.size(); ++i) QUARRY_RETURN_IF_ERROR(tables_[i]->Prefetch(blocks[i].ids));
  flight.ticket = tracker_.Begin();
  for (size_t i = 0; i < tables_.size(); ++i) QUARRY_RETURN_IF_ERROR(tables_[i]->Read(blocks[i]));
  return Status();
}

// The order of computation is the order of timestamps. Values are rounded to what the tables store before
// others can see them, so a row is the same whether it comes from the cache or from its table.
Status EmbeddingPipelineImpl::Compute(Flight& flight) {
  const uint64_t replaced = Validate(flight);
  QUARRY_RETURN_IF_ERROR(task_.Compute(flight.item));
  flight.timestamp = ++last_timestamp_;
  for (size_t i = 0; i < tables_.size(); ++i) {
    RowBlock& block = flight.item.blocks[i];
    RoundToStored(tables_[i]->spec().element_type, block.values);
    std::fill(block.timestamps.begin(), block.timestamps.end(), flight.timestamp);
  }
  InsertIntoCaches(flight);
  if (options_.record_order) order_.push_back(flight.item.batch);
  AccountCompute(flight, replaced);
  return Status();
}

Status EmbeddingPipelineImpl::Update(Flight& flight) {
  for (size_t i = 0; i < tables_.size(); ++i) {
    QUARRY_RETURN_IF_ERROR(tables_[i]->Write(flight.item.blocks[i]));
  }
  tracker_.Finish(flight.ticket, flight.timestamp);
  MutexLock lock(mutex_);
  ++finished_;
  return Status();
}

uint64_t EmbeddingPipelineImpl::Validate(Flight& flight) {
  uint64_t replaced = 0;
  for (size_t i = 0; i < caches_.size(); ++i) {
    replaced += caches_[i]->Validate(flight.ticket, flight.item.blocks[i]);
  }
  return replaced;
}

void EmbeddingPipelineImpl::InsertIntoCaches(const Flight& flight) {
  for (size_t i = 0; i < caches_.size(); ++i) caches_[i]->Insert(flight.item.blocks[i]);
}

void EmbeddingPipelineImpl::AccountCompute(const Flight& flight, uint64_t replaced) {
  uint64_t cache_rows = 0, cache_bytes = 0;
  for (const auto& cache : caches_) {
    cache_rows += cache->row_count();
    cache_bytes += cache->memory_bytes();
  }
  MutexLock lock(mutex_);
  for (const RowBlock& block : flight.item.blocks) stats_.rows_computed += block.ids.size();
  stats_.rows_replaced += replaced;
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

std::unique_ptr<EmbeddingPipeline> EmbeddingPipeline::Make(std::span<EmbeddingTable* const> tables,
                                                           EmbeddingTask& task,
                                                           const EmbeddingPipelineOptions& options) {
  assert(options.batches_in_flight > 0 && options.staleness > 0 && options.prepare_workers > 0 &&
         options.update_workers > 0);
  return std::make_unique<EmbeddingPipelineImpl>(tables, task, options);
}

}  // namespace quarry
