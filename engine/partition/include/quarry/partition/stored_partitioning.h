// A stored partitioning: a graph cut into parts that are read whole, and their rows. Derived data (invariant
// 7), made of one topology and one table of a generation each.
//
//   partitions/NAME-<gen>/parts.qpp   new_ids    the new id of each old one: nodes are renumbered, so that a
//                                                part is a range of ids
//                                     old_ids    and the other way round
//                                     rows       a part's rows, one behind the other, in whole pages
//                                     labels     of a part's nodes, in whole pages
//                                     splits     the same
//                                     buckets    p^2 buckets of edges (edge_bucket.h), in whole pages each
//                                     directory  where parts and buckets lie (partition_directory.h)
//                     buckets.qpp   where edges came and went since, and it was made again with the parts that nodes had:
//                                     buckets    those that changed
//                                     renewed    which these are; the others are those of parts.qpp
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/progress.h"
#include "quarry/base/status.h"
#include "quarry/partition/assignment.h"
#include "quarry/partition/auto_tune.h"
#include "quarry/partition/partition_directory.h"
#include "quarry/partition/partitioner.h"
#include "quarry/storage/data_file.h"
#include "quarry/storage/store.h"

namespace quarry {

struct PartitioningSpec {
  std::string name = "default";  // letters, digits, - and _
  std::string topology = "graph";
  std::string table;  // whose rows parts have; empty: none
  // MakePartitioning: the training nodes are put into parts of their own, the first ones, part after part as the
  // partitioner has them (Waleffe §5.5): few parts then hold all that is trained on.
  bool training_first = false;
  std::string method;  // that the assignment was made with, for its record
  uint64_t seed = 0;   // the same
};

// What a record's method ends with where the training nodes were put first: the options that make it again.
inline constexpr std::string_view kTrainingFirstMethod = " --training-first";

// Writes the partitioning of `assignment`, whose order of nodes within a part is that of their old ids, and
// names it in the catalog once it is whole: a crash at any instant leaves the database as it was, plus a
// folder partitions/NAME.building that the next build of the name removes. A partitioning of the same name is
// replaced; its file goes after the commit. Weights of edges are not kept.
//
// Holds at most what `budget` has left: 8 bytes a node, the topology's indptr, a buffer for each part and the
// largest bucket; edges are sorted outside of memory. kUsage for an impossible spec, kInvalidArgument for an
// assignment of other nodes, kOutOfBudget with the least that would do, kCancelled when `progress` says so.
Result<PartitioningRecord> BuildPartitioning(Store& store, MemoryBudget& budget, const PartitioningSpec& spec,
                                             Assignment assignment, const ProgressFunction& progress);

// How many parts a topology is cut into, with the rows of a table (none: ""), where nobody says it: by the sizes, the
// memory and what the device does (auto_tune.h). Errors as TunePartitions.
Result<PartitionTuning> TuneParts(const Manifest& manifest, const TopologyRecord& topology,
                                  std::string_view table, const DeviceProfile& device, uint64_t memory_bytes);

// Partitions the topology of `spec`, whose method and seed are those of `options`, and builds that. The
// training nodes are the database's, and the parts that are kept those of the partitioning of this name, whose number
// options.parts may leave out (0). Errors as Partition's, BuildPartitioning's and ReadAssignment's.
Result<PartitioningRecord> MakePartitioning(Store& store, MemoryBudget& budget, PartitioningSpec spec,
                                            PartitionOptions options, const ProgressFunction& progress);

// Removes a partitioning from the catalog, then its file, and what an interrupted build of the name left.
// kNotFound lists what there is.
Status DropPartitioning(Store& store, std::string_view name);

// True when the database still has the table's file and the topology that the partitioning was made of: it is served,
// though edges may have come and gone since, and nodes come.
bool IsServable(const Manifest& manifest, const PartitioningRecord& record);
// True when its edges and nodes are the newest, too.
bool IsFresh(const Manifest& manifest, const PartitioningRecord& record);

// kUnsupported when labels or splits have been compacted since the partitioning was built, whose parts have older ones;
// warns of those and of rows that were written since.
Status CheckLabelsAreFresh(Store& store, const PartitioningRecord& record);

// Where the parts and buckets of a partitioning lie, also of one that is of other data than the database has.
// kCorruption.
Result<PartitionDirectory> ReadPartitions(Store& store, const PartitioningRecord& record);

// The parts of a partitioning's nodes, also of one that is of other data than the database has; 4 bytes a node, which the
// caller has reserved. kNotFound lists what there is; kCorruption; kOutOfBudget for what reading takes.
Result<Assignment> ReadAssignment(Store& store, MemoryBudget& budget, std::string_view name);

// An open partitioning. Const use is thread-safe. Backend and store outlive it.
class StoredPartitioning {
 public:
  // kNotFound lists what there is; kUnsupported when it is of other data than the database has; kCorruption;
  // kOutOfBudget. The budget outlives it.
  static Result<std::unique_ptr<StoredPartitioning>> Open(Store& store, MemoryBudget& budget,
                                                          std::string_view name);

