#include "remote_sql.h"

#include <utility>

#include "pulse.h"
#include "upload.h"

namespace quarry::client {
namespace {

constexpr double kLookSeconds = 0.05;  // so often somebody who waits looks at `cancelled`

// An SQL connection of a session, which goes with it.
class SqlSession {
 public:
  static Result<std::shared_ptr<SqlSession>> Open(const std::shared_ptr<Session>& session,
                                                  const SqlOptions& options, double patience_seconds,
                                                  Deadline deadline) {
    if (!session->has_sql()) {
      return MakeStatus(Code::kUnsupported, "{}: the server runs no SQL", session->path());
    }
    const wire::OpenSql request = {.write = options.write, .timeout_seconds = options.timeout_seconds};
    QUARRY_TRY(Connection::Answer answer, session->Call(request, deadline));
    QUARRY_TRY(wire::SqlOpened opened, Expect<wire::SqlOpened>(answer.response, session->path()));
    return std::make_shared<SqlSession>(session, std::move(opened), options, patience_seconds);
  }
  SqlSession(std::shared_ptr<Session> session, wire::SqlOpened opened, const SqlOptions& options,
             double patience_seconds)
      : session_(std::move(session)),
        opened_(std::move(opened)),
        options_(options),
        patience_seconds_(patience_seconds) {}
  ~SqlSession() { session_->connection().Post(wire::CloseSql{opened_.connection}); }
  SqlSession(const SqlSession&) = delete;
  SqlSession& operator=(const SqlSession&) = delete;

  uint64_t id() const { return opened_.connection; }
  const std::vector<wire::SqlTable>& tables() const { return opened_.tables; }
  Session& session() { return *session_; }
  Connection& connection() { return session_->connection(); }
  bool lost() const { return silent_ || session_->lost(); }
  bool told() const { return told_; }  // the user knows that it is lost

  // What the server answers, however long a statement without a timeout takes, while it answers pings;
  // kCancelled soon after `cancelled`.
  Result<wire::Response> Ask(const wire::Request& request, std::shared_ptr<const void> holds = {}) {
    if (lost()) return Lost();
    const auto ticket = connection().Send(request, DeadlineIn(patience_seconds_), std::move(holds));
    if (!ticket.ok()) return lost() ? Lost() : ticket.status();
    Pulse pulse(connection(), patience_seconds_);
    const Deadline end = EndOfStatement();
    while (true) {
      Result<Connection::Answer> answer = connection().Wait(*ticket, DeadlineIn(kLookSeconds));
      if (answer.ok()) return AnswerOf(std::move(answer->response));
      if (lost()) return Lost();
      const bool cancelled = options_.cancelled && options_.cancelled();
      if (!cancelled && pulse.Beats() && !HasPassed(end)) continue;
      connection().Abandon(*ticket);
      if (cancelled) return Status(Code::kCancelled, "interrupted");
      silent_ = true;
      return Lost();
    }
  }

  Status Lost() {
    told_ = true;
    const Status fault = connection().fault();
    if (fault.ok()) {
      return MakeStatus(Code::kIoError,
                        "{}: the server has not answered in time, and what was not committed is gone",
                        session_->path());
    }
    if (fault.code() == Code::kCorruption || fault.code() == Code::kUnsupported) return fault;
    return MakeStatus(Code::kIoError, "the server went away, and what was not committed is gone: {}",
                      fault.message());
  }

 private:
  // The server ends a statement at its timeout, and has the client's for the rest.
  Deadline EndOfStatement() const {
    return options_.timeout_seconds > 0 ? DeadlineIn(options_.timeout_seconds + patience_seconds_)
                                        : Deadline::max();
  }

  Result<wire::Response> AnswerOf(wire::Response response) {
    if (const auto* failure = std::get_if<wire::Failure>(&response)) return wire::ToStatus(*failure);
    return response;
  }

  const std::shared_ptr<Session> session_;
  const wire::SqlOpened opened_;
  const SqlOptions options_;
  const double patience_seconds_;  // with a server that does not answer
  bool silent_ = false;            // it did not, and what it did with the request is not known
  bool told_ = false;
};

class RemoteCursor final : public RowCursor {
 public:
  RemoteCursor(std::shared_ptr<Link> link, std::shared_ptr<SqlSession> sql, wire::Statement statement)
      : link_(std::move(link)), sql_(std::move(sql)), id_(statement.cursor) {
    Begin(std::move(statement));
  }
  ~RemoteCursor() override { sql_->connection().Post(wire::CloseQuery{id_}); }

  Result<bool> Next() override {
    const Result<bool> more = done_ ? Result<bool>(false) : Fetch();
    done_ = !more.ok() || !*more;
    return more;
  }
  const std::vector<std::string>& columns() const override { return columns_; }
  ValueView value(size_t column) const override { return reader_.value(column); }
  std::string Text(size_t column) const override {
    const ValueView is = reader_.value(column);
    if (const auto* integer = std::get_if<int64_t>(&is)) return std::to_string(*integer);
    if (std::holds_alternative<double>(is)) return std::string(reader_.text(column));
    if (const auto* text = std::get_if<std::string_view>(&is)) return std::string(*text);
    if (const auto* blob = std::get_if<std::span<const std::byte>>(&is)) {
      return {reinterpret_cast<const char*>(blob->data()), blob->size()};
    }
    return "";
  }

