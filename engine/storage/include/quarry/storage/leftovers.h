// What is left in a database by commands that were interrupted.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "quarry/storage/store.h"

namespace quarry {

// Files of tables, layouts and training runs that no record names, but for what can be gone on with, and
// passing layouts, which no manifest ever names; by their paths in the database. What may be the only copy of
// something is none of them: a file of a newer generation than its record's, whose own file is missing.
// REQUIRES: the store was opened just now. It holds the LOCK, so whoever made them is dead.
std::vector<std::string> FindLeftovers(IoBackend& backend, const std::string& database_path,
                                       const Manifest& manifest);

// Removes them. The manifest that says that they are leftovers may not be on disk yet, and the one that is
// may name them: so they go behind a commit of it, or stay.
void RemoveLeftovers(Store& store, const std::vector<std::string>& leftovers);

// True when the database at `path` misses a file that its manifest names, in the folder of `file`: then
// `file` may be a newer copy of it.
bool MayBeOnlyCopy(const std::string& database_path, const Manifest& manifest, std::string_view file);

}  // namespace quarry
