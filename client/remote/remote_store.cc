// The Store of a server (quarry/client/store.h, docs/protocol.md).
#include <sys/random.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <utility>

#include "embedding_rows.h"
#include "link.h"
#include "quarry/client/store.h"
#include "quarry/format/wire.h"
#include "remote_batch.h"
#include "remote_maintenance.h"
#include "remote_put.h"
#include "remote_sql.h"
#include "remote_stream.h"
#include "request_errors.h"
#include "upload.h"

namespace quarry::client {
namespace {

constexpr uint64_t kPieceBytes = 4 << 20;  // piece of a training's state: small beside the region for uploads

class RemoteRows final : public Rows {
 public:
  RemoteRows(uint64_t count, uint32_t dim, ElementType type, Brought brought)
      : count_(count), dim_(dim), type_(type), brought_(std::move(brought)) {}
  uint64_t count() const override { return count_; }
  uint32_t dim() const override { return dim_; }
  ElementType element_type() const override { return type_; }
  std::span<const std::byte> bytes() const override { return brought_.bytes; }

 private:
  const uint64_t count_;
  const uint32_t dim_;
  const ElementType type_;
  const Brought brought_;
};

class RemoteSnapshot final : public Snapshot {
 public:
  RemoteSnapshot(std::shared_ptr<Link> link, const Link::Taken& taken)
      : link_(std::move(link)), taken_(taken) {}
  ~RemoteSnapshot() override { link_->ReleaseSnapshot(taken_.id); }
  uint64_t id() const override { return taken_.id; }
  uint64_t timestamp() const override { return taken_.timestamp; }

 private:
  const std::shared_ptr<Link> link_;
  const Link::Taken taken_;
};

class RemoteStore final : public Store {
 public:
  explicit RemoteStore(std::shared_ptr<Link> link) : link_(std::move(link)) {}

  Result<wire::Description> Describe() override { return Ask<wire::Description>(wire::Describe{}); }
  Result<wire::Counters> Stats() override { return Ask<wire::Counters>(wire::Stats{}); }
  Result<wire::ServerStatus> ServerStatus() override { return Ask<wire::ServerStatus>(wire::GetStatus{}); }
  Status Ping() override { return Ask<wire::Done>(wire::Ping{}).status(); }
  Result<std::unique_ptr<SqlConnection>> Connect(const SqlOptions& options) override {
    return OpenRemoteSql(link_, options);
  }

  Result<std::unique_ptr<Rows>> Lookup(const wire::Lookup& request) override;
  Result<std::unique_ptr<Batch>> Sample(const wire::Sample& request) override;
  Result<std::unique_ptr<Stream>> OpenStream(const wire::OpenStream& request,
                                             const StreamDevice& device) override {
    if (device.ordinal >= 0) {
      return Status(
          Code::kUnsupported,
          "a server's batches lie in memory that it shares: open the database by its path for batches on a "
          "GPU, or copy them there");
    }
    return OpenRemoteStream(link_, request);
  }
  Result<std::unique_ptr<Snapshot>> TakeSnapshot() override {
    QUARRY_TRY(const Link::Taken taken, link_->TakeSnapshot(link_->NewDeadline()));
    return std::make_unique<RemoteSnapshot>(link_, taken);
  }
  Result<uint64_t> Put(const wire::Put& request) override { return RemotePut(*link_, request, ++writes_); }
  Result<std::unique_ptr<LargePut>> BeginPut(const std::optional<wire::PutGraph>& graph) override {
    return BeginRemotePut(link_, ++writes_, graph);
  }
  Result<wire::GraphChanged> ChangeGraph(const wire::Put& request) override {
    return RemoteChange(*link_, request, ++writes_);
  }
  Result<std::unique_ptr<EmbeddingRows>> ReadEmbeddings(std::string_view table,
                                                        std::span<const uint64_t> ids) override;
  Result<wire::EmbeddingsCommitted> CommitEmbeddings(std::span<const Update> updates) override;
  Result<Training> ReadTraining(std::string_view name, bool with_state) override;
  Result<Training> SaveTraining(const TrainingToSave& training) override;
  Result<std::vector<uint32_t>> ReadEdges(std::string_view topology, uint64_t first, uint64_t count,
                                          uint64_t* list) override;
  Result<wire::MaintenanceReport> Maintain(const wire::MaintenanceTask& task,
                                           const ProgressFunction& progress) override {
    return RemoteMaintain(*link_, task, progress);
  }
  Result<std::vector<std::byte>> ReadManifest() override { return ReadRemoteManifest(*link_); }

