#include "quarry/server/server.h"

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <exception>
#include <future>
#include <map>
#include <utility>

#include "acceptor.h"
#include "connection_slots.h"
#include "graph_upkeep.h"
#include "quarry/base/exhaustion.h"
#include "quarry/base/log.h"
#include "quarry/base/mutex.h"
#include "quarry/base/thread.h"
#include "quarry/base/units.h"
#include "quarry/layout/cost_model.h"
#include "quarry/storage/growth_cost.h"
#include "quarry/storage/run_merger.h"
#include "server_core.h"
#include "session.h"
#include "socket_path.h"

namespace quarry {
namespace {

constexpr std::chrono::seconds kDrain{
    5};  // for writes that have begun, and for clients to read their last answers

class ServerImpl final : public Server {
 public:
  ServerImpl(Store& store, MemoryBudget& budget, const ServerOptions& options)
      : options_(options),
        core_(store, budget, options),
        work_(boost::asio::make_work_guard(core_.io)),
        slots_(options.sessions_max, core_.users) {}
  ~ServerImpl() override { static_cast<void>(Stop()); }

  Status Listen();
  Status Stop() override;
  const std::string& socket_path() const override { return options_.socket_path; }
  uint16_t metrics_port() const override { return http_ == nullptr ? 0 : http_->port(); }

 private:
  void RunLoop();
  Status AddSession(const Session::Peer& peer, int descriptor);
  void RemoveSession(SessionId id);
  std::vector<std::shared_ptr<Session>> Sessions() const;
  Status ServeMetrics();
  void AddGauges();
  template <typename Figures, typename Of>
  void AddFigures(const Of& of);
  void AddGraphGauges();
  void ScheduleCheckpoint();
  void CheckpointEmbeddings();
  void StopAccepting();
  void EndSessions();

  const ServerOptions options_;
  ServerCore core_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::shared_ptr<Acceptor> acceptor_;
  boost::asio::steady_timer checkpoint_timer_{core_.io};  // armed on Listen, then by what it set off
  std::optional<GraphUpkeep> graph_upkeep_;
  std::string checkpoint_fault_;  // the last that was told; of whoever does the checkpoint
  std::vector<Thread> threads_;
  std::unique_ptr<MetricsHttp> http_;

  mutable Mutex mutex_;
  SessionId last_session_ QUARRY_GUARDED_BY(mutex_) = 0;
  CondVar session_removed_;
  std::map<SessionId, std::shared_ptr<Session>> sessions_ QUARRY_GUARDED_BY(mutex_);
  ConnectionSlots slots_ QUARRY_GUARDED_BY(mutex_);
  std::map<SessionId, Allowance::Claim> session_descriptors_ QUARRY_GUARDED_BY(mutex_);
  bool stopping_ QUARRY_GUARDED_BY(mutex_) = false;

