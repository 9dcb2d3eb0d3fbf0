#include "quarry/service/work_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

namespace quarry {

namespace fs = std::filesystem;

Result<WorkFolder> WorkFolder::Make(IoBackend& backend, const std::string& given_path,
                                    std::string_view suffix, std::string_view command) {
  fs::path clean = fs::path(given_path).lexically_normal();
  if (!clean.has_filename()) clean = clean.parent_path();  // "data/" means "data"
  const std::string target = clean.string();
  std::error_code error;
  if (fs::exists(fs::symlink_status(target, error))) {
    return MakeStatus(Code::kAlreadyExists, "{} exists; remove it or choose another folder", target);
  }
  const std::string path = target + std::string(suffix);
  QUARRY_RETURN_IF_ERROR(EnsureDirectory(backend, path));
  const int descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return ErrnoStatus(errno, "open", path);
  File lock(descriptor, path, false);
  // Any other errno: a file system that locks no folders (NFS).
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return MakeStatus(Code::kBusy, "{}: another {} is writing it", path, command);
  }
  for (const fs::directory_entry& leftover : fs::directory_iterator(path, error)) {
    Discard(backend, leftover.path().string());
  }
  return WorkFolder(backend, std::move(lock), target);
}

WorkFolder::~WorkFolder() {
  if (lock_.descriptor() >= 0 && !published_) Discard(*backend_, path());
}

Status WorkFolder::Publish() {
  QUARRY_RETURN_IF_ERROR(backend_->SyncDirectory(path()));
  QUARRY_RETURN_IF_ERROR(backend_->Rename(path(), target_));
  published_ = true;
  const fs::path parent = fs::path(target_).parent_path();
  return backend_->SyncDirectory(parent.empty() ? "." : parent.string());
}

}  // namespace quarry
