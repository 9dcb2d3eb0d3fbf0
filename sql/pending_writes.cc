#include "pending_writes.h"

#include <algorithm>

#include "quarry/base/units.h"
#include "quarry/import/graph_change.h"

namespace quarry::sql {
namespace {

constexpr uint64_t kTransactionBytesMax = 64 * kMiB;
constexpr uint64_t kEntryBytes = 256;  // an entry beside its row

}  // namespace

uint64_t PendingWrites::BytesOf(const Entry& entry) {
  const auto* const row = std::get_if<Row>(&entry);
  const auto* const node = std::get_if<Node>(&entry);
  if (row != nullptr) return row->bytes.size() + kEntryBytes;
  return node != nullptr && node->name ? node->name->size() + kEntryBytes : kEntryBytes;
}

Status PendingWrites::Append(Entry entry) {
  if (log_.empty()) {
    // The rows, and the batch that they are committed by.
    QUARRY_TRY(reservation_, budget_.Reserve(2 * kTransactionBytesMax, "a transaction's writes"));
  }
  const uint64_t bytes = BytesOf(entry);
  if (bytes_ + bytes > kTransactionBytesMax) {
    return MakeStatus(Code::kOutOfBudget, "one transaction writes at most {}: commit in between",
                      FormatBytes(kTransactionBytesMax));
  }
  bytes_ += bytes;
  log_.push_back(std::move(entry));
  return Status::Ok();
}

Status PendingWrites::Put(std::string_view table, uint64_t row, std::vector<std::byte> bytes) {
  Key key(table, row);
  QUARRY_RETURN_IF_ERROR(Append(Row{key, std::move(bytes)}));
  places_[std::move(key)].push_back(log_.size() - 1);
  return Status::Ok();
}

Result<uint64_t> PendingWrites::AddNode(uint64_t node_count, std::optional<std::string> name,
                                        const std::string& type) {
  if (nodes_added_ > 0 && type != node_type_) {
    return MakeStatus(
        Code::kInvalidArgument,
        "nodes: this transaction adds nodes of type \"{}\": commit it before those of type \"{}\"",
        node_type_, type);
  }
  QUARRY_RETURN_IF_ERROR(Append(Node{std::move(name)}));
  node_type_ = type;
  first_node_ = node_count;
  return node_count + nodes_added_++;
}

Status PendingWrites::RemoveNode(NodeId node) {
  QUARRY_RETURN_IF_ERROR(Append(RemovedNode{node}));
  ++changes_;
  return Status::Ok();
}

Status PendingWrites::AddEdge(const Edge& edge, uint32_t relation, std::optional<float> weight) {
  QUARRY_RETURN_IF_ERROR(Append(AddedEdge{edge, relation, weight}));
  ++changes_;
  return Status::Ok();
}

Status PendingWrites::RemoveEdge(const EdgeKey& edge) {
  QUARRY_RETURN_IF_ERROR(Append(RemovedEdge{edge}));
  ++changes_;
  ++removed_[edge];
  return Status::Ok();
}

Status PendingWrites::SetWeight(const EdgeKey& edge, uint64_t copy, float weight) {
  QUARRY_RETURN_IF_ERROR(Append(WeighedEdge{edge, copy, weight}));
  ++changes_;
  weighed_[edge][copy].push_back(log_.size() - 1);
  return Status::Ok();
}

std::span<const std::byte> PendingWrites::Find(std::string_view table, uint64_t row) const {
  const auto found = places_.find(Key(table, row));
  if (found == places_.end()) return {};
  return std::get<Row>(log_[found->second.back()]).bytes;
}

Status PendingWrites::Commit(Store& store, uint64_t edges_timestamp) {
  if (log_.empty()) return Status::Ok();
  WriteBatch batch;
  for (const auto& [key, entries] : places_) {
    batch.Put(key.first, key.second, std::get<Row>(log_[entries.back()]).bytes);
  }
  if (nodes_added_ == 0 && changes_ == 0) {
    Rollback();
    return store.Write(batch).status();
  }
  // Changing a graph needs room beside what is pending, which is far from the most as a rule.
  reservation_.Release();
  const auto pending = budget_.Reserve(2 * bytes_, "a transaction's writes");
  const Status done = pending.ok() ? CommitGraph(store, batch, edges_timestamp) : pending.status();
  Rollback();
  return done;
}

Status PendingWrites::CommitGraph(Store& store, const WriteBatch& rows, uint64_t edges_timestamp) {
  std::vector<std::string> names;
  std::vector<NodeId> gone;
  for (const Entry& entry : log_) {
    if (const auto* const node = std::get_if<RemovedNode>(&entry)) gone.push_back(node->node);
    const auto* const node = std::get_if<Node>(&entry);
    if (node != nullptr && node->name) names.push_back(*node->name);
  }
  GraphChangeOptions options = {.nodes = nodes_added_, .memory_bytes = kGraphChangeBytesMin};
  if (nodes_added_ > 0) {
    options.first_node = first_node_;
    options.node_type = node_type_;
  }
  QUARRY_TRY(const std::unique_ptr<GraphChange> change, GraphChange::Create(store, budget_, options));
  QUARRY_RETURN_IF_ERROR(change->Put(rows));
  if (!names.empty()) QUARRY_RETURN_IF_ERROR(change->Name(names));
  QUARRY_RETURN_IF_ERROR(change->RemoveNodes(gone));
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  const TopologyRecord& graph = *manifest->FindTopology(options.topology);
  if (!weighed_.empty() && graph.timestamp() != edges_timestamp) {
    return MakeStatus(Code::kBusy, "{}: edges came or went while the transaction set weights: do it again",
                      store.path());
  }
  QUARRY_RETURN_IF_ERROR(ChangeEdges(*change, graph, gone));
  return change->Commit().status();
}

void PendingWrites::Additions::Add(const Edge& edge, std::optional<float> weight) {
  edges.push_back(edge);
  weights.push_back(weight.value_or(1.0F));
  weighted = weighted || weight.has_value();
}

// By itself, as the reverse of another one, or with a node.
bool PendingWrites::IsRemoved(const EdgeKey& edge, const TopologyRecord& graph,
                              std::span<const NodeId> gone) const {
  const EdgeKey reverse = {.destination = edge.source, .source = edge.destination, .relation = edge.relation};
  const auto is_gone = [&](NodeId node) { return node == edge.source || node == edge.destination; };
  return removed_.contains(edge) || (graph.undirected && removed_.contains(reverse)) ||
         std::ranges::any_of(gone, is_gone);
}

// Two weights of one edge, of which neither is the last.
Status PendingWrites::CheckInserted(const EdgeKey& edge, const TopologyRecord& graph) const {
  if (weighed_.empty() || !graph.keeps_equal_edges_once()) return Status::Ok();
  const EdgeKey reverse = {.destination = edge.source, .source = edge.destination, .relation = edge.relation};
  if (!weighed_.contains(edge) && !(graph.undirected && weighed_.contains(reverse))) return Status::Ok();
  return MakeStatus(
      Code::kUnsupported,
      "edges: the transaction inserts the edge from {} to {} and sets its weight: do one of both",
      edge.source, edge.destination);
}

// Relation by relation.
Status PendingWrites::ChangeEdges(GraphChange& change, const TopologyRecord& graph,
                                  std::span<const NodeId> gone) const {
  std::map<uint32_t, std::vector<Edge>> removed;
  std::map<uint32_t, Additions> added;
  for (const auto& [edge, copies] : removed_) {
    removed[edge.relation].push_back({edge.source, edge.destination});
  }
  for (const auto& [edge, copies] : weighed_) {
    if (IsRemoved(edge, graph, gone)) continue;
    removed[edge.relation].push_back({edge.source, edge.destination});
    for (const auto& [copy, entries] : copies) {
      const float weight = std::get<WeighedEdge>(log_[entries.back()]).weight;
      added[edge.relation].Add({edge.source, edge.destination}, weight);
    }
  }
  for (const Entry& entry : log_) {
    const auto* const one = std::get_if<AddedEdge>(&entry);
    if (one == nullptr) continue;
    const auto [source, destination] = one->edge;
    QUARRY_RETURN_IF_ERROR(
        CheckInserted({.destination = destination, .source = source, .relation = one->relation}, graph));
    added[one->relation].Add(one->edge, one->weight);
  }
  for (const auto& [relation, edges] : removed) QUARRY_RETURN_IF_ERROR(change.Remove(edges, relation));
  for (auto& [relation, of_relation] : added) {
    if (!of_relation.weighted) of_relation.weights.clear();
    QUARRY_RETURN_IF_ERROR(change.Add(of_relation.edges, of_relation.weights, relation));
  }
  return Status::Ok();
}

void PendingWrites::Rollback() {
  PopTo(0);
  marks_.clear();
}

void PendingWrites::Mark(int savepoint) {
  while (marks_.size() <= static_cast<size_t>(savepoint)) marks_.push_back(log_.size());
}

void PendingWrites::Release(int savepoint) {
  marks_.resize(std::min(marks_.size(), static_cast<size_t>(savepoint)));
}

void PendingWrites::RollbackTo(int savepoint) {
  const auto place = static_cast<size_t>(savepoint);
  if (place >= marks_.size()) return;
  marks_.resize(place + 1);
  PopTo(marks_[place]);
}

void PendingWrites::PopTo(size_t entries) {
  for (; log_.size() > entries; log_.pop_back()) TakeBack(log_.back());
  if (log_.empty()) reservation_.Release();
}

void PendingWrites::TakeBack(const Entry& entry) {
  bytes_ -= BytesOf(entry);
  if (const auto* const row = std::get_if<Row>(&entry)) {
    const auto place = places_.find(row->key);
    place->second.pop_back();
    if (place->second.empty()) places_.erase(place);
  } else if (const auto* const removed = std::get_if<RemovedEdge>(&entry)) {
    const auto place = removed_.find(removed->edge);
    if (--place->second == 0) removed_.erase(place);
    --changes_;
  } else if (const auto* const weighed = std::get_if<WeighedEdge>(&entry)) {
    const auto edge = weighed_.find(weighed->edge);
    const auto copy = edge->second.find(weighed->copy);
    copy->second.pop_back();
    if (copy->second.empty()) edge->second.erase(copy);
    if (edge->second.empty()) weighed_.erase(edge);
    --changes_;
  } else if (std::holds_alternative<Node>(entry)) {
    if (--nodes_added_ == 0) node_type_.clear();
  } else {
    --changes_;
  }
}

}  // namespace quarry::sql
