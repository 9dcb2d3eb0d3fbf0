// Streams: batches asked ahead, and passes that survive their connection.
//
//   kIdle    -> kRunning  [StartPass]
//   kRunning -> kRunning  [Resume: the connection was lost; the pass begins again in a new session, and
//   batches
//                          that were used are skipped: a batch depends on seed, pass and its number alone]
//   kRunning -> kEnded    [Next, behind the last batch]
//   kRunning -> kFailed   [Next; the same error until the next StartPass]
#include "remote_stream.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <set>
#include <utility>

#include "held_batches.h"
#include "remote_batch.h"
#include "request_errors.h"
#include "upload.h"

namespace quarry::client {
namespace {

// Numbers of batches that were used: all below a bound, and some beyond it where a pass is not ordered.
class UsedBatches {
 public:
  bool Contains(uint64_t index) const { return index < below_ || beyond_.contains(index); }
  void Add(uint64_t index) {
    beyond_.insert(index);
    while (!beyond_.empty() && *beyond_.begin() == below_) {
      beyond_.erase(beyond_.begin());
      ++below_;
    }
  }

 private:
  uint64_t below_ = 0;
  std::set<uint64_t> beyond_;
};

// The stream as one session has it.
struct OpenedStream {
  std::shared_ptr<Session> session;
  wire::StreamOpened opened;
};

class RemoteStream final : public Stream {
 public:
  RemoteStream(std::shared_ptr<Link> link, const wire::OpenStream& request)
      : link_(std::move(link)), request_(request) {}
  ~RemoteStream() override;

  uint32_t feature_dim() const override { return at_.opened.feature_dim; }
  uint32_t slots() const override { return at_.opened.slots; }
  uint64_t timestamp() const override { return at_.opened.timestamp; }
  std::optional<wire::OpenedParts> parts() const override { return at_.opened.parts; }

  Result<uint64_t> StartPass(wire::StartPass request) override;
  Result<std::unique_ptr<Batch>> Next() override;
  Result<wire::Counters> Stats() override;

  // Opens it in this session, where it is not.
  Status OpenIn(const std::shared_ptr<Session>& session, Deadline deadline);

 private:
  enum class State { kIdle, kRunning, kEnded, kFailed };

  Result<uint64_t> Start(Deadline deadline);
  Status Resume(Deadline deadline);
  Status CheckParts(const wire::StreamOpened& opened) const;
  bool IsOfLayout() const;
  Status CheckEpoch(Deadline deadline);
  void DropAsked();
  Status AskAhead(Deadline deadline);
  Result<wire::Response> WaitNext(Deadline deadline);
  Result<std::unique_ptr<Batch>> Open(wire::Batch batch, Deadline deadline);
  Status FailWith(const Status& fault);

  const std::shared_ptr<Link> link_;
  const wire::OpenStream request_;
  const std::shared_ptr<BlockMemory> memory_ = std::make_shared<BlockMemory>();
  const std::shared_ptr<HeldBatches> held_ = std::make_shared<HeldBatches>();
  OpenedStream at_;

