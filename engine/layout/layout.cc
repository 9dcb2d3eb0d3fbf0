#include "quarry/layout/layout.h"

#include <algorithm>
#include <filesystem>

#include "layout_file.h"
#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/format/checksum.h"
#include "record_file.h"

namespace quarry {
namespace {

constexpr uint64_t kDirectoryVersion = 2;
constexpr uint64_t kHeadWords = 13;
constexpr uint64_t kBatchWords = 8;
constexpr uint64_t kSegmentWords = 2;

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
  if (stride == 0 || stride < directory.row_bytes || stride > (uint64_t{1} << 24) ||
      directory.image_rows > directory.cache_slots || directory.gpu_slots > directory.cache_slots ||
      directory.cache_slots > directory.node_count || directory.image_bytes() > limit ||
      directory.start_nodes.size() != directory.image_rows ||
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
        batch.chunk_rows > directory.node_count ||
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
uint64_t LayoutDirectory::nodes_max() const {
  return MaxOf(batches, [](const BatchEntry& b) { return b.nodes; });
}
uint64_t LayoutDirectory::edges_max() const {
  return MaxOf(batches, [](const BatchEntry& b) { return b.edges; });
}
uint64_t LayoutDirectory::block_bytes_max() const {
  return MaxOf(batches, [](const BatchEntry& b) { return b.block_bytes; });
}

DeviceProfile ProfileOf(const Manifest& manifest) {
  if (!manifest.device) return {};
  return {.random_reads_per_second = manifest.device->random_reads_per_second,
          .sequential_bytes_per_second = manifest.device->sequential_bytes_per_second};
}

uint64_t HashSeeds(std::span<const NodeId> seeds) {
  uint64_t hash = Mix64(seeds.size());
  for (const NodeId seed : seeds) hash += Mix64(seed);  // a sum: the order does not matter
  return hash;
}

Status WriteDirectory(DataFileWriter& writer, const LayoutDirectory& directory) {
  std::vector<uint64_t> words = {
      kDirectoryVersion,         directory.row_bytes,         directory.row_stride,      directory.node_count,
      directory.cache_slots,     directory.batches_per_epoch, directory.seed_hash,       directory.image_rows,
      directory.regions_bytes,   directory.batches.size(),    directory.segments.size(), directory.gpu_slots,
      directory.packed ? 1U : 0U};
  for (const BatchEntry& b : directory.batches) {
    for (const uint64_t word :
         {b.offset, b.block_bytes, b.chunk_rows, b.segment_rows, b.segment, b.nodes, b.edges, b.misses}) {
      words.push_back(word);
    }
  }
  for (const SegmentEntry& s : directory.segments) {
    words.push_back(s.offset);
    words.push_back(s.rows);
  }
  QUARRY_RETURN_IF_ERROR(WriteSection(writer, "directory", BytesOf(words)));
  QUARRY_RETURN_IF_ERROR(WriteSection(writer, "start_nodes", BytesOf(directory.start_nodes)));
  return WriteSection(writer, "wrap", BytesOf(directory.wrap));
}

Result<LayoutDirectory> ReadDirectory(IoBackend& backend, const DataFile& data) {
  const std::string& path = data.file.path();
  QUARRY_TRY(const std::vector<uint64_t> words, ReadSection<uint64_t>(backend, data, "directory"));
  if (words.size() < kHeadWords || words[0] != kDirectoryVersion) {
    return MakeStatus(Code::kUnsupported,
                      "{}: directory version {}; this Quarry reads version {}: build the "
                      "layout again",
                      path, words.empty() ? 0 : words[0], kDirectoryVersion);
  }
  const uint64_t batch_count = words[9];
  const uint64_t segment_count = words[10];
  if (batch_count > words.size() || segment_count > words.size() ||
      words.size() != kHeadWords + kBatchWords * batch_count + kSegmentWords * segment_count) {
    return MakeStatus(Code::kCorruption, "{}: directory: {} words for {} batches and {} segments", path,
                      words.size(), batch_count, segment_count);
  }
  LayoutDirectory directory{.row_bytes = words[1],
                            .row_stride = words[2],
                            .node_count = words[3],
                            .cache_slots = words[4],
                            .gpu_slots = words[11],
                            .packed = words[12] != 0,
                            .batches_per_epoch = words[5],
                            .seed_hash = words[6],
                            .image_rows = words[7],
                            .regions_bytes = words[8]};
  const uint64_t* word = words.data() + kHeadWords;
  for (uint64_t i = 0; i < batch_count; ++i, word += kBatchWords) {
    directory.batches.push_back({word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7]});
  }
  for (uint64_t i = 0; i < segment_count; ++i, word += kSegmentWords) {
    directory.segments.push_back({word[0], word[1]});
  }
  QUARRY_TRY(directory.start_nodes, ReadSection<NodeId>(backend, data, "start_nodes"));
  QUARRY_TRY(directory.wrap, ReadSection<uint32_t>(backend, data, "wrap"));
  QUARRY_RETURN_IF_ERROR(CheckDirectory(directory, path));
  return directory;
}

Result<std::unique_ptr<Layout>> Layout::Open(Store& store, std::string_view name) {
  const Manifest& manifest = store.manifest();
  const LayoutRecord* record = manifest.FindLayout(name);
  if (record == nullptr) {
    std::string names;
    for (const LayoutRecord& other : manifest.layouts) names += (names.empty() ? "" : ", ") + other.name;
    return MakeStatus(Code::kNotFound,
                      "{}: there is no layout \"{}\"; layouts: {}; `quarry layout build` makes one",
                      store.path(), name, names.empty() ? "none" : names);
  }
  return Open(store, *record);
}

Result<std::unique_ptr<Layout>> Layout::Open(Store& store, const LayoutRecord& named) {
  const Manifest& manifest = store.manifest();
  const LayoutRecord* const record = &named;
  const std::string& name = record->name;
  if (!IsServable(manifest, *record)) {
    return MakeStatus(
        Code::kUnsupported,
        "{}: layout \"{}\" was built from generation {} of table \"{}\" and {} of topology \"{}\", "
        "which the database no longer has: `quarry layout rebuild`",
        store.path(), name, record->table_generation, record->table, record->topology_generation,
        record->topology);
  }
  std::unique_ptr<Layout> layout(new Layout());
  layout->record_ = *record;
  IoBackend& backend = store.backend();
  const std::string path = fmt::format("{}/{}/{}", store.path(), record->directory, kLayoutFile);
  QUARRY_TRY(layout->data_, OpenDataFile(backend, path,
                                         {.kind = FileKind::kLayout,
                                          .database_id = manifest.database_id,
                                          .generation = record->generation,
                                          .file_bytes = record->file_bytes}));
  QUARRY_TRY(layout->directory_, ReadDirectory(backend, layout->data_));
  QUARRY_TRY(const Section regions, layout->data_.Find(kRegionsSection, layout->directory_.regions_bytes));
  QUARRY_TRY(layout->checksums_, LoadChecksums(backend, layout->data_, regions));
  if (layout->checksums_.size() * kPageBytes != regions.bytes) {
    return MakeStatus(Code::kCorruption, "{}: {} checksums for {} bytes of regions", path,
                      layout->checksums_.size(), regions.bytes);
  }
  layout->regions_offset_ = regions.offset;
  return layout;
}

Status Layout::VerifyPages(uint64_t offset, std::span<const std::byte> pages) const {
  for (uint64_t at = 0; at < pages.size(); at += kPageBytes) {
    const uint64_t page = (offset + at) / kPageBytes;
    const uint32_t computed = CellChecksum(pages.subspan(at, kPageBytes), page);
    if (computed == checksums_[page]) continue;
    return ChecksumFault(data_, regions_offset_ + offset + at,
                         fmt::format("a region of layout \"{}\"", record_.name), checksums_[page], computed);
  }
  return Status::Ok();
}

uint64_t Layout::resident_bytes() const {
  return checksums_.size() * sizeof(uint32_t) + directory_.batches.size() * sizeof(BatchEntry) +
         (directory_.start_nodes.size() + directory_.wrap.size()) * sizeof(uint32_t);
}

Result<std::unique_ptr<Trace>> Layout::OpenTrace(Store& store) const {
  return Trace::Open(store.backend(), fmt::format("{}/{}/{}", store.path(), record_.directory, kTraceFile),
                     store.manifest().database_id, record_.generation, record_.trace_bytes);
}

CacheRows CacheRowsOf(const LayoutSpec& spec, uint64_t row_stride, uint64_t row_count) {
  if (spec.policy == PolicyKind::kNone) return {};
  const uint64_t gpu_rows = std::min(spec.gpu_cache_bytes / row_stride, row_count);
  return {.rows = std::min(gpu_rows + spec.cache_bytes / row_stride, row_count), .gpu_rows = gpu_rows};
}

bool IsFresh(const Manifest& manifest, const LayoutRecord& record) {
  const TableRecord* table = manifest.FindTable(record.table);
  const TopologyRecord* topology = manifest.FindTopology(record.topology);
  return table != nullptr && table->generation == record.table_generation && topology != nullptr &&
         topology->generation == record.topology_generation;
}

bool IsServable(const Manifest& manifest, const LayoutRecord& record) {
  const TableRecord* table = manifest.FindTable(record.table);
  const TopologyRecord* topology = manifest.FindTopology(record.topology);
  return table != nullptr && table->generation >= record.table_generation && topology != nullptr &&
         topology->generation == record.topology_generation;
}

bool IsLayoutOf(const Manifest& manifest, const LayoutRecord& record, const LayoutSpec& spec) {
  const TableRecord* table = manifest.FindTable(spec.feature_table);
  const TopologyRecord* topology = manifest.FindTopology(spec.topology);
  if (table == nullptr || topology == nullptr) return false;
  const uint64_t stride = RoundUp(RowBytes(table->element_type, table->dim), sizeof(float));
  const CacheRows cache = CacheRowsOf(spec, stride, table->row_count);
  return record.table == spec.feature_table && record.table_generation == table->generation &&
         record.topology == spec.topology && record.topology_generation == topology->generation &&
         record.fanouts == spec.fanouts && record.direction == static_cast<uint8_t>(spec.direction) &&
         record.batch_size == spec.batch_size && record.seed == spec.seed && record.epochs == spec.epochs &&
         record.policy == PolicyName(spec.policy) && record.seed_order == SeedOrderName(spec.order) &&
         record.cache_rows == cache.rows && record.gpu_cache_rows == cache.gpu_rows &&
         record.hash_functions == spec.hash_functions &&
         (spec.disk_bytes == 0 ? record.batches_per_segment == 0
                               : record.file_bytes + record.trace_bytes <= spec.disk_bytes);
}

Status DropLayout(Store& store, std::string_view name) {
  const std::string building = fmt::format("{}/layouts/{}.building", store.path(), name);
  std::error_code error;
  // A name with a slash would lead out of layouts/.
  const bool interrupted =
      name.find('/') == std::string_view::npos && std::filesystem::is_directory(building, error);
  const LayoutRecord* record = store.manifest().FindLayout(name);
  if (record == nullptr && !interrupted) return Layout::Open(store, name).status();  // says what there is
  if (record != nullptr) {
    const std::string directory = store.path() + "/" + record->directory;
    QUARRY_RETURN_IF_ERROR(store.UpdateManifest([&](Manifest& manifest) {
      std::erase_if(manifest.layouts, [&](const LayoutRecord& other) { return other.name == name; });
      return Status::Ok();
    }));
    std::filesystem::remove_all(directory, error);  // what stays is a stray that `quarry verify` reports
  }
  if (!interrupted) return Status::Ok();
  std::filesystem::remove_all(building, error);
  return error ? ErrnoStatus(error.value(), "remove the folder", building) : Status::Ok();
}

}  // namespace quarry
