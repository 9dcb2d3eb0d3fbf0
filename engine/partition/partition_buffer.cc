#include "quarry/partition/partition_buffer.h"

#include <algorithm>
#include <cassert>
#include <functional>
#include <numeric>

#include "quarry/base/process.h"
#include "quarry/base/trace.h"
#include "quarry/io/ring.h"

namespace quarry {
namespace {

constexpr unsigned kPartReadDepth = 8;
constexpr uint64_t kPartReadBytesMax = 1 * kMiB;

bool HoldsPart(const SwapStep& step, uint32_t part) { return std::ranges::binary_search(step.parts, part); }

}  // namespace

uint64_t PartitionBufferBytesMax(const PartitionDirectory& directory, uint32_t buffer, uint32_t incoming,
                                 const PartitionBufferOptions& options) {
  // Bytes of frames: of what parts have by node besides rows, of buckets within a part, and of those between two.
  std::vector<uint64_t> by_node(directory.parts()), inner, outer;
  for (uint32_t source = 0; source < directory.parts(); ++source) {
    if (options.labels) {
      by_node[source] += IoBuffer::MappedBytes(directory.BytesOf(source, sizeof(int64_t))) +
                         IoBuffer::MappedBytes(directory.BytesOf(source, sizeof(uint8_t)));
    }
    if (options.old_ids) by_node[source] += IoBuffer::MappedBytes(directory.ids_bytes(source));
    for (uint32_t destination = 0; destination < directory.parts(); ++destination) {
      const uint64_t bytes = IoBuffer::MappedBytes(directory.bucket_bytes(source, destination));
      (source == destination ? inner : outer).push_back(bytes);
    }
  }
  const auto largest = [](std::vector<uint64_t>& bytes, uint64_t count) {
    count = std::min<uint64_t>(count, bytes.size());
    const auto end = bytes.begin() + static_cast<ptrdiff_t>(count);
    std::ranges::nth_element(bytes, end, std::greater());
    return std::accumulate(bytes.begin(), end, uint64_t{0});
  };
  const uint64_t c = buffer;
  const uint64_t stays = c - incoming;
  const uint64_t between = c * (c - 1) + (c * (c - 1) - stays * (stays - std::min<uint64_t>(stays, 1)));
  const uint64_t rows =
      options.rows ? IoBuffer::MappedBytes((c + incoming) * directory.row_frame_bytes()) : 0;
  return rows + largest(by_node, c + incoming) + largest(inner, c + incoming) + largest(outer, between);
}

std::vector<uint64_t> PartBytesRead(const PartitionDirectory& directory,
                                    const PartitionBufferOptions& options) {
  std::vector<uint64_t> bytes(directory.parts());
  for (uint32_t part = 0; part < directory.parts(); ++part) {
    if (options.rows) bytes[part] += directory.part_bytes(part);
    if (options.labels) {
      bytes[part] += directory.BytesOf(part, sizeof(int64_t)) + directory.BytesOf(part, sizeof(uint8_t));
    }
    if (options.old_ids) bytes[part] += directory.ids_bytes(part);
  }
  return bytes;
}

Result<PartitionTuning> TuneBuffer(const PartitionDirectory& directory, const TuneOptions& options) {
  const uint32_t parts = directory.parts();
  PartitionTuning tuning{.parts = parts};
  uint64_t least = 0;
  for (uint32_t logical = 2; logical <= parts; ++logical) {
    const bool suits = options.order != PartitionOrder::kEuler || logical % 2 == 1;
    if (parts % logical != 0 || !suits) continue;
    const uint32_t group = parts / logical;
    const uint32_t incoming = options.prefetch && logical > 2 ? group : 0;
    least = PartitionBufferBytesMax(directory, 2 * group, incoming) + options.working_bytes;
    if (least > options.memory_bytes) continue;
    tuning.buffer = 2 * group;
    tuning.logical = logical;
    tuning.memory_bytes = least;
    return tuning;
  }
  if (least == 0) {
    return MakeStatus(
        Code::kUsage, "{} parts: partition order {} needs {}", parts, PartitionOrderName(options.order),
        options.order == PartitionOrder::kEuler ? "an odd number of logical ones, which divides theirs"
                                                : "at least 2");
  }
  return MakeStatus(
      Code::kOutOfBudget,
      "a partition buffer: two logical parts of {} parts take {}, and there are {}: give it more, or "
      "make more and smaller parts",
      parts, FormatBytes(least), FormatBytes(options.memory_bytes));
}

uint64_t PartitionBuffer::FrameBytes(const PartitionDirectory& directory, FrameKey key) {
  switch (key.destination) {
    case kRows:
      return directory.part_bytes(key.source);
    case kLabels:
      return directory.BytesOf(key.source, sizeof(int64_t));
    case kSplits:
      return directory.BytesOf(key.source, sizeof(uint8_t));
    case kOldIds:
      return directory.ids_bytes(key.source);
    default:
      return directory.bucket_bytes(key.source, key.destination);
  }
}

std::vector<PartitionBuffer::FrameKey> PartitionBuffer::NewFrames(const PartitionDirectory& directory,
                                                                  const PartitionBufferOptions& options,
                                                                  const SwapStep* before,
                                                                  const SwapStep& step) {
  std::vector<FrameKey> keys;
  for (const uint32_t part : step.parts) {
    if (before != nullptr && HoldsPart(*before, part)) continue;
    if (options.rows) keys.push_back({part, kRows});
    if (options.labels) keys.insert(keys.end(), {{part, kLabels}, {part, kSplits}});
    if (options.old_ids) keys.push_back({part, kOldIds});
  }
  ForEachNewBucket(before, step, [&](uint32_t source, uint32_t destination) {
    keys.push_back({source, destination});
  });
  std::erase_if(keys, [&](FrameKey key) { return FrameBytes(directory, key) == 0; });
  return keys;
}

// Parts with rows that are in memory at once, at most.
uint64_t PartitionBuffer::RowFrames(const SwapPlan& plan, const PartitionBufferOptions& options) {
  const std::vector<SwapStep>& steps = plan.steps();
  uint64_t most = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    uint64_t parts = steps[i].parts.size();
    if (options.prefetch && i + 1 < steps.size()) {
      for (const uint32_t part : steps[i + 1].parts) parts += HoldsPart(steps[i], part) ? 0 : 1;
    }
    most = std::max(most, parts);
  }
  return most;
}

