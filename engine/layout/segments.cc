#include "quarry/layout/segments.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <limits>
#include <numeric>
#include <utility>

#include "quarry/base/radix_sort.h"
#include "quarry/base/random.h"
#include "quarry/base/units.h"

namespace quarry {
namespace {

// A set of integers below `size`, and once ranked, an index over its members. At a bit each (and half a bit
// for the ranks) the sets of ten million nodes stay in the second-level cache.
class BitSet {
 public:
  explicit BitSet(uint64_t size) : words_(CeilDiv(size, 64)) {}

  void Add(uint32_t value) { words_[value / 64] |= Bit(value); }
  bool Has(uint32_t value) const { return (words_[value / 64] & Bit(value)) != 0; }

  // Adds to `repeated` what is here already, to this what is not.
  void AddOrRepeat(uint32_t value, BitSet& repeated) {
    uint64_t& word = words_[value / 64];
    repeated.words_[value / 64] |= word & Bit(value);
    word |= Bit(value);
  }

  // Counts the members, for size() and IndexOf() until the next change.
  void Rank() {
    ranks_.resize(words_.size());
    size_ = 0;
    for (size_t w = 0; w < words_.size(); ++w) {
      ranks_[w] = static_cast<uint32_t>(size_);
      size_ += static_cast<uint64_t>(std::popcount(words_[w]));
    }
  }
  uint64_t size() const { return size_; }
  // How many members are less.
  uint32_t IndexOf(uint32_t value) const {
    return ranks_[value / 64] + static_cast<uint32_t>(std::popcount(words_[value / 64] & (Bit(value) - 1)));
  }

  // Visits the members in ascending order and removes them.
  template <typename Visit>
  void Drain(const Visit& visit) {
    for (size_t w = 0; w < words_.size(); ++w) {
      for (uint64_t word = std::exchange(words_[w], 0); word != 0; word &= word - 1) {
        visit(w * 64 + static_cast<uint64_t>(std::countr_zero(word)));
      }
    }
  }
  std::vector<uint32_t> Members() const {
    std::vector<uint32_t> members;
    members.reserve(size_);
    BitSet(*this).Drain([&](uint64_t value) { members.push_back(static_cast<uint32_t>(value)); });
    return members;
  }

