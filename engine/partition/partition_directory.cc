#include "quarry/partition/partition_directory.h"

#include <algorithm>
#include <limits>

#include "partition_file.h"
#include "quarry/partition/auto_tune.h"

namespace quarry {
namespace {

constexpr std::string_view kPartDirectorySection = "directory";
constexpr uint64_t kPartitionVersion = 1;
constexpr uint64_t kPartHeadWords = 6;
constexpr uint64_t kBucketWords = 4;
static_assert(sizeof(BucketEntry) == kBucketWords * sizeof(uint64_t));  // written as it is

// Every bucket lies inside its section, and counts fit together.
Status CheckPartitions(const PartitionDirectory& directory, const std::string& path) {
  const auto fault = [&](std::string_view what) {
    return MakeStatus(Code::kCorruption, "{}: directory: {}: build the partitioning again", path, what);
  };
  if (directory.part_starts.front() != 0 || !std::ranges::is_sorted(directory.part_starts) ||
      directory.node_count() > kNodeCountMax) {
    return fault("parts do not follow one another");
  }
  if (directory.row_stride < directory.row_bytes || directory.row_stride > uint64_t{1} << 24) {
    return fault("rows overlap");
  }
  uint64_t end = 0;
  for (uint32_t source = 0; source < directory.parts(); ++source) {
    for (uint32_t destination = 0; destination < directory.parts(); ++destination) {
      const BucketEntry& bucket = directory.bucket(source, destination);
      const bool fits = bucket.edges <= std::numeric_limits<uint32_t>::max() &&
                        bucket.in_lists <= bucket.edges && bucket.out_lists <= bucket.edges &&
                        bucket.in_lists <= directory.part_nodes(destination) &&
                        bucket.out_lists <= directory.part_nodes(source) && bucket.offset == end;
      if (!fits)
        return fault(fmt::format("the bucket from part {} to part {} leaves its place", source, destination));
      end += directory.bucket_bytes(source, destination);
    }
  }
  return end == directory.buckets_bytes ? Status::Ok() : fault("buckets do not fill their section");
}

}  // namespace

uint64_t PartitionDirectory::part_offset(uint32_t part) const {
  uint64_t offset = 0;
  for (uint32_t i = 0; i < part; ++i) offset += part_bytes(i);
  return offset;
}

BucketShape PartitionDirectory::in_shape(uint32_t source, uint32_t destination) const {
  const BucketEntry& entry = bucket(source, destination);
  return {.node_count = part_nodes(destination),
          .list_count = entry.in_lists,
          .edge_count = entry.edges,
          .relation_bytes = relation_count > 1 ? RelationIdBytes(relation_count) : 0};
}

BucketShape PartitionDirectory::out_shape(uint32_t source, uint32_t destination) const {
  const BucketEntry& entry = bucket(source, destination);
  return {.node_count = part_nodes(source), .list_count = entry.out_lists, .edge_count = entry.edges};
}

uint64_t PartitionDirectory::bucket_bytes(uint32_t source, uint32_t destination) const {
  return RoundUp(in_shape(source, destination).bytes() + out_shape(source, destination).bytes(), kPageBytes);
}

std::vector<uint64_t> PartitionDirectory::PartBytes() const {
  std::vector<uint64_t> bytes(parts());
  for (uint32_t part = 0; part < parts(); ++part) bytes[part] = part_bytes(part);
  return bytes;
}

std::vector<uint64_t> PartitionDirectory::BucketBytes() const {
  std::vector<uint64_t> bytes;
  bytes.reserve(buckets.size());
  for (uint32_t source = 0; source < parts(); ++source) {
    for (uint32_t destination = 0; destination < parts(); ++destination) {
      bytes.push_back(bucket_bytes(source, destination));
    }
  }
  return bytes;
}

std::vector<uint64_t> PartitionDirectory::BucketEdges() const {
  std::vector<uint64_t> edges;
  edges.reserve(buckets.size());
  for (const BucketEntry& bucket : buckets) edges.push_back(bucket.edges);
  return edges;
}

Status WritePartitionDirectory(DataFileWriter& writer, const PartitionDirectory& directory) {
  std::vector<uint64_t> head = {kPartitionVersion,   directory.parts(),    directory.relation_count,
                                directory.row_bytes, directory.row_stride, directory.buckets_bytes};
  head.insert(head.end(), directory.part_starts.begin(), directory.part_starts.end());
  writer.BeginSection(kPartDirectorySection, DataFileWriter::Cover::kPages);
  QUARRY_RETURN_IF_ERROR(writer.Append(std::as_bytes(std::span(head))));
  QUARRY_RETURN_IF_ERROR(writer.Append(std::as_bytes(std::span(directory.buckets))));
  return writer.EndSection();
}

Result<PartitionDirectory> ReadPartitionDirectory(IoBackend& backend, const DataFile& data) {
  const std::string& path = data.file.path();
  const Section* const section = data.footer.Find(kPartDirectorySection);
  constexpr uint64_t kPartsBytesMax = uint64_t{kPartsMax} * kPartsMax * sizeof(BucketEntry) + kMiB;
  if (section == nullptr || section->bytes % sizeof(uint64_t) != 0 || section->bytes > kPartsBytesMax) {
    return MakeStatus(Code::kCorruption, "{}: footer: there is no whole section \"{}\"", path,
                      kPartDirectorySection);
  }
  std::vector<uint64_t> words(section->bytes / sizeof(uint64_t));
  if (!words.empty()) {
    QUARRY_TRY(const std::vector<uint32_t> checksums, LoadChecksums(backend, data, *section));
    QUARRY_RETURN_IF_ERROR(
        LoadPages(backend, data, *section, checksums, std::as_writable_bytes(std::span(words))));
  }
  if (words.size() < kPartHeadWords || words[0] != kPartitionVersion) {
    return MakeStatus(Code::kUnsupported,
                      "{}: directory version {}; this Quarry reads version {}: build the partitioning again",
                      path, words.empty() ? 0 : words[0], kPartitionVersion);
  }
  const uint64_t parts = words[1];
  if (parts == 0 || parts > kPartsMax ||
      words.size() != kPartHeadWords + parts + 1 + parts * parts * kBucketWords) {
    return MakeStatus(Code::kCorruption, "{}: directory: {} words for {} parts", path, words.size(), parts);
  }
  PartitionDirectory directory{.relation_count = words[2],
                               .row_bytes = words[3],
                               .row_stride = words[4],
                               .buckets_bytes = words[5],
                               .part_starts = {},
                               .buckets = {}};
  const auto starts = words.begin() + kPartHeadWords;
  const auto buckets = starts + static_cast<ptrdiff_t>(parts) + 1;
  directory.part_starts.assign(starts, buckets);
  directory.buckets.reserve(parts * parts);
  for (auto word = buckets; word != words.end(); word += kBucketWords) {
    directory.buckets.push_back({word[0], word[1], word[2], word[3]});
  }
  QUARRY_RETURN_IF_ERROR(CheckPartitions(directory, path));
  return directory;
}

}  // namespace quarry