  Mutex stop_mutex_;  // for Stop, which is done once
  bool stopped_ QUARRY_GUARDED_BY(stop_mutex_) = false;
  Status stop_status_ QUARRY_GUARDED_BY(stop_mutex_);
};

Status ServerImpl::Listen() {
  core_.on_session_end = [this](SessionId id) { RemoveSession(id); };
  AddGauges();
  AddGraphGauges();
  QUARRY_RETURN_IF_ERROR(core_.Start(options_));
  if (core_.granted.limit_bytes() < kSessionBytesMin) {
    return MakeStatus(
        Code::kOutOfBudget,
        "a server of {} serves nobody: a quarter is for what all clients use, and a session has {} "
        "at least: give it {} bytes or more",
        FormatBytes(core_.reservation.bytes()), FormatBytes(kSessionBytesMin), kServerBytesMin);
  }
  QUARRY_RETURN_IF_ERROR(ServeMetrics());
  QUARRY_TRY(const int listener,
             ListenAt(options_.socket_path, !options_.allow_uids.empty(), core_.store.path()));
  acceptor_ = std::make_shared<Acceptor>(
      core_.io, listener, options_.allow_uids,
      [this](const Session::Peer& peer, int descriptor) { return AddSession(peer, descriptor); });
  acceptor_->Start();
  ScheduleCheckpoint();
  core_.store.merger().Start(core_.common);
  if (options_.auto_compact > 0) graph_upkeep_.emplace(core_, options_.auto_compact).Start();
  return StartThreads(
      "sessions", std::max(1U, options_.io_threads), [this](unsigned) { RunLoop(); }, [](const Status&) {},
      threads_);
}

// Handlers see to their own ends; what one lets through must not take the loop with it.
void ServerImpl::RunLoop() {
  while (!core_.io.stopped()) {
    const Status status = CatchExhaustion("the server's event loop", [this] {
      core_.io.run();
      return Status::Ok();
    });
    if (!status.ok()) Insist([&] { LogWarn("{}", status.message()); });
  }
}

// One at a time: the next is scheduled when one has ended. It waits for the disk, so that it is a writers'
// task.
void ServerImpl::ScheduleCheckpoint() {
  if (options_.checkpoint_embeddings.count() == 0) return;
  checkpoint_timer_.expires_after(options_.checkpoint_embeddings);
  checkpoint_timer_.async_wait([this](const boost::system::error_code& error) {
    constexpr uint64_t kNoSession = 0;
    if (!error) core_.writers.Submit(kNoSession, [this](unsigned) { CheckpointEmbeddings(); });
  });
}

void ServerImpl::CheckpointEmbeddings() {
  const Status status = core_.embeddings.Checkpoint();
  if (!status.ok() && status.message() != checkpoint_fault_) {
    LogWarn("embeddings are not checkpointed: {}", status.message());
  }
  checkpoint_fault_ = status.message();
  boost::asio::post(core_.io, [this] { ScheduleCheckpoint(); });
}

Status ServerImpl::ServeMetrics() {
  MetricsHttp::Places places = {.port = options_.metrics_port, .users = core_.users};
  if (options_.metrics) {
    const std::string path = MetricsPath(options_.socket_path);
    QUARRY_TRY(places.listener, ListenAt(path, !options_.allow_uids.empty(), core_.store.path()));
  }
  if (!options_.metrics && !places.port) return Status::Ok();
  QUARRY_TRY(http_, MetricsHttp::Start(core_.metrics, core_.status, places));
  return Status::Ok();
}

void ServerImpl::AddGauges() {
  core_.status = [this] {
    wire::ServerStatus status = {.counters = core_.metrics.Counters(), .streams = core_.hub->Streams()};
    for (const auto& session : Sessions()) status.sessions.push_back(session->status());
    wire::LeaveOutWhatFindsNoRoom(status);
    return status;
  };
  const auto add = [this](const char* name, const char* help, std::function<double()> value) {
    core_.metrics.AddGauge(name, "", help, std::move(value));
  };
  add("quarry_sessions", "Clients that are connected.",
      [this] { return static_cast<double>(Sessions().size()); });
  add("quarry_outstanding_requests", "Requests that have no answer yet.", [this] {
    uint64_t requests = 0;
    for (const auto& session : Sessions()) requests += session->status().outstanding;
    return static_cast<double>(requests);
  });
  add("quarry_queued_reads", "Requests that wait for a thread that reads.",
      [this] { return static_cast<double>(core_.readers.queued()); });
  add("quarry_queued_writes", "Requests that wait for a thread that writes.",
      [this] { return static_cast<double>(core_.writers.queued()); });
  add("quarry_budget_bytes", "Memory that sessions share.",
      [this] { return static_cast<double>(core_.granted.limit_bytes()); });
  add("quarry_budget_granted_bytes", "Memory that was granted to sessions.", [this] {
    core_.admission.Look();
    return static_cast<double>(core_.granted.used_bytes());
  });
  add("quarry_lingering_bytes",
      "Memory of regions of ended sessions, which clients still have open or mapped.",
      [this] { return static_cast<double>(core_.admission.lingering_bytes()); });
  add("quarry_stream_threads", "Threads that streams may have.",
      [this] { return static_cast<double>(core_.threads->limit()); });
  add("quarry_stream_threads_used", "Threads that streams have.",
      [this] { return static_cast<double>(core_.threads->used()); });
  add("quarry_stream_descriptors", "Descriptors that streams and clients may have.",
      [this] { return static_cast<double>(core_.descriptors->limit()); });
  add("quarry_stream_descriptors_used", "Descriptors that streams and clients have.",
      [this] { return static_cast<double>(core_.descriptors->used()); });
  add("quarry_common_budget_bytes", "Memory for what is open once for all sessions.",
      [this] { return static_cast<double>(core_.common.limit_bytes()); });
  add("quarry_common_budget_used_bytes", "Memory that is used of that.",
      [this] { return static_cast<double>(core_.common.used_bytes()); });
}

// A gauge for each figure of `Figures`: those of all topologies together, as `of` gives them. What is counted is summed up, and of
// what is predicted, and of shares, the worst is told.
template <typename Figures, typename Of>
void ServerImpl::AddFigures(const Of& of) {
  ForEachFigure(Figures(), [&](std::string_view name, auto none) {
    const auto value = [this, of, name, none] {
      double all = static_cast<double>(none);
      const std::shared_ptr<const Manifest> manifest = core_.store.manifest();
      for (const TopologyRecord& topology : manifest->topologies) {
        ForEachFigure(of(topology, *manifest), [&](std::string_view figure, auto one) {
          if (figure != name) return;
          const auto number = static_cast<double>(one);
          all = std::is_integral_v<decltype(one)> ? all + number : std::max(all, number);
        });
      }
      return all;
    };
    core_.metrics.AddGauge(fmt::format("quarry_graph_{}", name), "", std::string(MeaningOfFigure(name)),
                           value);
  });
}

void ServerImpl::AddGraphGauges() {
  AddFigures<GrowthCost>([](const TopologyRecord& topology, const Manifest& manifest) {
    return CostOf(topology, DeviceOf(manifest));
  });
  AddFigures<GrowthMeasured>([this](const TopologyRecord& topology, const Manifest&) {
    return core_.store.growth().Measured(topology);
  });
  AddFigures<GrowthWritten>([this](const TopologyRecord& topology, const Manifest&) {
    return core_.store.growth().Of(topology.name);
  });
}

std::vector<std::shared_ptr<Session>> ServerImpl::Sessions() const {
  MutexLock lock(mutex_);
  std::vector<std::shared_ptr<Session>> all;
  for (const auto& [id, session] : sessions_) all.push_back(session);
  return all;
}

Status ServerImpl::AddSession(const Session::Peer& peer, int descriptor) {
  std::shared_ptr<Session> session;
  {
    MutexLock lock(mutex_);
    if (stopping_) return {Code::kCancelled, "the server shuts down"};
    QUARRY_TRY(Allowance::Claim descriptors, core_.descriptors->Take(kSessionDescriptors, "a client"));
    const auto spare_since = [this](SessionId id)
                                 QUARRY_REQUIRES(mutex_) { return sessions_.at(id)->spare_since(); };
    QUARRY_TRY(const auto closed, slots_.Take(last_session_ + 1, peer.uid, spare_since));
    if (closed) {
      sessions_.at(*closed)->End(
          {Code::kBusy, "no session was opened, and another client needs the place: connect again"});
    }
    session = std::make_shared<Session>(core_, ++last_session_, peer, descriptor);
    sessions_.emplace(last_session_, session);
    session_descriptors_.emplace(last_session_, std::move(descriptors));
  }
  session->Start();
  return Status::Ok();
}

void ServerImpl::RemoveSession(SessionId id) {
  std::shared_ptr<Session> removed;  // dies behind the lock
  MutexLock lock(mutex_);
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  slots_.Give(id);
  removed = std::move(found->second);
  sessions_.erase(found);
  session_descriptors_.erase(id);
  session_removed_.NotifyAll();
}

void ServerImpl::StopAccepting() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  if (acceptor_ == nullptr) return;  // it never listened
  if (threads_.empty())
    return RemoveSocket(options_.socket_path, acceptor_->Release(),
                        core_.store.path());  // it had no threads for it
  std::promise<int> released;
  acceptor_->Stop([&](int listener) { released.set_value(listener); });
  RemoveSocket(options_.socket_path, released.get_future().get(), core_.store.path());
}

void ServerImpl::EndSessions() {
  for (const auto& session : Sessions()) session->Shutdown();
  {
    const auto deadline = std::chrono::steady_clock::now() + kDrain;
    MutexLock lock(mutex_);
    while (!sessions_.empty() && session_removed_.WaitUntil(mutex_, deadline)) {
    }
  }
  for (const auto& session : Sessions()) session->Close();
}

Status ServerImpl::Stop() {
  MutexLock lock(stop_mutex_);
  if (stopped_) return stop_status_;
  stopped_ = true;
  StopAccepting();
  EndSessions();
  if (graph_upkeep_) graph_upkeep_->Stop();
  core_.readers.Stop();
  core_.writers.Stop();
  core_.sql_workers.Stop();
  core_.store.merger().Stop();  // its memory is the server's, and nobody commits any more
  core_.maintainers.Stop();
  work_.reset();
  core_.io.stop();
  threads_.clear();
  if (std::exchange(http_, nullptr) != nullptr && options_.metrics) {
    RemoveSocket(MetricsPath(options_.socket_path), -1, core_.store.path());  // which is closed by now
  }
  core_.hub.reset();
  stop_status_ = core_.embeddings.Checkpoint();
  return stop_status_;
}

}  // namespace

Result<std::unique_ptr<Server>> Server::Start(Store& store, MemoryBudget& budget,
                                              const ServerOptions& options) {
  try {  // an event loop takes descriptors and threads, which the system may not have
    auto server = std::make_unique<ServerImpl>(store, budget, options);
    QUARRY_RETURN_IF_ERROR(server->Listen());
    return std::unique_ptr<Server>(std::move(server));
  } catch (const std::exception& error) {
    return MakeStatus(Code::kIoError, "{}: the server cannot start: {}", options.socket_path, error.what());
  }
}

}  // namespace quarry
