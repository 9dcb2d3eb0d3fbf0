#include "posix_files.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <utility>

#include "quarry/base/log.h"
#include "quarry/base/regular_file.h"
#include "quarry/io/ring.h"

namespace quarry {
namespace {

constexpr uint32_t kUnknownBlockBytes = 4096;  // a multiple of what nearly every device can read

bool IsBlockBytes(uint32_t bytes) { return bytes >= 512 && bytes <= 65536 && (bytes & (bytes - 1)) == 0; }

// What the file system itself says (Linux 6.1 and later); 0 when it does not.
uint32_t DirectAlignment([[maybe_unused]] int descriptor) {
#ifdef STATX_DIOALIGN
  struct statx info {};
  if (statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 &&
      (info.stx_mask & STATX_DIOALIGN) != 0) {
    return std::max(info.stx_dio_offset_align, info.stx_dio_mem_align);
  }
#endif
  return 0;
}

// The block size of the disk that holds the file; 0 when no single disk does (overlayfs, btrfs, tmpfs).
// Partitions have no queue of their own: their folder lies in their disk's.
uint32_t DeviceBlockBytes(dev_t device) {
  const std::string base = fmt::format("/sys/dev/block/{}:{}", major(device), minor(device));
  for (const char* place : {"/queue/logical_block_size", "/../queue/logical_block_size"}) {
    std::ifstream file(base + place);
    uint32_t bytes = 0;
    if (file >> bytes) return bytes;
  }
  return 0;
}

bool Retryable(int error) { return error == EINTR || error == EAGAIN; }

}  // namespace

File::File(int descriptor, std::string path, bool direct)
    : descriptor_(descriptor), path_(std::move(path)), direct_(direct) {}

File::File(File&& other) noexcept { *this = std::move(other); }

File& File::operator=(File&& other) noexcept {
  if (this != &other) {
    if (descriptor_ >= 0) close(descriptor_);
    descriptor_ = std::exchange(other.descriptor_, -1);
    path_ = std::move(other.path_);
    direct_ = other.direct_;
  }
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) close(descriptor_);
}

uint32_t LogicalBlockBytes(const File& file) {
  if (const uint32_t bytes = DirectAlignment(file.descriptor()); IsBlockBytes(bytes)) return bytes;
  struct stat info {};
  if (fstat(file.descriptor(), &info) != 0) return kUnknownBlockBytes;
  const uint32_t bytes = DeviceBlockBytes(info.st_dev);
  return IsBlockBytes(bytes) ? bytes : kUnknownBlockBytes;
}

Result<File> PosixFiles::Open(const std::string& path, OpenMode mode) {
  const bool create = mode == OpenMode::kCreate || mode == OpenMode::kCreateDirect;
  const bool direct = mode != OpenMode::kReadBuffered && mode != OpenMode::kCreate;
  const bool read_write = mode == OpenMode::kReadWriteDirect;
  const int flags = (create       ? O_RDWR | O_CREAT | O_EXCL
                     : read_write ? O_RDWR
                                  : O_RDONLY) |
                    (direct ? O_DIRECT : 0);
  QUARRY_TRY(const OpenedFile opened, OpenRegularFile(path, flags, Code::kCorruption));
  File file(opened.descriptor, path, opened.direct);
  if (direct && !opened.direct) {
    static std::atomic<bool> told{false};
    if (!told.exchange(true))
      LogWarn("{}: the file system has no O_DIRECT; the page cache is in the way", path);
  }
  return file;
}

Result<uint64_t> PosixFiles::FileBytes(const File& file) {
  struct stat info {};
  if (fstat(file.descriptor(), &info) != 0) return ErrnoStatus(errno, "stat", file.path());
  return static_cast<uint64_t>(info.st_size);
}

Status PosixFiles::ReadAt(const File& file, uint64_t offset, std::span<std::byte> out) {
  size_t done = 0;
  unsigned retries = 0;
  while (done < out.size()) {
    const ssize_t n =
        pread(file.descriptor(), out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && Retryable(errno) && ++retries <= IoRing::kRetriesMax) continue;
    if (n < 0) {
      return ErrnoStatus(errno, fmt::format("read {} bytes at offset {} of", out.size(), offset),
                         file.path());
    }
    const size_t before = done;
    done += static_cast<size_t>(n);
    // A direct read goes on at a block boundary: the part of a block that has arrived is read again.
    if (file.direct() && done < out.size()) done -= done % kUnknownBlockBytes;
    if (n == 0 || done <= before) {
      return MakeStatus(Code::kCorruption, "{}: ends at offset {}, but {} bytes are expected at offset {}",
                        file.path(), offset + before + static_cast<size_t>(n), out.size(), offset);
    }
    retries = 0;
  }
  return Status::Ok();
}

Status PosixFiles::WriteAt(const File& file, uint64_t offset, std::span<const std::byte> bytes) {
  size_t done = 0;
  unsigned retries = 0;
  while (done < bytes.size()) {
    const ssize_t n = pwrite(file.descriptor(), bytes.data() + done, bytes.size() - done,
                             static_cast<off_t>(offset + done));
    if (n < 0 && Retryable(errno) && ++retries <= IoRing::kRetriesMax) continue;
    if (n <= 0) {
      return ErrnoStatus(n < 0 ? errno : EIO,
                         fmt::format("write {} bytes at offset {} of", bytes.size(), offset), file.path());
    }
    done += static_cast<size_t>(n);
    retries = 0;
  }
  return Status::Ok();
}

Status PosixFiles::Truncate(const File& file, uint64_t bytes) {
  if (ftruncate(file.descriptor(), static_cast<off_t>(bytes)) != 0) {
    return ErrnoStatus(errno, "truncate", file.path());
  }
  return Status::Ok();
}

Result<bool> PosixFiles::Clone(const File& from, const File& to) {
  return ioctl(to.descriptor(), FICLONE, from.descriptor()) == 0;
}

Status PosixFiles::SyncFile(const File& file) {
  // Never retried: after a failed fsync the kernel may have dropped the dirty pages; a second would lie.
  if (fsync(file.descriptor()) != 0) return ErrnoStatus(errno, "sync", file.path());
  return Status::Ok();
}

Status PosixFiles::SyncDirectory(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return ErrnoStatus(errno, "open folder", path);
  const File folder(descriptor, path, false);
  return SyncFile(folder);
}

Status PosixFiles::CreateDirectory(const std::string& path) {
  if (mkdir(path.c_str(), 0777) != 0) return ErrnoStatus(errno, "create the folder", path);
  return Status::Ok();
}

Status PosixFiles::Rename(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) != 0)
    return ErrnoStatus(errno, "rename", fmt::format("{} to {}", from, to));
  return Status::Ok();
}

Status PosixFiles::Link(const std::string& from, const std::string& to) {
  if (link(from.c_str(), to.c_str()) != 0)
    return ErrnoStatus(errno, "link", fmt::format("{} to {}", from, to));
  return Status::Ok();
}

Status PosixFiles::Remove(const std::string& path) {
  if (std::remove(path.c_str()) != 0) return ErrnoStatus(errno, "remove", path);
  return Status::Ok();
}

}  // namespace quarry
