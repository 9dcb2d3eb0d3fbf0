#include "quarry/storage/growth.h"

#include <algorithm>
#include <cassert>
#include <functional>
#include <optional>
#include <utility>

#include "quarry/format/node_types.h"
#include "quarry/storage/node_properties.h"
#include "quarry/storage/topology_run.h"

namespace quarry {

namespace {

// How many rows a table has more by so many nodes of all types, or of the one whose table it is.
uint64_t RowsOf(const Manifest& manifest, const TableRecord& table, uint64_t nodes,
                const std::function<uint64_t(uint32_t)>& nodes_of_type) {
  if (!IsByNode(table)) return 0;
  const std::optional<uint32_t> type = FindTypeOfTable(manifest.node_types, table.name);
  return type ? nodes_of_type(*type) : nodes;
}

}  // namespace

void AddNodes(uint64_t count, uint32_t node_type, Manifest& manifest) {
  for (TableRecord& table : manifest.tables) {
    const uint64_t rows =
        RowsOf(manifest, table, count, [&](uint32_t type) { return type == node_type ? count : 0; });
    table.row_count += rows;
    table.added_rows += rows;
  }
  for (TopologyRecord& topology : manifest.topologies) {
    topology.node_count += count;
    topology.added_nodes += count;
  }
  if (!manifest.node_types.empty()) Extend(manifest.node_types[node_type], manifest.node_count, count);
  manifest.nodes_before = manifest.node_count;
  manifest.node_count += count;
}

Status AddTo(Manifest& manifest, const Store::GraphCommit& commit, const std::string& path) {
  if (commit.node_count > 0 && manifest.node_count != commit.first_node) {
    return MakeStatus(Code::kBusy, "{}: there are {} nodes by now, not {}: nodes came meanwhile, do it again",
                      path, manifest.node_count, commit.first_node);
  }
  manifest.class_count = std::max(manifest.class_count, commit.class_count);
  if (commit.node_count > 0) {
    AddNodes(commit.node_count, commit.node_type, manifest);
    if (!manifest.node_types.empty()) {
      uint64_t& classes = manifest.node_types[commit.node_type].class_count;
      classes = std::max(classes, commit.added_class_count);
    }
  }
  if (!commit.run) return Status::Ok();
  const auto topology = std::ranges::find(manifest.topologies, commit.topology, &TopologyRecord::name);
  if (topology == manifest.topologies.end() || topology->timestamp() != commit.run->timestamp) {
    return MakeStatus(Code::kBusy, "{}: other edges of \"{}\" were committed meanwhile: do it again", path,
                      commit.topology);
  }
  for (size_t type = 0; type < std::min(commit.type_edges.size(), manifest.edge_types.size()); ++type) {
    manifest.edge_types[type].edge_count += static_cast<uint64_t>(commit.type_edges[type]);
  }
  topology->edge_count = commit.run->edges_after();
  topology->runs.push_back(*commit.run);
  return Status::Ok();
}

void SetTime(Manifest& manifest, const Store::GraphCommit& commit, uint64_t timestamp) {
  if (commit.node_count > 0) manifest.grown = timestamp;
  if (!commit.run) return;
  const auto topology = std::ranges::find(manifest.topologies, commit.topology, &TopologyRecord::name);
  topology->runs.back().timestamp = timestamp;
}

Status ChangeRuns(Manifest& manifest, std::string_view name,
                  const std::function<bool(TopologyRecord&)>& replace, const std::string& path,
                  std::vector<std::string>& gone) {
  const auto topology = std::ranges::find(manifest.topologies, name, &TopologyRecord::name);
  if (topology != manifest.topologies.end()) gone = FilesOf(*topology);
  if (topology == manifest.topologies.end() || !replace(*topology)) {
    return MakeStatus(Code::kBusy, "{}: topology \"{}\" was changed meanwhile: do it again", path, name);
  }
  for (const std::string& file : FilesOf(*topology)) std::erase(gone, file);
  return Status::Ok();
}

// A commit of nodes that the manifest names may be one moment away from being visible. Files do not have its nodes yet:
// compactions go by snapshots.
void DropNewer(const Manifest& manifest, Snapshot& snapshot) {
  for (TopologyRecord& topology : snapshot.topologies) DropNewerRuns(snapshot.timestamp, topology);
  if (manifest.grown <= snapshot.timestamp) return;
  const uint64_t newer = manifest.node_count - manifest.nodes_before;
  snapshot.node_count = manifest.nodes_before;
  const NodeTypes types(manifest.node_types), older(manifest.node_types, manifest.nodes_before);
  for (TableRecord& table : snapshot.tables) {
    const uint64_t rows =
        RowsOf(manifest, table, newer, [&](uint32_t type) { return types.Count(type) - older.Count(type); });
    assert(table.added_rows >= rows);
    table.row_count -= rows;
    table.added_rows -= rows;
  }
  for (TopologyRecord& topology : snapshot.topologies) {
    assert(topology.added_nodes >= newer);
    topology.node_count -= newer;
    topology.added_nodes -= newer;
  }
}

}  // namespace quarry
