#include "quarry/partition/edge_bucket.h"

#include <cassert>
#include <cstring>

#include "quarry/base/units.h"

namespace quarry {
namespace {

constexpr uint64_t kAlign = 8;

uint64_t BitWords(uint64_t node_count) { return CeilDiv(node_count, 64); }

// Where the arrays of a side lie.
struct ListOffsets {
  uint64_t ranks = 0;
  uint64_t starts = 0;
  uint64_t neighbors = 0;
  uint64_t relations = 0;
  uint64_t end = 0;
};

ListOffsets OffsetsOf(const BucketShape& shape) {
  ListOffsets at;
  if (shape.edge_count == 0) return at;
  if (shape.by_bits()) {
    at.ranks = BitWords(shape.node_count) * sizeof(uint64_t);
    at.starts = at.ranks + RoundUp(BitWords(shape.node_count) * sizeof(uint32_t), kAlign);
  } else {
    at.starts = RoundUp(shape.list_count * sizeof(uint32_t), kAlign);
  }
  at.neighbors = at.starts + RoundUp((shape.list_count + 1) * sizeof(uint32_t), kAlign);
  at.relations = at.neighbors + RoundUp(shape.edge_count * sizeof(uint32_t), kAlign);
  at.end = at.relations + RoundUp(shape.edge_count * shape.relation_bytes, kAlign);
  return at;
}

template <typename T>
std::span<const T> ArrayAt(const std::byte* bytes, uint64_t count) {
  return {reinterpret_cast<const T*>(bytes), count};
}

template <typename T>
void StoreAt(std::byte* to, uint64_t index, T value) {
  std::memcpy(to + index * sizeof(T), &value, sizeof(T));
}

}  // namespace

bool BucketShape::by_bits() const {
  return BitWords(node_count) * (sizeof(uint64_t) + sizeof(uint32_t)) <= list_count * sizeof(uint32_t);
}

uint64_t BucketShape::bytes() const { return OffsetsOf(*this).end; }

BucketLists::BucketLists(const BucketShape& shape, const std::byte* bytes) : shape_(shape) {
  if (shape.edge_count == 0) return;
  const ListOffsets at = OffsetsOf(shape);
  if (shape.by_bits()) {
    bits_ = ArrayAt<uint64_t>(bytes, BitWords(shape.node_count));
    ranks_ = ArrayAt<uint32_t>(bytes + at.ranks, bits_.size());
  } else {
    nodes_ = ArrayAt<uint32_t>(bytes, shape.list_count);
  }
  starts_ = ArrayAt<uint32_t>(bytes + at.starts, shape.list_count + 1);
  neighbors_ = ArrayAt<uint32_t>(bytes + at.neighbors, shape.edge_count);
  relations_ = bytes + at.relations;
}

uint32_t BucketLists::Relation(uint64_t edge) const {
  uint32_t relation = 0;
  std::memcpy(&relation, relations_ + edge * shape_.relation_bytes, shape_.relation_bytes);
  return relation;
}

// What readers index with, without further checks.
Status BucketLists::Check(uint64_t other_count, uint64_t relation_count, std::string_view where) const {
  if (shape_.edge_count == 0) return Status::Ok();
  const auto fault = [where](std::string_view what) {
    return MakeStatus(Code::kCorruption, "{}: {}: build the partitioning again", where, what);
  };
  uint64_t lists = nodes_.size();
  for (uint64_t i = 0; i < bits_.size(); ++i) {
    if (ranks_[i] != lists) return fault("lists are counted wrongly");
    lists += static_cast<uint64_t>(std::popcount(bits_[i]));
  }
  if (lists != shape_.list_count) return fault("lists are counted wrongly");
  if (!bits_.empty() && shape_.node_count % 64 != 0 && bits_.back() >> (shape_.node_count % 64) != 0) {
    return fault("a list is of a node that the part has not");
  }
  if (!std::ranges::is_sorted(nodes_, std::less_equal()) ||
      (!nodes_.empty() && nodes_.back() >= shape_.node_count)) {
    return fault("a list is of a node that the part has not");
  }
  if (starts_.front() != 0 || starts_.back() != shape_.edge_count || !std::ranges::is_sorted(starts_)) {
    return fault("lists do not follow one another");
  }
  if (std::ranges::max(neighbors_) >= other_count) return fault("a neighbor is a node that its part has not");
  for (uint64_t edge = 0; shape_.relation_bytes > 0 && edge < shape_.edge_count; ++edge) {
    if (Relation(edge) >= relation_count) return fault("an edge has a relation that is not there");
  }
  return Status::Ok();
}

BucketShape EncodeLists(std::span<const uint64_t> edges, std::span<const uint32_t> relations,
                        uint64_t relation_bytes, uint64_t node_count, std::vector<std::byte>& out) {
  assert(out.size() % kAlign == 0 && (relation_bytes == 0 || relations.size() == edges.size()));
  BucketShape shape{.node_count = node_count,
                    .list_count = 0,
                    .edge_count = edges.size(),
                    .relation_bytes = relation_bytes};
  if (edges.empty()) return shape;
  for (size_t i = 0; i < edges.size(); ++i) {
    shape.list_count += i == 0 || edges[i] >> 32 != edges[i - 1] >> 32 ? 1 : 0;
  }
  const ListOffsets at = OffsetsOf(shape);
  const size_t base = out.size();
  out.resize(base + at.end);
  std::byte* const side = out.data() + base;
  uint64_t list = 0;
  std::vector<uint64_t> bits(shape.by_bits() ? BitWords(node_count) : 0);
  for (size_t i = 0; i < edges.size(); ++i) {
    const auto node = static_cast<uint32_t>(edges[i] >> 32);
    StoreAt(side + at.neighbors, i, static_cast<uint32_t>(edges[i]));
    if (relation_bytes > 0)
      std::memcpy(side + at.relations + i * relation_bytes, &relations[i], relation_bytes);
    if (i > 0 && node == static_cast<uint32_t>(edges[i - 1] >> 32)) continue;
    StoreAt(side + at.starts, list, static_cast<uint32_t>(i));
    if (bits.empty()) {
      StoreAt(side, list, node);
    } else {
      bits[node / 64] |= uint64_t{1} << (node % 64);
    }
    ++list;
  }
  StoreAt(side + at.starts, list, static_cast<uint32_t>(edges.size()));
  uint32_t rank = 0;
  for (uint64_t i = 0; i < bits.size(); ++i) {
    StoreAt(side, i, bits[i]);
    StoreAt(side + at.ranks, i, rank);
    rank += static_cast<uint32_t>(std::popcount(bits[i]));
  }
  return shape;
}

}  // namespace quarry
