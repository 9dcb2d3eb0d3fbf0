// Opens files that must be regular ones. Something else may have been put in the place of one: a FIFO waits
// for its other end, /dev/zero has no end, a folder has no bytes. Such a thing is refused by name here, and
// nothing waits.
//
// A symbolic link to a regular file counts as one. Thread-safe.
#pragma once

#include <string>

#include "quarry/base/status.h"

namespace quarry {

struct OpenedFile {
  int descriptor = -1;  // the caller's, to close
  bool direct = false;  // has O_DIRECT
};

// As open(2) with O_CLOEXEC and the mode 0644. Where the file system refuses an O_DIRECT in `flags`, the file
// is opened without it. Anything but a regular file fails with the code `otherwise` and a sentence that says
// what it is; other failures come as ErrnoStatus.
Result<OpenedFile> OpenRegularFile(const std::string& path, int flags, Code otherwise);

}  // namespace quarry
