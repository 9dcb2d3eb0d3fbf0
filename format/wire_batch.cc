#include "quarry/format/wire_batch.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <functional>
#include <limits>

#include "quarry/base/units.h"
#include "quarry/format/little_endian.h"
#include "quarry/format/wire.h"

namespace quarry::wire {
namespace {

// As the magic of data files: no text begins so, and none that was "repaired" ends so.
constexpr std::array<char, 8> kBatchMagic = {'\x89', 'Q', 'B', 'A', 'T', 'C', 'H', '\n'};

// Offsets of the header's fields; docs/protocol.md has the table. What is behind the last one is zero.
constexpr size_t kBatchMagicAt = 0;
constexpr size_t kVersionAt = 8;
constexpr size_t kFlagsAt = 12;
constexpr size_t kIndexAt = 16;
constexpr size_t kBytesAt = 24;
constexpr size_t kHopsAt = 32;
constexpr size_t kSeedsAt = 36;
constexpr size_t kTargetsAt = 40;
constexpr size_t kNodesAt = 44;
constexpr size_t kEdgesAt = 48;
constexpr size_t kElementTypeAt = 56;
constexpr size_t kDimAt = 60;
constexpr size_t kRowsAt = 64;
constexpr size_t kStrideAt = 72;
constexpr size_t kPlacesAt = 80;
constexpr size_t kPlaces = 10;
constexpr size_t kNodeTypesAt = kPlacesAt + 8 * kPlaces;
static_assert(kNodeTypesAt + 4 <= kBatchHeaderBytes && kBatchHeaderBytes % kBatchAlignment == 0);

constexpr uint32_t kHasLabels = 1;
constexpr uint32_t kHasSlots = 2;
constexpr uint32_t kRowsOutside = 4;
constexpr uint32_t kHasEdgeIds = 8;
constexpr uint32_t kHasRelations = 16;
constexpr uint32_t kFlags = kHasLabels | kHasSlots | kRowsOutside | kHasEdgeIds | kHasRelations;

constexpr uint64_t kEdgesMax = uint64_t{1} << 31;
constexpr uint64_t kRowsMax = uint64_t{1} << 32;
constexpr uint64_t kStrideMax = uint64_t{1} << 28;
constexpr uint32_t kNodeTypesMax = 1 << 16;

// Two uint32 in the slot: the element type's first byte, and the dim.
static_assert(sizeof(TypeRows) == 8 && offsetof(TypeRows, dim) == 4 && sizeof(ElementType) == 1);

using Header = std::array<std::byte, kBatchHeaderBytes>;

// Offsets of the arrays from the start of the slot, in this order; 0 where there is none.
struct Places {
  uint64_t hop_offsets = 0;
  uint64_t indptr = 0;
  uint64_t indices = 0;
  uint64_t nodes = 0;
  uint64_t labels = 0;
  uint64_t slots = 0;
  uint64_t rows = 0;
  uint64_t edge_ids = 0;
  uint64_t relations = 0;
  uint64_t type_rows = 0;
  uint64_t end = 0;

