#include "remote_put.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "request_errors.h"
#include "upload.h"

namespace quarry::client {
namespace {

constexpr uint64_t kIdBytes = sizeof(uint64_t);
// What the server holds for a row of a put: the row three times, and its place.
constexpr uint64_t kCopies = 3;
constexpr uint64_t kEntryBytes = 64;
constexpr double kForgetSeconds = 10;            // for the server to delete rows
constexpr std::chrono::milliseconds kPause(50);  // before a put is begun anew

uint64_t CostOf(uint64_t rows, uint64_t bytes) { return kCopies * bytes + kEntryBytes * rows; }
// The part of the session's memory that puts may take: beside it, there are regions, and answers.
uint64_t CostMax(const Session& session) { return session.budget_bytes() / 2; }

const std::vector<std::byte>& BlockOf(const wire::PutRows& rows) {
  return std::get<std::vector<std::byte>>(rows.block);
}

Status CheckInMemory(std::span<const wire::PutRows> tables) {
  for (const wire::PutRows& rows : tables) {
    if (!std::holds_alternative<std::vector<std::byte>>(rows.block)) return NotInMemory("rows");
  }
  return Status();
}

// What the server would check of each piece, so that there are any.
Status CheckRows(std::span<const wire::PutRows> tables) {
  QUARRY_RETURN_IF_ERROR(CheckInMemory(tables));
  for (const wire::PutRows& rows : tables) {
    const uint64_t bytes = rows.rows * (kIdBytes + rows.row_bytes);
    if (rows.rows <= UINT32_MAX && BlockOf(rows).size() == bytes) continue;
    return MakeStatus(Code::kInvalidArgument, "rows: {} bytes instead of {}", BlockOf(rows).size(), bytes);
  }
  return Status();
}

// Whether one request may have all of it.
bool FitsOne(const Session& session, std::span<const wire::PutRows> tables) {
  uint64_t rows = 0, bytes = 0;
  for (const wire::PutRows& some : tables) {
    rows += some.rows;
    bytes += BlockOf(some).size();
    if (some.rows > session.limits().ids_max) return false;
  }
  return bytes + tables.size() * wire::kRangeAlignment <= Upload::BytesMax(session) &&
         CostOf(rows, bytes) <= CostMax(session);
}

Result<wire::Response> Send(Session& session, wire::Put put, std::span<const wire::PutRows> tables,
                            Deadline deadline) {
  uint64_t bytes = 0;
  for (const wire::PutRows& rows : tables) bytes += BlockOf(rows).size();
  QUARRY_TRY(Upload upload, Upload::Make(session, bytes, tables.size(), deadline));
  for (const wire::PutRows& rows : tables) {
    put.tables.push_back({.table = rows.table,
                          .rows = rows.rows,
                          .row_bytes = rows.row_bytes,
                          .block = upload.Add(std::span<const std::byte>(BlockOf(rows)))});
  }
  QUARRY_TRY(Connection::Answer answer, session.Call(put, deadline, upload.holds()));
  return std::move(answer.response);
}

// The pieces of one put in one session.
class Pieces {
 public:
  Pieces(const Link& link, std::shared_ptr<Session> session, uint64_t number)
      : link_(link), session_(std::move(session)), put_({.number = number}) {}
  // Waits: whoever is next shall not be told that this one is under way.
  ~Pieces() {
    if (put_.piece == 0 || ended_ || session_->lost()) return;
    (void)session_->Call(wire::ForgetPut{put_.number}, DeadlineIn(kForgetSeconds));
  }
  Pieces(const Pieces&) = delete;
  Pieces& operator=(const Pieces&) = delete;

  Session& session() { return *session_; }

  Status Add(std::span<const wire::PutRows> tables) {
    if (!session_->has_put_pieces()) {
      return MakeStatus(Code::kUnsupported,
                        "{}: the server is of a Quarry that takes no put in pieces: put fewer rows at a time",
                        session_->path());
    }
    if (FitsOne(*session_, tables)) return AddOne(tables);
    for (const wire::PutRows& rows : tables) {
      const uint64_t row_bytes = kIdBytes + rows.row_bytes;
      const uint64_t some = std::max<uint64_t>(
          1, std::min({uint64_t{session_->limits().ids_max}, CostMax(*session_) / CostOf(1, row_bytes),
                       (Upload::BytesMax(*session_) - wire::kRangeAlignment) / row_bytes}));
      for (uint64_t first = 0; first < rows.rows; first += some) {
        const wire::PutRows part = PartOf(rows, first, std::min(some, rows.rows - first));
        QUARRY_RETURN_IF_ERROR(AddOne({&part, 1}));
      }
    }
    return Status();
  }

  // The request that commits all pieces that were added.
  wire::Put Last() {
    ended_ = true;
    wire::Put last = put_;
    ++last.piece;
    last.last = true;
    return last;
  }

