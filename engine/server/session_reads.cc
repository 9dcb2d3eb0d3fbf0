#include "session_reads.h"

#include <algorithm>
#include <utility>

#include "quarry/base/trace.h"
#include "quarry/base/units.h"
#include "quarry/format/wire_batch.h"
#include "quarry/service/batch_copier.h"
#include "quarry/service/wire_forms.h"

namespace quarry {
namespace {

template <typename Id>
uint64_t CountOf(const std::variant<std::vector<Id>, wire::Range>& ids) {
  if (const auto* const list = std::get_if<std::vector<Id>>(&ids)) return list->size();
  return std::get<wire::Range>(ids).bytes / sizeof(Id);
}

// As many of a kind as a message lists.
template <typename Info>
void Cut(std::vector<Info>& infos) {
  if (infos.size() > wire::kListedMax) infos.resize(wire::kListedMax);
}

}  // namespace

void Session::Reads::On(uint64_t id, const wire::Describe&) {
  wire::Description description = DescriptionOf(core_.store);
  description.limits = core_.announced;
  Cut(description.tables);
  Cut(description.topologies);
  Cut(description.layouts);
  Cut(description.embeddings);
  Reply(id, description);
}

Result<std::shared_ptr<StoredTables::View>> Session::Reads::FindSnapshot(uint64_t snapshot) const {
  if (snapshot == 0) return std::shared_ptr<StoredTables::View>();
  const auto found = snapshots_.find(snapshot);
  if (found != snapshots_.end()) return found->second;
  return MakeStatus(Code::kUsage, "this session has no snapshot {}", snapshot);
}

// What a lookup needs from its first piece to its last.
struct Session::Reads::LookupWork {
  wire::Lookup request;
  wire::Rows answer;  // without its payload
  std::shared_ptr<StoredTables::View> view;
  std::shared_ptr<Bulk::Answer> out;
  MemoryBudget::Reservation scratch;
  const TableView* table = nullptr;  // once it has begun
  RowFetcher::Order order;
};

void Session::Reads::On(uint64_t id, const wire::Lookup& request) {
  const auto view = FindSnapshot(request.snapshot);
  const auto record = core_.tables.Find(request.table);
  if (!view.ok() || !record.ok()) return Reply(id, view.ok() ? record.status() : view.status());
  auto work = std::make_shared<LookupWork>();
  work->request = request;
  work->view = *view;
  work->answer = {.rows = CountOf(request.ids),
                  .element_type = record->element_type,
                  .dim = static_cast<uint32_t>(record->dim)};
  const uint64_t bytes = work->answer.rows * RowBytes(record->element_type, record->dim);
  bulk().MakeRoom(id, bytes, [this, id, work](const std::shared_ptr<Bulk::Answer>& answer) {
    work->out = answer;
    LookUp(id, work);
  });
}

// A piece of it, and so on: others have their turns in between.
void Session::Reads::LookUp(uint64_t id, const std::shared_ptr<LookupWork>& work) {
  const auto read = [this, work](const Task& task) { return LookUpSome(*work, task); };
  Work<bool>(core_.readers, id, read, [this, id, work](const Result<bool>& more) {
    if (more.ok() && *more && Find(id) != nullptr) return LookUp(id, work);
    if (more.ok() && !*more) core_.requests.lookup_rows.Add(work->answer.rows);
    bulk().ReplyWith(id, more.status(), *work->out, [&](wire::Payload payload) {
      work->answer.payload = std::move(payload);
      return std::move(work->answer);
    });
  });
}

Result<bool> Session::Reads::LookUpSome(LookupWork& work, const Task& task) {
  const ScopedSpan span("lookup");
  if (work.table == nullptr) {
    if (work.answer.rows * RowFetcher::kBytesPerId > kUnpaidBytes) {
      QUARRY_TRY(work.scratch,
                 budget().Reserve(work.answer.rows * RowFetcher::kBytesPerId, "sorting the ids of a lookup"));
    }
    if (work.view == nullptr) {
      QUARRY_TRY(work.view, core_.tables.Newest());
    }
    QUARRY_TRY(const std::vector<NodeId> ids, bulk().CopyOf(work.request.ids));
    QUARRY_TRY(work.table, work.view->Open(work.request.table));
    QUARRY_TRY(work.order, RowFetcher::Sort(work.table->record, ids));
  }
  return core_.fetchers[task.thread]->ReadSome(*work.table, work.order, work.out->bytes());
}

void Session::Reads::On(uint64_t id, const wire::Sample& request) {
  using Sampled = std::shared_ptr<BlockSampler::Sampled>;
  const auto sample = [this, request](const Task&) -> Result<Sampled> {
    const ScopedSpan span("sample");
    QUARRY_TRY(BlockSampler::Sampled sampled, core_.blocks.Sample(request, budget()));
    return std::make_shared<BlockSampler::Sampled>(std::move(sampled));
  };
  Work<Sampled>(core_.readers, id, sample, [this, id](const Result<Sampled>& sampled) {
    if (!sampled.ok()) return Reply(id, sampled.status());
    const Result<uint64_t> bytes = wire::BatchBytes(WireShapeOf((*sampled)->block.view()));
    if (!bytes.ok()) return Reply(id, bytes.status());
    bulk().MakeRoom(id, *bytes, [this, id, sampled = *sampled](const std::shared_ptr<Bulk::Answer>& answer) {
      Work<bool>(
          core_.readers, id,
          [sampled, answer](const Task&) -> Result<bool> {
            QUARRY_RETURN_IF_ERROR(WriteBlock(sampled->block.view(), *answer));
            return true;
          },
          [this, id, answer](const Result<bool>& done) {
            bulk().ReplyWith(id, done.status(), *answer,
                             [](wire::Payload payload) { return wire::Sampled{std::move(payload)}; });
          });
    });
  });
}

// A message's bytes lie anywhere, a batch at a multiple of 64.
Status Session::Reads::WriteBlock(const BatchView& block, Bulk::Answer& answer) {
  if (answer.place != nullptr) return CopyBatch(block, answer.bytes(), 1);
  struct alignas(wire::kBatchAlignment) Line {
    std::byte bytes[wire::kBatchAlignment];
  };
  std::vector<Line> aligned(answer.message.size() / sizeof(Line));
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(aligned));
  QUARRY_RETURN_IF_ERROR(CopyBatch(block, bytes, 1));
  std::ranges::copy(bytes, answer.message.begin());
  return Status::Ok();
}

