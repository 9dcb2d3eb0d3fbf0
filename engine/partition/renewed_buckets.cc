#include "renewed_buckets.h"

#include <algorithm>
#include <compare>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bucket_encoder.h"
#include "bucket_writer.h"
#include "partition_file.h"
#include "partition_place.h"
#include "quarry/base/kill_point.h"
#include "quarry/base/log.h"
#include "quarry/base/process.h"
#include "quarry/base/trace.h"
#include "quarry/base/units.h"
#include "quarry/io/buffer.h"
#include "quarry/partition/read_bucket.h"
#include "quarry/storage/edge_columns.h"
#include "quarry/storage/partition_files.h"
#include "quarry/storage/topology_run.h"

namespace quarry {
namespace {

constexpr uint64_t kBucketsWriterBytes = 4 * kMiB;
constexpr uint64_t kReadersBytes = 2 * EdgeColumnReader::kMemoryBytes;  // of each column
constexpr uint64_t kMergedShare = 4;  // as few as one in so many edges are in lists that changed

// An edge of a list that changed, in the order of buckets.
struct ListedEdge {
  uint32_t bucket = 0;
  uint32_t destination = 0;  // within their parts
  uint32_t source = 0;
  uint32_t relation = 0;
  auto operator<=>(const ListedEdge&) const = default;
};

// Whether a build of all may do what a renewal could not.
bool GivesUp(const Status& status) {
  return status.code() == Code::kOutOfBudget || status.code() == Code::kCorruption ||
         status.code() == Code::kUnsupported;
}

class Renewal {
 public:
  Renewal(Store& store, MemoryBudget& budget, const PartitioningSpec& spec, const ProgressFunction& progress,
          double start_seconds)
      : store_(store), budget_(budget), spec_(spec), progress_(progress), start_seconds_(start_seconds) {}

  // Whether edges alone are others. Before all else.
  Result<bool> IsPossible(const PartitionOptions& options);
  Result<std::optional<PartitioningRecord>> Run();

 private:
  Result<bool> HasSameRows(std::string_view table) const;
  Result<bool> FindLists();
  Status Write();
  Status WriteMerged(DataFileWriter& writer);
  Status WriteSorted(DataFileWriter& writer);
  Status ListEdges();
  bool Merge(const EdgeBucket& old, uint32_t source, uint32_t destination);
  std::span<const ListedEdge> EdgesOf(uint32_t bucket) const;
  // Those of the lists that changed which are of this part's nodes.
  std::span<const NodeId> ListsOf(uint32_t part) const;
  PartitioningRecord Describe() const;

  Store& store_;
  MemoryBudget& budget_;
  const PartitioningSpec& spec_;
  const ProgressFunction& progress_;
  const double start_seconds_;

  std::shared_ptr<const Snapshot> snapshot_;
  PartitioningRecord record_;  // of before
  TopologyRecord topology_;
  std::unique_ptr<StoredPartitioning> parts_;
  PartitionDirectory directory_;  // of after
  std::vector<bool> renewed_;     // buckets that buckets.qpp has, by their numbers
  PartitioningPlace place_;
  uint64_t buckets_bytes_ = 0;  // of buckets.qpp

