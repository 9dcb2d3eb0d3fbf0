#include "quarry/objects/push.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/format/checksum.h"
#include "transfer_slots.h"
#include "upload.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kUploadsMax = 32;

// Files that are of a folder, and not of the database in it.
bool IsOfFolder(const std::string& name) { return name == "LOCK"; }

Result<std::vector<RemoteFile>> ListFolder(const std::string& folder) {
  std::vector<RemoteFile> files;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->is_directory(error)) continue;
    const std::string path = entry->path().string();
    const std::string name = path.substr(folder.size() + 1);
    if (!entry->is_regular_file(error)) {
      return MakeStatus(Code::kInvalidArgument, "{}: no regular file: a database has none such", path);
    }
    const uint64_t bytes = entry->file_size(error);
    if (!error && !IsOfFolder(name)) files.push_back({.name = name, .bytes = bytes});
  }
  if (error) return ErrnoStatus(error.value(), "list", folder);
  std::sort(files.begin(), files.end(),
            [](const RemoteFile& a, const RemoteFile& b) { return a.name < b.name; });
  return files;
}

// Bytes done of all, for a progress that is told both.
class PushProgress {
 public:
  PushProgress(const ProgressFunction& progress, std::string_view phase, uint64_t total)
      : progress_(progress), phase_(phase), total_(total) {}
  Status Advance(uint64_t bytes) {
    done_ = std::min(total_, done_ + bytes);
    return progress_ ? progress_(phase_, done_, total_) : Status::Ok();
  }

 private:
  const ProgressFunction& progress_;
  const std::string_view phase_;
  const uint64_t total_;
  uint64_t done_ = 0;
};

Status ReadChecksums(IoBackend& backend, MemoryBudget& budget, const std::string& folder,
                     RemoteManifest& manifest, const ProgressFunction& progress) {
  QUARRY_TRY(const MemoryBudget::Reservation reservation,
             budget.Reserve(IoBuffer::MappedBytes(kRemoteBlockBytes), "a buffer of checksums"));
  QUARRY_TRY(const IoBuffer buffer, IoBuffer::Allocate(kRemoteBlockBytes));
  PushProgress done(progress, "checksums", manifest.bytes());
  for (RemoteFile& file : manifest.files) {
    if (file.bytes == 0) continue;
    QUARRY_TRY(const File from, OpenToRead(backend, folder + "/" + file.name, file.bytes));
    for (size_t block = 0; block * kRemoteBlockBytes < file.bytes; block++) {
      const std::span<std::byte> bytes = buffer.span().first(file.BlockBytes(block));
      QUARRY_RETURN_IF_ERROR(backend.ReadAt(from, block * kRemoteBlockBytes, bytes));
      file.blocks.push_back(Checksum64(bytes));
      QUARRY_RETURN_IF_ERROR(done.Advance(bytes.size()));
    }
  }
  return Status::Ok();
}

// kAlreadyExists unless a manifest of this push may stand in the place of that one.
Status CheckReplaces(const ObjectStore& store, const RemoteManifest& there, const PushSpec& spec) {
  if (spec.replace) return Status::Ok();
  const std::string place = store.place().address();
  if (there.database_id != spec.database_id) {
    return MakeStatus(Code::kAlreadyExists,
                      "{} has another database ({}, published {}): push to another place, or --replace it",
                      place, there.database_id, there.published_utc);
  }
  if (there.timestamp > spec.timestamp) {
    return MakeStatus(
        Code::kAlreadyExists,
        "{} has commit {} (published {}), and this database ends with commit {}: pull it, or --replace it",
        place, there.timestamp, there.published_utc, spec.timestamp);
  }
  return Status::Ok();
}

// One conditional write. An answer that got lost is asked for again, and then the write before may be what is in the
// way; and an answer of failure may come of a write that went through: what stands there says which.
Status PublishManifest(ObjectStore& store, const RemoteManifest& manifest, const PutCondition& condition) {
  const std::string text = EncodeRemoteManifest(manifest);
  const Status written = store.Put(kRemoteManifestKey, std::as_bytes(std::span(text)), condition).status();
  if (written.ok() || written.code() == Code::kCancelled) return written;
  const Result<PublishedManifest> there = ReadPublished(store);
  if (there.ok() && there->manifest.publication == manifest.publication) return Status::Ok();
  if (written.code() != Code::kAlreadyExists && written.code() != Code::kBusy &&
      written.code() != Code::kNotFound) {
    return written;
  }
  if (!there.ok()) return there.status().code() == Code::kNotFound ? written : there.status();
  return MakeStatus(
      Code::kBusy,
      "{}: another push was published meanwhile ({}, commit {}), and this one was not: look at it, and "
      "push again",
      store.place().address(), there->manifest.published_utc, there->manifest.timestamp);
}

