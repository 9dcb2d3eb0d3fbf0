#include "catalog_files.h"

#include <cerrno>

namespace quarry {

namespace fs = std::filesystem;

Status CopyFiles(const fs::path& from, const fs::path& to) {
  std::error_code error;
  if (!fs::create_directory(to, error)) {
    return ErrnoStatus(error ? error.value() : EEXIST, "create the folder", to.string());
  }
  for (fs::directory_iterator entry(from, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code failed;
    if (!entry->is_regular_file(failed)) continue;
    const fs::path copy = to / entry->path().filename();
    if (copy.extension() == kTableSuffix) {
      fs::create_hard_link(entry->path(), copy, failed);
      if (!failed) continue;
    }
    fs::copy_file(entry->path(), copy, failed);
    if (failed) return ErrnoStatus(failed.value(), "copy", entry->path().string());
  }
  return error ? ErrnoStatus(error.value(), "list", from.string()) : Status::Ok();
}

}  // namespace quarry
