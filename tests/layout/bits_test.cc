#include "bits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "quarry/base/random.h"

namespace quarry {
namespace {

using Values = std::vector<uint32_t>;

constexpr uint32_t kMax = 0xffffffff;

// Values of all magnitudes up to `max`, its ends among them.
Values RandomValues(Rng& rng, size_t count, uint32_t max) {
  Values values;
  for (size_t i = 0; i < count; ++i) {
    const auto value = static_cast<uint32_t>(rng.Below(uint64_t{max} + 1));
    values.push_back(rng.Below(8) == 0 ? max : value >> rng.Below(BitsFor(max)));
  }
  return values;
}

// The first `bytes` in memory of exactly that size, so that AddressSanitizer sees a read behind it.
class ExactBytes {
 public:
  ExactBytes(const std::vector<std::byte>& all, size_t bytes) : bytes_(bytes), copy_(new std::byte[bytes]) {
    std::copy_n(all.begin(), bytes, copy_.get());
  }
  std::span<const std::byte> span() const { return {copy_.get(), bytes_}; }

 private:
  const size_t bytes_;
  const std::unique_ptr<std::byte[]> copy_;
};

TEST(BitsTest, BitsForHoldsEveryValueAndNoMoreThanItMust) {
  EXPECT_EQ(BitsFor(0), 1u);
  EXPECT_EQ(BitsFor(1), 1u);
  EXPECT_EQ(BitsFor(2), 2u);
  for (uint32_t bits = 2; bits <= 32; ++bits) {
    EXPECT_EQ(BitsFor((uint64_t{1} << bits) - 1), bits);
    EXPECT_EQ(BitsFor(uint64_t{1} << (bits - 1)), bits);
  }
}

TEST(BitsTest, PackedArraysOfEveryWidthComeBack) {
  for (uint32_t bits = 1; bits <= 32; ++bits) {
    Rng rng(bits);
    for (const size_t count : {0, 1, 2, 3, 7, 8, 9, 31, 64, 100, 1000}) {
      SCOPED_TRACE(testing::Message() << count << " values of " << bits << " bits, seed " << bits);
      const Values values = RandomValues(rng, count, static_cast<uint32_t>((uint64_t{1} << bits) - 1));
      std::vector<std::byte> bytes;
      ByteWriter(bytes).Packed(values, bits);
      EXPECT_EQ(bytes.size(), (count * bits + 7) / 8);
      const ExactBytes exact(bytes, bytes.size());
      ByteReader reader(exact.span());
      Values back(count);
      reader.Packed(back, bits);
      EXPECT_TRUE(reader.ok());
      EXPECT_EQ(back, values);
    }
  }
}

TEST(BitsTest, AscendingListsComeBackUpToTheLargestValue) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    Values values = RandomValues(rng, rng.Below(300), seed % 2 == 0 ? kMax : 500);
    std::ranges::sort(values);
    std::vector<std::byte> bytes;
    ByteWriter(bytes).Ascending(values);
    const ExactBytes exact(bytes, bytes.size());
    ByteReader reader(exact.span());
    Values back(values.size());
    reader.Ascending(back);
    EXPECT_TRUE(reader.ok());
    EXPECT_EQ(back, values);
  }
}

TEST(BitsTest, AscendingListsTakeAByteAValueWhereTheyAreDense) {
  Values values = {0, 0, 127, 254, 254 + 128, kMax};
  std::vector<std::byte> bytes;
  ByteWriter(bytes).Ascending(values);
  EXPECT_EQ(bytes.size(), 4u + 2 + 5);
}

// What a block is: several arrays one behind the other.
struct Mixed {
  explicit Mixed(uint64_t seed) {
    Rng rng(seed);
    bits = 1 + static_cast<uint32_t>(rng.Below(32));
    word = static_cast<uint32_t>(rng());
    list = RandomValues(rng, 1 + rng.Below(40), kMax);
    std::ranges::sort(list);
    array = RandomValues(rng, 1 + rng.Below(40), static_cast<uint32_t>((uint64_t{1} << bits) - 1));
  }
  std::vector<std::byte> Write() const {
    std::vector<std::byte> bytes;
    ByteWriter writer(bytes);
    writer.U32(word);
    writer.Ascending(list);
    writer.Packed(array, bits);
    writer.U32(word);
    return bytes;
  }
  // False where the reader noticed an end too early.
  bool Read(std::span<const std::byte> bytes, Mixed& out) const {
    ByteReader reader(bytes);
    out.word = reader.U32();
    reader.Ascending(out.list);
    reader.Packed(out.array, bits);
    const uint32_t last = reader.U32();
    if (reader.ok()) {
      EXPECT_EQ(last, word);
    }
    return reader.ok();
  }
  uint32_t bits = 1;
  uint32_t word = 0;
  Values list, array;
};

TEST(BitsTest, TruncatedInputIsNoticedAtEveryLengthAndNotReadBehind) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Mixed written(seed);
    const std::vector<std::byte> bytes = written.Write();
    Mixed back(seed + 1000);
    back.list.assign(written.list.size(), 0);
    back.array.assign(written.array.size(), 0);
    ASSERT_TRUE(written.Read(ExactBytes(bytes, bytes.size()).span(), back));
    EXPECT_EQ(back.word, written.word);
    EXPECT_EQ(back.list, written.list);
    EXPECT_EQ(back.array, written.array);
    for (size_t length = 0; length < bytes.size(); ++length) {
      EXPECT_FALSE(written.Read(ExactBytes(bytes, length).span(), back)) << "length " << length;
    }
  }
}

TEST(BitsTest, AValueOfMoreThanFiveBytesIsNoticed) {
  const std::vector<std::byte> endless(16, std::byte{0x80});
  const ExactBytes exact(endless, endless.size());
  ByteReader reader(exact.span());
  Values values(1);
  reader.Ascending(values);
  EXPECT_FALSE(reader.ok());
}

}  // namespace
}  // namespace quarry
