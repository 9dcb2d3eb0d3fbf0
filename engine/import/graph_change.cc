#include "quarry/import/graph_change.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "edge_weights.h"
#include "node_change.h"
#include "node_removal.h"
#include "quarry/base/kill_point.h"
#include "quarry/base/log.h"
#include "quarry/base/trace.h"
#include "quarry/base/units.h"
#include "quarry/import/external_sort.h"
#include "quarry/storage/edge_columns.h"
#include "quarry/storage/growth.h"
#include "quarry/storage/growth_cost.h"
#include "quarry/storage/record_names.h"
#include "quarry/storage/run_merger.h"
#include "quarry/storage/times.h"
#include "quarry/storage/topology_compaction.h"
#include "quarry/storage/topology_run.h"
#include "side_change.h"
#include "text_lines.h"

namespace quarry {
namespace {

constexpr uint64_t kReadersBytes = 3 * EdgeColumnReader::kMemoryBytes;  // of each column
constexpr std::string_view kTypedTopology = "graph";  // whose relations are the manifest's types of edges

Status NoSuchNode(std::string_view place, uint64_t node, uint64_t node_count) {
  return MakeStatus(Code::kInvalidArgument, "{}: node id {} is out of range; there are {} nodes, 0 to {}",
                    place, node, node_count, node_count - 1);
}

Status NoWeights(const TopologyRecord& topology) {
  return MakeStatus(
      Code::kInvalidArgument,
      "the edges have weights, and those of topology \"{}\" have none: leave them out, or import the "
      "graph with weights",
      topology.name);
}

class GraphChangeImpl final : public GraphChange {
 public:
  GraphChangeImpl(Store& store, MemoryBudget& budget, const GraphChangeOptions& options,
                  std::shared_ptr<const Manifest> before, Manifest after, uint32_t node_type,
                  std::shared_ptr<const void> right, MemoryBudget::Reservation reservation)
      : store_(store),
        budget_(budget),
        options_(options),
        before_(std::move(before)),
        record_(*before_->FindTopology(options.topology)),
        after_(std::move(after)),
        right_(std::move(right)),
        reservation_(std::move(reservation)),
        nodes_(store, *before_, after_, node_type) {
    // Scratch files lie beside those that are written, and have no name once they are open.
    const ExternalSortOptions sort = {
        .memory_bytes = RoundDown(options.memory_bytes / (record_.has_csr ? 2 : 1), kPageBytes),
        .scratch_directory = store.path() + "/topology"};
    sorters_[0] = std::make_unique<ExternalSorter<uint128_t>>(store.backend(), sort);
    if (record_.has_csr) sorters_[1] = std::make_unique<ExternalSorter<uint128_t>>(store.backend(), sort);
  }

  Status Add(std::span<const Edge> edges, std::span<const float> weights, uint32_t relation) override {
    if (!weights.empty() && !record_.weighted) return NoWeights(record_);
    QUARRY_RETURN_IF_ERROR(CheckEdges(edges, relation));
    return Take(edges, weights, {}, relation, /*add=*/true);
  }
  Status Remove(std::span<const Edge> edges, uint32_t relation) override {
    QUARRY_RETURN_IF_ERROR(CheckEdges(edges, relation));
    return Take(edges, {}, {}, relation, /*add=*/false);
  }
  Status RemoveNodes(std::span<const NodeId> nodes) override;
  Status Put(const WriteBatch& rows) override { return nodes_.Put(rows); }
  Status Name(std::span<const std::string> names) override { return nodes_.Name(names); }
  Result<GraphChangeReport> Commit() override;
  const Manifest& manifest() const override { return after_; }

 protected:
  const TopologyRecord& topology() const override { return *after_.FindTopology(record_.name); }
  const GraphChangeOptions& options() const override { return options_; }

