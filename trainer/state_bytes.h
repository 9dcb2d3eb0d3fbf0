// StateWriter and StateReader: what a training run needs to go on, as bytes (docs/format.md, "Training
// states"): fields one after the other, little-endian, nothing aligned.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "quarry/base/status.h"

namespace quarry {

// Arrays go out as they lie in memory.
static_assert(std::endian::native == std::endian::little);

class StateWriter {
 public:
  // `bytes` that are going to be written: a large state grows into no second copy of itself.
  explicit StateWriter(uint64_t bytes = 0) { bytes_.reserve(bytes); }

  template <typename Value>
  void Put(Value value) {
    static_assert(std::is_arithmetic_v<Value>);
    PutBytes(std::as_bytes(std::span(&value, 1)));
  }
  // Their number, then they.
  void PutFloats(std::span<const float> values) {
    Put(uint64_t{values.size()});
    PutBytes(std::as_bytes(values));
  }
  void PutBytes(std::span<const std::byte> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  std::vector<std::byte> Take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// Reads what a StateWriter wrote. The first fault is kept: what is read after it is zeros, so that a caller
// asks once, at the end.
class StateReader {
 public:
  explicit StateReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename Value>
  Value Get() {
    static_assert(std::is_arithmetic_v<Value>);
    Value value{};
    const std::span<const std::byte> bytes = GetBytes(sizeof(Value));
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }
  // `what` names them in the fault of another number than out.size().
  void GetFloats(std::string_view what, std::span<float> out) {
    const auto count = Get<uint64_t>();
    if (status_.ok() && count != out.size()) {
      status_ = MakeStatus(Code::kCorruption, "a training state has {} floats of {} where {} belong", count,
                           what, out.size());
    }
    GetArray(out);
  }
  // The same without their number.
  template <typename Value>
  void GetArray(std::span<Value> out) {
    const std::span<const std::byte> bytes = GetBytes(out.size_bytes());
    if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  }
  // Empty after a fault.
  std::span<const std::byte> GetBytes(uint64_t count) {
    if (status_.ok() && count > bytes_.size() - at_) {
      status_ = MakeStatus(Code::kCorruption, "a training state of {} bytes ends before byte {}",
                           bytes_.size(), at_ + count);
    }
    if (!status_.ok()) return {};
    at_ += count;
    return bytes_.subspan(at_ - count, count);
  }
  Status status() const { return status_; }
  // What is behind the last that was read.
  std::span<const std::byte> rest() const { return bytes_.subspan(at_); }
  // kCorruption also when there is more than was read.
  Status Finish() const {
    if (status_.ok() && at_ != bytes_.size()) {
      return MakeStatus(Code::kCorruption, "a training state of {} bytes has {} too many", bytes_.size(),
                        bytes_.size() - at_);
    }
    return status_;
  }

 private:
  std::span<const std::byte> bytes_;
  uint64_t at_ = 0;
  Status status_;
};

}  // namespace quarry
