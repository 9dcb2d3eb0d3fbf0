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

uint64_t PartitionBufferBytesMax(const PartitionDirectory& directory, uint32_t buffer, uint32_t incoming) {
  std::vector<uint64_t> rows, inner, outer;  // of frames: parts, buckets within a part, and between two
  for (uint32_t source = 0; source < directory.parts(); ++source) {
    rows.push_back(IoBuffer::MappedBytes(directory.part_bytes(source)));
    for (uint32_t destination = 0; destination < directory.parts(); ++destination) {
      const uint64_t bytes = IoBuffer::MappedBytes(directory.bucket_bytes(source, destination));
      (source == destination ? inner : outer).push_back(bytes);
    }
  }
  const auto largest = [](std::vector<uint64_t>& bytes, uint64_t count) {
    count = std::min<uint64_t>(count, bytes.size());
    const auto end = bytes.begin() + static_cast<ptrdiff_t>(count);
    std::ranges::partial_sort(bytes, end, std::greater());
    return std::accumulate(bytes.begin(), end, uint64_t{0});
  };
  const uint64_t c = buffer;
  const uint64_t stays = c - incoming;
  const uint64_t between = c * (c - 1) + (c * (c - 1) - stays * (stays - std::min<uint64_t>(stays, 1)));
  return largest(rows, c + incoming) + largest(inner, c + incoming) + largest(outer, between);
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
  return key.destination == kRows ? directory.part_bytes(key.source)
                                  : directory.bucket_bytes(key.source, key.destination);
}

std::vector<PartitionBuffer::FrameKey> PartitionBuffer::NewFrames(const PartitionDirectory& directory,
                                                                  const SwapStep* before,
                                                                  const SwapStep& step) {
  std::vector<FrameKey> keys;
  for (const uint32_t part : step.parts) {
    if (before == nullptr || !HoldsPart(*before, part)) keys.push_back({part, kRows});
  }
  ForEachNewBucket(before, step, [&](uint32_t source, uint32_t destination) {
    keys.push_back({source, destination});
  });
  std::erase_if(keys, [&](FrameKey key) { return FrameBytes(directory, key) == 0; });
  return keys;
}

uint64_t PartitionBuffer::Bytes(const PartitionDirectory& directory, const SwapPlan& plan,
                                const PartitionBufferOptions& options) {
  const auto bytes_of = [&](const SwapStep* before, const SwapStep& step) {
    uint64_t bytes = 0;
    for (const FrameKey key : NewFrames(directory, before, step)) {
      bytes += IoBuffer::MappedBytes(FrameBytes(directory, key));
    }
    return bytes;
  };
  uint64_t most = 0;
  const std::vector<SwapStep>& steps = plan.steps();
  for (size_t i = 0; i < steps.size(); ++i) {
    const bool next = options.prefetch && i + 1 < steps.size();
    most = std::max(most, bytes_of(nullptr, steps[i]) + (next ? bytes_of(&steps[i], steps[i + 1]) : 0));
  }
  return most;
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
  return buffer;
}

Status PartitionBuffer::MakeFrames(const SwapStep* before, const SwapStep& step) {
  const PartitionDirectory& directory = partitioning_.directory();
  for (const FrameKey key : NewFrames(directory, before, step)) {
    const uint64_t bytes = FrameBytes(directory, key);
    QUARRY_TRY(IoBuffer pages, IoBuffer::Allocate(bytes));
    stats_.parts_read += key.destination == kRows ? 1 : 0;
    stats_.buckets_read += key.destination == kRows ? 0 : 1;
    stats_.bytes_read += bytes;
    coming_.push_back({key, std::move(pages)});
  }
  return Status::Ok();
}

Status PartitionBuffer::Verify(const Frame& frame) const {
  return frame.key.destination == kRows
             ? partitioning_.VerifyRows(frame.key.source, frame.pages.span())
             : partitioning_.VerifyBucket(frame.key.source, frame.key.destination, frame.pages.span());
}

// Frames are verified as they arrive, while those behind them are being read.
Status PartitionBuffer::ReadFrames() {
  const ScopedSpan span("read parts");
  if (coming_.empty()) return Status::Ok();
  QUARRY_TRY(const std::unique_ptr<IoRing> ring, IoRing::Make(backend_, kPartReadDepth));
  std::vector<uint32_t> left(coming_.size());  // requests of a frame
  std::vector<ReadRequest> requests;
  for (uint64_t i = 0; i < coming_.size(); ++i) {
    const Frame& frame = coming_[i];
    const uint64_t offset = frame.key.destination == kRows
                                ? partitioning_.RowsAt(frame.key.source)
                                : partitioning_.BucketAt(frame.key.source, frame.key.destination);
    for (uint64_t at = 0; at < frame.pages.size(); at += kPartReadBytesMax, ++left[i]) {
      requests.push_back(
          {.file = &partitioning_.file(),
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
  return status;
}

// Lets go of what the next step does not hold.
void PartitionBuffer::Drop(const SwapStep& next) {
  std::erase_if(frames_, [&](const auto& entry) {
    const FrameKey key = entry.second.key;
    return !HoldsPart(next, key.source) || (key.destination != kRows && !HoldsPart(next, key.destination));
  });
}

Result<bool> PartitionBuffer::Next() {
  const SwapStep* const before = StepAt(step_);
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

std::span<const std::byte> PartitionBuffer::Rows(uint32_t part) const {
  assert(HoldsPart(step(), part));
  const auto frame = frames_.find(FrameKey{part, kRows}.number());
  if (frame == frames_.end()) return {};
  const PartitionDirectory& directory = partitioning_.directory();
  return frame->second.pages.span().first(directory.part_nodes(part) * directory.row_stride);
}

EdgeBucket PartitionBuffer::Bucket(uint32_t source, uint32_t destination) const {
  assert(HoldsPart(step(), source) && HoldsPart(step(), destination));
  const auto frame = frames_.find(FrameKey{source, destination}.number());
  // An empty bucket has no frame, and its view reads nothing.
  return partitioning_.View(
      source, destination,
      frame == frames_.end() ? std::span<const std::byte>() : frame->second.pages.span());
}

uint64_t PartitionBuffer::held_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [number, frame] : frames_) bytes += frame.pages.mapped_bytes();
  for (const Frame& frame : coming_) bytes += frame.pages.mapped_bytes();
  return bytes;
}

}  // namespace quarry
