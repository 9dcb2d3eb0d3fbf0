// A client of the local protocol, as plain as can be: frames by hand over a blocking socket, for tests that
// want to say anything to a server, also what no client would.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "quarry/format/wire.h"
#include "support/status_matchers.h"

namespace quarry::testing_util {

// A connected socket, or -1 with errno.
inline int ConnectTo(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

class WirePeer {
 public:
  struct Answer {
    uint64_t id = 0;
    Result<wire::Response> response;
  };

  explicit WirePeer(const std::string& path) : fd_(ConnectTo(path)) {
    EXPECT_GE(fd_, 0) << path << ": " << std::strerror(errno);
  }
  ~WirePeer() { Close(); }
  WirePeer(const WirePeer&) = delete;
  WirePeer& operator=(const WirePeer&) = delete;

  void Close() {
    for (const auto& [id, region] : regions_) munmap(region.data(), region.size());
    for (const int fd : descriptors_) close(fd);
    regions_.clear();
    descriptors_.clear();
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  int fd() const { return fd_; }
  std::vector<wire::Progress> progress;  // what came of it before the answers that were awaited

  // False when the server is gone.
  bool SendBytes(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent <= 0) return false;
      bytes = bytes.subspan(static_cast<size_t>(sent));
    }
    return true;
  }
  bool Send(uint64_t id, const wire::Request& request) {
    const auto frame = wire::EncodeRequest(id, request);
    EXPECT_OK(frame);
    return frame.ok() && SendBytes(*frame);
  }
  uint64_t Send(const wire::Request& request) {
    Send(++last_id_, request);
    return last_id_;
  }

  // The next answer; nothing when the server has closed, or says nothing for so long.
  std::optional<Answer> Receive(double seconds = 20) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (true) {
      std::span<const std::byte> rest(received_);
      auto frame = decoder_.Next(rest);
      received_.erase(received_.begin(), received_.end() - static_cast<ptrdiff_t>(rest.size()));
      if (!frame.ok()) return Answer{0, frame.status()};
      if (frame->has_value()) return Answer{(*frame)->id, wire::DecodeResponse(**frame)};
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      pollfd waiting = {fd_, POLLIN, 0};
      if (left.count() <= 0 || poll(&waiting, 1, static_cast<int>(left.count())) <= 0) return std::nullopt;
      if (!ReceiveSome()) return std::nullopt;
    }
  }
  // The answer to this request; others are kept for their turn.
  Result<wire::Response> Await(uint64_t id, double seconds = 20) {
    while (true) {
      if (const auto found = early_.find(id); found != early_.end()) {
        Result<wire::Response> response = std::move(found->second);
        early_.erase(found);
        return response;
      }
      std::optional<Answer> answer = Receive(seconds);
      if (!answer) return MakeStatus(Code::kIoError, "request {}: no answer", id);
      if (answer->id == 0 && answer->response.ok()) {  // of the connection
        return wire::ToStatus(std::get<wire::Failure>(*answer->response));
      }
      if (const auto* const failure =
              answer->response.ok() ? std::get_if<wire::Failure>(&*answer->response) : nullptr) {
        answer->response = wire::ToStatus(*failure);
      }
      const auto* const told =
          answer->response.ok() ? std::get_if<wire::Progress>(&*answer->response) : nullptr;
      if (told != nullptr) {
        progress.push_back(*told);
        continue;
      }
      early_.emplace(answer->id, std::move(answer->response));
    }
  }
  Result<wire::Response> Call(const wire::Request& request) { return Await(Send(request)); }
  // The answer as a T; kInternal when it is another one.
  template <typename T>
  Result<T> CallFor(const wire::Request& request) {
    QUARRY_TRY(wire::Response response, Call(request));
    if (T* const value = std::get_if<T>(&response)) return std::move(*value);
    return MakeStatus(Code::kInternal, "an answer of kind {}", response.index());
  }

  // True when the server has closed the connection within so many seconds; what it says first is dropped.
  bool IsClosed(double seconds = 5) {
    while (const auto answer = Receive(seconds)) last_failure_ = answer->response;
    char byte = 0;
    const ssize_t got = recv(fd_, &byte, 1, MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno == ECONNRESET);
  }
  // What the connection's end was told with, after IsClosed.
  Status last_failure() const {
    if (!last_failure_ || !last_failure_->ok()) return Status::Ok();
    const auto* const failure = std::get_if<wire::Failure>(&**last_failure_);
    return failure == nullptr ? Status::Ok() : wire::ToStatus(*failure);
  }

