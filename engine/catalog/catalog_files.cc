#include "catalog_files.h"

#include <rocksdb/file_system.h>

#include <array>

#include "catalog_environment.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;

const rocksdb::IOOptions kOptions;

Status FromFileSystem(const rocksdb::IOStatus& status, std::string_view what, const std::string& path) {
  if (status.ok()) return Status::Ok();
  return MakeStatus(status.IsNoSpace() ? Code::kNoSpace : Code::kIoError, "cannot {} {}: {}", what, path,
                    status.ToString());
}

rocksdb::IOStatus CopyBytes(rocksdb::FileSystem& files, const std::string& from, const std::string& to) {
  std::unique_ptr<rocksdb::FSSequentialFile> source;
  std::unique_ptr<rocksdb::FSWritableFile> copy;
  rocksdb::IOStatus status = files.NewSequentialFile(from, {}, &source, nullptr);
  if (status.ok()) status = files.NewWritableFile(to, {}, &copy, nullptr);
  std::array<char, 64 << 10> buffer{};
  rocksdb::Slice piece("not the end");
  while (status.ok() && !piece.empty()) {
    status = source->Read(buffer.size(), kOptions, &piece, buffer.data(), nullptr);
    if (status.ok() && !piece.empty()) status = copy->Append(piece, kOptions, nullptr);
  }
  return status.ok() ? copy->Close(kOptions, nullptr) : status;
}

}  // namespace

Status CopyFiles(const fs::path& from, const fs::path& to,
                 const std::function<bool(const fs::path&)>& wanted) {
  rocksdb::FileSystem& files = *CatalogEnvironment()->GetFileSystem();
  QUARRY_RETURN_IF_ERROR(
      FromFileSystem(files.CreateDir(to.string(), kOptions, nullptr), "create the folder", to.string()));
  std::error_code error;
  for (fs::directory_iterator entry(from, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code failed;
    if (!entry->is_regular_file(failed)) continue;
    if (!wanted(entry->path())) continue;
    const std::string source = entry->path().string(), copy = (to / entry->path().filename()).string();
    const bool linked =
        entry->path().extension() == kTableSuffix && files.LinkFile(source, copy, kOptions, nullptr).ok();
    if (!linked) QUARRY_RETURN_IF_ERROR(FromFileSystem(CopyBytes(files, source, copy), "copy", source));
  }
  return error ? ErrnoStatus(error.value(), "list", from.string()) : Status::Ok();
}

void RemoveFiles(const fs::path& folder) {
  rocksdb::FileSystem& files = *CatalogEnvironment()->GetFileSystem();
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code failed;
    if (entry->symlink_status(failed).type() == fs::file_type::directory) {
      RemoveFiles(entry->path());
    } else {
      static_cast<void>(files.DeleteFile(entry->path().string(), kOptions, nullptr).ok());
    }
  }
  static_cast<void>(files.DeleteDir(folder.string(), kOptions, nullptr).ok());
}

}  // namespace quarry
