// Peers of a remote store that do what a script says: a server of lies, and a wire that breaks.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <poll.h>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "quarry/format/wire.h"
#include "quarry/format/wire_batch.h"
#include "support/status_matchers.h"

namespace quarry::testing_util {

inline sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  return address;
}

// A listening socket, and a thread that serves one connection after the other.
class Listener {
 public:
  Listener(std::string path, std::function<void(int)> serve)
      : path_(std::move(path)), serve_(std::move(serve)) {
    fd_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_un address = AddressOf(path_);
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0) << path_;
    EXPECT_EQ(listen(fd_, 16), 0);
    thread_ = std::thread([this] { Run(); });
  }
  ~Listener() {
    stopping_ = true;
    shutdown(fd_, SHUT_RDWR);
    if (const int connection = connection_.load(); connection >= 0) shutdown(connection, SHUT_RDWR);
    thread_.join();
    close(fd_);
    unlink(path_.c_str());
  }
  std::string address() const { return "unix:" + path_; }
  int connections() const { return connections_; }

 private:
  void Run() {
    while (!stopping_) {
      const int connection = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) return;
      connection_ = connection;
      ++connections_;
      if (!stopping_) serve_(connection);
      connection_ = -1;
      close(connection);
    }
  }

  const std::string path_;
  const std::function<void(int)> serve_;
  int fd_ = -1;
  std::atomic<int> connection_{-1};
  std::atomic<int> connections_{0};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

// Sends bytes, with descriptors on the first.
inline bool SendWith(int socket, std::span<const std::byte> bytes, const std::vector<int>& fds = {}) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(64 * sizeof(int))> control{};
  iovec part{.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
  }
  const ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL);
  if (sent < 0) return false;
  return static_cast<size_t>(sent) == bytes.size() ||
         SendWith(socket, bytes.subspan(static_cast<size_t>(sent)));
}

inline ssize_t ReceiveWith(int socket, std::span<std::byte> buffer, std::vector<int>& fds) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(64 * sizeof(int))> control{};
  iovec part{.iov_base = buffer.data(), .iov_len = buffer.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (received < 0) return received;  // `control` holds nothing
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    const size_t before = fds.size();
    fds.resize(before + count);
    std::memcpy(&fds[before], CMSG_DATA(header), count * sizeof(int));
  }
  return received;
}

// A server that answers as it is told, and hello and openSession as a good one does unless it is told
// otherwise.
class FakeServer {
 public:
  struct Reply {
    std::vector<std::byte> frame;
    std::vector<int> fds;
    bool close = false;
  };
  // Nothing: the request stays without an answer.
  using Script = std::function<std::optional<Reply>(uint64_t id, const wire::Request& request)>;

  FakeServer(const std::string& path, Script script)
      : script_(std::move(script)), listener_(path, [this](int socket) { Serve(socket); }) {}
  std::string address() const { return listener_.address(); }

  static Reply Answer(uint64_t id, const wire::Response& response, std::vector<int> fds = {}) {
    auto frame = wire::EncodeResponse(id, response);
    EXPECT_OK(frame);
    return {.frame = std::move(frame).value(), .fds = std::move(fds)};
  }

 private:
  std::optional<Reply> AnswerTo(uint64_t id, const wire::Request& request) {
    std::optional<Reply> scripted = script_(id, request);
    if (scripted && (!scripted->frame.empty() || scripted->close)) return scripted;
    if (std::holds_alternative<wire::Hello>(request)) {
      return Answer(id, wire::Welcome{.capabilities = wire::kSharedMemory | wire::kInline,
                                      .limits = {.sessions_max = 4, .budget_bytes = 64 << 20}});
    }
    if (std::holds_alternative<wire::OpenSession>(request)) {
      return Answer(id, wire::SessionOpened{.session = 1, .budget_bytes = 16 << 20});
    }
    return scripted;
  }
  void Serve(int socket) {
    wire::FrameDecoder decoder{wire::Limits()};
    decoder.HandshakeDone(wire::Limits().message_bytes_max);
    std::vector<std::byte> buffer(64 << 10);
    while (true) {
      const ssize_t received = recv(socket, buffer.data(), buffer.size(), 0);
      if (received <= 0) return;
      std::span<const std::byte> bytes(buffer.data(), static_cast<size_t>(received));
      while (!bytes.empty()) {
        ASSERT_OK_AND_ASSIGN(auto frame, decoder.Next(bytes));
        if (!frame) break;
        ASSERT_OK_AND_ASSIGN(auto request, wire::DecodeRequest(*frame));
        const std::optional<Reply> reply = AnswerTo(frame->id, request);
        if (!reply) continue;
        if (!reply->frame.empty()) SendWith(socket, reply->frame, reply->fds);
        if (reply->close) return;
      }
    }
  }

  const Script script_;
  Listener listener_;
};

// A memfd of so many bytes.
inline int MakeRegion(uint64_t bytes, int seals = F_SEAL_SHRINK | F_SEAL_GROW) {
  const int fd = memfd_create("fake", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT_EQ(ftruncate(fd, static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
  return fd;
}

// Stands between client and server, and cuts the wire.
class BreakingWire {
 public:
  BreakingWire(const std::string& path, std::string server)
      : server_(std::move(server)), listener_(std::in_place, path, [this](int socket) { Relay(socket); }) {}
  std::string address() const { return listener_->address(); }
  int connections() const { return listener_->connections(); }
  // The next thing that the server sends is lost, and the connection with it.
  void CutBeforeNextAnswer() { cut_answer_ = true; }
  // After so many more answers (pieces of the stream, at least).
  void CutAfterAnswers(int answers) { answers_left_ = answers; }
  // Called when an answer was swallowed, before the connection ends.
  std::function<void()> on_cut;
  // How much later than the client the server notices.
  std::chrono::milliseconds server_lag{0};
  ~BreakingWire() {
    listener_.reset();
    for (std::thread& thread : lagging_) thread.join();
  }

 private:
  void Relay(int client) {
    const int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_un address = AddressOf(server_);
    if (connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
      while (Pass(client, server)) {
      }
    }
    if (server_lag.count() == 0) {
      close(server);
    } else {
      lagging_.emplace_back([server, lag = server_lag] {
        std::this_thread::sleep_for(lag);
        close(server);
      });
    }
  }
  bool Pass(int client, int server) {
    std::array<pollfd, 2> ready = {pollfd{client, POLLIN, 0}, pollfd{server, POLLIN, 0}};
    if (poll(ready.data(), ready.size(), -1) < 0) return true;
    if (ready[0].revents != 0 && !Copy(client, server)) return false;
    if (ready[1].revents == 0) return true;
    if (cut_answer_.exchange(false)) {
      if (on_cut) on_cut();
      return false;
    }
    if (!Copy(server, client)) return false;
    return answers_left_ < 0 || answers_left_-- > 0;
  }
  static bool Copy(int from, int to) {
    std::array<std::byte, 16384> buffer;
    std::vector<int> fds;
    const ssize_t received = ReceiveWith(from, buffer, fds);
    const bool sent =
        received > 0 && SendWith(to, std::span(buffer).first(static_cast<size_t>(received)), fds);
    for (const int fd : fds) close(fd);
    return sent;
  }

  const std::string server_;
  std::atomic<bool> cut_answer_{false};
  std::atomic<int> answers_left_{-1};
  std::vector<std::thread> lagging_;
  std::optional<Listener> listener_;
};

}  // namespace quarry::testing_util
