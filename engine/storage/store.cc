#include "quarry/storage/store.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "delta_log.h"
#include "folded_rows.h"
#include "named_file.h"
#include "quarry/base/kill_point.h"
#include "quarry/base/log.h"
#include "quarry/base/mutex.h"
#include "quarry/base/trace.h"
#include "quarry/storage/growth.h"
#include "quarry/storage/growth_cost.h"
#include "quarry/storage/leftovers.h"
#include "quarry/storage/lock.h"
#include "quarry/storage/record_names.h"
#include "quarry/storage/run_merger.h"
#include "quarry/storage/times.h"
#include "quarry/storage/topology_run.h"
#include "quarry/storage/version_file.h"
#include "runs_rights.h"
#include "snapshot_list.h"
#include "store_folder.h"
#include "table_needs.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;

class StoreImpl final : public Store {
 public:
  StoreImpl(IoBackend& backend, std::string path, StoreLock lock, uint32_t version,
            std::unique_ptr<Catalog> catalog, Manifest manifest)
      : backend_(backend),
        path_(std::move(path)),
        lock_(std::move(lock)),
        version_(version),
        catalog_(std::move(catalog)),
        leftovers_(FindLeftovers(backend_, path_, manifest)) {
    SetNewest(std::move(manifest));
  }
  ~StoreImpl() override {
    merger_.Stop();
    remover_->Stop();
  }

  const std::string& path() const override { return path_; }
  uint32_t version() override {
    MutexLock lock(mutex_);
    return version_;
  }
  std::shared_ptr<const Manifest> manifest() const override {
    MutexLock lock(newest_mutex_);
    return newest_;
  }
  std::shared_ptr<Catalog> catalog() override {
    MutexLock lock(mutex_);
    return catalog_;
  }
  IoBackend& backend() override { return backend_; }
  GrowthTally& growth() override { return growth_; }
  RunMerger& merger() override { return merger_; }

  Status PrepareToWrite() override {
    MutexLock lock(preparing_);
    if (prepared_) return Status::Ok();
    QUARRY_RETURN_IF_ERROR(CheckLasting(backend_));
    QUARRY_RETURN_IF_ERROR(DropStaged());
    QUARRY_RETURN_IF_ERROR(DropNames());
    RemoveLeftovers(*this, leftovers());
    prepared_ = true;
    return Status::Ok();
  }

  std::vector<std::string> leftovers() const override {
    std::vector<std::string> there;
    for (const std::string& file : leftovers_) {
      std::error_code error;
      if (fs::exists(fs::symlink_status(path_ + "/" + file, error))) there.push_back(file);
    }
    return there;
  }

  Status UpdateManifest(const std::function<Status(Manifest&)>& change,
                        const Catalog::FoldedRows* folded) override {
    MutexLock one_at_a_time(manifest_mutex_);
    QUARRY_RETURN_IF_ERROR(SettleManifest());
    Manifest next = *manifest();
    QUARRY_RETURN_IF_ERROR(change(next));
    return CommitNext(std::move(next), folded);
  }

  Result<uint64_t> Write(const WriteBatch& batch, const WriteOptions& options) override {
    const ScopedSpan span("commit");
    QUARRY_RETURN_IF_ERROR(PrepareToWrite());
    return deltas_.Write(*manifest(), batch, options);
  }

  Result<std::unique_ptr<LargeWrite>> BeginLargeWrite() override {
    QUARRY_RETURN_IF_ERROR(PrepareToWrite());
    return deltas_.BeginLargeWrite(manifest());
  }

