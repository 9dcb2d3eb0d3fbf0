#include "session.h"

#include <algorithm>
#include <utility>

#include "quarry/base/trace.h"
#include "quarry/base/units.h"
#include "session_bulk.h"
#include "session_reads.h"
#include "session_sql.h"
#include "session_streams.h"
#include "session_trainings.h"
#include "session_upkeep.h"
#include "session_writes.h"

namespace quarry {
namespace {

constexpr std::chrono::seconds kHelloWait{5};      // a stranger that says nothing is not kept
constexpr std::chrono::milliseconds kFlush{1000};  // for the last words to be read
constexpr std::chrono::milliseconds kAdmissionLook{50};
constexpr uint64_t kMessageOverhead = kKiB;  // an answer beside its bulk

template <typename T>
constexpr size_t KindOf() {
  return wire::Request(T{}).index();
}

// These are answered at once, and are how a client gets out of what it is in.
bool IsCounted(const wire::Request& request) {
  return !std::holds_alternative<wire::Cancel>(request) &&
         !std::holds_alternative<wire::ReleaseLeases>(request);
}

// What a client that may only read is refused. A superbatch road writes its epochs beside the database's
// files.
bool IsOfAWriter(const wire::Request& request) {
  const auto* const sql = std::get_if<wire::OpenSql>(&request);
  const auto* const stream = std::get_if<wire::OpenStream>(&request);
  const auto* const maintain = std::get_if<wire::Maintain>(&request);
  return std::holds_alternative<wire::Put>(request) ||
         std::holds_alternative<wire::CommitEmbeddings>(request) ||
         std::holds_alternative<wire::SaveTraining>(request) || (sql != nullptr && sql->write) ||
         (maintain != nullptr && !OnlyReads(maintain->task)) ||
         (stream != nullptr && std::holds_alternative<wire::SuperbatchSpec>(stream->road));
}

// What has begun is seen to its end. A statement, or maintenance, is cancelled, and ends soon: but not in its
// commit.
bool IsWrite(size_t kind) {
  static const size_t put = KindOf<wire::Put>();
  static const size_t commit = KindOf<wire::CommitEmbeddings>();
  static const size_t fetch = KindOf<wire::Fetch>();
  static const size_t maintain = KindOf<wire::Maintain>();
  return kind == put || kind == commit || kind == fetch || kind == maintain;
}

}  // namespace

Session::Session(ServerCore& core, SessionId id, const Peer& peer, int descriptor)
    : core_(core),
      id_(id),
      peer_(peer),
      strand_(boost::asio::make_strand(core.io.get_executor())),
      connection_(strand_, descriptor, core.limits),
      deadline_(strand_),
      admission_timer_(strand_),
      spare_since_(since_.time_since_epoch().count()),
      bulk_(std::make_unique<Bulk>(*this)),
      reads_(std::make_unique<Reads>(*this)),
      writes_(std::make_unique<Writes>(*this)),
      streams_(std::make_unique<Streams>(*this)),
      trainings_(std::make_unique<Trainings>(*this)),
      upkeep_(std::make_unique<Upkeep>(*this)),
      sql_(std::make_unique<Sql>(*this)) {}

Session::~Session() = default;

void Session::Start() {
  boost::asio::post(strand_, [self = shared_from_this(), this] {
    deadline_.expires_after(kHelloWait);
    deadline_.async_wait([self, this](const boost::system::error_code& error) {
      if (error || state_ != State::kConnected) return;
      Break(MakeStatus(Code::kUsage, "no hello within {} s", kHelloWait.count()));
    });
    connection_.Start(self, {.frame = [this](const wire::Frame& frame) { Handle([&] { OnFrame(frame); }); },
                             .fault = [this](const Status& fault) { Break(fault); },
                             .closed = [this] { OnClosed(); }});
  });
}

void Session::OnClosed() {
  EndWork();
  deadline_.cancel();
  core_.on_session_end(id_);
}

void Session::Close() {
  boost::asio::post(strand_, [self = shared_from_this()] { self->connection_.Close(); });
}

void Session::End(const Status& why) {
  boost::asio::post(strand_, [self = shared_from_this(), why] { self->Break(why); });
}

std::optional<Session::Clock::time_point> Session::spare_since() const {
  const Clock::rep since = spare_since_;
  if (since == 0) return std::nullopt;
  return Clock::time_point(Clock::duration(since));
}

void Session::ShowSpare() {
  const bool holds_nothing = pending_.empty() && (state_ == State::kConnected || state_ == State::kGreeted);
  if (!holds_nothing) {
    spare_since_ = 0;
  } else if (spare_since_ == 0) {
    spare_since_ = Clock::now().time_since_epoch().count();
  }
}

void Session::Shutdown() {
  boost::asio::post(strand_, [self = shared_from_this(), this] {
    draining_ = true;
    std::vector<uint64_t> ids;
    for (const auto& [id, pending] : pending_) {
      *pending.cancelled = true;
      if (!IsWrite(pending.kind) || pending.cancel) ids.push_back(id);
    }
    const Status stopping(Code::kCancelled, "the server shuts down");
    for (const uint64_t id : ids) Reply(id, stopping);
    DrainStep();
  });
}

// A write that has begun is waited for: its client shall know what became of it.
void Session::DrainStep() {
  if (draining_ && pending_.empty()) Break(Status(Code::kCancelled, "the server shuts down"));
}

wire::SessionStatus Session::status() const {
  const MemoryBudget* const budget = budget_shown_.load(std::memory_order_acquire);
  return {.id = id_,
          .pid = static_cast<uint32_t>(peer_.pid),
          .uid = peer_.uid,
          .seconds = std::chrono::duration<double>(Clock::now() - since_).count(),
          .budget_bytes = budget == nullptr ? 0 : budget->limit_bytes(),
          .used_bytes = budget == nullptr ? 0 : budget->used_bytes(),
          .outstanding = pending_shown_,
          .leases = leases_shown_,
          .bytes_sent = bytes_sent_,
          .shared_bytes = shared_bytes_,
          .requests = requests_};
}

void Session::OnFrame(const wire::Frame& frame) {
  ++requests_;
  core_.requests.bytes_received.Add(wire::kFrameHeaderBytes + frame.message.size());
  Result<wire::Request> request = wire::DecodeRequest(frame, core_.limits);
  if (request.status().code() == Code::kCorruption) return Break(request.status());
  if (state_ == State::kConnected && !(request.ok() && std::holds_alternative<wire::Hello>(*request))) {
    return Break(request.ok() ? Status(Code::kUsage, "the first request of a connection is a hello")
                              : request.status());
  }
  if (pending_.contains(frame.id)) {
    return Break(
        MakeStatus(Code::kUsage, "request {}: an earlier one of this id is not answered yet", frame.id));
  }
  if (pending_.size() >= core_.limits.outstanding_max && !(request.ok() && !IsCounted(*request))) {
    return Break(MakeStatus(Code::kUsage, "request {}: {} are not answered yet, and no more are allowed",
                            frame.id, pending_.size()));
  }
  if (!request.ok()) {
    Send(frame.id, wire::ToFailure(request.status()));
    return;
  }
  Pending& pending = pending_[frame.id];
  pending.kind = request->index();
  pending.start = Clock::now();
  pending_shown_ = pending_.size();
  ShowSpare();
  if (const Status status = Admit(*request, frame, pending); !status.ok()) return Reply(frame.id, status);
  const ScopedSpan span("request", frame.id);
  const Status status = CatchExhaustion("a request", [&] {
    Dispatch(frame.id, *request);
    return Status::Ok();
  });
  if (!status.ok()) Reply(frame.id, status);
}

// To the session itself or the part that it concerns.
void Session::Dispatch(uint64_t id, const wire::Request& request) {
  const auto give = [id]<typename Asked, typename... Parts>(const Asked& asked, Parts&... parts) {
    static_assert((int{kAnswers<Parts, Asked>} + ...) == 1, "one place answers each kind of request");
    const auto try_one = [&]<typename One>(One& part) {
      if constexpr (kAnswers<One, Asked>) part.On(id, asked);
    };
    (try_one(parts), ...);
  };
  std::visit(
      [&](const auto& asked) {
        give(asked, *this, *bulk_, *reads_, *writes_, *streams_, *trainings_, *upkeep_, *sql_);
      },
      request);
}

// Whether the request may be asked now, and its message be paid.
Status Session::Admit(const wire::Request& request, const wire::Frame& frame, Pending& pending) {
  if (draining_) return {Code::kCancelled, "the server shuts down"};
  const auto refuse = [&](std::string_view why) {
    return MakeStatus(Code::kUsage, "{}: {}", RequestMetrics::KindName(request.index()), why);
  };
  if (std::holds_alternative<wire::Hello>(request)) {
    return state_ == State::kConnected ? Status::Ok() : refuse("there has been one");
  }
  if (std::holds_alternative<wire::OpenSession>(request)) {
    return state_ == State::kGreeted && !opening_ ? Status::Ok() : refuse("there has been one");
  }
  if (state_ != State::kOpen) {
    const auto* const stats = std::get_if<wire::Stats>(&request);
    const bool early =
        std::holds_alternative<wire::Describe>(request) || std::holds_alternative<wire::Ping>(request) ||
        std::holds_alternative<wire::GetStatus>(request) || std::holds_alternative<wire::Cancel>(request) ||
        (stats != nullptr && stats->stream == 0);
    return early ? Status::Ok() : refuse("no session has been opened");
  }
  if (IsOfAWriter(request)) {
    const Status may = core_.MayWrite(peer_.uid);
    if (!may.ok()) return refuse(may.message());
  }
  if (frame.message.size() > kUnpaidBytes) {
    QUARRY_TRY(pending.reservation, budget_->Reserve(frame.message.size(), "a request's message"));
  }
  return Status::Ok();
}

void Session::Reply(uint64_t id, const Result<wire::Response>& result, std::vector<File> files) {
  const auto found = pending_.find(id);
  if (found == pending_.end()) return;
  const Pending pending = std::move(found->second);
  pending_.erase(found);
  pending_shown_ = pending_.size();
  ShowSpare();
  const bool sent = result.ok() ? Send(id, *result, std::move(files)) : false;
  if (!result.ok()) Send(id, wire::ToFailure(result.status()));
  core_.requests.Add(pending.kind, std::chrono::duration<double>(Clock::now() - pending.start).count(), sent);
  DrainStep();
}

// False when it was a failure that was sent instead, since the client does not take the answer.
bool Session::Send(uint64_t id, const wire::Response& response, std::vector<File> files) {
  Result<std::vector<std::byte>> frame = wire::EncodeResponse(id, response, client_limits_);
  Connection::Outgoing outgoing;
  Status status = frame.status();
  if (status.ok() && budget_ != nullptr && frame->size() > kUnpaidBytes) {
    auto reservation = budget_->Reserve(frame->size(), "an answer's message");
    status = reservation.status();
    if (reservation.ok()) outgoing.reservation = std::move(reservation).value();
  }
  if (!status.ok()) {
    Send(id, wire::ToFailure(status));
    return false;
  }
  outgoing.bytes = std::move(frame).value();
  outgoing.files = std::move(files);
  bytes_sent_ += outgoing.bytes.size();
  core_.requests.bytes_sent.Add(outgoing.bytes.size());
  connection_.Send(std::move(outgoing));
  return true;
}

void Session::Break(const Status& status) {
  if (state_ == State::kEnded) return;
  EndWork();
  Send(0, wire::ToFailure(status));
  CloseWhenSent();
}

// A client that does not read what is left to be sent is not waited for.
void Session::CloseWhenSent() {
  connection_.CloseWhenSent();
  deadline_.expires_after(kFlush);
  deadline_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (!error) self->connection_.Close();
  });
}