uint64_t PartitionBuffer::Bytes(const PartitionDirectory& directory, const SwapPlan& plan,
                                const PartitionBufferOptions& options) {
  const auto bytes_of = [&](const SwapStep* before, const SwapStep& step) {
    uint64_t bytes = 0;
    for (const FrameKey key : NewFrames(directory, options, before, step)) {
      if (key.destination != kRows) bytes += IoBuffer::MappedBytes(FrameBytes(directory, key));
    }
    return bytes;
  };
  uint64_t most = 0;
  const std::vector<SwapStep>& steps = plan.steps();
  for (size_t i = 0; i < steps.size(); ++i) {
    const bool next = options.prefetch && i + 1 < steps.size();
    most = std::max(most, bytes_of(nullptr, steps[i]) + (next ? bytes_of(&steps[i], steps[i + 1]) : 0));
  }
  const uint64_t row_bytes = RowFrames(plan, options) * directory.row_frame_bytes();
  return most + (options.rows ? IoBuffer::MappedBytes(row_bytes) : 0);
}

Status PartitionBuffer::AllocateRows(uint64_t frames) {
  const uint64_t frame_bytes = options_.rows ? partitioning_.directory().row_frame_bytes() : 0;
  if (frames * frame_bytes == 0) return Status::Ok();
  QUARRY_TRY(row_frames_, IoBuffer::Allocate(frames * frame_bytes));
  for (auto frame = static_cast<uint32_t>(frames); frame > 0; --frame) free_row_frames_.push_back(frame - 1);
  return Status::Ok();
}

