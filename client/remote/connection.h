// Connection: requests and their answers over one socket. Private to this library.
//
// Any number of threads send; one thread reads and gives each answer to whom it is for. A connection that was
// lost stays so: whoever waits is told, and a new one is opened (RemoteStore).
//
//   kWaiting -> kAnswered   [Deliver, Fail]
//   kWaiting -> kAbandoned  [Abandon]        its answer is dropped, and what it leased is released
//
// The reading thread never sends: a server that waits for room to answer would wait for ever.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "deadline.h"
#include "quarry/base/mutex.h"
#include "quarry/base/thread.h"
#include "quarry/format/wire.h"
#include "unix_socket.h"

namespace quarry::client {

class Connection {
 public:
  // What the server answered (a Failure, too), and the descriptors that came with it.
  struct Answer {
    wire::Response response;
    std::vector<UniqueFd> fds;
  };
  // A request under way.
  struct Pending;
  using Ticket = std::shared_ptr<Pending>;

  static Result<std::unique_ptr<Connection>> Open(const ServerPlace& place);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // What the server takes, as it said in its welcome.
  void SetServerLimits(const wire::ServerLimits& limits);

  // Waits until the server takes another request. `holds` is kept until the answer is there, or can no more
  // come: memory that the server reads. Errors: those of EncodeRequest, and of the connection.
  Result<Ticket> Send(const wire::Request& request, Deadline deadline,
                      std::shared_ptr<const void> holds = {});
  // For what is asked ahead: null when half of what the server takes is under way.
  Result<Ticket> TrySend(const wire::Request& request, Deadline deadline);
  // Nobody waits for the answer: to give back what is gone with the connection, too.
  void Post(const wire::Request& request);
  // kIoError when the deadline passes: the request goes on, and may be waited for again. One answer, once.
  Result<Answer> Wait(const Ticket& ticket, Deadline deadline);
  // What the server said last of how far the request is; nothing before it has.
  std::optional<wire::Progress> ProgressOf(const Ticket& ticket) const;
  // The server is asked to end it; its answer is still waited for.
  void Cancel(const Ticket& ticket);
  // Nobody waits for it any more; the server is told.
  void Abandon(const Ticket& ticket);
  // The lease is given back with the next request, or at once.
  void Release(uint64_t lease, bool at_once);

  // Why the connection ended; OK while it has not.
  Status fault() const;
  bool lost() const { return !fault().ok(); }
  // Whether it was lost by then.
  bool WaitLost(Deadline deadline);

 private:
  // Among the requests without an answer; cancel and releaseLeases are not counted.
  enum class Room { kWait, kHalf, kUncounted };

  Connection(std::string path, UniqueFd socket);
  Result<Ticket> Start(const wire::Request& request, Room room, Deadline deadline, const Ticket& ticket);
  Result<bool> Enter(const Ticket& ticket, Room room, Deadline deadline);
  Ticket MakeTicket(bool heard, std::shared_ptr<const void> holds = {});
  Status Write(std::span<const std::byte> frame, Deadline deadline);
  std::vector<std::byte> TakeReleases();
  void Read();
  Status ReadFrames(std::span<const std::byte> bytes, std::vector<UniqueFd>& fds);
  Status Deliver(const wire::Frame& frame, std::vector<UniqueFd>& fds);
  Status Settle(uint64_t id, Answer answer);
  Status Note(uint64_t id, wire::Progress progress);
  void Fail(const Status& fault);

  const std::string path_;
  const UniqueFd socket_;
  std::atomic<uint64_t> next_id_{1};

  mutable Mutex mutex_;
  wire::Limits server_limits_ QUARRY_GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, Ticket> pending_ QUARRY_GUARDED_BY(mutex_);
  uint32_t outstanding_ QUARRY_GUARDED_BY(mutex_) = 0;
  std::vector<uint64_t> releases_ QUARRY_GUARDED_BY(mutex_);
  Status fault_ QUARRY_GUARDED_BY(mutex_);
  CondVar room_;  // an answer came, or the connection was lost

  Mutex write_mutex_;                           // frames are sent whole
  wire::FrameDecoder decoder_{wire::Limits()};  // the reading thread's
  Thread reader_;
};

}  // namespace quarry::client