 private:
  static uint64_t Bit(uint32_t value) { return uint64_t{1} << value % 64; }
  std::vector<uint64_t> words_;
  std::vector<uint32_t> ranks_;
  uint64_t size_ = 0;
};

// Ranked: the nodes that at least two of the batches miss.
Result<BitSet> RepeatedNodes(const MissReader& misses, uint64_t first, uint64_t count,
                             const SegmentOptions& options) {
  BitSet once(options.node_count);
  BitSet repeated(options.node_count);
  for (uint64_t batch = first; batch < first + count; ++batch) {
    QUARRY_TRY(const std::span<const NodeId> nodes, misses(batch));
    assert(nodes.empty() || nodes.back() < options.node_count);
    for (const NodeId node : nodes) once.AddOrRepeat(node, repeated);
  }
  repeated.Rank();
  return repeated;
}

// A random permutation of 0..count-1: one hash function, without collisions, over the batches of a segment.
std::vector<uint32_t> Permutation(uint64_t count, uint64_t seed) {
  std::vector<uint32_t> values(count);
  std::iota(values.begin(), values.end(), 0);
  Rng rng(seed);
  for (uint64_t i = count; i > 1; --i) std::swap(values[i - 1], values[rng.Below(i)]);
  return values;
}

// keys[node's index * k + j] = the least value of hash function j over the batches that miss the node.
Result<std::vector<uint32_t>> MinHashKeys(const MissReader& misses, uint64_t first, uint64_t count,
                                          const SegmentOptions& options, const BitSet& cached) {
  const uint32_t k = options.hash_functions;
  std::vector<std::vector<uint32_t>> hashes;
  for (uint32_t j = 0; j < k; ++j) hashes.push_back(Permutation(count, MixSeed(options.seed, first, j)));
  std::vector<uint32_t> keys(cached.size() * k, std::numeric_limits<uint32_t>::max());
  std::vector<uint32_t> values(k);
  for (uint64_t i = 0; i < count; ++i) {
    for (uint32_t j = 0; j < k; ++j) values[j] = hashes[j][i];
    QUARRY_TRY(const std::span<const NodeId> nodes, misses(first + i));
    for (const NodeId node : nodes) {
      if (!cached.Has(node)) continue;
      uint32_t* const key = keys.data() + uint64_t{cached.IndexOf(node)} * k;
      for (uint32_t j = 0; j < k; ++j) key[j] = std::min(key[j], values[j]);
    }
  }
  return keys;
}

// Puts the nodes, ascending at first, in the order of (key, node) and cuts them into runs.
void OrderByKeys(const std::vector<uint32_t>& keys, uint32_t k, uint64_t batch_count, SegmentCache& cache) {
  std::vector<uint64_t> order(cache.nodes.size());
  std::iota(order.begin(), order.end(), 0);
  std::vector<uint64_t> scratch;
  for (uint32_t j = k; j-- > 0;) {  // stable, so the last part of the key goes first
    for (uint64_t& entry : order) {
      const uint64_t index = entry & 0xffffffff;
      entry = uint64_t{keys[index * k + j]} << 32 | index;
    }
    RadixSortByKey(order, batch_count - 1, scratch);
  }
  std::vector<NodeId> nodes;
  nodes.reserve(order.size());
  const uint32_t* previous = nullptr;
  for (const uint64_t entry : order) {
    const uint64_t index = entry & 0xffffffff;
    const uint32_t* const key = keys.data() + index * k;
    if (nodes.empty() || !std::equal(key, key + k, previous)) cache.runs.push_back(nodes.size());
    nodes.push_back(cache.nodes[index]);
    previous = key;
  }
  cache.nodes = std::move(nodes);
}

Result<SegmentCache> BuildCacheOf(const MissReader& misses, uint64_t first, uint64_t count,
                                  const SegmentOptions& options, const BitSet& cached) {
  SegmentCache cache;
  cache.nodes = cached.Members();
  if (!cache.nodes.empty()) {
    QUARRY_TRY(const std::vector<uint32_t> keys, MinHashKeys(misses, first, count, options, cached));
    OrderByKeys(keys, options.hash_functions, count, cache);
  }
  cache.runs.push_back(cache.nodes.size());
  return cache;
}

// What is read for the rows at the given positions of a cache, which it removes.
uint64_t DrainReadBytes(BitSet& positions, const SegmentOptions& options) {
  uint64_t bytes = 0;
  uint64_t begin = 0;
  uint64_t end = 0;  // end of the range being grown
  positions.Drain([&](uint64_t position) {
    const uint64_t row = position * options.row_bytes;
    if (row + options.row_bytes <= end) return;
    const uint64_t pages = RoundDown(row, options.page_bytes);
    if (end == 0 || pages > end + options.gap_bytes_max) {
      bytes += end - begin;
      begin = pages;
    }
    end = RoundUp(row + options.row_bytes, options.page_bytes);
  });
  return bytes + end - begin;
}

uint64_t PaddedBytes(uint64_t rows, const SegmentOptions& options) {
  return RoundUp(rows * options.row_bytes, options.page_bytes);
}

// Adds the cost of one segment. Reads its misses three times.
Status AddSegment(const MissReader& misses, uint64_t first, uint64_t count, const SegmentOptions& options,
                  SegmentCost& cost) {
  QUARRY_TRY(const BitSet cached, RepeatedNodes(misses, first, count, options));
  QUARRY_TRY(const SegmentCache cache, BuildCacheOf(misses, first, count, options, cached));
  std::vector<uint32_t> position_of(cache.nodes.size());
  for (uint32_t p = 0; p < cache.nodes.size(); ++p) position_of[cached.IndexOf(cache.nodes[p])] = p;
  cost.disk_bytes += PaddedBytes(cache.nodes.size(), options);
  BitSet positions(cache.nodes.size());
  for (uint64_t batch = first; batch < first + count; ++batch) {
    QUARRY_TRY(const std::span<const NodeId> nodes, misses(batch));
    uint64_t chunk_rows = 0;
    for (const NodeId node : nodes) {
      if (cached.Has(node)) {
        positions.Add(position_of[cached.IndexOf(node)]);
      } else {
        ++chunk_rows;
      }
    }
    cost.disk_bytes += PaddedBytes(chunk_rows, options);
    cost.read_bytes += PaddedBytes(chunk_rows, options) + DrainReadBytes(positions, options);
    cost.useful_bytes += nodes.size() * options.row_bytes;
  }
  return Status::Ok();
}

template <typename Visit>
Status ForEachSegment(uint64_t batches_per_segment, const SegmentOptions& options, const Visit& visit) {
  for (uint64_t first = 0; first < options.batch_count; first += batches_per_segment) {
    QUARRY_RETURN_IF_ERROR(visit(first, std::min(batches_per_segment, options.batch_count - first)));
  }
  return Status::Ok();
}

// The rows on disk for every size of segments, from one pass: a miss needs no row of its own when the same
// segment missed the node before.
struct RowCounts {
  uint64_t misses = 0;
  uint64_t chunk_bytes = 0;       // chunks alone, padded
  std::vector<uint64_t> repeats;  // [segment size] misses whose node its segment missed before
  uint64_t rows(uint64_t batches_per_segment) const { return misses - repeats[batches_per_segment]; }
};

Result<RowCounts> CountRows(const MissReader& misses, const SegmentOptions& options) {
  RowCounts counts;
  counts.repeats.resize(options.batch_count + 1);
  std::vector<uint32_t> missed_last(options.node_count);  // batch + 1; 0 = not yet
  std::vector<uint64_t> since(options.batch_count + 2);
  for (uint64_t batch = 0; batch < options.batch_count; ++batch) {
    QUARRY_TRY(const std::span<const NodeId> nodes, misses(batch));
    assert(nodes.empty() || nodes.back() < options.node_count);
    counts.misses += nodes.size();
    counts.chunk_bytes += PaddedBytes(nodes.size(), options);
    std::fill(since.begin(), since.begin() + static_cast<ptrdiff_t>(batch) + 2, 0);
    for (const NodeId node : nodes) {
      ++since[std::exchange(missed_last[node], static_cast<uint32_t>(batch + 1))];
    }
    // Now since[b + 1] nodes were missed last by batch b; summed up, by b or later.
    for (uint64_t b = batch; b-- > 0;) since[b + 1] += since[b + 2];
    for (uint64_t size = 2; size <= options.batch_count; ++size) {
      counts.repeats[size] += since[RoundDown(batch, size) + 1];
    }
  }
  return counts;
}

// SegmentCost::disk_bytes of MeasureSegments, without ordering any cache. Reads the misses twice.
Result<uint64_t> MeasureDiskBytes(const MissReader& misses, uint64_t batches_per_segment,
                                  const SegmentOptions& options) {
  uint64_t bytes = 0;
  QUARRY_RETURN_IF_ERROR(ForEachSegment(batches_per_segment, options, [&](uint64_t first, uint64_t count) {
    QUARRY_TRY(const BitSet cached, RepeatedNodes(misses, first, count, options));
    bytes += PaddedBytes(cached.size(), options);
    for (uint64_t batch = first; batch < first + count; ++batch) {
      QUARRY_TRY(const std::span<const NodeId> nodes, misses(batch));
      const auto rows = std::ranges::count_if(nodes, [&](NodeId node) { return !cached.Has(node); });
      bytes += PaddedBytes(static_cast<uint64_t>(rows), options);
    }
    return Status::Ok();
  }));
  return bytes;
}

// The least space of any size of segments.
Result<uint64_t> LeastDiskBytes(const MissReader& misses, const RowCounts& counts,
                                const SegmentOptions& options) {
  std::vector<std::pair<uint64_t, uint64_t>> bounds;  // (bytes of rows without padding, segment size)
  for (uint64_t size = 2; size <= options.batch_count; ++size) {
    bounds.emplace_back(counts.rows(size) * options.row_bytes, size);
  }
  std::ranges::sort(bounds);
  uint64_t least = counts.chunk_bytes;
  for (const auto& [bound, size] : bounds) {
    if (bound >= least) break;
    QUARRY_TRY(const uint64_t bytes, MeasureDiskBytes(misses, size, options));
    least = std::min(least, bytes);
  }
  return least;
}

}  // namespace

uint64_t SegmentCacheBytes(uint64_t rows, const SegmentOptions& options) {
  return rows * (20 + 4 * uint64_t{options.hash_functions}) + options.node_count * 3 / 8;
}

Result<SegmentCache> BuildSegmentCache(const MissReader& misses, uint64_t first, uint64_t count,
                                       const SegmentOptions& options) {
  QUARRY_TRY(const BitSet cached, RepeatedNodes(misses, first, count, options));
  return BuildCacheOf(misses, first, count, options, cached);
}

Result<SegmentCost> MeasureSegments(const MissReader& misses, uint64_t batches_per_segment,
                                    const SegmentOptions& options) {
  SegmentCost cost;
  // No node misses twice in a batch, so segments of one batch are chunks alone.
  QUARRY_RETURN_IF_ERROR(ForEachSegment(
      std::max<uint64_t>(batches_per_segment, 1), options,
      [&](uint64_t first, uint64_t count) { return AddSegment(misses, first, count, options, cost); }));
  return cost;
}

Result<SegmentSearch> SearchSegmentSize(const MissReader& misses, uint64_t disk_bytes,
                                        const SegmentOptions& options) {
  QUARRY_TRY(const RowCounts counts, CountRows(misses, options));
  const uint64_t useful_bytes = counts.misses * options.row_bytes;
  if (counts.chunk_bytes <= disk_bytes) {
    return SegmentSearch{0, {counts.chunk_bytes, useful_bytes, counts.chunk_bytes}};
  }
  for (uint64_t size = 2; size <= options.batch_count; ++size) {
    if (counts.rows(size) * options.row_bytes > disk_bytes) continue;
    QUARRY_TRY(const uint64_t bytes, MeasureDiskBytes(misses, size, options));
    if (bytes > disk_bytes) continue;  // by the padding
    SegmentCost first;
    QUARRY_RETURN_IF_ERROR(AddSegment(misses, 0, size, options, first));
    const double read_bytes = static_cast<double>(useful_bytes) * first.amplification();
    return SegmentSearch{size, {bytes, useful_bytes, static_cast<uint64_t>(read_bytes)}};
  }
  QUARRY_TRY(const uint64_t least, LeastDiskBytes(misses, counts, options));
  return MakeStatus(
      Code::kNoSpace,
      "the packed rows of {} batches do not fit {} ({} bytes) of disk space: give {} bytes ({}) "
      "at least, or more memory for the cache, which leaves fewer rows to pack",
      options.batch_count, FormatBytes(disk_bytes), disk_bytes, least, FormatBytes(least));
}

}  // namespace quarry
