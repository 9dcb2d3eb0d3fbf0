// RoadSpec: which batches a road makes, whoever asks for them. The command line, the C interface, a message
// and a layout's record all hold this one struct, and two roads make the same batches when theirs are equal.
// Beside it: the names of its choices, printed and parsed here alone.
//
// Plain values: copied freely, thread-safe as such.
#pragma once

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/base/random.h"
#include "quarry/base/status.h"

namespace quarry {

// Which neighbors a node is given: kIn from CSC (messages flow along the edges), kOut from CSR, kBoth from
// their union.
enum class Direction : uint8_t { kIn, kOut, kBoth };

// The order in which an epoch uses its seeds (quarry/sampling/seed_order.h).
enum class SeedOrder : uint8_t { kRandom, kProximity };

// How the neighbors of a batch are chosen (quarry/sampling/sampler.h): of each node by itself, or of all nodes
// of a hop by one number of each neighbor, so that they choose the same ones where they can.
enum class SamplerKind : uint8_t { kNeighbor, kLabor };

// Which rows stay in memory between batches (quarry/cache/cache_policy.h).
enum class PolicyKind : uint8_t { kNone, kStaticDegree, kStaticFrequency, kFifo, kLru, kBelady };
inline constexpr PolicyKind kAllPolicies[] = {
    PolicyKind::kNone, PolicyKind::kStaticDegree, PolicyKind::kStaticFrequency,
    PolicyKind::kFifo, PolicyKind::kLru,          PolicyKind::kBelady};

// Whether the rows that a batch misses are copied into the layout, or stay in the table, from where merged
// requests read them.
enum class Packing : uint8_t {
  kAlways,
  kNever,    // the blocks alone: Belady over the known batches without packing (Ginex)
  kCheaper,  // what reads and writes for less seconds, when the layout is used for one epoch
};

// An enum whose values have names: what it is called, and the names in the order of the values.
template <typename Enum>
struct EnumNames;
template <>
struct EnumNames<Direction> {
  static constexpr std::string_view kWhat = "direction";
  static constexpr std::string_view kNames[] = {"in", "out", "both"};
};
template <>
struct EnumNames<SeedOrder> {
  static constexpr std::string_view kWhat = "seed order";
  static constexpr std::string_view kNames[] = {"random", "proximity"};
};
template <>
struct EnumNames<SamplerKind> {
  static constexpr std::string_view kWhat = "sampler";
  static constexpr std::string_view kNames[] = {"neighbor", "labor"};
};
template <>
struct EnumNames<PolicyKind> {
  static constexpr std::string_view kWhat = "cache policy";
  static constexpr std::string_view kNames[] = {"none", "static-degree", "static-frequency",
                                                "fifo", "lru",           "belady"};
};
template <>
struct EnumNames<Packing> {
  static constexpr std::string_view kWhat = "packing";
  static constexpr std::string_view kNames[] = {"always", "never", "cheaper"};
};
template <typename Enum>
concept NamedEnum = requires {
  EnumNames<Enum>::kNames;
};

template <NamedEnum Enum>
constexpr bool IsKnown(Enum value) {
  return static_cast<size_t>(value) < std::size(EnumNames<Enum>::kNames);
}
// REQUIRES: IsKnown.
template <NamedEnum Enum>
constexpr std::string_view NameOf(Enum value) {
  return EnumNames<Enum>::kNames[static_cast<size_t>(value)];
}
// kUsage lists the names.
template <NamedEnum Enum>
Result<Enum> ParseName(std::string_view name) {
  const std::span names = EnumNames<Enum>::kNames;
  const auto found = std::ranges::find(names, name);
  if (found != names.end()) return static_cast<Enum>(found - names.begin());
  return MakeStatus(Code::kUsage, "there is no {} '{}'; one of {}", EnumNames<Enum>::kWhat, name,
                    fmt::join(names, ", "));
}

// What a batch is drawn by: numbers of its own, and those that it has in common with the batches around it.
struct DrawSeed {
  // NOLINTNEXTLINE(google-explicit-constructor): a batch that has nothing in common with any other.
  constexpr DrawSeed(uint64_t of_batch) : own(of_batch), common(of_batch) {}
  constexpr DrawSeed(uint64_t of_batch, uint64_t of_pass, uint64_t batch_number)
      : own(of_batch), common(of_pass), number(batch_number) {}
  uint64_t own = 0;
  uint64_t common = 0;  // the same for all batches of a pass that depend on each other
  uint64_t number = 0;  // of the batch, in its pass
};

struct RoadSpec {
  std::string feature_table =
      "feature";  // of the rows of batches; empty: they have none, on live roads alone
  std::string topology = "graph";
  Direction direction = Direction::kIn;
  std::vector<uint32_t> fanouts = {10, 10};  // of each hop, from the seeds outwards
  uint32_t batch_size = 1024;                // seeds
  uint64_t cache_bytes = 0;                  // rows that stay in memory between batches
  uint64_t seed = 0;
  SeedOrder seed_order = SeedOrder::kRandom;  // of passes that are planned; a live road takes kRandom alone
  // Neighbors are drawn independently, so that one may be drawn again: always as many as the fanout, of a node
  // that has any. Else they are distinct, and at most all.
  bool replace = false;
  SamplerKind sampler = SamplerKind::kNeighbor;
  // With kLabor, how many batches a node keeps its number for, so that batches after each other choose much the
  // same neighbors. 0 or 1: every batch has numbers of its own.
  uint32_t batch_dependency = 0;
  // Neighbors are drawn with probability proportional to the weights of the edges, which the topology must have.
  bool weighted = false;
  bool edge_ids = false;  // blocks say which edges were drawn; along kIn, of whole lists of neighbors
  // For a graph with types: [hops x relations], how many neighbors a node is given by the edges of each type. `fanouts` then
  // bounds what it is given in a hop by those of all types. Empty: edges of all types are alike.
  std::vector<uint32_t> relation_fanouts = {};
  bool operator==(const RoadSpec&) const = default;