void Session::Reads::On(uint64_t id, const wire::ReadEmbeddings& request) {
  using Ids = std::shared_ptr<std::vector<uint64_t>>;
  struct Known {
    Ids ids;
    EmbeddingSpec spec;
    MemoryBudget::Reservation reservation;
  };
  using KnownPointer = std::shared_ptr<Known>;
  const auto prepare = [this, request](const Task&) -> Result<KnownPointer> {
    auto known = std::make_shared<Known>();
    const uint64_t count = CountOf(request.ids);
    if (count * sizeof(uint64_t) > kUnpaidBytes) {
      QUARRY_TRY(known->reservation, budget().Reserve(count * sizeof(uint64_t), "ids of embedding rows"));
    }
    QUARRY_TRY(known->spec, core_.embeddings.Spec(request.table));
    QUARRY_TRY(std::vector<uint64_t> ids, bulk().CopyOf(request.ids));
    known->ids = std::make_shared<std::vector<uint64_t>>(std::move(ids));
    return known;
  };
  Work<KnownPointer>(core_.readers, id, prepare, [this, id, request](const Result<KnownPointer>& prepared) {
    if (!prepared.ok()) return Reply(id, prepared.status());
    const KnownPointer& known = *prepared;
    const wire::RowBlockShape shape = {known->ids->size(), known->spec.dim, known->spec.state_dim()};
    bulk().MakeRoom(id, wire::RowBlockBytes(shape), [=, this](const std::shared_ptr<Bulk::Answer>& answer) {
      Work<bool>(
          core_.readers, id,
          [this, table = request.table, known, shape, answer](const Task&) -> Result<bool> {
            const ScopedSpan span("read embeddings");
            QUARRY_TRY(const auto arrays, wire::OpenRowBlock(answer->bytes(), shape));
            QUARRY_RETURN_IF_ERROR(core_.embeddings.Read(table, *known->ids, arrays));
            return true;
          },
          [this, id, shape, answer](const Result<bool>& done) {
            bulk().ReplyWith(id, done.status(), *answer, [&](wire::Payload payload) {
              return wire::EmbeddingRows{shape.rows, shape.dim, shape.state_dim, std::move(payload)};
            });
          });
    });
  });
}

void Session::Reads::On(uint64_t id, const wire::TakeSnapshot&) {
  if (snapshots_.size() >= wire::kListedMax) {
    return Reply(id, MakeStatus(Code::kOutOfBudget, "this session holds {} snapshots: release some",
                                snapshots_.size()));
  }
  using View = std::shared_ptr<StoredTables::View>;
  const auto take = [this](const Task&) { return core_.tables.Newest(); };
  Work<View>(core_.readers, id, take, [this, id](const Result<View>& view) {
    if (!view.ok()) return Reply(id, view.status());
    if (Find(id) == nullptr) return;
    snapshots_.emplace(++snapshots_made_, *view);
    Reply(id, wire::SnapshotTaken{snapshots_made_, (*view)->snapshot()->timestamp});
  });
}

void Session::Reads::On(uint64_t id, const wire::ReleaseSnapshot& request) {
  if (snapshots_.erase(request.snapshot) > 0) return Reply(id, wire::Done{});
  Reply(id, FindSnapshot(request.snapshot).status());
}

}  // namespace quarry
