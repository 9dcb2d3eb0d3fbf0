#include "checkpoint_files.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "quarry/base/trace.h"
#include "quarry/base/units.h"
#include "quarry/buffer/page_file.h"
#include "quarry/io/buffer.h"
#include "quarry/storage/layout_files.h"
#include "quarry/storage/partition_files.h"
#include "quarry/storage/scanner.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kPieceBytes = 1 * kMiB;
constexpr uint64_t kMapBytesPerPage = 200;  // maps of both page files, and the order in which pages are read

PageFileSpec PagesOf(const std::string& database_path, const Manifest& manifest,
                     const EmbeddingRecord& record) {
  return {.path = database_path + "/" + record.file,
          .database_id = manifest.database_id,
          .generation = record.generation,
          .page_bytes = record.page_bytes,
          .page_count = record.page_count};
}

PageMapName MapOf(const std::string& database_path, const EmbeddingRecord& record) {
  if (record.map_file.empty()) return {};
  return {.path = database_path + "/" + record.map_file, .generation = record.map_generation};
}

PageMapName KeptMapOf(const std::string& database_path, const EmbeddingRecord& record) {
  if (record.kept_map_file.empty()) return {};
  return {.path = database_path + "/" + record.kept_map_file, .generation = record.kept_map_generation};
}

// Writes pages one behind the other into a new page file.
class PageAppender {
 public:
  static Result<PageAppender> Make(IoBackend& backend, const PageFileSpec& spec) {
    PageAppender appender(backend, spec.page_bytes);
    QUARRY_TRY(appender.file_, PageFile::Create(backend, spec));
    QUARRY_TRY(appender.buffer_, IoBuffer::Allocate(appender.pages_max_ * spec.page_bytes));
    return appender;
  }

  Status Append(PageNumber page, std::span<const std::byte> body) {
    const uint32_t slot = file_->AllocateSlot();
    const std::span<std::byte> bytes =
        buffer_.span().subspan(pages_.size() * file_->page_bytes(), file_->page_bytes());
    std::memcpy(bytes.data() + sizeof(PageHeader), body.data(), body.size());
    pages_.emplace_back(page, SealPage(page, /*version=*/1, slot, bytes));
    return pages_.size() == pages_max_ ? Flush() : Status::Ok();
  }

  // Writes the map of what was appended, of each page the last. Pages that it names stay as they are.
  Status WriteMap(const PageMapName& map) {
    QUARRY_RETURN_IF_ERROR(Flush());
    if (map.path.empty()) return Status::Ok();
    QUARRY_RETURN_IF_ERROR(file_->WriteMap(map.path, map.generation));
    file_->CommitMap(KeptMap::kThis);
    return Status::Ok();
  }

 private:
  PageAppender(IoBackend& backend, uint32_t page_bytes)
      : backend_(&backend), pages_max_(std::max<size_t>(1, kPieceBytes / page_bytes)) {}

  Status Flush() {
    if (pages_.empty()) return Status::Ok();
    QUARRY_RETURN_IF_ERROR(backend_->WriteAt(file_->file(), file_->SlotOffset(pages_.front().second.slot),
                                             buffer_.span().first(pages_.size() * file_->page_bytes())));
    for (const auto& [page, entry] : pages_) file_->SetEntry(page, entry);
    pages_.clear();
    return Status::Ok();
  }

  IoBackend* backend_;
  size_t pages_max_;
  std::unique_ptr<PageFile> file_;
  IoBuffer buffer_;
  std::vector<std::pair<PageNumber, PageEntry>> pages_;  // in buffer_
};

}  // namespace

Status CheckpointFiles::Take(const Manifest& manifest) {
  const ScopedSpan span("link files");
  std::vector<std::pair<std::string, uint64_t>> files;
  for (const TableRecord& table : manifest.tables) files.emplace_back(table.file, table.file_bytes);
  for (const TopologyRecord& topology : manifest.topologies) {
    files.emplace_back(topology.file, topology.file_bytes);
    for (const TopologyRun& run : topology.runs) files.emplace_back(run.file, run.file_bytes);
  }
  for (const LayoutRecord& layout : manifest.layouts) {
    for (const LayoutFile& file : FilesOf(layout)) files.emplace_back(file.path, file.bytes);
  }
  for (const PartitioningRecord& partitioning : manifest.partitionings) {
    for (const LayoutFile& file : FilesOf(partitioning)) files.emplace_back(file.path, file.bytes);
  }
  for (const TrainingRecord& training : manifest.trainings) {
    files.emplace_back(training.file, training.file_bytes);
  }
  for (const auto& [name, bytes] : files) bytes_total_ += bytes;
  for (const auto& [name, bytes] : files) QUARRY_RETURN_IF_ERROR(TakeFile(name, bytes));
  for (const EmbeddingRecord& record : manifest.embeddings) {
    QUARRY_RETURN_IF_ERROR(TakePages(manifest, record));
  }
  return Status::Ok();
}

