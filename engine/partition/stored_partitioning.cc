#include "quarry/partition/stored_partitioning.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "partition_file.h"
#include "quarry/base/log.h"
#include "quarry/format/checksum.h"
#include "quarry/io/buffer.h"
#include "quarry/storage/partition_files.h"
#include "quarry/storage/record_names.h"

namespace quarry {
namespace {

Result<DataFile> OpenPartitionFile(Store& store, const LayoutFile& file) {
  return OpenDataFile(store.backend(), store.path() + "/" + file.path,
                      {.kind = file.kind,
                       .database_id = store.manifest()->database_id,
                       .generation = file.generation,
                       .file_bytes = file.bytes});
}
Result<DataFile> OpenParts(Store& store, const PartitioningRecord& record) {
  return OpenPartitionFile(store, FilesOf(record).front());
}

Result<PartitionDirectory> DirectoryIn(IoBackend& backend, const DataFile& data,
                                       const PartitioningRecord& record) {
  QUARRY_TRY(PartitionDirectory directory, ReadPartitionDirectory(backend, data));
  if (directory.parts() == record.part_count && directory.node_count() == record.node_count) return directory;
  return MakeStatus(Code::kCorruption, "{}: directory: {} parts of {} nodes where the catalog says {} of {}",
                    data.file.path(), directory.parts(), directory.node_count(), record.part_count,
                    record.node_count);
}

}  // namespace

Result<PartitionDirectory> ReadPartitions(Store& store, const PartitioningRecord& record) {
  QUARRY_TRY(const DataFile data, OpenParts(store, record));
  QUARRY_TRY(PartitionDirectory directory, DirectoryIn(store.backend(), data, record));
  if (record.buckets_bytes == 0) return directory;
  QUARRY_TRY(const DataFile buckets, OpenPartitionFile(store, FilesOf(record).back()));
  std::vector<bool> renewed;
  QUARRY_RETURN_IF_ERROR(TakeRenewedBuckets(store.backend(), buckets, directory, renewed).status());
  return directory;
}

namespace {

Result<const PartitioningRecord*> FindPartitioning(const Store& store, const Manifest& manifest,
                                                   std::string_view name) {
  const PartitioningRecord* const record = manifest.FindPartitioning(name);
  if (record != nullptr) return record;
  return MakeStatus(Code::kNotFound, "{}: {}; `quarry partition build` makes one", store.path(),
                    ThereIsNo("partitioning", name, "partitionings", manifest.partitionings));
}

}  // namespace

bool IsServable(const Manifest& manifest, const PartitioningRecord& record) {
  const TopologyRecord* const topology = manifest.FindTopology(record.topology);
  if (topology == nullptr || topology->generation < record.topology_generation) return false;
  if (record.table.empty()) return true;
  const TableRecord* const table = manifest.FindTable(record.table);
  return table != nullptr && table->generation == record.table_generation;
}

bool IsFresh(const Manifest& manifest, const PartitioningRecord& record) {
  return IsServable(manifest, record) &&
         manifest.FindTopology(record.topology)->timestamp() <= record.timestamp &&
         manifest.grown <= record.timestamp;
}

Status CheckLabelsAreFresh(Store& store, const PartitioningRecord& record) {
  QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, store.TakeSnapshot());
  const auto check = [&](std::string_view name) -> Status {
    const TableRecord* const table = snapshot->FindTable(name);
    if (table == nullptr || table->folded > record.timestamp) {
      return MakeStatus(
          Code::kUnsupported,
          "{}: table \"{}\" has been compacted or dropped since partitioning \"{}\" was built, which "
          "has what it was then: `quarry partition build` makes it anew",
          store.path(), name, record.name);
    }
    QUARRY_TRY(
        const std::unique_ptr<RowOverlay> newer,
        store.OpenOverlay(name, snapshot,
                          TableVersion{.generation = table->generation, .timestamp = record.timestamp}));
    if (!newer->empty()) {
      LogWarn(
          "rows of table \"{}\" have been written since partitioning \"{}\" was built, which has what they "
          "were "
          "then: `quarry partition build` makes it anew",
          name, record.name);
    }
    return Status::Ok();
  };
  QUARRY_RETURN_IF_ERROR(check("label"));
  QUARRY_RETURN_IF_ERROR(check("split"));
  return record.table.empty() ? Status::Ok() : check(record.table);
}