  // Tables first: what their files hold was committed by then, so the snapshot has all of it.
  Result<std::shared_ptr<const Snapshot>> TakeSnapshot() override {
    const std::shared_ptr<Snapshot> snapshot = held_->Make();
    const HeldManifest named = HoldNamed();
    snapshot->node_count = named.manifest->node_count;
    snapshot->tables = named.manifest->tables;
    snapshot->topologies = named.manifest->topologies;
    snapshot->files.assign(named.files.begin(), named.files.end());
    QUARRY_TRY(snapshot->timestamp, deltas_.LastTimestamp());
    // Structure that came between the two is among that of the timestamp: take it, too.
    const uint64_t structure = StructureTimestamp(*manifest());
    if (structure <= snapshot->timestamp && structure > StructureTimestamp(*named.manifest))
      return TakeSnapshot();
    DropNewer(*named.manifest, *snapshot);
    held_->Add(*snapshot);
    return std::shared_ptr<const Snapshot>(snapshot);
  }

  std::vector<HeldSnapshots> Held() const override { return held_->Held(); }

  Result<std::unique_ptr<RowOverlay>> OpenOverlay(std::string_view name,
                                                  std::shared_ptr<const Snapshot> snapshot,
                                                  std::optional<TableVersion> base) override {
    const TableRecord* const record = snapshot->FindTable(name);
    if (record == nullptr) return NoTable(name);
    if (base && base->timestamp > snapshot->timestamp) {
      return MakeStatus(Code::kUnsupported,
                        "{}: rows of table \"{}\" as of {} are newer than the snapshot's, {}", path_, name,
                        base->timestamp, snapshot->timestamp);
    }
    TableRecord table = *record;
    if (base) table.added_rows = 0;  // the base has what it has
    RowBitmap folded;
    std::unique_ptr<FeatureTable> file;
    if (base && base->timestamp >= table.folded) {
      table.folded = base->timestamp;  // the base has all that the file has: versions alone are newer
    } else if (base) {
      QUARRY_TRY(const std::shared_ptr<Catalog> catalog, OpenCatalog(/*writable=*/false));
      QUARRY_TRY(folded, FoldedSince(*catalog, table, *base, path_));
    }
    if (!folded.isEmpty()) {
      QUARRY_TRY(file, OpenTable(*snapshot, name));
    }
    return deltas_.OpenOverlay(backend_, table, std::move(snapshot), std::move(folded), std::move(file));
  }

  Status AcceptDoubts() override {
    QUARRY_TRY(const std::shared_ptr<Catalog> catalog, OpenCatalog(/*writable=*/true));
    return catalog->AcceptDoubts();
  }

  Status CopyCatalog(const std::string& path, const std::function<Status()>& copy_files) override {
    MutexLock no_other_manifest(manifest_mutex_);
    std::shared_ptr<Catalog> writable;
    {
      MutexLock lock(mutex_);  // nobody opens it for writing meanwhile; once it is, it stays so
      if (writable_) writable = catalog_;
      if (!writable_) QUARRY_RETURN_IF_ERROR(catalog_->CopyTo(path));
    }
    if (writable) QUARRY_RETURN_IF_ERROR(writable->CopyTo(path));
    return copy_files();
  }

  Status SwitchTable(const TableRecord& record, std::vector<Catalog::FoldedRows::Change> changed) override {
    const Catalog::FoldedRows folded{record.name, record.generation, std::move(changed)};
    std::string replaced;
    QUARRY_RETURN_IF_ERROR(UpdateManifest(
        [&](Manifest& next) {
          for (TableRecord& table : next.tables) {
            if (table.name != record.name) continue;
            const uint64_t rows = table.row_count;  // more than there were when the file was begun, perhaps
            replaced = std::exchange(table, record).file;
            table.row_count = rows;
            table.added_rows = rows - record.row_count;
          }
          return Status::Ok();
        },
        &folded));
    KillPoint("compaction: named, old file there");
    if (IsUsedAfter(record.name, replaced)) return Status::Ok();
    KillPoint("compaction: old file gone, versions there");
    const ScopedSpan span("drop versions");
    return deltas_.DropVersions(record.name, record.folded);
  }