PartitionBuffer::PartitionBuffer(const StoredPartitioning& partitioning, IoBackend& backend, SwapPlan plan,
                                 const PartitionBufferOptions& options)
    : partitioning_(partitioning), backend_(backend), plan_(std::move(plan)), options_(options) {}

PartitionBuffer::~PartitionBuffer() = default;

Result<std::unique_ptr<PartitionBuffer>> PartitionBuffer::Make(const StoredPartitioning& partitioning,
                                                               IoBackend& backend, MemoryBudget& budget,
                                                               SwapPlan plan,
                                                               const PartitionBufferOptions& options) {
  const PartitionDirectory& directory = partitioning.directory();
  if (plan.spec().parts != directory.parts()) {
    return MakeStatus(Code::kUsage, "a plan of {} parts: partitioning \"{}\" has {}", plan.spec().parts,
                      partitioning.record().name, directory.parts());
  }
  const uint64_t bytes = Bytes(directory, plan, options);
  QUARRY_TRY(auto reservation, budget.Reserve(bytes, fmt::format("a buffer of {} of {} parts",
                                                                 plan.spec().buffer, plan.spec().parts)));
  std::unique_ptr<PartitionBuffer> buffer(
      new PartitionBuffer(partitioning, backend, std::move(plan), options));
  buffer->reservation_ = std::move(reservation);
  QUARRY_RETURN_IF_ERROR(buffer->AllocateRows(RowFrames(buffer->plan_, options)));
  return buffer;
}

Result<std::unique_ptr<PartitionBuffer>> PartitionBuffer::MakeForPlans(
    const StoredPartitioning& partitioning, IoBackend& backend, MemoryBudget& budget, uint32_t buffer,
    uint32_t incoming, const PartitionBufferOptions& options) {
  const PartitionDirectory& directory = partitioning.directory();
  QUARRY_TRY(auto reservation,
             budget.Reserve(PartitionBufferBytesMax(directory, buffer, incoming, options),
                            fmt::format("a buffer of {} of {} parts", buffer, directory.parts())));
  SwapPlan none({.parts = directory.parts(), .buffer = buffer}, {});
  std::unique_ptr<PartitionBuffer> made(new PartitionBuffer(partitioning, backend, std::move(none), options));
  made->reservation_ = std::move(reservation);
  QUARRY_RETURN_IF_ERROR(made->AllocateRows(uint64_t{buffer} + incoming));
  return made;
}

Status PartitionBuffer::Follow(SwapPlan plan) {
  assert(plan.spec().parts == partitioning_.directory().parts());
  if (StepAt(step_) != nullptr) before_ = step();
  plan_ = std::move(plan);
  step_ = ~uint64_t{0};
  if (!reading_.valid()) return Status::Ok();
  const Status status = reading_.Get();
  stats_.read_seconds += reading_seconds_;
  for (const Frame& frame : coming_) Free(frame);
  coming_.clear();
  return status;
}

void PartitionBuffer::Free(const Frame& frame) {
  if (frame.key.destination == kRows) free_row_frames_.push_back(frame.row_frame);
}

Status PartitionBuffer::MakeFrames(const SwapStep* before, const SwapStep& step) {
  const PartitionDirectory& directory = partitioning_.directory();
  for (const FrameKey key : NewFrames(directory, options_, before, step)) {
    const uint64_t bytes = FrameBytes(directory, key);
    Frame& frame = coming_.emplace_back();
    frame.key = key;
    if (key.destination == kRows) {
      assert(!free_row_frames_.empty());
      frame.row_frame = free_row_frames_.back();
      free_row_frames_.pop_back();
      frame.pages = row_frames_.span().subspan(frame.row_frame * directory.row_frame_bytes(), bytes);
    } else {
      QUARRY_TRY(frame.own, IoBuffer::Allocate(bytes));
      frame.pages = frame.own.span();
    }
    if (key.destination == kRows) frame.read_number = ++stats_.parts_read;
    stats_.buckets_read += key.is_bucket() ? 1 : 0;
    stats_.bytes_read += bytes;
    stats_.bucket_bytes_read += key.is_bucket() ? bytes : 0;
  }
  return Status::Ok();
}

