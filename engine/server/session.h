// Session: one client, from its connection to its end (docs/protocol.md, "States").
//
//   kConnected -> kGreeted  hello was answered                   [On(Hello)]
//   kGreeted   -> kOpen     memory was granted, regions made     [Opened]
//   any        -> kEnded    the peer is gone, broke the protocol, or the server stops; what it held is given
//                           back, its work is cancelled          [EndWork]
//
// Its requests belong to parts, each with the state of one subject: bytes beside messages (session_bulk.h), reads
// (session_reads.h), writes (session_writes.h), streams (session_streams.h), training runs (session_trainings.h),
// maintenance (session_upkeep.h), SQL (session_sql.h). The session itself has what concerns all of them: the
// connection, the budget, and which requests are pending.
//
// Everything of a session happens on its strand, but for the work that its requests are: that is done by the
// engine's threads, which come back to the strand with the result. A request is *pending* from its arrival to
// its answer; results of requests that are not pending any more are dropped. So a cancelled request, a client
// that vanished and a server that stops are the same case.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "connection.h"
#include "quarry/base/exhaustion.h"
#include "quarry/format/wire.h"
#include "server_core.h"

namespace quarry {

class Session : public std::enable_shared_from_this<Session> {
 public:
  using Clock = std::chrono::steady_clock;
  struct Peer {
    pid_t pid = 0;
    uid_t uid = 0;
  };
  // `descriptor`: of the connected socket, which does not block. The core outlives the session.
  Session(ServerCore& core, SessionId id, const Peer& peer, int descriptor);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session();

  // These may be called from any thread.
  void Start();
  // Answers what is pending with kCancelled, except for writes that have begun, tells the client, and closes.
  void Shutdown();
  // Closes at once.
  void Close();
  // Tells the client why, and closes.
  void End(const Status& why);
  // Since when it holds nothing: no session is open, no request under way. Nothing when it does.
  std::optional<Clock::time_point> spare_since() const;
  wire::SessionStatus status() const;

 private:
  enum class State { kConnected, kGreeted, kOpen, kEnded };

  struct Pending {
    size_t kind = 0;  // alternative of wire::Request
    Clock::time_point start;
    std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);
    std::function<void()> cancel;  // makes an answer come soon; may be empty: the work looks at `cancelled`
    MemoryBudget::Reservation reservation;  // for its message
  };
  // What a worker knows of the request that it works for.
  struct Task {
    unsigned thread = 0;
    const std::atomic<bool>& cancelled;
  };
  // What handles the requests of one subject. Its state is the strand's; what workers call has all it needs in the request,
  // or in what it was handed (LookupWork, StagedPut, Sql::Hold), and says so.
  class Part;
  class Bulk;
  class Reads;
  class Writes;
  class Streams;
  class Trainings;
  class Upkeep;
  class Sql;

  template <typename Handler, typename Asked>
  static constexpr bool kAnswers = requires(Handler& handler, const Asked& asked) {
    handler.On(uint64_t{}, asked);
  };

  // Life, and what every request goes through.
  void OnFrame(const wire::Frame& frame);
  void Dispatch(uint64_t id, const wire::Request& request);
  void OnClosed();
  Status Admit(const wire::Request& request, const wire::Frame& frame, Pending& pending);
  void Reply(uint64_t id, const Result<wire::Response>& result, std::vector<File> files = {});
  bool Send(uint64_t id, const wire::Response& response, std::vector<File> files = {});
  void Break(const Status& status);  // ends the session, tells the client why, and closes
  void EndWork();
  void CloseWhenSent();
  void DrainStep();
  void ShowSpare();

  void On(uint64_t id, const wire::Hello& hello);
  void On(uint64_t id, const wire::OpenSession& request);
  void On(uint64_t id, const wire::GetStatus& request);
  void On(uint64_t id, const wire::Ping& request);
  void On(uint64_t id, const wire::Cancel& request);
  void WaitForMemory(uint64_t id, const wire::OpenSession& request, const Admission::Request& wanted);
  void WatchWait(Clock::time_point end, const std::function<void()>& give_up);
  void Opened(uint64_t id, const wire::OpenSession& request, const Result<Admission::Grant>& grant);