  Status DropTable(std::string_view name) override {
    QUARRY_RETURN_IF_ERROR(PrepareToWrite());
    QUARRY_TRY(const std::shared_ptr<Catalog> catalog, OpenCatalog(/*writable=*/true));
    MutexLock one_at_a_time(manifest_mutex_);
    QUARRY_RETURN_IF_ERROR(SettleManifest());
    const std::shared_ptr<const Manifest> before = manifest();
    const TableRecord* const table = before->FindTable(name);
    if (table == nullptr) return NoTable(name);
    QUARRY_RETURN_IF_ERROR(CheckNotNeeded(*before, *table, path_));
    Manifest next = *before;
    std::erase_if(next.tables, [&](const TableRecord& other) { return other.name == name; });
    for (NodeTypeRecord& type : next.node_types) {
      if (type.feature_table == name) type.feature_table.clear();
    }
    MutexLock lock(mutex_);  // no snapshot is taken meanwhile
    if (FileOf(table->file).use_count() > 2 || !IsFreeOfOlder(table->name)) {
      return MakeStatus(Code::kBusy, "{}: table \"{}\" is being read: close its readers first", path_, name);
    }
    QUARRY_RETURN_IF_ERROR(catalog->CommitDrop(next, name));
    QUARRY_TRY(next, catalog->ReadManifest());
    SetNewest(std::move(next));
    files_.erase(table->file);
    Discard(backend_, path_ + "/" + table->file);
    return Status::Ok();
  }

  Result<std::unique_ptr<FeatureTable>> OpenTable(std::string_view name) override {
    const HeldManifest newest = HoldNamed();
    const TableRecord* record = newest.manifest->FindTable(name);
    if (record == nullptr) return NoTable(name);
    return FeatureTable::Open(backend_, path_, *record, newest.manifest->database_id);
  }
  Result<std::unique_ptr<FeatureTable>> OpenTable(const Snapshot& snapshot, std::string_view name) override {
    const TableRecord* record = snapshot.FindTable(name);
    if (record == nullptr) return NoTable(name);
    return FeatureTable::Open(backend_, path_, *record, manifest()->database_id);
  }

  Result<std::unique_ptr<Topology>> OpenTopology(std::string_view name) override {
    const HeldManifest newest = HoldNamed();
    const TopologyRecord* record = newest.manifest->FindTopology(name);
    if (record == nullptr) {
      return MakeStatus(Code::kNotFound, "{}: {}", path_,
                        ThereIsNo("topology", name, "topologies", newest.manifest->topologies));
    }
    return OpenRecord(*record, newest.manifest->node_count);
  }
  Result<std::unique_ptr<Topology>> OpenTopology(const Snapshot& snapshot, std::string_view name) override {
    const TopologyRecord* record = snapshot.FindTopology(name);
    if (record == nullptr) return OpenTopology(name);  // which says what there is
    return OpenRecord(*record, snapshot.node_count);
  }

  Result<std::unique_ptr<LargeWrite>> BeginGrowth(uint64_t nodes, uint32_t node_type) override {
    QUARRY_RETURN_IF_ERROR(PrepareToWrite());
    auto grown = std::make_shared<Manifest>(*manifest());
    AddNodes(nodes, node_type, *grown);
    return deltas_.BeginLargeWrite(std::move(grown));
  }

  Status PutNames(uint64_t first, std::span<const std::string> names) override {
    QUARRY_TRY(const std::shared_ptr<Catalog> catalog, OpenCatalog(/*writable=*/true));
    return catalog->PutNames(NameKind::kEntity, first, names);
  }

  // Whoever adds nodes has the right to, so that all names behind the last node's are its own.
  Status DropNames() override {
    {
      MutexLock one_at_a_time(manifest_mutex_);
      QUARRY_RETURN_IF_ERROR(SettleManifest());
    }
    const uint64_t nodes = manifest()->node_count;
    QUARRY_TRY(const std::optional<std::string> name, catalog()->NameOfId(NameKind::kEntity, nodes));
    if (!name) return Status::Ok();
    QUARRY_TRY(const std::shared_ptr<Catalog> catalog, OpenCatalog(/*writable=*/true));
    return catalog->DropNames(NameKind::kEntity, nodes);
  }

