#include "footprint.h"

#include <sys/stat.h>

#include <filesystem>

#include "quarry/format/feature_table.h"

namespace quarry::cli {
namespace {

namespace fs = std::filesystem;

// Without what cannot be read: others may write to the folder.
uint64_t FolderBytes(const std::string& path) {
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    const uint64_t file_bytes = entry->file_size(ignored);
    if (!ignored) bytes += file_bytes;
  }
  return bytes;
}

}  // namespace

uint64_t EmbeddingBytes(const Store& store, const EmbeddingRecord& table) {
  uint64_t bytes = 0;
  for (const std::string& file : {table.file, table.map_file}) {
    struct stat status {};
    if (file.empty() || stat((store.path() + "/" + file).c_str(), &status) != 0) continue;
    bytes += static_cast<uint64_t>(status.st_blocks) * 512;
  }
  return bytes;
}

DiskFootprint DiskFootprintOf(const Store& store) {
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  DiskFootprint disk{.catalog = FolderBytes(store.path() + "/catalog")};
  for (const TableRecord& table : manifest->tables) disk.tables += table.file_bytes;
  for (const TopologyRecord& topology : manifest->topologies) disk.topologies += topology.file_bytes;
  for (const LayoutRecord& layout : manifest->layouts) disk.layouts += layout.total_bytes();
  for (const EmbeddingRecord& table : manifest->embeddings) disk.embeddings += EmbeddingBytes(store, table);
  for (const TrainingRecord& run : manifest->trainings) disk.trainings += run.file_bytes;
  return disk;
}

uint64_t ResidentBytes(const TableRecord& table) {
  const Result<FeatureGeometry> geometry =
      FeatureGeometry::Make(table.element_type, table.dim, table.row_count);
  return geometry.ok() ? geometry->cell_count() * sizeof(uint32_t) : 0;
}

}  // namespace quarry::cli
