#include "quarry/verify/repair.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "quarry/storage/lock.h"
#include "quarry/storage/version_file.h"
#include "verify_scan.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;

// Why a catalog does not open, or has no manifest.
Status FaultOfCatalog(IoBackend& backend, const std::string& database_path) {
  const Result<uint32_t> version = ReadVersionFile(backend, database_path);
  // A disk that fails may be read another time, and a newer Quarry's catalog is not for this one to judge.
  if (!version.ok() && version.status().code() != Code::kCorruption) return version.status();
  const bool anchored = !version.ok() || *version >= kAnchoredVersion;
  QUARRY_TRY(const std::unique_ptr<Catalog> catalog,
             Catalog::Open(database_path, /*read_only=*/true, anchored));
  return catalog->ReadManifest().status();
}

Status SyncFolder(IoBackend& backend, const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    QUARRY_TRY(const File file, backend.Open(entry->path().string(), OpenMode::kReadBuffered));
    QUARRY_RETURN_IF_ERROR(backend.SyncFile(file));
  }
  return error ? ErrnoStatus(error.value(), "list", folder) : backend.SyncDirectory(folder);
}

// The catalogs of a database that is being repaired.
struct CatalogPaths {
  explicit CatalogPaths(const std::string& database_path)
      : database(database_path),
        catalog(database_path + "/catalog"),
        damaged(database_path + "/catalog.damaged"),
        workspace(fmt::format("{}/{}", database_path, kRepairingFolder)) {}
  const std::string database, catalog, damaged, workspace;
};

// A death within Exchange left no catalog, or the new one with the old one's anchor.
Status EndHalfExchange(IoBackend& backend, const CatalogPaths& paths) {
  std::error_code error;
  if (!fs::exists(paths.catalog, error) && fs::exists(paths.damaged, error)) {
    return backend.Rename(paths.damaged, paths.catalog);
  }
  const std::string repaired = paths.workspace + "/catalog", anchor = paths.workspace + "/ANCHOR";
  if (fs::exists(repaired, error) || !fs::exists(paths.workspace, error) ||
      !fs::exists(paths.damaged, error)) {
    return Status::Ok();
  }
  QUARRY_RETURN_IF_ERROR(backend.SyncDirectory(paths.database));
  if (fs::exists(anchor, error)) {
    QUARRY_RETURN_IF_ERROR(backend.Rename(anchor, paths.database + "/ANCHOR"));
    // Before the workspace goes: without it nobody would know of an anchor that the power took back.
    QUARRY_RETURN_IF_ERROR(backend.SyncDirectory(paths.database));
  }
  Discard(backend, paths.workspace);
  return backend.SyncDirectory(paths.database);
}

Status Exchange(IoBackend& backend, const CatalogPaths& paths) {
  const std::string repaired = paths.workspace + "/catalog";
  QUARRY_RETURN_IF_ERROR(SyncFolder(backend, repaired));
  QUARRY_RETURN_IF_ERROR(backend.Rename(paths.catalog, paths.damaged));
  if (const Status status = backend.Rename(repaired, paths.catalog); !status.ok()) {
    QUARRY_RETURN_IF_ERROR(EndHalfExchange(backend, paths));
    return status;
  }
  return EndHalfExchange(backend, paths);
}

// A salvaged catalog's ledger is one of today, in which an older Quarry would miss commits. A VERSION that is damaged
// lets none in, and is for Store::Open to report.
Status CloseToOlder(IoBackend& backend, const std::string& database_path) {
  const Result<uint32_t> version = ReadVersionFile(backend, database_path);
  if (!version.ok()) return version.status().code() == Code::kCorruption ? Status::Ok() : version.status();
  return *version < kStoreVersion ? WriteVersionFile(backend, database_path) : Status::Ok();
}

