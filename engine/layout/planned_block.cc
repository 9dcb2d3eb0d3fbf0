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

}  // namespace

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

// Local ids of cached rows, and values_: their slots, group by group.
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

// Local ids and frame rows of the others; chunk_nodes_, and tags_: the group of each frame row.
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

BlockDecoder::BlockDecoder(uint32_t cache_slots, uint64_t node_count, std::span<const NodeId> start_nodes)
    : cache_slots_(cache_slots), node_count_(node_count), start_nodes_(start_nodes) {
  Restart();
}

void BlockDecoder::Restart() {
  slot_nodes_.assign(cache_slots_, kNoNode);
  std::copy(start_nodes_.begin(), start_nodes_.end(), slot_nodes_.begin());
}

Status BlockDecoder::Decode(std::span<const std::byte> bytes, PlannedBlock& out) {
  ByteReader reader(bytes);
  const uint32_t group_count = reader.U32();
  const uint32_t targets = reader.U32();
  const uint32_t edges = reader.U32();
  out.chunk_rows = reader.U32();
  const uint32_t segment_rows = reader.U32();
  const uint32_t admissions = reader.U32();
  const uint32_t degree_bits = reader.U32();
  const uint32_t index_bits = reader.U32();
  const uint32_t slot_bits = reader.U32();
  if (!reader.ok() || group_count == 0 || group_count > kGroupsMax) return Malformed("its head");
  for (const uint32_t bits : {degree_bits, index_bits, slot_bits}) {
    if (bits == 0 || bits > 32) return Malformed("a width of bits");
  }
  uint32_t cached[kGroupsMax], packed[kGroupsMax], segment[kGroupsMax];
  uint64_t node_count = 0, cached_rows = 0, packed_rows = 0, segment_total = 0;
  Block& block = out.block;
  block.hop_offsets.resize(group_count);
  for (uint32_t g = 0; g < group_count; ++g) {
    cached[g] = reader.U32();
    packed[g] = reader.U32();
    segment[g] = reader.U32();
    cached_rows += cached[g];
    packed_rows += packed[g];
    segment_total += segment[g];
    node_count += uint64_t{cached[g]} + packed[g] + segment[g];
    block.hop_offsets[g] = static_cast<uint32_t>(node_count);
  }
  // Each of these takes a bit at least, so the bytes bound them.
  const uint64_t limit = bytes.size() * 8;
  if (node_count > limit || targets != (group_count == 1 ? 0 : block.hop_offsets[group_count - 2]) ||
      edges > limit || out.chunk_rows > limit || segment_rows > limit || admissions > limit ||
      packed_rows > out.chunk_rows || segment_total != segment_rows) {
    return Malformed("its counts");
  }
  block.nodes.resize(node_count);
  out.slots.resize(node_count);
  out.misses = node_count - cached_rows;

  uint32_t next[kGroupsMax + 1];
  for (uint32_t g = 0; g < group_count; ++g) {
    const uint32_t begin = g == 0 ? 0 : block.hop_offsets[g - 1];
    const std::span<uint32_t> slots(out.slots.data() + begin, cached[g]);
    reader.Ascending(slots);
    if (!reader.ok()) return Malformed("its cache slots");
    for (uint32_t i = 0; i < cached[g]; ++i) {
      if (slots[i] >= cache_slots_ || slot_nodes_[slots[i]] == kNoNode) return Malformed("a cache slot");
      block.nodes[begin + i] = slot_nodes_[slots[i]];
    }
    next[g] = begin + cached[g];
  }
  out.frame_nodes.resize(out.chunk_rows + segment_rows);
  reader.Ascending(std::span(out.frame_nodes).first(out.chunk_rows));
  out.segment_places.resize(segment_rows);
  reader.Ascending(out.segment_places);
  reader.Packed(std::span(out.frame_nodes).subspan(out.chunk_rows), BitsFor(node_count_));
  tags_.resize(out.frame_nodes.size());
  reader.Packed(tags_, BitsFor(group_count));
  if (!reader.ok() || !std::ranges::is_sorted(out.segment_places)) return Malformed("its rows");
  for (uint32_t row = 0; row < out.frame_nodes.size(); ++row) {
    const uint32_t g = tags_[row];
    if (out.frame_nodes[row] >= node_count_ || g > group_count) return Malformed("a row");
    if (g == group_count) continue;  // carried
    if (next[g] >= block.hop_offsets[g]) return Malformed("a hop group");
    block.nodes[next[g]] = out.frame_nodes[row];
    out.slots[next[g]++] = cache_slots_ + row;
  }
  if (!std::equal(next, next + group_count, block.hop_offsets.begin())) return Malformed("a hop group");

  block.indptr.resize(targets + 1);
  reader.Packed(std::span(block.indptr).subspan(1), degree_bits);
  block.indptr[0] = 0;
  uint64_t total = 0;
  for (uint32_t v = 1; v <= targets; ++v) {
    total += block.indptr[v];
    block.indptr[v] = static_cast<uint32_t>(total);
  }
  if (total != edges) return Malformed("its degrees");
  block.indices.resize(edges);
  reader.Packed(block.indices, index_bits);
  // Neighbors of a node are known one hop further at most: the layers of a model are sized by that.
  for (uint32_t g = 0; g + 1 < group_count; ++g) {
    const uint32_t first = block.indptr[g == 0 ? 0 : block.hop_offsets[g - 1]];
    const uint32_t last = block.indptr[block.hop_offsets[g]];
    uint32_t largest = 0;
    for (uint32_t e = first; e < last; ++e) largest = std::max(largest, block.indices[e]);
    if (last > first && largest >= block.hop_offsets[g + 1])
      return Malformed("a neighbor beyond the next hop");
  }

  out.admitted_rows.resize(admissions);
  out.admitted_slots.resize(admissions);
  reader.Ascending(out.admitted_rows);
  reader.Packed(out.admitted_slots, slot_bits);
  if (!reader.ok()) return Malformed("its end");
  for (uint32_t i = 0; i < admissions; ++i) {
    if (out.admitted_rows[i] >= out.frame_nodes.size() || out.admitted_slots[i] >= cache_slots_) {
      return Malformed("an admission");
    }
    slot_nodes_[out.admitted_slots[i]] = out.frame_nodes[out.admitted_rows[i]];
  }
  return Status::Ok();
}

}  // namespace quarry
