#include "quarry/storage/growth.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "quarry/storage/node_properties.h"
#include "quarry/storage/topology_run.h"

namespace quarry {

void AddNodes(uint64_t count, Manifest& manifest) {
  manifest.nodes_before = manifest.node_count;
  manifest.node_count += count;
  for (TableRecord& table : manifest.tables) {
    if (!IsByNode(table)) continue;
    table.row_count += count;
    table.added_rows += count;
  }
  for (TopologyRecord& topology : manifest.topologies) {
    topology.node_count += count;
    topology.added_nodes += count;
  }
}

Status AddTo(Manifest& manifest, const Store::GraphCommit& commit, const std::string& path) {
  if (commit.node_count > 0 && manifest.node_count != commit.first_node) {
    return MakeStatus(Code::kBusy, "{}: there are {} nodes by now, not {}: nodes came meanwhile, do it again",
                      path, manifest.node_count, commit.first_node);
  }
  if (commit.node_count > 0) AddNodes(commit.node_count, manifest);
  manifest.class_count = std::max(manifest.class_count, commit.class_count);
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

// A commit of nodes that the manifest names may be one moment away from being visible. Files do not have its nodes yet:
// compactions go by snapshots.
void DropNewer(const Manifest& manifest, Snapshot& snapshot) {
  for (TopologyRecord& topology : snapshot.topologies) DropNewerRuns(snapshot.timestamp, topology);
  if (manifest.grown <= snapshot.timestamp) return;
  const uint64_t newer = manifest.node_count - manifest.nodes_before;
  snapshot.node_count = manifest.nodes_before;
  for (TableRecord& table : snapshot.tables) {
    if (!IsByNode(table)) continue;
    assert(table.added_rows >= newer);
    table.row_count -= newer;
    table.added_rows -= newer;
  }
  for (TopologyRecord& topology : snapshot.topologies) {
    assert(topology.added_nodes >= newer);
    topology.node_count -= newer;
    topology.added_nodes -= newer;
  }
}

}  // namespace quarry
