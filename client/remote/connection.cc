#include "connection.h"

#include <algorithm>
#include <array>
#include <utility>

namespace quarry::client {
namespace {

constexpr size_t kReadBytes = 256 << 10;
constexpr double kPostSeconds = 10;       // for the server to take a few bytes that nobody waits for
constexpr double kLastWordsSeconds = 10;  // to read what is there already: a limit that no machine meets

uint64_t LeaseOf(const wire::Payload& payload) {
  const auto* lease = std::get_if<wire::Lease>(&payload);
  return lease != nullptr ? lease->id : 0;
}

// The lease that comes with an answer; 0: none.
uint64_t LeaseOf(const wire::Response& response) {
  return std::visit(
      [](const auto& answer) -> uint64_t {
        if constexpr (requires { answer.payload; }) return LeaseOf(answer.payload);
        if constexpr (requires { answer.state; }) return LeaseOf(answer.state);
        return 0;
      },
      response);
}

}  // namespace

struct Connection::Pending {
  Pending(uint64_t request, bool heard, std::shared_ptr<const void> kept)
      : id(request), holds(std::move(kept)), abandoned(!heard) {}

  const uint64_t id;
  // Guarded by the connection's mutex.
  std::shared_ptr<const void> holds;
  bool counted = false;  // among the requests without an answer
  bool abandoned;
  std::optional<Result<Answer>> answer;
  std::optional<wire::Progress> progress;
  CondVar answered;
};

Result<std::unique_ptr<Connection>> Connection::Open(const ServerPlace& place) {
  QUARRY_TRY(UniqueFd socket, ConnectUnix(place));
  std::unique_ptr<Connection> connection(new Connection(place.path, std::move(socket)));
  QUARRY_TRY(connection->reader_, Thread::Start(
                                      "receive", [raw = connection.get()] { raw->Read(); },
                                      [raw = connection.get()](const Status& why) { raw->Fail(why); }));
  return connection;
}

Connection::Connection(std::string path, UniqueFd socket)
    : path_(std::move(path)), socket_(std::move(socket)) {}

Connection::~Connection() {
  EndStream(socket_.get());
  reader_.Join();
}

void Connection::SetServerLimits(const wire::ServerLimits& limits) {
  MutexLock lock(mutex_);
  server_limits_.message_bytes_max = limits.message_bytes_max;
  server_limits_.outstanding_max = limits.outstanding_max;
  server_limits_.ids_max = limits.ids_max;
  room_.NotifyAll();
}

Status Connection::fault() const {
  MutexLock lock(mutex_);
  return fault_;
}

bool Connection::WaitLost(Deadline deadline) {
  MutexLock lock(mutex_);
  while (fault_.ok()) {
    if (!room_.WaitUntil(mutex_, deadline)) break;
  }
  return !fault_.ok();
}

Connection::Ticket Connection::MakeTicket(bool heard, std::shared_ptr<const void> holds) {
  return std::make_shared<Pending>(next_id_.fetch_add(1), heard, std::move(holds));
}

Result<Connection::Ticket> Connection::Send(const wire::Request& request, Deadline deadline,
                                            std::shared_ptr<const void> holds) {
  return Start(request, Room::kWait, deadline, MakeTicket(true, std::move(holds)));
}

Result<Connection::Ticket> Connection::TrySend(const wire::Request& request, Deadline deadline) {
  return Start(request, Room::kHalf, deadline, MakeTicket(true));
}

// A connection that is lost meanwhile has given everything back.
void Connection::Post(const wire::Request& request) {
  (void)Start(request, Room::kWait, DeadlineIn(kPostSeconds), MakeTicket(false));
}

Result<Connection::Ticket> Connection::Start(const wire::Request& request, Room room, Deadline deadline,
                                             const Ticket& ticket) {
  wire::Limits limits;
  {
    MutexLock lock(mutex_);
    limits = server_limits_;
  }
  QUARRY_TRY(const std::vector<std::byte> frame, wire::EncodeRequest(ticket->id, request, limits));
  QUARRY_TRY(const bool entered, Enter(ticket, room, deadline));
  if (!entered) return Ticket();
  QUARRY_RETURN_IF_ERROR(Write(frame, deadline));
  return ticket;
}

// Before the frame is sent: the answer may come at once. False: too many are under way.
Result<bool> Connection::Enter(const Ticket& ticket, Room room, Deadline deadline) {
  MutexLock lock(mutex_);
  while (fault_.ok() && room == Room::kWait && outstanding_ >= server_limits_.outstanding_max) {
    if (room_.WaitUntil(mutex_, deadline)) continue;
    return MakeStatus(Code::kIoError, "{}: {} requests are not answered, which is all that the server takes",
                      path_, outstanding_);
  }
  QUARRY_RETURN_IF_ERROR(fault_);
  if (room == Room::kHalf && outstanding_ >= server_limits_.outstanding_max / 2) return false;
  ticket->counted = room != Room::kUncounted;
  outstanding_ += ticket->counted ? 1 : 0;
  pending_.emplace(ticket->id, ticket);
  return true;
}

// What was released goes before the frame: what it asks for may need the room.
Status Connection::Write(std::span<const std::byte> frame, Deadline deadline) {
  MutexLock lock(write_mutex_);
  std::vector<std::byte> bytes = TakeReleases();
  bytes.insert(bytes.end(), frame.begin(), frame.end());
  const Status sent = SendAll(socket_.get(), bytes, deadline, path_);
  if (sent.ok()) return sent;
  // A server that closed the connection may have said why: the reading thread hears it to the end.
  if (PeerHasClosed(socket_.get())) (void)WaitLost(DeadlineIn(kLastWordsSeconds));
  Fail(sent);  // half a frame may be on its way: nothing can follow it
  return fault();
}

std::vector<std::byte> Connection::TakeReleases() {
  std::vector<uint64_t> leases;
  {
    MutexLock lock(mutex_);
    leases.swap(releases_);
  }
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < leases.size(); i += wire::kListedMax) {
    const size_t count = std::min<size_t>(leases.size() - i, wire::kListedMax);
    const auto first = leases.begin() + static_cast<ptrdiff_t>(i);
    const Ticket ticket = MakeTicket(false);
    const auto frame = wire::EncodeRequest(
        ticket->id, wire::ReleaseLeases{.leases = {first, first + static_cast<ptrdiff_t>(count)}});
    // A connection that is lost has no leases.
    if (!frame.ok() || !Enter(ticket, Room::kUncounted, Deadline()).ok()) continue;
    bytes.insert(bytes.end(), frame->begin(), frame->end());
  }
  return bytes;
}

