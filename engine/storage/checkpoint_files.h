// The files of a checkpoint: each comes from one database's folder to the other's by the cheapest way there
// is. Private to this room; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/progress.h"
#include "quarry/base/status.h"
#include "quarry/format/manifest.h"
#include "quarry/io/backend.h"
#include "quarry/storage/checkpoint.h"

namespace quarry {

class CheckpointFiles {
 public:
  CheckpointFiles(IoBackend& backend, MemoryBudget& budget, std::string from, std::string to,
                  const ProgressFunction& progress)
      : backend_(backend), budget_(budget), from_(std::move(from)), to_(std::move(to)), progress_(progress) {}

  // While the manifest stands: links what can be linked, opens the rest, copies page files.
  Status Take(const Manifest& manifest);
  // Afterwards: copies what could not be linked. It may have been removed meanwhile; it is open.
  Status CopyRest();
  // Syncs the catalog's files, and all folders but the database's own.
  Status Sync();

  CheckpointReport& report() { return report_; }

 private:
  struct Pending {
    File file;
    std::string to;
    uint64_t bytes = 0;
  };

  // A file, relative to the database; of the size that its record says, where it does.
  Status TakeFile(const std::string& name, std::optional<uint64_t> expected_bytes);
  Status TakePages(const Manifest& manifest, const EmbeddingRecord& record);
  Status CopyPages(const Manifest& manifest, const EmbeddingRecord& record);
  Result<File> OpenNamed(const std::string& name);
  // Makes the folders above a file, and remembers to sync them.
  Status MakeFolders(const std::string& name);
  // False when the file system cannot.
  Result<bool> Clone(const File& from, const File& to, uint64_t bytes);
  Status CopyBytes(const File& from, const File& to, uint64_t bytes);
  Status SyncCatalogFile(const std::string& path);
  Status Advance(uint64_t bytes);

  IoBackend& backend_;
  MemoryBudget& budget_;
  const std::string from_, to_;
  const ProgressFunction& progress_;
  uint64_t bytes_total_ = 0;
  CheckpointReport report_;
  std::vector<Pending> pending_;
  std::set<std::string> folders_;
};

}  // namespace quarry
