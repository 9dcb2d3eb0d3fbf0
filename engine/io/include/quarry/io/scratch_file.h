// Files that nobody else needs.
#pragma once

#include <string>

#include "quarry/base/status.h"
#include "quarry/io/backend.h"

namespace quarry {

// An empty file for direct writing and reading, without a name: it goes with its descriptor, also when the process is
// killed. For a moment it is called PREFIX-N.qet, with an N that no file has: among embedding tables that is the file of a
// table that does not exist, which whoever opens a table removes where a crash left it. Errors of the backend.
Result<File> OpenScratchFile(IoBackend& backend, const std::string& prefix);

}  // namespace quarry
