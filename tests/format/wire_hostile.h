// Frames that a peer sends to do harm, made word by word, each with what a server that has an open session
// makes of it. They are also the corpus of the fuzz target (tests/fuzz).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/wire.h"

namespace quarry::wire {

enum class Fate {
  kClosed,   // answered under id 0, and the connection ends
  kRefused,  // answered under its own id, and the connection goes on
  kWaits,    // no answer: the rest of it may come
};

struct HostileFrame {
  std::string name;
  std::vector<std::byte> bytes;
  Fate fate = Fate::kClosed;
  Code code = Code::kCorruption;  // of the answer
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
constexpr uint64_t kLookupKind = 3, kOpenStreamKind = 5, kPutKind = 13, kPingKind = 17,
                   kSaveTrainingKind = 19, kReadEdgesKind = 21;

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

struct FrameList {
  std::vector<HostileFrame> frames;

  // Frames that are right around a message of one segment, which ends the connection, or is refused.
  void Close(std::string name, const Words& segment) {
    frames.push_back({std::move(name), FrameOfSegment(segment)});
  }
  void Refuse(std::string name, const Words& segment, Code code = Code::kInvalidArgument) {
    frames.push_back({std::move(name), FrameOfSegment(segment), Fate::kRefused, code});
  }
};

inline void AddHostileHeaders(FrameList& list) {
  const Words ping = {uint64_t{4} << 32, kRoot, kPingKind, 0, 0};
  list.frames.push_back({"length-0", FrameOfWords(0, 0, 7, {})});
  list.frames.push_back({"length-12", FrameOfWords(12, 0, 7, ping)});
  list.frames.push_back({"length-2-32-less-1", FrameOfWords(0xffffffff, 0, 7, ping)});
  const auto beyond = [&](std::string name, uint32_t message_bytes, uint32_t fds) {
    list.frames.push_back(
        {std::move(name), FrameOfWords(message_bytes, fds, 7, ping), Fate::kClosed, Code::kUsage});
  };
  beyond("length-over-the-limit", (1 << 20) + 8, 0);
  beyond("length-2-31", uint32_t{1} << 31, 0);
  beyond("length-2-32-less-8", 0xfffffff8, 0);
  beyond("descriptors-17", 40, 17);
  beyond("descriptors-2-32-less-1", 40, 0xffffffff);
  const auto cut = [&](std::string name, std::vector<std::byte> bytes, size_t sent) {
    bytes.resize(sent);
    list.frames.push_back({std::move(name), std::move(bytes), Fate::kWaits});
  };
  cut("header-cut-short", FrameOfWords(40, 0, 7, ping), kFrameHeaderBytes - 1);
  cut("message-cut-short", FrameOfWords(40, 0, 7, ping), kFrameHeaderBytes + 39);
  cut("message-that-does-not-come", FrameOfWords(4096, 0, 7, {}), kFrameHeaderBytes);
  constexpr std::string_view kHttp = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  HostileFrame http = {"http", std::vector<std::byte>(kHttp.size())};
  std::memcpy(http.bytes.data(), kHttp.data(), kHttp.size());
  list.frames.push_back(std::move(http));
}

inline void AddHostileSegments(FrameList& list) {
  const auto add = [&list](std::string name, const Words& words) {
    list.frames.push_back(
        {std::move(name), FrameOfWords(static_cast<uint32_t>(8 * words.size()), 0, 7, words)});
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

inline void AddHostileRoots(FrameList& list) {
  list.Close("root-null", {0});
  list.Close("root-out-of-range", {StructPointer(1000, 2, 1), kPingKind, 0, 0});
  list.Close("root-before-the-message", {StructPointer(-100, 2, 1), kPingKind, 0, 0});
  list.Close("root-larger-than-the-message", {StructPointer(0, 0xffff, 0xffff), kPingKind, 0, 0});
  list.Close("root-is-a-list", {ListPointer(0, 4, 2), kPingKind, 0, 0});
  list.Close("root-far-to-nowhere", {FarPointer(0, 5), kPingKind, 0, 0});
  list.Close("root-far-out-of-range", {FarPointer(1000, 0), kPingKind, 0, 0});
  list.Close("root-far-to-itself", {FarPointer(0, 0), kPingKind, 0, 0});
  list.Close("root-two-far-to-itself", {FarPointer(0, 0, true), kPingKind, 0, 0});
  list.Close("root-is-a-capability", {3, kPingKind, 0, 0});
  // Its only pointer is the root itself: an endless nest of requests.
  list.Close("root-in-itself", {StructPointer(-1, 0, 1)});
  list.Refuse("kind-unknown", {kRoot, 0xffff, 0, 0}, Code::kUnsupported);
  list.Close("hello-of-nothing", {kRoot, 0, 0, 0});
  list.Refuse("lookup-of-nothing", {kRoot, kLookupKind, 0, 0});
  list.frames.push_back({"request-0", FrameOfSegment({kRoot, kPingKind, 0, 0}, 0)});
  list.frames.push_back({"request-with-a-descriptor", FrameOfSegment({kRoot, kPingKind, 0, 0}, 7, 1)});
}

inline void AddHostilePointers(FrameList& list) {
  constexpr uint64_t kAbc = 0x636261;  // "abc" and its end
  constexpr uint64_t kCountMax = (uint64_t{1} << 29) - 1;
  list.Close("name-out-of-range", LookupWords({ListPointer(1000, 2, 4), 0, kAbc}));
  list.Close("name-of-2-29-bytes", LookupWords({ListPointer(1, 2, kCountMax), 0, kAbc}));
  list.Close("name-without-end", LookupWords({ListPointer(1, 2, 8), 0, 0x6161616161616161}));
  list.Close("name-is-a-struct", LookupWords({StructPointer(1, 1, 0), 0, kAbc}));
  list.Refuse("name-in-itself", LookupWords({ListPointer(-1, 2, 8), 0, kAbc}));
  list.Refuse("path-as-name", LookupWords({ListPointer(1, 2, 8), 0, 0x00782f2e2e2f2e2e}));  // "../../x"
  const Words name = {ListPointer(1, 2, 4), StructPointer(1, 1, 1), kAbc};
  const auto with_ids = [&name](const Words& ids) {
    Words parts = name;
    parts.insert(parts.end(), ids.begin(), ids.end());
    return LookupWords(parts);
  };
  list.Close("ids-of-2-29", with_ids({0, ListPointer(0, 4, kCountMax)}));
  list.Close("ids-of-nothing-2-29-times", with_ids({0, ListPointer(0, 0, kCountMax)}));
  list.Close("ids-of-structs-of-nothing-2-29-times", with_ids({0, ListPointer(0, 7, 0), kCountMax << 2}));
  list.Refuse("ids-of-unknown-kind", with_ids({0xffff, 0}), Code::kUnsupported);
  // 10 GB of ids in a region: offset 0, bytes 10 x 2^30.
  list.Refuse("ids-of-10-gb", with_ids({1, StructPointer(0, 3, 0), 1, 0, uint64_t{10} << 30}));
  const Words put = {kRoot, kPutKind, 0, StructPointer(0, 2, 1), 1, 0};
  Words nothing = put;
  nothing.insert(nothing.end(), {ListPointer(0, 7, 0), kCountMax << 2});
  list.Close("tables-of-nothing-2-29-times", nothing);
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
  list.Close("name-shared-by-100-tables", shared);
}

inline void AddHostilePuts(FrameList& list) {
  constexpr uint64_t kForgetPutKind = 27, kLast = 2;  // a bit beside that of `unsynced`
  const auto put = [](uint64_t number, uint64_t flags, uint64_t piece) {
    return Words{kRoot, kPutKind, 0, StructPointer(0, 3, 1), number, flags, piece, 0};
  };
  list.Refuse("put-of-nothing", put(1, 0, 0));
  list.Refuse("put-last-piece-of-none", put(1, kLast, 0));
  list.Refuse("put-piece-of-nothing", put(1, 0, 2));
  list.Refuse("put-piece-without-a-number", put(0, kLast, 2));
  list.Refuse("put-without-a-number-forgotten", {kRoot, kForgetPutKind, 0, 0});
}

inline void AddHostileNests(FrameList& list) {
  constexpr uint64_t kAbc = 0x636261;
  // The ids are a struct in a struct, a thousand times.
  Words nest = {ListPointer(1001, 2, 4), StructPointer(0, 0, 1)};
  for (int i = 0; i < 1000; ++i) nest.push_back(StructPointer(0, 0, 1));
  nest.push_back(kAbc);
  list.Close("ids-nested-1000-deep", LookupWords(nest));
  // A planned road whose live one is itself: what is read of it as a text is a struct.
  constexpr uint64_t kPlanned = 1;
  list.Close("road-in-itself", {kRoot, kOpenStreamKind, 0, StructPointer(0, 2, 2), kPlanned, 0,
                                StructPointer(1, 0, 2), 0, 0, StructPointer(-2, 0, 2)});
  // As many segments as there may be, each a pointer into the next one: the last holds nothing.
  Words chain = {7 | uint64_t{1} << 32, 0x0000000100000001, 0x0000000100000001, 0x0000000100000001, 1};
  for (uint64_t i = 1; i <= 7; ++i) chain.push_back(FarPointer(0, i));
  chain.push_back(0);
  list.frames.push_back(
      {"root-far-through-8-segments", FrameOfWords(static_cast<uint32_t>(8 * chain.size()), 0, 7, chain)});
}

inline void AddHostileTrainings(FrameList& list) {
  constexpr uint64_t kName = ListPointer(2, 2, 4);
  list.Refuse("state-of-10-gb", SaveTrainingWords(uint64_t{10} << 30, 0, kName, 0));
  list.Refuse("state-piece-behind-the-end", SaveTrainingWords(64, 57, kName, 0));
  list.Refuse("state-piece-that-wraps", SaveTrainingWords(64, ~uint64_t{0} - 3, kName, 0));
  list.Refuse("state-without-a-name", SaveTrainingWords(64, 0, 0, 0));
  list.Close("state-settings-of-2-29-bytes",
             SaveTrainingWords(64, 0, kName, ListPointer(1, 2, (1 << 29) - 1)));
  // Edges from 0 of topology "../../x", then 4 billion of "abc": first, count, name.
  list.Refuse("edges-of-a-path", {kRoot, kReadEdgesKind, 0, StructPointer(0, 2, 1), 0, 1,
                                  ListPointer(0, 2, 8), 0x00782f2e2e2f2e2e});
  list.Refuse("edges-2-32-less-1", {kRoot, kReadEdgesKind, 0, StructPointer(0, 2, 1), 0, 0xffffffff,
                                    ListPointer(0, 2, 4), 0x636261});
}

inline void AddHostileSql(FrameList& list) {
  constexpr uint64_t kOpenSqlKind = 22, kQueryKind = 24, kFetchKind = 25;
  const auto open = [](uint64_t seconds) {
    return Words{kRoot, kOpenSqlKind, 0, StructPointer(0, 2, 0), 0, seconds};
  };
  list.Refuse("sql-timeout-nan", open(0x7ff8000000000000));
  list.Refuse("sql-timeout-negative", open(0xbff0000000000000));
  list.Refuse("sql-timeout-infinite", open(0x7ff0000000000000));
  // A query of connection 1: its flags and count of parameters, then its pointers to the text and the values.
  const auto query = [](uint64_t flags, const Words& parts) {
    Words words = {kRoot, kQueryKind, 0, StructPointer(0, 2, 2), 1, flags};
    words.insert(words.end(), parts.begin(), parts.end());
    return words;
  };
  const Words ten_gb = {1, StructPointer(0, 3, 0), 1, 0, uint64_t{10} << 30};
  Words text = {StructPointer(1, 1, 1), 0}, values = {0, StructPointer(0, 1, 1)};
  text.insert(text.end(), ten_gb.begin(), ten_gb.end());
  values.insert(values.end(), ten_gb.begin(), ten_gb.end());
  list.Refuse("sql-of-10-gb", query(0, text));
  list.Refuse("sql-parameters-of-10-gb", query(0, values));
  list.Refuse("sql-parameters-2-32-less-1", query(uint64_t{0xffffffff} << 32, {0, 0}));
  list.Refuse("sql-script-with-parameters", query(1 | uint64_t{1} << 32, {0, 0}));
  list.Refuse("sql-of-unknown-kind", query(0, {StructPointer(1, 1, 1), 0, 0xffff, 0}), Code::kUnsupported);
  list.Refuse("sql-of-nothing", {kRoot, kQueryKind, 0, 0});
  list.Refuse("fetch-of-nothing", {kRoot, kFetchKind, 0, 0});
}

// All of them. A FrameDecoder after the handshake, or DecodeRequest, gives the code of each.
inline std::vector<HostileFrame> HostileFrames() {
  FrameList list;
  AddHostileHeaders(list);
  AddHostileSegments(list);
  AddHostileRoots(list);
  AddHostilePointers(list);
  AddHostilePuts(list);
  AddHostileNests(list);
  AddHostileSql(list);
  AddHostileTrainings(list);
  return list.frames;
}

}  // namespace quarry::wire