  // The latch of manifests is taken before the writers' turn, so that rows never wait for a manifest behind edges.
  Result<uint64_t> CommitGraph(GraphCommit commit) override {
    MutexLock one_at_a_time(manifest_mutex_);
    QUARRY_RETURN_IF_ERROR(SettleManifest());
    Manifest next = *manifest();
    QUARRY_RETURN_IF_ERROR(AddTo(next, commit, path_));
    const auto name = [&](uint64_t timestamp) -> Status {
      manifest_mutex_.AssertHeld();
      SetTime(next, commit, timestamp);
      KillPoint("graph: files written, not named");
      const std::optional<uint64_t> published =
          commit.rows == nullptr ? std::optional<uint64_t>() : timestamp;
      const Status status = CommitNext(std::move(next), nullptr, published);
      unsettled_ = !status.ok();
      return status;
    };
    return deltas_.CommitStructure(name, commit.rows);
  }

  Status SwitchTopology(const TopologyRecord& before, const TopologyRecord& after,
                        const Catalog::FoldedRows& folded) override {
    const auto replace = [&](TopologyRecord& topology) { return ReplaceRuns(before, after, topology); };
    return SwitchRunsOf(before.name, replace, &folded);
  }
  Status SwitchRuns(std::string_view topology, std::span<const TopologyRun> merged,
                    const TopologyRun& run) override {
    const auto replace = [&](TopologyRecord& record) {
      return merged.front().timestamp > FoldedUntil() && ReplaceMerged(merged, run, record);
    };
    return SwitchRunsOf(topology, replace, nullptr);
  }

  std::shared_ptr<RunsHold> HoldRuns(RunsRight right) override {
    std::shared_ptr<RunsHold> held = rights_.Hold(right);
    // A merge that has not seen the fold is named when this latch is free.
    if (right == RunsRight::kFold) MutexLock settled(manifest_mutex_);
    return held;
  }
  uint64_t FoldedUntil() const override { return rights_.FoldedUntil(); }

 private:
  // Removes what a large commit that was interrupted left. Nobody sees it.
  Status DropStaged() {
    QUARRY_TRY(const std::optional<uint64_t> staged, catalog()->StagedTimestamp());
    if (!staged) return Status::Ok();
    QUARRY_TRY(const std::shared_ptr<Catalog> catalog, OpenCatalog(/*writable=*/true));
    KillPoint("open: staged rows there");
    QUARRY_RETURN_IF_ERROR(catalog->DropStaged());
    LogInfo("{}: the rows of a commit that was interrupted were removed", path_);
    return Status::Ok();
  }

  Status NoTable(std::string_view name) const {
    return MakeStatus(Code::kNotFound, "{}: {}", path_,
                      ThereIsNo("table", name, "tables", manifest()->tables));
  }

  Status SwitchRunsOf(std::string_view name, const std::function<bool(TopologyRecord&)>& replace,
                      const Catalog::FoldedRows* folded) {
    std::vector<std::string> gone;
    const auto change = [&](Manifest& next) { return ChangeRuns(next, name, replace, path_, gone); };
    QUARRY_RETURN_IF_ERROR(UpdateManifest(change, folded));
    KillPoint("topology: switched, old files there");
    std::vector<std::shared_ptr<NamedFile>> files;
    MutexLock lock(mutex_);
    for (const std::string& file : gone) files.push_back(Replace(file));
    return Status::Ok();
  }

  Result<std::unique_ptr<Topology>> OpenRecord(const TopologyRecord& record, uint64_t node_count) {
    if (Times::Of(record, node_count).any()) return RefuseTimes(path_, record, node_count);
    QUARRY_TRY(auto topology, Topology::Open(backend_, path_, record, manifest()->database_id));
    topology->set_meter(growth_.MeterOf(record, {topology->open_seconds(), topology->open_run_seconds()}));
    return topology;
  }

  void SetNewest(Manifest manifest) {
    auto newest = std::make_shared<const Manifest>(std::move(manifest));
    MutexLock lock(newest_mutex_);
    newest_.swap(newest);  // the one before goes, if nobody holds it, when the latch is released
  }