  std::array<uint64_t, kPlaces> all() const {
    return {hop_offsets, indptr, indices, nodes, labels, slots, rows, edge_ids, relations, type_rows};
  }
};

// REQUIRES: a shape that CheckShape accepts: no sum here can overflow then.
Places PlacesOf(const BatchShape& shape) {
  uint64_t at = kBatchHeaderBytes;
  const auto take = [&at](uint64_t count, uint64_t bytes) {
    const uint64_t place = at;
    at = RoundUp(at + count * bytes, kBatchAlignment);
    return place;
  };
  Places places;
  places.hop_offsets = take(uint64_t{shape.hops} + 1, 4);
  places.indptr = take(uint64_t{shape.targets} + 1, 4);
  places.indices = take(shape.edges, 4);
  places.nodes = take(shape.nodes, sizeof(NodeId));
  if (shape.labels) places.labels = take(shape.seeds, sizeof(int64_t));
  if (shape.slots) places.slots = take(shape.nodes, 4);
  if (shape.stride_bytes > 0 && !shape.rows_outside) places.rows = take(shape.rows, shape.stride_bytes);
  if (shape.edge_ids) places.edge_ids = take(shape.edges, sizeof(uint64_t));
  if (shape.relations) places.relations = take(shape.edges, sizeof(uint16_t));
  if (shape.node_types > 0) places.type_rows = take(shape.node_types, sizeof(TypeRows));
  places.end = at;
  return places;
}

// What is wrong with the shape's features; empty: nothing.
std::string_view FeatureFault(const BatchShape& shape) {
  if (!IsElementType(static_cast<uint8_t>(shape.element_type))) return "has elements of an unknown type";
  if (shape.node_types > kNodeTypesMax) return "has too many types of nodes";
  if (shape.node_types > 0 && shape.dim > 0) return "has rows of one table, and of types of nodes";
  if (shape.dim == 0 && (shape.node_types == 0 || shape.stride_bytes == 0)) {
    const bool none = shape.rows == 0 && shape.stride_bytes == 0 && !shape.slots && !shape.rows_outside;
    return none ? "" : "has rows of no elements";
  }
  if (shape.dim > kDimMax) return "has rows of too many elements";
  if (shape.stride_bytes < RowBytes(shape.element_type, shape.dim)) return "has rows that overlap";
  if (shape.stride_bytes % 4 != 0 || shape.stride_bytes > kStrideMax)
    return "has a row stride that is too large, or no multiple of 4";
  if (shape.rows > kRowsMax) return "has too many rows";
  if (!shape.slots && shape.rows != shape.nodes) return "has neither slots nor a row for each node";
  return "";
}

std::string_view ShapeFault(const BatchShape& shape) {
  if (shape.hops == 0 || shape.hops > kHopsMax) return "has no hops, or too many";
  if (shape.seeds > shape.targets || shape.targets > shape.nodes)
    return "has fewer nodes than it starts from";
  if (shape.hops == 1 && shape.targets != shape.seeds)
    return "has lists of nodes that it does not start from";
  if (shape.nodes > kNodeCountMax) return "has more nodes than a graph";
  if (shape.edges > kEdgesMax) return "has too many edges";
  return FeatureFault(shape);
}

Status CheckShape(const BatchShape& shape, Code code) {
  const std::string_view fault = ShapeFault(shape);
  if (fault.empty()) return Status();
  return MakeStatus(
      code,
      "batch {} {}: {} hops, {} seeds, {} targets, {} nodes, {} edges; {} rows of {} elements, {} "
      "bytes apart",
      shape.index, fault, shape.hops, shape.seeds, shape.targets, shape.nodes, shape.edges, shape.rows,
      shape.dim, shape.stride_bytes);
}

bool IsAligned(const std::byte* memory, uint64_t alignment) {
  return reinterpret_cast<uintptr_t>(memory) % alignment == 0;
}

template <typename T, typename Byte>
auto ArrayAt(std::span<Byte> slot, uint64_t place, uint64_t count) {
  using Element = std::conditional_t<std::is_const_v<Byte>, const T, T>;
  return std::span<Element>(reinterpret_cast<Element*>(slot.data() + place), count);
}

// The spans of a writer or of a view.
template <typename Byte, typename Arrays, typename Slots, typename Rows>
void PlaceArrays(const BatchShape& shape, const Places& places, std::span<Byte> slot, Arrays& arrays,
                 Slots& slots, Rows& rows) {
  arrays.hop_offsets = ArrayAt<uint32_t>(slot, places.hop_offsets, uint64_t{shape.hops} + 1);
  arrays.indptr = ArrayAt<uint32_t>(slot, places.indptr, uint64_t{shape.targets} + 1);
  arrays.indices = ArrayAt<uint32_t>(slot, places.indices, shape.edges);
  arrays.nodes = ArrayAt<NodeId>(slot, places.nodes, shape.nodes);
  if (shape.labels) arrays.labels = ArrayAt<int64_t>(slot, places.labels, shape.seeds);
  if (shape.edge_ids) arrays.edge_ids = ArrayAt<uint64_t>(slot, places.edge_ids, shape.edges);
  if (shape.relations) arrays.relations = ArrayAt<uint16_t>(slot, places.relations, shape.edges);
  if (shape.node_types > 0) arrays.type_rows = ArrayAt<TypeRows>(slot, places.type_rows, shape.node_types);
  if (shape.slots) slots = ArrayAt<uint32_t>(slot, places.slots, shape.nodes);
  if (places.rows > 0) rows = ArrayAt<std::byte>(slot, places.rows, shape.rows * shape.stride_bytes);
}

Header EncodeHeader(const BatchShape& shape, const Places& places) {
  Header header{};
  std::memcpy(&header[kBatchMagicAt], kBatchMagic.data(), kBatchMagic.size());
  const uint32_t flags = (shape.labels ? kHasLabels : 0) | (shape.slots ? kHasSlots : 0) |
                         (shape.rows_outside ? kRowsOutside : 0) | (shape.edge_ids ? kHasEdgeIds : 0) |
                         (shape.relations ? kHasRelations : 0);
  StoreLittle<uint32_t>(&header[kVersionAt], kBatchVersion);
  StoreLittle<uint32_t>(&header[kFlagsAt], flags);
  StoreLittle<uint64_t>(&header[kIndexAt], shape.index);
  StoreLittle<uint64_t>(&header[kBytesAt], places.end);
  StoreLittle<uint32_t>(&header[kHopsAt], shape.hops);
  StoreLittle<uint32_t>(&header[kSeedsAt], shape.seeds);
  StoreLittle<uint32_t>(&header[kTargetsAt], shape.targets);
  StoreLittle<uint32_t>(&header[kNodesAt], shape.nodes);
  StoreLittle<uint64_t>(&header[kEdgesAt], shape.edges);
  StoreLittle<uint32_t>(&header[kElementTypeAt], static_cast<uint32_t>(shape.element_type));
  StoreLittle<uint32_t>(&header[kDimAt], shape.dim);
  StoreLittle<uint64_t>(&header[kRowsAt], shape.rows);
  StoreLittle<uint64_t>(&header[kStrideAt], shape.stride_bytes);
  const auto all = places.all();
  for (size_t i = 0; i < kPlaces; ++i) StoreLittle<uint64_t>(&header[kPlacesAt + 8 * i], all[i]);
  StoreLittle<uint32_t>(&header[kNodeTypesAt], shape.node_types);
  return header;
}

// Shared memory is looked at once: a plain copy, which the compiler may leave out, would look again behind
// the checks.
template <typename T>
T LoadOnce(const T& shared) {
  return *static_cast<const volatile T*>(&shared);
}

Header LoadHeader(std::span<const std::byte> slot) {
  const auto* words = reinterpret_cast<const uint64_t*>(slot.data());
  Header header;
  for (size_t i = 0; i < kBatchHeaderBytes / 8; ++i)
    StoreLittle<uint64_t>(&header[8 * i], LoadOnce(words[i]));
  return header;
}

// kCorruption for what no writer writes; the shape is still to be checked.
Result<BatchShape> DecodeHeader(const Header& header) {
  if (std::memcmp(&header[kBatchMagicAt], kBatchMagic.data(), kBatchMagic.size()) != 0) {
    return MakeStatus(Code::kCorruption, "no batch is in the slot: it begins with {:#018x}",
                      LoadLittle<uint64_t>(&header[kBatchMagicAt]));
  }
  const uint32_t version = LoadLittle<uint32_t>(&header[kVersionAt]);
  if (version != kBatchVersion) {
    return MakeStatus(Code::kUnsupported, "a batch of version {}; this Quarry reads {}", version,
                      kBatchVersion);
  }
  const uint32_t flags = LoadLittle<uint32_t>(&header[kFlagsAt]);
  const uint32_t element_type = LoadLittle<uint32_t>(&header[kElementTypeAt]);
  if ((flags & ~kFlags) != 0 || element_type > std::numeric_limits<uint8_t>::max()) {
    return MakeStatus(Code::kCorruption, "a batch with flags {:#x} and elements of type {}", flags,
                      element_type);
  }
  return BatchShape{.index = LoadLittle<uint64_t>(&header[kIndexAt]),
                    .hops = LoadLittle<uint32_t>(&header[kHopsAt]),
                    .seeds = LoadLittle<uint32_t>(&header[kSeedsAt]),
                    .targets = LoadLittle<uint32_t>(&header[kTargetsAt]),
                    .nodes = LoadLittle<uint32_t>(&header[kNodesAt]),
                    .edges = LoadLittle<uint64_t>(&header[kEdgesAt]),
                    .labels = (flags & kHasLabels) != 0,
                    .edge_ids = (flags & kHasEdgeIds) != 0,
                    .relations = (flags & kHasRelations) != 0,
                    .node_types = LoadLittle<uint32_t>(&header[kNodeTypesAt]),
                    .element_type = static_cast<ElementType>(element_type),
                    .dim = LoadLittle<uint32_t>(&header[kDimAt]),
                    .rows = LoadLittle<uint64_t>(&header[kRowsAt]),
                    .stride_bytes = LoadLittle<uint64_t>(&header[kStrideAt]),
                    .slots = (flags & kHasSlots) != 0,
                    .rows_outside = (flags & kRowsOutside) != 0};
}

// The counts say where everything lies; the header must say the same.
Status CheckPlaces(const Header& header, const BatchShape& shape, const Places& places, uint64_t slot_bytes) {
  if (places.end > slot_bytes || LoadLittle<uint64_t>(&header[kBytesAt]) != places.end) {
    return MakeStatus(Code::kCorruption,
                      "batch {}: its arrays take {} bytes, its header says {}, the slot has {}", shape.index,
                      places.end, LoadLittle<uint64_t>(&header[kBytesAt]), slot_bytes);
  }
  const auto all = places.all();
  for (size_t i = 0; i < kPlaces; ++i) {
    const uint64_t said = LoadLittle<uint64_t>(&header[kPlacesAt + 8 * i]);
    if (said == all[i]) continue;
    return MakeStatus(Code::kCorruption, "batch {}: array {} lies at {}; its header says {}", shape.index, i,
                      all[i], said);
  }
  return Status();
}

Status BlockFault(const BatchView& batch, std::string_view what, uint64_t at, uint64_t value) {
  return MakeStatus(Code::kCorruption, "batch {}: {} {} is {}", batch.index, what, at, value);
}

// The first value that is not below `bound`, or the number of values.
uint64_t FirstBeyond(std::span<const uint32_t> values, uint64_t bound) {
  const auto beyond = std::ranges::find_if(values, [bound](uint32_t value) { return value >= bound; });
  return static_cast<uint64_t>(beyond - values.begin());
}

// Offsets that never fall, from `first` to `last`.
Status CheckOffsets(const BatchView& batch, std::span<const uint32_t> offsets, std::string_view what,
                    uint64_t first, uint64_t last) {
  if (offsets.front() != first) return BlockFault(batch, what, 0, offsets.front());
  if (offsets.back() != last) return BlockFault(batch, what, offsets.size() - 1, offsets.back());
  const auto fall = std::ranges::adjacent_find(offsets, std::greater<>());
  if (fall == offsets.end()) return Status();
  return BlockFault(batch, what, static_cast<uint64_t>(fall - offsets.begin()), *fall);
}

// The lists of the nodes [begin, end) hold local ids below `known`: layers read no further.
Status CheckLists(const BatchView& batch, uint32_t begin, uint32_t end, uint32_t known) {
  const uint64_t first = LoadOnce(batch.indptr[begin]);
  const uint64_t last = LoadOnce(batch.indptr[end]);
  if (first > last || last > batch.indices.size()) return BlockFault(batch, "list offset", end, last);
  const uint64_t at = FirstBeyond(batch.indices.subspan(first, last - first), known);
  if (at == last - first) return Status();
  return BlockFault(batch, "neighbor", first + at, batch.indices[first + at]);
}

template <typename Byte>
Result<RowBlockArrays<!std::is_const_v<Byte>>> RowBlockIn(std::span<Byte> bytes, const RowBlockShape& shape) {
  if (bytes.size() != RowBlockBytes(shape)) {
    return MakeStatus(Code::kInvalidArgument, "{} bytes are no block of {} rows of {} and {} elements",
                      bytes.size(), shape.rows, shape.dim, shape.state_dim);
  }
  const uint64_t timestamps = 8 * shape.rows;
  const uint64_t values = 2 * timestamps;
  const uint64_t state = values + 4 * shape.rows * shape.dim;
  RowBlockArrays<!std::is_const_v<Byte>> arrays;
  arrays.ids = ArrayAt<uint64_t>(bytes, 0, shape.rows);
  arrays.timestamps = ArrayAt<int64_t>(bytes, timestamps, shape.rows);
  arrays.values = ArrayAt<float>(bytes, values, shape.rows * shape.dim);
  arrays.state = ArrayAt<float>(bytes, state, shape.rows * shape.state_dim);
  return arrays;
}

}  // namespace

Result<uint64_t> BatchBytes(const BatchShape& shape) {
  QUARRY_RETURN_IF_ERROR(CheckShape(shape, Code::kInvalidArgument));
  return PlacesOf(shape).end;
}

Result<BatchWriter> WriteBatchHeader(const BatchShape& shape, std::span<std::byte> slot) {
  assert(IsAligned(slot.data(), kBatchAlignment));
  QUARRY_TRY(const uint64_t bytes, BatchBytes(shape));
  if (bytes > slot.size()) {
    return MakeStatus(Code::kInvalidArgument, "batch {} takes {} bytes; its slot has {}", shape.index, bytes,
                      slot.size());
  }
  const Places places = PlacesOf(shape);
  std::ranges::copy(EncodeHeader(shape, places), slot.begin());
  BatchWriter writer;
  writer.shape = shape;
  PlaceArrays(shape, places, slot, writer, writer.slots, writer.rows);
  return writer;
}

Result<BatchView> OpenBatch(std::span<const std::byte> slot, std::span<const std::byte> outside) {
  if (slot.size() < kBatchHeaderBytes || !IsAligned(slot.data(), kBatchAlignment) ||
      !IsAligned(outside.data(), kBatchAlignment)) {
    return MakeStatus(Code::kCorruption,
                      "a batch in a slot of {} bytes, or at a place that is no multiple of {}", slot.size(),
                      kBatchAlignment);
  }
  const Header header = LoadHeader(slot);
  QUARRY_TRY(const BatchShape shape, DecodeHeader(header));
  QUARRY_RETURN_IF_ERROR(CheckShape(shape, Code::kCorruption));
  const Places places = PlacesOf(shape);
  QUARRY_RETURN_IF_ERROR(CheckPlaces(header, shape, places, slot.size()));
  BatchView view = {
      .index = shape.index,
      .seed_count = shape.seeds,
      .features = {.stride_bytes = shape.stride_bytes, .element_type = shape.element_type, .dim = shape.dim}};
  PlaceArrays(shape, places, slot, view, view.features.slots, view.features.rows);
  if (!shape.rows_outside) return view;
  const uint64_t bytes = shape.rows * shape.stride_bytes;
  if (bytes > outside.size()) {
    return MakeStatus(Code::kCorruption, "batch {}: its rows take {} bytes outside; there are {}",
                      shape.index, bytes, outside.size());
  }
  view.features.rows = outside.first(bytes);
  return view;
}

Status CheckBatch(const BatchView& batch) {
  const uint32_t hops = batch.hops();
  assert(hops >= 1 && hops <= kHopsMax);
  std::array<uint32_t, kHopsMax + 1> copied{};
  for (uint32_t hop = 0; hop <= hops; ++hop) copied[hop] = LoadOnce(batch.hop_offsets[hop]);
  const std::span<const uint32_t> known = std::span(copied).first(hops + 1);
  QUARRY_RETURN_IF_ERROR(CheckOffsets(batch, known, "hop offset", batch.seed_count, batch.nodes.size()));
  if (known[hops - 1] != batch.target_count()) {
    return BlockFault(batch, "hop offset", hops - 1, known[hops - 1]);
  }
  QUARRY_RETURN_IF_ERROR(CheckOffsets(batch, batch.indptr, "list offset", 0, batch.indices.size()));
  uint32_t begin = 0;
  for (uint32_t hop = 0; hop < hops; begin = known[hop], ++hop) {
    QUARRY_RETURN_IF_ERROR(CheckLists(batch, begin, known[hop], known[hop + 1]));
  }
  const std::span<const uint32_t> slots = batch.features.slots;
  const uint64_t at = FirstBeyond(slots, batch.features.row_count());
  if (at < slots.size()) return BlockFault(batch, "slot", at, slots[at]);
  for (size_t type = 0; type < batch.type_rows.size(); ++type) {
    const TypeRows& rows = batch.type_rows[type];
    const bool fits = IsElementType(static_cast<uint8_t>(rows.element_type)) && rows.dim <= kDimMax &&
                      (rows.dim == 0 || RowBytes(rows.element_type, rows.dim) <= batch.features.stride_bytes);
    if (!fits) return BlockFault(batch, "the dim of rows of type", type, rows.dim);
  }
  return Status();
}

uint64_t RowBlockBytes(const RowBlockShape& shape) {
  return shape.rows * (16 + 4 * (uint64_t{shape.dim} + shape.state_dim));
}

Result<RowBlockArrays<false>> OpenRowBlock(std::span<const std::byte> bytes, const RowBlockShape& shape) {
  return RowBlockIn(bytes, shape);
}

Result<RowBlockArrays<true>> OpenRowBlock(std::span<std::byte> bytes, const RowBlockShape& shape) {
  return RowBlockIn(bytes, shape);
}

}  // namespace quarry::wire
