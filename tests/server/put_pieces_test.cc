// Puts in pieces, as clients send them that keep the rules and that do not: a commit has all pieces or there
// is none, and who goes leaves nothing behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "served_database.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using testing_util::Eventually;
using testing_util::ServedDatabase;
using testing_util::TinyGraph;
using testing_util::WirePeer;

constexpr uint64_t kAll = wire::kInline | wire::kPutPieces;

// Labels of nodes from `first` on.
wire::PutRows Labels(uint64_t first, uint64_t count, int64_t label, const std::string& table = "label") {
  std::vector<uint64_t> ids(count);
  for (uint64_t i = 0; i < count; ++i) ids[i] = first + i;
  const std::vector<int64_t> labels(count, label);
  std::vector<std::byte> block(16 * count);
  if (count > 0) std::memcpy(block.data(), ids.data(), 8 * count);
  if (count > 0) std::memcpy(&block[8 * count], labels.data(), 8 * count);
  return {.table = table, .rows = count, .row_bytes = 8, .block = std::move(block)};
}

wire::Put Piece(uint64_t number, uint64_t piece, const wire::PutRows& rows, bool last = false) {
  return {.number = number, .tables = {rows}, .piece = piece, .last = last};
}

wire::Put Last(uint64_t number, uint64_t piece) { return {.number = number, .piece = piece, .last = true}; }

class PutPiecesTest : public testing::Test {
 protected:
  void SetUp() override { Connect(peer_, 1); }

  static void Connect(WirePeer& peer, uint8_t client, uint64_t bytes = 8 * kMiB) {
    const auto opened = peer.Open(bytes, kAll, client);
    ASSERT_OK(opened);
  }
  Status Add(const wire::Put& piece) { return Add(peer_, piece); }
  static Status Add(WirePeer& peer, const wire::Put& piece) {
    return peer.CallFor<wire::Done>(piece).status();
  }
  static Result<uint64_t> Commit(WirePeer& peer, const wire::Put& last) {
    QUARRY_TRY(const wire::Written written, peer.CallFor<wire::Written>(last));
    return written.timestamp;
  }
  // How many nodes have the label.
  size_t Labelled(int64_t label) {
    WirePeer reader(served_.socket());
    Connect(reader, 99, kMiB);
    std::vector<NodeId> ids(400);
    for (NodeId id = 0; id < ids.size(); ++id) ids[id] = id;
    const auto rows = reader.CallFor<wire::Rows>(wire::Lookup{"label", ids});
    EXPECT_OK(rows);
    const auto bytes = reader.Take(rows->payload);
    EXPECT_OK(bytes);
    std::vector<int64_t> labels(400);
    std::memcpy(labels.data(), bytes->data(), bytes->size());
    return static_cast<size_t>(std::ranges::count(labels, label));
  }
  // Another client can begin, at once or soon.
  bool AnotherCanPut() {
    WirePeer other(served_.socket());
    Connect(other, 50);
    return Eventually([&] { return Commit(other, Piece(++others_, 1, Labels(399, 1, 3), true)).ok(); });
  }

  struct Started : ServedDatabase {
    Started() : ServedDatabase(TinyGraph{.nodes = 400}) { Start(); }
  };
  Started served_;
  WirePeer peer_{served_.socket()};
  uint64_t others_ = 0;
};

TEST_F(PutPiecesTest, AllOfThemAreSeenFromTheLastOneOn) {
  for (uint64_t piece = 1; piece <= 4; ++piece) {
    ASSERT_OK(Add(Piece(7, piece, Labels(50 * piece, 50, 777))));
    EXPECT_EQ(Labelled(777), 0U);
  }
  ASSERT_OK_AND_ASSIGN(const auto written, Commit(peer_, Last(7, 5)));
  EXPECT_EQ(Labelled(777), 200U);
  EXPECT_EQ(Commit(peer_, Last(7, 5)).value(), written) << "what was done is remembered";
  WirePeer again(served_.socket());
  Connect(again, 1);
  EXPECT_EQ(Commit(again, Last(7, 5)).value(), written) << "in another session of the client, too";
  WirePeer other(served_.socket());
  Connect(other, 2);
  EXPECT_THAT(Commit(other, Last(7, 5)), IsStatus(Code::kUsage)) << "and of nobody else";
  EXPECT_OK(Add(Piece(8, 1, Labels(0, 1, 5)))) << "the next one";
}

// The right to put large writes is one put's at a time, and its memory the session's.
TEST_F(PutPiecesTest, WhatAPutHeldIsFreeWhenItsAnswerComes) {
  WirePeer other(served_.socket());
  Connect(other, 2);
  for (uint64_t number = 1; number <= 100; ++number) {
    for (WirePeer* const peer : {&peer_, &other}) {
      ASSERT_OK(Add(*peer, Piece(number, 1, Labels(0, 10, 5)))) << "put " << number;
      ASSERT_OK(Commit(*peer, Last(number, 2)));
      ASSERT_OK(Add(*peer, Piece(1000 + number, 1, Labels(0, 10, 5))));
      ASSERT_THAT(Commit(*peer, Piece(1000 + number, 2, Labels(0, 1, 5, "nothing"), true)),
                  IsStatus(Code::kNotFound));
    }
  }
}

