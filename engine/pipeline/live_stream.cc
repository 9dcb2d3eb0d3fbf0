#include "live_stream.h"

#include <algorithm>
#include <cassert>

#include "quarry/base/process.h"
#include "quarry/base/random.h"
#include "quarry/base/trace.h"
#include "quarry/base/units.h"

namespace quarry {

LiveStream::LiveStream(const LiveResources& resources, PassOptions options, std::function<void(bool)> on_end)
    : resources_(resources),
      options_(std::move(options)),
      batch_count_(CeilDiv(options_.seeds.size(), resources.batch_size)),
      on_end_(std::move(on_end)),
      buffer_stats_at_start_(resources.buffer->stats()),
      frames_(resources.frame_count),
      released_(resources.frame_count),
      owner_{.rows = {.rows = resources.buffer->rows(),
                      .stride_bytes = resources.device == nullptr ? resources.buffer->slot_bytes() : 0,
                      .element_type = resources.rows->widest().element_type,
                      .dim = resources.rows->dim()},
             .type_rows = resources.rows->types(),
             .back = released_},
      sampled_(batch_count_, options_.ordered),
      ready_(batch_count_, options_.ordered) {
  stats_.feature_bytes_read = resources.filled.bytes;
  stats_.read_requests = resources.filled.requests;
  for (uint32_t i = 0; i < resources_.frame_count; ++i) {
    auto frame = std::make_unique<Frame>();
    // Sized once, so that growing does not double them.
    frame->block.nodes.reserve(resources_.batch_nodes_max);
    frame->block.indices.reserve(resources_.batch_edges_max);
    if (resources_.spec->edge_ids) frame->block.edge_ids.reserve(resources_.batch_edges_max);
    if (!resources_.spec->relation_fanouts.empty())
      frame->block.relations.reserve(resources_.batch_edges_max);
    frame->slots.reserve(resources_.batch_nodes_max);
    frames_.Push(std::move(frame));
  }
}

Status LiveStream::Start() {
  const auto fail = [this](const Status& why) { Break(why); };
  QUARRY_TRY(releaser_, Thread::Start(
                            "release", [this] { RunReleaser(); }, fail));
  QUARRY_RETURN_IF_ERROR(StartThreads(
      "sample", static_cast<unsigned>(resources_.samplers.size()),
      [this](unsigned i) { RunSampler(*resources_.samplers[i]); }, fail, workers_));
  return StartThreads(
      "extract", static_cast<unsigned>(resources_.extractors.size()),
      [this](unsigned i) { RunExtractor(*resources_.extractors[i]); }, fail, workers_);
}

// The order matters: workers end first, since they may still push batches whose destructors release rows; the
// releaser ends last, when every pin has been dropped, and only then may the buffer serve another pass.
LiveStream::~LiveStream() {
  assert(owner_.held == 0 && "batches must be gone before their stream");
  Cancel();
  workers_.clear();
  released_.Close();
  releaser_.Join();
  resources_.buffer->Resume();
  on_end_(!broken_);
}

void LiveStream::Cancel() {
  cancelled_ = true;
  frames_.Cancel();
  sampled_.Cancel();
  ready_.Cancel();
  resources_.buffer->Cancel();
  if (resources_.device != nullptr) resources_.device->Cancel();
}

// A thread's body was left in its midst, and so was what it had taken of the road.
void LiveStream::Break(const Status& why) {
  broken_ = true;
  Fail(why);
}

void LiveStream::Fail(const Status& status) {
  {
    MutexLock lock(mutex_);
    // What the cancellation below makes others report comes later, and is not kept.
    if (error_.ok()) error_ = status;
  }
  Cancel();
}

// A sampler that takes all neighbors has no bound but the memory that was planned for a block.
Status LiveStream::WhyTooLarge(const Status& status, uint64_t number) const {
  if (status.code() != Code::kInvalidArgument) return status;
  return MakeStatus(Code::kOutOfBudget,
                    "batch {} takes all neighbors and has more than the {} edges that the road has planned "
                    "memory for, by a few batches: take fewer seeds, or a number of neighbors",
                    number, resources_.batch_edges_max);
}

// A frame is taken before a number is: so the lowest number without a batch always has a frame, whatever the
// other stages hold.
void LiveStream::RunSampler(NeighborSampler& sampler) {
  for (;;) {
    const double start = MonotonicSeconds();
    std::optional<std::unique_ptr<Frame>> frame = frames_.Pop();
    if (!frame) return;
    const uint64_t number = next_number_++;
    if (number >= batch_count_) {
      frames_.Push(*std::move(frame));  // for the next sampler to find the end as well
      return;
    }
    const double sample_start = MonotonicSeconds();
    const uint64_t first = number * resources_.batch_size;
    const uint64_t count = std::min<uint64_t>(resources_.batch_size, options_.seeds.size() - first);
    const std::span<const NodeId> seeds(options_.seeds.data() + first, count);
    Block& block = (*frame)->block;
    const uint64_t bytes_before = sampler.stats().bytes_read;
    const Status status = InSpan("sample", number, [&] {
      return sampler.Sample(seeds, resources_.spec->SeedOf(options_.pass, number), block);
    });
    if (!status.ok()) return Fail(resources_.takes_all ? WhyTooLarge(status, number) : status);
    {
      MutexLock lock(mutex_);
      stats_.topology_bytes_read += sampler.stats().bytes_read - bytes_before;
      stats_.sample_wait_seconds += sample_start - start;
      stats_.sample_seconds += MonotonicSeconds() - sample_start;
    }
    if (!sampled_.Push(number, {number, *std::move(frame)})) return;
  }
}

// Popping and admitting are one step under admission_: in an ordered pass batches are then admitted in the
// order of their numbers, so the batch that the consumer waits for never waits for slots of later ones.
void LiveStream::RunExtractor(Extractor& extractor) {
  Extraction extraction;
  for (;;) {
    const double start = MonotonicSeconds();
    double popped = start;
    std::optional<Numbered> next;
    Status status;
    {
      MutexLock lock(admission_);
      next = sampled_.Pop();
      if (!next) return;
      popped = MonotonicSeconds();
      status = Admit(*next->frame, extraction);
    }
    if (!status.ok()) return Fail(status);
    status = InSpan("extract", next->number, [&] { return Load(extractor, *next->frame, extraction); });
    if (!status.ok()) return;
    auto hold = std::make_unique<HeldFrame>(owner_, next->number, std::move(next->frame));
    {
      MutexLock lock(mutex_);
      stats_.extract_wait_seconds += popped - start;
      stats_.extract_seconds += MonotonicSeconds() - popped;
    }
    if (!ready_.Push(next->number, std::move(hold))) return;
  }
}

// Takes what the batch will need, so that from here on it waits for no other but those that load rows that it shares.
Status LiveStream::Admit(Frame& frame, Extraction& extraction) {
  if (resources_.device != nullptr) {
    extraction.to_device = resources_.device->TakeFrame();
    if (extraction.to_device == nullptr) return Status(Code::kCancelled, "the stream was given up");
  }
  frame.slots.resize(frame.block.nodes.size());
  return resources_.buffer->Acquire(frame.block.nodes, frame.slots, extraction.misses, extraction.waits);
}

void LiveStream::RunReleaser() {
  while (std::optional<std::unique_ptr<Frame>> frame = released_.Pop()) {
    (*frame)->on_device.reset();
    resources_.buffer->Release((*frame)->slots);
    frames_.Push(*std::move(frame));
  }
}

// Makes an admitted frame a batch. On an error the frame's rows are given back, after the error has
// been kept: batches that wait for the same rows must not be the first to report.
Status LiveStream::Load(Extractor& extractor, Frame& frame, Extraction& extraction) {
  FeatureBuffer& buffer = *resources_.buffer;
  frame.labels.clear();
  for (const NodeId seed : frame.block.view().seeds()) {
    frame.labels.push_back(resources_.labels.empty() ? -1 : resources_.labels[seed]);
  }
  Status status = LoadRows(extractor, frame, extraction);
  if (status.ok() && resources_.device != nullptr) {
    BatchView view = frame.block.view();
    view.labels = frame.labels;
    view.features.slots = frame.slots;
    auto sent = resources_.device->Send(std::move(extraction.to_device), view);
    status = sent.status();
    if (sent.ok()) frame.on_device = std::move(sent).value();
  }
  if (status.ok()) return status;
  Fail(status);
  std::vector<uint32_t> missed;
  for (const uint32_t position : extraction.misses) missed.push_back(frame.slots[position]);
  buffer.AbortLoad(missed);
  buffer.Release(frame.slots);
  return status;
}

// Brings the rows of a frame in, and waits for those that other batches bring.
Status LiveStream::LoadRows(Extractor& extractor, const Frame& frame, Extraction& extraction) {
  FeatureBuffer& buffer = *resources_.buffer;
  LoadStats load;
  const RowTarget target =
      RowTarget::In(buffer, resources_.device == nullptr ? nullptr : &resources_.device->rows());
  const Status status =
      extractor.Load(target, frame.block.nodes, frame.slots, extraction.misses, cancelled_, load);
  {
    MutexLock lock(mutex_);
    stats_.feature_bytes_read += load.bytes;
    stats_.read_requests += load.requests;
    stats_.bytes_useful += load.useful_bytes;
  }
  QUARRY_RETURN_IF_ERROR(status);
  for (uint32_t& position : extraction.waits) position = frame.slots[position];
  return buffer.WaitLoaded(extraction.waits);
}

Result<std::unique_ptr<Batch>> LiveStream::Next() {
  QUARRY_RETURN_IF_ERROR(owner_.CheckNoneHeld());
  const ScopedSpan span("wait");
  std::optional<std::unique_ptr<HeldFrame>> hold = ready_.Pop();
  MutexLock lock(mutex_);
  if (!error_.ok()) return error_;
  if (!hold) return std::unique_ptr<Batch>();
  return HeldFrame::HandOut(*std::move(hold), stats_);
}

StreamStats LiveStream::stats() const {
  const FeatureBufferStats now = resources_.buffer->stats();
  const FeatureBufferStats& then = buffer_stats_at_start_;
  MutexLock lock(mutex_);
  StreamStats stats = stats_;
  stats.cache_lookups = now.lookups - then.lookups;
  stats.cache_hits = stats.cache_lookups - (now.misses - then.misses);
  // Where rows are of one table, those that are under way count, too.
  if (resources_.rows->dim() > 0) {
    stats.bytes_useful =
        (now.misses - then.misses + resources_.filled_rows) * resources_.rows->stored_row_bytes();
  }
  if (resources_.device != nullptr) {
    stats.device_bytes = resources_.device->sent_bytes() - resources_.device_bytes;
    stats.device_hits = stats.cache_hits;
  }
  const double admission_wait = now.admission_wait_seconds - then.admission_wait_seconds;
  stats.extract_seconds = std::max(0.0, stats.extract_seconds - admission_wait);
  stats.extract_wait_seconds += admission_wait;
  stats.consumer_wait_seconds = ready_.wait_seconds();
  return stats;
}

}  // namespace quarry
