#include "quarry/partition/partition_directory.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "partition_file.h"
#include "quarry/partition/auto_tune.h"

namespace quarry {
namespace {

constexpr std::string_view kPartDirectorySection = "directory";
constexpr std::string_view kSplitCountsSection = "split_counts";
constexpr uint64_t kPartitionVersion = 1;
constexpr uint64_t kPartHeadWords = 6;
constexpr uint64_t kBucketWords = 4;
static_assert(sizeof(BucketEntry) == kBucketWords * sizeof(uint64_t));  // written as it is

// A bucket's counts fit together.
bool Fits(const PartitionDirectory& directory, uint32_t source, uint32_t destination) {
  const BucketEntry& bucket = directory.bucket(source, destination);
  return bucket.edges <= std::numeric_limits<uint32_t>::max() && bucket.in_lists <= bucket.edges &&
         bucket.out_lists <= bucket.edges && bucket.in_lists <= directory.part_nodes(destination) &&
         bucket.out_lists <= directory.part_nodes(source);
}

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
      if (!Fits(directory, source, destination) || directory.bucket(source, destination).offset != end)
        return fault(fmt::format("the bucket from part {} to part {} leaves its place", source, destination));
      end += directory.bucket_bytes(source, destination);
    }
  }
  return end == directory.buckets_bytes ? Status::Ok() : fault("buckets do not fill their section");
}

}  // namespace

uint64_t PartitionDirectory::OffsetOf(uint32_t part, uint64_t value_bytes) const {
  uint64_t offset = 0;
  for (uint32_t i = 0; i < part; ++i) offset += BytesOf(i, value_bytes);
  return offset;
}

uint64_t PartitionDirectory::row_frame_bytes() const {
  if (row_stride == 0) return 0;
  uint64_t largest = 0;
  for (uint32_t part = 0; part < parts(); ++part) largest = std::max(largest, part_bytes(part));
  return RoundUp(largest, std::lcm(row_stride, kPageBytes));
}

uint64_t PartitionDirectory::NodesIn(Split split) const {
  uint64_t nodes = 0;
  for (const SplitCounts& counts : splits) nodes += counts.of(split);
  return nodes;
}

