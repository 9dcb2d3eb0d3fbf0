#include "bucket_writer.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <memory>
#include <utility>

#include "bucket_encoder.h"
#include "partition_file.h"
#include "quarry/base/trace.h"
#include "quarry/import/external_sort.h"
#include "quarry/partition/edge_source.h"
#include "quarry/storage/relation_scan.h"

namespace quarry {
namespace {

constexpr uint64_t kSortBatch = 16 << 10;  // keys that are sorted in or read at once
constexpr uint64_t kSortBytesMax = uint64_t{1} << 30;
constexpr uint64_t kHugePageSlack = 4 * kMiB;  // the sort's two buffers are whole huge pages

// How an edge is a key that sorts by bucket, destination, source and relation.
struct KeyLayout {
  unsigned local_bits = 0;
  unsigned relation_bits = 0;
  unsigned bucket_bits = 0;

  static KeyLayout Make(const PartitionDirectory& directory) {
    uint64_t nodes = 1;
    for (uint32_t part = 0; part < directory.parts(); ++part)
      nodes = std::max(nodes, directory.part_nodes(part));
    const uint64_t buckets = uint64_t{directory.parts()} * directory.parts();
    return {.local_bits = static_cast<unsigned>(std::bit_width(nodes - 1)),
            .relation_bits = static_cast<unsigned>(std::bit_width(directory.relation_count - 1)),
            .bucket_bits = static_cast<unsigned>(std::bit_width(buckets - 1))};
  }
  unsigned bits() const { return bucket_bits + 2 * local_bits + relation_bits; }

  template <typename Key>
  Key Pack(uint64_t bucket, uint64_t destination, uint64_t source, uint64_t relation) const {
    Key key = bucket;
    key = key << local_bits | destination;
    key = key << local_bits | source;
    return key << relation_bits | relation;
  }
  template <typename Key>
  static uint64_t TakeLow(Key& key, unsigned bits) {
    const auto low = static_cast<uint64_t>(key & ((Key{1} << bits) - 1));
    key >>= bits;
    return low;
  }
};

template <typename Key>
class BucketSorter {
 public:
  BucketSorter(Store& store, MemoryBudget& budget, const ProgressFunction& progress,
               PartitionDirectory& directory)
      : store_(store),
        budget_(budget),
        progress_(progress),
        directory_(directory),
        layout_(KeyLayout::Make(directory)),
        encoder_(directory.relation_count > 1) {}

  // Reserves what sorting takes.
  Status Reserve(uint64_t edge_count) {
    const uint64_t wanted = std::clamp(3 * edge_count * sizeof(Key), kExternalSortBytesMin, kSortBytesMax);
    const uint64_t bytes = std::clamp(RoundDown(budget_.available_bytes() / 4 * 3, kPageBytes),
                                      kExternalSortBytesMin, RoundUp(wanted, kPageBytes));
    QUARRY_TRY(sort_reservation_,
               budget_.Reserve(bytes + kHugePageSlack + 2 * kSortBatch * (sizeof(Key) + 16),
                               "sorting edges by part"));
    sort_bytes_ = bytes;
    return Status::Ok();
  }

  Status Sort(const TopologyRecord& record, const std::string& scratch, std::span<const NodeId> new_ids) {
    const ScopedSpan span("sort edges by part");
    QUARRY_TRY(const auto topology_reservation,
               budget_.Reserve(Topology::ResidentBytes(record), "reading a topology"));
    QUARRY_TRY(const std::unique_ptr<Topology> topology,
               Topology::Open(store_.backend(), store_.path(), record, store_.manifest()->database_id));
    QUARRY_TRY(const auto edges, TopologyEdges::Make(store_.backend(), *topology, budget_));
    QUARRY_TRY(RelationScan relations, RelationScan::Open(store_.backend(), budget_, *topology));
    QUARRY_RETURN_IF_ERROR(Reserve(record.edge_count));
    sorter_ = std::make_unique<ExternalSorter<Key>>(
        store_.backend(),
        ExternalSortOptions{.memory_bytes = sort_bytes_, .scratch_directory = scratch, .deduplicate = false});
    QUARRY_RETURN_IF_ERROR(edges->Rewind());
    std::vector<NodePair> pairs(kSortBatch);
    std::vector<uint32_t> kinds(kSortBatch);
    std::vector<Key> keys(kSortBatch);
    for (uint64_t done = 0; done < record.edge_count;) {
      QUARRY_TRY(const size_t count, edges->Read(pairs));
      QUARRY_RETURN_IF_ERROR(relations.Read(std::span(kinds).first(count)));
      for (size_t i = 0; i < count; ++i) {
        const NodeId source = new_ids[pairs[i].source];
        const NodeId destination = new_ids[pairs[i].destination];
        const uint64_t from = directory_.PartOf(source);
        const uint64_t to = directory_.PartOf(destination);
        const uint64_t bucket = from * directory_.parts() + to;
        ++directory_.buckets[bucket].edges;
        keys[i] = layout_.template Pack<Key>(bucket, destination - directory_.part_starts[to],
                                             source - directory_.part_starts[from], kinds[i]);
      }
      QUARRY_RETURN_IF_ERROR(sorter_->Add(std::span(keys).first(count)));
      done += count;
      if (progress_) QUARRY_RETURN_IF_ERROR(progress_("sorting edges", done, record.edge_count));
    }
    return Status::Ok();
  }