Result<File> CheckpointFiles::OpenNamed(const std::string& name) {
  Result<File> opened = backend_.Open(from_ + "/" + name, OpenMode::kReadDirect);
  if (opened.status().code() != Code::kNotFound) return opened;
  return MakeStatus(Code::kCorruption, "{}/{}: the catalog names this file, and it is missing: restore it",
                    from_, name);
}

Status CheckpointFiles::MakeFolders(const std::string& name) {
  for (fs::path folder = fs::path(name).parent_path(); !folder.empty(); folder = folder.parent_path()) {
    folders_.insert(to_ + "/" + folder.string());
  }
  fs::path folder = to_;
  for (const fs::path& part : fs::path(name).parent_path()) {
    folder /= part;
    QUARRY_RETURN_IF_ERROR(EnsureDirectory(backend_, folder.string()));
  }
  return Status::Ok();
}

Status CheckpointFiles::TakeFile(const std::string& name, std::optional<uint64_t> expected_bytes) {
  QUARRY_TRY(File file, OpenNamed(name));
  QUARRY_TRY(const uint64_t bytes, backend_.FileBytes(file));
  if (expected_bytes && bytes != *expected_bytes) {
    return MakeStatus(Code::kCorruption, "{}: {} bytes where the catalog says {}: `quarry verify` it first",
                      file.path(), bytes, *expected_bytes);
  }
  QUARRY_RETURN_IF_ERROR(MakeFolders(name));
  const std::string to = to_ + "/" + name;
  // A link will do because nobody opens a file for writing once the manifest names it; page files and LOCK,
  // which are written to, never come here. Whatever keeps the file from being linked, it is copied.
  if (!backend_.Link(file.path(), to).ok()) {
    pending_.push_back({std::move(file), to, bytes});
    return Status::Ok();
  }
  ++report_.files_linked;
  return Advance(bytes);
}

Result<bool> CheckpointFiles::Clone(const File& from, const File& to, uint64_t bytes) {
  QUARRY_TRY(const bool cloned, backend_.Clone(from, to));
  if (!cloned) return false;
  QUARRY_RETURN_IF_ERROR(backend_.SyncFile(to));
  ++report_.files_reflinked;
  QUARRY_RETURN_IF_ERROR(Advance(bytes));
  return true;
}

// Writes the pages that the map names, verified, one behind the other, with a map of their own: what else is
// in the file belongs to nobody or is being written. So the copy has no free slots, and no page that does not
// verify gets into it. Pages that only the last map names come behind those of the kept one.
Status CheckpointFiles::CopyPages(const Manifest& manifest, const EmbeddingRecord& record) {
  QUARRY_TRY(const MemoryBudget::Reservation reservation,
             budget_.Reserve(8 * kPieceBytes + record.page_count * kMapBytesPerPage, "copying a page file"));
  QUARRY_TRY(PageAppender appender, PageAppender::Make(backend_, PagesOf(to_, manifest, record)));
  Status appended;
  const PageVisit append = [&](PageNumber page, const Result<std::span<const std::byte>>& body) {
    if (!appended.ok()) return;
    appended = body.ok() ? appender.Append(page, *body) : body.status();
    report_.bytes_copied += record.page_bytes;
    if (appended.ok()) appended = Advance(record.page_bytes);
  };
  const PageFileSpec from = PagesOf(from_, manifest, record);
  const PageMapName kept = KeptMapOf(from_, record);
  const bool keeps_another = !kept.path.empty() && record.kept_map_file != record.map_file;
  if (keeps_another) {
    QUARRY_RETURN_IF_ERROR(VerifyPageFile(backend_, from, kept, append));
    QUARRY_RETURN_IF_ERROR(appended);
    QUARRY_RETURN_IF_ERROR(appender.WriteMap(KeptMapOf(to_, record)));
  }
  QUARRY_RETURN_IF_ERROR(
      VerifyPageFile(backend_, from, MapOf(from_, record), append, keeps_another ? kept : PageMapName{}));
  QUARRY_RETURN_IF_ERROR(appended);
  report_.files_copied += record.files().size();
  return appender.WriteMap(MapOf(to_, record));
}

