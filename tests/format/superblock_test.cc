#include "quarry/format/superblock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "quarry/base/random.h"
#include "quarry/format/checksum.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;

Superblock Example() {
  Superblock superblock;
  superblock.kind = FileKind::kFeatureTable;
  for (size_t i = 0; i < 16; ++i) superblock.database_id[i] = static_cast<std::byte>(0xa0 + i);
  superblock.generation = 3;
  superblock.element_type = ElementType::kBfloat16;
  superblock.row_count = 0x0102030405;
  superblock.dim = 128;
  superblock.edge_count = 0;
  superblock.footer_offset = 0x10000;
  superblock.footer_bytes = 200;
  superblock.footer_checksum = 0x1122334455667788;
  return superblock;
}

std::string Hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte b : bytes) text += fmt::format("{:02x}", std::to_integer<unsigned>(b));
  return text;
}

std::span<const std::byte> Bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(SuperblockTest, HasTheBytesOfTheFormat) {
  const auto bytes = EncodeSuperblock(Example());
  EXPECT_EQ(Hex(std::span(bytes).first(96)),
            "895155415252590a"  // magic
            "01000000"          // format version
            "01000000"          // kind
            "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf"
            "0300000000000000"  // generation
            "0504030201000000"  // rows
            "8000000000000000"  // dim
            "0000000000000000"  // edges
            "0000010000000000"  // footer: offset,
            "c800000000000000"  // bytes,
            "8877665544332211"  // checksum
            "00100000"          // page
            "03000000");        // element type, reserved
  EXPECT_TRUE(
      std::all_of(bytes.begin() + 96, bytes.end() - 8, [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_EQ(Hex(std::span(bytes).last(8)), "3c6d8d5907377af9");
}

TEST(SuperblockTest, ChecksumsAreThoseOfTheFormat) {
  EXPECT_EQ(Checksum64(Bytes("")), 0x2d06800538d394c2u);  // XXH3's published value for no input
  EXPECT_EQ(fmt::format("{:x}", Checksum64(Bytes("quarry"))), "7ad60bec274371b3");
  EXPECT_EQ(fmt::format("{:x}", CellChecksum(Bytes("quarry"), 0)), "c4a81fc9");
  EXPECT_EQ(fmt::format("{:x}", CellChecksum(Bytes("quarry"), 1)), "459d0b72");
}

TEST(SuperblockTest, StreamedChecksumsEqualWholeOnes) {
  constexpr uint64_t kSeed = 6;
  SCOPED_TRACE(kSeed);
  Rng rng(kSeed);
  std::vector<std::byte> bytes(100000);
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng());
  for (int round = 0; round < 50; ++round) {
    Checksum64Stream stream;
    const std::span<const std::byte> all = std::span(bytes).first(rng.Below(bytes.size()));
    for (size_t at = 0; at < all.size();) {
      const size_t take = std::min<size_t>(all.size() - at, 1 + rng.Below(9000));
      stream.Update(all.subspan(at, take));
      at += take;
    }
    ASSERT_EQ(stream.Digest(), Checksum64(all));
  }
}

TEST(SuperblockTest, RoundTrips) {
  const Superblock in = Example();
  const Superblock out = DecodeSuperblock(EncodeSuperblock(in), "x.qft").value();
  EXPECT_EQ(EncodeSuperblock(out), EncodeSuperblock(in));
  EXPECT_EQ(out.row_count, in.row_count);
  EXPECT_EQ(out.footer_checksum, in.footer_checksum);
}

TEST(SuperblockTest, EveryFlippedBitIsCorruption) {
  const auto sound = EncodeSuperblock(Example());
  for (size_t at = 0; at < sound.size(); ++at) {
    auto bytes = sound;
    bytes[at] ^= static_cast<std::byte>(1 << (at % 8));
    const Status status = DecodeSuperblock(bytes, "x.qft").status();
    ASSERT_THAT(status, IsStatus(Code::kCorruption)) << at;
    ASSERT_THAT(std::string(status.message()), HasSubstr("x.qft: "));
  }
}

TEST(SuperblockTest, NewerVersionsAreUnsupportedNotCorrupt) {
  auto bytes = EncodeSuperblock(Example());
  bytes[8] = std::byte{2};
  const uint64_t checksum = Checksum64(std::span(bytes).first(kSuperblockBytes - 8));
  std::memcpy(&bytes[kSuperblockBytes - 8], &checksum, 8);
  const Status status = DecodeSuperblock(bytes, "x.qft").status();
  EXPECT_THAT(status, IsStatus(Code::kUnsupported, HasSubstr("version 2")));
}

TEST(SuperblockTest, AWrongMagicSaysWhatTheFileLooksLike) {
  const auto message = [](std::string_view start) {
    std::vector<std::byte> bytes(kSuperblockBytes, std::byte{0xee});
    std::memcpy(bytes.data(), start.data(), start.size());
    return std::string(DecodeSuperblock(bytes, "x.qft").status().message());
  };
  using std::string_view_literals::operator""sv;
  EXPECT_THAT(message("\x93NUMPY\x01\x00"sv), HasSubstr("NumPy"));
  EXPECT_THAT(message("PK\x03\x04"sv), HasSubstr("zip"));
  EXPECT_THAT(message("\x1f\x8b\x08"sv), HasSubstr("gzip"));
  EXPECT_THAT(message("SQLite format 3\0"sv), HasSubstr("SQLite"));
  EXPECT_THAT(message("\x01\x02"sv), HasSubstr("does not know"));
  EXPECT_THAT(std::string(DecodeSuperblock(Bytes("1,2\n3,4\n"), "x").status().message()),
              HasSubstr("a text file"));
  EXPECT_THAT(std::string(DecodeSuperblock({}, "x").status().message()), HasSubstr("an empty file"));
  EXPECT_THAT(std::string(DecodeSuperblock(std::vector<std::byte>(4096), "x").status().message()),
              HasSubstr("never finished"));
}

TEST(SuperblockTest, KnowsItsSevenKindsAndNoOther) {
  for (uint32_t kind = 0; kind <= 7; ++kind) {
    Superblock in = Example();
    in.kind = static_cast<FileKind>(kind);
    const Result<Superblock> out = DecodeSuperblock(EncodeSuperblock(in), "x");
    ASSERT_EQ(out.ok(), kind >= 1 && kind <= 7) << kind;
    if (out.ok()) {
      EXPECT_EQ(out->kind, in.kind);
    } else {
      EXPECT_THAT(out, IsStatus(Code::kUnsupported));
    }
  }
}

TEST(SuperblockTest, ATruncatedOneIsCorruption) {
  const auto bytes = EncodeSuperblock(Example());
  const Status status = DecodeSuperblock(std::span(bytes).first(1000), "x.qft").status();
  EXPECT_THAT(status, IsStatus(Code::kCorruption, HasSubstr("1000 bytes")));
}

TEST(FooterTest, RoundTrips) {
  const Footer in{
      .sections = {{.name = "rows", .offset = 4096, .bytes = 1 << 20, .checked_by = "rows_checksums"},
                   {.name = "rows_checksums", .offset = 2 << 20, .bytes = 77, .checksum = ~uint64_t{0}}}};
  const Footer out = DecodeFooter(EncodeFooter(in), "x.qft").value();
  ASSERT_EQ(out.sections.size(), 2u);
  ASSERT_NE(out.Find("rows_checksums"), nullptr);
  EXPECT_EQ(out.Find("rows_checksums")->checksum, ~uint64_t{0});
  EXPECT_EQ(out.Find("rows")->bytes, uint64_t{1} << 20);
  EXPECT_EQ(out.Find("rows")->checked_by, "rows_checksums");
  EXPECT_EQ(out.Find("row"), nullptr);
}

}  // namespace
}  // namespace quarry
