#include "session_writes.h"

#include <algorithm>
#include <utility>

#include "quarry/base/trace.h"
#include "quarry/service/put_rows.h"

namespace quarry {
namespace {

constexpr uint64_t kEntryBytes = 64;  // a row in a batch of writes, beside its value

uint64_t BytesOf(const wire::Bulk& bulk) {
  if (const auto* const bytes = std::get_if<std::vector<std::byte>>(&bulk)) return bytes->size();
  return std::get<wire::Range>(bulk).bytes;
}

Status PieceDoesNotFollow(const wire::Put& put) {
  return MakeStatus(Code::kUsage,
                    "piece {} of put {} does not follow one that this session has brought: begin at 1",
                    put.piece, put.number);
}

Status HasEnded(const StagedPut& put) {
  return MakeStatus(Code::kUsage, "put {} has ended: begin at 1", put.number);
}

}  // namespace

// A write that another connection of the client has under way is waited for; when it comes to nothing there,
// since that connection ended before it began, it is done here.
void Session::Writes::Write(uint64_t id, uint64_t number, const WriteWork& work) {
  Pending* const pending = Find(id);
  if (pending == nullptr) return;
  const auto cancelled = pending->cancelled;
  const auto mine = std::make_shared<bool>(false);
  const auto answer = [this, id, number, work, cancelled, mine](const Result<wire::Response>& result) {
    if (result.status().code() == Code::kCancelled && !*mine && !*cancelled) return Write(id, number, work);
    Reply(id, result);
  };
  auto turn = core_.retries.Begin({user(), session_.client_id_}, number, OnStrand<wire::Response>(answer));
  if (!turn.ok()) return Reply(id, turn.status());
  *mine = *turn != nullptr;
  if (!*mine) {
    pending->cancel = [this, id] { Reply(id, CancelledStatus()); };
    return;
  }
  core_.writers.Submit(session_id(),
                       [self = session_.shared_from_this(), cancelled, turn = *turn, work](unsigned) {
                         if (*cancelled) return;
                         const Result<wire::Response> result = CatchExhaustion("a write", work);
                         Insist([&] { turn->Finish(result); });
                       });
}

void Session::Writes::On(uint64_t id, const wire::Put& request) {
  if (request.piece > 0) return PutPiece(id, request);
  Write(id, request.number, [this, request] { return DoPut(request); });
}

struct Session::Writes::PutBatch {
  MemoryBudget::Reservation reservation;
  WriteBatch rows;
};

Result<Session::Writes::PutBatch> Session::Writes::BatchOf(const wire::Put& request,
                                                           const Manifest& manifest) const {
  uint64_t bytes = request.graph ? BytesOf(request.graph->block) : 0;
  for (const wire::PutRows& rows : request.tables) bytes += 3 * BytesOf(rows.block) + rows.rows * kEntryBytes;
  PutBatch batch;
  if (bytes > kUnpaidBytes) {
    QUARRY_TRY(batch.reservation, budget().Reserve(bytes, "the rows of a put"));
  }
  for (const wire::PutRows& rows : request.tables) {
    QUARRY_TRY(const std::vector<std::byte> block, bulk().CopyOf(rows.block));
    QUARRY_RETURN_IF_ERROR(AddPutRows(manifest, rows, block, batch.rows));
  }
  return batch;
}

Result<wire::Response> Session::Writes::DoPut(const wire::Put& request) {
  const ScopedSpan span("put", request.number);
  core_.hub->WaitClosed(budget());
  if (request.graph) {
    QUARRY_TRY(const auto put, PiecePut::Begin(core_.store, budget(), request.graph));
    QUARRY_RETURN_IF_ERROR(AddTo(*put, request));
    return CommitOf(*put);
  }
  QUARRY_TRY(const PutBatch batch, BatchOf(request, *core_.store.manifest()));
  QUARRY_TRY(const uint64_t timestamp, core_.store.Write(batch.rows, {.sync = request.sync}));
  return wire::Response(wire::Written{timestamp});
}

Status Session::Writes::AddTo(PiecePut& put, const wire::Put& request) const {
  QUARRY_TRY(const PutBatch batch, BatchOf(request, put.manifest()));
  QUARRY_RETURN_IF_ERROR(put.Add(batch.rows));
  if (!request.graph) return Status::Ok();
  QUARRY_TRY(const std::vector<std::byte> block, bulk().CopyOf(request.graph->block));
  return put.Change(*request.graph, block);
}

Result<wire::Response> Session::Writes::CommitOf(PiecePut& put) {
  QUARRY_TRY(const wire::GraphChanged committed, put.Commit());
  if (put.changes_graph()) return wire::Response(committed);
  return wire::Response(wire::Written{committed.timestamp});
}

Status Session::Writes::Stage(const wire::Put& request, const std::shared_ptr<StagedPut>& staged) const {
  const ScopedSpan span("put", request.number);
  core_.hub->WaitClosed(budget());
  std::unique_ptr<PiecePut> put;
  if (request.piece == 1) {  // before the put is locked: the turn locks the put that it ends
    const auto begin = [&] { return PiecePut::Begin(core_.store, budget(), request.graph); };
    QUARRY_TRY(put, core_.put_turn.Take(staged, begin, Clock::now()));
  }
  MutexLock lock(staged->mutex);
  QUARRY_RETURN_IF_ERROR(staged->ended);
  if (put != nullptr) staged->put = std::move(put);
  return AddTo(*staged->put, request);
}

// The put that this piece continues; null when it continues none, and then what came before is dropped.
Result<std::shared_ptr<StagedPut>> Session::Writes::NextPiece(const wire::Put& request) {
  const bool under_way = staged_ != nullptr && !staged_->dropped;
  if (under_way && staged_->number != request.number) {
    return MakeStatus(Code::kBusy, "put {} of this session is under way: commit it, or forget it first",
                      staged_->number);
  }
  const bool begins = !under_way && request.piece == 1;
  if (begins) staged_ = std::make_shared<StagedPut>(request.number);
  if (staged_ == nullptr || staged_->dropped || (!begins && staged_->at_work()) ||
      staged_->pieces + 1 != request.piece) {
    DropPut();
    return std::shared_ptr<StagedPut>();
  }
  ++staged_->pieces;
  staged_->idle_since = 0;
  return staged_;
}

// A piece that fails, or does not follow the one before, takes those before it with it: a commit without one
// of its pieces would be worse than none. Only the last piece is remembered for retries, since what comes
// before it can be sent again.
void Session::Writes::PutPiece(uint64_t id, const wire::Put& request) {
  const auto next = NextPiece(request);
  if (!next.ok()) return Reply(id, next.status());
  const auto stage = [this, request, staged = *next]() -> Status {
    if (staged == nullptr) return PieceDoesNotFollow(request);
    const Status done = Stage(request, staged);
    if (!done.ok()) staged->End(HasEnded(*staged));
    return done;
  };
  if (request.last) {
    Write(id, request.number, [stage, staged = *next]() -> Result<wire::Response> {
      QUARRY_RETURN_IF_ERROR(stage());
      MutexLock lock(staged->mutex);
      QUARRY_RETURN_IF_ERROR(staged->ended);  // somebody gave it up meanwhile
      // Its memory and its turn are free when the answer comes: what the client asks for next may need them.
      const std::unique_ptr<PiecePut> put = std::move(staged->put);
      staged->ended = HasEnded(*staged);
      return CommitOf(*put);
    });
    return DropPut();  // behind the commit, or in the place of one that another connection has made
  }
  const auto add = [stage](const Task&) -> Result<wire::Response> {
    QUARRY_RETURN_IF_ERROR(stage());
    return wire::Response(wire::Done{});
  };
  Work<wire::Response>(core_.writers, id, add,
                       [this, id, staged = *next](const Result<wire::Response>& done) {
                         if (staged != nullptr) staged->Rest(Clock::now());
                         if (!done.ok() && staged == staged_) DropPut();
                         Reply(id, done);
                       });
}

// By a task, since rows are deleted on disk. What is dropped stays where it is, and is dropped again when the
// session ends: the queue that it waits in goes then.
void Session::Writes::DropPut() {
  if (staged_ == nullptr) return;
  staged_->dropped = true;
  // With the session, whose budget has paid for it.
  core_.writers.Submit(session_id(), [self = session_.shared_from_this(), staged = staged_](unsigned) {
    staged->End(HasEnded(*staged));
  });
}

void Session::Writes::On(uint64_t id, const wire::ForgetPut& request) {
  if (staged_ == nullptr || staged_->number != request.number) return Reply(id, wire::Done{});
  DropPut();
  const auto behind = [](const Task&) -> Result<bool> { return true; };
  Work<bool>(core_.writers, id, behind, [this, id](const Result<bool>& done) {
    Reply(id, done.ok() ? Result<wire::Response>(wire::Done{}) : done.status());
  });
}

void Session::Writes::On(uint64_t id, const wire::CommitEmbeddings& request) {
  Write(id, request.number, [this, request] { return DoCommit(request); });
}

Result<wire::Response> Session::Writes::DoCommit(const wire::CommitEmbeddings& request) {
  uint64_t bytes = 0;
  for (const wire::EmbeddingUpdate& update : request.updates) bytes += BytesOf(update.block);
  MemoryBudget::Reservation reservation;
  if (bytes > kUnpaidBytes) {
    QUARRY_TRY(reservation, budget().Reserve(bytes, "the rows of a commit"));
  }
  std::vector<EmbeddingService::Update> updates;
  for (const wire::EmbeddingUpdate& update : request.updates) {
    QUARRY_TRY(std::vector<std::byte> block, bulk().CopyOf(update.block));
    updates.push_back({update.table, {update.rows, update.dim, update.state_dim}, std::move(block)});
  }
  QUARRY_TRY(const wire::EmbeddingsCommitted committed, core_.embeddings.Commit(updates));
  (committed.stale_rows == 0 ? core_.requests.commits_accepted : core_.requests.commits_stale).Add();
  return wire::Response(committed);
}

}  // namespace quarry
