#include "quarry/layout/layout.h"

#include <algorithm>
#include <filesystem>

#include "layout_file.h"
#include "quarry/base/random.h"
#include "quarry/format/batch_view.h"
#include "quarry/format/checksum.h"
#include "quarry/format/fanouts.h"
#include "quarry/storage/layout_files.h"
#include "quarry/storage/record_names.h"
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

// Table and topology are those that it was built from, or of later generations.
bool HasFilesOf(const Manifest& manifest, const LayoutRecord& record) {
  const TableRecord* table = manifest.FindTable(record.spec.feature_table);
  const TopologyRecord* topology = manifest.FindTopology(record.spec.topology);
  return table != nullptr && table->generation >= record.table_generation && topology != nullptr &&
         topology->generation >= record.topology_generation;
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
        "{}: layout \"{}\" was built from generation {} of table \"{}\" and {} of topology \"{}\", "
        "which the database no longer has: `quarry layout rebuild`",
        store.path(), name, record->table_generation, record->spec.feature_table, record->topology_generation,
        record->spec.topology);
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

uint64_t CacheRowsOf(const LayoutSpec& spec, uint64_t row_stride, uint64_t row_count) {
  return spec.policy == PolicyKind::kNone ? 0 : std::min(spec.road.cache_bytes / row_stride, row_count);
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
  const TableRecord* table = manifest.FindTable(record.spec.feature_table);
  const TopologyRecord* topology = manifest.FindTopology(record.spec.topology);
  return table != nullptr && table->generation == record.table_generation && topology != nullptr &&
         HasGraphOf(manifest, *topology, record);
}

bool IsServable(const Manifest& manifest, const LayoutRecord& record) {
  return HasFilesOf(manifest, record) &&
         (!record.spec.edge_ids || HasEdgesOf(*manifest.FindTopology(record.spec.topology), record));
}

bool IsLayoutOf(const Manifest& manifest, const LayoutRecord& record, const LayoutSpec& spec) {
  const TableRecord* table = manifest.FindTable(spec.road.feature_table);
  const TopologyRecord* topology = manifest.FindTopology(spec.road.topology);
  if (table == nullptr || topology == nullptr) return false;
  const uint64_t stride = RowStride(table->element_type, BatchDim(manifest, spec.road.topology, *table));
  RoadSpec road = spec.road;
  road.cache_bytes = CacheRowsOf(spec, stride, table->row_count) * stride;
  return record.spec == road && record.table_generation == table->generation &&
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
