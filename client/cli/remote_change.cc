#include "remote_change.h"

#include <utility>

#include "opened_store.h"
#include "quarry/database.h"
#include "quarry/storage/growth.h"
#include "quarry/storage/record_names.h"

namespace quarry::cli {
namespace {

// Rows of one table, or of one where they are deleted.
wire::PutRows RowsOf(const WriteBatch& batch, uint32_t table, bool deleted) {
  wire::PutRows rows = {.table = batch.tables()[table]};
  std::vector<std::byte> ids, values;
  for (const WriteBatch::Entry& entry : batch.entries()) {
    if (entry.table != table || (entry.bytes == 0) != deleted) continue;
    const auto id = std::as_bytes(std::span(&entry.row, 1));
    ids.insert(ids.end(), id.begin(), id.end());
    const auto value = batch.value(entry);
    values.insert(values.end(), value.begin(), value.end());
    rows.row_bytes = static_cast<uint32_t>(entry.bytes);
    ++rows.rows;
  }
  ids.insert(ids.end(), values.begin(), values.end());
  rows.block = std::move(ids);
  return rows;
}

// Sources, destinations and weights, one column behind the other.
std::vector<std::byte> BlockOf(std::span<const Edge> edges, std::span<const float> weights) {
  std::vector<uint32_t> ids;
  ids.reserve(2 * edges.size());
  for (const Edge& edge : edges) ids.push_back(static_cast<uint32_t>(edge.source));
  for (const Edge& edge : edges) ids.push_back(static_cast<uint32_t>(edge.destination));
  const auto id_bytes = std::as_bytes(std::span(ids)), weight_bytes = std::as_bytes(weights);
  std::vector<std::byte> block(id_bytes.begin(), id_bytes.end());
  block.insert(block.end(), weight_bytes.begin(), weight_bytes.end());
  return block;
}

class RemoteChange final : public GraphChange {
 public:
  RemoteChange(Manifest manifest, GraphChangeOptions options, wire::PutGraph graph,
               std::unique_ptr<client::LargePut> put)
      : manifest_(std::move(manifest)),
        options_(std::move(options)),
        graph_(std::move(graph)),
        put_(std::move(put)) {}

  Status Add(std::span<const Edge> edges, std::span<const float> weights, uint32_t relation) override {
    return Send(edges, weights, relation, /*remove=*/false);
  }
  Status Remove(std::span<const Edge> edges, uint32_t relation) override {
    return Send(edges, {}, relation, /*remove=*/true);
  }
  Status RemoveNodes(std::span<const NodeId> nodes) override {
    wire::PutGraph some = graph_;
    some.removed_nodes = nodes.size();
    const auto bytes = std::as_bytes(nodes);
    some.block = std::vector<std::byte>(bytes.begin(), bytes.end());
    return put_->Change(some);
  }
  Status Put(const WriteBatch& rows) override { return put_->Add(TablesOf(rows)); }
  Status Name(std::span<const std::string> names) override {
    wire::PutGraph named = graph_;
    named.names.assign(names.begin(), names.end());
    return put_->Change(named);
  }
  Result<GraphChangeReport> Commit() override {
    QUARRY_RETURN_IF_ERROR(put_->Commit().status());
    return put_->changed();
  }
  const Manifest& manifest() const override { return manifest_; }

 protected:
  const TopologyRecord& topology() const override { return *manifest_.FindTopology(options_.topology); }
  const GraphChangeOptions& options() const override { return options_; }

 private:
  Status Send(std::span<const Edge> edges, std::span<const float> weights, uint32_t relation, bool remove) {
    QUARRY_RETURN_IF_ERROR(CheckEdges(edges, relation));
    wire::PutGraph some = graph_;
    some.edges = edges.size();
    some.weighted = !weights.empty();
    some.remove = remove;
    some.relation = relation;
    some.block = BlockOf(edges, weights);
    return put_->Change(some);
  }

  const Manifest manifest_;  // with the nodes that are added
  const GraphChangeOptions options_;
  const wire::PutGraph graph_;  // topology and nodes
  const std::unique_ptr<client::LargePut> put_;
};

}  // namespace

std::vector<wire::PutRows> TablesOf(const WriteBatch& batch) {
  std::vector<wire::PutRows> tables;
  for (uint32_t table = 0; table < batch.tables().size(); ++table) {
    for (const bool deleted : {false, true}) {
      wire::PutRows rows = RowsOf(batch, table, deleted);
      if (rows.rows > 0) tables.push_back(std::move(rows));
    }
  }
  return tables;
}

Result<std::unique_ptr<GraphChange>> OpenChange(client::Store& store, const std::string& address,
                                                const GraphChangeOptions& options) {
  if (Database* const database = store.database()) {
    return GraphChange::Create(database->store(), database->budget(), options);
  }
  QUARRY_TRY(Manifest manifest, ManifestOf(store, address));
  wire::PutGraph graph = {.topology = options.topology,
                          .first_node = manifest.node_count,
                          .nodes = options.nodes,
                          .node_type = options.node_type};
  if (manifest.FindTopology(options.topology) == nullptr) {
    QUARRY_TRY(const std::string folder, FolderOf(store));
    return MakeStatus(Code::kNotFound, "{}: {}", folder,
                      ThereIsNo("topology", options.topology, "topologies", manifest.topologies));
  }
  if (options.nodes > 0) {
    QUARRY_TRY(const uint32_t node_type, TypeOfAdded(manifest, options.node_type, address));
    AddNodes(options.nodes, node_type, manifest);
  }
  QUARRY_TRY(std::unique_ptr<client::LargePut> put, store.BeginPut(graph));
  return std::unique_ptr<GraphChange>(
      std::make_unique<RemoteChange>(std::move(manifest), options, std::move(graph), std::move(put)));
}

}  // namespace quarry::cli