 private:
  // Asks what only reads, and has an answer that is all in its message.
  template <typename T>
  Result<T> Ask(const wire::Request& request) {
    const Deadline deadline = link_->NewDeadline();
    return link_->Run(deadline, [&](const std::shared_ptr<Session>& session) -> Result<T> {
      QUARRY_TRY(Connection::Answer answer, session->Call(request, deadline));
      return Expect<T>(answer.response, session->path());
    });
  }

  Result<std::unique_ptr<RemoteRows>> LookupOnce(const wire::Lookup& request, std::span<const NodeId> ids,
                                                 Deadline deadline);
  Result<std::unique_ptr<Rows>> LookupInPieces(const wire::Lookup& request, std::span<const NodeId> ids,
                                               size_t piece, Deadline deadline);
  Result<std::unique_ptr<OwnedEmbeddingRows>> ReadOnce(const std::string& table,
                                                       std::span<const uint64_t> ids, Deadline deadline);
  // How many ids of `id_bytes` bytes go into one request.
  Result<size_t> IdsMax(size_t id_bytes, Deadline deadline);

  const std::shared_ptr<Link> link_;
  const std::shared_ptr<BlockMemory> block_memory_ = std::make_shared<BlockMemory>();
  std::atomic<uint64_t> writes_{0};  // numbered from 1, for the server to know one that it gets twice
};

Result<size_t> RemoteStore::IdsMax(size_t id_bytes, Deadline deadline) {
  QUARRY_TRY(const std::shared_ptr<Session> session, link_->Current(deadline));
  const uint64_t in_memory = (Upload::BytesMax(*session) - wire::kRangeAlignment) / id_bytes;
  return std::max<uint64_t>(1, std::min<uint64_t>(session->limits().ids_max, in_memory));
}

Result<std::unique_ptr<Rows>> RemoteStore::Lookup(const wire::Lookup& request) {
  const auto* ids = std::get_if<std::vector<NodeId>>(&request.ids);
  if (ids == nullptr) return NotInMemory("ids");
  const Deadline deadline = link_->NewDeadline();
  QUARRY_TRY(const size_t piece, IdsMax(sizeof(NodeId), deadline));
  if (ids->size() > piece) return LookupInPieces(request, *ids, piece, deadline);
  QUARRY_TRY(std::unique_ptr<RemoteRows> rows, LookupOnce(request, *ids, deadline));
  return std::unique_ptr<Rows>(std::move(rows));
}

Result<std::unique_ptr<RemoteRows>> RemoteStore::LookupOnce(const wire::Lookup& request,
                                                            std::span<const NodeId> ids, Deadline deadline) {
  using Found = std::unique_ptr<RemoteRows>;
  return link_->Run(deadline, [&](const std::shared_ptr<Session>& session) -> Result<Found> {
    QUARRY_TRY(const uint64_t snapshot, link_->SnapshotIn(session, request.snapshot, deadline));
    QUARRY_TRY(Upload upload, Upload::Make(*session, ids.size_bytes(), 1, deadline));
    const wire::Lookup lookup = {.table = request.table, .ids = upload.Add(ids), .snapshot = snapshot};
    QUARRY_TRY(Connection::Answer answer, session->Call(lookup, deadline, upload.holds()));
    QUARRY_TRY(wire::Rows rows, Expect<wire::Rows>(answer.response, session->path()));
    if (rows.rows != ids.size()) {
      return MakeStatus(Code::kCorruption, "{}: the server gave {} rows for {} ids", session->path(),
                        rows.rows, ids.size());
    }
    QUARRY_TRY(Brought brought, session->TakeCopy(std::move(rows.payload), deadline));
    return std::make_unique<RemoteRows>(rows.rows, rows.dim, rows.element_type, std::move(brought));
  });
}

// All pieces as of one snapshot: nobody can tell that there were several.
Result<std::unique_ptr<Rows>> RemoteStore::LookupInPieces(const wire::Lookup& request,
                                                          std::span<const NodeId> ids, size_t piece,
                                                          Deadline deadline) {
  std::unique_ptr<RemoteSnapshot> own;
  wire::Lookup as_of = {.table = request.table, .snapshot = request.snapshot};
  if (as_of.snapshot == 0) {
    QUARRY_TRY(const Link::Taken taken, link_->TakeSnapshot(deadline));
    own = std::make_unique<RemoteSnapshot>(link_, taken);
    as_of.snapshot = taken.id;
  }
  const auto bytes = std::make_shared<std::vector<std::byte>>();
  uint32_t dim = 0;
  ElementType type = ElementType::kFloat32;
  for (size_t i = 0; i < ids.size(); i += piece) {
    const std::span<const NodeId> some = ids.subspan(i, std::min(piece, ids.size() - i));
    QUARRY_TRY(const std::unique_ptr<RemoteRows> rows, LookupOnce(as_of, some, deadline));
    if (i > 0 && (rows->dim() != dim || rows->element_type() != type)) {
      return MakeStatus(Code::kCorruption, "{}: the server gave rows of {} and of {} elements of one table",
                        link_->path(), dim, rows->dim());
    }
    dim = rows->dim();
    type = rows->element_type();
    if (i == 0) bytes->reserve(ids.size() * RowBytes(type, dim));
    bytes->insert(bytes->end(), rows->bytes().begin(), rows->bytes().end());
  }
  return std::unique_ptr<Rows>(
      std::make_unique<RemoteRows>(ids.size(), dim, type, Brought{.bytes = *bytes, .owner = bytes}));
}

Result<std::unique_ptr<Batch>> RemoteStore::Sample(const wire::Sample& request) {
  using Sampled = std::unique_ptr<Batch>;
  const Deadline deadline = link_->NewDeadline();
  return link_->Run(deadline, [&](const std::shared_ptr<Session>& session) -> Result<Sampled> {
    QUARRY_RETURN_IF_ERROR(session->CheckSample(request));
    QUARRY_TRY(Connection::Answer answer, session->Call(request, deadline));
    QUARRY_TRY(wire::Sampled sampled, Expect<wire::Sampled>(answer.response, session->path()));
    QUARRY_TRY(Brought brought, session->TakeCopy(std::move(sampled.payload), deadline));
    QUARRY_TRY(Sampled batch,
               OpenRemoteBatch(std::move(brought), 0, session->path(), block_memory_, nullptr));
    const size_t relations = RelationCount(request.fanouts, request.relation_fanouts);
    QUARRY_RETURN_IF_ERROR(CheckDrawnBy(batch->view(), /*edge_ids=*/false, relations, session->path()));
    return batch;
  });
}

Result<std::unique_ptr<OwnedEmbeddingRows>> RemoteStore::ReadOnce(const std::string& table,
                                                                  std::span<const uint64_t> ids,
                                                                  Deadline deadline) {
  using Read = std::unique_ptr<OwnedEmbeddingRows>;
  return link_->Run(deadline, [&](const std::shared_ptr<Session>& session) -> Result<Read> {
    QUARRY_TRY(Upload upload, Upload::Make(*session, ids.size_bytes(), 1, deadline));
    const wire::ReadEmbeddings request = {.table = table, .ids = upload.Add(ids)};
    QUARRY_TRY(Connection::Answer answer, session->Call(request, deadline, upload.holds()));
    QUARRY_TRY(wire::EmbeddingRows rows, Expect<wire::EmbeddingRows>(answer.response, session->path()));
    if (rows.rows != ids.size()) {
      return MakeStatus(Code::kCorruption, "{}: the server gave {} rows of \"{}\" for {} ids",
                        session->path(), rows.rows, table, ids.size());
    }
    const wire::RowBlockShape shape = {.rows = rows.rows, .dim = rows.dim, .state_dim = rows.state_dim};
    QUARRY_RETURN_IF_ERROR(session->CheckSize(wire::RowBlockBytes(shape)));
    QUARRY_TRY(const Brought brought, session->Take(std::move(rows.payload), {}, false, deadline));
    return std::make_unique<OwnedEmbeddingRows>(shape, session->server_id(), brought.bytes);
  });
}

// Pieces of one table, one behind the other. kCorruption when they are not of one shape, or of one server.
Result<std::unique_ptr<EmbeddingRows>> JoinRows(std::vector<std::unique_ptr<OwnedEmbeddingRows>> pieces,
                                                const std::string& path) {
  if (pieces.size() == 1) return std::unique_ptr<EmbeddingRows>(std::move(pieces.front()));
  wire::RowBlockShape shape = pieces.front()->shape();
  shape.rows = 0;
  for (const auto& piece : pieces) {
    const wire::RowBlockShape part = piece->shape();
    if (part.dim != shape.dim || part.state_dim != shape.state_dim ||
        piece->source() != pieces.front()->source()) {
      return MakeStatus(Code::kIoError, "{}: the embedding table changed while its rows were read", path);
    }
    shape.rows += part.rows;
  }
  auto joined = std::make_unique<OwnedEmbeddingRows>(shape, pieces.front()->source());
  wire::RowBlockArrays<true> to = joined->arrays();
  const auto append = [](auto& out, const auto& from) {
    std::ranges::copy(from, out.begin());
    out = out.subspan(from.size());
  };
  for (const auto& piece : pieces) {
    const wire::RowBlockArrays<true> from = piece->arrays();
    append(to.ids, from.ids);
    append(to.timestamps, from.timestamps);
    append(to.values, from.values);
    append(to.state, from.state);
  }
  return std::unique_ptr<EmbeddingRows>(std::move(joined));
}

Result<std::unique_ptr<EmbeddingRows>> RemoteStore::ReadEmbeddings(std::string_view table,
                                                                   std::span<const uint64_t> ids) {
  const Deadline deadline = link_->NewDeadline();
  QUARRY_TRY(const size_t piece, IdsMax(sizeof(uint64_t), deadline));
  std::vector<std::unique_ptr<OwnedEmbeddingRows>> pieces;
  for (size_t i = 0; i == 0 || i < ids.size(); i += piece) {
    const std::span<const uint64_t> some = ids.subspan(i, std::min(piece, ids.size() - i));
    QUARRY_TRY(std::unique_ptr<OwnedEmbeddingRows> rows, ReadOnce(std::string(table), some, deadline));
    pieces.push_back(std::move(rows));
  }
  return JoinRows(std::move(pieces), link_->path());
}

Result<wire::EmbeddingsCommitted> RemoteStore::CommitEmbeddings(std::span<const Update> updates) {
  std::vector<const OwnedEmbeddingRows*> rows;
  uint64_t bytes = 0;
  for (const Update& update : updates) {
    rows.push_back(dynamic_cast<const OwnedEmbeddingRows*>(update.rows));
    if (rows.back() == nullptr) return ForeignRows(update.table);
    bytes += rows.back()->block().size();
  }
  const uint64_t number = ++writes_;
  const Deadline deadline = link_->NewDeadline();
  return link_->Run(
      deadline, [&](const std::shared_ptr<Session>& session) -> Result<wire::EmbeddingsCommitted> {
        QUARRY_TRY(Upload upload, Upload::Make(*session, bytes, updates.size(), deadline));
        wire::CommitEmbeddings commit = {.number = number};
        for (size_t i = 0; i < updates.size(); ++i) {
          // Never to another server than the one that gave the rows: what was trained since its last
          // checkpoint is gone, and its timestamps are given again.
          if (rows[i]->source() != session->server_id()) {
            return MakeStatus(
                Code::kIoError,
                "{}: the server was started anew since the rows of \"{}\" were read: its tables are as "
                "their last checkpoint left them; read again, and go on from there",
                session->path(), updates[i].table);
          }
          const wire::RowBlockShape shape = rows[i]->shape();
          commit.updates.push_back({.table = updates[i].table,
                                    .rows = shape.rows,
                                    .dim = shape.dim,
                                    .state_dim = shape.state_dim,
                                    .block = upload.Add(rows[i]->block())});
        }
        QUARRY_TRY(Connection::Answer answer, session->Call(commit, deadline, upload.holds()));
        return Expect<wire::EmbeddingsCommitted>(answer.response, session->path());
      });
}

Result<Training> RemoteStore::ReadTraining(std::string_view name, bool with_state) {
  const wire::ReadTraining request = {.name = std::string(name), .with_state = with_state};
  const Deadline deadline = link_->NewDeadline();
  return link_->Run(deadline, [&](const std::shared_ptr<Session>& session) -> Result<Training> {
    QUARRY_RETURN_IF_ERROR(session->CheckTrainings());
    QUARRY_TRY(Connection::Answer answer, session->Call(request, deadline));
    QUARRY_TRY(wire::Training training, Expect<wire::Training>(answer.response, session->path()));
    QUARRY_TRY(std::vector<std::byte> state, session->TakeWhole(std::move(training.state), deadline));
    return Training{.settings = std::move(training.settings),
                    .config = std::move(training.config),
                    .created_utc = std::move(training.created_utc),
                    .timestamp = training.timestamp,
                    .state = std::move(state)};
  });
}

// Piece by piece; in a session that takes the place of a lost one, from the beginning. What is saved twice is
// the same.
Result<Training> RemoteStore::SaveTraining(const TrainingToSave& training) {
  const wire::SaveTraining whole = {.name = training.name,
                                    .settings = training.settings,
                                    .state_bytes = training.state.size(),
                                    .piece = wire::Range{.region = 1, .bytes = training.state.size()},
                                    .config = training.config};
  QUARRY_RETURN_IF_ERROR(wire::CheckRequest(whole));
  const Deadline deadline = link_->NewDeadline();
  return link_->Run(deadline, [&](const std::shared_ptr<Session>& session) -> Result<Training> {
    QUARRY_RETURN_IF_ERROR(session->CheckTrainings());
    // Without shared memory, a piece shares its message with these.
    const uint64_t text_bytes = training.settings.size() + training.config.size();
    const uint64_t room = Upload::BytesMax(*session) - wire::kRangeAlignment;
    const uint64_t piece_max = std::min(kPieceBytes, room > 2 * text_bytes ? room - text_bytes : room);
    wire::SaveTraining save = {.name = training.name,
                               .settings = training.settings,
                               .state_bytes = training.state.size(),
                               .with_embeddings = training.with_embeddings,
                               .config = training.config};
    while (true) {
      const std::span<const std::byte> rest = training.state.subspan(save.offset);
      const std::span<const std::byte> piece = rest.first(std::min<uint64_t>(rest.size(), piece_max));
      QUARRY_TRY(Upload upload, Upload::Make(*session, piece.size(), 1, deadline));
      save.piece = upload.Add(piece);
      QUARRY_TRY(Connection::Answer answer, session->Call(save, deadline, upload.holds()));
      save.offset += piece.size();
      if (save.offset < save.state_bytes) {
        QUARRY_RETURN_IF_ERROR(Expect<wire::Done>(answer.response, session->path()).status());
        continue;
      }
      QUARRY_TRY(wire::Training saved, Expect<wire::Training>(answer.response, session->path()));
      return Training{.settings = std::move(saved.settings),
                      .config = std::move(saved.config),
                      .created_utc = std::move(saved.created_utc),
                      .timestamp = saved.timestamp};
    }
  });
}

// In as many requests as the session's memory takes, each of which names the list of the first: a session that takes the
// place of a lost one opens the list again. Edges that came or went meanwhile make a call begin anew that asked for no list.
Result<std::vector<uint32_t>> RemoteStore::ReadEdges(std::string_view topology, uint64_t first,
                                                     uint64_t count, uint64_t* list) {
  const Deadline deadline = link_->NewDeadline();
  const uint64_t asked = list == nullptr ? 0 : *list;
  wire::ReadEdges request = {.topology = std::string(topology), .list = asked};
  std::vector<uint32_t> edges;
  uint64_t taken = 0;
  while (taken < count) {
    request.first = first + taken;
    const auto ask = [&](const std::shared_ptr<Session>& session) -> Result<uint64_t> {
      QUARRY_RETURN_IF_ERROR(session->CheckTrainings());
      if (list != nullptr) QUARRY_RETURN_IF_ERROR(session->CheckEdgeLists());
      // Half of what the region for answers holds, or less.
      const uint64_t fit = std::max<uint64_t>(1, session->budget_bytes() / 16 / wire::kEdgeBytes);
      const uint64_t some = std::min<uint64_t>({count - taken, session->limits().ids_max, fit});
      request.count = static_cast<uint32_t>(some);
      QUARRY_TRY(Connection::Answer answer, session->Call(request, deadline));
      QUARRY_TRY(wire::Edges given, Expect<wire::Edges>(answer.response, session->path()));
      if (given.edges > some) {
        return MakeStatus(Code::kCorruption, "{}: the server gave {} edges where {} were asked for",
                          session->path(), given.edges, some);
      }
      QUARRY_TRY(const Brought brought, session->Take(std::move(given.payload), {}, false, deadline));
      const size_t before = edges.size();
      edges.resize(before + brought.bytes.size() / sizeof(uint32_t));
      if (!brought.bytes.empty()) std::memcpy(&edges[before], brought.bytes.data(), brought.bytes.size());
      request.list = given.list;
      return given.edges;
    };
    const Result<uint64_t> given = link_->Run(deadline, ask);
    if (given.status().code() == Code::kBusy && asked == 0 && taken > 0) {
      edges.clear();
      taken = 0;
      request.list = 0;
      continue;
    }
    QUARRY_RETURN_IF_ERROR(given.status());
    taken += *given;
    if (*given < request.count) break;
  }
  if (list != nullptr) *list = request.list;
  return edges;
}

Result<std::array<std::byte, 16>> RandomId() {
  std::array<std::byte, 16> id;
  if (getrandom(id.data(), id.size(), 0) == static_cast<ssize_t>(id.size())) return id;
  return MakeStatus(Code::kIoError, "the system gives no random numbers: {}", std::strerror(errno));
}

}  // namespace

Result<std::unique_ptr<Store>> OpenRemote(std::string_view address, const OpenOptions& options) {
  if (!address.starts_with(kServerScheme)) {
    return MakeStatus(Code::kInvalidArgument, "\"{}\": a server's address is unix:PATH", address);
  }
  if (!std::isfinite(options.timeout_seconds) || options.timeout_seconds <= 0) {
    return MakeStatus(Code::kInvalidArgument, "a timeout of {} seconds: it is a positive number",
                      options.timeout_seconds);
  }
  QUARRY_TRY(const ServerPlace place, ParsePlace(address.substr(kServerScheme.size())));
  SessionOptions session = {.place = place,
                            .budget_bytes = options.memory_bytes,
                            .budget_bytes_min = options.memory_bytes_min,
                            .wait_seconds = options.wait_seconds,
                            .inline_only = options.inline_only};
  QUARRY_TRY(session.client_id, RandomId());
  QUARRY_TRY(std::shared_ptr<Link> link, Link::Open(session, options.timeout_seconds));
  return std::unique_ptr<Store>(std::make_unique<RemoteStore>(std::move(link)));
}

}  // namespace quarry::client
