// IoBackend: the seam between Quarry and the kernel. Everything that Quarry reads from or writes to a data
// file passes through it, and so does every change of folders and names, so that a test can make any
// operation fail (tests/support/fault_backend.h) or take away what was not synced when the power went
// (tests/support/power_cut_disk.h).
//
// Two implementations: io_uring (uring_backend.cc), and a pool of pread threads (thread_backend.cc; taken
// when the kernel refuses io_uring); tests wrap them (tests/support/backend_wrapper.h). The seam is raw: a transfer may
// come back short, and with -EINTR or -EAGAIN. IoRing (ring.h) above it turns that into whole transfers or
// errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "quarry/base/status.h"

namespace quarry {

// An open file: an OS descriptor and the path for messages. A move-only resource, closed by its destructor.
class File {
 public:
  File() = default;
  File(int descriptor, std::string path, bool direct);
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();
  int descriptor() const { return descriptor_; }
  const std::string& path() const { return path_; }
  bool direct() const { return direct_; }  // opened with O_DIRECT: offset, length and address must be aligned

 private:
  int descriptor_ = -1;
  std::string path_;
  bool direct_ = false;
};

enum class OpenMode {
  kReadDirect,  // O_DIRECT where the file system can, else buffered with one logged line
  kReadBuffered,
  kReadWriteDirect,  // a file that exists, for both; direct as above
  kCreate,           // new file for writing; kAlreadyExists when there is one
  kCreateDirect,
};

// One raw transfer. `user_data` comes back with its completion.
struct RawRequest {
  enum class Kind : uint8_t { kRead, kWrite };
  Kind kind = Kind::kRead;
  int descriptor = -1;
  uint64_t offset = 0;
  std::byte* buffer = nullptr;
  uint32_t bytes = 0;
  uint64_t user_data = 0;
};
struct RawCompletion {
  uint64_t user_data = 0;
  int32_t result = 0;  // bytes transferred, or -errno
};

// A channel for submissions and completions, used by one thread at a time.
class IoPort {
 public:
  virtual ~IoPort() = default;
  // Takes all of `requests`. REQUIRES: in flight + requests.size() <= the depth it was made with.
  virtual Status Submit(std::span<const RawRequest> requests) = 0;
  // Waits until at least `count_min` requests have completed (0 = do not wait), fills a prefix of `out` and
  // returns its length.
  virtual Result<size_t> Wait(size_t count_min, std::span<RawCompletion> out) = 0;
};

// Where large files lie that are not on a disk of this machine (quarry/objects/thin_database.h).
struct RemoteFiles {
  std::string address;       // of the place: s3://BUCKET/PREFIX
  uint64_t block_bytes = 0;  // the least that is fetched
  bool read_only = false;    // the folder goes when it is closed, so nothing that is written would last
};

// Thread-safe. Outlives its ports; files are independent of it.
class IoBackend {
 public:
  virtual ~IoBackend() = default;
  virtual std::string_view name() const = 0;                           // "io_uring", "threads", "fault(...)"
  virtual const RemoteFiles* remote_files() const { return nullptr; }  // null: everything is on a disk here
  virtual Result<std::unique_ptr<IoPort>> NewPort(unsigned depth) = 0;

  virtual Result<File> Open(const std::string& path, OpenMode mode) = 0;
  virtual Result<uint64_t> FileBytes(const File& file) = 0;
  // Synchronous positioned transfers for metadata and sequential writers: either the whole transfer or an
  // error.
  virtual Status ReadAt(const File& file, uint64_t offset, std::span<std::byte> out) = 0;
  virtual Status WriteAt(const File& file, uint64_t offset, std::span<const std::byte> bytes) = 0;
  virtual Status Truncate(const File& file, uint64_t bytes) = 0;
  // Lets the empty file `to` share the bytes of `from`; false where the file system cannot.
  virtual Result<bool> Clone(const File& from, const File& to) = 0;
  virtual Status SyncFile(const File& file) = 0;

  // Operations on names. A change outlives a power failure once the folder that holds the name is synced.
  virtual Status SyncDirectory(const std::string& path) = 0;
  virtual Status CreateDirectory(const std::string& path) = 0;  // kAlreadyExists when the name is taken
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  virtual Status Link(const std::string& from, const std::string& to) = 0;
  virtual Status Remove(
      const std::string& path) = 0;  // a file or an empty folder; kNotFound when there is none
};

// Makes the folder unless it exists. Its parent must exist.
Status EnsureDirectory(IoBackend& backend, const std::string& path);
// The same, and syncs the parent, also when the folder exists, since whoever made it may have died before
// syncing.
Status EnsureSyncedDirectory(IoBackend& backend, const std::string& path);
// Removes the file, or the folder with everything in it; links are not followed. OK when there is nothing
// there.
Status RemoveTree(IoBackend& backend, const std::string& path);
// Removes something that nobody needs, as RemoveTree, and ignores errors: what stays is a leftover.
void Discard(IoBackend& backend, const std::string& path);

// io_uring, or the thread pool when the kernel refuses io_uring (one logged line per process says why).
// QUARRY_IO=threads in the environment selects the pool without trying io_uring.
std::unique_ptr<IoBackend> MakeDefaultBackend();
// kIoError with the kernel's reason when it refuses.
Result<std::unique_ptr<IoBackend>> MakeUringBackend();
// The pool has `threads` threads (or as many as the system allows) from construction to destruction.
std::unique_ptr<IoBackend> MakeThreadBackend(unsigned threads = 32);

// The block size that direct reads of this file must be aligned to, in offset, length and address: what the
// file system states, or the disk's logical block size; 4096 when neither is known.
uint32_t LogicalBlockBytes(const File& file);

}  // namespace quarry
