#include "work_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

namespace quarry {

namespace fs = std::filesystem;

Result<WorkFolder> WorkFolder::Make(const std::string& given_path, std::string_view suffix,
                                    std::string_view command) {
  fs::path clean = fs::path(given_path).lexically_normal();
  if (!clean.has_filename()) clean = clean.parent_path();  // "data/" means "data"
  const std::string target = clean.string();
  std::error_code error;
  if (fs::exists(fs::symlink_status(target, error))) {
    return MakeStatus(Code::kAlreadyExists, "{} exists; remove it or choose another folder", target);
  }
  const std::string path = target + std::string(suffix);
  fs::create_directory(path, error);
  if (error) return ErrnoStatus(error.value(), "create folder", path);
  const int descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return ErrnoStatus(errno, "open", path);
  File lock(descriptor, path, false);
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    return MakeStatus(Code::kBusy, "{}: another {} is writing it", path, command);
  }
  for (const fs::directory_entry& leftover : fs::directory_iterator(path, error)) {
    fs::remove_all(leftover.path(), error);
  }
  return WorkFolder(std::move(lock), target);
}

WorkFolder::~WorkFolder() {
  std::error_code ignored;
  if (lock_.descriptor() >= 0 && !published_) fs::remove_all(path(), ignored);
}

Status WorkFolder::Publish(IoBackend& backend) {
  QUARRY_RETURN_IF_ERROR(backend.SyncDirectory(path()));
  QUARRY_RETURN_IF_ERROR(backend.Rename(path(), target_));
  published_ = true;
  const fs::path parent = fs::path(target_).parent_path();
  return backend.SyncDirectory(parent.empty() ? "." : parent.string());
}

}  // namespace quarry
