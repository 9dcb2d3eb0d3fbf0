// ByteSource: the bytes of a foreign file from some offset on: plain, gzip or a zip member. Private to this
// room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "quarry/base/status.h"

namespace quarry {

// One cursor, used by one thread.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Fills `out` unless the end comes first; returns the bytes filled.
  virtual Result<size_t> Read(std::span<std::byte> out) = 0;
  // Goes on `bytes` bytes behind where it is; that the end lies before it, the next Read finds.
  virtual Status Skip(uint64_t bytes);
  // Bytes of the file behind it that have been consumed (compressed ones where it is compressed).
  virtual uint64_t consumed_bytes() const = 0;
};

Result<std::unique_ptr<ByteSource>> OpenPlainFile(const std::string& path, uint64_t offset);

// gzip by content, whatever the name says; anything else is read as it is.
Result<std::unique_ptr<ByteSource>> OpenTextFile(const std::string& path);

// Whether something is at the path, be it a link that leads nowhere or in a circle: whoever opens it says so.
bool IsThere(const std::string& path);

// kNotFound, or kInvalidArgument when it is no regular file.
Result<uint64_t> RegularFileBytes(const std::string& path);

// The first bytes of a file, at most `bytes`.
Result<std::string> ReadPrefix(const std::string& path, size_t bytes);

// For a file of a known format that begins so and is not read here: what it is, and how it comes in. Else empty.
std::string HowToRead(std::string_view prefix);

// "a zip archive", "gzip data", ...: what a file that starts with `prefix` looks like, for messages.
std::string DescribePrefix(std::string_view prefix);

}  // namespace quarry