Status PartitionBuffer::Verify(const Frame& frame) const {
  switch (frame.key.destination) {
    case kRows:
      return partitioning_.VerifyRows(frame.key.source, frame.pages);
    case kLabels:
      return partitioning_.VerifyLabels(frame.key.source, frame.pages);
    case kSplits:
      return partitioning_.VerifySplits(frame.key.source, frame.pages);
    case kOldIds:
      return partitioning_.VerifyOldIds(frame.key.source, frame.pages);
    default:
      return partitioning_.VerifyBucket(frame.key.source, frame.key.destination, frame.pages);
  }
}

uint64_t PartitionBuffer::OffsetOf(FrameKey key) const {
  switch (key.destination) {
    case kRows:
      return partitioning_.RowsAt(key.source);
    case kLabels:
      return partitioning_.LabelsAt(key.source);
    case kSplits:
      return partitioning_.SplitsAt(key.source);
    case kOldIds:
      return partitioning_.OldIdsAt(key.source);
    default:
      return partitioning_.BucketAt(key.source, key.destination);
  }
}

// Frames are verified as they arrive, while those behind them are being read.
Status PartitionBuffer::ReadFrames() {
  const ScopedSpan span("read parts");
  reading_seconds_ = 0;
  if (coming_.empty()) return Status::Ok();
  const double start = MonotonicSeconds();
  QUARRY_TRY(const std::unique_ptr<IoRing> ring, IoRing::Make(backend_, kPartReadDepth));
  std::vector<uint32_t> left(coming_.size());  // requests of a frame
  std::vector<ReadRequest> requests;
  for (uint64_t i = 0; i < coming_.size(); ++i) {
    const Frame& frame = coming_[i];
    const uint64_t offset = OffsetOf(frame.key);
    const File& file = frame.key.is_bucket()
                           ? partitioning_.BucketFile(frame.key.source, frame.key.destination)
                           : partitioning_.file();
    for (uint64_t at = 0; at < frame.pages.size(); at += kPartReadBytesMax, ++left[i]) {
      requests.push_back(
          {.file = &file,
           .offset = offset + at,
           .bytes = static_cast<uint32_t>(std::min(kPartReadBytesMax, frame.pages.size() - at)),
           .buffer = frame.pages.data() + at,
           .user_data = i});
    }
  }
  Status status = ring->Submit(requests);
  std::vector<uint64_t> done;
  while (status.ok() && ring->pending() > 0) {
    done.clear();
    status = ring->Wait(done);
    for (size_t i = 0; i < done.size() && status.ok(); ++i) {
      if (--left[done[i]] == 0) status = Verify(coming_[done[i]]);
    }
  }
  ring->Drain();
  reading_seconds_ = MonotonicSeconds() - start;
  return status;
}

// Lets go of what the next step does not hold.
void PartitionBuffer::Drop(const SwapStep& next) {
  std::erase_if(frames_, [&](const auto& entry) {
    const FrameKey key = entry.second.key;
    if (HoldsPart(next, key.source) && (!key.is_bucket() || HoldsPart(next, key.destination))) return false;
    Free(entry.second);
    return true;
  });
}

