// The bytes of a planned block, worked out by hand from docs/format.md "Planned blocks": layouts that are on
// disk must stay readable.
#include <gtest/gtest.h>

#include "quarry/cache/cache_simulator.h"
#include "quarry/layout/planned_block.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

std::vector<std::byte> Bytes(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

// Seeds 10 and 40, then 5, 20 and 180 of hop 1. 40 and 5 are cached, 20 lies in the segment's cache; 180 and
// the carried row 30 enter the cache.
std::vector<std::byte> GoldenBlock() {
  return Bytes({
      2,    0,    0, 0,  // hop groups
      2,    0,    0, 0,  // targets
      3,    0,    0, 0,  // edges
      3,    0,    0, 0,  // chunk rows
      1,    0,    0, 0,  // segment rows
      2,    0,    0, 0,  // admissions
      2,    0,    0, 0,  // bits of a degree: 0 to 2
      3,    0,    0, 0,  // of a local id: 0 to 4
      2,    0,    0, 0,  // of an admission's slot: 0 to 2
      1,    0,    0, 0,  // group 0: cached
      1,    0,    0, 0,  // packed
      0,    0,    0, 0,  // of the segment
      1,    0,    0, 0,  // group 1
      1,    0,    0, 0,  //
      1,    0,    0, 0,  //
      3,                 // slot of 40
      1,                 // slot of 5
      10,   20,          // chunk: 10, 30
      0x96, 0x01,        // and 180: 150 more
      7,                 // place of 20 in the segment's cache
      20,                // and its node, 8 bits
      0x58,              // groups of the frame's rows, 2 bits: 0, 2 (carried), 1, 1
      0x09,              // degrees of 40 and 10, 2 bits: 1, 2
      0xe2, 0x00,        // local ids, 3 bits: 2 | 4, 3
      1,    1,           // frame rows that enter the cache: 1, 2
      0x08,              // and their slots, 2 bits: 0, 2
  });
}

TEST(PlannedBlockGolden, IsEncodedAsTheFormatSays) {
  const std::vector<NodeId> nodes = {10, 40, 5, 20, 180};
  const std::vector<uint32_t> hop_offsets = {2, 5};
  const std::vector<uint32_t> indptr = {0, 2, 3};
  const std::vector<uint32_t> indices = {3, 4, 2};  // 20 and 180 of 10, 5 of 40
  const std::vector<uint32_t> slots = {kNoSlot, 3, 1, kNoSlot, kNoSlot};
  std::vector<uint32_t> segment_places(200, kNoSlot);
  segment_places[20] = 7;
  segment_places[40] = 2;  // which is cached
  const std::vector<BlockPlan::Admission> admitted = {{.position = 4, .slot = 2}};
  const std::vector<BlockPlan::Carried> carried = {{.node = 30, .slot = 0}};
  BlockEncoder encoder;
  std::vector<std::byte> bytes;
  encoder.Encode({.nodes = nodes,
                  .hop_offsets = hop_offsets,
                  .indptr = indptr,
                  .indices = indices,
                  .slots = slots,
                  .segment_places = segment_places,
                  .admitted = admitted,
                  .carried = carried,
                  .node_count = 200},
                 bytes);
  EXPECT_EQ(bytes, GoldenBlock());
}

TEST(PlannedBlockGolden, IsDecodedAsTheFormatSays) {
  const std::vector<NodeId> start_nodes = {8, 5, 9, 40};
  BlockDecoder decoder(/*cache_slots=*/4, /*node_count=*/200, start_nodes);
  PlannedBlock out;
  ASSERT_OK(decoder.Decode(GoldenBlock(), out));
  using Words = std::vector<uint32_t>;
  EXPECT_EQ(out.block.nodes, (std::vector<NodeId>{40, 10, 5, 180, 20}));
  EXPECT_EQ(out.block.hop_offsets, (Words{2, 5}));
  EXPECT_EQ(out.block.indptr, (Words{0, 1, 3}));
  EXPECT_EQ(out.block.indices, (Words{2, 4, 3}));
  EXPECT_EQ(out.slots, (Words{3, 4 + 0, 1, 4 + 2, 4 + 3}));
  EXPECT_EQ(out.chunk_rows, 3u);
  EXPECT_EQ(out.segment_places, (Words{7}));
  EXPECT_EQ(out.frame_nodes, (std::vector<NodeId>{10, 30, 180, 20}));
  EXPECT_EQ(out.admitted_rows, (Words{1, 2}));
  EXPECT_EQ(out.admitted_slots, (Words{0, 2}));
  EXPECT_EQ(out.misses, 3u);

  // Afterwards 30 is in slot 0 and 180 in slot 2: a block of two cached rows is these.
  std::vector<std::byte> next;
  for (const int head : {1, 0, 0, 0, 0, 0, 1, 1, 1, /*cached*/ 2, 0, 0}) {
    next.insert(next.end(), {static_cast<std::byte>(head), {}, {}, {}});
  }
  next.insert(next.end(), {std::byte{0}, std::byte{2}});
  ASSERT_OK(decoder.Decode(next, out));
  EXPECT_EQ(out.block.nodes, (std::vector<NodeId>{30, 180}));
}

}  // namespace
}  // namespace quarry
