#include "quarry/cache/neighbor_cache.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <vector>

#include "quarry/base/units.h"
#include "quarry/io/buffer.h"
#include "quarry/storage/edge_columns.h"

namespace quarry {
namespace {

// The largest IoBuffer whose mapping fits `memory_bytes`.
uint64_t LargestBuffer(uint64_t memory_bytes) {
  const uint64_t huge = RoundDown(memory_bytes, 2 * kMiB);
  return huge > 0 ? huge : std::min(RoundDown(memory_bytes, kPageBytes), kMiB - kPageBytes);
}

Adjacency Opposite(Adjacency side) { return side == Adjacency::kCsc ? Adjacency::kCsr : Adjacency::kCsc; }

}  // namespace

// Which nodes are cached: all above the importance `threshold`, and of those at it the ones before `tie_end`.
struct NeighborCache::Cut {
  uint32_t threshold = kNotCached;
  NodeId tie_end = 0;
  uint64_t nodes = 0;
  uint64_t entries = 0;  // list lengths, each rounded up to the address unit
};

Status NeighborCache::Fill(IoBackend& backend, uint64_t memory_bytes) {
  const uint64_t table_bytes = topology_.node_count() * sizeof(uint32_t);
  if (memory_bytes <= IoBuffer::MappedBytes(table_bytes)) return Status::Ok();
  const uint64_t list_bytes = LargestBuffer(memory_bytes - IoBuffer::MappedBytes(table_bytes));
  if (list_bytes == 0 || topology_.edge_count() == 0) return Status::Ok();
  // Addresses are 32 bits wide: beyond 16 GiB of lists they count units of several entries.
  while ((list_bytes / sizeof(NodeId)) >> unit_shift_ >= kNotCached) ++unit_shift_;

  QUARRY_TRY(table_, IoBuffer::Allocate(table_bytes));
  QUARRY_RETURN_IF_ERROR(CountOppositeDegrees(backend));
  const Cut cut = Choose(list_bytes / sizeof(NodeId));
  if (cut.nodes == 0) {
    table_ = IoBuffer();
    return Status::Ok();
  }
  QUARRY_TRY(lists_, IoBuffer::Allocate(cut.entries * sizeof(NodeId)));
  const uint64_t entries = AssignAddresses(cut);
  assert(entries == cut.entries);
  (void)entries;
  return ReadLists(backend);
}

// Leaves in the table how many lists name each node: its degree on the opposite side.
Status NeighborCache::CountOppositeDegrees(IoBackend& backend) {
  if (topology_.has(Opposite(side_))) {
    const std::span<const uint64_t> opposite = topology_.indptr(Opposite(side_));
    for (uint64_t v = 0; v < topology_.node_count(); ++v) {
      table()[v] = static_cast<uint32_t>(std::min<uint64_t>(opposite[v + 1] - opposite[v], kNotCached));
    }
    return Status::Ok();
  }
  return Scan(backend, [&](uint64_t, std::span<const NodeId> indices) {
    for (const NodeId node : indices) table()[node] += table()[node] != kNotCached;
  });
}

// out-degree / in-degree for the lists of in-neighbors (and the reverse for those of out-neighbors), as a
// number that sorts like it: the bits of a float that is not negative. 0 for what is never asked for or costs
// nothing.
uint32_t NeighborCache::Importance(NodeId node) const {
  const uint64_t degree = Degree(node);
  if (degree == 0) return 0;
  return std::bit_cast<uint32_t>(static_cast<float>(table()[node]) / static_cast<float>(degree));
}

// The most important nodes whose lists fit together; equally important ones by id. Two histograms find the
// threshold, first of the upper halves of importances, then of the lower halves at that upper half: the same
// nodes as sorting would give, in a MiB of memory.
NeighborCache::Cut NeighborCache::Choose(uint64_t entries_max) const {
  constexpr uint32_t kBuckets = 1 << 16;
  const auto node_count = static_cast<NodeId>(topology_.node_count());
  std::vector<uint64_t> entries(kBuckets);
  uint64_t taken = 0;
  // Takes whole buckets from the top; returns the first that does not fit (0 if all do).
  const auto take_buckets = [&] {
    uint32_t bucket = kBuckets - 1;
    while (bucket > 0 && taken + entries[bucket] <= entries_max) taken += entries[bucket--];
    return bucket;
  };

  for (NodeId v = 0; v < node_count; ++v) {
    if (Degree(v) > 0) entries[Importance(v) >> 16] += Entries(v);
  }
  Cut cut;
  const uint32_t upper = take_buckets();
  entries.assign(kBuckets, 0);
  for (NodeId v = 0; v < node_count; ++v) {
    if (Degree(v) == 0) continue;
    const uint32_t importance = Importance(v);
    if (importance >> 16 == upper) entries[importance & (kBuckets - 1)] += Entries(v);
  }
  cut.threshold = upper << 16 | take_buckets();

  cut.entries = 0;
  bool full = false;
  uint64_t at_threshold = 0;
  for (NodeId v = 0; v < node_count; ++v) {
    if (Degree(v) == 0) continue;
    const uint32_t importance = Importance(v);
    if (importance < cut.threshold) continue;
    if (importance == cut.threshold) {
      full = full || taken + at_threshold + Entries(v) > entries_max;
      if (full) continue;
      at_threshold += Entries(v);
      cut.tie_end = v + 1;
    }
    cut.entries += Entries(v);
    ++cut.nodes;
  }
  return cut;
}

// In the order of node ids, so that one pass over the indices fills the lists front to back.
uint64_t NeighborCache::AssignAddresses(const Cut& cut) {
  uint64_t next = 0;
  for (NodeId v = 0; v < topology_.node_count(); ++v) {
    const uint32_t importance = Degree(v) > 0 ? Importance(v) : 0;
    const bool cached =
        Degree(v) > 0 && (importance > cut.threshold || (importance == cut.threshold && v < cut.tie_end));
    table()[v] = cached ? static_cast<uint32_t>(next >> unit_shift_) : kNotCached;
    if (!cached) continue;
    next += Entries(v);
    ++cached_nodes_;
    cached_edges_ += Degree(v);
  }
  return next;
}

Status NeighborCache::ReadLists(IoBackend& backend) {
  NodeId node = 0;  // whose list is being read
  return Scan(backend, [&](uint64_t first, std::span<const NodeId> indices) {
    const uint64_t end = first + indices.size();
    while (node < topology_.node_count() && indptr_[node] < end) {
      const uint64_t from = std::max(indptr_[node], first);
      const uint64_t to = std::min(indptr_[node + 1], end);
      if (table()[node] != kNotCached && from < to) {
        NodeId* const list = lists() + (uint64_t{table()[node]} << unit_shift_);
        std::copy(indices.begin() + (from - first), indices.begin() + (to - first),
                  list + (from - indptr_[node]));
      }
      if (indptr_[node + 1] > end) break;  // goes on in the next piece
      ++node;
    }
  });
}

// Calls visit(first position, indices) for consecutive pieces of the side's indices, verified.
template <typename Visit>
Status NeighborCache::Scan(IoBackend& backend, const Visit& visit) {
  QUARRY_TRY(const std::unique_ptr<EdgeColumnScanner> scanner,
             EdgeColumnScanner::Make(backend, topology_, side_, EdgeColumn::kNeighbors));
  for (uint64_t first = 0; first < topology_.edge_count();) {
    QUARRY_TRY(const std::span<const NodeId> piece, scanner->Next());
    visit(first, piece);
    first += piece.size();
  }
  return Status::Ok();
}

Result<std::unique_ptr<NeighborCache>> NeighborCache::Build(IoBackend& backend, const Topology& topology,
                                                            Adjacency side, uint64_t memory_bytes) {
  assert(topology.has(side));
  std::unique_ptr<NeighborCache> cache(new NeighborCache(topology, side));
  QUARRY_RETURN_IF_ERROR(cache->Fill(backend, memory_bytes));
  return cache;
}

}  // namespace quarry