Result<bool> PartitionBuffer::Next() {
  const bool follows = StepAt(step_) == nullptr && !before_.parts.empty();
  const SwapStep* const before = follows ? &before_ : StepAt(step_);
  const SwapStep* const now = StepAt(step_ + 1);
  if (now == nullptr) return false;
  const double start = MonotonicSeconds();
  Drop(*now);
  if (reading_.valid()) {
    QUARRY_RETURN_IF_ERROR(reading_.Get());
  } else {
    QUARRY_RETURN_IF_ERROR(MakeFrames(before, *now));
    QUARRY_RETURN_IF_ERROR(ReadFrames());
  }
  stats_.wait_seconds += MonotonicSeconds() - start;
  stats_.read_seconds += reading_seconds_;
  for (Frame& frame : coming_) {
    const uint64_t number = frame.key.number();
    frames_.emplace(number, std::move(frame));
  }
  coming_.clear();
  ++step_;
  const SwapStep* const next = StepAt(step_ + 1);
  if (options_.prefetch && next != nullptr) {
    QUARRY_RETURN_IF_ERROR(MakeFrames(now, *next));
    reading_ = BackgroundTask<Status>::Start("read parts", [this] { return ReadFrames(); });
  }
  return true;
}

const PartitionBuffer::Frame* PartitionBuffer::Find(uint32_t part, uint32_t what) const {
  assert(HoldsPart(step(), part));
  const auto frame = frames_.find(FrameKey{part, what}.number());
  return frame == frames_.end() ? nullptr : &frame->second;
}

std::span<const std::byte> PartitionBuffer::Rows(uint32_t part) const {
  const Frame* const frame = Find(part, kRows);
  if (frame == nullptr) return {};
  const PartitionDirectory& directory = partitioning_.directory();
  return frame->pages.first(directory.part_nodes(part) * directory.row_stride);
}

uint64_t PartitionBuffer::FirstRow(uint32_t part) const {
  const Frame* const frame = Find(part, kRows);
  if (frame == nullptr) return 0;
  const PartitionDirectory& directory = partitioning_.directory();
  return frame->row_frame * (directory.row_frame_bytes() / directory.row_stride);
}

uint64_t PartitionBuffer::ReadNumber(uint32_t part) const {
  const Frame* const frame = Find(part, kRows);
  return frame == nullptr ? 0 : frame->read_number;
}

std::span<const int64_t> PartitionBuffer::Labels(uint32_t part) const {
  const Frame* const frame = Find(part, kLabels);
  if (frame == nullptr) return {};
  return {reinterpret_cast<const int64_t*>(frame->pages.data()), partitioning_.directory().part_nodes(part)};
}

std::span<const uint8_t> PartitionBuffer::Splits(uint32_t part) const {
  const Frame* const frame = Find(part, kSplits);
  if (frame == nullptr) return {};
  return {reinterpret_cast<const uint8_t*>(frame->pages.data()), partitioning_.directory().part_nodes(part)};
}

std::span<const NodeId> PartitionBuffer::OldIds(uint32_t part) const {
  const Frame* const frame = Find(part, kOldIds);
  if (frame == nullptr) return {};
  const PartitionDirectory& directory = partitioning_.directory();
  const auto* const first = reinterpret_cast<const NodeId*>(frame->pages.data());
  const uint64_t before = directory.part_starts[part] - directory.ids_offset(part) / sizeof(NodeId);
  return {first + before, directory.part_nodes(part)};
}

EdgeBucket PartitionBuffer::Bucket(uint32_t source, uint32_t destination) const {
  assert(HoldsPart(step(), source) && HoldsPart(step(), destination));
  const auto frame = frames_.find(FrameKey{source, destination}.number());
  // An empty bucket has no frame, and its view reads nothing.
  return partitioning_.View(source, destination,
                            frame == frames_.end() ? std::span<const std::byte>() : frame->second.pages);
}

uint64_t PartitionBuffer::held_bytes() const {
  uint64_t bytes = row_frames_.mapped_bytes();
  for (const auto& [number, frame] : frames_) bytes += frame.own.mapped_bytes();
  for (const Frame& frame : coming_) bytes += frame.own.mapped_bytes();
  return bytes;
}

}  // namespace quarry
