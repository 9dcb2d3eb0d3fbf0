#include <algorithm>
#include <utility>

#include "layout_file.h"
#include "quarry/base/units.h"
#include "record_file.h"

namespace quarry {
namespace {

constexpr uint64_t kDirectoryVersion = 2;
constexpr uint64_t kPatchedVersion = 3;  // there is a section of extents
// Directories of several tables: the head says how many, and of how many ranges of nodes; batches have two words more, and behind the
// segments are tables and ranges.
constexpr uint64_t kTypedVersion = 4;
constexpr uint64_t kHeadWords = 13;
constexpr uint64_t kBatchWords = 8;
constexpr uint64_t kSegmentWords = 2;
constexpr uint64_t kTypedHeadWords = kHeadWords + 2, kTypedBatchWords = kBatchWords + 2;
constexpr uint64_t kTableWords = 5, kRangeWords = 2;
constexpr uint64_t kRowBytesMax = uint64_t{1} << 24;
constexpr std::string_view kExtentsSection = "extents";
static_assert(sizeof(Extent) == 4 * sizeof(uint64_t));  // written as it is

Status WriteSection(DataFileWriter& writer, std::string_view name, std::span<const std::byte> bytes) {
  writer.BeginSection(name, DataFileWriter::Cover::kPages);
  QUARRY_RETURN_IF_ERROR(writer.Append(bytes));
  return writer.EndSection();
}

template <typename T>
Result<std::vector<T>> ReadSection(IoBackend& backend, const DataFile& data, std::string_view name) {
  const Section* section = data.footer.Find(name);
  if (section == nullptr || section->bytes % sizeof(T) != 0) {
    return MakeStatus(Code::kCorruption, "{}: footer: there is no whole section \"{}\"", data.file.path(),
                      name);
  }
  std::vector<T> values(section->bytes / sizeof(T));
  if (values.empty()) return values;
  QUARRY_TRY(const std::vector<uint32_t> checksums, LoadChecksums(backend, data, *section));
  QUARRY_RETURN_IF_ERROR(
      LoadPages(backend, data, *section, checksums, std::as_writable_bytes(std::span(values))));
  return values;
}

template <typename Field>
uint64_t MaxOf(const std::vector<BatchEntry>& batches, Field field) {
  uint64_t largest = 0;
  for (const BatchEntry& batch : batches) largest = std::max<uint64_t>(largest, field(batch));
  return largest;
}

// Nodes have a table each, and slots and what is in them are of the same one.
bool TablesFit(const LayoutDirectory& directory) {
  if (directory.tables.empty()) return directory.ranges.empty();
  uint64_t slots = 0, image_rows = 0, end = 0;
  for (const RowForm& table : directory.tables) {
    if (table.places == 0 || table.places > kRowBytesMax / directory.row_stride ||
        table.row_bytes > table.places * directory.row_stride || table.image_rows > table.cache_slots ||
        table.cache_slots > directory.node_count) {
      return false;
    }
    slots += table.cache_slots;
    image_rows += table.image_rows;
  }
  for (const RowRange& range : directory.ranges) {
    if (range.end <= std::exchange(end, range.end) || range.table > directory.tables.size()) return false;
  }
  if (slots != directory.cache_slots || image_rows != directory.image_rows || end != directory.node_count ||
      directory.start_nodes.size() != image_rows || directory.wrap.size() > image_rows) {
    return false;
  }
  const RowPlaces places = directory.places();
  for (size_t slot = 0; slot < image_rows; ++slot) {
    const NodeId node = directory.start_nodes[slot];
    if (node >= end || places.TableOf(node) != places.TableOfSlot(slot)) return false;
  }
  for (size_t slot = 0; slot < directory.wrap.size(); ++slot) {
    if (directory.wrap[slot] >= slots ||
        places.TableOfSlot(directory.wrap[slot]) != places.TableOfSlot(slot)) {
      return false;
    }
  }
  return true;
}

// Every region lies inside the section, and what the entries promise fits together.
Status CheckDirectory(const LayoutDirectory& directory, const std::string& path) {
  const auto fault = [&](std::string_view what, uint64_t number) {
    return MakeStatus(Code::kCorruption, "{}: directory: {} {} leaves its place: build the layout again",
                      path, what, number);
  };
  const uint64_t limit = directory.regions_bytes;
  const auto inside = [&](uint64_t offset, uint64_t bytes) {
    return offset <= limit && bytes <= limit - offset;
  };
  const uint64_t stride = directory.row_stride;
  if (stride == 0 || stride < directory.row_bytes || stride > kRowBytesMax || !TablesFit(directory) ||
      directory.image_rows > directory.cache_slots || directory.cache_slots > directory.node_count ||
      directory.image_bytes() > limit || directory.start_nodes.size() != directory.image_rows ||
      (!directory.wrap.empty() && directory.wrap.size() != directory.image_rows)) {
    return fault("the cache image of rows", directory.image_rows);
  }
  for (size_t i = 0; i < directory.segments.size(); ++i) {
    const SegmentEntry& segment = directory.segments[i];
    if (segment.rows > limit / stride || !inside(segment.offset, segment.rows * stride)) {
      return fault("segment", i);
    }
  }
  for (size_t i = 0; i < directory.batches.size(); ++i) {
    const BatchEntry& batch = directory.batches[i];
    if (batch.offset % kPageBytes != 0 || batch.block_bytes > limit ||
        batch.chunk_rows > directory.node_count || batch.chunk_bytes > batch.chunk_rows * kRowBytesMax ||
        !inside(batch.offset, RoundUp(batch.block_bytes, kPageBytes) + directory.chunk_bytes(batch)) ||
        (batch.segment_rows > 0 && batch.segment >= directory.segments.size())) {
      return fault("batch", i);
    }
  }
  return Status::Ok();
}

}  // namespace

uint64_t LayoutDirectory::frame_rows_max() const {
  return MaxOf(batches, [](const BatchEntry& b) { return b.chunk_rows + b.segment_rows; });
}
// There are no segments beside several tables.
uint64_t LayoutDirectory::frame_bytes_max() const {
  return MaxOf(batches, [&](const BatchEntry& b) { return b.chunk_bytes + b.segment_rows * row_stride; });
}
uint64_t LayoutDirectory::nodes_max() const {
  return MaxOf(batches, [](const BatchEntry& b) { return b.nodes; });
}
uint64_t LayoutDirectory::edges_max() const {
  return MaxOf(batches, [](const BatchEntry& b) { return b.edges; });
}
uint64_t LayoutDirectory::block_bytes_max() const {
  return MaxOf(batches, [](const BatchEntry& b) { return b.block_bytes; });
}

Status WriteDirectory(DataFileWriter& writer, const LayoutDirectory& directory,
                      std::span<const Extent> extents) {
  const bool typed = !directory.tables.empty();
  std::vector<uint64_t> words = {typed             ? kTypedVersion
                                 : extents.empty() ? kDirectoryVersion
                                                   : kPatchedVersion,
                                 directory.row_bytes,
                                 directory.row_stride,
                                 directory.node_count,
                                 directory.cache_slots,
                                 directory.batches_per_epoch,
                                 directory.seed_hash,
                                 directory.image_rows,
                                 directory.regions_bytes,
                                 directory.batches.size(),
                                 directory.segments.size(),
                                 0,  // once the slots of a second level
                                 directory.packed ? 1U : 0U};
  if (typed) words.insert(words.end(), {directory.tables.size(), directory.ranges.size()});
  for (const BatchEntry& b : directory.batches) {
    for (const uint64_t word :
         {b.offset, b.block_bytes, b.chunk_rows, b.segment_rows, b.segment, b.nodes, b.edges, b.misses}) {
      words.push_back(word);
    }
    if (typed) words.insert(words.end(), {b.chunk_bytes, b.useful_bytes});
  }
  for (const SegmentEntry& s : directory.segments) {
    words.push_back(s.offset);
    words.push_back(s.rows);
  }
  for (const RowForm& t : directory.tables) {
    words.insert(words.end(), {t.row_bytes, t.places, t.cache_slots, t.image_rows, t.generation});
  }
  for (const RowRange& r : directory.ranges) words.insert(words.end(), {r.end, r.table});
  QUARRY_RETURN_IF_ERROR(WriteSection(writer, "directory", BytesOf(words)));
  QUARRY_RETURN_IF_ERROR(WriteSection(writer, "start_nodes", BytesOf(directory.start_nodes)));
  QUARRY_RETURN_IF_ERROR(WriteSection(writer, "wrap", BytesOf(directory.wrap)));
  return extents.empty() ? Status::Ok() : WriteSection(writer, kExtentsSection, std::as_bytes(extents));
}

Result<std::vector<Extent>> ReadExtents(IoBackend& backend, const DataFile& data) {
  if (data.footer.Find(kExtentsSection) == nullptr) return std::vector<Extent>();
  return ReadSection<Extent>(backend, data, kExtentsSection);
}

Result<LayoutDirectory> ReadDirectory(IoBackend& backend, const DataFile& data) {
  const std::string& path = data.file.path();
  QUARRY_TRY(const std::vector<uint64_t> words, ReadSection<uint64_t>(backend, data, "directory"));
  const uint64_t version = words.empty() ? 0 : words[0];
  if (words.size() < kHeadWords || version < kDirectoryVersion || version > kTypedVersion) {
    return MakeStatus(Code::kUnsupported,
                      "{}: directory version {}; this Quarry reads versions {} to {}: build the "
                      "layout again",
                      path, version, kDirectoryVersion, kTypedVersion);
  }
  const bool typed = version == kTypedVersion && words.size() >= kTypedHeadWords;
  const uint64_t head_words = version == kTypedVersion ? kTypedHeadWords : kHeadWords;
  const uint64_t batch_words = typed ? kTypedBatchWords : kBatchWords;
  const uint64_t batch_count = words[9];
  const uint64_t segment_count = words[10];
  const uint64_t table_count = typed ? words[kHeadWords] : 0;
  const uint64_t range_count = typed ? words[kHeadWords + 1] : 0;
  if (batch_count > words.size() || segment_count > words.size() || table_count > words.size() ||
      range_count > words.size() ||
      words.size() != head_words + batch_words * batch_count + kSegmentWords * segment_count +
                          kTableWords * table_count + kRangeWords * range_count) {
    return MakeStatus(Code::kCorruption, "{}: directory: {} words for {} batches and {} segments", path,
                      words.size(), batch_count, segment_count);
  }
  LayoutDirectory directory{.row_bytes = words[1],
                            .row_stride = words[2],
                            .node_count = words[3],
                            .cache_slots = words[4],
                            .packed = words[12] != 0,
                            .batches_per_epoch = words[5],
                            .seed_hash = words[6],
                            .image_rows = words[7],
                            .regions_bytes = words[8]};
  const uint64_t* word = words.data() + head_words;
  for (uint64_t i = 0; i < batch_count; ++i, word += batch_words) {
    const uint64_t chunk_bytes = typed ? word[8] : word[2] * directory.row_stride;
    const uint64_t useful_bytes = typed ? word[9] : word[7] * directory.row_bytes;
    directory.batches.push_back(
        {word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7], chunk_bytes, useful_bytes});
  }
  for (uint64_t i = 0; i < segment_count; ++i, word += kSegmentWords) {
    directory.segments.push_back({word[0], word[1]});
  }
  for (uint64_t i = 0; i < table_count; ++i, word += kTableWords) {
    directory.tables.push_back({word[0], word[1], word[2], word[3], word[4]});
  }
  for (uint64_t i = 0; i < range_count; ++i, word += kRangeWords)
    directory.ranges.push_back({word[0], word[1]});
  QUARRY_TRY(directory.start_nodes, ReadSection<NodeId>(backend, data, "start_nodes"));
  QUARRY_TRY(directory.wrap, ReadSection<uint32_t>(backend, data, "wrap"));
  QUARRY_RETURN_IF_ERROR(CheckDirectory(directory, path));
  return directory;
}

}  // namespace quarry
