#include "embedded_put.h"

#include <utility>
#include <vector>

#include "quarry/format/wire.h"
#include "quarry/service/piece_put.h"
#include "quarry/service/put_rows.h"
#include "request_errors.h"

namespace quarry::client {
namespace {

struct PaidBatch {
  MemoryBudget::Reservation reservation;
  WriteBatch rows;
};

Result<PaidBatch> BatchOf(Database& database, const Manifest& manifest, const wire::Put& request) {
  uint64_t bytes = 0;
  for (const wire::PutRows& rows : request.tables) {
    const auto* block = std::get_if<std::vector<std::byte>>(&rows.block);
    if (block == nullptr) return NotInMemory("rows");
    bytes += block->size();
  }
  QUARRY_RETURN_IF_ERROR(wire::CheckRequest(request, kAnyNumber));
  PaidBatch batch;
  QUARRY_TRY(batch.reservation, database.budget().Reserve(3 * bytes, "the rows of a put"));
  for (const wire::PutRows& rows : request.tables) {
    const std::span<const std::byte> block = std::get<std::vector<std::byte>>(rows.block);
    QUARRY_RETURN_IF_ERROR(AddPutRows(manifest, rows, block, batch.rows));
  }
  return batch;
}

class EmbeddedLargePut final : public LargePut {
 public:
  EmbeddedLargePut(Database& database, std::optional<wire::PutGraph> graph)
      : database_(database), graph_(std::move(graph)) {}

  Status Add(std::span<const wire::PutRows> tables) override {
    return Try([&] { return DoAdd(tables); });
  }
  Status Change(const wire::PutGraph& graph) override {
    return Try([&] { return DoChange(graph); });
  }
  Result<uint64_t> Commit() override {
    QUARRY_RETURN_IF_ERROR(Try([] { return Status(); }));
    const Result<wire::GraphChanged> committed = put_->Commit();
    put_.reset();  // others may begin
    fault_ = committed.ok() ? Status(Code::kUsage, "the rows have been committed") : committed.status();
    QUARRY_RETURN_IF_ERROR(committed.status());
    changed_ = *committed;
    return changed_.timestamp;
  }
  const wire::GraphChanged& changed() const override { return changed_; }

 private:
  template <typename Work>
  Status Try(const Work& work) {
    if (fault_.ok()) fault_ = Begin();
    if (fault_.ok()) fault_ = work();
    if (!fault_.ok()) put_.reset();
    return fault_;
  }
  Status Begin() {
    if (put_ != nullptr) return Status();
    if (graph_) QUARRY_RETURN_IF_ERROR(CheckGraph(*graph_));
    QUARRY_TRY(put_, PiecePut::Begin(database_.store(), database_.budget(), graph_));
    return graph_ ? DoChange(*graph_) : Status();
  }
  Status DoAdd(std::span<const wire::PutRows> tables) {
    if (tables.empty() && graph_) return Status();
    QUARRY_TRY(const PaidBatch batch,
               BatchOf(database_, put_->manifest(), {.number = 1, .tables = {tables.begin(), tables.end()}}));
    return put_->Add(batch.rows);
  }
  Status DoChange(const wire::PutGraph& graph) {
    QUARRY_RETURN_IF_ERROR(CheckGraph(graph));
    return put_->Change(graph, std::get<std::vector<std::byte>>(graph.block));
  }
  // As a server checks it, without a copy of the edges.
  static Status CheckGraph(const wire::PutGraph& graph) {
    const auto* const block = std::get_if<std::vector<std::byte>>(&graph.block);
    if (block == nullptr) return NotInMemory("edges");
    if (graph.weighted && graph.remove) {
      return Status(Code::kInvalidArgument, "weights of edges that are removed");
    }
    const uint64_t most = block->size();  // of either; more would not fit whatever their bytes are
    if (graph.edges <= most && graph.removed_nodes <= most &&
        graph.edges * graph.edge_bytes() + graph.removed_nodes * sizeof(NodeId) == block->size()) {
      return Status();
    }
    return MakeStatus(Code::kInvalidArgument,
                      "a graph's change: {} bytes for {} edges of {} and {} removed nodes", block->size(),
                      graph.edges, graph.edge_bytes(), graph.removed_nodes);
  }

  Database& database_;
  const std::optional<wire::PutGraph> graph_;
  std::unique_ptr<PiecePut> put_;  // from the first piece on
  wire::GraphChanged changed_;
  Status fault_;  // given for all that follows
};

}  // namespace

Result<uint64_t> EmbeddedPut(Database& database, const wire::Put& request) {
  wire::Put put = request;
  put.number = 1;  // nobody sends it twice
  QUARRY_TRY(const PaidBatch batch, BatchOf(database, *database.manifest(), put));
  return database.store().Write(batch.rows, {.sync = put.sync});
}

std::unique_ptr<LargePut> BeginEmbeddedPut(Database& database, const std::optional<wire::PutGraph>& graph) {
  return std::make_unique<EmbeddedLargePut>(database, graph);
}

Result<wire::GraphChanged> EmbeddedChange(Database& database, const wire::Put& request) {
  EmbeddedLargePut put(database, request.graph);
  QUARRY_RETURN_IF_ERROR(put.Add(request.tables));
  QUARRY_RETURN_IF_ERROR(put.Commit().status());
  return put.changed();
}

}  // namespace quarry::client
