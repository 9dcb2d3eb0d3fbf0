// Messages of the local protocol: what requests and answers share on their way to bytes and back. Private to
// this room.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "capnp_bytes.h"
#include "quarry/format/wire.h"
#include "wire.capnp.h"

namespace quarry::wire {

// 89 'Q' 'W' 'I' 'R' 'E' 0d 0a, as a little-endian number: in both sides' first message.
inline constexpr uint64_t kMagic = 0x0a0d455249575189;

// Builds messages whose segments double: seven of them hold the largest, so they never exceed the limit.
inline unsigned FirstSegmentWords(uint32_t bytes_max) { return std::max(bytes_max / 8 / 64, 64u); }

// The message behind its header. kInvalidArgument when it exceeds `bytes_max`; `what` names it.
Result<std::vector<std::byte>> FrameOf(uint64_t id, uint32_t fds, capnp::MessageBuilder& message,
                                       uint32_t bytes_max, std::string_view what);

// The framing of segments: at most so many, and as long together as the message. kCorruption otherwise.
Status CheckSegments(std::span<const std::byte> message, const Limits& limits);

// Hands the root of a stranger's message to `read` (Root::Reader -> Result<T>). kCorruption when the bytes
// are no such message, or following its pointers would go further than the limits.
template <typename Root, typename T, typename Read>
Result<T> ReadFrame(const Frame& frame, const Limits& limits, std::string_view what, Read read) {
  QUARRY_RETURN_IF_ERROR(CheckSegments(frame.message, limits));
  // Copied to aligned words, which the reader requires.
  kj::Array<capnp::word> words = kj::heapArray<capnp::word>(frame.message.size() / sizeof(capnp::word));
  std::memcpy(words.begin(), frame.message.data(), frame.message.size());
  Result<T> result = MakeStatus(Code::kInternal, "{} {} was not read", what, frame.id);
  const auto failure = kj::runCatchingExceptions([&] {
    capnp::ReaderOptions options;
    options.traversalLimitInWords = limits.traversal_words(frame.message.size());
    options.nestingLimit = static_cast<int>(limits.nesting_max);
    capnp::FlatArrayMessageReader message(words, options);
    result = read(message.getRoot<Root>());
  });
  KJ_IF_MAYBE (exception, failure) {
    return MakeStatus(Code::kCorruption, "{} {}: its message ({} bytes) cannot be decoded: {}", what,
                      frame.id, frame.message.size(), exception->getDescription().cStr());
  }
  return result;
}

// A limit of what a message has of something; lists of structs are held to theirs before they are read, too.
inline Status CheckCount(uint64_t count, uint64_t count_max, std::string_view what) {
  if (count <= count_max) return Status();
  return MakeStatus(Code::kInvalidArgument, "{} {}; the limit is {}", count, what, count_max);
}

inline unsigned Count(const auto& list) { return static_cast<unsigned>(list.size()); }

}  // namespace quarry::wire
