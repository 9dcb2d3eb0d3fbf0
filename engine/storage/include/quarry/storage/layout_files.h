// The files of a layout, as its record in the catalog has them. engine/layout knows what they hold; here it
// is only told which there are, for whoever verifies, copies or removes them. Pure functions.
//
//   layouts/NAME-<gen>/layout.qlc       its own
//                      base-<gen>.qlc   of a patched layout: files of earlier generations that it still reads
//                      trace.qlt        the access trace that it was planned on
//   layouts/NAME.building/              one that is being built, or whose build was interrupted
//   layouts/NAME.passing/               one that no record names: of the process that has the database open
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/format/manifest.h"
#include "quarry/format/superblock.h"

namespace quarry {

inline constexpr std::string_view kLayoutFile = "layout.qlc";
inline constexpr std::string_view kTraceFile = "trace.qlt";
inline constexpr std::string_view kBuildingSuffix = ".building";
inline constexpr std::string_view kPassingSuffix = ".passing";

std::string LayoutBaseFile(uint64_t generation);

// The folders above, relative to the database.
std::string BuildingFolder(std::string_view layout);
std::string PassingFolder(std::string_view layout);

struct LayoutFile {
  std::string path;  // relative to the database
  FileKind kind = FileKind::kLayout;
  uint64_t generation = 1;
  uint64_t bytes = 0;
};

// layout.qlc, then the bases in the order of the record, then the trace.
std::vector<LayoutFile> FilesOf(const LayoutRecord& record);

// True for the names above.
bool IsLayoutFile(std::string_view name);

}  // namespace quarry
