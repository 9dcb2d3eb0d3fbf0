#include "temp_files.h"

#include <fmt/format.h>

#include <atomic>
#include <utility>

namespace quarry::sql {
namespace {

std::atomic<uint64_t> g_made{0};  // names of VFSs are of the process

}  // namespace

// SQLite's callbacks. What is below a VFS is in its pAppData, what is below a file follows it in memory.
struct TempFiles::Vfs {
  struct File {
    sqlite3_file base;
    TempFiles* files;
    sqlite3_int64 bytes;  // paid
    sqlite3_file* below() { return reinterpret_cast<sqlite3_file*>(this + 1); }
  };
  static File* Of(sqlite3_file* file) { return reinterpret_cast<File*>(file); }
  static sqlite3_file* Below(sqlite3_file* file) { return Of(file)->below(); }
  static TempFiles& FilesOf(sqlite3_vfs* vfs) { return *static_cast<TempFiles*>(vfs->pAppData); }
  static sqlite3_vfs* Below(sqlite3_vfs*) { return sqlite3_vfs_find(nullptr); }

  static void Shrink(File& file, sqlite3_int64 bytes) {
    if (bytes >= file.bytes) return;
    static_cast<void>(file.files->account_(bytes - file.bytes));
    file.bytes = bytes;
  }

  static int Close(sqlite3_file* file) {
    const int rc = Below(file)->pMethods->xClose(Below(file));
    Shrink(*Of(file), 0);
    return rc;
  }
  static int Read(sqlite3_file* file, void* to, int bytes, sqlite3_int64 at) {
    return Below(file)->pMethods->xRead(Below(file), to, bytes, at);
  }
  static int Write(sqlite3_file* file, const void* from, int bytes, sqlite3_int64 at) {
    File& own = *Of(file);
    if (at + bytes > own.bytes) {
      Status may = own.files->account_(at + bytes - own.bytes);
      if (!may.ok()) {
        own.files->fault_ = std::move(may);
        return SQLITE_FULL;
      }
      own.bytes = at + bytes;
    }
    return own.below()->pMethods->xWrite(own.below(), from, bytes, at);
  }
  static int Truncate(sqlite3_file* file, sqlite3_int64 bytes) {
    const int rc = Below(file)->pMethods->xTruncate(Below(file), bytes);
    if (rc == SQLITE_OK) Shrink(*Of(file), bytes);
    return rc;
  }
  static int Sync(sqlite3_file* file, int flags) { return Below(file)->pMethods->xSync(Below(file), flags); }
  static int FileSize(sqlite3_file* file, sqlite3_int64* bytes) {
    return Below(file)->pMethods->xFileSize(Below(file), bytes);
  }
  static int Lock(sqlite3_file* file, int lock) { return Below(file)->pMethods->xLock(Below(file), lock); }
  static int Unlock(sqlite3_file* file, int lock) {
    return Below(file)->pMethods->xUnlock(Below(file), lock);
  }
  static int IsReserved(sqlite3_file* file, int* reserved) {
    return Below(file)->pMethods->xCheckReservedLock(Below(file), reserved);
  }
  static int Control(sqlite3_file* file, int operation, void* argument) {
    // Room that is put aside would be of no account.
    if (operation == SQLITE_FCNTL_SIZE_HINT || operation == SQLITE_FCNTL_CHUNK_SIZE) return SQLITE_OK;
    return Below(file)->pMethods->xFileControl(Below(file), operation, argument);
  }
  static int SectorSize(sqlite3_file* file) { return Below(file)->pMethods->xSectorSize(Below(file)); }
  static int Characteristics(sqlite3_file* file) {
    return Below(file)->pMethods->xDeviceCharacteristics(Below(file));
  }

