#include "quarry/base/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace quarry {
namespace {

std::string_view KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

Status NotRegular(const std::string& path, mode_t mode, Code code) {
  return MakeStatus(code, "{}: is {}, not a regular file: put the file back in its place", path,
                    KindOf(mode));
}

// A socket, a FIFO without a reader and a folder fail to open, each with an errno of its own.
Status OpenFault(int error, const std::string& path, int flags, Code otherwise) {
  struct stat info {};
  if ((flags & O_EXCL) == 0 && stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return NotRegular(path, info.st_mode, otherwise);
  }
  return ErrnoStatus(error, (flags & O_CREAT) != 0 ? "create" : "open", path);
}

}  // namespace

Result<OpenedFile> OpenRegularFile(const std::string& path, int flags, Code otherwise) {
  constexpr mode_t kMode = 0644;
  flags |= O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  OpenedFile file{.descriptor = open(path.c_str(), flags, kMode), .direct = (flags & O_DIRECT) != 0};
  if (file.descriptor < 0 && errno == EINVAL && file.direct) {
    // Some file systems create the file and then refuse O_DIRECT; ours is empty and may go.
    if ((flags & O_EXCL) != 0) unlink(path.c_str());
    flags &= ~O_DIRECT;
    file = {.descriptor = open(path.c_str(), flags, kMode), .direct = false};
  }
  if (file.descriptor < 0) return OpenFault(errno, path, flags, otherwise);
  struct stat info {};
  Status status;
  if (fstat(file.descriptor, &info) != 0) {
    status = ErrnoStatus(errno, "stat", path);
  } else if (!S_ISREG(info.st_mode)) {
    status = NotRegular(path, info.st_mode, otherwise);
  } else {
    // io_uring takes O_NONBLOCK at its word, for regular files too.
    const int now = fcntl(file.descriptor, F_GETFL);
    if (now < 0 || fcntl(file.descriptor, F_SETFL, now & ~O_NONBLOCK) != 0) {
      status = ErrnoStatus(errno, "set the flags of", path);
    }
  }
  if (status.ok()) return file;
  close(file.descriptor);
  return status;
}

}  // namespace quarry
