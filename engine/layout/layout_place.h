// Where a layout is made, and how it takes the place of the one before: atomic by the catalog. Private to
// this room.
//
//   layouts/NAME.building -> layouts/NAME-<gen> [rename] -> the catalog names it -> the folder before goes
#pragma once

#include <string>

#include "quarry/layout/layout.h"

namespace quarry {

struct LayoutPlace {
  uint64_t generation = 1;
  std::string folder;    // where everything is made, relative to the database
  std::string building;  // its path, if it is there: it may hold what an interrupted build left
  std::string replaced;  // the folder of the layout of the same name; empty: there is none
};

// Who makes the layout makes its folder, so that one which is refused before leaves none. `folder`: BuildingFolder(name), or
// PassingFolder(name) of one that is not committed (layout_files.h).
Result<LayoutPlace> PrepareLayout(Store& store, const std::string& name, const std::string& folder);

// Everything in place.building must be synced, folder included. Sets the record's directory.
Status CommitLayout(Store& store, const LayoutPlace& place, LayoutRecord& record);
// The same of several, which are named all at once.
Status CommitLayouts(Store& store, std::span<const LayoutPlace> places, std::span<LayoutRecord> records);

}  // namespace quarry