// Everything that the client held is free afterwards, but for what a worker or the hub uses at the moment.
void Session::EndWork() {
  if (state_ == State::kEnded) return;
  state_ = State::kEnded;
  for (const auto& [id, pending] : pending_) *pending.cancelled = true;
  pending_.clear();
  pending_shown_ = 0;
  admission_timer_.cancel();
  if (admission_ticket_ != 0) static_cast<void>(core_.admission.GiveUp(admission_ticket_));
  core_.readers.Forget(id_);
  core_.writers.Forget(id_);
  core_.maintainers.Forget(id_);
  core_.hub->CloseSession(id_);
  bulk_->End();
  reads_->End();
  streams_->End();
  sql_->End();
  trainings_->End();
  writes_->End();
}

void Session::On(uint64_t id, const wire::Hello& hello) {
  const Result<uint16_t> version = wire::AgreeVersion(hello);
  const uint64_t sql = core_.sql == nullptr ? 0 : wire::kSql;
  const uint64_t capabilities =
      hello.capabilities & (wire::kSharedMemory | wire::kInline | wire::kOfThisVersion | sql);
  Status refused = version.status();
  if (refused.ok() && (capabilities & (wire::kSharedMemory | wire::kInline)) == 0) {
    refused = MakeStatus(Code::kUnsupported,
                         "capabilities {:#x}: this server knows shared memory (1) and inline (2)",
                         hello.capabilities);
  }
  if (!refused.ok()) {
    Reply(id, refused);
    EndWork();
    return CloseWhenSent();
  }
  deadline_.cancel();
  state_ = State::kGreeted;
  shared_memory_ = (capabilities & wire::kSharedMemory) != 0;
  client_limits_.message_bytes_max = std::min(hello.message_bytes_max, core_.limits.message_bytes_max);
  chunk_bytes_max_ = client_limits_.message_bytes_max - kMessageOverhead;
  connection_.HandshakeDone(core_.limits.message_bytes_max);
  Reply(id, wire::Welcome{.version = *version,
                          .capabilities = capabilities,
                          .server_id = core_.server_id,
                          .limits = core_.announced});
}

