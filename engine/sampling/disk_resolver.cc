#include <algorithm>
#include <bit>
#include <cassert>
#include <vector>

#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/format/feature_table.h"
#include "quarry/io/buffer.h"
#include "quarry/io/coalesce.h"
#include "quarry/io/ring.h"
#include "resolver.h"

namespace quarry {
namespace {

constexpr uint64_t kIndicesPerPage = kPageBytes / sizeof(NodeId);

// A wanted position as one number that sorts by page: page (34 bits) | index within the page (10) | place in
// the tile (20). The pages of the second side are numbered on from those of the first.
constexpr int kPlaceBits = 20;
constexpr int kPageShift = kPlaceBits + std::countr_zero(kIndicesPerPage);
static_assert(kDiskTilePositions == uint64_t{1} << kPlaceBits);

constexpr uint64_t PageOf(uint64_t key) { return key >> kPageShift; }
constexpr uint64_t IndexInPage(uint64_t key) { return key >> kPlaceBits & (kIndicesPerPage - 1); }
constexpr uint64_t PlaceOf(uint64_t key) { return key & (kDiskTilePositions - 1); }

// Longer requests gain little bandwidth, and every request in flight owns this much staging memory.
constexpr uint64_t kRequestBytesMax = 128 * kKiB;
constexpr unsigned kDepthMax = 128;

// What runs take of a draw is measured at one node in so many, so that the clock takes less than a thousandth of it. The thread may
// have waited for a processor in between, which counts as no more than the dearest search (runs_price.cc).
constexpr uint64_t kClockedOneIn = 16;
constexpr double kSearchSecondsMax = 4e-6;

// Pages that are merged into requests at a time; a request is cut where a window ends.
constexpr size_t kWindowPages = 4096;

struct StagingShape {
  uint64_t slot_bytes = 0;
  unsigned slot_count = 0;
};

// One request each; no more than the indices can fill.
StagingShape ShapeOf(const NeighborSource& source) {
  const uint64_t side_bytes = std::max(kPageBytes, RoundUp(source.topology->BaseIndicesBytes(), kPageBytes));
  StagingShape shape;
  shape.slot_bytes = std::min(kRequestBytesMax, side_bytes);
  const uint64_t useful = CeilDiv(side_bytes, kPageBytes) * SidesOf(source.direction).size();
  shape.slot_count =
      static_cast<unsigned>(std::min<uint64_t>(std::clamp(source.io_depth, 1u, kDepthMax), useful));
  return shape;
}

// Sorts by page, stably, least significant digit first; `keys` and `scratch` are of one size and may change
// places.
void SortByPage(std::span<uint64_t>& keys, std::span<uint64_t>& scratch, uint64_t page_count) {
  constexpr int kDigitBits = 11;
  for (int bit = 0; bit < static_cast<int>(std::bit_width(page_count - 1)); bit += kDigitBits) {
    const auto digit = [&](uint64_t key) { return PageOf(key) >> bit & ((1 << kDigitBits) - 1); };
    uint32_t starts[(1 << kDigitBits) + 1] = {};
    for (const uint64_t key : keys) ++starts[digit(key) + 1];
    for (int d = 0; d < 1 << kDigitBits; ++d) starts[d + 1] += starts[d];
    for (const uint64_t key : keys) scratch[starts[digit(key)]++] = key;
    std::swap(keys, scratch);
  }
}

// Positions whose list the neighbor cache holds are answered from it (Ginex §3.2), and edges that runs have added from
// those. The others are sorted by
// page, and each page is read once per tile: neighboring pages in one request, `slot_count` requests in
// flight.
class DiskResolver final : public Resolver {
 public:
  DiskResolver(const NeighborSource& source, IoBuffer staging)
      : source_(source),
        sides_(SidesOf(source.direction)),
        shape_(ShapeOf(source)),
        staging_(std::move(staging)) {
    pages_per_side_ = CeilDiv(source.topology->BaseIndicesBytes(), kPageBytes);
    edited_ =
        std::ranges::any_of(sides_, [&](Adjacency side) { return !source.topology->edits(side).empty(); });
    slots_.resize(shape_.slot_count);
  }
  ~DiskResolver() override {
    if (ring_) ring_->Drain();
  }

  Status Resolve(const PositionTile& tile, NodeId* neighbors, SamplerStats& stats) override;
  uint64_t tile_positions_max() const override { return kDiskTilePositions; }
  uint64_t memory_bytes() const override {
    return keys_.capacity() * sizeof(uint64_t) + staging_.mapped_bytes() +
           kWindowPages * (sizeof(ByteRange) + sizeof(uint32_t) + sizeof(MergedRead)) + slots_.size() * 128;
  }

 private:
  // A request in flight, or room for one: it serves keys [first_key, end_key).
  struct Slot {
    uint64_t first_page = 0;
    uint32_t first_key = 0;
    uint32_t end_key = 0;
    std::byte* buffer = nullptr;
  };