 private:
  static wire::PutRows PartOf(const wire::PutRows& rows, uint64_t first, uint64_t count) {
    const std::span<const std::byte> block = BlockOf(rows);
    const auto ids = block.subspan(first * kIdBytes, count * kIdBytes);
    const auto values = block.subspan(rows.rows * kIdBytes + first * rows.row_bytes, count * rows.row_bytes);
    std::vector<std::byte> bytes(ids.begin(), ids.end());
    bytes.insert(bytes.end(), values.begin(), values.end());
    return {.table = rows.table, .rows = count, .row_bytes = rows.row_bytes, .block = std::move(bytes)};
  }

  Status AddOne(std::span<const wire::PutRows> tables) {
    ++put_.piece;
    QUARRY_TRY(wire::Response response, Send(*session_, put_, tables, link_.NewDeadline()));
    return Expect<wire::Done>(response, session_->path()).status();
  }

  const Link& link_;
  const std::shared_ptr<Session> session_;
  wire::Put put_;  // without its tables: the piece that was sent last
  bool ended_ = false;
};

Result<uint64_t> Commit(Session& session, const wire::Put& last, Deadline deadline) {
  QUARRY_TRY(Connection::Answer answer, session.Call(last, deadline));
  QUARRY_TRY(const wire::Written written, Expect<wire::Written>(answer.response, session.path()));
  return written.timestamp;
}

class RemoteLargePut final : public LargePut {
 public:
  RemoteLargePut(std::shared_ptr<Link> link, std::shared_ptr<Session> session, uint64_t number)
      : link_(std::move(link)), pieces_(*link_, std::move(session), number) {}

  Status Add(std::span<const wire::PutRows> tables) override {
    if (fault_.ok()) fault_ = CheckRows(tables);
    if (fault_.ok()) fault_ = pieces_.Add(tables);
    if (!fault_.ok() && fault_.code() == Code::kIoError && pieces_.session().lost()) fault_ = Lost();
    return fault_;
  }

  // The server remembers a commit whose answer was lost with the connection. Where it does not, there was
  // none: pieces go with their session.
  Result<uint64_t> Commit() override {
    QUARRY_RETURN_IF_ERROR(fault_);
    Session& first = pieces_.session();
    const wire::Put last = pieces_.Last();
    const Deadline deadline = link_->NewDeadline();
    Result<uint64_t> written = client::Commit(first, last, deadline);
    if (!written.ok() && Link::WentAway(first, written.status(), deadline)) {
      written = link_->Run(deadline, [&](const std::shared_ptr<Session>& session) -> Result<uint64_t> {
        if (session->server_id() != first.server_id()) return Unknown();
        Result<uint64_t> again = client::Commit(*session, last, deadline);
        if (again.status().code() == Code::kUsage) return Lost();
        return again;
      });
    }
    fault_ = written.ok() ? Status(Code::kUsage, "the rows have been committed") : written.status();
    return written;
  }

 private:
  Status Lost() const {
    return MakeStatus(Code::kIoError,
                      "{}: the server went away, and with it the rows that had been put: nothing was "
                      "committed; put them again",
                      link_->path());
  }
  Status Unknown() const {
    return MakeStatus(Code::kIoError,
                      "{}: the server was started anew when it was to commit the rows: look whether it has, "
                      "or put them again",
                      link_->path());
  }

  const std::shared_ptr<Link> link_;
  Pieces pieces_;
  Status fault_;  // given for all that follows
};

Result<uint64_t> PutInPieces(const Link& link, const std::shared_ptr<Session>& session,
                             const wire::Put& request, uint64_t number) {
  QUARRY_RETURN_IF_ERROR(CheckRows(request.tables));
  Pieces pieces(link, session, number);
  QUARRY_RETURN_IF_ERROR(pieces.Add(request.tables));
  return Commit(*session, pieces.Last(), link.NewDeadline());
}

}  // namespace

// In a session that takes the place of a lost one, from the first piece; the server may still be about to
// forget those of the other.
Result<uint64_t> RemotePut(Link& link, const wire::Put& request, uint64_t number) {
  QUARRY_RETURN_IF_ERROR(CheckInMemory(request.tables));
  const Deadline deadline = link.NewDeadline();
  bool again = false;
  return link.Run(deadline, [&](const std::shared_ptr<Session>& session) -> Result<uint64_t> {
    if (FitsOne(*session, request.tables) || !session->has_put_pieces()) {
      const wire::Put put = {.number = number, .sync = request.sync};
      QUARRY_TRY(wire::Response response, Send(*session, put, request.tables, deadline));
      QUARRY_TRY(const wire::Written written, Expect<wire::Written>(response, session->path()));
      return written.timestamp;
    }
    Result<uint64_t> written = PutInPieces(link, session, request, number);
    while (again && written.status().code() == Code::kBusy && !HasPassed(deadline)) {
      std::this_thread::sleep_for(kPause);
      written = PutInPieces(link, session, request, number);
    }
    again = true;
    return written;
  });
}

Result<std::unique_ptr<LargePut>> BeginRemotePut(std::shared_ptr<Link> link, uint64_t number) {
  QUARRY_TRY(std::shared_ptr<Session> session, link->Current(link->NewDeadline()));
  return std::unique_ptr<LargePut>(
      std::make_unique<RemoteLargePut>(std::move(link), std::move(session), number));
}

}  // namespace quarry::client