Result<Connection::Answer> Connection::Wait(const Ticket& ticket, Deadline deadline) {
  MutexLock lock(mutex_);
  while (!ticket->answer) {
    if (ticket->answered.WaitUntil(mutex_, deadline) || ticket->answer) continue;
    return MakeStatus(Code::kIoError, "{}: the server has not answered in time", path_);
  }
  Result<Answer> answer = std::move(*ticket->answer);
  return answer;
}

void Connection::Abandon(const Ticket& ticket) {
  uint64_t answered_lease = 0;
  {
    MutexLock lock(mutex_);
    ticket->abandoned = true;
    if (ticket->answer && ticket->answer->ok()) answered_lease = LeaseOf((*ticket->answer)->response);
    if (answered_lease != 0) releases_.push_back(answered_lease);
    if (ticket->answer || !fault_.ok()) return;
  }
  Cancel(ticket);
}

std::optional<wire::Progress> Connection::ProgressOf(const Ticket& ticket) const {
  MutexLock lock(mutex_);
  return ticket->progress;
}

void Connection::Cancel(const Ticket& ticket) {
  (void)Start(wire::Cancel{.request = ticket->id}, Room::kUncounted, DeadlineIn(kPostSeconds),
              MakeTicket(false));
}

void Connection::Release(uint64_t lease, bool at_once) {
  {
    MutexLock lock(mutex_);
    if (!fault_.ok()) return;
    releases_.push_back(lease);
  }
  if (at_once) (void)Write({}, DeadlineIn(kPostSeconds));
}