Result<std::unique_ptr<StoredPartitioning>> StoredPartitioning::Open(Store& store, MemoryBudget& budget,
                                                                     std::string_view name) {
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  QUARRY_TRY(const PartitioningRecord* const record, FindPartitioning(store, *manifest, name));
  if (!IsServable(*manifest, *record)) {
    return MakeStatus(
        Code::kUnsupported,
        "{}: partitioning \"{}\" was made of generation {} of topology \"{}\"{}, which the database no "
        "longer has: `quarry partition build` makes it anew",
        store.path(), name, record->topology_generation, record->topology,
        record->table.empty()
            ? std::string()
            : fmt::format(" and {} of table \"{}\"", record->table_generation, record->table));
  }
  if (!IsFresh(*manifest, *record)) {
    const TopologyRecord& topology = *manifest->FindTopology(record->topology);
    LogWarn(
        "partitioning \"{}\" serves the graph that it was built of, {} nodes and {} edges; topology \"{}\" "
        "has "
        "changed since, to {} and {}: `quarry partition build {} {} --method kept` takes that in",
        name, record->node_count, record->edge_count, record->topology, topology.node_count,
        topology.edge_count, store.path(), name);
  }
  return OpenAsItIs(store, budget, *record);
}

Result<std::unique_ptr<StoredPartitioning>> StoredPartitioning::OpenAsItIs(Store& store, MemoryBudget& budget,
                                                                           const PartitioningRecord& record) {
  std::unique_ptr<StoredPartitioning> opened(new StoredPartitioning(store.backend()));
  opened->record_ = record;
  const DataFile& data = opened->data_;
  QUARRY_TRY(opened->data_, OpenParts(store, record));
  const uint64_t parts = record.part_count;
  const uint64_t checksums = record.total_bytes() / kPageBytes * sizeof(uint32_t);
  QUARRY_TRY(opened->reservation_,
             budget.Reserve(parts * parts * sizeof(BucketEntry) + checksums, "the index of a partitioning"));
  QUARRY_TRY(opened->directory_, DirectoryIn(store.backend(), data, record));
  PartitionDirectory& directory = opened->directory_;
  const uint64_t ids_bytes = directory.node_count() * sizeof(NodeId);
  QUARRY_TRY(opened->new_ids_, opened->Load(data, kNewIdsSection, ids_bytes));
  QUARRY_TRY(opened->old_ids_, opened->Load(data, kOldIdsSection, ids_bytes));
  QUARRY_TRY(opened->buckets_, opened->Load(data, kBucketsSection, directory.buckets_bytes));
  if (directory.row_bytes > 0) {
    QUARRY_TRY(opened->rows_, opened->Load(data, kPartRowsSection, directory.rows_bytes()));
  }
  if (directory.has_labels()) {
    const auto bytes = [&](uint64_t value_bytes) {
      return directory.OffsetOf(directory.parts(), value_bytes);
    };
    QUARRY_TRY(opened->labels_, opened->Load(data, kPartLabelsSection, bytes(sizeof(int64_t))));
    QUARRY_TRY(opened->splits_, opened->Load(data, kPartSplitsSection, bytes(sizeof(uint8_t))));
  }
  if (record.buckets_bytes == 0) return opened;
  QUARRY_TRY(opened->renewed_data_, OpenPartitionFile(store, FilesOf(record).back()));
  QUARRY_TRY(const uint64_t renewed_bytes,
             TakeRenewedBuckets(store.backend(), opened->renewed_data_, directory, opened->renewed_));
  QUARRY_TRY(opened->renewed_buckets_, opened->Load(opened->renewed_data_, kBucketsSection, renewed_bytes));
  return opened;
}

Result<Assignment> ReadAssignment(Store& store, MemoryBudget& budget, std::string_view name) {
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  QUARRY_TRY(const PartitioningRecord* const record, FindPartitioning(store, *manifest, name));
  StoredPartitioning opened(store.backend());
  opened.record_ = *record;
  QUARRY_TRY(opened.data_, OpenParts(store, *record));
  const uint64_t parts = record->part_count, ids_bytes = record->node_count * sizeof(NodeId);
  constexpr uint64_t kIdsAtATime = 64 << 10;
  QUARRY_TRY(opened.reservation_, budget.Reserve(parts * parts * sizeof(BucketEntry) +
                                                     CeilDiv(ids_bytes, kPageBytes) * sizeof(uint32_t) +
                                                     kIdsAtATime * sizeof(NodeId),
                                                 "the parts of a partitioning's nodes"));
  QUARRY_TRY(opened.directory_, DirectoryIn(store.backend(), opened.data_, *record));
  QUARRY_TRY(opened.new_ids_, opened.Load(opened.data_, kNewIdsSection, ids_bytes));
  Assignment assignment{.parts = record->part_count, .part_of = {}};
  assignment.part_of.reserve(record->node_count);
  std::vector<NodeId> ids;
  for (uint64_t first = 0; first < record->node_count; first += ids.size()) {
    ids.resize(std::min(kIdsAtATime, record->node_count - first));
    QUARRY_RETURN_IF_ERROR(opened.ReadNewIds(static_cast<NodeId>(first), ids));
    for (const NodeId id : ids) assignment.part_of.push_back(opened.directory_.PartOf(id));
  }
  return assignment;
}

