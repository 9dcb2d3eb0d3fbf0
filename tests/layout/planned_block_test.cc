#include "quarry/layout/planned_block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>

#include "bits.h"
#include "quarry/base/random.h"
#include "quarry/cache/cache_simulator.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using Edges = std::multiset<std::tuple<NodeId, NodeId, uint64_t>>;  // source, target and id

struct Shape {
  uint64_t node_count = 2000;
  uint32_t cache_slots = 60;
  uint32_t groups = 3;
  uint32_t batch_nodes = 120;
  bool segment = false;
  uint64_t edges = 0;      // above 0: blocks say which of so many edges theirs are
  uint32_t relations = 0;  // above 0: and of which of so many relations
};

// A batch in the trace's order, with memory of its own.
struct PlannedBatch {
  std::vector<NodeId> nodes;
  std::vector<uint32_t> hop_offsets, indptr, indices, slots;
  std::vector<uint32_t> segment_places;  // by node
  std::vector<BlockPlan::Admission> admitted;
  std::vector<BlockPlan::Carried> carried;
  uint64_t node_count = 0;
  std::vector<uint64_t> edge_ids;
  std::vector<uint32_t> edge_low, edge_high;  // their words
  std::vector<uint32_t> relations;

  BlockPlan plan() const {
    return {.nodes = nodes,
            .hop_offsets = hop_offsets,
            .indptr = indptr,
            .indices = indices,
            .slots = slots,
            .segment_places = segment_places,
            .admitted = admitted,
            .carried = carried,
            .node_count = node_count,
            .edge_low = edge_low,
            .edge_high = edge_high,
            .relations = relations};
  }
  bool Missed(size_t position) const { return slots[position] == kNoSlot; }
  bool InSegment(NodeId node) const { return !segment_places.empty() && segment_places[node] != kNoSlot; }
};

// Draws batches whose cache hits are those of the admissions before them.
class PlanMaker {
 public:
  PlanMaker(const Shape& shape, uint64_t seed) : shape_(shape), rng_(seed), cache_(shape.cache_slots) {
    std::set<NodeId> start;
    while (start.size() < shape.cache_slots / 2) start.insert(AnyNode());
    start_.assign(start.begin(), start.end());
    for (size_t i = 0; i < start_.size(); ++i) cache_[i] = start_[i];
  }
  const std::vector<NodeId>& start() const { return start_; }

  PlannedBatch Next() {
    PlannedBatch batch{.node_count = shape_.node_count};
    DrawNodes(batch);
    DrawEdges(batch);
    PlaceNodes(batch);
    Admit(batch);
    return batch;
  }

 private:
  NodeId AnyNode() { return static_cast<NodeId>(rng_.Below(shape_.node_count)); }

  // Half of the nodes are looked for in the cache, so that there are hits.
  void DrawNodes(PlannedBatch& batch) {
    std::set<NodeId> seen;
    for (uint32_t g = 0; g < shape_.groups; ++g) {
      std::set<NodeId> group;
      const uint64_t draws = (g == 0 ? 1 : 0) + rng_.Below(2 * shape_.batch_nodes / shape_.groups);
      for (uint64_t i = 0; i < draws; ++i) {
        NodeId node = AnyNode();
        if (!cache_.empty() && rng_.Below(2) == 0) node = cache_[rng_.Below(cache_.size())].value_or(node);
        if (seen.insert(node).second) group.insert(node);
      }
      batch.nodes.insert(batch.nodes.end(), group.begin(), group.end());
      batch.hop_offsets.push_back(static_cast<uint32_t>(batch.nodes.size()));
    }
  }

  // A node of hop g has neighbors among those known after hop g + 1.
  void DrawEdges(PlannedBatch& batch) {
    batch.indptr.push_back(0);
    for (uint32_t g = 0; g + 1 < shape_.groups; ++g) {
      for (uint32_t v = g == 0 ? 0 : batch.hop_offsets[g - 1]; v < batch.hop_offsets[g]; ++v) {
        for (uint64_t degree = rng_.Below(6); degree > 0; --degree) {
          batch.indices.push_back(static_cast<uint32_t>(rng_.Below(batch.hop_offsets[g + 1])));
        }
        batch.indptr.push_back(static_cast<uint32_t>(batch.indices.size()));
      }
    }
    for (size_t e = 0; shape_.edges > 0 && e < batch.indices.size(); ++e) {
      const uint64_t id = rng_.Below(shape_.edges);
      batch.edge_ids.push_back(id);
      batch.edge_low.push_back(static_cast<uint32_t>(id));
      batch.edge_high.push_back(static_cast<uint32_t>(id >> 32));
    }
    for (size_t e = 0; shape_.relations > 0 && e < batch.indices.size(); ++e) {
      batch.relations.push_back(static_cast<uint32_t>(rng_.Below(shape_.relations)));
    }
  }

