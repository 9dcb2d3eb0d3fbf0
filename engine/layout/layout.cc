#include "quarry/layout/layout.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <optional>

#include "layout_file.h"
#include "quarry/base/random.h"
#include "quarry/format/batch_view.h"
#include "quarry/format/checksum.h"
#include "quarry/format/fanouts.h"
#include "quarry/storage/layout_files.h"
#include "quarry/storage/record_names.h"
#include "quarry/storage/row_sources.h"
#include "quarry/storage/times.h"

namespace quarry {

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

namespace {

// The generation of the record's tables in the database, as the record has it: generations only grow, so the sum of several
// is the same as long as each is. Nothing where one of them is not there.
std::optional<uint64_t> TableGeneration(const Manifest& manifest, const RoadSpec& road) {
  const std::vector<SourceRecord> tables = SourceRecordsOf(manifest, road);
  uint64_t sum = 0;
  for (const SourceRecord& table : tables) {
    if (table.record == nullptr) return std::nullopt;
    sum += table.record->generation;
  }
  return tables.empty() ? std::nullopt : std::optional(sum);
}

// Tables and topology are those that it was built from, or of later generations.
bool HasFilesOf(const Manifest& manifest, const LayoutRecord& record) {
  const TopologyRecord* topology = manifest.FindTopology(record.spec.topology);
  const std::optional<uint64_t> generation = TableGeneration(manifest, record.spec);
  return generation && *generation >= record.table_generation && topology != nullptr &&
         topology->generation >= record.topology_generation;
}

std::string TablesText(const LayoutRecord& record) {
  if (record.spec.relation_fanouts.empty())
    return fmt::format("generation {} of table \"{}\"", record.table_generation, record.spec.feature_table);
  return fmt::format("generations of the types' tables that add up to {}", record.table_generation);
}

}  // namespace

Result<std::unique_ptr<Layout>> Layout::Open(Store& store, std::string_view name) {
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  const LayoutRecord* record = manifest->FindLayout(name);
  if (record == nullptr) {
    return MakeStatus(Code::kNotFound, "{}: {}; `quarry layout build` makes one", store.path(),
                      ThereIsNo("layout", name, "layouts", manifest->layouts));
  }
  return Open(store, *record);
}

Result<std::unique_ptr<Layout>> Layout::Open(Store& store, const LayoutRecord& named) {
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  const LayoutRecord* const record = &named;
  const std::string& name = record->name;
  if (!HasFilesOf(*manifest, *record)) {
    return MakeStatus(
        Code::kUnsupported,
        "{}: layout \"{}\" was built from {} and {} of topology \"{}\", which the database no longer has: "
        "`quarry layout rebuild`",
        store.path(), name, TablesText(*record), record->topology_generation, record->spec.topology);
  }
  std::unique_ptr<Layout> layout(new Layout());
  layout->record_ = *record;
  std::vector<LayoutFile> files = FilesOf(*record);
  files.pop_back();  // the trace
  for (const LayoutFile& file : files) {
    QUARRY_TRY(RegionFile opened, OpenFile(store, file));
    layout->files_.push_back(std::move(opened));
  }
  const RegionFile& own = layout->files_[0];
  QUARRY_TRY(layout->directory_, ReadDirectory(store.backend(), own.data));
  QUARRY_TRY(layout->extents_, ReadExtents(store.backend(), own.data));
  if (layout->extents_.empty()) {
    layout->extents_.push_back({.page_count = layout->directory_.regions_bytes / kPageBytes});
  }
  QUARRY_RETURN_IF_ERROR(layout->CheckExtents());
  return layout;
}

Result<Layout::RegionFile> Layout::OpenFile(Store& store, const LayoutFile& file) {
  RegionFile opened;
  const std::string path = fmt::format("{}/{}", store.path(), file.path);
  QUARRY_TRY(opened.data, OpenDataFile(store.backend(), path,
                                       {.kind = file.kind,
                                        .database_id = store.manifest()->database_id,
                                        .generation = file.generation,
                                        .file_bytes = file.bytes}));
  const Section* const regions = opened.data.footer.Find(kRegionsSection);
  if (regions == nullptr) {
    return MakeStatus(Code::kCorruption, "{}: footer: there is no section \"{}\"", path, kRegionsSection);
  }
  opened.regions = *regions;
  QUARRY_TRY(opened.checksums, LoadChecksums(store.backend(), opened.data, *regions));
  if (opened.checksums.size() * kPageBytes != regions->bytes) {
    return MakeStatus(Code::kCorruption, "{}: {} checksums for {} bytes of regions", path,
                      opened.checksums.size(), regions->bytes);
  }
  return opened;
}

// The extents are all of the regions, and each lies in its file.
Status Layout::CheckExtents() const {
  uint64_t page = 0;
  for (const Extent& extent : extents_) {
    const bool inside = extent.file < files_.size() &&
                        extent.file_page <= files_[extent.file].checksums.size() &&
                        extent.page_count <= files_[extent.file].checksums.size() - extent.file_page;
    if (extent.first_page != page || !inside) {
      return MakeStatus(Code::kCorruption,
                        "{}: {} pages of regions from page {} on leave their place: build the layout again",
                        file().path(), extent.page_count, extent.first_page);
    }
    page += extent.page_count;
  }
  if (page * kPageBytes == directory_.regions_bytes) return Status::Ok();
  return MakeStatus(Code::kCorruption, "{}: {} pages for {} bytes of regions: build the layout again",
                    file().path(), page, directory_.regions_bytes);
}

const Extent& Layout::ExtentOf(uint64_t page) const {
  return *std::prev(std::ranges::upper_bound(extents_, page, {}, &Extent::first_page));
}

Layout::Part Layout::Locate(uint64_t offset, uint64_t bytes) const {
  const uint64_t page = offset / kPageBytes;
  const Extent& extent = ExtentOf(page);
  const RegionFile& in = files_[extent.file];
  const uint64_t skipped = page - extent.first_page;
  return {.file = &in.data.file,
          .offset = in.regions.offset + (extent.file_page + skipped) * kPageBytes,
          .bytes = std::min(bytes, (extent.page_count - skipped) * kPageBytes)};
}

Status Layout::VerifyPages(uint64_t offset, std::span<const std::byte> pages) const {
  uint64_t page = offset / kPageBytes;
  while (!pages.empty()) {
    const Extent& extent = ExtentOf(page);
    const RegionFile& in = files_[extent.file];
    for (; !pages.empty() && page < extent.first_page + extent.page_count; ++page) {
      const uint64_t number =
          extent.file_page + page - extent.first_page;  // in the section that it was written to
      const uint32_t computed = CellChecksum(pages.first(kPageBytes), number);
      if (computed != in.checksums[number]) {
        return ChecksumFault(in.data, in.regions.offset + number * kPageBytes,
                             fmt::format("a region of layout \"{}\"", record_.name), in.checksums[number],
                             computed);
      }
      pages = pages.subspan(kPageBytes);
    }
  }
  return Status::Ok();
}

Status Layout::ReadPages(IoBackend& backend, uint64_t offset, std::span<std::byte> pages) const {
  for (uint64_t at = 0; at < pages.size();) {
    const Part part = Locate(offset + at, pages.size() - at);
    QUARRY_RETURN_IF_ERROR(backend.ReadAt(*part.file, part.offset, pages.subspan(at, part.bytes)));
    at += part.bytes;
  }
  return VerifyPages(offset, pages);
}

uint64_t Layout::resident_bytes() const {
  uint64_t bytes = directory_.batches.size() * sizeof(BatchEntry) + extents_.size() * sizeof(Extent) +
                   (directory_.start_nodes.size() + directory_.wrap.size()) * sizeof(uint32_t);
  for (const RegionFile& file : files_) bytes += file.checksums.size() * sizeof(uint32_t);
  return bytes;
}

Result<std::unique_ptr<Trace>> Layout::OpenTrace(Store& store) const {
  return Trace::Open(store.backend(), fmt::format("{}/{}/{}", store.path(), record_.directory, kTraceFile),
                     store.manifest()->database_id, record_.trace_generation, record_.trace_bytes);
}

uint64_t RowLengths::StrideMax() const {
  uint64_t stride = row_stride;
  for (size_t table = 0; table < tables.size(); ++table) stride = std::max(stride, StrideOf(table));
  return stride;
}

Result<RowLengths> RowLengthsOf(const Manifest& manifest, const RoadSpec& road, const Snapshot* snapshot) {
  const bool typed = !road.relation_fanouts.empty();
  RowLengths rows;
  rows.node_count = snapshot == nullptr ? manifest.node_count : snapshot->node_count;
  std::vector<uint64_t> strides;
  for (const SourceRecord& table : SourceRecordsOf(manifest, road, snapshot)) {
    if (table.record == nullptr)
      return MakeStatus(Code::kNotFound, "the database has no table \"{}\"", table.name);
    const TableRecord& record = *table.record;
    const uint64_t dim = typed ? record.dim : BatchDim(manifest, road.topology, record);
    strides.push_back(RowStride(record.element_type, dim));
    rows.row_stride = std::gcd(rows.row_stride, strides.back());
    rows.row_bytes = RowBytes(record.element_type, record.dim);
    rows.row_counts.push_back(record.row_count);
    if (!typed) {
      rows.node_count = record.row_count;
      return rows;
    }
    rows.tables.push_back({.row_bytes = rows.row_bytes, .generation = record.generation});
  }
  if (rows.tables.empty())
    return Status(Code::kInvalidArgument, "the database has features of no type of nodes");
  rows.row_bytes = rows.row_stride;
  for (size_t table = 0; table < strides.size(); ++table) {
    rows.tables[table].places = strides[table] / rows.row_stride;
  }
  std::vector<uint64_t> table_of_type;
  uint64_t tables = 0;
  for (const NodeTypeRecord& type : manifest.node_types) {
    table_of_type.push_back(HasRows(type, snapshot) ? tables++ : rows.tables.size());
  }
  const NodeTypes types(manifest.node_types, rows.node_count);
  for (const NodeTypes::Range& range : types.ranges()) {
    rows.ranges.push_back({.end = range.end, .table = table_of_type[range.type]});
  }
  return rows;
}

uint64_t CacheBytesOf(const LayoutSpec& spec, const RowLengths& rows) {
  if (spec.policy == PolicyKind::kNone) return 0;
  if (rows.tables.empty())
    return std::min(spec.road.cache_bytes / rows.row_stride, rows.node_count) * rows.row_stride;
  uint64_t all_bytes = 0;
  for (size_t table = 0; table < rows.tables.size(); ++table) {
    all_bytes += rows.row_counts[table] * rows.StrideOf(table);
  }
  return std::min(spec.road.cache_bytes, all_bytes);
}

bool HasEdgesOf(const TopologyRecord& topology, const LayoutRecord& record) {
  return topology.generation >= record.topology_generation && topology.timestamp() <= record.timestamp;
}

namespace {

// No edges and no nodes were committed since.
bool HasGraphOf(const Manifest& manifest, const TopologyRecord& topology, const LayoutRecord& record) {
  return HasEdgesOf(topology, record) && manifest.grown <= record.timestamp;
}

}  // namespace

bool IsFresh(const Manifest& manifest, const LayoutRecord& record) {
  const TopologyRecord* topology = manifest.FindTopology(record.spec.topology);
  return topology != nullptr && HasGraphOf(manifest, *topology, record) &&
         TableGeneration(manifest, record.spec) == record.table_generation;
}

bool IsServable(const Manifest& manifest, const LayoutRecord& record) {
  return HasFilesOf(manifest, record) &&
         (!record.spec.edge_ids || HasEdgesOf(*manifest.FindTopology(record.spec.topology), record));
}

bool IsLayoutOf(const Manifest& manifest, const LayoutRecord& record, const LayoutSpec& spec) {
  const Result<RowLengths> rows = RowLengthsOf(manifest, spec.road);
  const TopologyRecord* topology = manifest.FindTopology(spec.road.topology);
  if (!rows.ok() || topology == nullptr) return false;
  RoadSpec road = spec.road;
  road.cache_bytes = CacheBytesOf(spec, *rows);
  return record.spec == road && TableGeneration(manifest, record.spec) == record.table_generation &&
         HasGraphOf(manifest, *topology, record) && record.epochs == spec.epochs &&
         record.policy == spec.policy && record.hash_functions == spec.hash_functions &&
         record.share == spec.share &&
         (spec.disk_bytes == 0 ? record.batches_per_segment == 0 : record.total_bytes() <= spec.disk_bytes);
}

Status CheckPlannable(const RoadSpec& road) {
  if (!TakesAll(road)) return Status::Ok();
  return Status(Code::kUnsupported,
                "all neighbors are taken by batches that are sampled as they come: give a layout numbers");
}

Status DropLayout(Store& store, std::string_view name) {
  const std::string building = store.path() + "/" + BuildingFolder(name);
  std::error_code error;
  // A name with a slash would lead out of layouts/.
  const bool interrupted =
      name.find('/') == std::string_view::npos && std::filesystem::is_directory(building, error);
  const std::shared_ptr<const Manifest> newest = store.manifest();
  const LayoutRecord* record = newest->FindLayout(name);
  if (record == nullptr && !interrupted) return Layout::Open(store, name).status();  // says what there is
  if (record != nullptr) {
    const std::string directory = store.path() + "/" + record->directory;
    QUARRY_RETURN_IF_ERROR(store.UpdateManifest([&](Manifest& manifest) {
      std::erase_if(manifest.layouts, [&](const LayoutRecord& other) { return other.name == name; });
      return Status::Ok();
    }));
    Discard(store.backend(), directory);  // what stays is a stray that `quarry verify` reports
  }
  return interrupted ? RemoveTree(store.backend(), building) : Status::Ok();
}

}  // namespace quarry
