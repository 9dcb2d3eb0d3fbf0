// Commits of a graph that grows (support/growing_graph.h), by a client's calls.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "quarry/client/store.h"
#include "support/growing_graph.h"

namespace quarry::testing_util {

// The next commit, in pieces: what goes, the names and rows of what comes, and the edges of each relation.
inline Status CommitServed(client::Store& store, const GrowingGraph& graph,
                           const GrowingGraph::Commit& next) {
  const wire::PutGraph nodes = {.first_node = graph.node_count(),
                                .nodes = next.nodes.size(),
                                .node_type = next.nodes.empty() ? std::string() : graph.TypeName(next.type)};
  QUARRY_TRY(const std::unique_ptr<client::LargePut> put, store.BeginPut(nodes));
  const auto change = [&](uint32_t relation, const std::vector<Edge>& edges,
                          const std::vector<float>* weights, const std::set<NodeId>& gone) {
    wire::PutGraph piece = nodes;
    std::vector<std::byte> block;
    const auto append = [&](const auto& value) {
      const auto bytes = std::as_bytes(std::span(&value, 1));
      block.insert(block.end(), bytes.begin(), bytes.end());
    };
    for (const Edge& edge : edges) append(static_cast<NodeId>(edge.source));
    for (const Edge& edge : edges) append(static_cast<NodeId>(edge.destination));
    if (weights != nullptr) {
      for (const float weight : *weights) append(weight);
    }
    for (const NodeId node : gone) append(node);
    piece.edges = edges.size();
    piece.weighted = weights != nullptr && !weights->empty();
    piece.remove = weights == nullptr;
    piece.removed_nodes = gone.size();
    piece.relation = relation;
    piece.block = std::move(block);
    return put->Change(piece);
  };
  for (uint32_t relation = 0; relation < next.relations.size(); ++relation) {
    const bool first = relation == 0;
    if (!first && next.relations[relation].removed.empty()) continue;
    QUARRY_RETURN_IF_ERROR(
        change(relation, next.relations[relation].removed, nullptr, first ? next.gone : std::set<NodeId>()));
  }
  if (graph.shape().named && !next.nodes.empty()) {
    wire::PutGraph names = nodes;
    for (size_t i = 0; i < next.nodes.size(); ++i)
      names.names.push_back(graph.NameOf(graph.node_count() + i));
    QUARRY_RETURN_IF_ERROR(put->Change(names));
  }
  const WriteBatch rows = graph.RowsOf(next);
  for (const WriteBatch::Entry& entry : rows.entries()) {
    const auto id = std::as_bytes(std::span(&entry.row, 1));
    std::vector<std::byte> block(id.begin(), id.end());
    const std::span<const std::byte> value = rows.value(entry);
    block.insert(block.end(), value.begin(), value.end());
    const wire::PutRows row = {.table = rows.tables()[entry.table],
                               .rows = 1,
                               .row_bytes = static_cast<uint32_t>(value.size()),
                               .block = std::move(block)};
    QUARRY_RETURN_IF_ERROR(put->Add({&row, 1}));
  }
  for (uint32_t relation = 0; relation < next.relations.size(); ++relation) {
    const GrowingGraph::Commit::OfRelation& of = next.relations[relation];
    if (!of.added.empty()) QUARRY_RETURN_IF_ERROR(change(relation, of.added, &of.weights, {}));
  }
  return put->Commit().status();
}

}  // namespace quarry::testing_util