  void PlaceNodes(PlannedBatch& batch) {
    std::map<NodeId, uint32_t> resident;
    for (uint32_t slot = 0; slot < cache_.size(); ++slot) {
      if (cache_[slot]) resident[*cache_[slot]] = slot;
    }
    for (const NodeId node : batch.nodes) {
      batch.slots.push_back(resident.contains(node) ? resident[node] : kNoSlot);
    }
    if (!shape_.segment) return;
    batch.segment_places.assign(shape_.node_count, kNoSlot);
    std::vector<uint32_t> places(shape_.node_count);
    for (uint32_t i = 0; i < places.size(); ++i) places[i] = i;
    for (NodeId node = 0; node < shape_.node_count; ++node) {  // a shuffle, of which half is used
      std::swap(places[node], places[node + rng_.Below(shape_.node_count - node)]);
      if (rng_.Below(2) == 0) batch.segment_places[node] = places[node];
    }
  }

  // Some misses enter the cache, and some rows that the batch has no use for.
  void Admit(PlannedBatch& batch) {
    std::vector<uint32_t> slots(cache_.size());
    for (uint32_t i = 0; i < slots.size(); ++i) slots[i] = i;
    const auto take_slot = [&] {
      std::swap(slots[rng_.Below(slots.size())], slots.back());
      const uint32_t slot = slots.back();
      slots.pop_back();
      return slot;
    };
    std::set<NodeId> missed, stay(batch.nodes.begin(), batch.nodes.end());
    for (uint32_t p = 0; p < batch.nodes.size(); ++p) {
      if (!batch.Missed(p)) continue;
      missed.insert(batch.nodes[p]);
      if (!slots.empty() && rng_.Below(4) == 0) batch.admitted.push_back({p, take_slot()});
    }
    std::set<NodeId> carried;
    for (uint64_t i = rng_.Below(8); i > 0; --i) {
      const NodeId node = AnyNode();
      if (!missed.contains(node)) carried.insert(node);
    }
    for (const NodeId node : carried) {
      if (!slots.empty()) batch.carried.push_back({node, take_slot()});
    }
    // A row is in one slot: what enters anew leaves the slot that it had.
    const auto enter = [&](NodeId node, uint32_t slot) {
      std::ranges::replace(cache_, std::optional(node), std::optional<NodeId>());
      cache_[slot] = node;
    };
    for (const BlockPlan::Admission& a : batch.admitted) enter(batch.nodes[a.position], a.slot);
    for (const BlockPlan::Carried& c : batch.carried) enter(c.node, c.slot);
  }

  const Shape shape_;
  Rng rng_;
  std::vector<NodeId> start_;
  std::vector<std::optional<NodeId>> cache_;  // by slot
};

Edges EdgesOf(std::span<const NodeId> nodes, std::span<const uint32_t> indptr,
              std::span<const uint32_t> indices, std::span<const uint64_t> ids) {
  Edges edges;
  EXPECT_TRUE(ids.empty() || ids.size() == indices.size());
  for (size_t v = 0; v + 1 < indptr.size(); ++v) {
    for (uint32_t e = indptr[v]; e < indptr[v + 1]; ++e) {
      edges.emplace(nodes[indices[e]], nodes[v], ids.empty() ? 0 : ids[e]);
    }
  }
  return edges;
}

// The rows of a hop group stand cached first, then packed, then of the segment, each in its order.
void ExpectRanges(const PlannedBlock& got, uint32_t cache_slots) {
  uint32_t begin = 0;
  for (const uint32_t end : got.block.hop_offsets) {
    std::vector<std::pair<int, uint32_t>> keys;
    for (uint32_t v = begin; v < end; ++v) {
      const uint32_t slot = got.slots[v];
      const uint32_t row = slot - cache_slots;
      if (slot < cache_slots) {
        keys.emplace_back(0, slot);
      } else if (row < got.chunk_rows) {
        keys.emplace_back(1, got.block.nodes[v]);
      } else {
        keys.emplace_back(2, got.segment_places.at(row - got.chunk_rows));
      }
    }
    EXPECT_TRUE(std::ranges::is_sorted(keys));
    begin = end;
  }
}

