#include <algorithm>
#include <utility>

#include "quarry/format/little_endian.h"
#include "quarry/format/wire.h"
#include "wire_bytes.h"

namespace quarry::wire {
namespace {

// Offsets of the header's fields.
constexpr size_t kMessageBytesAt = 0;
constexpr size_t kFdsAt = 4;
constexpr size_t kIdAt = 8;
static_assert(kIdAt + 8 == kFrameHeaderBytes);

constexpr size_t kWordBytes = 8;
constexpr size_t kFirstReserveBytes = 4096;

}  // namespace

Status FrameDecoder::ReadHeader() {
  message_bytes_ = LoadLittle<uint32_t>(&header_[kMessageBytesAt]);
  frame_.fds = LoadLittle<uint32_t>(&header_[kFdsAt]);
  frame_.id = LoadLittle<uint64_t>(&header_[kIdAt]);
  if (message_bytes_ == 0 || message_bytes_ % kWordBytes != 0) {
    return MakeStatus(Code::kCorruption,
                      "frame {}: a message of {} bytes, which is no positive number of words", frame_.id,
                      message_bytes_);
  }
  if (message_bytes_ > bytes_max_) {
    return MakeStatus(Code::kUsage, "frame {}: a message of {} bytes; the limit is {}", frame_.id,
                      message_bytes_, bytes_max_);
  }
  if (frame_.fds > limits_.fds_max) {
    return MakeStatus(Code::kUsage, "frame {}: {} file descriptors; the limit is {}", frame_.id, frame_.fds,
                      limits_.fds_max);
  }
  return Status();
}

Result<std::optional<Frame>> FrameDecoder::Next(std::span<const std::byte>& bytes) {
  QUARRY_RETURN_IF_ERROR(fault_);
  if (header_bytes_ < kFrameHeaderBytes) {
    const size_t count = std::min(bytes.size(), kFrameHeaderBytes - header_bytes_);
    std::copy_n(bytes.begin(), count, header_.begin() + header_bytes_);
    header_bytes_ += count;
    bytes = bytes.subspan(count);
    if (header_bytes_ < kFrameHeaderBytes) return std::optional<Frame>();
    fault_ = ReadHeader();
    QUARRY_RETURN_IF_ERROR(fault_);
  }
  std::vector<std::byte>& message = frame_.message;
  const size_t count = std::min(bytes.size(), message_bytes_ - message.size());
  if (message.capacity() < message.size() + count) {
    // As bytes arrive, not as the header claims: a claim costs the peer nothing.
    const size_t wanted = std::max(kFirstReserveBytes, 2 * (message.size() + count));
    message.reserve(std::min<size_t>(message_bytes_, wanted));
  }
  message.insert(message.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(count));
  bytes = bytes.subspan(count);
  if (message.size() < message_bytes_) return std::optional<Frame>();
  header_bytes_ = 0;
  return std::optional<Frame>(std::exchange(frame_, {}));
}

Result<std::vector<std::byte>> FrameOf(uint64_t id, uint32_t fds, capnp::MessageBuilder& message,
                                       uint32_t bytes_max, std::string_view what) {
  const uint64_t bytes = capnp::computeSerializedSizeInWords(message) * kWordBytes;
  if (bytes > bytes_max) {
    return MakeStatus(Code::kInvalidArgument, "{} {}: a message of {} bytes; the limit is {}", what, id,
                      bytes, bytes_max);
  }
  const std::vector<std::byte> body = MessageBytes(message);
  std::vector<std::byte> frame(kFrameHeaderBytes + body.size());
  StoreLittle<uint32_t>(&frame[kMessageBytesAt], static_cast<uint32_t>(body.size()));
  StoreLittle<uint32_t>(&frame[kFdsAt], fds);
  StoreLittle<uint64_t>(&frame[kIdAt], id);
  std::ranges::copy(body, frame.begin() + kFrameHeaderBytes);
  return frame;
}

// uint32 segments - 1 | uint32 words of each | padding to a word | the segments.
Status CheckSegments(std::span<const std::byte> message, const Limits& limits) {
  if (message.empty() || message.size() % kWordBytes != 0) {
    return MakeStatus(Code::kCorruption, "a message of {} bytes, which is no positive number of words",
                      message.size());
  }
  const uint64_t segments = uint64_t{LoadLittle<uint32_t>(message.data())} + 1;
  if (segments > limits.segments_max) {
    return MakeStatus(Code::kCorruption, "a message of {} segments; the limit is {}", segments,
                      limits.segments_max);
  }
  const uint64_t table_words = segments / 2 + 1;
  uint64_t words = table_words;
  if (table_words * kWordBytes <= message.size()) {
    for (uint64_t i = 0; i < segments; ++i) words += LoadLittle<uint32_t>(&message[4 * (i + 1)]);
  }
  if (words * kWordBytes != message.size()) {
    return MakeStatus(Code::kCorruption, "a message of {} bytes, whose {} segments take {}", message.size(),
                      segments, words * kWordBytes);
  }
  return Status();
}

Result<uint16_t> AgreeVersion(const Hello& hello) {
  if (hello.version_min <= kProtocolVersion && kProtocolVersion <= hello.version_max) return kProtocolVersion;
  return MakeStatus(
      Code::kUnsupported,
      "the client speaks versions {} to {} of the protocol, the server version {}: use the same "
      "Quarry on both sides",
      hello.version_min, hello.version_max, kProtocolVersion);
}

Status CheckRange(const Range& range, uint64_t region_bytes) {
  if (range.offset <= region_bytes && range.bytes <= region_bytes - range.offset) return Status();
  return MakeStatus(Code::kInvalidArgument, "{} bytes at {} of region {}, which has {}", range.bytes,
                    range.offset, range.region, region_bytes);
}

// docs/protocol.md has their numbers.
static_assert(static_cast<int>(Code::kUsage) == 1 && static_cast<int>(Code::kInternal) == 12);

Failure ToFailure(const Status& status) {
  return {.code = status.code(), .message = std::string(status.message().substr(0, kFailureBytesMax))};
}

Status ToStatus(const Failure& failure) { return {failure.code, failure.message}; }

}  // namespace quarry::wire