  // Version 1 maps no file, so that what grows is written.
  static constexpr sqlite3_io_methods kMethods = {.iVersion = 1,
                                                  .xClose = &Close,
                                                  .xRead = &Read,
                                                  .xWrite = &Write,
                                                  .xTruncate = &Truncate,
                                                  .xSync = &Sync,
                                                  .xFileSize = &FileSize,
                                                  .xLock = &Lock,
                                                  .xUnlock = &Unlock,
                                                  .xCheckReservedLock = &IsReserved,
                                                  .xFileControl = &Control,
                                                  .xSectorSize = &SectorSize,
                                                  .xDeviceCharacteristics = &Characteristics};

  static int Open(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags, int* out_flags) {
    File& own = *Of(file);
    own.base.pMethods = nullptr;  // until it is open
    own.files = &FilesOf(vfs);
    own.bytes = 0;
    const int rc = Below(vfs)->xOpen(Below(vfs), name, own.below(), flags, out_flags);
    if (rc == SQLITE_OK) own.base.pMethods = &kMethods;
    return rc;
  }
  static int Delete(sqlite3_vfs* vfs, const char* name, int sync) {
    return Below(vfs)->xDelete(Below(vfs), name, sync);
  }
  static int Access(sqlite3_vfs* vfs, const char* name, int flags, int* result) {
    return Below(vfs)->xAccess(Below(vfs), name, flags, result);
  }
  static int FullPathname(sqlite3_vfs* vfs, const char* name, int bytes, char* full) {
    return Below(vfs)->xFullPathname(Below(vfs), name, bytes, full);
  }
  static int Randomness(sqlite3_vfs* vfs, int bytes, char* to) {
    return Below(vfs)->xRandomness(Below(vfs), bytes, to);
  }
  static int Sleep(sqlite3_vfs* vfs, int microseconds) {
    return Below(vfs)->xSleep(Below(vfs), microseconds);
  }
  static int CurrentTime(sqlite3_vfs* vfs, double* now) { return Below(vfs)->xCurrentTime(Below(vfs), now); }
  static int GetLastError(sqlite3_vfs* vfs, int bytes, char* to) {
    return Below(vfs)->xGetLastError(Below(vfs), bytes, to);
  }
};

TempFiles::TempFiles(Account account, sqlite3_vfs& below)
    : account_(std::move(account)),
      name_(fmt::format("quarry-{}", ++g_made)),
      vfs_{.iVersion = 1,
           .szOsFile = static_cast<int>(sizeof(Vfs::File)) + below.szOsFile,
           .mxPathname = below.mxPathname,
           .pNext = nullptr,
           .zName = name_.c_str(),
           .pAppData = this,
           .xOpen = &Vfs::Open,
           .xDelete = &Vfs::Delete,
           .xAccess = &Vfs::Access,
           .xFullPathname = &Vfs::FullPathname,
           .xDlOpen = nullptr,
           .xDlError = nullptr,
           .xDlSym = nullptr,
           .xDlClose = nullptr,
           .xRandomness = &Vfs::Randomness,
           .xSleep = &Vfs::Sleep,
           .xCurrentTime = &Vfs::CurrentTime,
           .xGetLastError = &Vfs::GetLastError} {}

TempFiles::~TempFiles() { sqlite3_vfs_unregister(&vfs_); }

Result<std::unique_ptr<TempFiles>> TempFiles::Make(Account account) {
  sqlite3_vfs* const below = sqlite3_vfs_find(nullptr);
  if (below == nullptr) return Status(Code::kInternal, "SQLite has no way to files");
  std::unique_ptr<TempFiles> files(new TempFiles(std::move(account), *below));
  const int rc = sqlite3_vfs_register(&files->vfs_, /*makeDflt=*/0);
  if (rc != SQLITE_OK) return MakeStatus(Code::kOutOfBudget, "SQLite: {}", sqlite3_errstr(rc));
  return files;
}

Status TempFiles::TakeFault() { return std::exchange(fault_, Status::Ok()); }

}  // namespace quarry::sql
