#include "http_get.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "quarry/base/units.h"

namespace quarry::cli {
namespace {

constexpr size_t kAnswerBytesMax = 16 * kMiB;
constexpr timeval kPatience{.tv_sec = 5, .tv_usec = 0};

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() { close(fd_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

Result<std::unique_ptr<Socket>> Connect(const std::string& host, const std::string& port) {
  const addrinfo hints{.ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return MakeStatus(Code::kNotFound, "{}:{}: {}", host, port, gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  int error = 0;
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    auto opened = std::make_unique<Socket>(socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    setsockopt(opened->fd(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof(kPatience));
    setsockopt(opened->fd(), SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof(kPatience));
    if (connect(opened->fd(), address->ai_addr, address->ai_addrlen) == 0) return opened;
    error = errno;
  }
  return MakeStatus(Code::kNotFound, "{}:{}: {}", host, port,
                    ErrnoStatus(error, "connect to", "it").message());
}

}  // namespace

Result<std::string> HttpGet(std::string_view url, std::string_view path) {
  constexpr std::string_view kScheme = "http://";
  std::string_view place = url;
  if (place.starts_with(kScheme)) place.remove_prefix(kScheme.size());
  place = place.substr(0, place.find('/'));
  const size_t colon = place.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || colon + 1 == place.size()) {
    return MakeStatus(Code::kUsage, "'{}' is no address of a server: write http://127.0.0.1:9090", url);
  }
  QUARRY_TRY(const std::unique_ptr<Socket> socket,
             Connect(std::string(place.substr(0, colon)), std::string(place.substr(colon + 1))));
  const std::string request = fmt::format("GET {} HTTP/1.0\r\nHost: {}\r\n\r\n", path, place);
  if (send(socket->fd(), request.data(), request.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(request.size())) {
    return ErrnoStatus(errno, "ask", url);
  }
  std::string answer;
  for (char piece[16 << 10];;) {
    const ssize_t bytes = recv(socket->fd(), piece, sizeof(piece), 0);
    if (bytes < 0) return ErrnoStatus(errno, "read the answer of", url);
    if (bytes == 0) break;
    answer.append(piece, static_cast<size_t>(bytes));
    if (answer.size() > kAnswerBytesMax) return MakeStatus(Code::kIoError, "{}: an answer without end", url);
  }
  const size_t end = answer.find("\r\n\r\n");
  if (!answer.starts_with("HTTP/1.") || end == std::string::npos || answer.substr(9, 3) != "200") {
    return MakeStatus(Code::kIoError, "{}: answers \"{}\"", url, answer.substr(0, answer.find('\r')));
  }
  return answer.substr(end + 4);
}

}  // namespace quarry::cli
