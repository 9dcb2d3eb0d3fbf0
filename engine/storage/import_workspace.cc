#include "quarry/storage/import_workspace.h"

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

// Makes the folder and locks it. Another process may remove a leftover between our steps, so that what was
// locked must still be what the path names.
Result<FolderLock> MakeLocked(IoBackend& backend, const std::string& folder, std::string_view work) {
  constexpr int kTriesMax = 16;
  for (int i = 0; i < kTriesMax; i++) {
    Status made = backend.CreateDirectory(folder);
    if (!made.ok() && made.code() != Code::kAlreadyExists) return made;
    Result<FolderLock> lock = FolderLock::Acquire(folder);
    if (lock.status().code() == Code::kNotFound) continue;
    if (lock.status().code() == Code::kBusy) {
      return MakeStatus(Code::kBusy, "{}: another {} is running; wait for it or stop it", folder, work);
    }
    if (!lock.ok() || lock->Holds(folder)) return lock;
  }
  return MakeStatus(Code::kBusy, "{}: others of this {} come and go; try again", folder, work);
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
  QUARRY_TRY(FolderLock lock, MakeLocked(backend, folder, kind.work));
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
  if (!lock_.held()) return;  // moved from
  if (!Clear().ok()) return;  // a later one tries again
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