Result<StoredPartitioning::CheckedSection> StoredPartitioning::Load(const DataFile& data,
                                                                    std::string_view name,
                                                                    uint64_t bytes) const {
  QUARRY_TRY(const Section section, data.Find(name, bytes));
  CheckedSection checked{.data = &data, .offset = section.offset, .checksums = {}};
  QUARRY_TRY(checked.checksums, LoadChecksums(backend_, data, section));
  if (checked.checksums.size() != CeilDiv(bytes, kPageBytes)) {
    return MakeStatus(Code::kCorruption, "{}: footer: {} checksums for {} bytes of section \"{}\"",
                      data.file.path(), checked.checksums.size(), bytes, name);
  }
  return checked;
}

Status StoredPartitioning::VerifyPages(const CheckedSection& section, uint64_t offset,
                                       std::span<const std::byte> pages, std::string_view what) const {
  for (uint64_t at = 0; at < pages.size(); at += kPageBytes) {
    const uint64_t page = (offset + at) / kPageBytes;
    const uint32_t computed = CellChecksum(pages.subspan(at, kPageBytes), page);
    if (computed == section.checksums[page]) [[likely]] {
      continue;
    }
    return ChecksumFault(*section.data, section.offset + offset + at,
                         fmt::format("{} of partitioning \"{}\"", what, record_.name),
                         section.checksums[page], computed);
  }
  return Status::Ok();
}

Status StoredPartitioning::VerifyRows(uint32_t part, std::span<const std::byte> pages) const {
  return VerifyPages(rows_, directory_.part_offset(part), pages, fmt::format("rows of part {}", part));
}

// A model has a row for each class, and readers index by it without further checks.
Status StoredPartitioning::VerifyLabels(uint32_t part, std::span<const std::byte> pages) const {
  QUARRY_RETURN_IF_ERROR(VerifyPages(labels_, directory_.OffsetOf(part, sizeof(int64_t)), pages,
                                     fmt::format("labels of part {}", part)));
  if (directory_.class_count == PartitionDirectory::kClassesMax)
    return Status::Ok();  // nobody indexes by them
  const auto* const labels = reinterpret_cast<const int64_t*>(pages.data());
  for (uint64_t node = 0; node < directory_.part_nodes(part); ++node) {
    if (labels[node] < int64_t{directory_.class_count}) continue;
    return MakeStatus(Code::kCorruption, "{}: label {} of node {} of part {}: there are {} classes",
                      data_.file.path(), labels[node], node, part, directory_.class_count);
  }
  return Status::Ok();
}

Result<LargestLabel> StoredPartitioning::FindLargestLabel(MemoryBudget& budget) const {
  uint64_t bytes_max = 0;
  for (uint32_t part = 0; part < directory_.parts(); ++part) {
    bytes_max = std::max(bytes_max, directory_.BytesOf(part, sizeof(int64_t)));
  }
  LargestLabel largest;
  if (bytes_max == 0) return largest;
  QUARRY_TRY(const auto reservation,
             budget.Reserve(IoBuffer::MappedBytes(bytes_max), "the labels of a part"));
  QUARRY_TRY(const IoBuffer buffer, IoBuffer::Allocate(bytes_max));
  uint64_t place = 0;  // its new id
  for (uint32_t part = 0; part < directory_.parts(); ++part) {
    const std::span<std::byte> pages = buffer.span().first(directory_.BytesOf(part, sizeof(int64_t)));
    if (pages.empty()) continue;
    QUARRY_RETURN_IF_ERROR(backend_.ReadAt(data_.file, LabelsAt(part), pages));
    QUARRY_RETURN_IF_ERROR(VerifyLabels(part, pages));
    const auto* const labels = reinterpret_cast<const int64_t*>(pages.data());
    for (uint64_t node = 0; node < directory_.part_nodes(part); ++node) {
      if (labels[node] > largest.label) {
        largest.next = std::exchange(largest.label, labels[node]);
        place = directory_.part_starts[part] + node;
      } else if (labels[node] < largest.label) {
        largest.next = std::max(largest.next, labels[node]);
      }
    }
  }
  QUARRY_RETURN_IF_ERROR(ReadOldIds(static_cast<NodeId>(place), std::span(&largest.node, 1)));
  return largest;
}

