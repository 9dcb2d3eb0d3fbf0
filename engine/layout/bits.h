// Compact integers of planned blocks: bit-packed arrays and ascending lists as varint deltas. Pure; private
// to this room.
//
// Readers take the bytes of verified pages; a malformed array is still caught: they never read past the end
// and remember that they would have.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace quarry {

// Bits that hold 0..max_value; at least 1.
constexpr uint32_t BitsFor(uint64_t max_value) {
  return max_value < 2 ? 1 : static_cast<uint32_t>(std::bit_width(max_value));
}

class ByteWriter {
 public:
  explicit ByteWriter(std::vector<std::byte>& out) : out_(out) {}
  void U32(uint32_t value) {
    const size_t at = out_.size();
    out_.resize(at + sizeof(value));
    std::memcpy(out_.data() + at, &value, sizeof(value));
  }
  // An ascending list (equal neighbors allowed): the first value, then the differences, 7 bits a byte.
  void Ascending(std::span<const uint32_t> values) {
    uint32_t previous = 0;
    for (const uint32_t value : values) {
      uint32_t delta = value - previous;
      previous = value;
      for (; delta >= 0x80; delta >>= 7) out_.push_back(static_cast<std::byte>(delta | 0x80));
      out_.push_back(static_cast<std::byte>(delta));
    }
  }
  // Values below 2^bits, `bits` each, padded to whole bytes.
  void Packed(std::span<const uint32_t> values, uint32_t bits) {
    uint64_t pending = 0;
    uint32_t used = 0;
    size_t at = out_.size();
    out_.resize(at + (values.size() * bits + 7) / 8);
    for (const uint32_t value : values) {
      pending |= uint64_t{value} << used;
      used += bits;
      while (used >= 8) {
        out_[at++] = static_cast<std::byte>(pending);
        pending >>= 8;
        used -= 8;
      }
    }
    if (used > 0) out_[at] = static_cast<std::byte>(pending);
  }

 private:
  std::vector<std::byte>& out_;
};

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : at_(bytes.data()), end_(at_ + bytes.size()) {}
  bool ok() const { return ok_; }

  uint32_t U32() {
    uint32_t value = 0;
    if (!Has(sizeof(value))) return 0;
    std::memcpy(&value, at_, sizeof(value));
    at_ += sizeof(value);
    return value;
  }
  void Ascending(std::span<uint32_t> out) {
    uint32_t previous = 0;
    for (uint32_t& value : out) {
      uint32_t delta = 0;
      for (uint32_t shift = 0;; shift += 7) {
        if (at_ == end_ || shift > 28) {
          ok_ = false;
          return;
        }
        const auto byte = static_cast<uint32_t>(*at_++);
        delta |= (byte & 0x7f) << shift;
        if (byte < 0x80) break;
      }
      value = previous += delta;
    }
  }
  // REQUIRES: 1 <= bits <= 32
  void Packed(std::span<uint32_t> out, uint32_t bits) {
    const uint64_t bytes = (out.size() * uint64_t{bits} + 7) / 8;
    if (!Has(bytes)) return;
    const std::byte* const begin = at_;
    const uint64_t mask = (uint64_t{1} << bits) - 1;
    const auto available = static_cast<uint64_t>(end_ - begin);
    uint64_t bit = 0;
    for (uint32_t& value :
         out) {  // eight bytes at a time hold any value of 32 bits at any bit offset below 8
      uint64_t word = 0;
      const uint64_t byte = bit / 8;
      std::memcpy(&word, begin + byte, available - byte >= 8 ? 8 : available - byte);
      value = static_cast<uint32_t>(word >> bit % 8 & mask);
      bit += bits;
    }
    at_ += bytes;
  }

 private:
  bool Has(uint64_t bytes) {
    ok_ = ok_ && static_cast<uint64_t>(end_ - at_) >= bytes;
    return ok_;
  }
  const std::byte* at_;
  const std::byte* const end_;
  bool ok_ = true;
};

}  // namespace quarry