  // Names what is sampled: specs that differ in what stays in memory alone have the same.
  uint64_t SampleHash() const {
    uint64_t hash =
        MixSeed(seed, batch_size, static_cast<uint64_t>(direction), static_cast<uint64_t>(seed_order));
    for (const uint32_t fanout : fanouts) hash = MixSeed(hash, fanout);
    if (replace) hash = MixSeed(hash, 1);
    if (sampler != SamplerKind::kNeighbor)
      hash = MixSeed(hash, 2, static_cast<uint64_t>(sampler), batch_dependency);
    for (const uint32_t fanout : relation_fanouts) hash = MixSeed(hash, 4, fanout);
    return weighted ? MixSeed(hash, 3) : hash;
  }
  // Whether each node's neighbors are drawn by themselves, and all are alike: what every source of neighbors and every
  // server can do.
  bool DrawsPlainly() const {
    return sampler == SamplerKind::kNeighbor && !weighted && relation_fanouts.empty();
  }
  // What batch `number` of a pass is drawn by.
  DrawSeed SeedOf(uint64_t pass, uint64_t number) const {
    const uint64_t own = MixSeed(seed, pass, number);
    return batch_dependency > 1 ? DrawSeed(own, MixSeed(seed, pass), number) : DrawSeed(own);
  }
  // The most neighbors that a block has, of a topology with so many edges: no node's list is drawn from twice,
  // but with replacement lists do not bound what is drawn.
  uint64_t EdgesMax(uint64_t edge_count) const {
    if (replace) return uint64_t{1} << 62;
    return direction == Direction::kBoth ? 2 * edge_count : edge_count;
  }

  // This road's samples without what pays only where passes follow each other: for the passes beside the
  // planned ones, over other seeds, once an epoch.
  RoadSpec ForOtherPasses() const {
    RoadSpec spec = *this;
    spec.cache_bytes = 0;
    spec.seed_order = SeedOrder::kRandom;
    return spec;
  }
};

}  // namespace quarry
