#include "quarry/format/wire.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>

#include "format/wire_hostile.h"
#include "format/wire_random.h"
#include "support/status_matchers.h"

namespace quarry::wire {
namespace {

using testing::HasSubstr;

constexpr uint64_t kSeed = 20240611;

// Everything that the decoder makes of `bytes`; stops at its first error.
struct Decoded {
  std::vector<Frame> frames;
  Status status;
};
Decoded Decode(FrameDecoder& decoder, std::span<const std::byte> bytes) {
  Decoded decoded;
  while (true) {
    auto frame = decoder.Next(bytes);
    decoded.status = frame.status();
    if (!frame.ok() || !*frame) return decoded;
    decoded.frames.push_back(std::move(**frame));
  }
}

FrameDecoder AfterHandshake(const Limits& limits = {}) {
  FrameDecoder decoder(limits);
  decoder.HandshakeDone(limits.message_bytes_max);
  return decoder;
}

Frame OnlyFrame(std::span<const std::byte> bytes) {
  FrameDecoder decoder = AfterHandshake();
  Decoded decoded = Decode(decoder, bytes);
  EXPECT_OK(decoded.status);
  EXPECT_EQ(decoded.frames.size(), 1u);
  return decoded.frames.empty() ? Frame{} : std::move(decoded.frames.front());
}

Code RequestCode(const Request& request) { return EncodeRequest(7, request).status().code(); }
Code ResponseCode(const Response& response) { return EncodeResponse(7, response).status().code(); }

std::string ToHex(std::span<const std::byte> bytes) {
  std::string hex;
  for (const std::byte byte : bytes) hex += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return hex;
}

Words MessageWords(std::span<const std::byte> frame) {
  Words words((frame.size() - kFrameHeaderBytes) / 8);
  std::memcpy(words.data(), frame.data() + kFrameHeaderBytes, 8 * words.size());
  return words;
}

// ---- frames

TEST(WireFrameTest, TheHeaderIsTheseBytes) {
  const auto frame = EncodeRequest(0x0102030405060708, Ping{}).value();
  EXPECT_EQ(ToHex(std::span(frame).first(kFrameHeaderBytes)),
            "28000000"
            "00000000"
            "0807060504030201");
  const auto regions =
      EncodeResponse(9, SessionOpened{.session = 1, .regions = {{1, 4096}, {2, 4096}}}).value();
  EXPECT_EQ(ToHex(std::span(regions).subspan(4, 12)),
            "02000000"
            "0900000000000000");
}

TEST(WireFrameTest, TheHelloIsTheseWords) {
  const Hello hello = {.version_min = 1, .version_max = 2, .capabilities = 3, .message_bytes_max = 1 << 20};
  EXPECT_EQ(MessageWords(EncodeRequest(1, hello).value()),
            (Words{uint64_t{7} << 32, kRoot, 0, 0, StructPointer(0, 3, 0), 0x0a0d455249575189,
                   1 | 2 << 16 | uint64_t{1} << 52, 3}));
  const Welcome welcome = {.version = 1,
                           .capabilities = 1,
                           .server_id = {std::byte{0xab}},
                           .limits = {.message_bytes_max = 1 << 20,
                                      .outstanding_max = 64,
                                      .ids_max = 1 << 18,
                                      .sessions_max = 5,
                                      .budget_bytes = 1 << 30}};
  EXPECT_EQ(MessageWords(EncodeResponse(1, welcome).value()),
            (Words{uint64_t{14} << 32, kRoot, 2, 0, StructPointer(0, 3, 2), 0x0a0d455249575189, 1, 1,
                   ListPointer(1, 2, 16), StructPointer(2, 3, 0), 0xab, 0, 1 << 20 | uint64_t{64} << 32,
                   1 << 18 | uint64_t{5} << 32, 1 << 30}));
}

TEST(WireFrameTest, FramesArriveInPiecesOfAnySize) {
  SCOPED_TRACE(fmt::format("seed {}", kSeed));
  Rng rng(kSeed);
  RandomMessage random(kSeed);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::vector<std::byte>> sent;
    std::vector<std::byte> stream;
    for (uint64_t id = 1; id <= 5; ++id) {
      sent.push_back(EncodeRequest(id, random.request(rng.Below(std::variant_size_v<Request>))).value());
      stream.insert(stream.end(), sent.back().begin(), sent.back().end());
    }
    FrameDecoder decoder = AfterHandshake();
    std::vector<Frame> frames;
    for (size_t at = 0; at < stream.size();) {
      const size_t count = std::min<size_t>(stream.size() - at, 1 + rng.Below(round % 2 == 0 ? 10 : 1000));
      Decoded decoded = Decode(decoder, std::span(stream).subspan(at, count));
      ASSERT_OK(decoded.status);
      for (Frame& frame : decoded.frames) frames.push_back(std::move(frame));
      at += count;
    }
    ASSERT_EQ(frames.size(), sent.size());
    for (size_t i = 0; i < sent.size(); ++i) {
      EXPECT_EQ(frames[i].id, i + 1);
      EXPECT_EQ(ToHex(frames[i].message), ToHex(std::span(sent[i]).subspan(kFrameHeaderBytes)));
    }
  }
}

TEST(WireFrameTest, ATruncatedFrameIsNone) {
  const auto frame =
      EncodeRequest(1, Lookup{.table = "feature", .ids = std::vector<NodeId>{1, 2, 3}}).value();
  for (size_t bytes = 0; bytes < frame.size(); ++bytes) {
    FrameDecoder decoder = AfterHandshake();
    const Decoded decoded = Decode(decoder, std::span(frame).first(bytes));
    EXPECT_OK(decoded.status);
    EXPECT_TRUE(decoded.frames.empty()) << bytes;
  }
}

TEST(WireFrameTest, AStrangerGetsOnlySmallMessages) {
  const Limits limits;
  const Words large(limits.hello_bytes_max / 8 + 1);
  const auto bytes = FrameOfWords(limits.hello_bytes_max + 8, 0, 1, large);
  FrameDecoder stranger(limits);
  const Decoded refused = Decode(stranger, bytes);
  EXPECT_THAT(refused.status, IsStatus(Code::kUsage, HasSubstr("4104 bytes; the limit is 4096")));
  FrameDecoder known = AfterHandshake(limits);
  EXPECT_EQ(Decode(known, bytes).frames.size(), 1u);
}

TEST(WireFrameTest, DescriptorsAreCountedBeforeTheyAreTaken) {
  FrameDecoder decoder = AfterHandshake();
  const Decoded refused = Decode(decoder, FrameOfWords(40, 17, 7, {}));
  EXPECT_THAT(refused.status, IsStatus(Code::kUsage, HasSubstr("17 file descriptors; the limit is 16")));
}

TEST(WireFrameTest, AnErrorStays) {
  FrameDecoder decoder = AfterHandshake();
  const auto ping = EncodeRequest(1, Ping{}).value();
  EXPECT_THAT(Decode(decoder, FrameOfWords(0, 0, 7, {})).status, IsStatus(Code::kCorruption));
  const Decoded after = Decode(decoder, ping);
  EXPECT_THAT(after.status, IsStatus(Code::kCorruption));
  EXPECT_TRUE(after.frames.empty());
}

TEST(WireFrameTest, EveryHostileFrameIsWhatItIsTakenFor) {
  for (const HostileFrame& hostile : HostileFrames()) {
    SCOPED_TRACE(hostile.name);
    FrameDecoder decoder = AfterHandshake();
    const Decoded decoded = Decode(decoder, hostile.bytes);
    if (hostile.fate == Fate::kWaits) {
      EXPECT_TRUE(decoded.status.ok() && decoded.frames.empty());
      continue;
    }
    if (!decoded.status.ok()) {
      EXPECT_EQ(decoded.status.code(), hostile.code);
      EXPECT_EQ(hostile.fate, Fate::kClosed);
      continue;
    }
    ASSERT_EQ(decoded.frames.size(), 1u);
    const Status request = DecodeRequest(decoded.frames.front()).status();
    EXPECT_EQ(request.code(), hostile.code) << request.ToString();
    EXPECT_EQ(request.code() == Code::kCorruption, hostile.fate == Fate::kClosed);
    EXPECT_FALSE(request.message().empty());
    (void)DecodeResponse(decoded.frames.front());  // may be an answer; must do no harm
  }
}

// A byte of any request or answer that changed on its way gives an error, or another message, whole.
TEST(WireFrameTest, AFlippedByteNeverBreaksTheDecoder) {
  SCOPED_TRACE(fmt::format("seed {}", kSeed));
  RandomMessage random(kSeed);
  const auto flip = [](const std::vector<std::byte>& bytes, auto decode) {
    for (size_t at = 0; at < bytes.size(); ++at) {
      for (const unsigned mask : {0x01u, 0x80u, 0xffu}) {
        std::vector<std::byte> flipped = bytes;
        flipped[at] ^= static_cast<std::byte>(mask);
        FrameDecoder decoder = AfterHandshake();
        for (const Frame& frame : Decode(decoder, flipped).frames) decode(frame);
      }
    }
  };
  for (size_t kind = 0; kind < std::variant_size_v<Request>; ++kind) {
    flip(EncodeRequest(7, random.request(kind)).value(), [](const Frame& frame) {
      const auto request = DecodeRequest(frame);
      EXPECT_TRUE(!request.ok() || EncodeRequest(7, *request).ok());
    });
  }
  for (size_t kind = 0; kind < std::variant_size_v<Response>; ++kind) {
    flip(EncodeResponse(7, random.response(kind)).value(), [](const Frame& frame) {
      const auto response = DecodeResponse(frame);
      EXPECT_TRUE(!response.ok() || EncodeResponse(7, *response).ok());
    });
  }
}

// ---- messages

TEST(WireMessageTest, EveryRequestComesBackEqual) {
  for (size_t kind = 0; kind < std::variant_size_v<Request>; ++kind) {
    for (uint64_t round = 0; round < 100; ++round) {
      const uint64_t seed = MixSeed(kSeed, kind, round);
      SCOPED_TRACE(fmt::format("kind {}, seed {}", kind, seed));
      const Request sent = RandomMessage(seed).request(kind);
      ASSERT_OK_AND_ASSIGN(const auto bytes, EncodeRequest(seed | 1, sent));
      const Frame frame = OnlyFrame(bytes);
      EXPECT_EQ(frame.id, seed | 1);
      ASSERT_OK_AND_ASSIGN(const auto received, DecodeRequest(frame));
      EXPECT_EQ(received.index(), kind);
      EXPECT_TRUE(received == sent);
    }
  }
}

TEST(WireMessageTest, EveryResponseComesBackEqual) {
  for (size_t kind = 0; kind < std::variant_size_v<Response>; ++kind) {
    for (uint64_t round = 0; round < 100; ++round) {
      const uint64_t seed = MixSeed(kSeed, kind, round);
      SCOPED_TRACE(fmt::format("kind {}, seed {}", kind, seed));
      const Response sent = RandomMessage(seed).response(kind);
      ASSERT_OK_AND_ASSIGN(const auto bytes, EncodeResponse(seed | 1, sent));
      ASSERT_OK_AND_ASSIGN(const auto received, DecodeResponse(OnlyFrame(bytes)));
      EXPECT_EQ(received.index(), kind);
      EXPECT_TRUE(received == sent);
    }
  }
}

TEST(WireMessageTest, TheLargestMessagesFitIntoTheSegments) {
  const Limits limits;
  Lookup lookup = {.table = "feature", .ids = std::vector<NodeId>((limits.message_bytes_max - 200) / 4, 5)};
  EXPECT_OK(DecodeRequest(OnlyFrame(EncodeRequest(7, lookup).value())));
  Put put = {.number = 1};
  for (int i = 0; i < 1000; ++i) {
    put.tables.push_back({.table = std::string(64, 'a'), .rows = 1, .row_bytes = 800});
    put.tables.back().block = std::vector<std::byte>(808);
  }
  EXPECT_OK(DecodeRequest(OnlyFrame(EncodeRequest(7, put).value())));
  const Chunk chunk = {std::vector<std::byte>(limits.message_bytes_max - 200)};
  EXPECT_OK(DecodeResponse(OnlyFrame(EncodeResponse(7, chunk).value())));
}

TEST(WireMessageTest, AMessageBeyondTheLimitIsNotSent) {
  const Status status = EncodeResponse(7, Chunk{std::vector<std::byte>(1 << 20)}).status();
  EXPECT_THAT(status, IsStatus(Code::kInvalidArgument, HasSubstr("the limit is 1048576")));
}

TEST(WireMessageTest, NamesThatCouldBePathsAreRefused) {
  using std::string_literals::operator""s;
  for (const std::string& name :
       {""s, "../../x"s, "/etc"s, "."s, "a b"s, "a\0b"s, "a\n"s, "\xc3\xa4"s, "a."s, std::string(65, 'a')}) {
    SCOPED_TRACE(name);
    LiveSpec bad_table, bad_topology;
    bad_table.feature_table = name;
    bad_topology.topology = name;
    // No table: batches have no rows. Which roads have such batches, the engine says; layouts are made of rows.
    const Code of_rows = name.empty() ? Code::kOk : Code::kInvalidArgument;
    EXPECT_EQ(RequestCode(Maintain{.task = BuildLayout{.name = "plan", .road = bad_table}}),
              Code::kInvalidArgument);
    EXPECT_EQ(RequestCode(Lookup{.table = name}), Code::kInvalidArgument);
    EXPECT_EQ(RequestCode(Sample{.topology = name, .seeds = {1}, .fanouts = {2}}), Code::kInvalidArgument);
    EXPECT_EQ(RequestCode(ReadEmbeddings{.table = name}), Code::kInvalidArgument);
    EXPECT_EQ(RequestCode(OpenStream{.road = bad_table}), of_rows);
    EXPECT_EQ(RequestCode(OpenStream{.road = bad_topology}), Code::kInvalidArgument);
    EXPECT_EQ(RequestCode(OpenStream{.road = PlannedSpec{.layout = name}}), Code::kInvalidArgument);
    EXPECT_EQ(RequestCode(OpenStream{.road = PlannedSpec{.live = bad_table}}), of_rows);
    EXPECT_EQ(RequestCode(OpenStream{.road = SuperbatchSpec{.live = bad_table}}), of_rows);
    EXPECT_EQ(RequestCode(OpenStream{.road = PartitionedSpec{.live = bad_table}}), of_rows);
    EXPECT_EQ(RequestCode(OpenStream{.road = PartitionedSpec{.partitioning = name}}), Code::kInvalidArgument);
    EXPECT_EQ(RequestCode(OpenStream{.mode = StreamMode::kShared, .group = name}), Code::kInvalidArgument);
    EXPECT_EQ(RequestCode(Put{.number = 1, .tables = {{.table = name}}}), Code::kInvalidArgument);
    EXPECT_EQ(RequestCode(SaveTraining{.name = name, .state_bytes = 1, .piece = Range{1, 8, 1}}),
              Code::kInvalidArgument);
    EXPECT_EQ(RequestCode(ReadTraining{.name = name}), Code::kInvalidArgument);
    EXPECT_EQ(RequestCode(ReadEdges{.topology = name, .count = 1}), Code::kInvalidArgument);
    EXPECT_EQ(RequestCode(CommitEmbeddings{.number = 1, .updates = {{.table = name, .dim = 1}}}),
              Code::kInvalidArgument);
  }
  EXPECT_EQ(RequestCode(Lookup{.table = std::string(64, 'a')}), Code::kOk);
}

TEST(WireMessageTest, BytesThatAreNoTextStayOutOfSentences) {
  const Status status = EncodeRequest(7, Lookup{.table = "a\n\x1b[31mb"}).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("table \"a??[31mb\" (8 bytes)"));
}

