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

// How many rows the cache of a spec holds.
uint64_t CacheRowsOf(const LayoutSpec& spec, uint64_t row_stride, uint64_t row_count);

// Appends the directory's sections to a file whose regions are written; `extents` are those of a patched
// layout.
Status WriteDirectory(DataFileWriter& writer, const LayoutDirectory& directory,
                      std::span<const Extent> extents = {});
// kCorruption when the sections do not fit together.
Result<LayoutDirectory> ReadDirectory(IoBackend& backend, const DataFile& data);
// Empty: the layout is not patched.
Result<std::vector<Extent>> ReadExtents(IoBackend& backend, const DataFile& data);

}  // namespace quarry
