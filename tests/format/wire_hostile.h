// Frames that a peer sends to do harm, made word by word: every one is to be refused. They are also the
// corpus of the fuzz target (tests/fuzz).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/format/wire.h"

namespace quarry::wire {

struct HostileFrame {
  std::string name;
  std::vector<std::byte> bytes;
};

// ---- words of Cap'n Proto messages

// A pointer to a struct `offset` words behind it.
constexpr uint64_t StructPointer(int32_t offset, uint64_t data_words, uint64_t pointers) {
  return (static_cast<uint32_t>(offset) << 2) | data_words << 32 | pointers << 48;
}
// To a list; element sizes: 0 void, 2 a byte, 4 four bytes, 7 structs (count: of words).
constexpr uint64_t ListPointer(int32_t offset, uint64_t element_size, uint64_t count) {
  return (static_cast<uint32_t>(offset) << 2 | 1) | element_size << 32 | count << 35;
}
// To a word of another segment, which holds the pointer, or two.
constexpr uint64_t FarPointer(uint64_t word, uint64_t segment, bool two = false) {
  return 2 | (two ? 4 : 0) | word << 3 | segment << 32;
}

// Request and Response: the number of the kind, a number, a pointer.
constexpr uint64_t kRoot = StructPointer(0, 2, 1);
constexpr uint64_t kLookupKind = 3, kPutKind = 13, kPingKind = 17, kSaveTrainingKind = 19,
                   kReadEdgesKind = 21;

using Words = std::vector<uint64_t>;

inline std::vector<std::byte> FrameOfWords(uint32_t message_bytes, uint32_t fds, uint64_t id,
                                           const Words& words) {
  std::vector<std::byte> bytes(kFrameHeaderBytes + 8 * words.size());
  std::memcpy(&bytes[0], &message_bytes, 4);
  std::memcpy(&bytes[4], &fds, 4);
  std::memcpy(&bytes[8], &id, 8);
  if (!words.empty()) std::memcpy(&bytes[kFrameHeaderBytes], words.data(), 8 * words.size());
  return bytes;
}

// A frame that is right around a message of one segment.
inline std::vector<std::byte> FrameOfSegment(const Words& segment, uint64_t id = 7, uint32_t fds = 0) {
  Words words = {uint64_t{segment.size()} << 32};
  words.insert(words.end(), segment.begin(), segment.end());
  return FrameOfWords(static_cast<uint32_t>(8 * words.size()), fds, id, words);
}

// A lookup whose parts are the given words: its pointers to the table's name and to the ids first.
inline Words LookupWords(const Words& parts) {
  Words words = {kRoot, kLookupKind, 0, StructPointer(0, 1, 2), 0};
  words.insert(words.end(), parts.begin(), parts.end());
  return words;
}

// A piece of 8 bytes, in region 1, of a training's state: of so many bytes, at `offset`, for the run "abc".
inline Words SaveTrainingWords(uint64_t state_bytes, uint64_t offset, uint64_t name, uint64_t settings) {
  constexpr uint64_t kAbc = 0x636261;
  return {kRoot,
          kSaveTrainingKind,
          0,
          StructPointer(0, 3, 3),
          state_bytes,
          offset,
          0,
          name,
          settings,
          StructPointer(1, 1, 1),
          kAbc,
          1,
          StructPointer(0, 3, 0),
          1,
          0,
          8};
}

// ---- frames

inline void AddHostileHeaders(std::vector<HostileFrame>& frames) {
  const Words ping = {uint64_t{4} << 32, kRoot, kPingKind, 0, 0};
  frames.push_back({"length-0", FrameOfWords(0, 0, 7, {})});
  frames.push_back({"length-12", FrameOfWords(12, 0, 7, ping)});
  frames.push_back({"length-over-the-limit", FrameOfWords((1 << 20) + 8, 0, 7, ping)});
  frames.push_back({"length-2-31", FrameOfWords(uint32_t{1} << 31, 0, 7, ping)});
  frames.push_back({"length-2-32-less-8", FrameOfWords(0xfffffff8, 0, 7, ping)});
  frames.push_back({"length-2-32-less-1", FrameOfWords(0xffffffff, 0, 7, ping)});
  frames.push_back({"descriptors-17", FrameOfWords(40, 17, 7, ping)});
  frames.push_back({"descriptors-2-32-less-1", FrameOfWords(40, 0xffffffff, 7, ping)});
  constexpr std::string_view kHttp = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  HostileFrame http = {"http", std::vector<std::byte>(kHttp.size())};
  std::memcpy(http.bytes.data(), kHttp.data(), kHttp.size());
  frames.push_back(std::move(http));
}

inline void AddHostileSegments(std::vector<HostileFrame>& frames) {
  const auto add = [&frames](std::string name, const Words& words) {
    frames.push_back({std::move(name), FrameOfWords(static_cast<uint32_t>(8 * words.size()), 0, 7, words)});
  };
  add("segments-9", {8 | uint64_t{4} << 32, 0, 0, 0, 0, kRoot, kPingKind, 0, 0});
  add("segments-513", {512 | uint64_t{4} << 32, kRoot, kPingKind, 0, 0});
  add("segments-2-32", {0xffffffff | uint64_t{4} << 32, kRoot, kPingKind, 0, 0});
  add("segments-behind-the-end", {7});
  add("segment-longer-than-the-message", {uint64_t{5} << 32, kRoot, kPingKind, 0, 0});
  add("segment-shorter-than-the-message", {uint64_t{3} << 32, kRoot, kPingKind, 0, 0});
  add("word-behind-the-last-segment", {uint64_t{4} << 32, kRoot, kPingKind, 0, 0, 0});
  add("segment-2-32-less-1", {uint64_t{0xffffffff} << 32, kRoot, kPingKind, 0, 0});
  add("segments-that-wrap", {1 | uint64_t{0xffffffff} << 32, 5, kRoot, kPingKind, 0, 0});
  add("segment-empty", {0});
}

inline void AddHostileRoots(std::vector<HostileFrame>& frames) {
  const auto add = [&frames](std::string name, const Words& segment) {
    frames.push_back({std::move(name), FrameOfSegment(segment)});
  };
  add("root-null", {0});
  add("root-out-of-range", {StructPointer(1000, 2, 1), kPingKind, 0, 0});
  add("root-before-the-message", {StructPointer(-100, 2, 1), kPingKind, 0, 0});
  add("root-larger-than-the-message", {StructPointer(0, 0xffff, 0xffff), kPingKind, 0, 0});
  add("root-is-a-list", {ListPointer(0, 4, 2), kPingKind, 0, 0});
  add("root-far-to-nowhere", {FarPointer(0, 5), kPingKind, 0, 0});
  add("root-far-out-of-range", {FarPointer(1000, 0), kPingKind, 0, 0});
  add("root-far-to-itself", {FarPointer(0, 0), kPingKind, 0, 0});
  add("root-two-far-to-itself", {FarPointer(0, 0, true), kPingKind, 0, 0});
  add("root-is-a-capability", {3, kPingKind, 0, 0});
  // Its only pointer is the root itself: an endless nest of requests.
  add("root-in-itself", {StructPointer(-1, 0, 1)});
  add("kind-unknown", {kRoot, 0xffff, 0, 0});
  add("hello-of-nothing", {kRoot, 0, 0, 0});
  add("lookup-of-nothing", {kRoot, kLookupKind, 0, 0});
  frames.push_back({"request-0", FrameOfSegment({kRoot, kPingKind, 0, 0}, 0)});
  frames.push_back({"request-with-a-descriptor", FrameOfSegment({kRoot, kPingKind, 0, 0}, 7, 1)});
}

inline void AddHostilePointers(std::vector<HostileFrame>& frames) {
  const auto add = [&frames](std::string name, const Words& segment) {
    frames.push_back({std::move(name), FrameOfSegment(segment)});
  };
  constexpr uint64_t kAbc = 0x636261;  // "abc" and its end
  constexpr uint64_t kCountMax = (uint64_t{1} << 29) - 1;
  add("name-out-of-range", LookupWords({ListPointer(1000, 2, 4), 0, kAbc}));
  add("name-of-2-29-bytes", LookupWords({ListPointer(1, 2, kCountMax), 0, kAbc}));
  add("name-without-end", LookupWords({ListPointer(1, 2, 8), 0, 0x6161616161616161}));
  add("name-is-a-struct", LookupWords({StructPointer(1, 1, 0), 0, kAbc}));
  add("name-in-itself", LookupWords({ListPointer(-1, 2, 8), 0, kAbc}));
  add("path-as-name", LookupWords({ListPointer(1, 2, 8), 0, 0x00782f2e2e2f2e2e}));  // "../../x"
  const Words name = {ListPointer(1, 2, 4), StructPointer(1, 1, 1), kAbc};
  const auto with_ids = [&name](const Words& ids) {
    Words parts = name;
    parts.insert(parts.end(), ids.begin(), ids.end());
    return LookupWords(parts);
  };
  add("ids-of-2-29", with_ids({0, ListPointer(0, 4, kCountMax)}));
  add("ids-of-nothing-2-29-times", with_ids({0, ListPointer(0, 0, kCountMax)}));
  add("ids-of-structs-of-nothing-2-29-times", with_ids({0, ListPointer(0, 7, 0), kCountMax << 2}));
  add("ids-of-unknown-kind", with_ids({0xffff, 0}));
  // 10 GB of ids in a region: offset 0, bytes 10 x 2^30.
  add("ids-of-10-gb", with_ids({1, StructPointer(0, 3, 0), 1, 0, uint64_t{10} << 30}));
  const Words put = {kRoot, kPutKind, 0, StructPointer(0, 2, 1), 1, 0};
  Words nothing = put;
  nothing.insert(nothing.end(), {ListPointer(0, 7, 0), kCountMax << 2});
  add("tables-of-nothing-2-29-times", nothing);
  // A hundred tables that share one name of 4 KiB: small to send, large to follow.
  constexpr uint64_t kTables = 100;
  Words shared = put;
  shared.insert(shared.end(),
                {ListPointer(0, 7, 4 * kTables), kTables << 2 | uint64_t{2} << 32 | uint64_t{2} << 48});
  for (uint64_t i = 0; i < kTables; ++i) {
    const auto behind = static_cast<int32_t>(4 * (kTables - 1 - i) + 1);
    shared.insert(shared.end(), {0, 0, ListPointer(behind, 2, 4096), 0});
  }
  shared.insert(shared.end(), 511, 0x6161616161616161);
  shared.push_back(0x0061616161616161);
  add("name-shared-by-100-tables", shared);
}

inline void AddHostileTrainings(std::vector<HostileFrame>& frames) {
  constexpr uint64_t kName = ListPointer(2, 2, 4);
  const auto add = [&frames](std::string name, const Words& segment) {
    frames.push_back({std::move(name), FrameOfSegment(segment)});
  };
  add("state-of-10-gb", SaveTrainingWords(uint64_t{10} << 30, 0, kName, 0));
  add("state-piece-behind-the-end", SaveTrainingWords(64, 57, kName, 0));
  add("state-piece-that-wraps", SaveTrainingWords(64, ~uint64_t{0} - 3, kName, 0));
  add("state-without-a-name", SaveTrainingWords(64, 0, 0, 0));
  add("state-settings-of-2-29-bytes", SaveTrainingWords(64, 0, kName, ListPointer(1, 2, (1 << 29) - 1)));
  // Edges from 0 of topology "../../x", then 4 billion of "abc": first, count, name.
  add("edges-of-a-path",
      {kRoot, kReadEdgesKind, 0, StructPointer(0, 2, 1), 0, 1, ListPointer(0, 2, 8), 0x00782f2e2e2f2e2e});
  add("edges-2-32-less-1",
      {kRoot, kReadEdgesKind, 0, StructPointer(0, 2, 1), 0, 0xffffffff, ListPointer(0, 2, 4), 0x636261});
}

inline void AddHostileSql(std::vector<HostileFrame>& frames) {
  const auto add = [&frames](std::string name, const Words& segment) {
    frames.push_back({std::move(name), FrameOfSegment(segment)});
  };
  constexpr uint64_t kOpenSqlKind = 22, kQueryKind = 24, kFetchKind = 25;
  const auto open = [](uint64_t seconds) {
    return Words{kRoot, kOpenSqlKind, 0, StructPointer(0, 2, 0), 0, seconds};
  };
  add("sql-timeout-nan", open(0x7ff8000000000000));
  add("sql-timeout-negative", open(0xbff0000000000000));
  add("sql-timeout-infinite", open(0x7ff0000000000000));
  // Of connection 1: its flags and count of parameters, its pointers to the text and to the values first.
  const auto query = [](uint64_t flags, const Words& parts) {
    Words words = {kRoot, kQueryKind, 0, StructPointer(0, 2, 2), 1, flags};
    words.insert(words.end(), parts.begin(), parts.end());
    return words;
  };
  const Words ten_gb = {1, StructPointer(0, 3, 0), 1, 0, uint64_t{10} << 30};
  Words text = {StructPointer(1, 1, 1), 0}, values = {0, StructPointer(0, 1, 1)};
  text.insert(text.end(), ten_gb.begin(), ten_gb.end());
  values.insert(values.end(), ten_gb.begin(), ten_gb.end());
  add("sql-of-10-gb", query(0, text));
  add("sql-parameters-of-10-gb", query(0, values));
  add("sql-parameters-2-32-less-1", query(uint64_t{0xffffffff} << 32, {0, 0}));
  add("sql-script-with-parameters", query(1 | uint64_t{1} << 32, {0, 0}));
  add("sql-of-unknown-kind", query(0, {StructPointer(1, 1, 1), 0, 0xffff, 0}));
  add("sql-of-nothing", {kRoot, kQueryKind, 0, 0});
  add("fetch-of-nothing", {kRoot, kFetchKind, 0, 0});
}

// All of them: a FrameDecoder after the handshake, or DecodeRequest, refuses each.
inline std::vector<HostileFrame> HostileFrames() {
  std::vector<HostileFrame> frames;
  AddHostileHeaders(frames);
  AddHostileSegments(frames);
  AddHostileRoots(frames);
  AddHostilePointers(frames);
  AddHostileSql(frames);
  AddHostileTrainings(frames);
  return frames;
}

}  // namespace quarry::wire