  Status Write(uint64_t edge_count, DataFileWriter& writer) {
    const ScopedSpan span("write buckets of edges");
    const auto& largest = *std::ranges::max_element(directory_.buckets, {}, &BucketEntry::edges);
    if (largest.edges > std::numeric_limits<uint32_t>::max()) {
      return MakeStatus(Code::kUnsupported, "{} edges between two of {} parts: at most {}: make more parts",
                        largest.edges, directory_.parts(), std::numeric_limits<uint32_t>::max());
    }
    // The writer has a checksum for each page of the section, and twice as much while it makes room for more.
    const uint64_t pages = edge_count * BucketEncoder::kBytesPerEdge / kPageBytes + directory_.buckets.size();
    QUARRY_TRY(const auto reservation,
               budget_.Reserve(largest.edges * BucketEncoder::kBytesPerEdge + 3 * pages * sizeof(uint32_t),
                               "the largest bucket of edges, which more parts make smaller"));
    QUARRY_RETURN_IF_ERROR(sorter_->Finish());
    writer.BeginSection(kBucketsSection, DataFileWriter::Cover::kPages);
    uint64_t done = 0;
    for (uint32_t source = 0; source < directory_.parts(); ++source) {
      for (uint32_t destination = 0; destination < directory_.parts(); ++destination) {
        QUARRY_RETURN_IF_ERROR(WriteBucket(source, destination, writer));
        done += directory_.bucket(source, destination).edges;
      }
      if (progress_) QUARRY_RETURN_IF_ERROR(progress_("writing buckets", done, edge_count));
    }
    return writer.EndSection();
  }

 private:
  // The next bucket's edges, which the sort has in its order.
  Status WriteBucket(uint32_t source, uint32_t destination, DataFileWriter& writer) {
    encoder_.Clear();
    keys_.resize(kSortBatch);
    for (uint64_t edges = directory_.bucket(source, destination).edges; edges > 0;) {
      QUARRY_TRY(const size_t count, sorter_->Read(std::span(keys_).first(std::min(edges, kSortBatch))));
      if (count == 0) return Status(Code::kInternal, "edges were lost while they were sorted");
      edges -= count;
      for (size_t i = 0; i < count; ++i) {
        Key key = keys_[i];
        const auto relation = static_cast<uint32_t>(KeyLayout::TakeLow(key, layout_.relation_bits));
        const auto from = static_cast<uint32_t>(KeyLayout::TakeLow(key, layout_.local_bits));
        const auto to = static_cast<uint32_t>(KeyLayout::TakeLow(key, layout_.local_bits));
        encoder_.Add(to, from, relation);
      }
    }
    return encoder_.Append(source, destination, writer, directory_.buckets_bytes, directory_);
  }

  Store& store_;
  MemoryBudget& budget_;
  const ProgressFunction& progress_;
  PartitionDirectory& directory_;
  const KeyLayout layout_;
  MemoryBudget::Reservation sort_reservation_;
  uint64_t sort_bytes_ = 0;
  std::unique_ptr<ExternalSorter<Key>> sorter_;
  std::vector<Key> keys_;
  BucketEncoder encoder_;  // of the bucket that is being written
};

}  // namespace

Status WriteBuckets(Store& store, MemoryBudget& budget, const TopologyRecord& topology,
                    const std::string& scratch_directory, std::vector<NodeId> new_ids,
                    MemoryBudget::Reservation ids_reservation, const ProgressFunction& progress,
                    PartitionDirectory& directory, DataFileWriter& writer) {
  directory.buckets.assign(size_t{directory.parts()} * directory.parts(), BucketEntry());
  directory.relation_count = topology.relation_count;
  const auto run = [&](auto sorter) -> Status {
    QUARRY_RETURN_IF_ERROR(sorter.Sort(topology, scratch_directory, new_ids));
    new_ids = std::vector<NodeId>();
    ids_reservation.Release();
    return sorter.Write(topology.edge_count, writer);
  };
  // Half the bytes are sorted where a key fits into 64 bits, and is not all ones.
  if (KeyLayout::Make(directory).bits() < 64) {
    return run(BucketSorter<uint64_t>(store, budget, progress, directory));
  }
  return run(BucketSorter<uint128_t>(store, budget, progress, directory));
}

}  // namespace quarry