Result<SalvagedCatalog> SalvageCatalog(IoBackend& backend, const CatalogPaths& paths) {
  std::error_code error;
  QUARRY_RETURN_IF_ERROR(RemoveTree(backend, paths.workspace));
  QUARRY_RETURN_IF_ERROR(backend.CreateDirectory(paths.workspace));
  Result<SalvagedCatalog> salvaged = Catalog::Salvage(paths.database, paths.workspace);
  Status status = salvaged.status();
  if (status.ok()) status = CloseToOlder(backend, paths.database);
  if (status.ok()) status = Exchange(backend, paths);
  // Where the new catalog has its place and its anchor has not, the next repair goes on with it.
  if (status.ok() || fs::exists(paths.workspace + "/catalog", error)) Discard(backend, paths.workspace);
  QUARRY_RETURN_IF_ERROR(status);
  return salvaged;
}

// One repair of a store: first everything is sorted into the report, then what it says is done.
class Repair {
 public:
  Repair(Store& store, const RepairOptions& options) : store_(store), options_(options) {}

  RepairReport& report() { return report_; }

  Status Plan(const VerifyReport& found) {
    for (const Damage& damage : found.damages) {
      if (damage.kind != Damage::Kind::kTable || damage.row_count > 0) continue;
      if (store_.OpenTable(damage.name).status().code() == Code::kCorruption) unusable_.insert(damage.name);
    }
    for (const Damage& damage : found.damages) QUARRY_RETURN_IF_ERROR(Sort(damage));
    return Status::Ok();
  }

  Status Run() {
    for (const std::string& folder : report_.folders) {
      QUARRY_RETURN_IF_ERROR(EnsureSyncedDirectory(store_.backend(), store_.path() + "/" + folder));
    }
    if (!report_.accepted.empty()) QUARRY_RETURN_IF_ERROR(store_.AcceptDoubts());
    if (report_.removed.empty() && report_.layouts.empty() && report_.partitionings.empty() &&
        report_.trainings.empty()) {
      return Status::Ok();
    }
    // A commit that failed may have reached the disk, and name something that is to be removed. After this
    // one, none does.
    QUARRY_RETURN_IF_ERROR(store_.UpdateManifest([&](Manifest& manifest) {
      Forget(report_.layouts, manifest.layouts);
      Forget(report_.partitionings, manifest.partitionings);
      Forget(report_.trainings, manifest.trainings);
      return Status::Ok();
    }));
    for (const LayoutRecord& layout : report_.layouts) QUARRY_RETURN_IF_ERROR(Remove(layout.directory));
    for (const PartitioningRecord& partitioning : report_.partitionings) {
      QUARRY_RETURN_IF_ERROR(Remove(partitioning.directory));
    }
    for (const TrainingRecord& training : report_.trainings) QUARRY_RETURN_IF_ERROR(Remove(training.file));
    for (const std::string& path : report_.removed) QUARRY_RETURN_IF_ERROR(Remove(path));
    return Status::Ok();
  }

 private:
  Status Sort(const Damage& damage) {
    const std::shared_ptr<const Manifest> manifest = store_.manifest();
    switch (damage.kind) {
      case Damage::Kind::kStray:
      case Damage::Kind::kLeftover:
        report_.removed.push_back(damage.name);
        return Status::Ok();
      case Damage::Kind::kFolder:
        report_.folders.push_back(damage.name);
        return Status::Ok();
      case Damage::Kind::kLayout:
        report_.layouts.push_back(*manifest->FindLayout(damage.name));
        return Status::Ok();
      case Damage::Kind::kPartitioning:
        report_.partitionings.push_back(*manifest->FindPartitioning(damage.name));
        return Status::Ok();
      case Damage::Kind::kTable:
        return SortTable(damage);
      case Damage::Kind::kOldRows:
        if (!options_.drop_damaged) break;
        report_.accepted.push_back({damage.name, damage.first_row, damage.row_count, false});
        return Status::Ok();
      case Damage::Kind::kTraining:
        if (!options_.drop_damaged) break;
        report_.trainings.push_back(*manifest->FindTraining(damage.name));
        return Status::Ok();
      case Damage::Kind::kEmbedding:
        if (!options_.drop_damaged) break;
        report_.embeddings.push_back(damage.name);
        return Status::Ok();
      case Damage::Kind::kCatalog:
      case Damage::Kind::kVersion:
      case Damage::Kind::kForeign:
      case Damage::Kind::kTopology:
        break;
    }
    report_.lost.push_back(damage);
    return Status::Ok();
  }

