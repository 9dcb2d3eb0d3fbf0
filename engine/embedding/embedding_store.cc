#include "quarry/embedding/embedding_store.h"

#include <sys/file.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <thread>
#include <utility>
#include <vector>

#include "embedding_files.h"
#include "quarry/base/kill_point.h"
#include "quarry/base/log.h"
#include "quarry/base/process.h"
#include "quarry/base/trace.h"
#include "quarry/embedding/pooled_table.h"
#include "quarry/format/feature_table.h"
#include "quarry/storage/record_names.h"
#include "row_record.h"

namespace quarry {
namespace {

constexpr uint64_t kFirstGeneration = 1;  // what is left of a table of the same name goes before

Status NoTable(const Store& store, std::string_view name) {
  return MakeStatus(Code::kNotFound, "{}: {}", store.path(),
                    ThereIsNo("embedding table", name, "embedding tables", store.manifest()->embeddings));
}

// Two that write to one page file would overwrite each other's pages. Falls when the file is closed; of a
// process that was killed, when the kernel has done its last requests, which may be after the process is
// gone.
Status LockAlone(const File& file, std::string_view name) {
  constexpr std::chrono::seconds kPatience{2};
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (flock(file.descriptor(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return ErrnoStatus(errno, "lock", file.path());
    if (std::chrono::steady_clock::now() > deadline) {
      return MakeStatus(Code::kBusy, "{}: embedding table \"{}\" is open already: close it first",
                        file.path(), name);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return Status::Ok();
}

// Removes files that no record names: those of `name`, and those of tables that do not exist. Files of other
// tables may belong to checkpoints that are being made.
Status RemoveLeftovers(Store& store, std::string_view name) {
  std::vector<std::string> leftovers;
  QUARRY_RETURN_IF_ERROR(ForEachUnnamedFile(store, [&](const std::string& file) {
    const auto table = TableOfFile(file);
    if (table && (*table == name || store.manifest()->FindEmbedding(*table) == nullptr)) {
      leftovers.push_back(fmt::format("{}/{}/{}", store.path(), kEmbeddingFolder, file));
    }
  }));
  if (leftovers.empty()) return Status::Ok();
  // A commit that failed may have reached the disk, and name one of them. After this one, none does.
  QUARRY_RETURN_IF_ERROR(store.UpdateManifest([](Manifest&) { return Status::Ok(); }));
  KillPoint("embeddings: leftovers settled, not removed");
  for (const std::string& path : leftovers) {
    if (store.backend().Remove(path).ok()) LogInfo("{}: removed, a leftover that no checkpoint needs", path);
  }
  return Status::Ok();
}

Result<PooledTableShape> ShapeOf(const EmbeddingSpec& spec, uint32_t page_bytes) {
  const bool possible =
      spec.row_count > 0 && spec.dim > 0 && spec.dim <= kEmbeddingDimMax && std::isfinite(spec.init_scale) &&
      (spec.element_type == ElementType::kFloat32 || spec.element_type == ElementType::kBfloat16);
  if (!possible || page_bytes == 0 || page_bytes % kPageBytes != 0) {
    return MakeStatus(Code::kInvalidArgument,
                      "an embedding table of {} rows of {} x {} with initial values of scale {} in pages of "
                      "{} bytes: it has rows, 1 to {} elements of float32 or bfloat16, a finite scale, and "
                      "pages of a multiple of {} bytes",
                      spec.row_count, ElementTypeName(spec.element_type), spec.dim, spec.init_scale,
                      page_bytes, kEmbeddingDimMax, kPageBytes);
  }
  return ShapePooledTable(spec, page_bytes - sizeof(PageHeader));
}

EmbeddingRecord RecordOf(std::string_view name, const EmbeddingSpec& spec, uint32_t page_bytes,
                         const PooledTableShape& shape) {
  return {.name = std::string(name),
          .file = PageFileName(name, kFirstGeneration),
          .generation = kFirstGeneration,
          .page_bytes = page_bytes,
          .page_count = shape.page_count,
          .row_count = spec.row_count,
          .dim = spec.dim,
          .element_type = spec.element_type,
          .optimizer = static_cast<uint8_t>(spec.optimizer),
          .init = static_cast<uint8_t>(spec.init),
          .init_scale = spec.init_scale,
          .seed = spec.seed,
          .created_utc = UtcNow()};
}

// A run that was dropped since the table was opened has taken its kept checkpoint along.
void KeepAsNamed(const Manifest& manifest, EmbeddingRecord& next) {
  const EmbeddingRecord* const named = manifest.FindEmbedding(next.name);
  if (named == nullptr) return;  // Publish says so
  next.kept_map_file = named->kept_map_file;
  next.kept_map_generation = named->kept_map_generation;
  next.kept_timestamp = named->kept_timestamp;
}

}  // namespace

uint32_t SmallestPageBytes(const EmbeddingSpec& spec) {
  return static_cast<uint32_t>(RoundUp(RowRecord(spec).bytes() + sizeof(PageHeader), kPageBytes));
}

Status CreateEmbeddings(Store& store, std::string_view name, const EmbeddingSpec& spec, uint32_t page_bytes) {
  if (!IsTableName(name)) {
    return MakeStatus(Code::kUsage,
                      "\"{}\" cannot be the name of an embedding table: use letters, digits, - and _", name);
  }
  if (store.manifest()->FindEmbedding(name) != nullptr) {
    return MakeStatus(Code::kAlreadyExists, "{}: there is an embedding table \"{}\" already", store.path(),
                      name);
  }
  QUARRY_TRY(const PooledTableShape shape, ShapeOf(spec, page_bytes));
  const EmbeddingRecord record = RecordOf(name, spec, page_bytes, shape);
  QUARRY_RETURN_IF_ERROR(
      EnsureSyncedDirectory(store.backend(), fmt::format("{}/{}", store.path(), kEmbeddingFolder)));
  QUARRY_RETURN_IF_ERROR(RemoveLeftovers(store, name));
  QUARRY_TRY(const EmbeddingFiles files, FilesOf(store, record));
  QUARRY_RETURN_IF_ERROR(PageFile::Create(store.backend(), files.pages).status());
  // A commit that fails may have happened: the file stays.
  return store.UpdateManifest([&](Manifest& manifest) {
    manifest.embeddings.push_back(record);
    return Status::Ok();
  });
}

Status DropEmbeddings(Store& store, std::string_view name) {
  const std::shared_ptr<const Manifest> newest = store.manifest();
  const EmbeddingRecord* const record = newest->FindEmbedding(name);
  if (record == nullptr) return NoTable(store, name);
  const auto file = store.backend().Open(store.path() + "/" + record->file, OpenMode::kReadBuffered);
  if (file.ok()) QUARRY_RETURN_IF_ERROR(LockAlone(*file, name));
  // A table whose file is missing can be dropped all the same.
  if (!file.ok() && file.status().code() != Code::kNotFound) return file.status();
  QUARRY_RETURN_IF_ERROR(store.UpdateManifest([&](Manifest& manifest) {
    std::erase_if(manifest.embeddings, [&](const EmbeddingRecord& other) { return other.name == name; });
    return Status::Ok();
  }));
  for (const std::string& dropped : record->files()) Discard(store.backend(), store.path() + "/" + dropped);
  return RemoveLeftovers(store, name);
}

// With its file, as the last checkpoint left it, and nothing in memory.
Result<std::unique_ptr<StoredEmbeddings>> StoredEmbeddings::OpenFile(Store& store, std::string_view name) {
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  const EmbeddingRecord* const record = manifest->FindEmbedding(name);
  if (record == nullptr) return NoTable(store, name);
  QUARRY_TRY(const EmbeddingFiles files, FilesOf(store, *record));
  std::unique_ptr<StoredEmbeddings> opened(new StoredEmbeddings(store, *record));
  auto file = PageFile::Open(store.backend(), files.pages, files.map, files.kept);
  if (!file.ok()) return MissingIsCorruption(file.status());
  opened->file_ = std::move(file).value();
  QUARRY_RETURN_IF_ERROR(LockAlone(opened->file_->file(), name));
  QUARRY_RETURN_IF_ERROR(RemoveLeftovers(store, name));
  return opened;
}

Result<std::unique_ptr<StoredEmbeddings>> StoredEmbeddings::Open(Store& store, MemoryBudget& budget,
                                                                 std::string_view name,
                                                                 const BufferPoolOptions& options) {
  QUARRY_TRY(std::unique_ptr<StoredEmbeddings> opened, OpenFile(store, name));
  QUARRY_TRY(const EmbeddingFiles files, FilesOf(store, opened->record_));
  QUARRY_TRY(opened->pool_, BufferPool::Make(store.backend(), *opened->file_, budget, options,
                                             MakePooledPageInit(files.spec)));
  opened->table_ = MakePooledEmbeddingTable(files.spec, files.shape, *opened->pool_);
  return opened;
}

Result<std::unique_ptr<StoredEmbeddings>> StoredEmbeddings::OpenParts(Store& store, MemoryBudget& budget,
                                                                      std::string_view name,
                                                                      PartLayout layout, uint32_t frames) {
  QUARRY_TRY(std::unique_ptr<StoredEmbeddings> opened, OpenFile(store, name));
  QUARRY_TRY(const EmbeddingFiles files, FilesOf(store, opened->record_));
  if (files.spec != layout.file_spec() || files.pages.page_bytes != layout.page_bytes) {
    return MakeStatus(Code::kInvalidArgument,
                      "{}: embedding table \"{}\" was made for other rows than {} of {} floats in {} parts",
                      files.pages.path, name, layout.rows.row_count, layout.rows.dim, layout.parts());
  }
  QUARRY_TRY(opened->parts_,
             PartedTable::Make(store.backend(), *opened->file_, budget, std::move(layout), frames));
  return opened;
}

BufferPoolStats StoredEmbeddings::stats() const {
  if (pool_) return pool_->stats();
  const PartedStats parts = parts_->stats();
  return {.pages_read = parts.pages_read,
          .pages_written = parts.pages_written,
          .read_wait_seconds = parts.wait_seconds};
}

Status StoredEmbeddings::Checkpoint(int64_t timestamp) {
  StoredEmbeddings* const self = this;
  return CheckpointAll(store_, {&self, 1}, timestamp);
}

Status StoredEmbeddings::WriteMap(int64_t timestamp, KeptMap kept) {
  if (timestamp < record_.timestamp) {
    return MakeStatus(Code::kInvalidArgument,
                      "a checkpoint of embedding table \"{}\" at timestamp {}, and there is one at {}",
                      record_.name, timestamp, record_.timestamp);
  }
  QUARRY_RETURN_IF_ERROR(pool_ ? pool_->Flush() : parts_->Flush());
  KillPoint("embeddings: pages flushed");
  ++next_.map_generation;
  next_.map_file = MapFileName(record_.name, record_.generation, next_.map_generation);
  next_.timestamp = timestamp;
  const bool as_before = kept == KeptMap::kAsBefore, this_one = kept == KeptMap::kThis;
  next_.kept_map_file = as_before ? record_.kept_map_file : this_one ? next_.map_file : std::string();
  next_.kept_map_generation = as_before ? record_.kept_map_generation : this_one ? next_.map_generation : 0;
  next_.kept_timestamp = as_before ? record_.kept_timestamp : this_one ? timestamp : 0;
  return file_->WriteMap(store_.path() + "/" + next_.map_file, next_.map_generation);
}

Status StoredEmbeddings::Publish(Manifest& manifest) const {
  for (EmbeddingRecord& record : manifest.embeddings) {
    if (record.file != record_.file) continue;
    record = next_;
    return Status::Ok();
  }
  return NoTable(store_, record_.name);
}

void StoredEmbeddings::Commit(KeptMap kept) {
  file_->CommitMap(kept);
  const auto discard = [&](uint64_t map) {
    if (map == next_.kept_map_generation) return;
    Discard(store_.backend(), store_.path() + "/" + MapFileName(record_.name, record_.generation, map));
  };
  // The map that was kept, the one before, and those whose commit did not come about.
  const uint64_t kept_map = record_.kept_map_generation;
  if (kept_map > 0 && kept_map < record_.map_generation) discard(kept_map);
  for (uint64_t map = record_.map_generation; map < next_.map_generation; ++map) discard(map);
  record_ = next_;
}

Status CheckpointAll(Store& store, std::span<StoredEmbeddings* const> tables, int64_t timestamp,
                     const std::function<Status(Manifest&)>& also, KeptMap kept) {
  const ScopedSpan span("checkpoint embeddings");
  for (StoredEmbeddings* const table : tables) {
    assert(&table->store_ == &store);
    QUARRY_RETURN_IF_ERROR(table->WriteMap(timestamp, kept));
    KillPoint("embeddings: one map written");
  }
  KillPoint("embeddings: maps written, not named");
  const auto publish = [&](Manifest& manifest) {
    for (StoredEmbeddings* const table : tables) {
      if (kept == KeptMap::kAsBefore) KeepAsNamed(manifest, table->next_);
      QUARRY_RETURN_IF_ERROR(table->Publish(manifest));
    }
    return also ? also(manifest) : Status::Ok();
  };
  QUARRY_RETURN_IF_ERROR(store.UpdateManifest(publish));
  KillPoint("embeddings: named, old maps there");
  for (StoredEmbeddings* const table : tables) table->Commit(kept);
  return Status::Ok();
}

Status ReturnToKept(Store& store, std::span<const std::string> names,
                    const std::function<Status(Manifest&)>& also) {
  std::vector<std::string> gone;
  const auto change = [&](Manifest& manifest) {
    gone.clear();
    for (const std::string& name : names) {
      const auto record = std::ranges::find(manifest.embeddings, name, &EmbeddingRecord::name);
      if (record == manifest.embeddings.end()) return NoTable(store, name);
      if (record->kept_map_file.empty()) {
        return MakeStatus(Code::kInvalidArgument, "{}: embedding table \"{}\" keeps no earlier checkpoint",
                          store.path(), name);
      }
      if (record->kept_map_file != record->map_file) gone.push_back(record->map_file);
      record->map_file = std::exchange(record->kept_map_file, {});
      record->map_generation = std::exchange(record->kept_map_generation, 0);
      record->timestamp = std::exchange(record->kept_timestamp, 0);
    }
    return also ? also(manifest) : Status::Ok();
  };
  QUARRY_RETURN_IF_ERROR(store.UpdateManifest(change));
  KillPoint("embeddings: named, old maps there");
  for (const std::string& file : gone) Discard(store.backend(), store.path() + "/" + file);
  return Status::Ok();
}

}  // namespace quarry
