#include "store_folder.h"

#include <array>
#include <filesystem>
#include <span>
#include <utility>

#include "quarry/format/superblock.h"
#include "quarry/storage/store.h"
#include "quarry/storage/version_file.h"

namespace quarry {

namespace fs = std::filesystem;

namespace {

Status NoDatabase(IoBackend& backend, const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    return MakeStatus(Code::kNotFound, "{}: there is no such database; `quarry import {} SOURCE` makes one",
                      path, path);
  }
  if (!fs::is_directory(path, error)) {
    if (!fs::is_regular_file(path, error)) {
      return MakeStatus(Code::kNotFound, "{}: not a database, which is a folder", path);
    }
    QUARRY_TRY(const std::string prefix, ReadPrefix(backend, path));
    return MakeStatus(Code::kNotFound,
                      "{}: not a database (a folder) but {}; `quarry import DB {}` may take it", path,
                      DescribeForeignBytes(std::as_bytes(std::span(prefix))), path);
  }
  return MakeStatus(Code::kNotFound,
                    "{}: a folder, but not a database (it has no VERSION file); if it holds source data, "
                    "`quarry import DB {}` may take it",
                    path, path);
}

}  // namespace

Status CheckFolder(IoBackend& backend, const std::string& path) {
  std::error_code error;
  if (!fs::exists(path + "/VERSION", error)) return NoDatabase(backend, path);
  QUARRY_RETURN_IF_ERROR(ReadVersionFile(backend, path).status());
  if (backend.remote_files() != nullptr || !fs::exists(path + "/" + kObjectsFile, error)) return Status::Ok();
  return MakeStatus(
      Code::kUnsupported,
      "{}: is a thin database, whose large files are in an object store (its file {} says where): this "
      "needs a whole one, as quarry pull and quarry checkpoint make it",
      path, kObjectsFile);
}

Status CheckLasting(const IoBackend& backend) {
  const RemoteFiles* const remote = backend.remote_files();
  if (remote == nullptr || !remote->read_only) return Status::Ok();
  return MakeStatus(
      Code::kUnsupported,
      "{} is read where it is published, and nothing is written there: what shall last needs a database "
      "here (quarry pull --thin {} DB leaves large files in the store)",
      remote->address, remote->address);
}

Status CreateStoreDirectory(IoBackend& backend, const std::string& path) {
  QUARRY_RETURN_IF_ERROR(backend.CreateDirectory(path));
  for (const char* name : {"features", "topology"}) {
    const std::string folder = path + "/" + name;
    QUARRY_RETURN_IF_ERROR(backend.CreateDirectory(folder));
    QUARRY_RETURN_IF_ERROR(backend.SyncDirectory(folder));
  }
  for (const auto& [name, text] :
       std::array<std::pair<std::string, std::string>, 2>{{{"LOCK", ""}, {"VERSION", VersionText()}}}) {
    QUARRY_TRY(const File file, backend.Open(path + "/" + name, OpenMode::kCreate));
    if (!text.empty()) QUARRY_RETURN_IF_ERROR(backend.WriteAt(file, 0, std::as_bytes(std::span(text))));
    QUARRY_RETURN_IF_ERROR(backend.SyncFile(file));
  }
  return backend.SyncDirectory(path);
}

}  // namespace quarry