  Result<wire::Welcome> Hello(uint64_t capabilities = wire::kSharedMemory | wire::kInline) {
    auto welcome = CallFor<wire::Welcome>(wire::Hello{.capabilities = capabilities});
    decoder_.HandshakeDone(1 << 20);
    return welcome;
  }
  Result<wire::SessionOpened> OpenSession(const wire::OpenSession& request) {
    QUARRY_TRY(auto opened, CallFor<wire::SessionOpened>(request));
    for (const wire::Region& region : opened.regions) Map(region);
    return opened;
  }
  // Both, for a client that is named by a number.
  Result<wire::SessionOpened> Open(uint64_t budget_bytes = 32 << 20,
                                   uint64_t capabilities = wire::kSharedMemory | wire::kInline,
                                   uint8_t client = 1, uint32_t wait_ms = 0) {
    QUARRY_RETURN_IF_ERROR(Hello(capabilities).status());
    wire::OpenSession request = {
        .budget_bytes = budget_bytes, .budget_bytes_min = budget_bytes, .wait_ms = wait_ms};
    request.client_id.fill(std::byte{client});
    return OpenSession(request);
  }
  Result<wire::StreamOpened> OpenStream(const wire::OpenStream& request) {
    QUARRY_TRY(auto opened, CallFor<wire::StreamOpened>(request));
    for (const wire::Region& region : opened.regions) Map(region);
    return opened;
  }

  // Takes the descriptor that came first, and maps it as the region says.
  void Map(const wire::Region& region) {
    ASSERT_FALSE(descriptors_.empty()) << "region " << region.id << " came without a descriptor";
    const int fd = descriptors_.front();
    descriptors_.pop_front();
    const bool writes = region.access == wire::RegionAccess::kClientWrites;
    void* const memory =
        mmap(nullptr, region.bytes, writes ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    ASSERT_NE(memory, MAP_FAILED) << std::strerror(errno);
    close(fd);
    regions_[region.id] = {static_cast<std::byte*>(memory), region.bytes};
  }
  std::span<std::byte> region(uint32_t id) { return regions_.at(id); }
  size_t descriptors() const { return descriptors_.size(); }
  // The descriptor that came first, which is the caller's then; -1 when none has.
  int TakeDescriptor() {
    if (descriptors_.empty()) return -1;
    const int descriptor = descriptors_.front();
    descriptors_.pop_front();
    return descriptor;
  }

  // The bytes of an answer, wherever they are; a lease is released.
  Result<std::vector<std::byte>> Take(const wire::Payload& payload) {
    if (const auto* const bytes = std::get_if<std::vector<std::byte>>(&payload)) return *bytes;
    const wire::Lease& lease = std::get<wire::Lease>(payload);
    QUARRY_TRY(std::vector<std::byte> bytes, Read(lease));
    QUARRY_RETURN_IF_ERROR(CallFor<wire::Done>(wire::ReleaseLeases{{lease.id}}).status());
    return bytes;
  }
  Result<std::vector<std::byte>> Read(const wire::Lease& lease) {
    std::vector<std::byte> bytes;
    if (lease.range.region != 0) {
      const auto leased = region(lease.range.region).subspan(lease.range.offset, lease.range.bytes);
      return std::vector<std::byte>(leased.begin(), leased.end());
    }
    while (bytes.size() < lease.range.bytes) {
      QUARRY_TRY(const auto chunk, CallFor<wire::Chunk>(wire::ReadLease{lease.id, bytes.size(), 1 << 20}));
      if (chunk.bytes.empty()) return Status(Code::kInternal, "an empty chunk");
      bytes.insert(bytes.end(), chunk.bytes.begin(), chunk.bytes.end());
    }
    return bytes;
  }

 private:
  bool ReceiveSome() {
    std::vector<std::byte> bytes(64 << 10);
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 16)];
    iovec piece = {bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t got = recvmsg(fd_, &message, MSG_CMSG_CLOEXEC);
    if (got <= 0) return false;
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_type != SCM_RIGHTS) continue;
      for (size_t at = 0; at + sizeof(int) <= header->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(header) + at, sizeof(fd));
        descriptors_.push_back(fd);
      }
    }
    received_.insert(received_.end(), bytes.begin(), bytes.begin() + got);
    return true;
  }

  int fd_;
  uint64_t last_id_ = 0;
  wire::FrameDecoder decoder_{wire::Limits()};
  std::vector<std::byte> received_;
  std::deque<int> descriptors_;
  std::map<uint32_t, std::span<std::byte>> regions_;
  std::map<uint64_t, Result<wire::Response>> early_;
  std::optional<Result<wire::Response>> last_failure_;
};

}  // namespace quarry::testing_util
