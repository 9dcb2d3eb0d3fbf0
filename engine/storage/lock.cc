#include "lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace quarry {
namespace {

// "process 4711", from what the holder wrote into the file.
std::string Holder(const File& file) {
  std::array<char, 32> text{};
  const ssize_t bytes = pread(file.descriptor(), text.data(), text.size(), 0);
  std::string pid;
  for (ssize_t i = 0; i < bytes && text[i] >= '0' && text[i] <= '9'; ++i) pid += text[i];
  return pid.empty() ? "another process" : "process " + pid;
}

}  // namespace

Result<StoreLock> StoreLock::Acquire(const std::string& database_path) {
  const std::string path = database_path + "/LOCK";
  bool writable = true;
  int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor < 0 && (errno == EACCES || errno == EROFS || errno == EPERM)) {
    writable = false;
    descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  }
  if (descriptor < 0) return ErrnoStatus(errno, "open", path);
  File file(descriptor, path, false);
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return ErrnoStatus(errno, "lock", path);
    return MakeStatus(Code::kBusy, "{} is open in {}, which holds {}: wait for it to end", database_path,
                      Holder(file), path);
  }
  if (writable) {
    const std::string pid = std::to_string(getpid()) + "\n";
    // For the message above only: a LOCK without it (a full disk) locks all the same.
    if (ftruncate(descriptor, 0) == 0) static_cast<void>(pwrite(descriptor, pid.data(), pid.size(), 0) > 0);
  }
  return StoreLock(std::move(file));
}

}  // namespace quarry