uint32_t PartitionDirectory::training_parts() const {
  auto end = static_cast<uint32_t>(splits.size());
  while (end > 0 && splits[end - 1].of(Split::kTrain) == 0) --end;
  return end;
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

uint64_t PartitionDirectory::CutEdges() const {
  uint64_t cut = 0;
  for (const uint64_t edges : BucketEdges()) cut += edges;
  for (uint32_t part = 0; part < parts(); ++part) cut -= bucket(part, part).edges;
  return cut;
}

namespace {

// The words of a section of the directory. `bytes_max` bounds what is read.
Result<std::vector<uint64_t>> ReadWords(IoBackend& backend, const DataFile& data, std::string_view name,
                                        uint64_t bytes_max) {
  const Section* const section = data.footer.Find(name);
  if (section == nullptr || section->bytes % sizeof(uint64_t) != 0 || section->bytes > bytes_max) {
    return MakeStatus(Code::kCorruption, "{}: footer: there is no whole section \"{}\"", data.file.path(),
                      name);
  }
  std::vector<uint64_t> words(section->bytes / sizeof(uint64_t));
  if (words.empty()) return words;
  QUARRY_TRY(const std::vector<uint32_t> checksums, LoadChecksums(backend, data, *section));
  QUARRY_RETURN_IF_ERROR(
      LoadPages(backend, data, *section, checksums, std::as_writable_bytes(std::span(words))));
  return words;
}

// Labels came later than the rest, so a file may have none.
Status ReadSplitCounts(IoBackend& backend, const DataFile& data, PartitionDirectory& directory) {
  if (data.footer.Find(kSplitCountsSection) == nullptr) return Status::Ok();
  const uint64_t parts = directory.parts();
  QUARRY_TRY(const std::vector<uint64_t> words,
             ReadWords(backend, data, kSplitCountsSection, (3 * parts + 1) * sizeof(uint64_t)));
  bool fits = words.size() == 3 * parts + 1 && words[0] <= std::numeric_limits<uint32_t>::max();
  for (uint32_t part = 0; fits && part < parts; ++part) {
    SplitCounts& counts = directory.splits.emplace_back();
    uint64_t room = directory.part_nodes(part);
    for (size_t i = 0; i < 3; ++i) {
      counts.nodes[i] = words[1 + 3 * part + i];
      fits = fits && counts.nodes[i] <= room;
      room -= std::min(room, counts.nodes[i]);
    }
  }
  if (!fits) {
    return MakeStatus(Code::kCorruption,
                      "{}: split_counts: {} words for {} parts: build the partitioning again",
                      data.file.path(), words.size(), parts);
  }
  directory.class_count = static_cast<uint32_t>(words[0]);
  return Status::Ok();
}

}  // namespace

Status WritePartitionDirectory(DataFileWriter& writer, const PartitionDirectory& directory) {
  std::vector<uint64_t> head = {kPartitionVersion,   directory.parts(),    directory.relation_count,
                                directory.row_bytes, directory.row_stride, directory.buckets_bytes};
  head.insert(head.end(), directory.part_starts.begin(), directory.part_starts.end());
  writer.BeginSection(kPartDirectorySection, DataFileWriter::Cover::kPages);
  QUARRY_RETURN_IF_ERROR(writer.Append(std::as_bytes(std::span(head))));
  QUARRY_RETURN_IF_ERROR(writer.Append(std::as_bytes(std::span(directory.buckets))));
  QUARRY_RETURN_IF_ERROR(writer.EndSection());
  if (!directory.has_labels()) return Status::Ok();
  std::vector<uint64_t> counts = {directory.class_count};
  for (const SplitCounts& part : directory.splits) {
    counts.insert(counts.end(), std::begin(part.nodes), std::end(part.nodes));
  }
  writer.BeginSection(kSplitCountsSection, DataFileWriter::Cover::kPages);
  QUARRY_RETURN_IF_ERROR(writer.Append(std::as_bytes(std::span(counts))));
  return writer.EndSection();
}

Result<PartitionDirectory> ReadPartitionDirectory(IoBackend& backend, const DataFile& data) {
  const std::string& path = data.file.path();
  constexpr uint64_t kPartsBytesMax = uint64_t{kPartsMax} * kPartsMax * sizeof(BucketEntry) + kMiB;
  QUARRY_TRY(const std::vector<uint64_t> words,
             ReadWords(backend, data, kPartDirectorySection, kPartsBytesMax));
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
                               .buckets = {},
                               .splits = {}};
  const auto starts = words.begin() + kPartHeadWords;
  const auto buckets = starts + static_cast<ptrdiff_t>(parts) + 1;
  directory.part_starts.assign(starts, buckets);
  directory.buckets.reserve(parts * parts);
  for (auto word = buckets; word != words.end(); word += kBucketWords) {
    directory.buckets.push_back({word[0], word[1], word[2], word[3]});
  }
  QUARRY_RETURN_IF_ERROR(CheckPartitions(directory, path));
  QUARRY_RETURN_IF_ERROR(ReadSplitCounts(backend, data, directory));
  return directory;
}

Status WriteRenewedBuckets(DataFileWriter& writer, const PartitionDirectory& directory,
                           const std::vector<bool>& renewed) {
  std::vector<uint64_t> words;
  for (size_t number = 0; number < renewed.size(); ++number) {
    if (!renewed[number]) continue;
    const BucketEntry& entry = directory.buckets[number];
    words.insert(words.end(), {number, entry.offset, entry.edges, entry.in_lists, entry.out_lists});
  }
  writer.BeginSection(kRenewedSection, DataFileWriter::Cover::kPages);
  QUARRY_RETURN_IF_ERROR(writer.Append(std::as_bytes(std::span(words))));
  return writer.EndSection();
}

Result<uint64_t> TakeRenewedBuckets(IoBackend& backend, const DataFile& data, PartitionDirectory& directory,
                                    std::vector<bool>& renewed) {
  constexpr uint64_t kWords = 1 + kBucketWords;
  QUARRY_TRY(const std::vector<uint64_t> words,
             ReadWords(backend, data, kRenewedSection, directory.buckets.size() * kWords * sizeof(uint64_t)));
  bool fits = words.size() % kWords == 0;
  renewed.assign(directory.buckets.size(), false);
  uint64_t end = 0, next = 0;
  for (size_t i = 0; fits && i < words.size(); i += kWords) {
    const uint64_t number = words[i];
    fits = number >= next && number < renewed.size() && words[i + 1] == end;
    if (!fits) break;
    directory.buckets[number] = {words[i + 1], words[i + 2], words[i + 3], words[i + 4]};
    const auto source = static_cast<uint32_t>(number / directory.parts());
    const auto destination = static_cast<uint32_t>(number % directory.parts());
    fits = Fits(directory, source, destination);
    renewed[number] = true;
    next = number + 1;
    if (fits) end += directory.bucket_bytes(source, destination);
  }
  if (fits) return end;
  return MakeStatus(Code::kCorruption,
                    "{}: renewed: buckets leave their places: build the partitioning again",
                    data.file.path());
}

}  // namespace quarry