  // To the next statement of a script; false behind its last.
  Result<bool> NextStatement() {
    done_ = true;
    QUARRY_TRY(wire::Response answer, sql_->Ask(wire::Fetch{id_, true}));
    if (std::holds_alternative<wire::Done>(answer)) return false;
    QUARRY_TRY(wire::Statement statement, Expect<wire::Statement>(answer, link_->path()));
    Begin(std::move(statement));
    return true;
  }

 private:
  void Begin(wire::Statement statement) {
    columns_ = std::move(statement.columns);
    reader_ = wire::SqlRowReader(columns_.size());
    last_ = done_ = false;
  }

  Result<bool> Fetch() {
    while (true) {
      const Result<bool> whole = reader_.Next();
      if (!whole.ok() || (!*whole && last_ && !reader_.empty())) {
        return MakeStatus(Code::kCorruption, "{}: the server sent rows that are none: {}", link_->path(),
                          whole.ok() ? "the last is cut short" : whole.status().message());
      }
      if (*whole || last_) return *whole;
      QUARRY_TRY(wire::Response answer, sql_->Ask(wire::Fetch{id_, false}));
      QUARRY_TRY(const wire::SqlRows page, Expect<wire::SqlRows>(answer, link_->path()));
      reader_.Add(page.bytes);
      last_ = page.last;
    }
  }

  const std::shared_ptr<Link> link_;
  const std::shared_ptr<SqlSession> sql_;
  const uint64_t id_;
  std::vector<std::string> columns_;
  wire::SqlRowReader reader_{0};
  bool last_ = false;  // no page follows
  bool done_ = false;  // no row follows
};

class RemoteSql final : public SqlConnection {
 public:
  RemoteSql(std::shared_ptr<Link> link, const SqlOptions& options)
      : link_(std::move(link)), options_(options) {}

  Status Open() {
    const Deadline deadline = link_->NewDeadline();
    QUARRY_TRY(sql_, link_->Run(deadline, [&](const std::shared_ptr<Session>& session) {
      return SqlSession::Open(session, options_, link_->timeout_seconds(), deadline);
    }));
    return Status::Ok();
  }

  Result<std::unique_ptr<RowCursor>> Query(std::string_view sql, std::span<const Value> parameters) override {
    wire::Query query = {.parameters = static_cast<uint32_t>(parameters.size())};
    QUARRY_TRY(std::unique_ptr<RemoteCursor> cursor, Begin(query, sql, wire::SqlValueBytes(parameters)));
    return std::unique_ptr<RowCursor>(std::move(cursor));
  }
  Status Run(std::string_view script, const std::function<Status(RowCursor&)>& visit) override {
    QUARRY_TRY(const std::unique_ptr<RemoteCursor> cursor, Begin({.script = true}, script, {}));
    while (true) {
      QUARRY_TRY(const bool more, cursor->NextStatement());
      if (!more) return Status::Ok();
      QUARRY_RETURN_IF_ERROR(visit(*cursor));
    }
  }
  const std::vector<wire::SqlTable>& tables() const override { return sql_->tables(); }

 private:
  Result<std::unique_ptr<RemoteCursor>> Begin(wire::Query query, std::string_view text,
                                              const std::vector<std::byte>& values) {
    if (sql_->lost() && !sql_->told()) return sql_->Lost();
    if (sql_->lost()) QUARRY_RETURN_IF_ERROR(Open());
    const Deadline deadline = link_->NewDeadline();
    QUARRY_TRY(Upload upload, Upload::Make(sql_->session(), text.size() + values.size(), 2, deadline));
    query.connection = sql_->id();
    query.text = upload.Add(std::as_bytes(std::span(text)));
    query.values = upload.Add(std::span<const std::byte>(values));
    QUARRY_TRY(wire::Response answer, sql_->Ask(query, upload.holds()));
    QUARRY_TRY(wire::Statement statement, Expect<wire::Statement>(answer, link_->path()));
    return std::make_unique<RemoteCursor>(link_, sql_, std::move(statement));
  }

  const std::shared_ptr<Link> link_;
  const SqlOptions options_;
  std::shared_ptr<SqlSession> sql_;
};

}  // namespace

Result<std::unique_ptr<SqlConnection>> OpenRemoteSql(std::shared_ptr<Link> link, const SqlOptions& options) {
  auto connection = std::make_unique<RemoteSql>(std::move(link), options);
  QUARRY_RETURN_IF_ERROR(connection->Open());
  return std::unique_ptr<SqlConnection>(std::move(connection));
}

}  // namespace quarry::client