TEST(WireMessageTest, NumbersOutOfRangeAreRefused) {
  const Range ten_gb = {.region = 1, .offset = 0, .bytes = uint64_t{10} << 30};
  EXPECT_EQ(RequestCode(Lookup{.table = "t", .ids = ten_gb}), Code::kInvalidArgument);
  EXPECT_EQ(RequestCode(Lookup{.table = "t", .ids = Range{1, 4, 4}}), Code::kInvalidArgument)
      << "not aligned";
  EXPECT_EQ(RequestCode(Lookup{.table = "t", .ids = Range{1, 8, 6}}), Code::kInvalidArgument) << "half an id";
  EXPECT_EQ(RequestCode(Lookup{.table = "t", .ids = Range{0, 8, 8}}), Code::kInvalidArgument) << "no region";
  EXPECT_EQ(RequestCode(Lookup{.table = "t", .ids = Range{1, ~uint64_t{7}, 8}}), Code::kInvalidArgument);
  EXPECT_EQ(RequestCode(Lookup{.table = "t", .ids = Range{1, 8, 8}}), Code::kOk);
  EXPECT_EQ(RequestCode(Sample{.seeds = {1}, .fanouts = {1025}}), Code::kInvalidArgument);
  EXPECT_EQ(RequestCode(Sample{.seeds = {1}, .fanouts = {1, 2, 3, 4, 5, 6, 7, 8, 9}}),
            Code::kInvalidArgument);
  EXPECT_EQ(RequestCode(Sample{.seeds = {1}, .fanouts = {1}, .direction = Direction{3}}),
            Code::kInvalidArgument);
  EXPECT_EQ(RequestCode(Sample{.fanouts = {1}}), Code::kInvalidArgument) << "no seeds";
  EXPECT_EQ(RequestCode(OpenStream{.mode = StreamMode{3}, .group = "g"}), Code::kInvalidArgument);
  EXPECT_EQ(RequestCode(OpenStream{.mode = StreamMode::kSplit, .group = "g", .members = 0}),
            Code::kInvalidArgument);
  EXPECT_EQ(RequestCode(OpenStream{.group = "g"}), Code::kInvalidArgument) << "exclusive in a group";
  EXPECT_EQ(RequestCode(OpenStream{.road = SuperbatchSpec{.packing = Packing{3}}}), Code::kInvalidArgument);
  EXPECT_EQ(RequestCode(StartPass{.stream = 1, .seeds = Split{4}}), Code::kInvalidArgument);
  EXPECT_EQ(RequestCode(StartPass{.stream = 1, .seeds = Split::kNone}), Code::kInvalidArgument);
  EXPECT_EQ(RequestCode(ReleaseLeases{{1, 0}}), Code::kInvalidArgument);
  EXPECT_EQ(RequestCode(Hello{.version_min = 2, .version_max = 1}), Code::kInvalidArgument);
  EXPECT_EQ(RequestCode(Hello{.message_bytes_max = 64}), Code::kInvalidArgument);
  EXPECT_EQ(RequestCode(OpenSession{.budget_bytes = 1, .budget_bytes_min = 2}), Code::kInvalidArgument);
  EXPECT_EQ(RequestCode(Put{.number = 1, .tables = {{.table = "t", .rows = 1, .row_bytes = 4}}}),
            Code::kInvalidArgument)
      << "a row that is not there";
  EXPECT_EQ(RequestCode(Put{.tables = {{.table = "t"}}}), Code::kInvalidArgument)
      << "a write without a number";
  const SaveTraining save = {.name = "n", .state_bytes = 8, .piece = Range{1, 8, 8}};
  EXPECT_EQ(RequestCode(save), Code::kOk);
  const auto saved = [&save](uint64_t state_bytes, uint64_t offset, const Bulk& piece) {
    SaveTraining changed = save;
    changed.state_bytes = state_bytes;
    changed.offset = offset;
    changed.piece = piece;
    return RequestCode(changed);
  };
  EXPECT_EQ(saved(uint64_t{10} << 30, 0, save.piece), Code::kInvalidArgument) << "10 GB of state";
  EXPECT_EQ(saved(7, 0, save.piece), Code::kInvalidArgument) << "a piece larger than the whole";
  EXPECT_EQ(saved(8, 1, save.piece), Code::kInvalidArgument) << "a piece beyond the end";
  EXPECT_EQ(saved(8, ~uint64_t{0}, save.piece), Code::kInvalidArgument) << "beyond all numbers";
  EXPECT_EQ(saved(8, 0, std::vector<std::byte>()), Code::kInvalidArgument) << "a piece of nothing";
  EXPECT_EQ(RequestCode(SaveTraining{.name = "n",
                                     .settings = std::string(kSettingsBytesMax + 1, 'a'),
                                     .state_bytes = 8,
                                     .piece = Range{1, 8, 8}}),
            Code::kInvalidArgument);
  EXPECT_EQ(RequestCode(ReadEdges{.count = 0}), Code::kInvalidArgument);
  EXPECT_EQ(RequestCode(ReadEdges{.count = (1 << 20) + 1}), Code::kInvalidArgument);
  EXPECT_EQ(RequestCode(ReadEdges{.first = ~uint64_t{0}, .count = 1 << 20}), Code::kOk);
  EXPECT_EQ(ResponseCode(Edges{.edges = 2, .payload = std::vector<std::byte>(23)}), Code::kInvalidArgument);
  EXPECT_EQ(ResponseCode(Training{.state = Lease{1, {1, 4096, uint64_t{10} << 30}}}), Code::kInvalidArgument);
  EXPECT_EQ(ResponseCode(Failure{.code = Code::kOk}), Code::kInvalidArgument);
  EXPECT_EQ(ResponseCode(Failure{.code = static_cast<Code>(13)}), Code::kInvalidArgument);
  EXPECT_EQ(ResponseCode(EmbeddingsCommitted{.timestamp = 5, .stale_rows = 1}), Code::kInvalidArgument);
  EXPECT_EQ(ResponseCode(Counters{{{"rows", std::numeric_limits<double>::quiet_NaN()}}}),
            Code::kInvalidArgument);
  EXPECT_EQ(ResponseCode(Rows{.rows = 2, .dim = 2, .payload = Lease{1, {1, 4096, 15}}}),
            Code::kInvalidArgument);
  EXPECT_EQ(ResponseCode(Rows{.rows = 2, .dim = 2, .payload = Lease{1, {1, 64, 16}}}),
            Code::kInvalidArgument);
  EXPECT_EQ(ResponseCode(Rows{.rows = 2, .dim = 2, .payload = Lease{1, {1, 4096, 16}}}), Code::kOk);
}