 private:
  // Edges that were checked: each of its own relation, or all of one.
  Status Take(std::span<const Edge> edges, std::span<const float> weights,
              std::span<const uint32_t> relations, uint32_t relation, bool add);
  Status AddKey(ChangeKey key);
  Status ClearNodes();
  Result<std::unique_ptr<Topology>> OpenGrown();
  Result<std::optional<TopologyRun>> MakeRun();
  Result<TopologyRun> WriteRun(const Topology& topology, const TopologyRun& run);
  uint64_t ChecksumBytesOfColumns() const;

  Store& store_;
  MemoryBudget& budget_;
  const GraphChangeOptions options_;
  const std::shared_ptr<const Manifest> before_;
  const TopologyRecord record_;  // that the change is about: nobody else commits edges while right_ lives
  const Manifest after_;
  const std::shared_ptr<const void> right_;
  MemoryBudget::Reservation reservation_;
  NodeChange nodes_;
  std::unique_ptr<ExternalSorter<uint128_t>> sorters_[2];  // by Adjacency
  std::vector<uint128_t> keys_[2];
  uint64_t key_count_ = 0;  // of one side
  bool edges_added_ = false;
  RowBitmap cleared_;                // nodes that are removed
  std::vector<int64_t> type_edges_;  // by type of edges, how many more there are; empty: there are no types
  GraphChangeReport report_;
};

Status GraphChangeImpl::Take(std::span<const Edge> edges, std::span<const float> weights,
                             std::span<const uint32_t> relations, uint32_t relation, bool add) {
  edges_added_ = edges_added_ || (add && !edges.empty());
  for (size_t i = 0; i < edges.size(); ++i) {
    const auto is_gone = [&](uint64_t node) { return cleared_.contains(static_cast<uint32_t>(node)); };
    if (add && (is_gone(edges[i].source) || is_gone(edges[i].destination))) {
      return MakeStatus(Code::kInvalidArgument, "edge {}: {} to {}, and the change removes node {}", i,
                        edges[i].source, edges[i].destination,
                        is_gone(edges[i].source) ? edges[i].source : edges[i].destination);
    }
    ChangeKey key{.list = static_cast<NodeId>(edges[i].destination),
                  .neighbor = static_cast<NodeId>(edges[i].source),
                  .relation = relations.empty() ? relation : relations[i],
                  .add = add};
    if (add && record_.weighted) key.weight = weights.empty() ? 1.0f : weights[i];
    QUARRY_RETURN_IF_ERROR(AddKey(key));
    if (!record_.undirected) continue;
    std::swap(key.list, key.neighbor);
    key.reverse = true;
    QUARRY_RETURN_IF_ERROR(AddKey(key));
  }
  for (const Adjacency side : {Adjacency::kCsc, Adjacency::kCsr}) {
    std::vector<uint128_t>& keys = keys_[static_cast<int>(side)];
    if (!keys.empty()) QUARRY_RETURN_IF_ERROR(sorters_[static_cast<int>(side)]->Add(keys));
    keys.clear();
  }
  return Status::Ok();
}

Status GraphChangeImpl::AddKey(ChangeKey key) {
  ++key_count_;
  for (const Adjacency side : {Adjacency::kCsc, Adjacency::kCsr}) {
    const int index = static_cast<int>(side);
    if (sorters_[index] == nullptr) continue;
    keys_[index].push_back(key.Packed(record_.by_relation));
    std::swap(key.list, key.neighbor);
    if (keys_[index].size() < kChangeBatch) continue;
    QUARRY_RETURN_IF_ERROR(sorters_[index]->Add(keys_[index]));
    keys_[index].clear();
  }
  return Status::Ok();
}

Status GraphChangeImpl::RemoveNodes(std::span<const NodeId> nodes) {
  if (edges_added_ && !nodes.empty()) {
    return Status(Code::kUsage, "nodes are removed before edges are added: begin the change with them");
  }
  for (const NodeId node : nodes) {
    if (node >= before_->node_count) return NoSuchNode("nodes to be removed", node, before_->node_count);
  }
  cleared_.addMany(nodes.size(), nodes.data());
  return Status::Ok();
}

// Everything that goes with the removed nodes becomes part of the change.
Status GraphChangeImpl::ClearNodes() {
  report_.nodes_removed = cleared_.cardinality();
  if (cleared_.isEmpty()) return Status::Ok();
  QUARRY_RETURN_IF_ERROR(
      ClearRowsOf(*before_, cleared_, [this](const WriteBatch& rows) { return nodes_.Put(rows); }));
  QUARRY_TRY(const MemoryBudget::Reservation reservation,
             budget_.Reserve(Topology::ResidentBytes(topology()) + kReadersBytes, "edges of removed nodes"));
  QUARRY_TRY(const std::unique_ptr<Topology> opened, OpenGrown());
  return EdgesOf(store_.backend(), budget_, *opened, record_, cleared_, options_.progress,
                 [this](std::span<const Edge> edges, std::span<const uint32_t> relations) {
                   return Take(edges, {}, relations, 0, /*add=*/false);
                 });
}

// The same lists, and empty ones of nodes that are added.
Result<std::unique_ptr<Topology>> GraphChangeImpl::OpenGrown() {
  QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, store_.TakeSnapshot());
  Snapshot grown = *snapshot;
  const auto record = std::ranges::find(grown.topologies, record_.name, &TopologyRecord::name);
  record->node_count += options_.nodes;
  record->added_nodes += options_.nodes;
  return store_.OpenTopology(grown, record_.name);
}

Result<TopologyRun> GraphChangeImpl::WriteRun(const Topology& opened, const TopologyRun& run) {
  QUARRY_TRY(const auto writer, TopologyRunWriter::Create(store_.backend(), store_.path(), topology(), run));
  for (const Adjacency side : {Adjacency::kCsc, Adjacency::kCsr}) {
    std::unique_ptr<ExternalSorter<uint128_t>>& sorter = sorters_[static_cast<int>(side)];
    if (sorter == nullptr) continue;
    QUARRY_TRY(const ListEdits edits, EditsOf(store_.backend(), record_, opened, side, *sorter,
                                              options_.progress, report_, type_edges_));
    sorter.reset();
    report_.added = edits.places.size();
    report_.removed = edits.removed.size();
    QUARRY_RETURN_IF_ERROR(writer->Add(side, edits));
    KillPoint("edges: a side of the run written");
  }
  return writer->Finish(before_->database_id);
}

// What the checksums of weights and relations take, which are read beside neighbors.
uint64_t GraphChangeImpl::ChecksumBytesOfColumns() const {
  const uint64_t bytes = (record_.weighted ? sizeof(float) : 0) +
                         (record_.relation_count > 1 ? RelationIdBytes(record_.relation_count) : 0);
  return CeilDiv(bytes * record_.base_edge_count(), kPageBytes) * sizeof(uint32_t);
}

// Nothing where no list changes.
Result<std::optional<TopologyRun>> GraphChangeImpl::MakeRun() {
  if (key_count_ == 0) return std::optional<TopologyRun>();
  TopologyRun run = NextRunOf(record_);
  run.timestamp = record_.timestamp();
  QUARRY_RETURN_IF_ERROR(ClearTopologyFile(store_, run.file));
  QUARRY_TRY(const MemoryBudget::Reservation reservation,
             budget_.Reserve(Topology::ResidentBytes(topology()) + kReadersBytes +
                                 2 * ListEdits::MemoryBytes(key_count_, key_count_, key_count_,
                                                            record_.relation_count > 1) +
                                 ChecksumBytesOfColumns(),
                             "changing edges"));
  QUARRY_TRY(const std::unique_ptr<Topology> opened, OpenGrown());
  if (record_.name == kTypedTopology) type_edges_.assign(before_->edge_types.size(), 0);
  const Result<TopologyRun> written = WriteRun(*opened, run);
  if (written.ok() && written->lists > 0) return std::optional(*written);
  Discard(store_.backend(), store_.path() + "/" + run.file);
  QUARRY_RETURN_IF_ERROR(written.status());
  return std::optional<TopologyRun>();
}

Result<GraphChangeReport> GraphChangeImpl::Commit() {
  const ScopedSpan span("commit a graph");
  Store::GraphCommit commit = {.topology = record_.name};
  QUARRY_RETURN_IF_ERROR(ClearNodes());
  QUARRY_TRY(commit.run, MakeRun());
  commit.type_edges = type_edges_;
  const auto give_up = [&](const Status& why) {
    if (commit.run) Discard(store_.backend(), store_.path() + "/" + commit.run->file);
    return why;
  };
  if (const Status complete = nodes_.Complete(commit); !complete.ok()) return give_up(complete);
  report_.timestamp = record_.timestamp();
  report_.first_node = commit.first_node;
  report_.nodes_added = commit.node_count;
  if (commit.run || commit.node_count > 0 || commit.rows != nullptr) {
    QUARRY_TRY(report_.timestamp, store_.CommitGraph(commit));
    const uint64_t changed = commit.run ? commit.run->added + commit.run->removed : 0;
    store_.growth().Add(record_.name, {.commits = 1,
                                       .changed_edges = changed,
                                       .nodes_removed = report_.nodes_removed,
                                       .given_bytes = kEdgeGivenBytes * changed,
                                       .commit_bytes = commit.run ? commit.run->file_bytes : 0});
    KillPoint("graph: committed, not merged");
    if (commit.run) store_.merger().Committed(record_.name, budget_);
  }
  const std::shared_ptr<const Manifest> manifest = store_.manifest();
  const TopologyRecord& now = *manifest->FindTopology(record_.name);
  report_.node_count = manifest->node_count;
  report_.edge_count = now.edge_count;
  report_.runs = now.runs.size();
  return report_;
}

}  // namespace