  Status SortTable(const Damage& damage) {
    const bool unusable = unusable_.contains(damage.name);
    if (damage.row_count > 0) return unusable ? Status::Ok() : SortRows(damage);
    report_.lost.push_back(damage);
    if (!unusable) return Status::Ok();
    const std::shared_ptr<const Manifest> manifest = store_.manifest();
    const TableRecord& table = *manifest->FindTable(damage.name);
    return SortRows({damage.kind, damage.name, 0, table.row_count});
  }

  Status SortRows(const Damage& damage) {
    QUARRY_TRY(std::shared_ptr<const Snapshot> snapshot, store_.TakeSnapshot());
    QUARRY_TRY(const auto newer, store_.OpenOverlay(damage.name, std::move(snapshot)));
    bool continued = false;
    for (uint64_t row = damage.first_row; row < damage.first_row + damage.row_count; ++row) {
      const bool replaced = newer->Touched(row);
      if (!continued || report_.rows.back().replaced != replaced) {
        report_.rows.push_back({damage.name, row, 0, replaced});
      }
      ++report_.rows.back().row_count;
      continued = true;
    }
    return Status::Ok();
  }

  template <typename Record>
  static void Forget(const std::vector<Record>& dropped, std::vector<Record>& records) {
    for (const Record& record : dropped) {
      std::erase_if(records, [&](const Record& other) { return other.name == record.name; });
    }
  }

  // Synced: what a report says is gone does not come back with a power failure.
  Status Remove(const std::string& name) {
    const fs::path path = store_.path() + "/" + name;
    QUARRY_RETURN_IF_ERROR(RemoveTree(store_.backend(), path.string()));
    return store_.backend().SyncDirectory(path.parent_path().string());
  }

  Store& store_;
  const RepairOptions options_;
  RepairReport report_;
  std::set<std::string> unusable_;  // tables whose file does not open
};

}  // namespace

Result<std::optional<CatalogRepair>> RepairCatalog(IoBackend& backend, const std::string& path,
                                                   bool dry_run) {
  std::error_code error;
  if (!fs::exists(path + "/VERSION", error)) return std::optional<CatalogRepair>();  // Store::Open tells
  const CatalogPaths paths(path);
  QUARRY_TRY(const StoreLock lock, StoreLock::Acquire(path));
  QUARRY_RETURN_IF_ERROR(EndHalfExchange(backend, paths));
  CatalogRepair repair{.fault = FaultOfCatalog(backend, path), .damaged_path = paths.damaged};
  if (repair.fault.ok()) return std::optional<CatalogRepair>();
  if (repair.fault.code() != Code::kCorruption) return repair.fault;  // nobody knows what is in it
  if (dry_run) return std::optional(std::move(repair));
  if (fs::exists(paths.damaged, error)) {
    return MakeStatus(Code::kAlreadyExists,
                      "{}: the catalog of an earlier repair is there; move it away or remove it",
                      paths.damaged);
  }
  QUARRY_TRY(SalvagedCatalog salvaged, SalvageCatalog(backend, paths));
  repair.lost_tables = std::move(salvaged.lost_tables);
  repair.timestamp = salvaged.timestamp;
  repair.proven = salvaged.doubts.empty();
  return std::optional(std::move(repair));
}

Result<RepairReport> RepairStore(Store& store, const VerifyReport& found, const RepairOptions& options) {
  Repair repair(store, options);
  QUARRY_RETURN_IF_ERROR(repair.Plan(found));
  if (!options.dry_run) QUARRY_RETURN_IF_ERROR(repair.Run());
  return std::move(repair.report());
}

}  // namespace quarry