  State state_ = State::kIdle;
  Status fault_;
  wire::StartPass pass_;
  uint64_t batches_ = 0;
  uint64_t pass_timestamp_ = 0;
  uint64_t epochs_ = 0;  // epochs of a layout that at_ has served to their end, in succession
  UsedBatches used_;
  std::deque<Connection::Ticket> asked_;  // in at_.session
};

// What the server draws by; null where all comes from a layout.
const RoadSpec* SampledBy(const wire::OpenStream& request) {
  if (const auto* const live = std::get_if<wire::LiveSpec>(&request.road)) return live;
  if (const auto* const superbatch = std::get_if<wire::SuperbatchSpec>(&request.road))
    return &superbatch->live;
  const auto* const planned = std::get_if<wire::PlannedSpec>(&request.road);
  return planned != nullptr && planned->live ? &*planned->live : nullptr;
}

RemoteStream::~RemoteStream() {
  if (at_.session == nullptr) return;
  DropAsked();
  at_.session->connection().Post(wire::CloseStream{.stream = at_.opened.stream});
  at_.session->DropRegions(at_.opened.regions);
}

Status RemoteStream::OpenIn(const std::shared_ptr<Session>& session, Deadline deadline) {
  if (at_.session == session) return Status();
  wire::OpenStream request = request_;
  if (const RoadSpec* const sampled = SampledBy(request))
    QUARRY_RETURN_IF_ERROR(session->CheckSampler(*sampled));
  QUARRY_TRY(request.snapshot, link_->SnapshotIn(session, request_.snapshot, deadline));
  auto* const parts = std::get_if<wire::PartitionedSpec>(&request.road);
  if (parts != nullptr) QUARRY_RETURN_IF_ERROR(session->CheckParts());
  if (parts != nullptr &&
      at_.opened.parts) {  // what is held decides the batches, and memory may be other by now
    parts->buffer = at_.opened.parts->buffer;
    parts->logical = at_.opened.parts->logical;
  }
  QUARRY_TRY(Connection::Answer answer, session->Call(request, deadline));
  QUARRY_TRY(wire::StreamOpened opened, Expect<wire::StreamOpened>(answer.response, session->path()));
  if (const Status same = CheckParts(opened); !same.ok()) {
    session->connection().Post(wire::CloseStream{.stream = opened.stream});
    return same;
  }
  QUARRY_RETURN_IF_ERROR(session->AddRegions(opened.regions, answer.fds));
  asked_.clear();
  epochs_ = 0;
  at_ = {.session = session, .opened = std::move(opened)};
  return Status();
}

// A stream of the partitioned road that is opened anew has the parts that it had.
Status RemoteStream::CheckParts(const wire::StreamOpened& opened) const {
  const auto* const asked = std::get_if<wire::PartitionedSpec>(&request_.road);
  if (opened.parts.has_value() != (asked != nullptr)) {
    return MakeStatus(Code::kCorruption, "{}: the server says {} of a stream", link_->path(),
                      asked != nullptr ? "nothing of the parts" : "something of parts that it has not,");
  }
  if (asked == nullptr || !at_.opened.parts || *at_.opened.parts == *opened.parts) return Status();
  return MakeStatus(Code::kIoError,
                    "{}: partitioning '{}' was built anew while the connection was lost, so the batches are "
                    "others: open the stream again",
                    link_->path(), asked->partitioning);
}

Result<uint64_t> RemoteStream::StartPass(wire::StartPass request) {
  if (const auto* seeds = std::get_if<wire::NodeIds>(&request.seeds)) {
    if (std::holds_alternative<wire::Range>(*seeds)) return NotInMemory("seeds");
  }
  if (held_->count() > 0) return BatchesHeldAtStart(held_->count());
  DropAsked();
  if (state_ != State::kEnded && IsOfLayout()) epochs_ = 0;
  pass_ = std::move(request);
  used_ = UsedBatches();
  state_ = State::kIdle;
  QUARRY_TRY(batches_, Start(link_->NewDeadline()));
  pass_timestamp_ = at_.opened.timestamp;
  state_ = State::kRunning;
  return batches_;
}

// Begins the pass in a session that has the stream.
Result<uint64_t> RemoteStream::Start(Deadline deadline) {
  return link_->Run(deadline, [&](const std::shared_ptr<Session>& session) -> Result<uint64_t> {
    QUARRY_RETURN_IF_ERROR(OpenIn(session, deadline));
    wire::StartPass request = {
        .stream = at_.opened.stream, .shuffle = pass_.shuffle, .pass = pass_.pass, .ordered = pass_.ordered};
    std::shared_ptr<const void> holds;
    if (const auto* seeds = std::get_if<wire::NodeIds>(&pass_.seeds)) {
      const std::span<const NodeId> ids = std::get<std::vector<NodeId>>(*seeds);
      QUARRY_TRY(Upload upload, Upload::Make(*session, ids.size_bytes(), 1, deadline));
      request.seeds = upload.Add(ids);
      holds = upload.holds();
    } else {
      request.seeds = std::get<Split>(pass_.seeds);
    }
    QUARRY_TRY(Connection::Answer answer, session->Call(request, deadline, holds));
    QUARRY_TRY(const wire::PassStarted started, Expect<wire::PassStarted>(answer.response, session->path()));
    return started.batches;
  });
}

Status RemoteStream::Resume(Deadline deadline) {
  if (request_.mode == wire::StreamMode::kSplit) {
    return MakeStatus(
        Code::kIoError,
        "{}: the connection was lost in the middle of a pass whose batches several clients share "
        "out: who has had which is not known any more; begin the pass again",
        link_->path());
  }
  QUARRY_RETURN_IF_ERROR(CheckEpoch(deadline));
  QUARRY_TRY(const uint64_t batches, Start(deadline));
  if (at_.opened.timestamp == pass_timestamp_ && batches == batches_) return Status();
  return MakeStatus(
      Code::kIoError,
      "{}: the connection was lost in the middle of a pass of timestamp {}, and there is {} by now: "
      "other rows; begin the pass again",
      link_->path(), pass_timestamp_, at_.opened.timestamp);
}

// Whether the pass is over the seeds of a layout, as far as can be told: those of other splits are sampled.
bool RemoteStream::IsOfLayout() const {
  const auto* const split = std::get_if<Split>(&pass_.seeds);
  return std::holds_alternative<wire::PlannedSpec>(request_.road) &&
         (split == nullptr || *split == Split::kTrain);
}

// A layout's epochs follow each other, and a stream that is opened anew begins with the first.
Status RemoteStream::CheckEpoch(Deadline deadline) {
  if (epochs_ == 0 || !IsOfLayout()) return Status();
  const std::string& name = std::get<wire::PlannedSpec>(request_.road).layout;
  auto answer = link_->Run(deadline, [&](const std::shared_ptr<Session>& session) {
    return session->Call(wire::Describe(), deadline);
  });
  if (!answer.ok()) return answer.status();
  QUARRY_TRY(const wire::Description description, Expect<wire::Description>(answer->response, link_->path()));
  const auto layout = std::ranges::find(description.layouts, name, &wire::LayoutInfo::name);
  if (layout != description.layouts.end() && layout->epochs > 0 && epochs_ % layout->epochs == 0) {
    return Status();
  }
  return MakeStatus(Code::kIoError,
                    "{}: the connection was lost in the middle of a later epoch of layout '{}', which begins "
                    "with its first now; begin the pass again",
                    link_->path(), name);
}

void RemoteStream::DropAsked() {
  for (const Connection::Ticket& ticket : asked_) at_.session->connection().Abandon(ticket);
  asked_.clear();
}

// As many as there are slots: while one is used, the others are made. Only the first waits for room among the
// requests of all streams.
Status RemoteStream::AskAhead(Deadline deadline) {
  Connection& connection = at_.session->connection();
  const wire::NextBatch request = {.stream = at_.opened.stream};
  while (asked_.size() < at_.opened.slots) {
    QUARRY_TRY(Connection::Ticket ticket,
               asked_.empty() ? connection.Send(request, deadline) : connection.TrySend(request, deadline));
    if (ticket == nullptr) break;
    asked_.push_back(std::move(ticket));
  }
  return Status();
}

// What the server answers to the oldest request. Behind a deadline it is still to come.
Result<wire::Response> RemoteStream::WaitNext(Deadline deadline) {
  QUARRY_RETURN_IF_ERROR(AskAhead(deadline));
  Result<Connection::Answer> answer = at_.session->connection().Wait(asked_.front(), deadline);
  if (!answer.ok()) return answer.status();
  asked_.pop_front();
  if (const auto* failure = std::get_if<wire::Failure>(&answer->response)) return wire::ToStatus(*failure);
  return std::move(answer->response);
}

Result<std::unique_ptr<Batch>> RemoteStream::Next() {
  if (state_ == State::kIdle) return NoPass();
  if (state_ == State::kFailed) return fault_;
  if (state_ == State::kEnded) return std::unique_ptr<Batch>();
  if (held_->count() >= slots()) return BatchesHeld(held_->count(), slots());
  const Deadline deadline = link_->NewDeadline();
  while (true) {
    Result<wire::Response> answer = WaitNext(deadline);
    Result<std::unique_ptr<Batch>> batch = std::unique_ptr<Batch>();
    if (!answer.ok()) {
      batch = answer.status();
    } else if (auto* made = std::get_if<wire::Batch>(&*answer)) {
      const bool used = used_.Contains(made->index);
      batch = Open(std::move(*made), deadline);
      if (batch.ok() && used) continue;
    } else if (std::holds_alternative<wire::PassEnded>(*answer)) {
      DropAsked();
      state_ = State::kEnded;
      if (IsOfLayout()) ++epochs_;
      return batch;
    } else {
      batch = MakeStatus(Code::kCorruption, "{}: the server answered no batch", link_->path());
    }
    if (batch.ok()) {
      used_.Add((*batch)->index());
      return batch;
    }
    if (!Link::WentAway(*at_.session, batch.status(), deadline)) return FailWith(batch.status());
    const Status resumed = Resume(deadline);
    if (!resumed.ok()) return FailWith(resumed);
  }
}

Result<std::unique_ptr<Batch>> RemoteStream::Open(wire::Batch batch, Deadline deadline) {
  QUARRY_TRY(Brought brought, at_.session->Take(std::move(batch.payload), batch.rows, true, deadline));
  QUARRY_TRY(std::unique_ptr<Batch> opened,
             OpenRemoteBatch(std::move(brought), batch.index, link_->path(), memory_, held_->Hold()));
  if (const auto* const live = std::get_if<wire::LiveSpec>(&request_.road)) {
    QUARRY_RETURN_IF_ERROR(CheckDrawnBy(opened->view(), live->edge_ids,
                                        RelationCount(live->fanouts, live->relation_fanouts), link_->path()));
  } else if (const RoadSpec* const sampled = SampledBy(request_);
             sampled != nullptr && !sampled->relation_fanouts.empty()) {
    QUARRY_RETURN_IF_ERROR(CheckDrawnBy(opened->view(), sampled->edge_ids,
                                        RelationCount(sampled->fanouts, sampled->relation_fanouts),
                                        link_->path()));
  }
  return opened;
}

// A batch that is late may still come: that is no end of the pass.
Status RemoteStream::FailWith(const Status& fault) {
  const bool late = fault.code() == Code::kIoError && !asked_.empty() && !at_.session->lost();
  if (late) return fault;
  state_ = State::kFailed;
  fault_ = fault;
  return fault;
}

Result<wire::Counters> RemoteStream::Stats() {
  const Deadline deadline = link_->NewDeadline();
  QUARRY_TRY(Connection::Answer answer,
             at_.session->Call(wire::Stats{.stream = at_.opened.stream}, deadline));
  return Expect<wire::Counters>(answer.response, link_->path());
}

}  // namespace

Result<std::unique_ptr<Stream>> OpenRemoteStream(const std::shared_ptr<Link>& link,
                                                 const wire::OpenStream& request) {
  const Deadline deadline = link->NewDeadline();
  return link->Run(deadline, [&](const std::shared_ptr<Session>& session) -> Result<std::unique_ptr<Stream>> {
    auto stream = std::make_unique<RemoteStream>(link, request);
    QUARRY_RETURN_IF_ERROR(stream->OpenIn(session, deadline));
    return std::unique_ptr<Stream>(std::move(stream));
  });
}

}  // namespace quarry::client