void Session::On(uint64_t id, const wire::OpenSession& request) {
  opening_ = true;
  const uint64_t share = core_.granted.limit_bytes() / 4;  // for a client that does not say what it wants
  const uint64_t bytes = std::max(request.budget_bytes == 0 ? share : request.budget_bytes, kSessionBytesMin);
  const uint64_t bytes_min = std::max(request.budget_bytes_min, kSessionBytesMin);
  const Status held = core_.admission.CheckHeld(peer_.uid);
  if (!held.ok()) return Opened(id, request, held);
  const Admission::Request wanted = {.user = peer_.uid, .bytes = bytes, .bytes_min = bytes_min};
  Result<Admission::Grant> grant = core_.admission.Ask(wanted);
  const bool ever = bytes_min <= core_.granted.limit_bytes();
  if (grant.ok() || request.wait_ms == 0 || !ever) return Opened(id, request, grant);
  WaitForMemory(id, request, wanted);
}

void Session::WaitForMemory(uint64_t id, const wire::OpenSession& request, const Admission::Request& wanted) {
  const auto end = [this, id, request](const Result<Admission::Grant>& grant) {
    admission_ticket_ = 0;
    admission_timer_.cancel();
    Opened(id, request, grant);
  };
  admission_ticket_ = core_.admission.Wait(wanted, OnStrand<Admission::Grant>(end));
  const auto give_up = [this, end](const Status& instead) {
    const Status status = core_.admission.GiveUp(admission_ticket_);
    if (!status.ok()) end(instead.ok() ? status : instead);
  };
  pending_.at(id).cancel = [give_up] { give_up(CancelledStatus()); };
  WatchWait(Clock::now() + std::chrono::milliseconds(request.wait_ms), [give_up] { give_up(Status::Ok()); });
}

