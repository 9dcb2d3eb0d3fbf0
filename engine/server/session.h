// Session: one client, from its connection to its end (docs/protocol.md, "States").
//
//   kConnected -> kGreeted  hello was answered                   [On(Hello)]
//   kGreeted   -> kOpen     memory was granted, regions made     [Opened]
//   any        -> kEnded    the peer is gone, broke the protocol, or the server stops; what it held is given
//                           back, its work is cancelled          [EndWork]
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
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "answer_memory.h"
#include "connection.h"
#include "quarry/base/exhaustion.h"
#include "quarry/base/progress.h"
#include "quarry/format/wire.h"
#include "server_core.h"
#include "staged_put.h"

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
  // A stream of the hub's, and where its batches lie.
  struct OpenedRegion {
    uint32_t region_id = 0;  // 0: the client has not mapped it
    std::shared_ptr<SharedRegion> region;
  };
  // What the client holds until it releases it: an answer, or a batch.
  struct StreamLease {
    uint64_t stream = 0, hold = 0;
    std::span<const std::byte> bytes;
  };
  using HeldState = std::shared_ptr<TrainingService::Read>;  // state of a training run, in no region
  using LeaseHold = std::variant<std::shared_ptr<AnswerMemory::Place>, StreamLease, HeldState>;
  static std::span<const std::byte> HeldBytes(const LeaseHold& hold);
  // Where a bulk answer is written: into its message, or into a place that is leased.
  struct BulkAnswer {
    std::shared_ptr<AnswerMemory::Place> place;  // null: `message`
    std::vector<std::byte> message;
    MemoryBudget::Reservation reservation;  // for the message, where it is long
    std::span<std::byte> bytes() { return place != nullptr ? place->bytes : std::span(message); }
  };
  using BulkThen = std::function<void(std::shared_ptr<BulkAnswer>)>;

  // session.cc: life, and what every request goes through.
  void OnFrame(const wire::Frame& frame);
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
  void On(uint64_t id, const wire::Stats& request);
  void On(uint64_t id, const wire::GetStatus& request);
  void On(uint64_t id, const wire::Ping& request);
  void On(uint64_t id, const wire::Cancel& request);
  void WaitForMemory(uint64_t id, const wire::OpenSession& request, const Admission::Request& wanted);
  void WatchWait(Clock::time_point end, const std::function<void()>& give_up);
  void Opened(uint64_t id, const wire::OpenSession& request, const Result<Admission::Grant>& grant);
  Status MakeRegions(std::vector<wire::Region>& announced, std::vector<File>& files);
  // The region's descriptor for the client, whose account it is on from then on.
  Result<File> HandOut(const std::shared_ptr<SharedRegion>& region);

  // session_writes.cc: writes.
  void On(uint64_t id, const wire::Put& request);
  void On(uint64_t id, const wire::ForgetPut& request);
  void On(uint64_t id, const wire::CommitEmbeddings& request);
  struct PutBatch;
  Result<PutBatch> BatchOf(const wire::Put& request) const;
  Result<wire::Response> DoPut(const wire::Put& request);
  Result<std::shared_ptr<StagedPut>> NextPiece(const wire::Put& request);
  void PutPiece(uint64_t id, const wire::Put& request);
  Status Stage(const wire::Put& request, const std::shared_ptr<StagedPut>& staged) const;
  void DropPut();
  Result<wire::Response> DoCommit(const wire::CommitEmbeddings& request);
  using WriteWork = std::function<Result<wire::Response>()>;
  void Write(uint64_t id, uint64_t number, const WriteWork& work);

  // session_data.cc: tables, blocks, embeddings.
  void On(uint64_t id, const wire::Describe& request);
  void On(uint64_t id, const wire::Lookup& request);
  void On(uint64_t id, const wire::Sample& request);
  void On(uint64_t id, const wire::ReadEmbeddings& request);
  void On(uint64_t id, const wire::TakeSnapshot& request);
  void On(uint64_t id, const wire::ReleaseSnapshot& request);
  struct LookupWork;
  void LookUp(uint64_t id, const std::shared_ptr<LookupWork>& work);
  Result<bool> LookUpSome(LookupWork& work, const Task& task);
  static Status WriteBlock(const BatchView& block, BulkAnswer& bulk);
  // The view of a snapshot; null for 0. kUsage when the session has none of this id.
  Result<std::shared_ptr<StoredTables::View>> FindSnapshot(uint64_t snapshot) const;

  // session_training.cc: states of training runs, edges.
  void On(uint64_t id, const wire::SaveTraining& request);
  void On(uint64_t id, const wire::ReadTraining& request);
  void On(uint64_t id, const wire::ReadEdges& request);
  struct StagedState;
  struct OpenEdges;
  // Takes the request's piece, and the memory for all of them with the first.
  Status Stage(const wire::SaveTraining& request, StagedState& staged) const;

  // session_maintenance.cc: what keeps the database in order, and its manifest.
  void On(uint64_t id, const wire::Maintain& request);
  void On(uint64_t id, const wire::ReadManifest& request);
  Status MayMaintain(const wire::MaintenanceTask& task) const;
  ProgressFunction ProgressOf(uint64_t id, const std::atomic<bool>& cancelled);

  // session_streams.cc: streams, leases.
  void On(uint64_t id, const wire::OpenStream& request);
  void On(uint64_t id, const wire::StartPass& request);
  void On(uint64_t id, const wire::NextBatch& request);
  void On(uint64_t id, const wire::CloseStream& request);
  void On(uint64_t id, const wire::ReleaseLeases& request);
  void On(uint64_t id, const wire::ReadLease& request);
  void StreamOpened(uint64_t id, const Result<OpenedStream>& opened);
  void GiveBatch(uint64_t id, uint64_t stream, const Result<std::optional<StreamBatch>>& result);
  void ReplyStreamStats(uint64_t id, uint64_t stream);
  void ReleaseLease(uint64_t lease);

  // session_sql.cc: SQL.
  void On(uint64_t id, const wire::OpenSql& request);
  void On(uint64_t id, const wire::CloseSql& request);
  void On(uint64_t id, const wire::Query& request);
  void On(uint64_t id, const wire::Fetch& request);
  void On(uint64_t id, const wire::CloseQuery& request);
  struct SqlHold;
  template <typename T>
  void WorkSql(uint64_t id, const std::shared_ptr<SqlHold>& hold, std::function<Result<T>()> work,
               std::function<void(Result<T>)> then);
  Result<std::shared_ptr<SqlHold>> FindSql(uint64_t connection) const;
  Result<wire::Statement> DoQuery(SqlHold& hold, uint64_t id, const wire::Query& request);
  Result<wire::Response> DoFetch(SqlHold& hold, const wire::Fetch& request);
  void EndSql(std::vector<std::shared_ptr<SqlHold>> holds);
  void EndAllSql();

  // session_bulk.cc: bytes beside messages. Calls `then` once there is room for a bulk answer of `bytes`;
  // answers `id` with the reason when there cannot be.
  void MakeRoom(uint64_t id, uint64_t bytes, const BulkThen& then);
  // Answers with what was written, or gives the room back.
  void ReplyBulk(uint64_t id, const Status& status, BulkAnswer& bulk,
                 const std::function<wire::Response(wire::Payload)>& response);
  // The server's own copy of what a request brings along. Any thread.
  Result<std::vector<std::byte>> CopyOf(const wire::Bulk& bulk) const;
  template <typename Id>
  Result<std::vector<Id>> CopyOf(const std::variant<std::vector<Id>, wire::Range>& ids) const;
  Result<std::span<const std::byte>> Uploaded(const wire::Range& range) const;

  // Has a thread of the engine do `work`, and comes back to the strand with what it returned.
  template <typename T>
  void Work(Workers& workers, uint64_t id, std::function<Result<T>(const Task&)> work,
            std::function<void(Result<T>)> then) {
    const auto found = pending_.find(id);
    if (found == pending_.end()) return;  // answered meanwhile
    auto result = std::make_shared<Result<T>>(CancelledStatus());
    workers.Submit(id_, [self = shared_from_this(), cancelled = found->second.cancelled, result,
                         work = std::move(work), then = std::move(then)](unsigned thread) {
      if (!*cancelled) {
        *result = CatchExhaustion("a request", [&] { return work(Task{thread, *cancelled}); });
      }
      self->Post([result, then] { then(std::move(*result)); });
    });
  }
  // `handler`, called on the strand.
  template <typename T>
  std::function<void(Result<T>)> OnStrand(std::function<void(const Result<T>&)> handler) {
    return [self = shared_from_this(), handler = std::move(handler)](const Result<T>& result) {
      self->Post([handler, result] { handler(result); });
    };
  }
  // Has the strand call `handler`. Where memory runs out in it, the session ends: what it was at is half
  // done.
  template <typename Handler>
  void Post(const Handler& handler) {
    Insist(
        [&] { boost::asio::post(strand_, [self = shared_from_this(), handler] { self->Handle(handler); }); });
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
  wire::Limits client_limits_;     // what the client takes
  bool shared_memory_ = false;     // the client maps regions
  uint64_t inline_bytes_max_ = 0;  // longest bulk answer in a message
  uint64_t chunk_bytes_max_ = 0;   // longest part of a lease in a message
  uint64_t admission_ticket_ = 0;

  // From kOpen on.
  ClientId client_id_{};
  std::vector<MemoryBudget::Reservation> region_reservations_;
  uint32_t regions_ = 0;  // announced so far
  uint32_t upload_region_id_ = 0;
  std::shared_ptr<SharedRegion> upload_;  // what the client writes to; null: it maps none
  std::unique_ptr<AnswerMemory> answers_;
  uint64_t leases_made_ = 0, snapshots_made_ = 0;
  std::map<uint64_t, LeaseHold> leases_;
  std::map<uint64_t, std::shared_ptr<StoredTables::View>> snapshots_;
  std::map<uint64_t, OpenedRegion> streams_;
  uint64_t sql_made_ = 0;                                     // connections and cursors
  std::map<uint64_t, std::shared_ptr<SqlHold>> sql_;          // connections
  std::map<uint64_t, std::shared_ptr<SqlHold>> sql_cursors_;  // the connection of each
  std::shared_ptr<StagedPut> staged_put_;                     // the last of them, which may have ended
  // What the request before left for the next one; null while one is at work with it.
  std::shared_ptr<StagedState> staged_;
  std::shared_ptr<OpenEdges> edges_;

  // For the status page.
  std::atomic<const MemoryBudget*> budget_shown_{nullptr};
  std::atomic<Clock::rep> spare_since_;  // 0: it holds something
  std::atomic<uint64_t> pending_shown_{0}, leases_shown_{0}, bytes_sent_{0}, shared_bytes_{0}, requests_{0};
};

}  // namespace quarry
