// The manifest of a place: what it says comes back, and what was changed in it is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quarry/format/checksum.h"
#include "quarry/objects/remote_manifest.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;

RemoteManifest Example() {
  return {.database_id = "0123",
          .publication = "feed",
          .published_utc = "2025-11-26T10:00:00Z",
          .timestamp = 17,
          .files = {{.name = "VERSION", .bytes = 2, .blocks = {1}},
                    {.name = "catalog/empty", .bytes = 0, .blocks = {}},
                    {.name = "topology/a graph.qtp", .bytes = kRemoteBlockBytes + 1, .blocks = {~0ULL, 0}}}};
}

// With the checksum that its text asks for.
std::string Resealed(std::string text) {
  text.resize(text.rfind("checksum "));
  return text + fmt::format("checksum {:016x}\n", Checksum64(std::as_bytes(std::span(text))));
}

TEST(RemoteManifestTest, ComesBackAsItWas) {
  ASSERT_OK_AND_ASSIGN(const RemoteManifest back, DecodeRemoteManifest(EncodeRemoteManifest(Example()), "x"));
  EXPECT_EQ(back, Example());
  EXPECT_EQ(back.bytes(), kRemoteBlockBytes + 3);
}

TEST(RemoteManifestTest, EveryChangedByteIsFound) {
  const std::string text = EncodeRemoteManifest(Example());
  for (size_t i = 0; i < text.size(); i++) {
    std::string wrong = text;
    wrong[i] = static_cast<char>(wrong[i] ^ 1);
    EXPECT_FALSE(DecodeRemoteManifest(wrong, "x").ok()) << i;
    EXPECT_FALSE(DecodeRemoteManifest(text.substr(0, i), "x").ok()) << i;
  }
  EXPECT_FALSE(DecodeRemoteManifest(text + "x", "x").ok());
}

TEST(RemoteManifestTest, WhatASealCoversIsCheckedToo) {
  const auto refused = [](const std::string& from, const std::string& to) {
    std::string text = EncodeRemoteManifest(Example());
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    return DecodeRemoteManifest(Resealed(text), "s3://b/p/manifest").status();
  };
  EXPECT_THAT(refused("objects 1", "objects 2"), IsStatus(Code::kUnsupported, HasSubstr("quarry-objects 2")));
  EXPECT_THAT(refused("block_bytes 4194304", "block_bytes 1"),
              IsStatus(Code::kUnsupported, HasSubstr("blocks of 1 bytes")));
  for (const char* const name : {"../VERSION", "/VERSION", "a/../b", "a//b", "a/", "."}) {
    EXPECT_THAT(refused("2 VERSION", fmt::format("2 {}", name)),
                IsStatus(Code::kCorruption, HasSubstr(name)));
  }
  EXPECT_THAT(refused("catalog/empty", "VERSION"), IsStatus(Code::kCorruption, HasSubstr("second time")));
  EXPECT_THAT(refused("files 3", "files 2"), IsStatus(Code::kCorruption, HasSubstr("more than the files")));
  EXPECT_THAT(refused("files 3", "files 99999999999"), IsStatus(Code::kCorruption, HasSubstr("no 'file'")));
  EXPECT_THAT(refused("file 2 ", "file 18446744073709551615 "),
              IsStatus(Code::kCorruption, HasSubstr("line 9")));
  EXPECT_THAT(refused("timestamp 17", "timestamp x"),
              IsStatus(Code::kCorruption, HasSubstr("line 5: 'x' is no number")));
}

}  // namespace
}  // namespace quarry