// A region that a process lets go of, and a turn that is over, wake nobody.
void Session::WatchWait(Clock::time_point end, const std::function<void()>& give_up) {
  admission_timer_.expires_at(std::min(end, Clock::now() + kAdmissionLook));
  admission_timer_.async_wait(
      [self = shared_from_this(), this, end, give_up](const boost::system::error_code& error) {
        if (error || admission_ticket_ == 0) return;
        if (Clock::now() >= end) return give_up();
        core_.admission.Look();
        WatchWait(end, give_up);
      });
}

void Session::Opened(uint64_t id, const wire::OpenSession& request, const Result<Admission::Grant>& grant) {
  opening_ = false;
  if (!pending_.contains(id)) return;
  if (!grant.ok()) return Reply(id, grant.status());
  budget_ = *grant;
  wire::SessionOpened opened = {.session = id_, .budget_bytes = budget_->limit_bytes()};
  std::vector<File> files;
  if (const Status status = bulk_->Open(opened.regions, files); !status.ok()) {
    budget_.reset();
    return Reply(id, status);
  }
  client_id_ = request.client_id;
  budget_shown_.store(budget_.get(), std::memory_order_release);
  state_ = State::kOpen;
  Reply(id, opened, std::move(files));
}

void Session::On(uint64_t id, const wire::GetStatus&) { Reply(id, core_.status()); }

void Session::On(uint64_t id, const wire::Ping&) { Reply(id, wire::Done{}); }

void Session::On(uint64_t id, const wire::Cancel& request) {
  Reply(id, wire::Done{});
  const auto found = pending_.find(request.request);
  if (found == pending_.end()) return;
  *found->second.cancelled = true;
  const std::function<void()> cancel = found->second.cancel;
  if (cancel) cancel();
}

}  // namespace quarry
