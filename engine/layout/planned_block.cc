#include "quarry/layout/planned_block.h"

#include <algorithm>
#include <cassert>

#include "bits.h"
#include "quarry/base/radix_sort.h"
#include "quarry/cache/cache_simulator.h"
#include "quarry/sampling/sampler.h"

namespace quarry {
namespace {

constexpr uint32_t kGroupsMax = NeighborSampler::kHopsMax + 1;

Status Malformed(std::string_view what) {
  return MakeStatus(Code::kCorruption, "a planned block is malformed ({}): build the layout again", what);
}

// What stands before a block's arrays.
struct BlockHead {
  uint32_t groups = 0, targets = 0, edges = 0, chunk_rows = 0, segment_rows = 0, admissions = 0;
  uint32_t degree_bits = 0, index_bits = 0, slot_bits = 0;
  uint32_t cached[kGroupsMax] = {};  // rows of each kind, by hop group
  uint32_t packed[kGroupsMax] = {};
  uint32_t segment[kGroupsMax] = {};
  uint32_t ends[kGroupsMax] = {};  // nodes up to the end of each group
  uint64_t node_count = 0, cached_rows = 0;
};

// `bytes`: of the whole block.
Status ReadHead(ByteReader& reader, uint64_t bytes, BlockHead& head) {
  for (uint32_t* const value :
       {&head.groups, &head.targets, &head.edges, &head.chunk_rows, &head.segment_rows, &head.admissions,
        &head.degree_bits, &head.index_bits, &head.slot_bits}) {
    *value = reader.U32();
  }
  if (!reader.ok() || head.groups == 0 || head.groups > kGroupsMax) return Malformed("its head");
  for (const uint32_t bits : {head.degree_bits, head.index_bits, head.slot_bits}) {
    if (bits == 0 || bits > 32) return Malformed("a width of bits");
  }
  uint64_t packed_rows = 0, segment_rows = 0;
  for (uint32_t g = 0; g < head.groups; ++g) {
    head.cached[g] = reader.U32();
    head.packed[g] = reader.U32();
    head.segment[g] = reader.U32();
    head.cached_rows += head.cached[g];
    packed_rows += head.packed[g];
    segment_rows += head.segment[g];
    head.node_count += uint64_t{head.cached[g]} + head.packed[g] + head.segment[g];
    head.ends[g] = static_cast<uint32_t>(head.node_count);
  }
  // Each of these takes a bit at least, so the bytes bound them.
  const uint64_t limit = bytes * 8;
  if (head.node_count > limit || head.targets != (head.groups == 1 ? 0 : head.ends[head.groups - 2]) ||
      head.edges > limit || head.chunk_rows > limit || head.segment_rows > limit || head.admissions > limit ||
      packed_rows > head.chunk_rows || segment_rows != head.segment_rows) {
    return Malformed("its counts");
  }
  return Status::Ok();
}

// The nodes of the frame's rows, and the places of its segment rows.
Status ReadFrame(ByteReader& reader, const BlockHead& head, uint64_t node_count,
                 std::vector<NodeId>& frame_nodes, std::vector<uint32_t>& segment_places) {
  frame_nodes.resize(uint64_t{head.chunk_rows} + head.segment_rows);
  reader.Ascending(std::span(frame_nodes).first(head.chunk_rows));
  segment_places.resize(head.segment_rows);
  reader.Ascending(segment_places);
  reader.Packed(std::span(frame_nodes).subspan(head.chunk_rows), BitsFor(node_count));
  const bool in_range = std::ranges::all_of(frame_nodes, [&](NodeId node) { return node < node_count; });
  if (!reader.ok() || !in_range || !std::ranges::is_sorted(segment_places)) return Malformed("its rows");
  return Status::Ok();
}

}  // namespace

Status DecodeFrame(std::span<const std::byte> bytes, uint64_t node_count, BlockFrame& out) {
  ByteReader reader(bytes);
  BlockHead head;
  QUARRY_RETURN_IF_ERROR(ReadHead(reader, bytes.size(), head));
  std::vector<uint32_t> slots;
  for (uint32_t g = 0; g < head.groups; ++g) {
    slots.resize(head.cached[g]);
    reader.Ascending(slots);
  }
  out.chunk_rows = head.chunk_rows;
  return ReadFrame(reader, head, node_count, out.nodes, out.segment_places);
}

uint64_t PlannedBlock::memory_bytes() const {
  return block.memory_bytes() + 4 * (slots.capacity() + segment_places.capacity() + frame_nodes.capacity() +
                                     admitted_rows.capacity() + admitted_slots.capacity());
}

// Where the ranges of each hop group begin.
struct BlockEncoder::Groups {
  uint32_t count = 0;
  uint32_t ends[kGroupsMax] = {};
  uint32_t cached[kGroupsMax] = {};  // rows of each kind
  uint32_t packed[kGroupsMax] = {};
  uint32_t segment[kGroupsMax] = {};
  uint32_t begin(uint32_t g) const { return g == 0 ? 0 : ends[g - 1]; }
  uint32_t GroupOf(uint32_t position) const {
    uint32_t g = 0;
    while (position >= ends[g]) ++g;
    return g;
  }
};

// Numbers the cached rows: within each hop group they come first, ascending by slot, so that their slots can
// be written as an ascending list. Leaves their slots, group by group, in values_.
void BlockEncoder::NumberCached(const BlockPlan& plan, Groups& groups) {
  values_.clear();
  for (uint32_t g = 0; g < groups.count; ++g) {
    pairs_.clear();
    uint32_t slot_max = 0;
    for (uint32_t p = groups.begin(g); p < groups.ends[g]; ++p) {
      if (plan.slots[p] == kNoSlot) continue;
      pairs_.push_back(uint64_t{plan.slots[p]} << 32 | p);
      slot_max = std::max(slot_max, plan.slots[p]);
    }
    RadixSortByKey(pairs_, slot_max, scratch_);
    groups.cached[g] = static_cast<uint32_t>(pairs_.size());
    uint32_t local = groups.begin(g);
    for (const uint64_t pair : pairs_) {
      local_[static_cast<uint32_t>(pair)] = local++;
      values_.push_back(static_cast<uint32_t>(pair >> 32));
    }
  }
}

// Numbers the other rows. Within a hop group, rows of the chunk follow the cached ones, ascending by node,
// and rows of the segment follow those, ascending by place. Over all groups the frame has the same two
// orders, so where a row lies in it follows from its rank, and only its group has to be written (tags_).
// Carried rows are in the chunk and in no group. Leaves the nodes of the chunk in chunk_nodes_, and the
// segment rows in pairs_.
void BlockEncoder::NumberFrame(const BlockPlan& plan, Groups& groups) {
  const auto in_segment = [&](NodeId node) {
    return !plan.segment_places.empty() && plan.segment_places[node] != kNoSlot;
  };
  constexpr uint32_t kCarriedBit = uint32_t{1} << 31;
  tags_.clear();
  chunk_nodes_.clear();
  uint32_t next[kGroupsMax];
  for (uint32_t g = 0; g < groups.count; ++g) next[g] = groups.begin(g) + groups.cached[g];

  pairs_.clear();
  for (uint32_t p = 0; p < plan.nodes.size(); ++p) {
    if (plan.slots[p] == kNoSlot && !in_segment(plan.nodes[p])) {
      pairs_.push_back(uint64_t{plan.nodes[p]} << 32 | p);
    }
  }
  for (uint32_t i = 0; i < plan.carried.size(); ++i) {
    pairs_.push_back(uint64_t{plan.carried[i].node} << 32 | (kCarriedBit | i));
  }
  RadixSortByKey(pairs_, plan.node_count, scratch_);
  for (const uint64_t pair : pairs_) {
    const auto p = static_cast<uint32_t>(pair);
    const bool carried = (p & kCarriedBit) != 0;
    const uint32_t g = carried ? groups.count : groups.GroupOf(p);
    if (!carried) {
      local_[p] = next[g]++;
      frame_row_[p] = static_cast<uint32_t>(chunk_nodes_.size());
      ++groups.packed[g];
    }
    tags_.push_back(g);
    chunk_nodes_.push_back(static_cast<NodeId>(pair >> 32));
  }

  pairs_.clear();
  uint32_t place_max = 0;
  for (uint32_t p = 0; !plan.segment_places.empty() && p < plan.nodes.size(); ++p) {
    if (plan.slots[p] != kNoSlot || !in_segment(plan.nodes[p])) continue;
    const uint32_t place = plan.segment_places[plan.nodes[p]];
    pairs_.push_back(uint64_t{place} << 32 | p);
    place_max = std::max(place_max, place);
  }
  RadixSortByKey(pairs_, place_max, scratch_);
  segment_places_.clear();
  for (const uint64_t pair : pairs_) {
    const auto p = static_cast<uint32_t>(pair);
    const uint32_t g = groups.GroupOf(p);
    local_[p] = next[g]++;
    frame_row_[p] = static_cast<uint32_t>(chunk_nodes_.size()) + segment_rows();
    segment_places_.push_back(static_cast<uint32_t>(pair >> 32));
    ++groups.segment[g];
    tags_.push_back(g);
  }
}

// The bytes are, in this order (docs/format.md, "Planned blocks"):
//
//   head        counts, and the widths of what is packed
//   counts      cached, packed and segment rows of each hop group
//   slots       of the cached rows, group by group, ascending
//   rows        nodes of the chunk, places of the segment rows, both ascending; nodes of the latter; the
//               group of each row
//   edges       degree of each target, then the neighbors as local ids; where it says which edges these are, low and high
//               words of their ids; where it says of which relations they are, those
//   admissions  frame rows, ascending, and the slots that they go to
void BlockEncoder::Encode(const BlockPlan& plan, std::vector<std::byte>& out) {
  Groups groups;
  groups.count = static_cast<uint32_t>(plan.hop_offsets.size());
  std::copy(plan.hop_offsets.begin(), plan.hop_offsets.end(), groups.ends);
  const auto node_count = static_cast<uint32_t>(plan.nodes.size());
  local_.resize(node_count);
  frame_row_.assign(node_count, kNoSlot);
  NumberCached(plan, groups);
  std::vector<uint32_t> cached_slots = values_;
  NumberFrame(plan, groups);

  ByteWriter writer(out);
  const auto targets = static_cast<uint32_t>(plan.indptr.size()) - 1;
  uint32_t degree_max = 0;
  for (uint32_t v = 0; v < targets; ++v)
    degree_max = std::max(degree_max, plan.indptr[v + 1] - plan.indptr[v]);
  const uint32_t slot_max = [&] {
    uint32_t largest = 0;
    for (const BlockPlan::Admission& a : plan.admitted) largest = std::max(largest, a.slot);
    for (const BlockPlan::Carried& c : plan.carried) largest = std::max(largest, c.slot);
    return largest;
  }();
  const auto admissions = static_cast<uint32_t>(plan.admitted.size() + plan.carried.size());
  for (const uint32_t value : {groups.count, targets, static_cast<uint32_t>(plan.indices.size()),
                               static_cast<uint32_t>(chunk_nodes_.size()), segment_rows(), admissions,
                               BitsFor(degree_max), BitsFor(node_count - 1), BitsFor(slot_max)}) {
    writer.U32(value);
  }
  for (uint32_t g = 0; g < groups.count; ++g) {
    writer.U32(groups.cached[g]);
    writer.U32(groups.packed[g]);
    writer.U32(groups.segment[g]);
  }
  std::span<const uint32_t> slots = cached_slots;
  for (uint32_t g = 0; g < groups.count; ++g) {
    writer.Ascending(slots.first(groups.cached[g]));
    slots = slots.subspan(groups.cached[g]);
  }
  writer.Ascending(chunk_nodes_);
  writer.Ascending(segment_places_);
  values_.clear();
  for (const uint64_t pair : pairs_) values_.push_back(plan.nodes[static_cast<uint32_t>(pair)]);
  writer.Packed(values_, BitsFor(plan.node_count));
  writer.Packed(tags_, BitsFor(groups.count));

  // Edges, by the new numbers of their targets.
  std::vector<uint32_t>& old_of = values_;
  old_of.resize(targets);
  for (uint32_t p = 0; p < targets; ++p) old_of[local_[p]] = p;  // targets are whole groups: a prefix
  tags_.clear();
  for (uint32_t v = 0; v < targets; ++v) tags_.push_back(plan.indptr[old_of[v] + 1] - plan.indptr[old_of[v]]);
  writer.Packed(tags_, BitsFor(degree_max));
  tags_.clear();
  for (uint32_t v = 0; v < targets; ++v) {
    for (uint32_t e = plan.indptr[old_of[v]]; e < plan.indptr[old_of[v] + 1]; ++e) {
      tags_.push_back(local_[plan.indices[e]]);
    }
  }
  writer.Packed(tags_, BitsFor(node_count - 1));
  if (!plan.edge_low.empty()) WriteEdgeIds(plan, old_of, writer);
  if (!plan.relations.empty()) {
    const uint32_t bits = BitsFor(std::ranges::max(plan.relations));
    writer.U32(bits);
    WriteWords(plan, old_of, plan.relations, bits, writer);
  }

  pairs_.clear();
  for (const BlockPlan::Admission& a : plan.admitted) {
    pairs_.push_back(uint64_t{frame_row_[a.position]} << 32 | a.slot);
  }
  for (const BlockPlan::Carried& c : plan.carried) {
    const auto row =
        std::lower_bound(chunk_nodes_.begin(), chunk_nodes_.end(), c.node) - chunk_nodes_.begin();
    pairs_.push_back(static_cast<uint64_t>(row) << 32 | c.slot);
  }
  std::sort(pairs_.begin(), pairs_.end());
  values_.clear();
  tags_.clear();
  for (const uint64_t pair : pairs_) {
    values_.push_back(static_cast<uint32_t>(pair >> 32));
    tags_.push_back(static_cast<uint32_t>(pair));
  }
  writer.Ascending(values_);
  writer.Packed(tags_, BitsFor(slot_max));
}

// The widths of the two words, 0 for high ones that are all zero, and the words in the order of the neighbors.
void BlockEncoder::WriteEdgeIds(const BlockPlan& plan, std::span<const uint32_t> old_of, ByteWriter& writer) {
  const uint32_t high_max = std::ranges::max(plan.edge_high);
  const uint32_t low_bits = BitsFor(std::ranges::max(plan.edge_low));
  const uint32_t high_bits = high_max == 0 ? 0 : BitsFor(high_max);
  writer.U32(low_bits);
  writer.U32(high_bits);
  WriteWords(plan, old_of, plan.edge_low, low_bits, writer);
  if (high_bits > 0) WriteWords(plan, old_of, plan.edge_high, high_bits, writer);
}

void BlockEncoder::WriteWords(const BlockPlan& plan, std::span<const uint32_t> old_of,
                              std::span<const uint32_t> words, uint32_t bits, ByteWriter& writer) {
  tags_.clear();
  for (const uint32_t v : old_of) {
    for (uint32_t e = plan.indptr[v]; e < plan.indptr[v + 1]; ++e) tags_.push_back(words[e]);
  }
  writer.Packed(tags_, bits);
}

namespace {

// `words` is room for one of each edge.
Status ReadEdgeIds(ByteReader& reader, uint64_t edges, std::vector<uint32_t>& words,
                   std::vector<uint64_t>& ids) {
  const uint32_t low_bits = reader.U32(), high_bits = reader.U32();
  if (!reader.ok() || low_bits == 0 || low_bits > 32 || high_bits > 32) {
    return Malformed("a width of edge ids");
  }
  words.resize(edges);
  reader.Packed(words, low_bits);
  ids.assign(words.begin(), words.end());
  if (high_bits > 0) {
    reader.Packed(words, high_bits);
    for (uint64_t e = 0; e < edges; ++e) ids[e] |= uint64_t{words[e]} << 32;
  }
  return reader.ok() ? Status::Ok() : Malformed("its edge ids");
}

// `words` is room for one of each edge.
Status ReadRelations(ByteReader& reader, uint64_t edges, uint32_t relation_count,
                     std::vector<uint32_t>& words, std::vector<uint16_t>& relations) {
  const uint32_t bits = reader.U32();
  if (!reader.ok() || bits == 0 || bits > 16) return Malformed("a width of relations");
  words.resize(edges);
  reader.Packed(words, bits);
  if (!reader.ok() || std::ranges::max(words) >= relation_count) return Malformed("its relations");
  relations.resize(edges);
  std::ranges::transform(words, relations.begin(), [](uint32_t word) { return static_cast<uint16_t>(word); });
  return Status::Ok();
}

}  // namespace

BlockDecoder::BlockDecoder(uint32_t cache_slots, uint64_t node_count, std::span<const NodeId> start_nodes,
                           bool edge_ids, uint32_t relation_count)
    : cache_slots_(cache_slots),
      node_count_(node_count),
      start_nodes_(start_nodes),
      edge_ids_(edge_ids),
      relation_count_(relation_count) {
  Restart();
}

void BlockDecoder::Restart() {
  slot_nodes_.assign(cache_slots_, kNoNode);
  std::copy(start_nodes_.begin(), start_nodes_.end(), slot_nodes_.begin());
}

// Rebuilds what Encode left out: the node of a cached row is known from the admission that put it into its
// slot, which is why batches are decoded in their order. Everything that a kernel will index with is checked
// here, although the bytes have passed their checksums.
Status BlockDecoder::Decode(std::span<const std::byte> bytes, PlannedBlock& out) {
  ByteReader reader(bytes);
  BlockHead head;
  QUARRY_RETURN_IF_ERROR(ReadHead(reader, bytes.size(), head));
  const uint32_t group_count = head.groups;
  const uint32_t targets = head.targets;
  const uint32_t edges = head.edges;
  Block& block = out.block;
  block.hop_offsets.assign(head.ends, head.ends + group_count);
  block.nodes.resize(head.node_count);
  out.chunk_rows = head.chunk_rows;
  out.slots.resize(head.node_count);
  out.misses = head.node_count - head.cached_rows;

  uint32_t next[kGroupsMax + 1];
  for (uint32_t g = 0; g < group_count; ++g) {
    const uint32_t begin = g == 0 ? 0 : block.hop_offsets[g - 1];
    const std::span<uint32_t> slots(out.slots.data() + begin, head.cached[g]);
    reader.Ascending(slots);
    if (!reader.ok()) return Malformed("its cache slots");
    for (uint32_t i = 0; i < head.cached[g]; ++i) {
      if (slots[i] >= cache_slots_ || slot_nodes_[slots[i]] == kNoNode) return Malformed("a cache slot");
      block.nodes[begin + i] = slot_nodes_[slots[i]];
    }
    next[g] = begin + head.cached[g];
  }
  QUARRY_RETURN_IF_ERROR(ReadFrame(reader, head, node_count_, out.frame_nodes, out.segment_places));
  tags_.resize(out.frame_nodes.size());
  reader.Packed(tags_, BitsFor(group_count));
  if (!reader.ok()) return Malformed("its rows");
  for (uint32_t row = 0; row < out.frame_nodes.size(); ++row) {
    const uint32_t g = tags_[row];
    if (g > group_count) return Malformed("a row");
    if (g == group_count) continue;  // carried
    if (next[g] >= block.hop_offsets[g]) return Malformed("a hop group");
    block.nodes[next[g]] = out.frame_nodes[row];
    out.slots[next[g]++] = cache_slots_ + row;
  }
  if (!std::equal(next, next + group_count, block.hop_offsets.begin())) return Malformed("a hop group");

  block.indptr.resize(targets + 1);
  reader.Packed(std::span(block.indptr).subspan(1), head.degree_bits);
  block.indptr[0] = 0;
  uint64_t total = 0;
  for (uint32_t v = 1; v <= targets; ++v) {
    total += block.indptr[v];
    block.indptr[v] = static_cast<uint32_t>(total);
  }
  if (total != edges) return Malformed("its degrees");
  block.indices.resize(edges);
  reader.Packed(block.indices, head.index_bits);
  // Neighbors of a node are known one hop further at most: the layers of a model are sized by that.
  for (uint32_t g = 0; g + 1 < group_count; ++g) {
    const uint32_t first = block.indptr[g == 0 ? 0 : block.hop_offsets[g - 1]];
    const uint32_t last = block.indptr[block.hop_offsets[g]];
    uint32_t largest = 0;
    for (uint32_t e = first; e < last; ++e) largest = std::max(largest, block.indices[e]);
    if (last > first && largest >= block.hop_offsets[g + 1])
      return Malformed("a neighbor beyond the next hop");
  }
  block.edge_ids.clear();
  if (edge_ids_ && edges > 0) QUARRY_RETURN_IF_ERROR(ReadEdgeIds(reader, edges, tags_, block.edge_ids));
  block.relations.clear();
  if (relation_count_ > 0 && edges > 0) {
    QUARRY_RETURN_IF_ERROR(ReadRelations(reader, edges, relation_count_, tags_, block.relations));
  }

  out.admitted_rows.resize(head.admissions);
  out.admitted_slots.resize(head.admissions);
  reader.Ascending(out.admitted_rows);
  reader.Packed(out.admitted_slots, head.slot_bits);
  if (!reader.ok()) return Malformed("its end");
  for (uint32_t i = 0; i < head.admissions; ++i) {
    if (out.admitted_rows[i] >= out.frame_nodes.size() || out.admitted_slots[i] >= cache_slots_) {
      return Malformed("an admission");
    }
    slot_nodes_[out.admitted_slots[i]] = out.frame_nodes[out.admitted_rows[i]];
  }
  return Status::Ok();
}

}  // namespace quarry
