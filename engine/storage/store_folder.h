// The folder of a database, before it is opened. Private to this room.
#pragma once

#include <string>

#include "quarry/base/status.h"
#include "quarry/io/backend.h"

namespace quarry {

// Checks that the folder is a database's before a LOCK is created in it, since a folder of somebody else's must stay as it
// is. kNotFound says what `path` is instead; kUnsupported for a VERSION of others, and for a thin database that `backend`
// does not read.
Status CheckFolder(IoBackend& backend, const std::string& path);

// kUnsupported where nothing that is written would last: in a database that was opened at an address in an object store.
Status CheckLasting(const IoBackend& backend);

}  // namespace quarry