TEST_F(PutPiecesTest, ThePieceThatDoesNotFollowTakesTheOthersWithIt) {
  EXPECT_THAT(Add(Piece(1, 2, Labels(0, 10, 777))), IsStatus(Code::kUsage)) << "without a first";
  EXPECT_THAT(Commit(peer_, Last(2, 9)), IsStatus(Code::kUsage));
  EXPECT_THAT(Commit(peer_, Last(3, ~uint64_t{0})), IsStatus(Code::kUsage));
  for (const uint64_t next : {uint64_t{1}, uint64_t{3}, ~uint64_t{0}}) {
    ASSERT_OK(Add(Piece(10, 1, Labels(0, 10, 777))));
    EXPECT_THAT(Add(Piece(10, next, Labels(10, 10, 777))).ToString(), HasSubstr("does not follow"));
    EXPECT_THAT(Add(Piece(10, 2, Labels(10, 10, 777))), IsStatus(Code::kUsage))
        << "nor does what comes behind";
    EXPECT_THAT(Commit(peer_, Last(10, 2)), IsStatus(Code::kUsage));
    EXPECT_TRUE(AnotherCanPut());
  }
  EXPECT_EQ(Labelled(777), 0U);
}

TEST_F(PutPiecesTest, OneThatIsSentBeforeTheAnswerToTheOneBeforeDoesNotFollow) {
  std::vector<uint64_t> asked;
  for (uint64_t piece = 1; piece <= 20; ++piece) {
    asked.push_back(peer_.Send(Piece(1, piece, Labels(piece, 1, 777))));
  }
  asked.push_back(peer_.Send(Last(1, 21)));
  size_t refused = 0;
  for (const uint64_t id : asked) refused += peer_.Await(id).ok() ? 0 : 1;
  EXPECT_TRUE(refused == 0 || Labelled(777) == 0) << "all or nothing, whatever the server saw first";
  EXPECT_TRUE(AnotherCanPut());
}

TEST_F(PutPiecesTest, ADatabaseHasOneAtATimeAndASessionToo) {
  ASSERT_OK(Add(Piece(1, 1, Labels(0, 10, 777))));
  EXPECT_THAT(Add(Piece(2, 1, Labels(0, 10, 778))).ToString(),
              HasSubstr("put 1 of this session is under way"));
  WirePeer other(served_.socket());
  Connect(other, 2);
  for (int attempt = 0; attempt < 3; ++attempt) {
    EXPECT_THAT(Add(other, Piece(1, 1, Labels(0, 10, 779))), IsStatus(Code::kBusy));
  }
  ASSERT_OK(other.CallFor<wire::Written>(wire::Put{.number = 5, .tables = {Labels(20, 5, 780)}}))
      << "whole ones go on beside it";
  ASSERT_OK(other.CallFor<wire::Done>(wire::ForgetPut{1})) << "its own, of which there is none";
  ASSERT_OK(Add(Piece(1, 2, Labels(10, 10, 777))));
  ASSERT_OK(Commit(peer_, Last(1, 3)));
  EXPECT_EQ(Labelled(777), 20U);
  EXPECT_EQ(Labelled(778) + Labelled(779), 0U);
  EXPECT_OK(Add(other, Piece(6, 1, Labels(0, 10, 779))));
}

TEST_F(PutPiecesTest, WhatIsForgottenIsFreeAtOnce) {
  ASSERT_OK(Add(Piece(1, 1, Labels(0, 10, 777))));
  EXPECT_OK(peer_.CallFor<wire::Done>(wire::ForgetPut{3})) << "another one: nothing";
  ASSERT_OK(Add(Piece(1, 2, Labels(0, 10, 777))));
  EXPECT_OK(peer_.CallFor<wire::Done>(wire::ForgetPut{1}));
  WirePeer other(served_.socket());
  Connect(other, 2);
  EXPECT_OK(Add(other, Piece(1, 1, Labels(0, 10, 778))));
  EXPECT_THAT(Commit(peer_, Last(1, 3)), IsStatus(Code::kUsage));
  EXPECT_OK(peer_.CallFor<wire::Done>(wire::ForgetPut{1})) << "twice is once";
  EXPECT_OK(Commit(other, Last(1, 2)));
  EXPECT_EQ(Labelled(777), 0U);
  EXPECT_EQ(Labelled(778), 10U);
}

TEST_F(PutPiecesTest, ASessionThatEndsTakesItsPiecesWithIt) {
  ASSERT_OK(Add(Piece(1, 1, Labels(0, 100, 777))));
  peer_.Close();
  EXPECT_TRUE(AnotherCanPut());
  EXPECT_EQ(Labelled(777), 0U);
}

