// ImportWorkspace: the folder beside its place in which a database is built, `<path>.importing` of an import,
// `<path>.copying` of a checkpoint.
//
//   <path>.importing/LOCK      locked with its folder (lock.h) while it lives; a folder that nobody holds is
//                              a leftover
//   <path>.importing/db/       becomes <path> by one rename
//   <path>.importing/scratch/  spilled runs
//
//   (nothing or leftover) -> held [Acquire] -> published [Publish] ; either -> gone [destructor]
#pragma once

#include <string>
#include <string_view>

#include "quarry/base/status.h"
#include "quarry/io/backend.h"
#include "quarry/storage/lock.h"

namespace quarry {

class ImportWorkspace {
 public:
  struct Kind {
    std::string_view suffix;
    std::string_view work;  // for messages
  };
  static constexpr Kind kImport{".importing", "import of this database"};
  static constexpr Kind kCopy{".copying", "checkpoint to this place"};

  // Removes what a killed one left. kBusy when another of the same `path` is alive, kAlreadyExists when
  // `path` is there.
  static Result<ImportWorkspace> Acquire(IoBackend& backend, const std::string& path, const Kind& kind);
  ImportWorkspace(ImportWorkspace&& other) noexcept = default;
  ImportWorkspace& operator=(ImportWorkspace&&) = delete;
  ~ImportWorkspace();

  std::string database_path() const { return folder_ + "/db"; }
  std::string scratch_path() const { return folder_ + "/scratch"; }

  // Moves the database, which must be complete and synced, to its path. When that cannot be made durable it
  // is removed.
  Status Publish();

 private:
  ImportWorkspace(IoBackend& backend, std::string path, std::string folder, FolderLock lock)
      : backend_(&backend), path_(std::move(path)), folder_(std::move(folder)), lock_(std::move(lock)) {}
  Status Clear() const;

  IoBackend* backend_;
  std::string path_;
  std::string folder_;
  FolderLock lock_;
};

}  // namespace quarry
