// What is made of the backend's operations on names.
#include <cerrno>
#include <filesystem>

#include "quarry/io/backend.h"

namespace quarry {

namespace fs = std::filesystem;

Status EnsureDirectory(IoBackend& backend, const std::string& path) {
  Status made = backend.CreateDirectory(path);
  std::error_code error;
  const bool there = made.code() == Code::kAlreadyExists && fs::is_directory(path, error);
  return there ? Status::Ok() : made;
}

Status EnsureSyncedDirectory(IoBackend& backend, const std::string& path) {
  QUARRY_RETURN_IF_ERROR(EnsureDirectory(backend, path));
  const std::string parent = fs::path(path).parent_path().string();
  return backend.SyncDirectory(parent.empty() ? "." : parent);
}

Status RemoveTree(IoBackend& backend, const std::string& path) {
  std::error_code error;
  const fs::file_status found = fs::symlink_status(path, error);
  if (!fs::exists(found))
    return fs::status_known(found) ? Status::Ok() : ErrnoStatus(error.value(), "remove", path);
  if (fs::is_directory(found)) {
    for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
      QUARRY_RETURN_IF_ERROR(RemoveTree(backend, entry->path().string()));
    }
    if (error) return ErrnoStatus(error.value(), "list", path);
  }
  Status removed = backend.Remove(path);
  return removed.code() == Code::kNotFound ? Status::Ok() : removed;
}

void Discard(IoBackend& backend, const std::string& path) {
  static_cast<void>(RemoveTree(backend, path).ok());
}

}  // namespace quarry