void ExpectPlacesOf(const PlannedBatch& batch, const PlannedBlock& got, uint32_t cache_slots) {
  std::map<NodeId, uint32_t> cached;
  std::set<NodeId> chunk;
  for (size_t p = 0; p < batch.nodes.size(); ++p) {
    if (!batch.Missed(p)) {
      cached[batch.nodes[p]] = batch.slots[p];
    } else if (!batch.InSegment(batch.nodes[p])) {
      chunk.insert(batch.nodes[p]);
    }
  }
  uint32_t misses = 0;
  for (size_t v = 0; v < got.block.nodes.size(); ++v) {
    const NodeId node = got.block.nodes[v];
    if (cached.contains(node)) {
      EXPECT_EQ(got.slots[v], cached[node]) << "node " << node;
      continue;
    }
    ++misses;
    ASSERT_GE(got.slots[v], cache_slots);
    const uint32_t row = got.slots[v] - cache_slots;
    ASSERT_LT(row, got.frame_nodes.size());
    EXPECT_EQ(got.frame_nodes[row], node);
    EXPECT_EQ(row < got.chunk_rows, chunk.contains(node)) << "node " << node;
    if (row >= got.chunk_rows) {
      EXPECT_EQ(got.segment_places.at(row - got.chunk_rows), batch.segment_places[node]);
    }
  }
  EXPECT_EQ(got.misses, misses);
  for (const BlockPlan::Carried& c : batch.carried) chunk.insert(c.node);
  EXPECT_EQ(std::vector(got.frame_nodes.begin(), got.frame_nodes.begin() + got.chunk_rows),
            std::vector(chunk.begin(), chunk.end()));
}

void ExpectSame(const PlannedBatch& batch, const PlannedBlock& got, uint32_t cache_slots) {
  ASSERT_EQ(got.block.hop_offsets, batch.hop_offsets);
  ASSERT_EQ(got.block.nodes.size(), batch.nodes.size());
  uint32_t begin = 0;
  for (const uint32_t end : batch.hop_offsets) {
    std::vector<NodeId> group(got.block.nodes.begin() + begin, got.block.nodes.begin() + end);
    std::ranges::sort(group);
    EXPECT_TRUE(std::ranges::equal(group, std::span(batch.nodes).subspan(begin, end - begin)));
    begin = end;
  }
  ASSERT_EQ(got.block.indptr.size(), batch.indptr.size());
  EXPECT_EQ(got.block.edge_ids.size(), batch.edge_ids.size());
  EXPECT_EQ(EdgesOf(got.block.nodes, got.block.indptr, got.block.indices, got.block.edge_ids),
            EdgesOf(batch.nodes, batch.indptr, batch.indices, batch.edge_ids));
  EXPECT_EQ(got.block.relations.size(), batch.relations.size());
  const std::vector<uint64_t> relations(got.block.relations.begin(), got.block.relations.end());
  EXPECT_EQ(EdgesOf(got.block.nodes, got.block.indptr, got.block.indices, relations),
            EdgesOf(batch.nodes, batch.indptr, batch.indices,
                    std::vector<uint64_t>(batch.relations.begin(), batch.relations.end())));
  ExpectPlacesOf(batch, got, cache_slots);
  ExpectRanges(got, cache_slots);

  std::map<uint32_t, NodeId> entered, expected;
  for (size_t i = 0; i < got.admitted_rows.size(); ++i) {
    entered[got.admitted_slots[i]] = got.frame_nodes.at(got.admitted_rows[i]);
  }
  for (const BlockPlan::Admission& a : batch.admitted) expected[a.slot] = batch.nodes[a.position];
  for (const BlockPlan::Carried& c : batch.carried) expected[c.slot] = c.node;
  EXPECT_EQ(entered, expected);
  EXPECT_EQ(got.admitted_rows.size(), expected.size());
  EXPECT_TRUE(std::ranges::is_sorted(got.admitted_rows));
}

