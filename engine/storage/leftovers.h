// What is left in a database by commands that were interrupted. Private to this room.
#pragma once

#include "quarry/storage/store.h"

namespace quarry {

// Removes files of tables, layouts and training runs that no record names, but for what can be gone on with.
// The manifest that says so may not be on disk yet, and the one that is may name them: so they go behind a
// commit of it, or stay. Passing layouts, which no manifest names, go at once.
// REQUIRES: the store was opened just now. It holds the LOCK, so whoever made passing layouts is dead.
void RemoveLeftovers(Store& store);

}  // namespace quarry