// What a peer refuses to send may come from another one.
TEST(WireMessageTest, WhatArrivesIsHeldToTheSameRules) {
  const auto sent = EncodeRequest(7, Lookup{.table = "nameofatable"}).value();
  const std::string_view text(reinterpret_cast<const char*>(sent.data()), sent.size());
  std::vector<std::byte> changed = sent;
  changed[text.find("nameofatable") + 4] = std::byte{'/'};
  const Status status = DecodeRequest(OnlyFrame(changed)).status();
  EXPECT_THAT(status, IsStatus(Code::kInvalidArgument, HasSubstr("name/fatable")));

  const auto answer = EncodeResponse(7, Counters{{{"nameofatable", 1}}}).value();
  const std::string_view answer_text(reinterpret_cast<const char*>(answer.data()), answer.size());
  changed = answer;
  changed[answer_text.find("nameofatable") + 4] = std::byte{'/'};
  EXPECT_THAT(DecodeResponse(OnlyFrame(changed)), IsStatus(Code::kCorruption)) << "the server's fault";
}

TEST(WireMessageTest, UnknownKindsAreUnsupported) {
  const Frame frame = OnlyFrame(FrameOfSegment({kRoot, 1000, 0, 0}));
  EXPECT_THAT(DecodeRequest(frame), IsStatus(Code::kUnsupported));
  EXPECT_THAT(DecodeResponse(frame), IsStatus(Code::kUnsupported));
  // A message of a later version, with fields that this one does not know.
  const Words later = {StructPointer(0, 4, 3), kPingKind, 0, 1234, 5678, 0, 0, 0};
  EXPECT_OK(DecodeRequest(OnlyFrame(FrameOfSegment(later))));
}

