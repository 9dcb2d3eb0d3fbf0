// ImportWorkspace: the folder `<path>.importing` in which an import builds its database. Private to this
// room.
//
//   <path>.importing/LOCK      held (flock) while the import lives; a folder whose LOCK nobody holds is a
//   leftover <path>.importing/db/       becomes <path> by one rename <path>.importing/scratch/  spilled runs
//
//   (nothing or leftover) -> held [Acquire] -> published [Publish] ; either -> gone [destructor]
#pragma once

#include <string>

#include "quarry/base/status.h"
#include "quarry/io/backend.h"

namespace quarry {

class ImportWorkspace {
 public:
  // Removes what a killed import left. kBusy when another import of `path` is alive, kAlreadyExists when
  // `path` is there.
  static Result<ImportWorkspace> Acquire(IoBackend& backend, const std::string& path);
  ImportWorkspace(ImportWorkspace&& other) noexcept = default;
  ImportWorkspace& operator=(ImportWorkspace&&) = delete;
  ~ImportWorkspace();

  std::string database_path() const { return folder_ + "/db"; }
  std::string scratch_path() const { return folder_ + "/scratch"; }

  // Moves the database, which must be complete and synced, to its path. When that cannot be made durable it
  // is removed.
  Status Publish();

 private:
  ImportWorkspace(IoBackend& backend, std::string path, std::string folder, File lock)
      : backend_(&backend), path_(std::move(path)), folder_(std::move(folder)), lock_(std::move(lock)) {}
  Status Clear() const;

  IoBackend* backend_;
  std::string path_;
  std::string folder_;
  File lock_;
};

}  // namespace quarry
