// Counts of a graph that nodes are added to: what a commit of nodes changes in the records of tables, topologies and types, and
// what of it a snapshot does not see yet. Private to this room.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/manifest.h"
#include "quarry/storage/store.h"

namespace quarry {

// Adds nodes behind the last one: to every table that has a row for each node, to every topology, and where nodes have types
// to one of them and its table. Files stay as they are. `node_type` is the place of the type; it counts where there are some.
void AddNodes(uint64_t count, uint32_t node_type, Manifest& manifest);

// Puts the run and the nodes into the manifest of the database at `path`; when it is committed, SetTime says under which
// timestamp. kBusy when it does not follow the manifest.
Status AddTo(Manifest& manifest, const Store::GraphCommit& commit, const std::string& path);
void SetTime(Manifest& manifest, const Store::GraphCommit& commit, uint64_t timestamp);

// Changes file and runs of a topology of the database at `path` by `replace`, and says which files it no longer has. kBusy when
// there is none, or `replace` says so.
Status ChangeRuns(Manifest& manifest, std::string_view topology,
                  const std::function<bool(TopologyRecord&)>& replace, const std::string& path,
                  std::vector<std::string>& gone);

// Leaves the snapshot, whose records are those of `manifest`, with what was committed up to its timestamp.
void DropNewer(const Manifest& manifest, Snapshot& snapshot);

}  // namespace quarry