TEST(WireMessageTest, DescriptorsComeWithRegionsAndNothingElse) {
  const auto opened =
      EncodeResponse(7, StreamOpened{.stream = 1, .slots = 2, .regions = {{1, 4096}}}).value();
  Frame frame = OnlyFrame(opened);
  EXPECT_EQ(frame.fds, 1u);
  EXPECT_OK(DecodeResponse(frame));
  frame.fds = 2;
  EXPECT_THAT(DecodeResponse(frame), IsStatus(Code::kCorruption));
  frame = OnlyFrame(EncodeResponse(7, Done{}).value());
  frame.fds = 1;
  EXPECT_THAT(DecodeResponse(frame), IsStatus(Code::kCorruption));
}

TEST(WireMessageTest, PartsHaveABufferAndCountableClasses) {
  const OpenedParts good = {.directory = "partitions/default-1",
                            .buffer = 0x01020304,
                            .logical = 0x05060708,
                            .class_count = 0xfffffffe,
                            .batch_nodes_max = 9};
  const auto encode = [](const OpenedParts& parts) {
    return EncodeResponse(7, StreamOpened{.stream = 1, .slots = 2, .parts = parts});
  };
  const std::vector<std::byte> bytes = encode(good).value();
  EXPECT_OK(DecodeResponse(OnlyFrame(bytes)));
  const auto refuses = [&](uint32_t OpenedParts::*field, uint32_t bad, std::string_view why) {
    SCOPED_TRACE(why);
    OpenedParts parts = good;
    parts.*field = bad;
    EXPECT_THAT(encode(parts), IsStatus(Code::kInvalidArgument, HasSubstr(std::string(why))));
    std::vector<std::byte> changed = bytes;
    const auto value = std::as_bytes(std::span(&(good.*field), 1));
    const auto place = std::search(changed.begin(), changed.end(), value.begin(), value.end());
    ASSERT_NE(place, changed.end());
    std::memcpy(&*place, &bad, sizeof(bad));
    EXPECT_THAT(DecodeResponse(OnlyFrame(changed)), IsStatus(Code::kCorruption, HasSubstr(std::string(why))));
  };
  refuses(&OpenedParts::buffer, 0, "the buffer of parts is 0");
  refuses(&OpenedParts::logical, 0, "the number of logical parts is 0");
  refuses(&OpenedParts::class_count, 0xffffffff, "4294967295 classes");
}

