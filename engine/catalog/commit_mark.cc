#include "commit_mark.h"

#include <rocksdb/env.h>
#include <rocksdb/file_system.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>

#include "quarry/format/checksum.h"
#include "rocks.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMarkWords = 5;
constexpr size_t kMarkBytes = kMarkWords * sizeof(uint64_t);
constexpr uint64_t kMarkMagic = 0x544d4d4f43595251;  // "QRYCOMMT"
// RocksDB's log: blocks of this size, each of which begins with the header of a record or of its
// continuation.
constexpr size_t kLogBlockBytes = 32768;
constexpr size_t kLogHeaderBytes = 7;
using Words = std::array<uint64_t, kMarkWords>;

uint64_t ChecksumOf(const Words& words) {
  return Checksum64(std::as_bytes(std::span(words).first(kMarkWords - 1)));
}

std::optional<CommitMark> DecodeCommitMark(const char* bytes) {
  Words words;
  std::memcpy(words.data(), bytes, kMarkBytes);
  if (words[0] != kMarkMagic || words.back() != ChecksumOf(words)) return std::nullopt;
  return CommitMark{words[1], words[2], words[3]};
}

// The largest `synced` of marks in `bytes`.
uint64_t SyncedBy(std::string_view bytes, uint64_t catalog_id) {
  const std::string_view magic(reinterpret_cast<const char*>(&kMarkMagic), sizeof(kMarkMagic));
  uint64_t synced = 0;
  for (size_t at = bytes.find(magic); at != std::string_view::npos && at + kMarkBytes <= bytes.size();
       at = bytes.find(magic, at + 1)) {
    const std::optional<CommitMark> mark = DecodeCommitMark(bytes.data() + at);
    if (mark && mark->catalog_id == catalog_id) synced = std::max(synced, mark->synced);
  }
  return synced;
}

// Block by block, without the header at the beginning of each, so that a mark that lies across two blocks is
// in one piece. Lengths and checksums of records are not asked: they may be what is damaged.
Result<uint64_t> SyncedByLog(const std::string& path, uint64_t catalog_id) {
  std::unique_ptr<rocksdb::FSSequentialFile> file;
  QUARRY_RETURN_IF_ERROR(FromRocks(
      CatalogFileSystem()->NewSequentialFile(path, rocksdb::FileOptions(), &file, nullptr), "open", path));
  std::string block(kLogBlockBytes, '\0'), searched;
  uint64_t synced = 0;
  for (;;) {
    rocksdb::Slice read;
    QUARRY_RETURN_IF_ERROR(FromRocks(
        file->Read(block.size(), rocksdb::IOOptions(), &read, block.data(), nullptr), "read", path));
    if (read.size() <= kLogHeaderBytes) return synced;
    searched.erase(0, searched.size() - std::min(searched.size(), kMarkBytes - 1));
    searched.append(read.data() + kLogHeaderBytes, read.size() - kLogHeaderBytes);
    synced = std::max(synced, SyncedBy(searched, catalog_id));
    if (read.size() < kLogBlockBytes) return synced;
  }
}

}  // namespace

std::string EncodeCommitMark(const CommitMark& mark) {
  Words words{kMarkMagic, mark.catalog_id, mark.commit, mark.synced};
  words.back() = ChecksumOf(words);
  return {reinterpret_cast<const char*>(words.data()), kMarkBytes};
}

std::optional<CommitMark> MarkAtEnd(std::string_view bytes) {
  if (bytes.size() < kMarkBytes) return std::nullopt;
  return DecodeCommitMark(bytes.data() + bytes.size() - kMarkBytes);
}

Result<uint64_t> SyncedByLogs(const std::string& catalog_path, uint64_t catalog_id) {
  uint64_t synced = 0;
  std::error_code error;
  for (fs::directory_iterator entry(catalog_path, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() != ".log") continue;
    QUARRY_TRY(const uint64_t by_log, SyncedByLog(entry->path().string(), catalog_id));
    synced = std::max(synced, by_log);
  }
  if (error) return ErrnoStatus(error.value(), "list", catalog_path);
  return synced;
}

}  // namespace quarry
