// The folder of a database, before it is opened. Private to this room.
#pragma once

#include <string>

#include "quarry/base/status.h"
#include "quarry/io/backend.h"

namespace quarry {

// kNotFound, with what `path` is instead of a database.
Status NoDatabase(IoBackend& backend, const std::string& path);

}  // namespace quarry
