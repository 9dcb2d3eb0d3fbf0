#include "partitioned_stream.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "quarry/base/process.h"
#include "quarry/base/random.h"
#include "quarry/base/trace.h"
#include "quarry/base/units.h"

namespace quarry {
namespace {

constexpr uint64_t kSeedStream = 14;  // apart from other streams of the seed

std::vector<uint64_t> SeedStarts(const PartitionDirectory& directory, Split split) {
  std::vector<uint64_t> starts(1, 0);
  for (const SplitCounts& counts : directory.splits) starts.push_back(starts.back() + counts.of(split));
  return starts;
}

}  // namespace

uint64_t UsedRows::Bytes(const PartitionDirectory& directory, uint64_t row_frames) {
  if (directory.row_stride == 0) return 0;
  return row_frames * (directory.row_frame_bytes() / directory.row_stride) / 8 +
         directory.parts() * sizeof(uint64_t);
}

void UsedRows::TakeStep(const PartitionBuffer& buffer, uint64_t parts_read_before) {
  const PartitionDirectory& directory = buffer.directory();
  if (read_number_.empty()) {
    used_.resize(buffer.AllRows().size() / directory.row_stride);
    read_number_.resize(directory.parts());
  }
  for (const uint32_t part : buffer.step().parts) {
    const uint64_t number = buffer.ReadNumber(part);
    if (number == read_number_[part]) continue;
    read_number_[part] = number;
    const auto first = used_.begin() + static_cast<ptrdiff_t>(buffer.FirstRow(part));
    std::fill_n(first, directory.part_nodes(part), number <= parts_read_before);
  }
}

PartitionedStream::PartitionedStream(const PartitionedResources& resources, PassOptions options,
                                     std::vector<uint64_t> step_seeds, std::function<void(bool)> on_end)
    : resources_(resources),
      options_(std::move(options)),
      step_seeds_(std::move(step_seeds)),
      seed_starts_(SeedStarts(resources.buffer->directory(), resources.split)),
      on_end_(std::move(on_end)),
      buffer_stats_at_start_(resources.buffer->stats()),
      batch_count_([this] {
        uint64_t batches = 0;
        for (uint64_t step = 0; step < step_seeds_.size(); ++step) batches += BatchesOf(step);
        return batches;
      }()),
      frames_(resources.frame_count),
      owner_{.rows = {.rows = resources.buffer->AllRows(),
                      .stride_bytes = resources.buffer->directory().row_stride,
                      .element_type = resources.element_type,
                      .dim = resources.dim},
             .back = frames_},
      ready_(batch_count_, options_.ordered) {
  seeds_.reserve(step_seeds_.empty() ? 0 : *std::ranges::max_element(step_seeds_));
  const BatchBounds& bounds = resources_.bounds;
  for (uint32_t i = 0; i < resources_.frame_count; ++i) {
    auto frame = std::make_unique<Frame>();
    // Sized once, so that growing does not double them.
    frame->block.nodes.reserve(bounds.nodes);
    frame->block.indptr.reserve(bounds.targets + 1);
    frame->block.indices.reserve(bounds.edges);
    frame->slots.reserve(bounds.nodes);
    frame->labels.reserve(bounds.seeds);
    frames_.Push(std::move(frame));
  }
}

Status PartitionedStream::Start() {
  return StartThreads(
      "sample", static_cast<unsigned>(resources_.samplers.size()),
      [this](unsigned i) { RunSampler(*resources_.samplers[i]); }, [this](const Status& why) { Fail(why); },
      workers_);
}

PartitionedStream::~PartitionedStream() {
  assert(owner_.held == 0 && "batches must be gone before their stream");
  Cancel();
  workers_.clear();
  bool whole = false;
  {
    MutexLock lock(mutex_);
    whole = error_.ok();
  }
  on_end_(whole);
}

uint64_t PartitionedStream::BatchesOf(uint64_t step) const {
  return CeilDiv(step_seeds_[step], uint64_t{resources_.batch_size});
}

void PartitionedStream::Cancel() {
  {
    MutexLock lock(mutex_);
    cancelled_ = true;
    step_changed_.NotifyAll();
  }
  frames_.Cancel();
  ready_.Cancel();
}

void PartitionedStream::Fail(const Status& status) {
  {
    MutexLock lock(mutex_);
    if (error_.ok()) error_ = status;
  }
  Cancel();
}

// The next batch of the step, once there is one; nothing at the end.
std::optional<uint64_t> PartitionedStream::TakeNumber() {
  MutexLock lock(mutex_);
  while (!cancelled_ && next_number_ == step_end_ && step_end_ < batch_count_) step_changed_.Wait(mutex_);
  if (cancelled_ || next_number_ == batch_count_) return std::nullopt;
  return next_number_++;
}

void PartitionedStream::RunSampler(NeighborSampler& sampler) {
  for (;;) {
    std::optional<std::unique_ptr<Frame>> frame = frames_.Pop();
    if (!frame) return;
    const std::optional<uint64_t> number = TakeNumber();
    if (!number) {
      frames_.Push(*std::move(frame));  // for the next sampler to find the end as well
      return;
    }
    uint64_t first = 0;
    {
      MutexLock lock(mutex_);
      first = (*number - step_first_) * resources_.batch_size;
    }
    const double start = MonotonicSeconds();
    const uint64_t count = std::min<uint64_t>(resources_.batch_size, seeds_.size() - first);
    const Status status = InSpan("sample", *number, [&] {
      return sampler.Sample(std::span(seeds_).subspan(first, count),
                            MixSeed(resources_.seed, options_.pass, *number), (*frame)->block);
    });
    if (!status.ok()) return Fail(status);
    Fill(**frame);
    {
      MutexLock lock(mutex_);
      stats_.sample_seconds += MonotonicSeconds() - start;
    }
    if (!ready_.Push(*number, std::make_unique<HeldFrame>(owner_, *number, *std::move(frame)))) return;
  }
}

// Rows and labels of a block of places, which become ids.
void PartitionedStream::Fill(Frame& frame) const {
  Block& block = frame.block;
  frame.labels.clear();
  frame.slots.resize(block.nodes.size());
  for (size_t i = 0; i < block.nodes.size(); ++i) {
    const HeldLists::Place place = resources_.lists->At(block.nodes[i]);
    frame.slots[i] = static_cast<uint32_t>(first_rows_[place.held] + place.node);
    if (i < block.seed_count()) frame.labels.push_back(labels_[place.held][place.node]);
    block.nodes[i] = old_ids_[place.held][place.node];
  }
}

// Goes to the next step that has nodes. No batch is being made, and none is held.
Status PartitionedStream::EnterStep() {
  const ScopedSpan span("next parts");
  PartitionBuffer& buffer = *resources_.buffer;
  uint64_t batches = 0;
  do {
    QUARRY_TRY(const bool more, buffer.Next());
    if (!more) return Status(Code::kInternal, "the pass has fewer steps than batches");
    batches = BatchesOf(buffer.step_number());
  } while (batches == 0);
  resources_.lists->TakeStep(buffer);
  used_.TakeStep(buffer, buffer_stats_at_start_.parts_read);
  CollectSeeds(buffer.step_number());
  if (seeds_.size() != step_seeds_[buffer.step_number()]) {
    return MakeStatus(Code::kCorruption,
                      "the parts' labels do not agree with their counts: step {} has {} nodes, not {}",
                      buffer.step_number(), seeds_.size(), step_seeds_[buffer.step_number()]);
  }
  MutexLock lock(mutex_);
  step_first_ = step_end_;
  step_end_ += batches;
  step_changed_.NotifyAll();
  return Status::Ok();
}

void PartitionedStream::CollectSeeds(uint64_t step) {
  const PartitionBuffer& buffer = *resources_.buffer;
  const SwapPlan& plan = buffer.plan();
  const auto wanted = static_cast<uint8_t>(resources_.split);
  seeds_.clear();
  old_ids_.clear();
  first_rows_.clear();
  labels_.clear();
  NodeId place = 0;
  for (const uint32_t part : buffer.step().parts) {
    const std::span<const uint8_t> splits = buffer.Splits(part);
    labels_.push_back(buffer.Labels(part));
    first_rows_.push_back(buffer.FirstRow(part));
    old_ids_.push_back(buffer.OldIds(part));
    uint64_t number = seed_starts_[part];
    for (size_t node = 0; node < splits.size(); ++node, ++place) {
      const bool counts =
          splits[node] == wanted && (resources_.split != Split::kTrain || labels_.back()[node] >= 0);
      if (!counts) continue;
      if (plan.StepOfNode(part, number++) == step) seeds_.push_back(place);
    }
  }
  if (!options_.shuffle) return;
  Rng rng(MixSeed(resources_.seed, kSeedStream, options_.pass, step));
  for (size_t i = seeds_.size(); i > 1; --i) std::swap(seeds_[i - 1], seeds_[rng.Below(i)]);
}

Result<std::unique_ptr<Batch>> PartitionedStream::Next() {
  QUARRY_RETURN_IF_ERROR(owner_.CheckNoneHeld());
  const double start = MonotonicSeconds();
  uint64_t step_end = 0;
  {
    MutexLock lock(mutex_);
    if (!error_.ok()) return error_;
    step_end = step_end_;
  }
  if (delivered_ == step_end && delivered_ < batch_count_) {
    if (const Status entered = EnterStep(); !entered.ok()) Fail(entered);
  }
  std::optional<std::unique_ptr<HeldFrame>> hold;
  {
    const ScopedSpan span("wait");
    hold = ready_.Pop();
  }
  MutexLock lock(mutex_);
  stats_.consumer_wait_seconds += MonotonicSeconds() - start;
  if (!error_.ok()) return error_;
  if (!hold) return std::unique_ptr<Batch>();
  std::unique_ptr<Batch> batch = HeldFrame::HandOut(*std::move(hold), stats_);
  ++delivered_;
  used_.Use(batch->view().features.slots);
  stats_.bytes_useful = used_.count() * resources_.buffer->directory().row_bytes;
  return batch;
}

// Every row that a batch has is in memory by then, so it counts as a hit; useful are the rows that were read and that any
// batch had.
StreamStats PartitionedStream::stats() const {
  const PartitionBufferStats now = resources_.buffer->stats();
  const PartitionBufferStats& then = buffer_stats_at_start_;
  MutexLock lock(mutex_);
  StreamStats stats = stats_;
  stats.topology_bytes_read = now.bucket_bytes_read - then.bucket_bytes_read;
  stats.feature_bytes_read = now.bytes_read - then.bytes_read - stats.topology_bytes_read;
  stats.read_requests = now.parts_read - then.parts_read + now.buckets_read - then.buckets_read;
  stats.cache_lookups = stats.cache_hits = stats.input_nodes;
  stats.extract_seconds = now.read_seconds - then.read_seconds;
  return stats;
}

}  // namespace quarry
