// The sections of layout.qlc besides its regions. Private to this room; docs/format.md "Layout".
#pragma once

#include <string>

#include "quarry/layout/layout.h"
#include "quarry/storage/data_file.h"

namespace quarry {

inline constexpr std::string_view kRegionsSection = "regions";
inline constexpr std::string_view kLayoutFile = "layout.qlc";
inline constexpr std::string_view kTraceFile = "trace.qlt";

// Appends the directory's sections to a file whose regions are written.
Status WriteDirectory(DataFileWriter& writer, const LayoutDirectory& directory);
// kCorruption when the sections do not fit together.
Result<LayoutDirectory> ReadDirectory(IoBackend& backend, const DataFile& data);

}  // namespace quarry
