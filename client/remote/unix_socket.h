// The socket under a connection: bytes, and the descriptors that travel with them. Private to this library.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "deadline.h"
#include "quarry/base/status.h"

namespace quarry::client {

// Owns a file descriptor; moves, and closes it.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd();
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

// Where a server is, and as whom it may run besides root and the user of this process.
struct ServerPlace {
  std::string path;
  std::optional<uid_t> server_uid;
};
// Parses "PATH" or "PATH?server-uid=UID". kInvalidArgument for a UID that is not a number.
Result<ServerPlace> ParsePlace(std::string_view text);

// kInvalidArgument when the server runs as `server`, who is neither root, nor `self`, nor named by the place:
// whoever may make a socket where one is looked for could else read what is sent there.
Status CheckServerUser(const ServerPlace& place, uid_t server, uid_t self);

// kNotFound when nobody listens at the path, kBusy when too many wait to be let in, kInvalidArgument for a
// path that no socket can have, and as CheckServerUser.
Result<UniqueFd> ConnectUnix(const ServerPlace& place);

// Sends all of `bytes`. kIoError, also when the peer did not take them in time: some may be sent by then.
Status SendAll(int socket, std::span<const std::byte> bytes, Deadline deadline, const std::string& path);

// Waits for bytes and descriptors; 0 bytes at the end of the stream. kCorruption for more descriptors at once
// than the protocol has.
Result<size_t> Receive(int socket, std::span<std::byte> buffer, std::vector<UniqueFd>& fds,
                       const std::string& path);

// Whether the peer has closed the stream: what it sent before may still be read.
bool PeerHasClosed(int socket);

// Ends the stream both ways: whoever waits in Receive wakes.
void EndStream(int socket);

}  // namespace quarry::client