Result<TransferReport> Push(ObjectStore& store, IoBackend& backend, MemoryBudget& budget,
                            const PushSpec& spec, const ProgressFunction& progress) {
  const double start = MonotonicSeconds();
  PutCondition condition{.absent = true};
  Result<PublishedManifest> there = ReadPublished(store);
  if (there.ok()) {
    QUARRY_RETURN_IF_ERROR(CheckReplaces(store, there->manifest, spec));
    condition = {.etag = there->etag};
  } else if (there.status().code() != Code::kNotFound) {
    return there.status();
  }
  RemoteManifest manifest{.database_id = spec.database_id,
                          .publication = spec.publication,
                          .published_utc = UtcNow(),
                          .timestamp = spec.timestamp};
  QUARRY_TRY(manifest.files, ListFolder(spec.folder));
  QUARRY_RETURN_IF_ERROR(ReadChecksums(backend, budget, spec.folder, manifest, progress));
  QUARRY_TRY(const std::vector<ListedObject> listed, store.List("data/"));
  std::set<std::string> present;
  for (const ListedObject& object : listed) present.insert(object.key);

  TransferReport report{.files = manifest.files.size(), .bytes = manifest.bytes()};
  uint64_t part_bytes = 0, parts = 0;
  for (const RemoteFile& file : manifest.files) {
    parts += CeilDiv(file.bytes, PartBytes(file.bytes));
    part_bytes = std::max(part_bytes, std::min(RoundUp(file.bytes, 4096), PartBytes(file.bytes)));
  }
  PushProgress done(progress, "uploading", report.bytes);
  QUARRY_TRY(const auto slots,
             TransferSlots::Make(store, budget, part_bytes,
                                 static_cast<unsigned>(std::min<uint64_t>(kUploadsMax, parts)),
                                 [&] { return done.Advance(0); }));
  Uploader uploader(store, backend, *slots, [&](uint64_t bytes) { return done.Advance(bytes); });
  for (const RemoteFile& file : manifest.files) {
    if (!present.insert(file.Key()).second) {  // there, or a file before has the same content
      QUARRY_RETURN_IF_ERROR(done.Advance(file.bytes));
      continue;
    }
    ++report.files_moved;
    QUARRY_RETURN_IF_ERROR(uploader.Send(spec.folder + "/" + file.name, file));
  }
  QUARRY_RETURN_IF_ERROR(slots->Drain());
  QUARRY_RETURN_IF_ERROR(PublishManifest(store, manifest, condition));
  report.bytes_moved = uploader.bytes_sent();
  report.requests = store.statistics().requests;
  report.retries = store.statistics().retries;
  report.seconds = MonotonicSeconds() - start;
  return report;
}

}  // namespace

Result<PublishedManifest> ReadPublished(ObjectStore& store) {
  Result<ObjectBytes> object = store.GetWhole(kRemoteManifestKey, kRemoteManifestBytesMax);
  const std::string place = store.place().address();
  if (object.status().code() == Code::kNotFound) {
    return MakeStatus(Code::kNotFound, "{}: no database was pushed there: {}", place,
                      object.status().message());
  }
  QUARRY_RETURN_IF_ERROR(object.status());
  const std::string_view text(reinterpret_cast<const char*>(object->bytes.data()), object->bytes.size());
  QUARRY_TRY(RemoteManifest manifest, DecodeRemoteManifest(text, place + "/" + kRemoteManifestKey));
  return PublishedManifest{std::move(manifest), std::move(object->etag)};
}

Result<TransferReport> PushDatabase(ObjectStore& store, IoBackend& backend, MemoryBudget& budget,
                                    const PushSpec& spec, const ProgressFunction& progress) {
  Result<TransferReport> report = Push(store, backend, budget, spec, progress);
  if (!report.ok()) store.Cancel();
  return report;
}

}  // namespace quarry
