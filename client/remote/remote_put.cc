#include "remote_put.h"

#include <algorithm>
#include <optional>
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
constexpr uint64_t kNamesBytesMax = 64 << 10;  // of one request
constexpr uint64_t kEntryBytes = 64;
constexpr double kForgetSeconds = 10;            // for the server to delete rows
constexpr std::chrono::milliseconds kPause(50);  // before a put is begun anew

uint64_t CostOf(uint64_t rows, uint64_t bytes) { return kCopies * bytes + kEntryBytes * rows; }
// The part of the session's memory that puts may take: beside it, there are regions, and answers.
uint64_t CostMax(const Session& session) { return session.budget_bytes() / 2; }

const std::vector<std::byte>& BlockOf(const wire::PutRows& rows) {
  return std::get<std::vector<std::byte>>(rows.block);
}

const std::vector<std::byte>& BlockOf(const wire::PutGraph& graph) {
  return std::get<std::vector<std::byte>>(graph.block);
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

Status CheckChange(const Session& session, const wire::PutGraph& graph) {
  if (!session.has_put_graph()) {
    return MakeStatus(Code::kUnsupported,
                      "{}: the server is of a Quarry that changes no graph: stop it, and change the database "
                      "in its folder",
                      session.path());
  }
  if (graph.removed_nodes > 0 && !session.has_node_removal()) {
    return MakeStatus(Code::kUnsupported,
                      "{}: the server is of a Quarry that removes no nodes: stop it, and change the database "
                      "in its folder",
                      session.path());
  }
  if (graph.relation > 0 && !session.has_relations()) {
    return MakeStatus(
        Code::kUnsupported,
        "{}: the server is of a Quarry that changes no edges of several relations: stop it, and "
        "change the database in its folder",
        session.path());
  }
  if (!graph.node_type.empty() && !session.has_typed_nodes()) {
    return MakeStatus(Code::kUnsupported,
                      "{}: the server is of a Quarry that adds no nodes of types: stop it, and change the "
                      "database in its folder",
                      session.path());
  }
  if (!std::holds_alternative<std::vector<std::byte>>(graph.block)) return NotInMemory("edges");
  const bool fits = graph.edges <= UINT32_MAX && graph.removed_nodes <= UINT32_MAX;
  const uint64_t bytes =
      fits ? graph.edges * graph.edge_bytes() + graph.removed_nodes * sizeof(NodeId) : UINT64_MAX;
  if (BlockOf(graph).size() == bytes) return Status();
  return MakeStatus(Code::kInvalidArgument, "edges and removed nodes: {} bytes instead of {}",
                    BlockOf(graph).size(), bytes);
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
  uint64_t bytes = put.graph ? BlockOf(*put.graph).size() : 0;
  for (const wire::PutRows& rows : tables) bytes += BlockOf(rows).size();
  QUARRY_TRY(Upload upload, Upload::Make(session, bytes, tables.size() + (put.graph ? 1 : 0), deadline));
  if (put.graph) {
    const std::vector<std::byte> edges = std::move(std::get<std::vector<std::byte>>(put.graph->block));
    put.graph->block = upload.Add(std::span<const std::byte>(edges));
  }
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
  // `graph`: of a put that changes it, its topology and nodes; the rest of it is not looked at.
  Pieces(const Link& link, std::shared_ptr<Session> session, uint64_t number,
         const std::optional<wire::PutGraph>& graph)
      : link_(link), session_(std::move(session)), put_({.number = number}) {
    if (graph) graph_ = graph->Nodes();
  }
  // Waits: whoever is next shall not be told that this one is under way.
  ~Pieces() {
    if (put_.piece == 0 || ended_ || session_->lost()) return;
    (void)session_->Call(wire::ForgetPut{put_.number}, DeadlineIn(kForgetSeconds));
  }
  Pieces(const Pieces&) = delete;
  Pieces& operator=(const Pieces&) = delete;

  Session& session() { return *session_; }
  bool changes_graph() const { return graph_.has_value(); }

  Status Add(std::span<const wire::PutRows> tables) {
    if (!session_->has_put_pieces()) {
      return MakeStatus(Code::kUnsupported,
                        "{}: the server is of a Quarry that takes no put in pieces: put fewer rows at a time",
                        session_->path());
    }
    if (tables.empty() && graph_) return Status();
    if (FitsOne(*session_, tables)) return AddOne(tables);
    for (const wire::PutRows& rows : tables) {
      const uint64_t row_bytes = kIdBytes + rows.row_bytes;
      const uint64_t some = CountFor(row_bytes);
      for (uint64_t first = 0; first < rows.rows; first += some) {
        const wire::PutRows part = PartOf(rows, first, std::min(some, rows.rows - first));
        QUARRY_RETURN_IF_ERROR(AddOne({&part, 1}));
      }
    }
    return Status();
  }

  // Names, removed nodes and edges, in as many pieces as they take.
  Status Change(const wire::PutGraph& graph) {
    QUARRY_RETURN_IF_ERROR(CheckChange(*session_, graph));
    wire::PutGraph part = graph.Nodes();
    uint64_t name_bytes = 0;
    for (const std::string& name : graph.names) {
      part.names.push_back(name);
      name_bytes += name.size() + sizeof(uint64_t);
      if (name_bytes < kNamesBytesMax) continue;
      QUARRY_RETURN_IF_ERROR(AddOne({}, &part));
      part.names.clear();
      name_bytes = 0;
    }
    if (!part.names.empty()) QUARRY_RETURN_IF_ERROR(AddOne({}, &part));
    part.names.clear();
    QUARRY_RETURN_IF_ERROR(RemoveNodes(graph, part));
    part.weighted = graph.weighted;
    part.remove = graph.remove;
    part.relation = graph.relation;
    const uint64_t some = CountFor(graph.edge_bytes());
    for (uint64_t first = 0; first < graph.edges; first += some) {
      part.edges = std::min(some, graph.edges - first);
      std::vector<std::byte> block;
      for (uint64_t column = 0; column < graph.edge_bytes() / sizeof(uint32_t); ++column) {
        const auto values =
            std::span(BlockOf(graph))
                .subspan((column * graph.edges + first) * sizeof(uint32_t), part.edges * sizeof(uint32_t));
        block.insert(block.end(), values.begin(), values.end());
      }
      part.block = std::move(block);
      QUARRY_RETURN_IF_ERROR(AddOne({}, &part));
    }
    return Status();
  }

  Status RemoveNodes(const wire::PutGraph& graph, wire::PutGraph part) {
    const auto nodes = std::span(BlockOf(graph)).subspan(graph.edges * graph.edge_bytes());
    const uint64_t some = CountFor(sizeof(NodeId));
    for (uint64_t first = 0; first < graph.removed_nodes; first += some) {
      part.removed_nodes = std::min(some, graph.removed_nodes - first);
      const auto bytes = nodes.subspan(first * sizeof(NodeId), part.removed_nodes * sizeof(NodeId));
      part.block = std::vector<std::byte>(bytes.begin(), bytes.end());
      QUARRY_RETURN_IF_ERROR(AddOne({}, &part));
    }
    return Status();
  }

  // The request that commits all pieces that were added.
  wire::Put Last() {
    ended_ = true;
    wire::Put last = put_;
    ++last.piece;
    last.last = true;
    if (last.piece == 1) last.graph = graph_;
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

  // How many of so many bytes each one request may have.
  uint64_t CountFor(uint64_t bytes) const {
    return std::max<uint64_t>(
        1, std::min({uint64_t{session_->limits().ids_max}, CostMax(*session_) / CostOf(1, bytes),
                     (Upload::BytesMax(*session_) - wire::kRangeAlignment) / bytes}));
  }

  Status AddOne(std::span<const wire::PutRows> tables, const wire::PutGraph* graph = nullptr) {
    ++put_.piece;
    wire::Put put = put_;
    if (graph != nullptr) put.graph = *graph;
    if (graph == nullptr && put.piece == 1) put.graph = graph_;
    QUARRY_TRY(wire::Response response, Send(*session_, std::move(put), tables, link_.NewDeadline()));
    return Expect<wire::Done>(response, session_->path()).status();
  }

  const Link& link_;
  const std::shared_ptr<Session> session_;
  std::optional<wire::PutGraph> graph_;
  wire::Put put_;  // without its tables: the piece that was sent last
  bool ended_ = false;
};

// What a put has committed: of rows alone, its timestamp.
Result<wire::GraphChanged> CommittedOf(wire::Response& response, bool changes_graph,
                                       const std::string& path) {
  if (changes_graph) return Expect<wire::GraphChanged>(response, path);
  QUARRY_TRY(const wire::Written written, Expect<wire::Written>(response, path));
  return wire::GraphChanged{.timestamp = written.timestamp};
}

Result<wire::GraphChanged> Commit(Session& session, const wire::Put& last, bool changes_graph,
                                  Deadline deadline) {
  QUARRY_TRY(Connection::Answer answer, session.Call(last, deadline));
  return CommittedOf(answer.response, changes_graph, session.path());
}

class RemoteLargePut final : public LargePut {
 public:
  RemoteLargePut(std::shared_ptr<Link> link, std::shared_ptr<Session> session, uint64_t number,
                 const std::optional<wire::PutGraph>& graph)
      : link_(std::move(link)), pieces_(*link_, std::move(session), number, graph), first_(graph) {}

  Status Add(std::span<const wire::PutRows> tables) override {
    return Try([&] {
      QUARRY_RETURN_IF_ERROR(CheckRows(tables));
      return pieces_.Add(tables);
    });
  }
  Status Change(const wire::PutGraph& graph) override {
    return Try([&]() -> Status {
      if (pieces_.changes_graph()) return pieces_.Change(graph);
      return Status(Code::kUsage, "a piece changes the graph, and the first one does not: begin with it");
    });
  }
  const wire::GraphChanged& changed() const override { return changed_; }

  // The server remembers a commit whose answer was lost with the connection. Where it does not, there was
  // none: pieces go with their session.
  Result<uint64_t> Commit() override {
    QUARRY_RETURN_IF_ERROR(Try([] { return Status(); }));
    Session& first = pieces_.session();
    const wire::Put last = pieces_.Last();
    const bool graph = pieces_.changes_graph();
    const Deadline deadline = link_->NewDeadline();
    using Committed = Result<wire::GraphChanged>;
    Committed written = client::Commit(first, last, graph, deadline);
    if (!written.ok() && Link::WentAway(first, written.status(), deadline)) {
      written = link_->Run(deadline, [&](const std::shared_ptr<Session>& session) -> Committed {
        if (session->server_id() != first.server_id()) return Unknown();
        Committed again = client::Commit(*session, last, graph, deadline);
        if (again.status().code() == Code::kUsage) return Lost();
        return again;
      });
    }
    fault_ = written.ok() ? Status(Code::kUsage, "the rows have been committed") : written.status();
    QUARRY_RETURN_IF_ERROR(written.status());
    changed_ = *written;
    return changed_.timestamp;
  }

 private:
  // What BeginPut was given goes first.
  template <typename Work>
  Status Try(const Work& work) {
    if (fault_.ok() && first_) {
      const std::optional<wire::PutGraph> first = std::exchange(first_, std::nullopt);
      fault_ = pieces_.Change(*first);
    }
    if (fault_.ok()) fault_ = work();
    if (!fault_.ok() && fault_.code() == Code::kIoError && pieces_.session().lost()) fault_ = Lost();
    return fault_;
  }
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
  std::optional<wire::PutGraph> first_;  // until it was sent
  wire::GraphChanged changed_;
  Status fault_;  // given for all that follows
};

// `last`: the request that commits, once it is sent.
Result<wire::GraphChanged> PutInPieces(const Link& link, const std::shared_ptr<Session>& session,
                                       const wire::Put& request, uint64_t number,
                                       std::optional<wire::Put>& last) {
  QUARRY_RETURN_IF_ERROR(CheckRows(request.tables));
  Pieces pieces(link, session, number, request.graph);
  if (request.graph) QUARRY_RETURN_IF_ERROR(pieces.Change(*request.graph));
  QUARRY_RETURN_IF_ERROR(pieces.Add(request.tables));
  last = pieces.Last();
  return Commit(*session, *last, request.graph.has_value(), link.NewDeadline());
}

// In a session that takes the place of a lost one, a commit whose answer was lost is asked for again, which the server
// remembers. Else from the first piece; the server may still be about to forget those of the other.
Result<wire::GraphChanged> PutAll(Link& link, const wire::Put& request, uint64_t number) {
  QUARRY_RETURN_IF_ERROR(CheckInMemory(request.tables));
  const Deadline deadline = link.NewDeadline();
  bool again = false;
  std::optional<wire::Put> last;
  using Committed = Result<wire::GraphChanged>;
  return link.Run(deadline, [&](const std::shared_ptr<Session>& session) -> Committed {
    const bool one = FitsOne(*session, request.tables) || !session->has_put_pieces();
    if (one && !request.graph) {
      const wire::Put put = {.number = number, .sync = request.sync};
      QUARRY_TRY(wire::Response response, Send(*session, put, request.tables, deadline));
      return CommittedOf(response, /*changes_graph=*/false, session->path());
    }
    if (last && last->piece > 1) {
      Committed remembered = Commit(*session, *last, request.graph.has_value(), deadline);
      if (remembered.status().code() != Code::kUsage) return remembered;
    }
    Committed written = PutInPieces(link, session, request, number, last);
    while (again && written.status().code() == Code::kBusy && !HasPassed(deadline)) {
      std::this_thread::sleep_for(kPause);
      written = PutInPieces(link, session, request, number, last);
    }
    again = true;
    return written;
  });
}

}  // namespace

Result<uint64_t> RemotePut(Link& link, const wire::Put& request, uint64_t number) {
  QUARRY_TRY(const wire::GraphChanged committed, PutAll(link, request, number));
  return committed.timestamp;
}

Result<wire::GraphChanged> RemoteChange(Link& link, const wire::Put& request, uint64_t number) {
  return PutAll(link, request, number);
}

Result<std::unique_ptr<LargePut>> BeginRemotePut(std::shared_ptr<Link> link, uint64_t number,
                                                 const std::optional<wire::PutGraph>& graph) {
  QUARRY_TRY(std::shared_ptr<Session> session, link->Current(link->NewDeadline()));
  return std::unique_ptr<LargePut>(
      std::make_unique<RemoteLargePut>(std::move(link), std::move(session), number, graph));
}

}  // namespace quarry::client
