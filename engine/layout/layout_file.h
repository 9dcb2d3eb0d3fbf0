// The sections of layout.qlc besides its regions. Private to this room; docs/format.md "Layout".
#pragma once

#include <string>

#include "quarry/layout/layout.h"
#include "quarry/storage/data_file.h"
#include "quarry/storage/layout_files.h"

namespace quarry {

inline constexpr std::string_view kRegionsSection = "regions";

// kUsage names the option that cannot be.
Status CheckSpec(const LayoutSpec& spec);

// The rows that a layout is of. Fields of LayoutDirectory's names are what it has there, before there is a cache.
struct RowLengths {
  uint64_t node_count = 0;
  uint64_t row_bytes = 0, row_stride = 0;
  std::vector<RowForm> tables;
  std::vector<RowRange> ranges;
  std::vector<uint64_t> row_counts;  // of each table, or the one
  uint64_t StrideOf(size_t table) const {
    return tables.empty() ? row_stride : tables[table].places * row_stride;
  }
  uint64_t StrideMax() const;
};

// The lengths of rows of a road's tables, as the snapshot has them, or else the manifest. kNotFound names a table that there is not;
// kInvalidArgument where no type has one.
Result<RowLengths> RowLengthsOf(const Manifest& manifest, const RoadSpec& road,
                                const Snapshot* snapshot = nullptr);

// What the cache of a spec holds at most: of one table, whole rows.
uint64_t CacheBytesOf(const LayoutSpec& spec, const RowLengths& rows);

// Appends the directory's sections to a file whose regions are written; `extents` are those of a patched
// layout.
Status WriteDirectory(DataFileWriter& writer, const LayoutDirectory& directory,
                      std::span<const Extent> extents = {});
// kCorruption when the sections do not fit together.
Result<LayoutDirectory> ReadDirectory(IoBackend& backend, const DataFile& data);
// Empty: the layout is not patched.
Result<std::vector<Extent>> ReadExtents(IoBackend& backend, const DataFile& data);

}  // namespace quarry
