// Rules that requests and answers of the local protocol share: what a name, a list, a place in a region or a
// payload may be. Each answers kInvalidArgument, and names the field and its value. Private to this room.
#pragma once

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>
#include <variant>

#include "quarry/format/wire_batch.h"
#include "wire_bytes.h"

namespace quarry::wire {

// Every fault names the field and its value.
template <typename... Args>
Status Fault(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(Code::kInvalidArgument, format, std::forward<Args>(args)...);
}

inline bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

inline Status CheckName(std::string_view name, std::string_view what) {
  if (!name.empty() && name.size() <= kNameBytesMax && std::ranges::all_of(name, IsNameByte)) return Status();
  // The sentence may end up in a log: bytes of a stranger's that are no text stay out of it.
  std::string shown(name.substr(0, kNameBytesMax));
  std::ranges::replace_if(
      shown, [](char c) { return c < ' ' || c > '~'; }, '?');
  return Fault("{} \"{}\" ({} bytes): letters, digits, - and _ are allowed, {} of them at most", what, shown,
               name.size(), kNameBytesMax);
}

// The name of a table: a name, or "TYPE.feature", whose rows are those of a type of nodes.
inline Status CheckTableName(std::string_view name) {
  constexpr std::string_view kOfType = ".feature";
  if (name.ends_with(kOfType)) name.remove_suffix(kOfType.size());
  return CheckName(name, "table");
}

// A name, or several with dots in between: a figure of one thing among others.
inline Status CheckCounterName(std::string_view name) {
  while (true) {
    const size_t dot = name.find('.');
    QUARRY_RETURN_IF_ERROR(CheckName(name.substr(0, dot), "counter"));
    if (dot == std::string_view::npos) return Status();
    name.remove_prefix(dot + 1);
  }
}

template <typename Enum>
Status CheckEnum(Enum value, Enum last, std::string_view what) {
  if (value <= last) return Status();
  return Fault("{} {} is unknown to this Quarry", what, static_cast<unsigned>(value));
}

template <NamedEnum Enum>
Status CheckKnown(Enum value) {
  if (IsKnown(value)) return Status();
  return Fault("{} {} is unknown to this Quarry", EnumNames<Enum>::kWhat, static_cast<unsigned>(value));
}

inline Status CheckPositive(uint64_t value, std::string_view what) {
  return value > 0 ? Status() : Fault("{} is 0", what);
}

inline Status CheckElementType(ElementType type, std::string_view what) {
  if (IsElementType(static_cast<uint8_t>(type))) return Status();
  return Fault("{} of element type {}, which is unknown to this Quarry", what, static_cast<unsigned>(type));
}

inline Status CheckPlace(const Range& range, uint32_t alignment, std::string_view what) {
  if (range.bytes > 0 && range.bytes <= kRegionBytesMax && range.offset <= kRegionBytesMax &&
      range.offset % alignment == 0) {
    return Status();
  }
  return Fault("{}: {} bytes at {} of a region: a range has 1 to {}, at a multiple of {}", what, range.bytes,
               range.offset, kRegionBytesMax, alignment);
}

inline Status CheckUpload(const Range& range, std::string_view what) {
  if (range.region == 0) return Fault("{}: region 0 is none", what);
  return CheckPlace(range, kRangeAlignment, what);
}

template <typename Id>
Status CheckIds(const std::variant<std::vector<Id>, Range>& ids, uint64_t count_max, std::string_view what) {
  if (const auto* list = std::get_if<0>(&ids)) return CheckCount(list->size(), count_max, what);
  const Range& range = std::get<1>(ids);
  QUARRY_RETURN_IF_ERROR(CheckUpload(range, what));
  if (range.bytes % sizeof(Id) != 0)
    return Fault("{}: {} bytes are no whole number of ids", what, range.bytes);
  return CheckCount(range.bytes / sizeof(Id), count_max, what);
}

inline Status CheckBulk(const Bulk& bulk, uint64_t bytes, std::string_view what) {
  const auto* range = std::get_if<Range>(&bulk);
  if (range != nullptr) QUARRY_RETURN_IF_ERROR(CheckUpload(*range, what));
  const uint64_t there = range != nullptr ? range->bytes : std::get<0>(bulk).size();
  return there == bytes ? Status() : Fault("{}: {} bytes instead of {}", what, there, bytes);
}

inline Status CheckPayload(const Payload& payload, uint64_t bytes, std::string_view what) {
  const auto* lease = std::get_if<Lease>(&payload);
  if (lease != nullptr) {
    QUARRY_RETURN_IF_ERROR(CheckPositive(lease->id, "a lease's id"));
    QUARRY_RETURN_IF_ERROR(CheckPlace(lease->range, kLeaseAlignment, what));
  }
  const uint64_t there = lease != nullptr ? lease->range.bytes : std::get<0>(payload).size();
  return there == bytes ? Status() : Fault("{}: {} bytes instead of {}", what, there, bytes);
}

inline uint64_t BytesOf(const Bulk& bulk) {
  const auto* range = std::get_if<Range>(&bulk);
  return range != nullptr ? range->bytes : std::get<0>(bulk).size();
}

inline uint64_t BytesOf(const Payload& payload) {
  const auto* lease = std::get_if<Lease>(&payload);
  return lease != nullptr ? lease->range.bytes : std::get<0>(payload).size();
}

// A payload that says itself how long it is.
inline Status CheckBatchPayload(const Payload& payload, std::string_view what) {
  const auto* lease = std::get_if<Lease>(&payload);
  const uint64_t there = lease != nullptr ? lease->range.bytes : std::get<0>(payload).size();
  if (there < kBatchHeaderBytes) return Fault("{}: {} bytes are no batch", what, there);
  return CheckPayload(payload, there, what);
}

inline Status CheckFanouts(std::span<const uint32_t> fanouts, uint32_t fanout_max = kFanoutMax) {
  if (fanouts.empty() || fanouts.size() > kHopsMax) {
    return Fault("{} fanouts: there are 1 to {}", fanouts.size(), kHopsMax);
  }
  for (const uint32_t fanout : fanouts) {
    if (fanout == kAllNeighbors) continue;  // who may take them, and of which nodes, the engine says
    if (fanout == 0 || fanout > fanout_max)
      return Fault("fanout {}: 1 to {} are allowed", fanout, fanout_max);
  }
  return Status();
}

inline Status CheckShape(const RowBlockShape& shape, const Limits& limits) {
  QUARRY_RETURN_IF_ERROR(CheckCount(shape.rows, limits.ids_max, "embedding rows"));
  QUARRY_RETURN_IF_ERROR(CheckPositive(shape.dim, "the embedding's dimension"));
  QUARRY_RETURN_IF_ERROR(CheckCount(shape.dim, kDimMax, "elements of a row"));
  return CheckCount(shape.state_dim, 2 * kDimMax + 1, "elements of a row's state");
}

inline Status CheckGraph(const PutGraph& graph, const Limits& limits) {
  QUARRY_RETURN_IF_ERROR(CheckName(graph.topology, "topology"));
  QUARRY_RETURN_IF_ERROR(CheckCount(graph.first_node, kNodeCountMax, "nodes"));
  QUARRY_RETURN_IF_ERROR(CheckCount(graph.nodes, kNodeCountMax, "nodes"));
  QUARRY_RETURN_IF_ERROR(CheckCount(graph.names.size(), limits.ids_max, "names"));
  QUARRY_RETURN_IF_ERROR(CheckCount(graph.edges, limits.ids_max, "edges"));
  QUARRY_RETURN_IF_ERROR(CheckCount(graph.removed_nodes, limits.ids_max, "removed nodes"));
  if (!graph.node_type.empty()) QUARRY_RETURN_IF_ERROR(CheckName(graph.node_type, "type of nodes"));
  if (graph.weighted && graph.remove) return Fault("weights of edges that are removed");
  return CheckBulk(graph.block, graph.edges * graph.edge_bytes() + graph.removed_nodes * sizeof(NodeId),
                   "edges and removed nodes");
}

}  // namespace quarry::wire