TEST_F(PutPiecesTest, APieceThatIsCancelledTakesTheOthersWithItOrIsThere) {
  for (uint64_t number = 1; number <= 20; ++number) {
    ASSERT_OK(Add(Piece(number, 1, Labels(0, 10, 777))));
    const uint64_t second = peer_.Send(Piece(number, 2, Labels(10, 10, 777)));
    ASSERT_OK(peer_.CallFor<wire::Done>(wire::Cancel{second}));
    const bool there = peer_.Await(second).ok();
    EXPECT_EQ(Add(Piece(number, 3, Labels(20, 10, 777))).ok(), there);
    EXPECT_OK(peer_.CallFor<wire::Done>(wire::ForgetPut{number}));
  }
  EXPECT_EQ(Labelled(777), 0U);
  EXPECT_TRUE(AnotherCanPut());
}

TEST_F(PutPiecesTest, RowsThatDoNotFitAreRefusedWithAllBeforeThem) {
  struct Case {
    const char* what;
    wire::PutRows rows;
    Code code;
  };
  const Case cases[] = {
      {"a row beyond the table", Labels(400, 1, 777), Code::kInvalidArgument},
      {"a label that is none", Labels(0, 1, -2), Code::kInvalidArgument},
      {"a table that is not there", Labels(0, 1, 777, "lable"), Code::kNotFound},
      {"rows of another size",
       {.table = "feature", .rows = 1, .row_bytes = 8, .block = std::vector<std::byte>(16)},
       Code::kInvalidArgument},
      {"more than the session's memory",
       {.table = "feature",
        .rows = 1 << 20,
        .row_bytes = 512,
        .block = wire::Range{.region = 1, .bytes = uint64_t{520} << 20}},
       Code::kOutOfBudget},
      {"a region that is not there",
       {.table = "label", .rows = 1, .row_bytes = 8, .block = wire::Range{.region = 9, .bytes = 16}},
       Code::kInvalidArgument},
  };
  uint64_t number = 0;
  for (const Case& bad : cases) {
    SCOPED_TRACE(bad.what);
    ASSERT_OK(Add(Piece(++number, 1, Labels(0, 10, 777))));
    const Status refused = Add(Piece(number, 2, bad.rows));
    EXPECT_EQ(refused.code(), bad.code) << refused.ToString();
    EXPECT_THAT(Commit(peer_, Last(number, 3)), IsStatus(Code::kUsage));
    ASSERT_OK(Add(Piece(++number, 1, Labels(0, 10, 777))));
    EXPECT_EQ(Commit(peer_, Piece(number, 2, bad.rows, true)).status().code(), bad.code) << "in the last";
    EXPECT_TRUE(AnotherCanPut());
  }
  EXPECT_EQ(Labelled(777), 0U);
}

// Refused by the decoder: the server has seen no piece, and those before it stay.
TEST_F(PutPiecesTest, NamesAreNoPathsAndPiecesHaveRows) {
  ASSERT_OK(Add(Piece(1, 1, Labels(0, 10, 777))));
  uint64_t id = 1000;
  const auto refused = [&](const std::string& name, const wire::Put& put) {
    auto frame = wire::EncodeRequest(++id, put);
    EXPECT_OK(frame);
    if (!name.empty()) {  // what no client would send, in the place of a name as long
      const std::string there(name.size(), 'x');
      const auto there_bytes = std::as_bytes(std::span(there));
      const auto at = std::search(frame->begin(), frame->end(), there_bytes.begin(), there_bytes.end());
      EXPECT_NE(at, frame->end());
      std::memcpy(&*at, name.data(), name.size());
    }
    EXPECT_TRUE(peer_.SendBytes(*frame));
    return peer_.Await(id).status().code();
  };
  for (const std::string name : {"../../etc/passwd", "/etc/passwd", "label/../label", "..", "a b"}) {
    EXPECT_EQ(refused(name, Piece(1, 2, Labels(0, 1, 777, std::string(name.size(), 'x')))),
              Code::kInvalidArgument)
        << name;
  }
  const auto bad = [](const wire::Put& put) { return wire::EncodeRequest(1, put).status().code(); };
  EXPECT_EQ(bad({.number = 1, .piece = 2}), Code::kInvalidArgument) << "no tables";
  EXPECT_EQ(bad({.number = 1, .tables = {Labels(0, 1, 1)}, .last = true}), Code::kInvalidArgument);
  EXPECT_EQ(bad(Piece(0, 1, Labels(0, 1, 1))), Code::kInvalidArgument) << "no number";
  EXPECT_OK(Commit(peer_, Last(1, 2)));
  EXPECT_EQ(Labelled(777), 10U);
}

TEST_F(PutPiecesTest, AServerThatStopsForgetsThem) {
  ASSERT_OK(Add(Piece(1, 1, Labels(0, 10, 777))));
  served_.server.reset();
  EXPECT_OK(served_.store->BeginLargeWrite()) << "another may begin";
  served_.Start();
  EXPECT_EQ(Labelled(777), 0U);
}

}  // namespace
}  // namespace quarry