  // Has a thread of the engine do `work`, and comes back to the strand with what it returned.
  template <typename T>
  void Work(Workers& workers, uint64_t id, std::function<Result<T>(const Task&)> work,
            std::function<void(Result<T>)> then) {
    const auto found = pending_.find(id);
    if (found == pending_.end()) return;  // answered meanwhile
    auto result = std::make_shared<Result<T>>(CancelledStatus());
    workers.Submit(id_, [self = shared_from_this(), cancelled = found->second.cancelled, result,
                         work = std::move(work), then = std::move(then)](unsigned thread) mutable {
      if (!*cancelled) {
        *result = CatchExhaustion("a request", [&] { return work(Task{thread, *cancelled}); });
      }
      work = nullptr;  // what it holds is free before the answer
      self->Post([result = std::move(result), then = std::move(then)] { then(std::move(*result)); });
    });
  }
  // `handler`, called on the strand.
  template <typename T>
  std::function<void(Result<T>)> OnStrand(std::function<void(const Result<T>&)> handler) {
    return [self = shared_from_this(), handler = std::move(handler)](const Result<T>& result) {
      self->Post([handler = handler, result = Result<T>(result)] { handler(result); });
    };
  }
  // Has the strand call `handler`. It is the strand's alone then, whatever the thread that calls this is at: what the handler
  // holds is free before the session sees its client's next request, which may need it. Where memory runs out in it, the
  // session ends: what it was at is half done.
  template <typename Handler>
  void Post(Handler handler) {
    std::shared_ptr<Handler> held;
    Insist([&] {
      if (held == nullptr) held = std::make_shared<Handler>(std::move(handler));
      boost::asio::post(strand_, [self = shared_from_this(), held] {
        const Handler own = std::move(*held);
        self->Handle(own);
      });
    });
  }
  template <typename Handler>
  void Handle(const Handler& handler) {
    const Status status = CatchExhaustion("a request", [&] {
      handler();
      return Status::Ok();
    });
    if (!status.ok()) Insist([&] { Break(status); });
  }
  static constexpr uint64_t kUnpaidBytes = 16 << 10;  // messages up to this are part of a connection's price
  static Status CancelledStatus() { return {Code::kCancelled, "cancelled"}; }

  ServerCore& core_;
  const SessionId id_;
  const Peer peer_;
  const Clock::time_point since_ = Clock::now();
  Admission::Grant budget_;  // from kOpen on; outlives what is reserved from it
  const Strand strand_;
  Connection connection_;
  boost::asio::basic_waitable_timer<Clock, boost::asio::wait_traits<Clock>, Strand> deadline_;
  boost::asio::basic_waitable_timer<Clock, boost::asio::wait_traits<Clock>, Strand> admission_timer_;

  State state_ = State::kConnected;
  bool opening_ = false;
  bool draining_ = false;
  std::map<uint64_t, Pending> pending_;
  wire::Limits client_limits_;    // what the client takes
  bool shared_memory_ = false;    // the client maps regions
  uint64_t chunk_bytes_max_ = 0;  // longest part of a lease in a message
  uint64_t admission_ticket_ = 0;
  ClientId client_id_{};  // from kOpen on

  // For the status page.
  std::atomic<const MemoryBudget*> budget_shown_{nullptr};
  std::atomic<Clock::rep> spare_since_;  // 0: it holds something
  std::atomic<uint64_t> pending_shown_{0}, leases_shown_{0}, bytes_sent_{0}, shared_bytes_{0}, requests_{0};

  const std::unique_ptr<Bulk> bulk_;
  const std::unique_ptr<Reads> reads_;
  const std::unique_ptr<Writes> writes_;
  const std::unique_ptr<Streams> streams_;
  const std::unique_ptr<Trainings> trainings_;
  const std::unique_ptr<Upkeep> upkeep_;
  const std::unique_ptr<Sql> sql_;
};

}  // namespace quarry
