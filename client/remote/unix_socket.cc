#include "unix_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

namespace quarry::client {
namespace {

constexpr size_t kFdsMax = 64;  // room for those of several frames that arrive together

// Milliseconds for poll, rounded up: a wait must not end before its deadline.
int PollMilliseconds(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1 << 30));
}

// Descriptors are owned before anything is said about them: none may leak.
void TakeFds(msghdr& message, std::vector<UniqueFd>& fds) {
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
}

}  // namespace

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) close(fd_);
}

Result<ServerPlace> ParsePlace(std::string_view text) {
  constexpr std::string_view kUid = "?server-uid=";
  const size_t option = text.rfind(kUid);
  if (option == std::string_view::npos) return ServerPlace{.path = std::string(text)};
  const std::string_view number = text.substr(option + kUid.size());
  uid_t uid = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), uid);
  if (error != std::errc() || end != number.data() + number.size()) {
    return MakeStatus(Code::kInvalidArgument, "unix:{}: '{}' is not the number of a user", text, number);
  }
  return ServerPlace{.path = std::string(text.substr(0, option)), .server_uid = uid};
}

Status CheckServerUser(const ServerPlace& place, uid_t server, uid_t self) {
  if (server == self || server == 0 || server == place.server_uid) return Status::Ok();
  return MakeStatus(
      Code::kInvalidArgument,
      "{}: it is user {} who serves there, neither you nor root: if you mean that user's server, "
      "write unix:{}?server-uid={}",
      place.path, server, place.path, server);
}

namespace {

// As whom the server that was connected to listens.
Status CheckPeer(const ServerPlace& place, int socket) {
  ucred server{};
  socklen_t bytes = sizeof(server);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &server, &bytes) != 0) {
    return ErrnoStatus(errno, "ask for the user of the server at", place.path);
  }
  return CheckServerUser(place, server.uid, geteuid());
}

}  // namespace

Result<UniqueFd> ConnectUnix(const ServerPlace& place) {
  const std::string& path = place.path;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return MakeStatus(Code::kInvalidArgument, "\"{}\": the path of a socket has 1 to {} bytes", path,
                      sizeof(address.sun_path) - 1);
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0) return ErrnoStatus(errno, "make a socket for", path);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
    QUARRY_RETURN_IF_ERROR(CheckPeer(place, fd.get()));
    return fd;
  }
  if (errno == ENOENT || errno == ECONNREFUSED) {
    return MakeStatus(Code::kNotFound, "{}: no server listens there; `quarry serve` starts one", path);
  }
  if (errno == EAGAIN) return MakeStatus(Code::kBusy, "{}: too many clients wait to be let in", path);
  return ErrnoStatus(errno, "connect to", path);
}

Status SendAll(int socket, std::span<const std::byte> bytes, Deadline deadline, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<size_t>(sent));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) {
      return MakeStatus(Code::kIoError, "{}: the connection to the server is lost: {}", path,
                        std::strerror(errno));
    }
    if (HasPassed(deadline)) {
      return MakeStatus(Code::kIoError, "{}: the server does not take what it is sent", path);
    }
    pollfd ready{.fd = socket, .events = POLLOUT, .revents = 0};
    poll(&ready, 1, PollMilliseconds(deadline));
  }
  return Status();
}

Result<size_t> Receive(int socket, std::span<std::byte> buffer, std::vector<UniqueFd>& fds,
                       const std::string& path) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kFdsMax * sizeof(int))> control;
  while (true) {
    iovec bytes{.iov_base = buffer.data(), .iov_len = buffer.size()};
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    if (received >= 0) {
      TakeFds(message, fds);
      if ((message.msg_flags & MSG_CTRUNC) == 0) return static_cast<size_t>(received);
      return MakeStatus(Code::kCorruption, "{}: the server sent more than {} descriptors at once", path,
                        kFdsMax);
    }
    if (errno == EAGAIN) {
      pollfd ready{.fd = socket, .events = POLLIN, .revents = 0};
      poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      return MakeStatus(Code::kIoError, "{}: the connection to the server is lost: {}", path,
                        std::strerror(errno));
    }
  }
}

bool PeerHasClosed(int socket) {
  pollfd state{.fd = socket, .events = 0, .revents = 0};
  return poll(&state, 1, 0) == 1 && (state.revents & POLLHUP) != 0;
}

void EndStream(int socket) { shutdown(socket, SHUT_RDWR); }

}  // namespace quarry::client