Result<std::unique_ptr<EdgeReader>> OpenEdgeFile(const std::string& path, const std::string& weights_path) {
  QUARRY_TRY(Dataset source, OpenDataset(path, {}));
  if (source.edges.size() != 1) {
    return MakeStatus(Code::kInvalidArgument, "{}: {} lists of edges, where one is expected", path,
                      source.edges.size());
  }
  return WithWeights(std::move(source.edges[0].reader), weights_path);
}

Result<uint32_t> TypeOfAdded(const Manifest& manifest, std::string_view node_type, const std::string& path) {
  const std::vector<NodeTypeRecord>& types = manifest.node_types;
  if (types.empty() && node_type.empty()) return uint32_t{0};
  const auto found = std::ranges::find(types, node_type, &NodeTypeRecord::name);
  if (found != types.end()) return static_cast<uint32_t>(found - types.begin());
  if (types.empty()) {
    return MakeStatus(Code::kInvalidArgument, "{}: its nodes have no types: add them without type \"{}\"",
                      path, node_type);
  }
  return MakeStatus(
      Code::kInvalidArgument, "{}: its nodes have types, and {}: say of which the added ones are", path,
      node_type.empty() ? "none is given" : ThereIsNo("type of nodes", node_type, "types", types));
}

const NodeTypes& GraphChange::types() const {
  if (!types_) types_.emplace(manifest().node_types);
  return *types_;
}