  // The same of this record, whatever the database has by now, and without a word about it.
  static Result<std::unique_ptr<StoredPartitioning>> OpenAsItIs(Store& store, MemoryBudget& budget,
                                                                const PartitioningRecord& record);

  const PartitioningRecord& record() const { return record_; }
  const PartitionDirectory& directory() const { return directory_; }
  const File& file() const { return data_.file; }
  // Whether buckets.qpp has the bucket, and the file that has it.
  bool IsRenewed(uint32_t source, uint32_t destination) const {
    return !renewed_.empty() && renewed_[size_t{source} * directory_.parts() + destination];
  }
  const File& BucketFile(uint32_t source, uint32_t destination) const {
    return SectionOf(source, destination).data->file;
  }
  // Directory, and 4 bytes for each page of rows and buckets.
  uint64_t resident_bytes() const { return reservation_.bytes(); }

  // Where whole pages lie in file(), and in BucketFile: directory().part_bytes and bucket_bytes from here on.
  uint64_t RowsAt(uint32_t part) const { return rows_.offset + directory_.part_offset(part); }
  // Reads all labels, part by part. REQUIRES: there are labels.
  Result<LargestLabel> FindLargestLabel(MemoryBudget& budget) const;

  // Labels (int64_t; below class_count unless that is kClassesMax, -1 = none) and splits (uint8_t) of a part: directory().BytesOf(part, 8) and of
  // 1 from here on. REQUIRES: there are labels.
  uint64_t LabelsAt(uint32_t part) const {
    return labels_.offset + directory_.OffsetOf(part, sizeof(int64_t));
  }
  uint64_t SplitsAt(uint32_t part) const {
    return splits_.offset + directory_.OffsetOf(part, sizeof(uint8_t));
  }
  // The pages of directory().ids_bytes(part) that have a part's old ids.
  uint64_t OldIdsAt(uint32_t part) const { return old_ids_.offset + directory_.ids_offset(part); }
  uint64_t BucketAt(uint32_t source, uint32_t destination) const {
    return SectionOf(source, destination).offset + directory_.bucket(source, destination).offset;
  }
  // Hold what was read from there against its checksums; kCorruption names file, page and part. The bucket's
  // lists are checked, too, so that readers need not.
  Status VerifyRows(uint32_t part, std::span<const std::byte> pages) const;
  Status VerifyLabels(uint32_t part, std::span<const std::byte> pages) const;
  Status VerifySplits(uint32_t part, std::span<const std::byte> pages) const;
  Status VerifyOldIds(uint32_t part, std::span<const std::byte> pages) const;
  Status VerifyBucket(uint32_t source, uint32_t destination, std::span<const std::byte> pages) const;
  EdgeBucket View(uint32_t source, uint32_t destination, std::span<const std::byte> pages) const;

  // Read the ids of old (or new) nodes [first, first + out.size()), verified. REQUIRES: they exist.
  Status ReadNewIds(NodeId first, std::span<NodeId> out) const { return ReadIds(new_ids_, first, out); }
  Status ReadOldIds(NodeId first, std::span<NodeId> out) const { return ReadIds(old_ids_, first, out); }

 private:
  friend Result<Assignment> ReadAssignment(Store& store, MemoryBudget& budget, std::string_view name);
  struct CheckedSection {
    const DataFile* data = nullptr;
    uint64_t offset = 0;
    std::vector<uint32_t> checksums;
  };
  explicit StoredPartitioning(IoBackend& backend) : backend_(backend) {}
  Result<CheckedSection> Load(const DataFile& data, std::string_view name, uint64_t bytes) const;
  const CheckedSection& SectionOf(uint32_t source, uint32_t destination) const {
    return IsRenewed(source, destination) ? renewed_buckets_ : buckets_;
  }
  Status ReadIds(const CheckedSection& section, NodeId first, std::span<NodeId> out) const;
  Status VerifyPages(const CheckedSection& section, uint64_t offset, std::span<const std::byte> pages,
                     std::string_view what) const;

  IoBackend& backend_;
  MemoryBudget::Reservation reservation_;
  PartitioningRecord record_;
  PartitionDirectory directory_;
  DataFile data_, renewed_data_;  // parts.qpp; buckets.qpp, where there is one
  CheckedSection new_ids_, old_ids_, rows_, labels_, splits_, buckets_, renewed_buckets_;
  std::vector<bool> renewed_;  // by number of bucket; empty: none
};

}  // namespace quarry
