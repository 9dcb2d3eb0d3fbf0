#include "remote_maintenance.h"

#include <utility>

#include "pulse.h"

namespace quarry::client {
namespace {

constexpr double kProgressSeconds = 0.05;         // so often `progress` is called
constexpr std::string_view kWaiting = "waiting";  // the phase before the server has named one

Status CheckMaintenance(const Session& session) {
  if (session.has_maintenance()) return Status();
  return MakeStatus(Code::kUnsupported, "{}: the server is of a Quarry that does no maintenance for clients",
                    session.path());
}

// A task that a server is at.
class Task {
 public:
  Task(Session& session, Connection::Ticket ticket, double patience_seconds, const ProgressFunction& progress)
      : session_(session),
        ticket_(std::move(ticket)),
        patience_seconds_(patience_seconds),
        progress_(progress),
        pulse_(session.connection(), patience_seconds) {}

  // However long it takes, while the server answers pings. A task that is to end is waited for, too: it undoes
  // itself, or was done before it was told.
  Result<wire::MaintenanceReport> Finish() {
    Connection& connection = session_.connection();
    while (true) {
      Result<Connection::Answer> answer = connection.Wait(ticket_, DeadlineIn(kProgressSeconds));
      if (answer.ok()) return ReportOf(std::move(answer->response));
      if (session_.lost()) return Lost();
      if (!pulse_.Beats()) return Silent();
      if (!stopped_.ok() || !progress_) continue;
      const wire::Progress so_far =
          connection.ProgressOf(ticket_).value_or(wire::Progress{std::string(kWaiting)});
      stopped_ = progress_(so_far.phase, so_far.done, so_far.total);
      if (!stopped_.ok()) connection.Cancel(ticket_);
    }
  }

 private:
  Result<wire::MaintenanceReport> ReportOf(wire::Response response) const {
    auto report = Expect<wire::MaintenanceReport>(response, session_.path());
    if (!stopped_.ok() && report.status().code() == Code::kCancelled) return stopped_;
    return report;
  }
  Status Lost() const {
    return MakeStatus(
        Code::kIoError,
        "the server went away, or closed the connection, and what it was at is cancelled unless "
        "it was just done: {}",
        session_.connection().fault().message());
  }
  Status Silent() const {
    session_.connection().Abandon(ticket_);
    return MakeStatus(Code::kIoError, "{}: the server has answered nothing for {} s; it is asked to cancel",
                      session_.path(), patience_seconds_);
  }

  Session& session_;
  const Connection::Ticket ticket_;
  const double patience_seconds_;
  const ProgressFunction& progress_;
  Pulse pulse_;
  Status stopped_;  // not OK: why `progress` ended it
};

}  // namespace

Result<wire::MaintenanceReport> RemoteMaintain(Link& link, const wire::MaintenanceTask& task,
                                               const ProgressFunction& progress) {
  if (progress) QUARRY_RETURN_IF_ERROR(progress(kWaiting, 0, 0));
  const Deadline deadline = link.NewDeadline();
  QUARRY_TRY(const std::shared_ptr<Session> session, link.Current(deadline));
  QUARRY_RETURN_IF_ERROR(CheckMaintenance(*session));
  if (const auto* const build = std::get_if<wire::BuildLayout>(&task)) {
    QUARRY_RETURN_IF_ERROR(session->CheckSampler(build->road));
    if (build->ranks > 0 && !session->has_ranks()) {
      return MakeStatus(Code::kUnsupported,
                        "{}: the server is of a Quarry that builds layouts for one trainer alone",
                        session->path());
    }
  }
  QUARRY_TRY(Connection::Ticket ticket, session->connection().Send(wire::Maintain{task}, deadline));
  return Task(*session, std::move(ticket), link.timeout_seconds(), progress).Finish();
}

Result<std::vector<std::byte>> ReadRemoteManifest(Link& link) {
  const Deadline deadline = link.NewDeadline();
  using Bytes = std::vector<std::byte>;
  return link.Run(deadline, [&](const std::shared_ptr<Session>& session) -> Result<Bytes> {
    QUARRY_RETURN_IF_ERROR(CheckMaintenance(*session));
    QUARRY_TRY(Connection::Answer answer, session->Call(wire::ReadManifest{}, deadline));
    QUARRY_TRY(wire::ManifestBytes manifest, Expect<wire::ManifestBytes>(answer.response, session->path()));
    return session->TakeWhole(std::move(manifest.payload), deadline);
  });
}

}  // namespace quarry::client