// The types that edges of a relation lead from and to; none where all nodes may be ends.
struct GraphChange::EdgeEnds {
  std::optional<uint32_t> source, destination;
};

GraphChange::EdgeEnds GraphChange::EndsOf(uint32_t relation) const {
  if (topology().name != kTypedTopology || relation >= manifest().edge_types.size()) return {};
  const EdgeTypeRecord& edges = manifest().edge_types[relation];
  return {.source = edges.source, .destination = edges.destination};
}

template <typename Take>
Status GraphChange::TakeAll(EdgeReader& edges, uint32_t relation, const Take& take) {
  QUARRY_RETURN_IF_ERROR(CheckRelation(relation));
  const EdgeEnds ends = EndsOf(relation);
  const auto count_of = [&](std::optional<uint32_t> type) {
    return type ? types().Count(*type) : manifest().node_count;
  };
  const auto node_of = [&](std::optional<uint32_t> type, uint64_t id) {
    return type ? types().NodeOf(*type, id) : id;
  };
  const uint64_t source_count = count_of(ends.source), destination_count = count_of(ends.destination);
  std::vector<Edge> batch(kChangeBatch);
  uint64_t first = 0;
  while (true) {
    QUARRY_TRY(const size_t n, edges.Read(batch));
    if (n == 0) return Status::Ok();
    for (size_t i = 0; i < n; ++i) {
      Edge& edge = batch[i];
      if (edge.source >= source_count) {
        return NoSuchNode(edges.Position(first + i), edge.source, source_count);
      }
      if (edge.destination >= destination_count) {
        return NoSuchNode(edges.Position(first + i), edge.destination, destination_count);
      }
      edge.source = node_of(ends.source, edge.source);
      edge.destination = node_of(ends.destination, edge.destination);
    }
    QUARRY_RETURN_IF_ERROR(take(std::span<const Edge>(batch).first(n), edges.weights()));
    first += n;
    if (options().progress) {
      QUARRY_RETURN_IF_ERROR(options().progress("reading edges", edges.bytes_read(), edges.bytes_total()));
    }
  }
}