  size_t AnswerFromCache(const PositionTile& tile, NodeId* neighbors, SamplerStats& stats);
  Status ReadAll(std::span<const uint64_t> keys, NodeId* neighbors, SamplerStats& stats);
  void OpenWindow(std::span<const uint64_t> keys);
  Status SubmitReads(SamplerStats& stats);
  Status Deliver(const Slot& slot, std::span<const uint64_t> keys, NodeId* neighbors) const;

  const NeighborSource source_;
  const std::span<const Adjacency> sides_;
  const StagingShape shape_;
  uint64_t pages_per_side_ = 0;
  bool edited_ = false;
  uint64_t nodes_ = 0;  // whose lists were drawn from, where they are edited
  IoBuffer staging_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_slots_;
  std::unique_ptr<IoRing> ring_;  // dies before the staging that it writes to
  std::vector<uint64_t> keys_;

  // The window: pages that are merged and not yet all submitted. Ranges are offsets from the side's first
  // page.
  uint64_t window_page_base_ = 0;  // first page of the side
  size_t window_end_key_ = 0;
  std::vector<ByteRange> ranges_;
  std::vector<uint32_t> range_keys_;  // first key of each range, and the end
  std::vector<MergedRead> merged_;
  size_t next_merged_ = 0;
  std::vector<ReadRequest> requests_;
  std::vector<uint64_t> done_;
};

Status DiskResolver::Resolve(const PositionTile& tile, NodeId* neighbors, SamplerStats& stats) {
  assert(tile.positions.size() <= kDiskTilePositions);
  if (keys_.size() < tile.positions.size()) {
    keys_ = {};
    keys_.resize(tile.positions.size());
  }
  const size_t missing = AnswerFromCache(tile, neighbors, stats);
  if (missing == 0) return Status::Ok();
  std::span<uint64_t> keys(keys_.data(), missing);
  std::span<uint64_t> scratch = tile.positions.first(missing);
  SortByPage(keys, scratch, pages_per_side_ * sides_.size());
  if (!ring_) {
    QUARRY_TRY(ring_, IoRing::Make(*source_.backend, shape_.slot_count));
  }
  const Status status = ReadAll(keys, neighbors, stats);
  if (!status.ok()) {  // what is in flight must not land in a later tile
    ring_->Drain();
    ring_.reset();
  }
  return status;
}

// Returns how many keys it left in keys_: the positions that must be read.
// A node's positions come one after another, grouped by side, so the cache is asked once for each list.
size_t DiskResolver::AnswerFromCache(const PositionTile& tile, NodeId* neighbors, SamplerStats& stats) {
  size_t key_count = 0;
  size_t place = 0;
  for (size_t i = 0; i < tile.nodes.size(); ++i) {
    const NodeId node = tile.nodes[i];
    const size_t end = tile.ends[i] - tile.first_end;
    int list_side = -1;
    std::span<const NodeId> list;
    uint64_t list_begin = 0;
    uint64_t searches = 0;
    const bool clocked = edited_ && nodes_++ % kClockedOneIn == 0;
    const double start = clocked ? MonotonicSeconds() : 0;
    for (; place < end; ++place) {
      const int side = static_cast<int>(tile.positions[place] >> 63);
      uint64_t position = tile.positions[place] & ~kSecondSide;
      if (side != list_side) {
        list_side = side;
        const NeighborCache* cache = source_.caches[static_cast<int>(sides_[side])];
        list = cache == nullptr ? std::span<const NodeId>() : cache->Find(node);
        list_begin = source_.topology->indptr(sides_[side])[node];
        stats.neighbor_cache_hits += list.data() == nullptr ? 0 : 1;
      }
      if (list.data() != nullptr) {
        neighbors[place] = list[position - list_begin];
        continue;
      }
      if (const EdgeEdits& edits = source_.topology->edits(sides_[side]); !edits.empty()) [[unlikely]] {
        const EdgeEdits::Place found = edits.Find(position);
        ++searches;
        if (found.added) {
          neighbors[place] = edits.neighbors()[found.index];
          continue;
        }
        position = found.index;
      }
      const uint64_t page = side * pages_per_side_ + position / kIndicesPerPage;
      keys_[key_count++] = page << kPageShift | position % kIndicesPerPage << kPlaceBits | place;
    }
    stats.searches += searches;
    if (!clocked) continue;
    stats.search_seconds += kClockedOneIn * std::min(MonotonicSeconds() - start,
                                                     kSearchSecondsMax * static_cast<double>(searches));
  }
  return key_count;
}

// Keeps all slots busy: submits while there are free ones, delivers what completes. Sorting and merging
// happen a window at a time while reads are in flight, so planning hides behind the device.
Status DiskResolver::ReadAll(std::span<const uint64_t> keys, NodeId* neighbors, SamplerStats& stats) {
  free_slots_.clear();
  for (uint32_t i = 0; i < slots_.size(); ++i) free_slots_.push_back(i);
  window_end_key_ = 0;
  next_merged_ = 0;
  merged_.clear();
  while (true) {
    while (!free_slots_.empty()) {
      if (next_merged_ == merged_.size()) {
        if (window_end_key_ == keys.size()) break;
        OpenWindow(keys);
      }
      QUARRY_RETURN_IF_ERROR(SubmitReads(stats));
    }
    if (free_slots_.size() == slots_.size()) return Status::Ok();
    done_.clear();
    QUARRY_RETURN_IF_ERROR(ring_->Wait(done_));
    for (const uint64_t slot : done_) {
      QUARRY_RETURN_IF_ERROR(Deliver(slots_[slot], keys, neighbors));
      free_slots_.push_back(static_cast<uint32_t>(slot));
    }
  }
}

// Merges the next pages of `keys`, at most kWindowPages and of one side (the sides are far apart in the file,
// so nothing could be merged across them). A page that several positions want is one range.
void DiskResolver::OpenWindow(std::span<const uint64_t> keys) {
  ranges_.clear();
  range_keys_.clear();
  merged_.clear();
  next_merged_ = 0;
  window_page_base_ = PageOf(keys[window_end_key_]) < pages_per_side_ ? 0 : pages_per_side_;
  const uint64_t page_end = window_page_base_ + pages_per_side_;
  uint64_t last_page = page_end;
  for (; window_end_key_ < keys.size(); ++window_end_key_) {
    const uint64_t page = PageOf(keys[window_end_key_]);
    if (page == last_page) continue;
    if (page >= page_end || ranges_.size() == kWindowPages) break;
    last_page = page;
    ranges_.push_back({(page - window_page_base_) * kPageBytes, kPageBytes});
    range_keys_.push_back(static_cast<uint32_t>(window_end_key_));
  }
  range_keys_.push_back(static_cast<uint32_t>(window_end_key_));
  Coalesce(ranges_,
           {.block_bytes = kPageBytes,
            .gap_bytes_max = source_.device.GapBytesMax(),
            .request_bytes_max = static_cast<uint32_t>(shape_.slot_bytes)},
           merged_);
}

Status DiskResolver::SubmitReads(SamplerStats& stats) {
  const Adjacency side = sides_[window_page_base_ == 0 ? 0 : 1];
  requests_.clear();
  while (!free_slots_.empty() && next_merged_ < merged_.size()) {
    const MergedRead& read = merged_[next_merged_++];
    assert(read.bytes <= shape_.slot_bytes);
    const uint32_t number = free_slots_.back();
    free_slots_.pop_back();
    Slot& slot = slots_[number];
    slot.first_page = window_page_base_ + read.offset / kPageBytes;
    slot.first_key = range_keys_[read.first];
    slot.end_key = range_keys_[read.first + read.count];
    slot.buffer = staging_.data() + number * shape_.slot_bytes;
    requests_.push_back({.file = &source_.topology->file(),
                         .offset = source_.topology->indices_offset(side) + read.offset,
                         .bytes = read.bytes,
                         .buffer = slot.buffer,
                         .user_data = number});
    stats.bytes_read += read.bytes;
    ++stats.read_requests;
  }
  return ring_->Submit(requests_);
}

Status DiskResolver::Deliver(const Slot& slot, std::span<const uint64_t> keys, NodeId* neighbors) const {
  uint64_t page = ~uint64_t{0};
  const std::byte* bytes = nullptr;
  for (const uint64_t key : keys.subspan(slot.first_key, slot.end_key - slot.first_key)) {
    if (PageOf(key) != page) {
      page = PageOf(key);
      bytes = slot.buffer + (page - slot.first_page) * kPageBytes;
      const bool second = page >= pages_per_side_;
      QUARRY_RETURN_IF_ERROR(source_.topology->VerifyIndexPage(
          sides_[second ? 1 : 0], second ? page - pages_per_side_ : page, {bytes, kPageBytes}));
    }
    neighbors[PlaceOf(key)] = reinterpret_cast<const NodeId*>(bytes)[IndexInPage(key)];
  }
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<Resolver>> MakeDiskResolver(const NeighborSource& source) {
  const Topology& topology = *source.topology;
  if (source.backend == nullptr) {
    return MakeStatus(Code::kInvalidArgument,
                      "{}: the indices are not in memory, and no backend is given to read them",
                      topology.file().path());
  }
  const uint64_t pages = CeilDiv(topology.BaseIndicesBytes(), kPageBytes) * SidesOf(source.direction).size();
  if (std::bit_width(pages) > 64 - kPageShift) {
    return MakeStatus(Code::kUnsupported, "{}: {} edges are more than sampling from disk can address",
                      topology.file().path(), topology.edge_count());
  }
  const StagingShape shape = ShapeOf(source);
  QUARRY_TRY(IoBuffer staging, IoBuffer::Allocate(shape.slot_count * shape.slot_bytes));
  return std::make_unique<DiskResolver>(source, std::move(staging));
}

uint64_t DiskResolverBytesMax(const NeighborSource& source, uint64_t positions_max) {
  const StagingShape shape = ShapeOf(source);
  return std::min(positions_max, kDiskTilePositions) * sizeof(uint64_t) +
         RoundUp(shape.slot_count * shape.slot_bytes, 2 * kMiB) +
         kWindowPages * (sizeof(ByteRange) + sizeof(uint32_t) + sizeof(MergedRead)) + shape.slot_count * 128;
}

}  // namespace quarry