// Batches of a shape with their encoded bytes.
struct Encoded {
  Encoded(const Shape& s, uint64_t seed, size_t count) : shape(s), maker(s, seed) {
    BlockEncoder encoder;
    for (size_t b = 0; b < count; ++b) {
      batches.push_back(maker.Next());
      std::vector<std::byte> out = {std::byte{0x5a}};  // what is there stays
      encoder.Encode(batches.back().plan(), out);
      EXPECT_EQ(out.front(), std::byte{0x5a});
      bytes.emplace_back(out.begin() + 1, out.end());
      chunk_nodes.emplace_back(encoder.chunk_nodes().begin(), encoder.chunk_nodes().end());
      places.emplace_back(encoder.segment_places().begin(), encoder.segment_places().end());
    }
  }
  BlockDecoder Decoder() const {
    return {shape.cache_slots, shape.node_count, maker.start(), shape.edges > 0, shape.relations};
  }

  Shape shape;
  PlanMaker maker;
  std::vector<PlannedBatch> batches;
  std::vector<std::vector<std::byte>> bytes;
  std::vector<std::vector<NodeId>> chunk_nodes;
  std::vector<std::vector<uint32_t>> places;
};

const std::vector<Shape>& Shapes() {
  static const std::vector<Shape> shapes = {
      {},
      {.segment = true},
      {.cache_slots = 0},
      {.cache_slots = 0, .segment = true},
      {.groups = 1},
      {.groups = 9, .batch_nodes = 300, .segment = true},
      {.node_count = 40, .cache_slots = 30, .batch_nodes = 60, .segment = true},
      {.node_count = 1 << 20, .cache_slots = 1000, .groups = 2},
      {.node_count = 3, .cache_slots = 1, .batch_nodes = 4},
      {.edges = 1},
      {.groups = 1, .edges = 5},
      {.segment = true, .edges = 5000},
      {.groups = 4, .edges = uint64_t{1} << 40},
      {.node_count = 3, .cache_slots = 1, .batch_nodes = 4, .edges = UINT64_MAX},
      {.segment = true, .relations = 1},
      {.groups = 1, .relations = 3},
      {.edges = 5000, .relations = 65'536},
      {.groups = 4, .relations = 5},
  };
  return shapes;
}

TEST(PlannedBlockTest, KeepsNodesEdgesAndWhereEveryRowLies) {
  for (size_t shape = 0; shape < Shapes().size(); ++shape) {
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(testing::Message() << "shape " << shape << ", seed " << seed);
      const Encoded encoded(Shapes()[shape], seed, 8);
      BlockDecoder decoder = encoded.Decoder();
      PlannedBlock got;
      for (int round = 0; round < 2; ++round) {
        for (size_t b = 0; b < encoded.batches.size(); ++b) {
          SCOPED_TRACE(testing::Message() << "batch " << b);
          const Status status = decoder.Decode(encoded.bytes[b], got);
          ASSERT_OK(status);
          ExpectSame(encoded.batches[b], got, encoded.shape.cache_slots);
          EXPECT_EQ(std::vector(got.frame_nodes.begin(), got.frame_nodes.begin() + got.chunk_rows),
                    encoded.chunk_nodes[b]);
          EXPECT_EQ(got.segment_places, encoded.places[b]);
          BlockFrame frame;
          ASSERT_OK(DecodeFrame(encoded.bytes[b], encoded.shape.node_count, frame));
          EXPECT_EQ(frame.chunk_rows, got.chunk_rows);
          EXPECT_EQ(frame.nodes, got.frame_nodes);
          EXPECT_EQ(frame.segment_places, got.segment_places);
          if (testing::Test::HasFailure()) return;
        }
        decoder.Restart();
      }
    }
  }
}