Status GraphChange::CheckRelation(uint32_t relation) const {
  const uint64_t count = topology().relation_count;
  if (relation < count) return Status::Ok();
  return MakeStatus(Code::kInvalidArgument, "relation {}: topology \"{}\" has {}", relation, topology().name,
                    count);
}

Status GraphChange::CheckEdges(std::span<const Edge> edges, uint32_t relation) const {
  QUARRY_RETURN_IF_ERROR(CheckRelation(relation));
  const Manifest& graph = manifest();
  const EdgeEnds ends = EndsOf(relation);
  const auto check = [&](size_t i, std::string_view end, uint64_t node,
                         std::optional<uint32_t> wanted) -> Status {
    if (node >= graph.node_count) return NoSuchNode(fmt::format("edge {}", i), node, graph.node_count);
    if (!wanted) return Status::Ok();
    const uint32_t type = types().TypeOf(node);
    if (type == *wanted) return Status::Ok();
    return MakeStatus(Code::kInvalidArgument, "edge {}: its {} {} is of type \"{}\"; {} leads {} \"{}\"", i,
                      end, node, graph.node_types[type].name,
                      EdgeTypeName(graph.node_types, graph.edge_types[relation]),
                      end == "source" ? "from" : "to", graph.node_types[*wanted].name);
  };
  for (size_t i = 0; i < edges.size(); ++i) {
    QUARRY_RETURN_IF_ERROR(check(i, "source", edges[i].source, ends.source));
    QUARRY_RETURN_IF_ERROR(check(i, "destination", edges[i].destination, ends.destination));
  }
  return Status::Ok();
}

Status GraphChange::AddAll(EdgeReader& edges, uint32_t relation) {
  if (edges.weighted() && !topology().weighted) return NoWeights(topology());
  return TakeAll(edges, relation, [&](std::span<const Edge> batch, std::span<const float> weights) {
    return Add(batch, weights, relation);
  });
}

Status GraphChange::RemoveAll(EdgeReader& edges, uint32_t relation) {
  return TakeAll(edges, relation, [&](std::span<const Edge> batch, std::span<const float>) {
    return Remove(batch, relation);
  });
}

Status GraphChange::RemoveAllNodes(IntReader& nodes, uint32_t node_type) {
  if (node_type >= std::max<size_t>(1, types().size())) {
    return MakeStatus(Code::kInvalidArgument, "type {} of nodes: there are {}", node_type, types().size());
  }
  const bool typed = !types().empty();
  const uint64_t count = typed ? types().Count(node_type) : manifest().node_count;
  std::vector<int64_t> ids(kChangeBatch);
  std::vector<NodeId> batch;
  for (uint64_t first = 0;; first += batch.size()) {
    QUARRY_TRY(const size_t n, nodes.Read(ids));
    if (n == 0) return Status::Ok();
    batch.clear();
    for (size_t i = 0; i < n; ++i) {
      if (ids[i] < 0 || static_cast<uint64_t>(ids[i]) >= count) {
        return MakeStatus(Code::kInvalidArgument,
                          "{}: node id {} is out of range; there are {} nodes, 0 to {}",
                          nodes.Position(first + i), ids[i], count, count - 1);
      }
      const auto id = static_cast<uint64_t>(ids[i]);
      batch.push_back(static_cast<NodeId>(typed ? types().NodeOf(node_type, id) : id));
    }
    QUARRY_RETURN_IF_ERROR(RemoveNodes(batch));
  }
}

