// Which build of Quarry this is.
#pragma once

namespace quarry::cli {

// "quarry 0.1.0 (7f7ee98e21)": the version and the commit that the build was configured at, or "unknown" where the
// sources were no git repository.
extern const char* const kVersionLine;

}  // namespace quarry::cli
