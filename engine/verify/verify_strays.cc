#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>

#include "quarry/storage/compaction_progress.h"
#include "quarry/storage/leftovers.h"
#include "quarry/storage/topology_run.h"
#include "quarry/storage/version_file.h"
#include "quarry/verify/verify.h"
#include "verify_scan.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;

bool NoteInterruptedCompaction(Verification& run, const Store& store, const CompactionFiles& files,
                               const std::string& what, const std::string& file) {
  if ((file != files.rows && file != files.progress) ||
      IsDeadCompactionFile(run.backend(), store.path(), *store.manifest(), files, file)) {
    return false;
  }
  run.report().AddDamage({Damage::Kind::kLeftover, file});
  if (file == files.progress) {
    Mention(run, "{}/{}: an interrupted compaction of {}: `quarry compact {}` goes on with it", store.path(),
            file, what, store.path());
  }
  return true;
}

// True for the files of a compaction that can go on, which are no fault.
bool NoteInterruptedCompaction(Verification& run, const Store& store, const std::string& file) {
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  for (const TableRecord& table : manifest->tables) {
    const std::string what = fmt::format("table \"{}\"", table.name);
    if (file != table.file && NoteInterruptedCompaction(run, store, table, what, file)) return true;
  }
  for (const TopologyRecord& topology : manifest->topologies) {
    const std::string what = fmt::format("topology \"{}\"", topology.name);
    if (NoteInterruptedCompaction(run, store, topology, what, file)) return true;
  }
  return false;
}

}  // namespace

bool NoteLeftover(Verification& run, const Store& store, const std::string& file) {
  if (std::ranges::count(store.leftovers(), file) == 0) return false;
  run.report().AddDamage({Damage::Kind::kLeftover, file});
  Mention(run, "{}/{}: left over from a command that was interrupted: the next one that writes removes it",
          store.path(), file);
  return true;
}

bool NoteOnlyCopy(Verification& run, const Store& store, const std::string& file) {
  if (!MayBeOnlyCopy(store.path(), *store.manifest(), file)) return false;
  run.SetSubject(Damage::Kind::kForeign, file);
  AddFault(
      run,
      "{}/{}: the catalog names an older file, which is missing, so this may be the only copy: it stays; "
      "restore a checkpoint",
      store.path(), file);
  return true;
}

namespace {

// What else lies beside the database's own folders. It may be anything, so that no repair removes it.
// Sockets, which a server may have there, hold nothing.
Status FindRootStrays(Verification& run, const Store& store) {
  constexpr std::array<std::string_view, 12> kOurs = {
      "LOCK",    "VERSION",         "ANCHOR",   "catalog",    "features",   "topology",
      "layouts", "catalog.damaged", "training", "embeddings", "partitions", kObjectsFile};
  std::error_code error;
  for (fs::directory_iterator entry(store.path(), error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code ignored;
    if (std::ranges::count(kOurs, name) > 0 || entry->is_socket(ignored)) continue;
    if (name == kNewVersionFile) {
      run.report().AddDamage({Damage::Kind::kLeftover, name});
      continue;
    }
    if (name == kRepairingFolder) {
      run.report().AddDamage({Damage::Kind::kLeftover, name});
      Mention(run, "{}: a repair of the catalog was interrupted: `quarry repair {}` removes it",
              entry->path().string(), store.path());
      continue;
    }
    run.SetSubject(Damage::Kind::kForeign, name);
    AddFault(run, "{}: no such {} belongs to a database: move it away", entry->path().string(),
             entry->is_directory(ignored) ? "folder" : "file");
  }
  return error ? ErrnoStatus(error.value(), "list", store.path()) : Status::Ok();
}

}  // namespace

Status FindStrays(Verification& run, const Store& store) {
  std::set<std::string> named;
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  for (const TableRecord& table : manifest->tables) named.insert(table.file);
  for (const TopologyRecord& topology : manifest->topologies) {
    const std::vector<std::string> files = FilesOf(topology);
    named.insert(files.begin(), files.end());
  }
  for (const TrainingRecord& training : manifest->trainings) named.insert(training.file);
  for (const std::string folder : {"features", "topology", "training"}) {
    const std::string path = store.path() + "/" + folder;
    std::error_code error;
    for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
      const std::string file = folder + "/" + entry->path().filename().string();
      if (named.contains(file) || NoteLeftover(run, store, file) ||
          NoteInterruptedCompaction(run, store, file) || NoteOnlyCopy(run, store, file)) {
        continue;
      }
      run.SetSubject(Damage::Kind::kStray, file);
      AddFault(run, "{}/{}: the catalog names no such file: remove it", store.path(), file);
    }
    if (error == std::errc::no_such_file_or_directory) {
      run.SetSubject(Damage::Kind::kFolder, folder);
      if (folder != "training") AddFault(run, "{}: the folder is missing", path);
    } else if (error) {
      return ErrnoStatus(error.value(), "list", path);
    }
  }
  QUARRY_RETURN_IF_ERROR(FindRootStrays(run, store));
  QUARRY_RETURN_IF_ERROR(FindLayoutStrays(run, store));
  return FindPartitioningStrays(run, store);
}

Result<VerifyReport> FindStrays(Store& store) {
  Verification run(store.backend(), {}, 0);
  QUARRY_RETURN_IF_ERROR(FindStrays(run, store));
  return std::move(run.report());
}

}  // namespace quarry
