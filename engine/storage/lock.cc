#include "quarry/storage/lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "quarry/base/regular_file.h"

namespace quarry {
namespace {

// "process 4711", from what the holder wrote into the file.
std::string Holder(const std::string& lock_path) {
  std::string pid;
  if (const auto opened = OpenRegularFile(lock_path, O_RDONLY, Code::kCorruption); opened.ok()) {
    const File file(opened->descriptor, lock_path, false);
    std::array<char, 32> text{};
    const ssize_t bytes = pread(file.descriptor(), text.data(), text.size(), 0);
    for (ssize_t i = 0; i < bytes && text[i] >= '0' && text[i] <= '9'; ++i) pid += text[i];
  }
  return pid.empty() ? "another process" : "process " + pid;
}

Status Busy(const std::string& folder, const std::string& lock_path) {
  return MakeStatus(Code::kBusy,
                    "{} is open in {}, which holds its lock: wait for it to end, or, where that is `quarry "
                    "serve`, give its address, unix:PATH, instead",
                    folder, Holder(lock_path));
}

bool SameFile(int descriptor, const std::string& path) {
  struct stat held {};
  struct stat named {};
  return fstat(descriptor, &held) == 0 && stat(path.c_str(), &named) == 0 && held.st_ino == named.st_ino &&
         held.st_dev == named.st_dev;
}

}  // namespace

Result<FolderLock> FolderLock::Acquire(const std::string& path) {
  const std::string lock_path = path + "/LOCK";
  File folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC), path, false);
  if (folder.descriptor() < 0) return ErrnoStatus(errno, "open the folder", path);
  // Any other errno: a file system that locks no folders.
  if (flock(folder.descriptor(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return Busy(path, lock_path);
  bool writable = true;
  auto opened = OpenRegularFile(lock_path, O_RDWR | O_CREAT, Code::kCorruption);
  if (opened.status().code() == Code::kIoError) {  // nobody may write there, or LOCK is somebody else's
    writable = false;
    auto readable = OpenRegularFile(lock_path, O_RDONLY, Code::kCorruption);
    if (readable.ok()) opened = std::move(readable);
  }
  if (!opened.ok()) return opened.status();
  File file(opened->descriptor, lock_path, false);
  if (flock(file.descriptor(), LOCK_EX | LOCK_NB) != 0) {
    return errno == EWOULDBLOCK ? Busy(path, lock_path) : ErrnoStatus(errno, "lock", lock_path);
  }
  if (writable) {
    const std::string pid = std::to_string(getpid()) + "\n";
    // For the message above only: a LOCK without it (a full disk) locks all the same.
    if (ftruncate(file.descriptor(), 0) == 0)
      static_cast<void>(pwrite(file.descriptor(), pid.data(), pid.size(), 0) > 0);
  }
  return FolderLock(std::move(folder), std::move(file));
}

bool FolderLock::Holds(const std::string& folder) const {
  return SameFile(folder_.descriptor(), folder) && SameFile(file_.descriptor(), file_.path());
}

}  // namespace quarry