TEST(PlannedBlockTest, TheLargestNodeAndSlotAreHeld) {
  PlannedBatch batch{.node_count = 0xffffffff};
  batch.nodes = {0, 0xfffffffe};
  batch.hop_offsets = {2};
  batch.indptr = {0};
  batch.slots = {kNoSlot, kNoSlot};
  batch.admitted = {{.position = 1, .slot = 999'999}};
  std::vector<std::byte> bytes;
  BlockEncoder().Encode(batch.plan(), bytes);
  BlockDecoder decoder(1'000'000, batch.node_count, {});
  PlannedBlock got;
  ASSERT_OK(decoder.Decode(bytes, got));
  ExpectSame(batch, got, 1'000'000);
}

// Whoever trains from a block indexes with what it says.
std::string FaultOf(const PlannedBlock& got, uint64_t node_count, uint32_t cache_slots) {
  const Block& block = got.block;
  const auto below = [](const std::vector<uint32_t>& values, uint64_t limit) {
    return std::ranges::all_of(values, [limit](uint32_t value) { return value < limit; });
  };
  if (block.hop_offsets.empty() || !std::ranges::is_sorted(block.hop_offsets) ||
      block.hop_offsets.back() != block.nodes.size()) {
    return "hop groups do not fill the nodes";
  }
  if (!below(block.nodes, node_count) || !below(got.frame_nodes, node_count)) return "an unknown node";
  if (got.frame_nodes.size() != got.chunk_rows + got.segment_places.size()) return "frame rows";
  if (got.slots.size() != block.nodes.size()) return "slots and nodes differ in number";
  if (!below(got.slots, cache_slots + got.frame_nodes.size())) return "a row outside cache and frame";
  if (!std::ranges::is_sorted(got.segment_places)) return "places are not ascending";
  const uint32_t hops = block.view().hops();
  if (block.indptr.size() != (hops == 0 ? 0 : block.hop_offsets[hops - 1]) + 1) return "number of targets";
  if (block.indptr.front() != 0 || !std::ranges::is_sorted(block.indptr) ||
      block.indptr.back() != block.indices.size()) {
    return "degrees";
  }
  if (!below(block.indices, block.nodes.size())) return "an unknown neighbor";
  if (!below(got.admitted_rows, got.frame_nodes.size()) || !std::ranges::is_sorted(got.admitted_rows) ||
      !below(got.admitted_slots, cache_slots) || got.admitted_rows.size() != got.admitted_slots.size()) {
    return "an admission";
  }
  return "";
}

// Decodes damaged bytes as the first batch, into memory that other blocks were in.
class Damage {
 public:
  explicit Damage(const Encoded& encoded) : encoded_(encoded) {}
  ::testing::AssertionResult Survives(const std::vector<std::byte>& bytes) {
    const std::unique_ptr<std::byte[]> exact(new std::byte[bytes.size()]);  // for AddressSanitizer
    std::ranges::copy(bytes, exact.get());
    // What an earlier block left in the memory must not come through.
    got_.block.nodes.assign(kLeftBehind, kNoNode);
    got_.slots.assign(kLeftBehind, kNoSlot);
    BlockDecoder decoder = encoded_.Decoder();
    const Status status = decoder.Decode({exact.get(), bytes.size()}, got_);
    BlockFrame frame;
    const Status framed = DecodeFrame({exact.get(), bytes.size()}, encoded_.shape.node_count, frame);
    if (!framed.ok() && status.ok()) return ::testing::AssertionFailure() << framed.ToString();
    if (status.code() == Code::kCorruption) {
      ++found;
      return ::testing::AssertionSuccess();
    }
    if (!status.ok()) return ::testing::AssertionFailure() << status.ToString();
    const std::string fault = FaultOf(got_, encoded_.shape.node_count, encoded_.shape.cache_slots);
    if (fault.empty()) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "taken for whole: " << fault;
  }
  uint64_t found = 0;

 private:
  static constexpr size_t kLeftBehind = 2000;
  const Encoded& encoded_;
  PlannedBlock got_;
};

TEST(PlannedBlockTest, ADamagedByteIsFoundOrGivesAWellFormedBlock) {
  for (size_t shape = 0; shape < Shapes().size(); ++shape) {
    constexpr uint64_t kSeed = 11;
    SCOPED_TRACE(testing::Message() << "shape " << shape << ", seed " << kSeed);
    Shape small = Shapes()[shape];
    small.batch_nodes = std::min<uint32_t>(small.batch_nodes, 60);
    const Encoded encoded(small, kSeed, 3);
    Damage damage(encoded);
    const std::vector<std::byte>& whole = encoded.bytes.front();
    ASSERT_TRUE(damage.Survives(whole));
    for (size_t at = 0; at < whole.size(); ++at) {
      for (const int flip : {0x01, 0x02, 0x08, 0x40, 0x80, 0xff}) {
        std::vector<std::byte> bytes = whole;
        bytes[at] ^= static_cast<std::byte>(flip);
        ASSERT_TRUE(damage.Survives(bytes)) << "byte " << at << " of " << whole.size() << " ^ " << flip;
      }
    }
    EXPECT_GT(damage.found, 40u) << "the head alone is that much";
  }
}

TEST(PlannedBlockTest, ATruncatedBlockIsFoundAtEveryLength) {
  for (size_t shape = 0; shape < Shapes().size(); ++shape) {
    SCOPED_TRACE(testing::Message() << "shape " << shape);
    const Encoded encoded(Shapes()[shape], 12, 3);
    Damage damage(encoded);
    const std::vector<std::byte>& whole = encoded.bytes.front();
    for (size_t length = 0; length < whole.size(); ++length) {
      ASSERT_TRUE(damage.Survives({whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length)}))
          << "length " << length << " of " << whole.size();
      ASSERT_EQ(damage.found, length + 1) << "length " << length << " of " << whole.size();
    }
  }
}

// A list that is ascending but for an overflow would pass a look at its last value.
TEST(PlannedBlockTest, ListsThatOverflowAreFound) {
  const std::vector<uint32_t> overflowing = {0xfffffff0, 3};
  const uint32_t bits = BitsFor(100);
  for (const bool cached : {true, false}) {
    SCOPED_TRACE(cached ? "cached" : "of the segment");
    const uint32_t segment_rows = cached ? 0 : 2;
    std::vector<std::byte> bytes;
    ByteWriter writer(bytes);
    for (const uint32_t word : {1u, 0u, 0u, 0u, segment_rows, 0u, 1u, 1u, 1u}) writer.U32(word);  // the head
    for (const uint32_t word : {2 - segment_rows, 0u, segment_rows}) writer.U32(word);            // its group
    writer.Ascending(overflowing);  // of slots, or of places
    if (!cached) {
      writer.Packed(std::vector<uint32_t>{7, 8}, bits);        // nodes
      writer.Packed(std::vector<uint32_t>{0, 0}, BitsFor(1));  // groups
    }
    const std::vector<NodeId> start = {1, 2, 3, 4, 5};
    BlockDecoder decoder(5, 100, start);
    PlannedBlock got;
    EXPECT_THAT(decoder.Decode(bytes, got), IsStatus(Code::kCorruption));
  }
}

TEST(PlannedBlockTest, TargetsMustBeTheGroupsBeforeTheLast) {
  for (const uint32_t targets : {0u, 1u, 2u, 3u}) {
    std::vector<std::byte> bytes;
    ByteWriter writer(bytes);
    for (const uint32_t word : {2u, targets, 0u, 3u, 0u, 0u, 1u, 1u, 1u}) writer.U32(word);  // the head
    for (const uint32_t word : {0u, 2u, 0u, 0u, 1u, 0u}) writer.U32(word);                   // two groups
    writer.Ascending(std::vector<uint32_t>{7, 8, 9});                                        // the chunk
    writer.Packed(std::vector<uint32_t>{0, 1, 0}, BitsFor(2));  // groups of its rows
    writer.Packed(std::vector<uint32_t>(targets), 1);           // degrees
    BlockDecoder decoder(0, 100, {});
    PlannedBlock got;
    EXPECT_EQ(decoder.Decode(bytes, got).code(), targets == 2 ? Code::kOk : Code::kCorruption) << targets;
  }
}

// Several bytes at once: runs of ones, which make varints of five bytes, of zeros, and of noise.
TEST(PlannedBlockTest, ADamagedRangeIsFoundOrGivesAWellFormedBlock) {
  const Encoded few(Shapes()[1], 13, 3), many(Shapes()[5], 13, 3);
  Damage damages[] = {Damage(few), Damage(many)};
  for (uint64_t seed = 1; seed <= 4000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    const Encoded& encoded = seed % 2 == 0 ? few : many;
    std::vector<std::byte> bytes = encoded.bytes.front();
    for (uint64_t ranges = 1 + rng.Below(2); ranges > 0; --ranges) {
      const uint64_t first = rng.Below(bytes.size());
      const uint64_t end = std::min<uint64_t>(bytes.size(), first + 1 + rng.Below(8));
      const uint64_t kind = rng.Below(3);
      for (uint64_t at = first; at < end; ++at) {
        bytes[at] = kind == 0 ? std::byte{0xff} : kind == 1 ? std::byte{0} : static_cast<std::byte>(rng());
      }
    }
    ASSERT_TRUE(damages[seed % 2].Survives(bytes));
  }
}

}  // namespace
}  // namespace quarry
