#include "quarry/partition/edge_bucket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>

#include "quarry/base/random.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A multiple of 8 in memory, as pages are.
struct Encoded {
  std::vector<uint64_t> words;
  BucketShape shape;
  const std::byte* bytes() const { return reinterpret_cast<const std::byte*>(words.data()); }
  std::byte* bytes() { return reinterpret_cast<std::byte*>(words.data()); }
  BucketLists lists() const { return {shape, bytes()}; }
};

Encoded Encode(std::span<const uint64_t> edges, std::span<const uint32_t> relations, uint64_t relation_bytes,
               uint64_t node_count) {
  std::vector<std::byte> bytes;
  Encoded encoded;
  encoded.shape = EncodeLists(edges, relations, relation_bytes, node_count, bytes);
  EXPECT_EQ(bytes.size(), encoded.shape.bytes());
  encoded.words.resize(bytes.size() / 8);
  if (!bytes.empty()) std::memcpy(encoded.words.data(), bytes.data(), bytes.size());
  return encoded;
}

TEST(EdgeBucketTest, ListsAreThoseOfAMap) {
  Rng rng(41);
  uint64_t by_bits = 0;
  constexpr int kRounds = 300;
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(round);
    const uint64_t nodes = 1 + rng.Below(300);
    const uint64_t others = 1 + rng.Below(300);
    const uint64_t count = rng.Below(round % 2 == 0 ? 20 : 2000);
    const uint64_t relation_bytes = std::array<uint64_t, 4>{0, 1, 2, 4}[rng.Below(4)];
    std::vector<std::pair<uint64_t, uint32_t>> drawn;
    for (uint64_t i = 0; i < count; ++i) {
      drawn.emplace_back(
          LocalEdge(static_cast<uint32_t>(rng.Below(nodes)), static_cast<uint32_t>(rng.Below(others))),
          static_cast<uint32_t>(rng.Below(200)));
    }
    std::ranges::sort(drawn);
    std::vector<uint64_t> edges;
    std::vector<uint32_t> relations;
    std::map<uint32_t, std::vector<uint32_t>> expected;
    for (const auto& [edge, relation] : drawn) {
      edges.push_back(edge);
      relations.push_back(relation);
      expected[static_cast<uint32_t>(edge >> 32)].push_back(static_cast<uint32_t>(edge));
    }
    const Encoded encoded = Encode(edges, relations, relation_bytes, nodes);
    const BucketLists lists = encoded.lists();
    by_bits += count > 0 && encoded.shape.by_bits() ? 1 : 0;
    EXPECT_EQ(encoded.shape.list_count, expected.size());
    EXPECT_OK(lists.Check(others, 200, "a bucket"));
    for (uint32_t node = 0; node < nodes; ++node) {
      const auto neighbors = lists.Neighbors(node);
      EXPECT_EQ(std::vector<uint32_t>(neighbors.begin(), neighbors.end()), expected[node]);
    }
    size_t at = 0;
    lists.ForEachList([&](uint32_t node, uint64_t first, std::span<const uint32_t> neighbors) {
      EXPECT_EQ(first, at);
      for (size_t i = 0; i < neighbors.size(); ++i, ++at) {
        EXPECT_EQ(LocalEdge(node, neighbors[i]), edges[at]);
        if (relation_bytes > 0) {
          EXPECT_EQ(lists.Relation(at), relations[at]);
        }
      }
    });
    EXPECT_EQ(at, edges.size());
  }
  EXPECT_GT(by_bits, kRounds / 10);
  EXPECT_LT(by_bits, kRounds * 9 / 10);
}

TEST(EdgeBucketTest, ABucketWithoutEdgesTakesNothing) {
  const Encoded encoded = Encode({}, {}, 2, 1000);
  EXPECT_EQ(encoded.shape.bytes(), 0U);
  EXPECT_THAT(encoded.lists().Neighbors(17), IsEmpty());
  EXPECT_OK(encoded.lists().Check(1, 1, "a bucket"));
}

TEST(EdgeBucketTest, WhatDoesNotFitTogetherIsRefused) {
  const std::vector<uint64_t> edges = {LocalEdge(2, 5), LocalEdge(2, 9), LocalEdge(7, 0)};
  const std::vector<uint32_t> relations = {0, 1, 1};
  const Encoded sound = Encode(edges, relations, 1, 1000);
  ASSERT_FALSE(sound.shape.by_bits());
  EXPECT_OK(sound.lists().Check(10, 2, "a bucket"));
  EXPECT_THAT(std::string(sound.lists().Check(9, 2, "file: a bucket").message()),
              HasSubstr("file: a bucket: a neighbor is a node that its part has not"));
  EXPECT_THAT(sound.lists().Check(10, 1, "a bucket"), IsStatus(Code::kCorruption));
  Encoded few_nodes = sound;
  few_nodes.shape.node_count = 7;
  EXPECT_FALSE(few_nodes.shape.by_bits());
  EXPECT_THAT(few_nodes.lists().Check(10, 2, "a bucket"), IsStatus(Code::kCorruption));
  // Any one byte of the lists' own arrays: found, or it changes nothing that an index is made of.
  for (const uint64_t nodes : {uint64_t{8}, uint64_t{1000}}) {
    const Encoded whole = Encode(edges, relations, 1, nodes);
    for (size_t at = 0; at < whole.shape.bytes(); ++at) {
      Encoded damaged = whole;
      damaged.bytes()[at] ^= std::byte{0x80};
      const BucketLists lists = damaged.lists();
      if (!lists.Check(10, 2, "a bucket").ok()) continue;
      lists.ForEachList([&](uint32_t node, uint64_t first, std::span<const uint32_t> neighbors) {
        EXPECT_LT(node, nodes);
        EXPECT_LE(first + neighbors.size(), edges.size());
        for (const uint32_t neighbor : neighbors) EXPECT_LT(neighbor, 10U);
      });
    }
  }
}

}  // namespace
}  // namespace quarry