TEST(WireMessageTest, OnlyFailuresAnswerNoRequest) {
  EXPECT_OK(DecodeResponse(OnlyFrame(EncodeResponse(0, Failure{.message = "shutting down"}).value())));
  EXPECT_THAT(DecodeResponse(OnlyFrame(EncodeResponse(0, Done{}).value())), IsStatus(Code::kCorruption));
}

TEST(WireMessageTest, VersionsAreAgreedOn) {
  EXPECT_EQ(AgreeVersion({.version_min = 1, .version_max = 9}).value(), 1);
  const Status later = AgreeVersion({.version_min = 2, .version_max = 9}).status();
  EXPECT_THAT(later, IsStatus(Code::kUnsupported, HasSubstr("versions 2 to 9")));
}

TEST(WireMessageTest, RangesLieInTheirRegions) {
  EXPECT_OK(CheckRange({1, 0, 4096}, 4096));
  EXPECT_OK(CheckRange({1, 4096, 0}, 4096));
  EXPECT_FALSE(CheckRange({1, 8, 4096}, 4096).ok());
  EXPECT_FALSE(CheckRange({1, 4104, 0}, 4096).ok());
  EXPECT_FALSE(CheckRange({1, ~uint64_t{7}, 16}, 4096).ok()) << "their sum wraps";
  EXPECT_FALSE(CheckRange({1, 16, ~uint64_t{7}}, 4096).ok());
}

TEST(WireMessageTest, FailuresCarryCodesAndSentences) {
  const Status status = MakeStatus(Code::kNoSpace, "{}: no space", std::string(5000, 'x'));
  const Failure failure = ToFailure(status);
  EXPECT_EQ(failure.message.size(), kFailureBytesMax);
  EXPECT_EQ(ResponseCode(failure), Code::kOk);
  const Status back = ToStatus(failure);
  EXPECT_THAT(back, IsStatus(Code::kNoSpace));
  EXPECT_EQ(back.message(), failure.message);
}

}  // namespace
}  // namespace quarry::wire