void Connection::Read() {
  std::vector<std::byte> buffer(kReadBytes);
  std::vector<UniqueFd> fds;
  Status fault;
  while (fault.ok()) {
    const Result<size_t> bytes = Receive(socket_.get(), buffer, fds, path_);
    if (!bytes.ok()) {
      fault = bytes.status();
    } else if (*bytes == 0) {
      fault = MakeStatus(Code::kIoError, "{}: the server closed the connection", path_);
    } else {
      fault = ReadFrames(std::span(buffer).first(*bytes), fds);
    }
  }
  Fail(fault);
}

Status Connection::ReadFrames(std::span<const std::byte> bytes, std::vector<UniqueFd>& fds) {
  const auto strange = [this](const Status& status) {
    return MakeStatus(Code::kCorruption, "{}: the server does not speak the protocol: {}", path_,
                      status.message());
  };
  while (!bytes.empty()) {
    const Result<std::optional<wire::Frame>> frame = decoder_.Next(bytes);
    if (!frame.ok()) return strange(frame.status());
    if (!*frame) break;
    QUARRY_RETURN_IF_ERROR(Deliver(**frame, fds));
  }
  if (fds.size() <= wire::Limits().fds_max) return Status();
  return strange(MakeStatus(Code::kCorruption, "{} descriptors belong to no frame", fds.size()));
}

Status Connection::Deliver(const wire::Frame& frame, std::vector<UniqueFd>& fds) {
  if (frame.fds > fds.size()) {
    return MakeStatus(Code::kCorruption, "{}: the server sent {} descriptors with an answer of {}", path_,
                      fds.size(), frame.fds);
  }
  Answer answer;
  const auto end = fds.begin() + static_cast<ptrdiff_t>(frame.fds);
  answer.fds.assign(std::make_move_iterator(fds.begin()), std::make_move_iterator(end));
  fds.erase(fds.begin(), end);
  Result<wire::Response> response = wire::DecodeResponse(frame);
  if (!response.ok()) {
    return MakeStatus(response.status().code(), "{}: the server sent an answer that cannot be decoded: {}",
                      path_, response.status().message());
  }
  const auto* failure = std::get_if<wire::Failure>(&*response);
  if (frame.id == 0 && failure != nullptr) {
    return MakeStatus(failure->code, "{}: the server ends the connection: {}", path_, failure->message);
  }
  if (std::holds_alternative<wire::Welcome>(*response)) {
    decoder_.HandshakeDone(wire::Limits().message_bytes_max);
  }
  if (auto* const progress = std::get_if<wire::Progress>(&*response)) {
    return Note(frame.id, std::move(*progress));
  }
  answer.response = std::move(*response);
  return Settle(frame.id, std::move(answer));
}

Status Connection::Settle(uint64_t id, Answer answer) {
  MutexLock lock(mutex_);
  const auto found = pending_.find(id);
  if (found == pending_.end()) {
    return MakeStatus(Code::kCorruption, "{}: the server answered request {}, which waits for none", path_,
                      id);
  }
  const Ticket ticket = std::move(found->second);
  pending_.erase(found);
  ticket->holds.reset();
  if (ticket->counted) {
    --outstanding_;
    room_.NotifyAll();
  }
  if (ticket->abandoned) {
    const uint64_t lease = LeaseOf(answer.response);
    if (lease != 0) releases_.push_back(lease);
    return Status();
  }
  ticket->answer.emplace(std::move(answer));
  ticket->answered.NotifyAll();
  return Status();
}

Status Connection::Note(uint64_t id, wire::Progress progress) {
  MutexLock lock(mutex_);
  const auto found = pending_.find(id);
  if (found == pending_.end()) {
    return MakeStatus(Code::kCorruption, "{}: the server told how far request {} is, which waits for nothing",
                      path_, id);
  }
  found->second->progress = std::move(progress);
  return Status();
}

void Connection::Fail(const Status& fault) {
  MutexLock lock(mutex_);
  if (!fault_.ok()) return;
  fault_ = fault;
  EndStream(socket_.get());
  for (const auto& [id, ticket] : pending_) {
    ticket->holds.reset();
    if (ticket->abandoned) continue;
    ticket->answer.emplace(fault);
    ticket->answered.NotifyAll();
  }
  pending_.clear();
  room_.NotifyAll();
}

}  // namespace quarry::client
