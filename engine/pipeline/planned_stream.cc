#include "planned_stream.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <numeric>

#include "quarry/base/process.h"
#include "quarry/base/trace.h"
#include "quarry/base/units.h"

namespace quarry {
namespace {

constexpr uint32_t kRequestBytes = 1 * kMiB;
constexpr size_t kPrefetchRows = 8;

uint64_t BlockPages(const BatchEntry& entry) { return RoundUp(entry.block_bytes, kPageBytes); }

}  // namespace

PlannedStream::PlannedStream(PlannedState& state, std::function<void(bool)> on_end)
    : state_(state),
      directory_(state.layout->directory()),
      first_(state.position),
      batch_count_(directory_.batches_per_epoch),
      on_end_(std::move(on_end)),
      free_(state.frames.size()) {
  if (state_.device != nullptr) state_.device->Restart();
  for (const auto& frame : state_.frames) {
    frame->stream = this;
    free_.Push(frame.get());
  }
}

Status PlannedStream::Start() {
  const auto fail = [this](const Status& why) { Break(why); };
  QUARRY_TRY(loader_, Thread::Start(
                          "load", [this] { RunLoader(); }, fail));
  QUARRY_TRY(assembler_, Thread::Start(
                             "assemble", [this] { RunAssembler(); }, fail));
  return Status::Ok();
}

PlannedStream::~PlannedStream() {
  assert(!held_ && "batches must be gone before their stream");
  Cancel();
  loader_.Join();
  assembler_.Join();
  if (state_.device != nullptr) {  // whose copies read the frames, and call this stream when they have
    for (const auto& frame : state_.frames) frame->on_device.reset();
    state_.device->Quiesce();
  }
  const bool whole = delivered_ == batch_count_ && used_ == nullptr &&
                     (state_.device == nullptr || state_.device->broken().ok());
  if (!whole) {  // the cache is somewhere between two batches: begin anew
    state_.position = 0;
    state_.image_loaded = false;
  }
  on_end_(!broken_);
}

void PlannedStream::Cancel() {
  cancelled_ = true;
  free_.Cancel();
  loaded_.Cancel();
  ready_.Cancel();
  if (state_.device != nullptr) state_.device->Cancel();
}

// A thread's body was left in its midst, and so was what it had taken of the road.
void PlannedStream::Break(const Status& why) {
  broken_ = true;
  Fail(why);
}

void PlannedStream::Fail(const Status& status) {
  {
    MutexLock lock(mutex_);
    if (error_.ok()) error_ = status;
  }
  Cancel();
}

void PlannedStream::RunLoader() {
  const double start = MonotonicSeconds();
  const Status status = LoadAll();
  if (!status.ok()) return Fail(status);
  {  // first: once the queues are closed, the stream ends, and its figures are asked for
    MutexLock lock(mutex_);
    stats_.extract_wait_seconds = free_.pop_wait_seconds() + loaded_.push_wait_seconds();
    stats_.extract_seconds += MonotonicSeconds() - start - stats_.extract_wait_seconds;
  }
  loaded_.Close();
}

// Keeps the device busy across batches: reads of the next one are submitted as soon as there is a frame.
Status PlannedStream::LoadAll() {
  QUARRY_TRY(const std::unique_ptr<IoRing> ring, IoRing::Make(*state_.backend, state_.io_depth));
  const auto load = [&]() -> Status {
    if (!state_.image_loaded) QUARRY_RETURN_IF_ERROR(LoadImage(*ring));
    const uint64_t end = first_ + batch_count_;
    for (uint64_t next = first_; next < end || !loading_.empty();) {
      while (next < end) {
        PlannedFrame* frame = nullptr;
        if (loading_.empty()) {
          QUARRY_TRY(frame, AwaitFrame());
        } else {
          frame = free_.TryPop().value_or(nullptr);
        }
        if (frame == nullptr) break;
        QUARRY_RETURN_IF_ERROR(StartReads(*frame, next++, *ring));
      }
      if (loading_.empty()) return Status::Ok();  // cancelled
      QUARRY_RETURN_IF_ERROR(FinishReads(*ring));
      for (; !loading_.empty() && loading_.front()->reads_left == 0; loading_.pop_front()) {
        if (!loaded_.Push(loading_.front())) return Status::Ok();
      }
    }
    return Status::Ok();
  };
  const Status status = load();
  ring->Drain();
  return status;
}

// What the cache holds before the first batch, straight into its slots.
Status PlannedStream::LoadImage(IoRing& ring) {
  const ScopedSpan span("load the cache");
  state_.decoder->Restart();
  for (size_t slot = 0; slot < state_.physical.size(); ++slot) {
    state_.physical[slot] = static_cast<uint32_t>(state_.row_places->OfSlot(slot).place);
  }
  const uint64_t rows = directory_.start_nodes.size();
  const uint64_t on_device = std::min(state_.device_slots, rows);
  if (on_device > 0) QUARRY_RETURN_IF_ERROR(LoadDeviceRows(ring));
  QUARRY_RETURN_IF_ERROR(LoadImageRows(on_device, rows - on_device, 0, ring));
  state_.image_loaded = true;
  return Status::Ok();
}

// Rows [first, first + count) of what the cache begins with, into slots of the arena. REQUIRES: `first` begins a page of
// the layout, and so does the slot.
Status PlannedStream::LoadImageRows(uint64_t first, uint64_t count, uint32_t to_slot, IoRing& ring) {
  if (count == 0) return Status::Ok();
  const std::span<const NodeId> nodes = std::span(directory_.start_nodes).subspan(first, count);
  const uint64_t places = state_.row_places->Locate(nodes, to_slot, image_places_) - to_slot;
  if (!directory_.packed) return ReadTableRows(nodes, image_places_);
  const uint64_t stride = directory_.row_stride;
  const uint64_t offset = first * stride;  // on a device, rows are of one table
  const uint64_t end = std::min(RoundUp(offset + places * stride, kPageBytes), directory_.image_bytes());
  const std::span<std::byte> image = {state_.Row(to_slot), end - offset};
  QUARRY_RETURN_IF_ERROR(SubmitRange(nullptr, offset, image, ring));
  while (ring.pending() > 0) QUARRY_RETURN_IF_ERROR(FinishReads(ring));
  QUARRY_RETURN_IF_ERROR(state_.layout->VerifyPages(offset, image));
  return CompleteRows(nodes, image_places_);
}

Status PlannedStream::StartReads(PlannedFrame& frame, uint64_t number, IoRing& ring) {
  const ScopedSpan span("start reads", number);
  const BatchEntry& entry = directory_.batches[number];
  frame.number = number;
  frame.reads_left = 0;
  const uint64_t block_bytes = BlockPages(entry);
  const uint64_t chunk_bytes = directory_.chunk_bytes(entry);
  QUARRY_RETURN_IF_ERROR(
      SubmitRange(&frame, entry.offset, frame.block_bytes.span().first(block_bytes), ring));
  QUARRY_RETURN_IF_ERROR(SubmitRange(&frame, entry.offset + block_bytes, {frame.rows, chunk_bytes}, ring));
  loading_.push_back(&frame);
  MutexLock lock(mutex_);
  stats_.topology_bytes_read += block_bytes;
  stats_.feature_bytes_read += chunk_bytes;
  return Status::Ok();
}

Status PlannedStream::SubmitRange(PlannedFrame* frame, uint64_t offset, std::span<std::byte> bytes,
                                  IoRing& ring) {
  uint64_t requests = 0;
  for (uint64_t at = 0; at < bytes.size(); ++requests) {
    const Layout::Part part =
        state_.layout->Locate(offset + at, std::min<uint64_t>(kRequestBytes, bytes.size() - at));
    uint32_t flight = 0;
    if (idle_flights_.empty()) {
      flight = static_cast<uint32_t>(flights_.size());
      flights_.emplace_back();
    } else {
      flight = idle_flights_.back();
      idle_flights_.pop_back();
    }
    flights_[flight] = frame;
    const ReadRequest request{part.file, part.offset, static_cast<uint32_t>(part.bytes), bytes.data() + at,
                              flight};
    QUARRY_RETURN_IF_ERROR(ring.Submit({&request, 1}));
    if (frame != nullptr) ++frame->reads_left;
    at += part.bytes;
  }
  MutexLock lock(mutex_);
  stats_.read_requests += requests;
  if (frame == nullptr) stats_.feature_bytes_read += bytes.size();
  return Status::Ok();
}

// Waits for some of the reads in flight. What they brought is verified by the assembler: the loader's only
// work is to keep the device busy.
Status PlannedStream::FinishReads(IoRing& ring) {
  if (cancelled_) return Status(Code::kCancelled, "the stream was given up");
  const ScopedSpan span("load");
  done_.clear();
  QUARRY_RETURN_IF_ERROR(ring.Wait(done_));
  for (const uint64_t id : done_) {
    if (PlannedFrame* const frame = flights_[id]; frame != nullptr) --frame->reads_left;
    idle_flights_.push_back(static_cast<uint32_t>(id));
  }
  return Status::Ok();
}

void PlannedStream::RunAssembler() {
  NameThread("assemble");
  const double start = MonotonicSeconds();
  while (const std::optional<PlannedFrame*> frame = loaded_.Pop()) {
    const Status status = Assemble(**frame);
    if (!status.ok()) return Fail(status);
    if (!ready_.Push(*frame)) return;
  }
  {  // first, as in RunLoader
    MutexLock lock(mutex_);
    stats_.sample_wait_seconds = loaded_.pop_wait_seconds() + ready_.push_wait_seconds();
    stats_.sample_seconds = MonotonicSeconds() - start - stats_.sample_wait_seconds - row_read_seconds_;
    stats_.extract_seconds += row_read_seconds_;
  }
  ready_.Close();
}

Status PlannedStream::Assemble(PlannedFrame& frame) {
  const ScopedSpan span("assemble", frame.number);
  const BatchEntry& entry = directory_.batches[frame.number];
  PlannedBlock& planned = frame.planned;
  const uint64_t block_bytes = BlockPages(entry);
  QUARRY_RETURN_IF_ERROR(
      state_.layout->VerifyPages(entry.offset, frame.block_bytes.span().first(block_bytes)));
  QUARRY_RETURN_IF_ERROR(
      state_.layout->VerifyPages(entry.offset + block_bytes, {frame.rows, directory_.chunk_bytes(entry)}));
  QUARRY_RETURN_IF_ERROR(state_.decoder->Decode(frame.block_bytes.span().first(entry.block_bytes), planned));
  if (planned.chunk_rows != entry.chunk_rows || planned.segment_places.size() != entry.segment_rows) {
    return MakeStatus(Code::kCorruption, "{}: batch {} has {} + {} rows, its directory says {} + {}",
                      state_.layout->file().path(), frame.number, planned.chunk_rows,
                      planned.segment_places.size(), entry.chunk_rows, entry.segment_rows);
  }
  frame.labels.clear();
  for (const NodeId seed : planned.block.view().seeds()) {
    frame.labels.push_back(state_.labels.empty() ? -1 : state_.labels[seed]);
  }
  const uint64_t end = state_.row_places->Locate(planned.frame_nodes, frame.first_slot, frame.places);
  if (!directory_.tables.empty() && (end - frame.first_slot) * directory_.row_stride != entry.chunk_bytes) {
    return MakeStatus(Code::kCorruption, "{}: batch {} has rows of {} bytes, its directory says {}",
                      state_.layout->file().path(), frame.number,
                      (end - frame.first_slot) * directory_.row_stride, entry.chunk_bytes);
  }
  const double start = MonotonicSeconds();
  const Status status = ReadRows(frame);
  row_read_seconds_ += MonotonicSeconds() - start;
  QUARRY_RETURN_IF_ERROR(status);
  if (state_.device != nullptr) return SendToDevice(frame);
  const auto cache_slots = static_cast<uint32_t>(directory_.cache_slots);
  for (uint32_t& slot : planned.slots) {
    slot = slot < cache_slots ? state_.physical[slot] : frame.places[slot - cache_slots];
  }
  return Status::Ok();
}

// Rows that enter the cache after a batch, from its frame to their slots.
void PlannedStream::ApplyAdmissions(const PlannedFrame& frame) {
  const ScopedSpan span("copy", frame.number);
  const uint64_t stride = directory_.row_stride;
  const std::vector<uint32_t>& rows = frame.planned.admitted_rows;
  const std::vector<uint32_t>& slots = frame.planned.admitted_slots;
  for (size_t i = 0; i < rows.size(); ++i) {
    const uint64_t bytes = state_.row_places->OfSlot(slots[i]).places * stride;
    const std::byte* const ahead =
        state_.Row(frame.places[rows[std::min(i + kPrefetchRows, rows.size() - 1)]]);
    for (uint64_t line = 0; line < std::min<uint64_t>(bytes, 1024); line += 64) {
      __builtin_prefetch(ahead + line);
    }
    std::memcpy(state_.Row(state_.physical[slots[i]]), state_.Row(frame.places[rows[i]]), bytes);
  }
}

// After the last batch the cache holds what it held before the first, in other slots.
// Instead of moving rows, the slots are renamed: the plan's slot i becomes whichever place of the arena holds
// row i now. Slots that the plan leaves empty at the start take what is left over, of the same table.
void PlannedStream::Wrap() {
  state_.position = 0;
  if (directory_.wrap.size() != directory_.image_rows) {  // planned for one cycle
    state_.image_loaded = false;
    return;
  }
  const RowPlaces& places = *state_.row_places;
  std::vector<uint32_t> renamed(state_.physical.size());
  std::vector<bool> taken(places.cache_places());
  for (size_t slot = 0; slot < directory_.wrap.size(); ++slot) {
    renamed[slot] = state_.physical[directory_.wrap[slot]];
    taken[renamed[slot]] = true;
  }
  std::vector<size_t> next(directory_.tables.size() + 1);  // by table: the slot whose place is looked at
  for (size_t slot = directory_.wrap.size(); slot < renamed.size(); ++slot) {
    const uint64_t table = places.TableOfSlot(slot);
    size_t& free = next[table];
    while (places.TableOfSlot(free) != table || taken[places.OfSlot(free).place]) ++free;
    renamed[slot] = static_cast<uint32_t>(places.OfSlot(free++).place);
  }
  state_.physical.swap(renamed);
  state_.decoder->Restart();
}

// The frame stays the consumer's until the batch dies.
std::unique_ptr<Batch> PlannedStream::HandOut(PlannedFrame& frame) {
  BatchView view = frame.planned.block.view();
  view.index = delivered_;
  view.labels = frame.labels;
  view.features = {.element_type = state_.element_type, .dim = state_.dim};
  view.type_rows = state_.rows->types();
  if (state_.device == nullptr) {
    view.features.rows = state_.arena.span();
    view.features.stride_bytes = directory_.row_stride;
    view.features.slots = frame.planned.slots;
  }
  const auto take_back = [this](PlannedFrame* used) {
    used->on_device.reset();
    held_ = false;
    used_ = used;
  };
  return std::make_unique<Batch>(view, std::shared_ptr<PlannedFrame>(&frame, take_back),
                                 frame.on_device.get());
}

Result<std::unique_ptr<Batch>> PlannedStream::Next() {
  if (held_) {
    return Status(Code::kInternal,
                  "Next was called while the previous batch was still held: let it go first");
  }
  if (used_ != nullptr) {
    const double start = MonotonicSeconds();
    if (state_.device == nullptr) {
      ApplyAdmissions(*used_);
      free_.Push(std::exchange(used_, nullptr));
    } else {
      LetGo(*std::exchange(used_, nullptr));
    }
    MutexLock lock(mutex_);
    stats_.update_seconds += MonotonicSeconds() - start;
    if (delivered_ == batch_count_) {
      state_.position = first_ + batch_count_;
      if (state_.position == directory_.batches.size()) Wrap();
    }
  }
  const ScopedSpan span("wait");
  const std::optional<PlannedFrame*> frame = ready_.Pop();
  MutexLock lock(mutex_);
  if (!error_.ok()) return error_;
  if (!frame) return std::unique_ptr<Batch>();
  const PlannedBlock& planned = (*frame)->planned;
  std::unique_ptr<Batch> batch = HandOut(**frame);
  ++delivered_;
  held_ = true;
  ++stats_.batches;
  stats_.sampled_edges += planned.block.indices.size();
  stats_.input_nodes += planned.block.nodes.size();
  stats_.cache_lookups += planned.block.nodes.size();
  stats_.cache_hits += planned.block.nodes.size() - planned.misses;
  stats_.bytes_useful += state_.row_places->StoredBytes(planned.frame_nodes, directory_.row_bytes);
  return batch;
}

StreamStats PlannedStream::stats() const {
  MutexLock lock(mutex_);
  StreamStats stats = stats_;
  stats.consumer_wait_seconds = ready_.pop_wait_seconds();
  return stats;
}

}  // namespace quarry