  // The lists of in-neighbors that changed, with what they take.
  MemoryBudget::Reservation lists_reservation_, edges_reservation_;
  std::unique_ptr<Topology> opened_;
  std::vector<NodeId> lists_;  // ascending: old ids, and new ones once their edges are known
  std::vector<ListedEdge> edges_;
  std::unique_ptr<BucketEncoder> encoder_;
};

Result<bool> Renewal::HasSameRows(std::string_view name) const {
  const TableRecord* const table = snapshot_->FindTable(name);
  if (table == nullptr || table->folded > record_.timestamp) return false;
  QUARRY_TRY(
      const std::unique_ptr<RowOverlay> newer,
      store_.OpenOverlay(name, snapshot_,
                         TableVersion{.generation = table->generation, .timestamp = record_.timestamp}));
  return newer->empty();
}

Result<bool> Renewal::IsPossible(const PartitionOptions& options) {
  const std::shared_ptr<const Manifest> manifest = store_.manifest();
  const PartitioningRecord* const record = manifest->FindPartitioning(spec_.name);
  if (record == nullptr || spec_.training_first || record->topology != spec_.topology ||
      record->table != spec_.table || (options.parts != 0 && options.parts != record->part_count)) {
    return false;
  }
  record_ = *record;
  QUARRY_TRY(snapshot_, store_.TakeSnapshot());
  const TopologyRecord* const topology = snapshot_->FindTopology(spec_.topology);
  if (topology == nullptr || topology->generation < record_.topology_generation ||
      topology->node_count != record_.node_count) {
    return false;
  }
  topology_ = *topology;
  if (!record_.table.empty()) {
    const TableRecord* const table = snapshot_->FindTable(record_.table);
    if (table == nullptr || table->generation != record_.table_generation) return false;
  }
  QUARRY_TRY(parts_, StoredPartitioning::OpenAsItIs(store_, budget_, record_));
  directory_ = parts_->directory();
  if (directory_.relation_count != topology_.relation_count) return false;
  if (record_.table.empty()) return true;
  QUARRY_TRY(bool same, HasSameRows(record_.table));
  const bool labels = snapshot_->FindTable("label") != nullptr && snapshot_->FindTable("split") != nullptr;
  if (labels != directory_.has_labels()) return false;
  for (const char* const name : {"label", "split"}) {
    if (!same || !labels) break;
    QUARRY_TRY(same, HasSameRows(name));
  }
  return same;
}

// False where runs do not tell, or where sorting all edges takes no longer.
Result<bool> Renewal::FindLists() {
  if (topology_.folded > record_.timestamp) return false;
  const ScopedSpan span("find changed lists");
  uint64_t lists_max = 0;
  for (const TopologyRun& run : topology_.runs) {
    if (run.timestamp > record_.timestamp) lists_max += std::min(run.lists, topology_.node_count);
  }
  QUARRY_TRY(lists_reservation_, budget_.Reserve(2 * lists_max * sizeof(NodeId) +
                                                     Topology::ResidentBytes(topology_) + kReadersBytes,
                                                 "lists of neighbors that changed"));
  for (const TopologyRun& run : topology_.runs) {
    if (run.timestamp <= record_.timestamp) continue;
    QUARRY_TRY(const MemoryBudget::Reservation reservation,
               budget_.Reserve(
                   ListEdits::MemoryBytes(run.lists, run.added, run.removed, topology_.relation_count > 1),
                   "a run of edges"));
    QUARRY_TRY(const ListEdits edits, LoadRun(store_.backend(), store_.path(), topology_, run,
                                              store_.manifest()->database_id, Adjacency::kCsc));
    lists_.insert(lists_.end(), edits.lists.begin(), edits.lists.end());
  }
  std::ranges::sort(lists_);
  const auto same = std::ranges::unique(lists_);
  lists_.erase(same.begin(), same.end());
  QUARRY_TRY(opened_, store_.OpenTopology(*snapshot_, topology_.name));
  const std::span<const uint64_t> indptr = opened_->indptr(Adjacency::kCsc);
  uint64_t edges = 0;
  for (const NodeId list : lists_) edges += indptr[list + 1] - indptr[list];
  if (edges * kMergedShare > topology_.edge_count) return false;
  const uint64_t checksum_bytes =
      topology_.relation_count > 1 ? BaseColumn::ChecksumBytes(*opened_, EdgeColumn::kRelations) : 0;
  auto reservation =
      budget_.Reserve(edges * sizeof(ListedEdge) + topology_.node_count * sizeof(NodeId) + checksum_bytes,
                      "edges of lists that changed");
  if (!reservation.ok()) return false;
  edges_reservation_ = *std::move(reservation);
  edges_.reserve(edges);
  return true;
}

// The edges of the lists that changed, by bucket. The topology and the map of nodes go afterwards.
Status Renewal::ListEdges() {
  std::vector<NodeId> new_ids(topology_.node_count);
  QUARRY_RETURN_IF_ERROR(parts_->ReadNewIds(0, new_ids));
  QUARRY_TRY(const auto neighbors,
             EdgeColumnReader::Make(store_.backend(), *opened_, Adjacency::kCsc, EdgeColumn::kNeighbors));
  std::unique_ptr<EdgeColumnReader> relations;
  if (topology_.relation_count > 1) {
    QUARRY_TRY(relations,
               EdgeColumnReader::Make(store_.backend(), *opened_, Adjacency::kCsc, EdgeColumn::kRelations));
  }
  const std::span<const uint64_t> indptr = opened_->indptr(Adjacency::kCsc);
  for (NodeId& list : lists_) {
    QUARRY_TRY(const std::span<const uint32_t> sources, neighbors->Read(indptr[list], indptr[list + 1]));
    std::span<const uint32_t> kinds;
    if (relations != nullptr) {
      QUARRY_TRY(kinds, relations->Read(indptr[list], indptr[list + 1]));
    }
    const NodeId destination = new_ids[list];
    const uint32_t to = directory_.PartOf(destination);
    for (size_t i = 0; i < sources.size(); ++i) {
      const NodeId source = new_ids[sources[i]];
      const uint32_t from = directory_.PartOf(source);
      edges_.push_back({.bucket = from * directory_.parts() + to,
                        .destination = destination - static_cast<NodeId>(directory_.part_starts[to]),
                        .source = source - static_cast<NodeId>(directory_.part_starts[from]),
                        .relation = kinds.empty() ? 0 : kinds[i]});
    }
    list = destination;
  }
  opened_.reset();
  std::ranges::sort(lists_);
  std::ranges::sort(edges_);
  return Status::Ok();
}

std::span<const ListedEdge> Renewal::EdgesOf(uint32_t bucket) const {
  const auto found = std::ranges::equal_range(edges_, bucket, {}, &ListedEdge::bucket);
  return {found.begin(), found.end()};
}

std::span<const NodeId> Renewal::ListsOf(uint32_t part) const {
  const auto first = std::ranges::lower_bound(lists_, directory_.part_starts[part]);
  const auto end = std::ranges::lower_bound(lists_, directory_.part_starts[part + 1]);
  return {first, end};
}

// Gives the encoder the edges of a bucket: those of before, and in lists that changed those of after. False where these are
// the same.
bool Renewal::Merge(const EdgeBucket& old, uint32_t source, uint32_t destination) {
  encoder_->Clear();
  const auto start = static_cast<NodeId>(directory_.part_starts[destination]);
  const std::span<const ListedEdge> edges = EdgesOf(source * directory_.parts() + destination);
  const std::span<const NodeId> lists = ListsOf(destination);
  const bool typed = directory_.relation_count > 1;
  bool differs = false;
  size_t next = 0, list = 0;
  const auto add_lists_before = [&](uint64_t node) {
    for (; next < edges.size() && edges[next].destination < node; ++next) {
      encoder_->Add(edges[next].destination, edges[next].source, edges[next].relation);
      differs = true;  // a list that the bucket did not have
    }
  };
  old.in.ForEachList([&](uint32_t node, uint32_t first, std::span<const uint32_t> neighbors) {
    add_lists_before(node);
    const auto relation = [&](size_t i) { return typed ? old.in.Relation(first + i) : 0U; };
    while (list < lists.size() && lists[list] - start < node) ++list;
    if (list == lists.size() || lists[list] - start != node) {
      for (size_t i = 0; i < neighbors.size(); ++i) encoder_->Add(node, neighbors[i], relation(i));
      return;
    }
    size_t same = 0;
    for (; next < edges.size() && edges[next].destination == node; ++next) {
      const ListedEdge& edge = edges[next];
      encoder_->Add(node, edge.source, edge.relation);
      differs = differs || same == neighbors.size() || neighbors[same] != edge.source ||
                relation(same) != edge.relation;
      if (same < neighbors.size()) ++same;
    }
    differs = differs || same < neighbors.size();
  });
  add_lists_before(~uint64_t{0});
  return differs;
}

Status Renewal::WriteMerged(DataFileWriter& writer) {
  QUARRY_RETURN_IF_ERROR(ListEdges());
  const ScopedSpan span("merge buckets of edges");
  const uint32_t parts = directory_.parts();
  uint64_t edges_max = 0, edges = 0;
  for (uint32_t bucket = 0; bucket < directory_.buckets.size(); ++bucket) {
    edges_max = std::max(edges_max, directory_.buckets[bucket].edges + EdgesOf(bucket).size());
    edges += directory_.buckets[bucket].edges + EdgesOf(bucket).size();
  }
  const uint64_t page_bytes = std::max(kPageBytes, LargestBucketBytes(directory_));
  // The writer has a checksum for each page of the section, and twice as much while it makes room for more.
  const uint64_t pages = edges * BucketEncoder::kBytesPerEdge / kPageBytes + directory_.buckets.size();
  QUARRY_TRY(const MemoryBudget::Reservation reservation,
             budget_.Reserve(edges_max * BucketEncoder::kBytesPerEdge + IoBuffer::MappedBytes(page_bytes) +
                                 3 * pages * sizeof(uint32_t),
                             "the largest bucket of edges, which more parts make smaller"));
  QUARRY_TRY(const IoBuffer buffer, IoBuffer::Allocate(page_bytes));
  encoder_ = std::make_unique<BucketEncoder>(directory_.relation_count > 1);
  writer.BeginSection(kBucketsSection, DataFileWriter::Cover::kPages);
  uint64_t section_bytes = 0;
  for (uint32_t source = 0; source < parts; ++source) {
    for (uint32_t destination = 0; destination < parts; ++destination) {
      const uint32_t number = source * parts + destination;
      const bool touched = !ListsOf(destination).empty();
      if (!touched && !parts_->IsRenewed(source, destination)) continue;
      const std::span<std::byte> bytes =
          buffer.span().first(parts_->directory().bucket_bytes(source, destination));
      QUARRY_TRY(const EdgeBucket old, ReadBucket(*parts_, store_.backend(), source, destination, bytes));
      if (touched && Merge(old, source, destination)) {
        QUARRY_RETURN_IF_ERROR(encoder_->Append(source, destination, writer, section_bytes, directory_));
      } else if (parts_->IsRenewed(source, destination)) {
        QUARRY_RETURN_IF_ERROR(writer.Append(bytes));
        directory_.buckets[number].offset = section_bytes;
        section_bytes += bytes.size();
      } else {
        continue;
      }
      renewed_[number] = true;
    }
    if (progress_) QUARRY_RETURN_IF_ERROR(progress_("merging buckets", source + 1, parts));
  }
  return writer.EndSection();
}

Status Renewal::WriteSorted(DataFileWriter& writer) {
  opened_.reset();
  lists_ = {};
  edges_ = {};
  lists_reservation_.Release();
  QUARRY_TRY(auto reservation,
             budget_.Reserve(topology_.node_count * sizeof(NodeId), "the map of a partitioning's nodes"));
  std::vector<NodeId> new_ids(topology_.node_count);
  QUARRY_RETURN_IF_ERROR(parts_->ReadNewIds(0, new_ids));
  directory_.buckets_bytes = 0;
  renewed_.assign(renewed_.size(), true);
  return WriteBuckets(store_, budget_, topology_, place_.building, std::move(new_ids), std::move(reservation),
                      progress_, directory_, writer);
}

Status Renewal::Write() {
  QUARRY_TRY(const bool merges, FindLists());
  QUARRY_TRY(const auto reservation,
             budget_.Reserve(IoBuffer::MappedBytes(kBucketsWriterBytes) + kMiB, "writing buckets of edges"));
  QUARRY_TRY(const std::unique_ptr<DataFileWriter> writer,
             DataFileWriter::Create(store_.backend(), fmt::format("{}/{}", place_.building, kBucketsFile),
                                    kBucketsWriterBytes));
  renewed_.assign(directory_.buckets.size(), false);
  QUARRY_RETURN_IF_ERROR(merges ? WriteMerged(*writer) : WriteSorted(*writer));
  QUARRY_RETURN_IF_ERROR(WriteRenewedBuckets(*writer, directory_, renewed_));
  uint64_t edges = 0;
  for (const uint64_t bucket : directory_.BucketEdges()) edges += bucket;
  if (edges != topology_.edge_count) {
    return MakeStatus(Code::kCorruption,
                      "{}: its buckets with what changed have {} edges, and topology \"{}\" has {}",
                      parts_->file().path(), edges, topology_.name, topology_.edge_count);
  }
  QUARRY_TRY(buckets_bytes_, writer->Finish({.kind = FileKind::kPartitioning,
                                             .database_id = store_.manifest()->database_id,
                                             .generation = place_.generation,
                                             .row_count = topology_.node_count,
                                             .dim = directory_.parts(),
                                             .edge_count = topology_.edge_count}));
  KillPoint("partition: file written");
  return store_.backend().SyncDirectory(place_.building);
}

// Its parts are those that its method made.
PartitioningRecord Renewal::Describe() const {
  PartitioningRecord record = record_;
  record.directory = PartitioningFolder(spec_.name, place_.generation);
  record.parts_generation = FilesOf(record_).front().generation;
  record.generation = place_.generation;
  record.buckets_bytes = buckets_bytes_;
  record.topology_generation = topology_.generation;
  record.timestamp = snapshot_->timestamp;
  record.edge_count = topology_.edge_count;
  record.cut_edges = directory_.CutEdges();
  record.build_seconds = MonotonicSeconds() - start_seconds_;
  record.created_utc = UtcNow();
  return record;
}

Result<std::optional<PartitioningRecord>> Renewal::Run() {
  const ScopedSpan span("renew buckets");
  QUARRY_TRY(place_, PreparePartitioning(store_, spec_.name));
  const Status linked = store_.backend().Link(fmt::format("{}/{}", store_.path(), PartsFileOf(record_)),
                                              fmt::format("{}/{}", place_.building, kPartsFile));
  const Status written = linked.ok() ? Write() : Status(Code::kUnsupported, std::string(linked.message()));
  if (GivesUp(written)) {
    LogInfo("partitioning \"{}\" is built whole: {}", spec_.name, written.message());
    return std::optional<PartitioningRecord>();
  }
  QUARRY_RETURN_IF_ERROR(written);
  PartitioningRecord record = Describe();
  QUARRY_RETURN_IF_ERROR(CommitPartitioning(store_, place_, record));
  return std::optional(std::move(record));
}

}  // namespace

Result<std::optional<PartitioningRecord>> RenewBuckets(Store& store, MemoryBudget& budget,
                                                       const PartitioningSpec& spec,
                                                       const PartitionOptions& options,
                                                       const ProgressFunction& progress,
                                                       double start_seconds) {
  Renewal renewal(store, budget, spec, progress, start_seconds);
  const Result<bool> possible = renewal.IsPossible(options);
  if (!possible.ok() && !GivesUp(possible.status())) return possible.status();
  if (!possible.ok() || !*possible) return std::optional<PartitioningRecord>();
  return renewal.Run();
}

}  // namespace quarry
