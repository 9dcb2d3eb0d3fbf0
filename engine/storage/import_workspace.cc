#include "import_workspace.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

#include "quarry/base/kill_point.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;

std::string ParentOf(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

// Makes the folder and holds its LOCK. Another process may remove a leftover between our steps, so that what
// was locked must still be what the path names.
Result<File> LockFolder(IoBackend& backend, const std::string& folder, std::string_view work) {
  constexpr int kTriesMax = 16;
  const std::string lock_path = folder + "/LOCK";
  for (int i = 0; i < kTriesMax; i++) {
    Status made = backend.CreateDirectory(folder);
    if (!made.ok() && made.code() != Code::kAlreadyExists) return made;
    const int descriptor = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (descriptor < 0 && errno == ENOENT) continue;
    if (descriptor < 0) return ErrnoStatus(errno, "create", lock_path);
    File lock(descriptor, lock_path, /*direct=*/false);
    if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return ErrnoStatus(errno, "lock", lock_path);
      return MakeStatus(Code::kBusy, "{}: another {} is running; wait for it or stop it", lock_path, work);
    }
    struct stat held {};
    struct stat named {};
    if (fstat(descriptor, &held) == 0 && stat(lock_path.c_str(), &named) == 0 &&
        held.st_ino == named.st_ino && held.st_dev == named.st_dev) {
      return lock;
    }
  }
  return MakeStatus(Code::kBusy, "{}: others of this {} come and go; try again", lock_path, work);
}

}  // namespace

Result<ImportWorkspace> ImportWorkspace::Acquire(IoBackend& backend, const std::string& given_path,
                                                 const Kind& kind) {
  std::string path = given_path;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (path.empty() || path == "/") {
    return MakeStatus(Code::kInvalidArgument, "'{}' is no path for a database", given_path);
  }
  std::error_code error;
  if (!fs::is_directory(ParentOf(path), error)) {
    return MakeStatus(Code::kNotFound, "{}: there is no folder {} to put the database in", path,
                      ParentOf(path));
  }
  std::string folder = path + std::string(kind.suffix);
  // Before anything is made or removed: one that is refused leaves everything as it was, unless there are
  // leftovers.
  const bool exists = fs::exists(fs::symlink_status(path, error));
  if (exists && !fs::exists(folder, error)) {
    return MakeStatus(Code::kAlreadyExists, "{} exists already; choose another path or remove it first",
                      path);
  }
  QUARRY_TRY(File lock, LockFolder(backend, folder, kind.work));
  ImportWorkspace workspace(backend, path, folder, std::move(lock));
  QUARRY_RETURN_IF_ERROR(workspace.Clear());
  if (fs::exists(fs::symlink_status(path, error))) {
    return MakeStatus(Code::kAlreadyExists, "{} exists already; choose another path or remove it first",
                      path);
  }
  QUARRY_RETURN_IF_ERROR(backend.CreateDirectory(workspace.scratch_path()));
  return workspace;
}

// The LOCK goes last of all: without it the folder counts as a leftover.
Status ImportWorkspace::Clear() const {
  for (const std::string& path : {database_path(), scratch_path()}) {
    QUARRY_RETURN_IF_ERROR(RemoveTree(*backend_, path));
  }
  return Status::Ok();
}

ImportWorkspace::~ImportWorkspace() {
  if (lock_.descriptor() < 0) return;  // moved from
  if (!Clear().ok()) return;           // a later one tries again
  static_cast<void>(backend_->Remove(folder_ + "/LOCK").ok());
  static_cast<void>(backend_->Remove(folder_).ok());
}

Status ImportWorkspace::Publish() {
  QUARRY_RETURN_IF_ERROR(backend_->SyncDirectory(database_path()));
  KillPoint("import: built, not renamed");
  QUARRY_RETURN_IF_ERROR(backend_->Rename(database_path(), path_));
  KillPoint("import: renamed, folder not synced");
  Status durable = backend_->SyncDirectory(ParentOf(path_));
  if (!durable.ok()) Discard(*backend_, path_);
  return durable;
}

}  // namespace quarry
