#include "socket_path.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>

#include "quarry/io/backend.h"

namespace quarry {
namespace {

constexpr int kBacklog = 128;

Result<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return MakeStatus(Code::kInvalidArgument, "{}: the path of a socket has 1 to {} bytes, this one {}", path,
                      sizeof(address.sun_path) - 1, path.size());
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

std::string FolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path();
  return folder.empty() ? "." : folder;
}

// Who may rename a folder on the way to the socket may put another one in its place.
Status CheckParents(const std::string& folder) {
  std::error_code error;
  std::filesystem::path parent = std::filesystem::canonical(folder, error);
  if (error) return ErrnoStatus(error.value(), "find the folders above", folder);
  while (parent.has_relative_path()) {
    parent = parent.parent_path();
    struct stat about {};
    if (stat(parent.c_str(), &about) != 0) return ErrnoStatus(errno, "look at", parent.string());
    if ((about.st_mode & S_IWOTH) == 0 || (about.st_mode & S_ISVTX) != 0) continue;
    return MakeStatus(
        Code::kInvalidArgument,
        "{}: {} above it has mode {:04o}, so everybody may put another folder in its place: give "
        "the socket another folder (or chmod +t {})",
        folder, parent.string(), about.st_mode & 07777, parent.string());
  }
  return Status::Ok();
}

// The folder, open; made when there is none.
Result<File> OpenFolder(const std::string& folder, bool others) {
  if (mkdir(folder.c_str(), others ? 0711 : 0700) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, "create the folder", folder);
  }
  File opened(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC), folder, false);
  struct stat about {};
  if (opened.descriptor() < 0 || fstat(opened.descriptor(), &about) != 0) {
    return ErrnoStatus(errno, "open the folder", folder);
  }
  // Nobody else changes what is in a folder of root's, as /run; who may connect, the socket's mode says.
  const bool is_roots = about.st_uid == 0 && (about.st_mode & 022) == 0;
  if (about.st_uid != geteuid() && !is_roots) {
    return MakeStatus(Code::kInvalidArgument,
                      "{}: the folder of a socket must be one's own, or root's; this one is of user {}",
                      folder, about.st_uid);
  }
  QUARRY_RETURN_IF_ERROR(CheckParents(folder));
  if (is_roots) return opened;
  const mode_t refused = others ? 022 : 077;
  if ((about.st_mode & refused) == 0) return opened;
  return MakeStatus(
      Code::kInvalidArgument,
      "{}: the folder has mode {:04o}, so others may {} it: give the socket a folder of its own "
      "(chmod {})",
      folder, about.st_mode & 07777, others ? "write to" : "enter", others ? "0711" : "0700");
}

// The locks of sockets' folders are held for moments; that of a database's folder (lock.h of storage) for as
// long as it is open. `own`: the folder of the database that this process has open, whose lock keeps all
// others out.
Status LockFolder(const File& folder, const std::string& own) {
  struct stat about {};
  struct stat database {};
  if (fstat(folder.descriptor(), &about) == 0 && stat(own.c_str(), &database) == 0 &&
      about.st_ino == database.st_ino && about.st_dev == database.st_dev) {
    return Status::Ok();
  }
  constexpr std::chrono::seconds kPatience{5};
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (flock(folder.descriptor(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return ErrnoStatus(errno, "lock", folder.path());
    if (std::chrono::steady_clock::now() > deadline) {
      return MakeStatus(
          Code::kBusy,
          "{}: another process has the folder locked; if it is a database's that is open, give the "
          "socket a folder of its own",
          folder.path());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return Status::Ok();
}

bool Answers(const sockaddr_un& address) {
  const File probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), "", false);
  const auto* const to = reinterpret_cast<const sockaddr*>(&address);
  // EAGAIN: it listens, and has much to do.
  return probe.descriptor() >= 0 &&
         (connect(probe.descriptor(), to, sizeof(address)) == 0 || errno == EAGAIN);
}

// The lock of the folder is held: nobody else replaces what is there.
Status MakePlace(const std::string& path, const sockaddr_un& address) {
  struct stat about {};
  if (lstat(path.c_str(), &about) != 0) {
    return errno == ENOENT ? Status::Ok() : ErrnoStatus(errno, "look at", path);
  }
  if (!S_ISSOCK(about.st_mode)) {
    return MakeStatus(Code::kAlreadyExists, "{}: is there, and is no socket: give another path", path);
  }
  if (Answers(address)) {
    return MakeStatus(Code::kAlreadyExists, "{}: a server answers there: stop it, or give another path",
                      path);
  }
  return unlink(path.c_str()) == 0 ? Status::Ok() : ErrnoStatus(errno, "remove the stale socket", path);
}

// A socket is made under another name, and gets its own once it listens: who sees it there can connect. As long as the path
// is, since a socket's has few bytes.
std::string Unfinished(std::string path) {
  path.back() = path.back() == '~' ? '-' : '~';
  return path;
}

}  // namespace

Result<int> ListenAt(const std::string& path, bool others, const std::string& database) {
  QUARRY_TRY(const sockaddr_un address, AddressOf(path));
  QUARRY_TRY(const File folder, OpenFolder(FolderOf(path), others));
  QUARRY_RETURN_IF_ERROR(LockFolder(folder, database));
  QUARRY_RETURN_IF_ERROR(MakePlace(path, address));
  const std::string unfinished = Unfinished(path);
  QUARRY_TRY(const sockaddr_un at_first, AddressOf(unfinished));
  QUARRY_RETURN_IF_ERROR(MakePlace(unfinished, at_first));
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener < 0) return ErrnoStatus(errno, "open a socket for", path);
  const mode_t mode = others ? 0666 : 0600;
  // The mode first of the socket itself, so that there is no instant at which it is another.
  if (fchmod(listener, mode) == 0 &&
      bind(listener, reinterpret_cast<const sockaddr*>(&at_first), sizeof(at_first)) == 0 &&
      chmod(unfinished.c_str(), mode) == 0 && listen(listener, kBacklog) == 0 &&
      rename(unfinished.c_str(), path.c_str()) == 0) {
    return listener;
  }
  const Status status = ErrnoStatus(errno, "listen at", path);
  close(listener);
  unlink(unfinished.c_str());  // it is this one's: its place was free, and the folder is locked
  return status;
}

void RemoveSocket(const std::string& path, int descriptor, const std::string& database) {
  // Whoever answers at the path now would be found by its lock: only one server is between look and removal.
  const File folder(open(FolderOf(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC), path, false);
  const bool locked = folder.descriptor() >= 0 && LockFolder(folder, database).ok();
  if (descriptor >= 0) close(descriptor);
  if (!locked) return;  // whoever listens there next replaces it
  const Result<sockaddr_un> address = AddressOf(path);
  if (address.ok() && !Answers(*address)) unlink(path.c_str());
}

}  // namespace quarry