Status CheckpointFiles::TakePages(const Manifest& manifest, const EmbeddingRecord& record) {
  QUARRY_TRY(const File file, OpenNamed(record.file));
  QUARRY_TRY(const uint64_t bytes, backend_.FileBytes(file));
  QUARRY_RETURN_IF_ERROR(MakeFolders(record.file));
  const std::string to = to_ + "/" + record.file;
  bool cloned = false;
  {
    QUARRY_TRY(const File clone, backend_.Open(to, OpenMode::kCreateDirect));
    QUARRY_TRY(cloned, Clone(file, clone, bytes));
  }
  if (cloned) {
    for (const std::string& name : record.files()) {
      if (name != record.file) QUARRY_RETURN_IF_ERROR(TakeFile(name, {}));
    }
    return Status::Ok();
  }
  QUARRY_RETURN_IF_ERROR(backend_.Remove(to));
  return CopyPages(manifest, record);
}

Status CheckpointFiles::CopyBytes(const File& from, const File& to, uint64_t bytes) {
  QUARRY_TRY(const MemoryBudget::Reservation reservation,
             budget_.Reserve(FileScanner::kDepth * kPieceBytes, "copying a file"));
  QUARRY_TRY(const auto scanner, FileScanner::Make(backend_, from, 0, bytes, kPieceBytes));
  for (uint64_t offset = 0; offset < bytes;) {
    QUARRY_TRY(const std::span<const std::byte> piece, scanner->Next());
    QUARRY_RETURN_IF_ERROR(backend_.WriteAt(to, offset, piece));
    offset += piece.size();
    report_.bytes_copied += piece.size();
    QUARRY_RETURN_IF_ERROR(Advance(piece.size()));
  }
  ++report_.files_copied;
  return backend_.SyncFile(to);
}

Status CheckpointFiles::CopyRest() {
  const ScopedSpan span("copy files");
  for (const Pending& pending : pending_) {
    QUARRY_TRY(const File to, backend_.Open(pending.to, OpenMode::kCreateDirect));
    QUARRY_TRY(const bool cloned, Clone(pending.file, to, pending.bytes));
    if (!cloned) QUARRY_RETURN_IF_ERROR(CopyBytes(pending.file, to, pending.bytes));
  }
  pending_.clear();
  return Status::Ok();
}

Status CheckpointFiles::SyncCatalogFile(const std::string& path) {
  QUARRY_TRY(const File file, backend_.Open(path, OpenMode::kReadBuffered));
  QUARRY_TRY(const uint64_t bytes, backend_.FileBytes(file));
  std::error_code error;
  const bool linked = fs::hard_link_count(path, error) > 1;
  ++(linked ? report_.files_linked : report_.files_copied);
  report_.bytes += bytes;
  if (!linked) report_.bytes_copied += bytes;
  return backend_.SyncFile(file);
}

Status CheckpointFiles::Sync() {
  const ScopedSpan span("sync");
  const std::string catalog = to_ + "/catalog";
  std::error_code error;
  for (fs::directory_iterator entry(catalog, error), end; !error && entry != end; entry.increment(error)) {
    QUARRY_RETURN_IF_ERROR(SyncCatalogFile(entry->path().string()));
  }
  if (error) return ErrnoStatus(error.value(), "list", catalog);
  folders_.insert(catalog);
  for (const std::string& folder : folders_) QUARRY_RETURN_IF_ERROR(backend_.SyncDirectory(folder));
  return Status::Ok();
}

Status CheckpointFiles::Advance(uint64_t bytes) {
  report_.bytes += bytes;
  return progress_ ? progress_("copying", report_.bytes, std::max(bytes_total_, report_.bytes))
                   : Status::Ok();
}

}  // namespace quarry