Status StoredPartitioning::VerifySplits(uint32_t part, std::span<const std::byte> pages) const {
  return VerifyPages(splits_, directory_.OffsetOf(part, sizeof(uint8_t)), pages,
                     fmt::format("splits of part {}", part));
}

Status StoredPartitioning::VerifyOldIds(uint32_t part, std::span<const std::byte> pages) const {
  return VerifyPages(old_ids_, directory_.ids_offset(part), pages, fmt::format("old ids of part {}", part));
}

Status StoredPartitioning::VerifyBucket(uint32_t source, uint32_t destination,
                                        std::span<const std::byte> pages) const {
  const std::string what = fmt::format("edges from part {} to part {}", source, destination);
  QUARRY_RETURN_IF_ERROR(VerifyPages(SectionOf(source, destination),
                                     directory_.bucket(source, destination).offset, pages, what));
  const EdgeBucket bucket = View(source, destination, pages);
  const std::string where = fmt::format("{}: {}", BucketFile(source, destination).path(), what);
  QUARRY_RETURN_IF_ERROR(bucket.in.Check(directory_.part_nodes(source), directory_.relation_count, where));
  return bucket.out.Check(directory_.part_nodes(destination), directory_.relation_count, where);
}

EdgeBucket StoredPartitioning::View(uint32_t source, uint32_t destination,
                                    std::span<const std::byte> pages) const {
  const BucketShape in = directory_.in_shape(source, destination);
  return {.in = BucketLists(in, pages.data()),
          .out = BucketLists(directory_.out_shape(source, destination), pages.data() + in.bytes())};
}

Status StoredPartitioning::ReadIds(const CheckedSection& section, NodeId first, std::span<NodeId> out) const {
  if (out.empty()) return Status::Ok();
  constexpr uint64_t kIdsPieceBytes = 256 * kKiB;
  const uint64_t begin = uint64_t{first} * sizeof(NodeId);
  const uint64_t end = begin + out.size_bytes();
  const uint64_t pages_end = RoundUp(end, kPageBytes);
  QUARRY_TRY(const IoBuffer buffer,
             IoBuffer::Allocate(std::min(kIdsPieceBytes, pages_end - RoundDown(begin, kPageBytes))));
  for (uint64_t at = RoundDown(begin, kPageBytes); at < end; at += buffer.size()) {
    const std::span<std::byte> pages = buffer.span().first(std::min<uint64_t>(buffer.size(), pages_end - at));
    QUARRY_RETURN_IF_ERROR(backend_.ReadAt(section.data->file, section.offset + at, pages));
    QUARRY_RETURN_IF_ERROR(VerifyPages(section, at, pages, "ids"));
    const uint64_t from = std::max(begin, at);
    const uint64_t until = std::min<uint64_t>(end, at + pages.size());
    std::memcpy(reinterpret_cast<std::byte*>(out.data()) + (from - begin), pages.data() + (from - at),
                until - from);
  }
  return Status::Ok();
}

Status DropPartitioning(Store& store, std::string_view name) {
  const std::string building = store.path() + "/" + PartitioningBuildingFolder(name);
  std::error_code error;
  // A name with a slash would lead out of partitions/.
  const bool interrupted =
      name.find('/') == std::string_view::npos && std::filesystem::is_directory(building, error);
  const std::shared_ptr<const Manifest> newest = store.manifest();
  const PartitioningRecord* const record = newest->FindPartitioning(name);
  if (record == nullptr && !interrupted) {
    return MakeStatus(Code::kNotFound, "{}: {}", store.path(),
                      ThereIsNo("partitioning", name, "partitionings", newest->partitionings));
  }
  if (record != nullptr) {
    QUARRY_RETURN_IF_ERROR(store.UpdateManifest([&](Manifest& manifest) {
      std::erase_if(manifest.partitionings,
                    [&](const PartitioningRecord& other) { return other.name == name; });
      return Status::Ok();
    }));
    Discard(store.backend(), store.path() + "/" + record->directory);
  }
  return interrupted ? RemoveTree(store.backend(), building) : Status::Ok();
}

}  // namespace quarry