  std::shared_ptr<NamedFile> FileOf(const std::string& name) QUARRY_REQUIRES(mutex_) {
    std::shared_ptr<NamedFile>& file = files_[name];
    if (file == nullptr) file = std::make_shared<NamedFile>(remover_, path_ + "/" + name);
    return file;
  }
  // While it is held, whoever puts other files in the place of these.
  HeldManifest HoldNamed() QUARRY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    HeldManifest named{.manifest = manifest(), .files = {}};
    for (const TableRecord& table : named.manifest->tables) named.files.push_back(FileOf(table.file));
    for (const TopologyRecord& topology : named.manifest->topologies)
      for (const std::string& file : FilesOf(topology)) named.files.push_back(FileOf(file));
    return named;
  }
  // Takes it from the files that are named: it goes with the last that has it.
  std::shared_ptr<NamedFile> Replace(const std::string& name) QUARRY_REQUIRES(mutex_) {
    std::shared_ptr<NamedFile> file = FileOf(name);
    files_.erase(name);
    file->Replace();
    return file;
  }

  // After a commit of structure that failed: whether it happened, the catalog knows once it is open anew. Rows that went
  // with it are there if it did, so no manifest from before it may take its place.
  Status SettleManifest() QUARRY_REQUIRES(manifest_mutex_) {
    if (!unsettled_) return Status::Ok();
    QUARRY_TRY(const std::shared_ptr<Catalog> catalog, OpenCatalog(/*writable=*/true));
    QUARRY_RETURN_IF_ERROR(catalog->Recover());
    QUARRY_TRY(Manifest settled, catalog->ReadManifest());
    SetNewest(std::move(settled));
    unsettled_ = false;
    return Status::Ok();
  }

  Status CommitNext(Manifest next, const Catalog::FoldedRows* folded, std::optional<uint64_t> published = {})
      QUARRY_REQUIRES(manifest_mutex_) {
    QUARRY_RETURN_IF_ERROR(DecodeManifest(EncodeManifest(next), path_).status());
    MutexLock lock(mutex_);
    KillPoint("manifest: not committed");
    QUARRY_RETURN_IF_ERROR(writable_ ? catalog_->CommitManifest(next, folded, published)
                                     : CommitAndReopen(next, folded));
    KillPoint("manifest: committed, not known");
    QUARRY_TRY(next, catalog_->ReadManifest());
    SetNewest(std::move(next));
    return Status::Ok();
  }

  // No snapshot has a file of the table that another has replaced.
  bool IsFreeOfOlder(const std::string& table) QUARRY_REQUIRES(mutex_) {
    std::vector<std::weak_ptr<NamedFile>>& older = replaced_[table];
    std::erase_if(older, [](const std::weak_ptr<NamedFile>& old) { return old.expired(); });
    return older.empty();
  }

  // Gives up a file that another has replaced, and says whether snapshots still use it or one before it: they
  // need the versions that the new file holds.
  bool IsUsedAfter(const std::string& table, const std::string& replaced) QUARRY_EXCLUDES(mutex_) {
    std::shared_ptr<NamedFile> file;
    MutexLock lock(mutex_);
    file = Replace(replaced);
    replaced_[table].push_back(file);
    file.reset();
    return !IsFreeOfOlder(table);
  }

  // A catalog that is open for reading only leaves no trace in a database that is only read; the first write
  // of rows opens it for writing, for good. Whoever reads in the one that was open meanwhile keeps it alive.
  Result<std::shared_ptr<Catalog>> OpenCatalog(bool writable) QUARRY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (writable && !writable_) {
      QUARRY_TRY(catalog_, OpenWriter());
      writable_ = true;
    }
    return catalog_;
  }

  bool anchored() const QUARRY_REQUIRES(mutex_) { return version_ >= kAnchoredVersion; }
  Result<std::unique_ptr<Catalog>> OpenWriter() QUARRY_REQUIRES(mutex_) {
    QUARRY_RETURN_IF_ERROR(CheckLasting(backend_));
    QUARRY_TRY(std::unique_ptr<Catalog> catalog, Catalog::Open(path_, /*read_only=*/false, anchored()));
    if (version_ < kStoreVersion) {
      QUARRY_RETURN_IF_ERROR(WriteVersionFile(backend_, path_));
      version_ = kStoreVersion;
    }
    return catalog;
  }

  // Opened anew, also after an error, because the writer may delete files that the open one relies on.
  Status CommitAndReopen(const Manifest& manifest, const Catalog::FoldedRows* folded)
      QUARRY_REQUIRES(mutex_) {
    const auto commit = [&]() -> Status {
      mutex_.AssertHeld();
      QUARRY_TRY(const std::unique_ptr<Catalog> writable, OpenWriter());
      QUARRY_RETURN_IF_ERROR(writable->CommitManifest(manifest, folded));
      return writable->Close();
    };
    const Status committed = commit();
    Result<std::unique_ptr<Catalog>> reopened = Catalog::Open(path_, /*read_only=*/true, anchored());
    if (!reopened.ok()) return committed.ok() ? reopened.status() : committed;
    catalog_ = std::move(reopened).value();
    return committed;
  }

  IoBackend& backend_;
  const std::shared_ptr<FileRemover> remover_ = std::make_shared<FileRemover>(backend_);
  const std::string path_;
  Mutex preparing_;  // taken before the others
  bool prepared_ QUARRY_GUARDED_BY(preparing_) = false;
  const StoreLock lock_;  // held until the catalog is closed
  Mutex manifest_mutex_;  // for changes of the manifest; taken before mutex_
  bool unsettled_ QUARRY_GUARDED_BY(manifest_mutex_) = false;  // a commit failed: it may stand, or not
  Mutex mutex_;
  uint32_t version_ QUARRY_GUARDED_BY(mutex_);  // what the file VERSION says
  std::shared_ptr<Catalog> catalog_ QUARRY_GUARDED_BY(mutex_);
  bool writable_ QUARRY_GUARDED_BY(mutex_) = false;
  const std::vector<std::string> leftovers_;  // when it was opened
  mutable Mutex newest_mutex_;                // taken last
  std::shared_ptr<const Manifest> newest_ QUARRY_GUARDED_BY(newest_mutex_);
  std::map<std::string, std::shared_ptr<NamedFile>> files_ QUARRY_GUARDED_BY(mutex_);  // by name
  // Each table's files that snapshots kept when they were replaced.
  std::map<std::string, std::vector<std::weak_ptr<NamedFile>>> replaced_ QUARRY_GUARDED_BY(mutex_);
  const std::shared_ptr<SnapshotList> held_ = std::make_shared<SnapshotList>();
  GrowthTally growth_;
  RunsRights rights_;
  DeltaLog deltas_{path_, [this](bool writable) { return OpenCatalog(writable); },
                   DeltaLog::kCommitsBesideMax, [this] { return StructureTimestamp(*manifest()); }};
  RunMerger merger_{*this};
};

}  // namespace

Result<std::unique_ptr<Store>> Store::Open(IoBackend& backend, const std::string& path) {
  QUARRY_RETURN_IF_ERROR(CheckFolder(backend, path));
  QUARRY_TRY(StoreLock lock, StoreLock::Acquire(path));
  QUARRY_TRY(const uint32_t version, ReadVersionFile(backend, path));
  Result<std::unique_ptr<Catalog>> catalog =
      Catalog::Open(path, /*read_only=*/true, /*anchored=*/version >= kAnchoredVersion);
  if (catalog.status().code() == Code::kNotFound) {
    return MakeStatus(Code::kCorruption, "{}: the folder catalog/ is missing: restore it or import again",
                      path);
  }
  QUARRY_RETURN_IF_ERROR(catalog.status());
  QUARRY_TRY(Manifest manifest, (*catalog)->ReadManifest());
  return std::unique_ptr<Store>(std::make_unique<StoreImpl>(backend, path, std::move(lock), version,
                                                            std::move(catalog).value(), std::move(manifest)));
}

}  // namespace quarry
