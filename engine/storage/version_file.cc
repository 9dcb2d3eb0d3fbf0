#include "quarry/storage/version_file.h"

#include <algorithm>
#include <charconv>
#include <span>

#include "quarry/storage/store.h"

namespace quarry {
namespace {

constexpr std::string_view kVersionPrefix = "quarry ";
constexpr uint32_t kStoreVersionMin = 1;

}  // namespace

std::string VersionText() { return fmt::format("{}{}\n", kVersionPrefix, kStoreVersion); }

Result<std::string> ReadPrefix(IoBackend& backend, const std::string& path) {
  QUARRY_TRY(const File file, backend.Open(path, OpenMode::kReadBuffered));
  QUARRY_TRY(const uint64_t file_bytes, backend.FileBytes(file));
  std::string text(std::min<uint64_t>(file_bytes, 64), '\0');
  QUARRY_RETURN_IF_ERROR(backend.ReadAt(file, 0, std::as_writable_bytes(std::span(text))));
  return text;
}

Result<uint32_t> ReadVersionFile(IoBackend& backend, const std::string& database_path) {
  const std::string path = database_path + "/VERSION";
  QUARRY_TRY(const std::string text, ReadPrefix(backend, path));
  uint32_t version = 0;
  const char* const end = text.data() + text.size();
  if (text.starts_with(kVersionPrefix)) {
    const auto parsed = std::from_chars(text.data() + kVersionPrefix.size(), end, version);
    if (parsed.ec == std::errc() && parsed.ptr + 1 == end && *parsed.ptr == '\n') {
      if (version >= kStoreVersionMin && version <= kStoreVersion) return version;
      return MakeStatus(Code::kUnsupported,
                        "{}: database version {}; this Quarry reads versions {} to {}: use the other one",
                        path, version, kStoreVersionMin, kStoreVersion);
    }
  }
  return MakeStatus(Code::kCorruption, "{}: the file should read \"quarry {}\" and a line end", path,
                    kStoreVersion);
}

Status WriteVersionFile(IoBackend& backend, const std::string& database_path) {
  const std::string path = database_path + "/VERSION";
  const std::string made = database_path + "/" + std::string(kNewVersionFile);
  Discard(backend, made);  // left by an earlier try that was interrupted
  const std::string text = VersionText();
  QUARRY_TRY(const File file, backend.Open(made, OpenMode::kCreate));
  QUARRY_RETURN_IF_ERROR(backend.WriteAt(file, 0, std::as_bytes(std::span(text))));
  QUARRY_RETURN_IF_ERROR(backend.SyncFile(file));
  QUARRY_RETURN_IF_ERROR(backend.Rename(made, path));
  return backend.SyncDirectory(database_path);
}

}  // namespace quarry
