#include "anchor.h"

#include <rocksdb/env.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <span>

#include "catalog_environment.h"
#include "quarry/format/checksum.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;

constexpr size_t kCopyBytes = 512;  // a sector
constexpr size_t kCopyWords = kCopyBytes / sizeof(uint64_t);
constexpr uint64_t kAnchorMagic = 0x5248434e41595251;  // "QRYANCHR"
constexpr uint64_t kAnchorVersion = 1;
using Copy = std::array<uint64_t, kCopyWords>;

uint64_t ChecksumOf(const Copy& copy) {
  return Checksum64(std::as_bytes(std::span(copy).first(kCopyWords - 1)));
}

std::string Encode(const AnchorRecord& record) {
  Copy copy{kAnchorMagic,           kAnchorVersion,
            record.writes,          record.catalog_id,
            record.commits,         record.timestamp,
            record.entries,         record.hashes,
            record.manifest_digest, record.closed ? uint64_t{1} : uint64_t{0},
            record.files_digest};
  copy.back() = ChecksumOf(copy);
  std::string bytes(2 * kCopyBytes, '\0');
  std::memcpy(bytes.data(), copy.data(), kCopyBytes);
  std::memcpy(bytes.data() + kCopyBytes, copy.data(), kCopyBytes);
  return bytes;
}

std::optional<AnchorRecord> Decode(std::string_view bytes) {
  Copy copy;
  if (bytes.size() < kCopyBytes) return std::nullopt;
  std::memcpy(copy.data(), bytes.data(), kCopyBytes);
  if (copy[0] != kAnchorMagic || copy[1] != kAnchorVersion || copy.back() != ChecksumOf(copy))
    return std::nullopt;
  return AnchorRecord{.writes = copy[2],
                      .catalog_id = copy[3],
                      .commits = copy[4],
                      .timestamp = copy[5],
                      .entries = copy[6],
                      .hashes = copy[7],
                      .manifest_digest = copy[8],
                      .closed = copy[9] != 0,
                      .files_digest = copy[10]};
}

Status ReadWhole(const std::string& path, std::string& bytes) {
  return FromRocks(rocksdb::ReadFileToString(CatalogEnvironment(), path, &bytes), "read", path);
}

}  // namespace

Result<std::optional<AnchorRecord>> ReadAnchor(const std::string& database_path) {
  const std::string path = database_path + std::string(kAnchorFile);
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) return std::optional<AnchorRecord>();
  if (!fs::is_regular_file(status)) QUARRY_RETURN_IF_ERROR(CheckRegular(path));
  std::string bytes;
  QUARRY_RETURN_IF_ERROR(ReadWhole(path, bytes));
  const std::string_view view = bytes;
  const std::optional<AnchorRecord> first = Decode(view);
  const std::optional<AnchorRecord> second =
      Decode(view.size() < kCopyBytes ? std::string_view() : view.substr(kCopyBytes));
  if (!first && !second) {
    return MakeStatus(Code::kCorruption, "{}: neither copy of the anchor holds: {}", path, kRemedy);
  }
  if (!first || !second) return first ? first : second;
  return first->writes >= second->writes ? first : second;
}

Status CreateAnchor(const std::string& database_path, const AnchorRecord& record) {
  const std::string path = database_path + std::string(kAnchorFile);
  const std::shared_ptr<rocksdb::FileSystem> files = CatalogFileSystem();
  const rocksdb::IOOptions options;
  AnchorRecord numbered = record;
  ++numbered.writes;
  std::unique_ptr<rocksdb::FSWritableFile> file;
  rocksdb::IOStatus status = files->NewWritableFile(path, rocksdb::FileOptions(), &file, nullptr);
  if (status.ok()) status = file->Append(Encode(numbered), options, nullptr);
  if (status.ok()) status = file->Sync(options, nullptr);
  if (status.ok()) status = file->Close(options, nullptr);
  std::unique_ptr<rocksdb::FSDirectory> folder;
  if (status.ok()) status = files->NewDirectory(database_path, options, &folder, nullptr);
  if (status.ok()) status = folder->Fsync(options, nullptr);
  return FromRocks(status, "write", path);
}

Result<Anchor> Anchor::Open(const std::string& database_path, const AnchorRecord& record) {
  Anchor anchor;
  anchor.path_ = database_path + std::string(kAnchorFile);
  QUARRY_RETURN_IF_ERROR(FromRocks(
      CatalogFileSystem()->NewRandomRWFile(anchor.path_, rocksdb::FileOptions(), &anchor.file_, nullptr),
      "open", anchor.path_));
  anchor.record_ = record;
  return anchor;
}

Status Anchor::Write(const AnchorRecord& record, bool sync) {
  const uint64_t writes = record_.writes + 1;
  record_ = record;
  record_.writes = writes;
  const rocksdb::IOOptions options;
  rocksdb::IOStatus status = file_->Write(0, Encode(record_), options, nullptr);
  if (status.ok() && sync) status = file_->Sync(options, nullptr);
  return FromRocks(status, "write", path_);
}

Result<uint64_t> DigestOfFiles(const std::string& catalog_path) {
  std::string current, manifest;
  QUARRY_RETURN_IF_ERROR(ReadWhole(catalog_path + "/CURRENT", current));
  std::string name = current;
  while (!name.empty() && name.back() == '\n') name.pop_back();
  if (!name.starts_with("MANIFEST-") || name.find('/') != std::string::npos) {
    return MakeStatus(Code::kCorruption, "{}/CURRENT: names no MANIFEST: {}", catalog_path, kRemedy);
  }
  QUARRY_RETURN_IF_ERROR(ReadWhole(fmt::format("{}/{}", catalog_path, name), manifest));
  current += manifest;
  return Checksum64(std::as_bytes(std::span(current)));
}

}  // namespace quarry