Status GraphChange::NameAll(const std::string& path) {
  QUARRY_TRY(const std::unique_ptr<LineReader> lines, LineReader::Open(path));
  std::vector<std::string> batch;
  const auto flush = [&]() -> Status {
    const Status named = Name(batch);
    batch.clear();
    if (named.ok()) return named;
    return MakeStatus(named.code(), "{}: {}", path, named.message());
  };
  for (std::string_view line; lines->Next(&line);) {
    batch.emplace_back(line);
    if (batch.size() == kChangeBatch) QUARRY_RETURN_IF_ERROR(flush());
  }
  QUARRY_RETURN_IF_ERROR(lines->status());
  return flush();
}

Result<std::unique_ptr<GraphChange>> GraphChange::Create(Store& store, MemoryBudget& budget,
                                                         const GraphChangeOptions& options) {
  if (options.memory_bytes < kGraphChangeBytesMin) {
    return MakeStatus(Code::kOutOfBudget, "changing edges needs at least {} for sorting; {} are given",
                      FormatBytes(kGraphChangeBytesMin), FormatBytes(options.memory_bytes));
  }
  std::shared_ptr<const void> right = store.HoldRuns(Store::RunsRight::kMake);
  if (right == nullptr) {
    return MakeStatus(Code::kBusy, "{}: nodes or edges are being added or removed by another: wait for it",
                      store.path());
  }
  QUARRY_RETURN_IF_ERROR(store.PrepareToWrite());
  // What a commit left that failed here or was interrupted goes. Whether one that failed has happened is known from then on:
  // a change of the graph of before would write over its run.
  QUARRY_RETURN_IF_ERROR(store.DropNames());
  std::shared_ptr<const Manifest> before = store.manifest();
  const TopologyRecord* const graph = before->FindTopology(options.topology);
  if (graph == nullptr) return store.OpenTopology(options.topology).status();
  if (Times::Of(*graph, before->node_count).any()) {
    return RefuseTimes(store.path(), *graph, before->node_count);
  }
  uint32_t node_type = 0;
  if (options.nodes > 0) {
    QUARRY_TRY(node_type, TypeOfAdded(*before, options.node_type, store.path()));
  }
  if (const uint64_t relations = graph->relation_count; relations > uint64_t{1} << kChangeRelationBits) {
    return MakeStatus(Code::kUnsupported, "{}: topology \"{}\" has {} relations: more than {} cannot change",
                      store.path(), options.topology, relations, uint64_t{1} << kChangeRelationBits);
  }
  if (options.nodes > 0 && options.first_node.value_or(before->node_count) != before->node_count) {
    return MakeStatus(Code::kBusy, "{}: there are {} nodes, not {}: others have added some; add these behind",
                      store.path(), before->node_count, *options.first_node);
  }
  if (options.nodes > kNodeCountMax - before->node_count) {
    return MakeStatus(Code::kInvalidArgument, "{}: {} nodes and {} more exceed the {} that there can be",
                      store.path(), before->node_count, options.nodes, kNodeCountMax);
  }
  Manifest after = *before;
  if (options.nodes > 0) AddNodes(options.nodes, node_type, after);
  QUARRY_TRY(MemoryBudget::Reservation reservation, budget.Reserve(options.memory_bytes, "sorting edges"));
  return std::unique_ptr<GraphChange>(
      std::make_unique<GraphChangeImpl>(store, budget, options, std::move(before), std::move(after),
                                        node_type, std::move(right), std::move(reservation)));
}

}  // namespace quarry
