#include "quarry/storage/checkpoint.h"

#include <algorithm>
#include <filesystem>

#include "checkpoint_files.h"
#include "quarry/base/kill_point.h"
#include "quarry/base/process.h"
#include "quarry/storage/import_workspace.h"
#include "quarry/storage/topology_run.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;

// The catalog's copy says which files belong to it.
Status TakeFiles(const std::string& path, CheckpointFiles& files) {
  KillPoint("checkpoint: catalog copied, no files");
  QUARRY_TRY(const std::unique_ptr<Catalog> catalog, Catalog::Open(path, /*read_only=*/true));
  QUARRY_TRY(const Manifest manifest, catalog->ReadManifest());
  QUARRY_TRY(const uint64_t last_rows, catalog->LastTimestamp());
  files.report().timestamp = std::max(last_rows, StructureTimestamp(manifest));
  return files.Take(manifest);
}

}  // namespace

Status CheckOutside(const std::string& database_path, const std::string& path) {
  std::error_code error;
  const fs::path database = fs::weakly_canonical(database_path, error);
  const fs::path place = fs::weakly_canonical(path, error);
  const auto end = std::mismatch(database.begin(), database.end(), place.begin(), place.end()).first;
  if (error || end != database.end()) return Status::Ok();
  return MakeStatus(Code::kInvalidArgument, "{}: lies in the database {}: put it elsewhere", path,
                    database_path);
}

Result<CheckpointReport> CheckpointStore(Store& store, MemoryBudget& budget, const std::string& path,
                                         const ProgressFunction& progress) {
  const double start = MonotonicSeconds();
  QUARRY_RETURN_IF_ERROR(CheckOutside(store.path(), path));
  QUARRY_TRY(ImportWorkspace workspace,
             ImportWorkspace::Acquire(store.backend(), path, ImportWorkspace::kCopy));
  const std::string copy = workspace.database_path();
  QUARRY_RETURN_IF_ERROR(CreateStoreDirectory(store.backend(), copy));
  CheckpointFiles files(store.backend(), budget, store.path(), copy, progress);
  // While files are linked and page files copied, no other manifest is committed. So no file that this one
  // names goes, and no slot that a named map points to is written over: both happen behind a commit only.
  // Files that have to be copied whole are open by the end of it, and are copied afterwards.
  QUARRY_RETURN_IF_ERROR(store.CopyCatalog(copy, [&] { return TakeFiles(copy, files); }));
  QUARRY_RETURN_IF_ERROR(files.CopyRest());
  KillPoint("checkpoint: files there, not synced");
  QUARRY_RETURN_IF_ERROR(files.Sync());
  QUARRY_RETURN_IF_ERROR(workspace.Publish());
  files.report().seconds = MonotonicSeconds() - start;
  return files.report();
}

}  // namespace quarry
