// GraphChange: nodes and edges that are added to a graph and removed from it, and rows that go with them, as one commit.
//
// Nodes come behind the last one, and are there for the calls that follow: options.nodes says how many, and where nodes have
// types options.node_type of which they are: one for all of a change. Their rows are put as those of any node; where none is,
// features are zeros, the label is -1 and the split none. Where nodes have names, each of them needs one.
//
// Add and Remove edges in any order, then Commit once: what is removed goes first, and then what is added comes. They are
// sorted outside of memory and held against the lists that they change, which are read in order, so that a run
// (TopologyRun) has the positions of what goes and comes.
//
// In a topology that keeps equal edges once, an edge that is there already stays as it is, or gets the new weight; several
// that are added at once are one with the sum of their weights, as in an import. In another one each is one more. A
// removed edge goes with all its parallel copies, and one that is not there is counted. In an undirected topology the
// reverse of each goes and comes, too. Lists stay as an import of all the edges has them. Edges of different relations are
// never equal. Where the graph has types of nodes, an edge of a relation runs from one of its source type to one of its
// destination type; the reverse types that an import made are types as any other.
//
// A node that is removed loses its edges, its label and its split, and its rows read as zeros: no sampler draws it and no
// epoch trains on it. Its id stays that of a node without edges, and no added node gets it; whoever puts rows of it, or adds
// edges to it later, makes it a node again.
//
// Owned and used by one thread; after an error only its destructor may be called, which forgets all of it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "quarry/base/budget.h"
#include "quarry/base/progress.h"
#include "quarry/base/status.h"
#include "quarry/format/node_types.h"
#include "quarry/format/types.h"
#include "quarry/format/wire_writes.h"
#include "quarry/import/dataset.h"
#include "quarry/storage/store.h"

namespace quarry {

// Opens a file of edges (OpenDataset) that has one list of them, with the weights of a file where weights_path names one.
Result<std::unique_ptr<EdgeReader>> OpenEdgeFile(const std::string& path,
                                                 const std::string& weights_path = "");

// The place of the type of nodes that are to be added to the database at `path`; 0 where nodes have no types.
// kInvalidArgument where they have and none is called so, and for a type where they have none.
Result<uint32_t> TypeOfAdded(const Manifest& manifest, std::string_view node_type, const std::string& path);

struct GraphChangeOptions {
  std::string topology = "graph";
  uint64_t nodes = 0;                  // to be added
  std::string node_type;               // theirs, where nodes have types
  std::optional<uint64_t> first_node;  // the id of the first of them that is expected: kBusy for another one
  uint64_t memory_bytes = 256 << 20;   // of the budget, for sorting; at least kGraphChangeBytesMin
  ProgressFunction progress;
};
inline constexpr uint64_t kGraphChangeBytesMin = 8 << 20;

using GraphChangeReport = wire::GraphChanged;

class GraphChange {
 public:
  // kNotFound; errors of TypeOfAdded; kBusy beside another one; kOutOfBudget;
  // kInvalidArgument for more nodes than there can be.
  static Result<std::unique_ptr<GraphChange>> Create(Store& store, MemoryBudget& budget,
                                                     const GraphChangeOptions& options);
  virtual ~GraphChange() = default;
  // `weights` has one for each edge; empty = 1 each, where the topology has weights. kInvalidArgument for a node that is
  // not there or not of the relation's type, for a relation that is not there, and for weights where the topology has none.
  virtual Status Add(std::span<const Edge> edges, std::span<const float> weights = {},
                     uint32_t relation = 0) = 0;
  virtual Status Remove(std::span<const Edge> edges, uint32_t relation = 0) = 0;
  // Nodes that there were before the change; kInvalidArgument for others, and then for edges to be added that lead to them
  // or from them. The same one twice is one. kUsage once edges were added.
  virtual Status RemoveNodes(std::span<const NodeId> nodes) = 0;
  // As Store::Write has them; of two writes to a row the later one counts.
  virtual Status Put(const WriteBatch& rows) = 0;
  // Names of the next of the added nodes. kInvalidArgument for a name that there is, or that comes twice; kUnsupported where
  // nodes have none.
  virtual Status Name(std::span<const std::string> names) = 0;
  // All edges or nodes of a source, all names of a file of text with one on each line; kInvalidArgument names the place.
  // Where nodes have types, a source counts those of each from 0, as imports do: edges are of the relation's two types,
  // nodes of the one with this number.
  Status AddAll(EdgeReader& edges, uint32_t relation = 0);
  Status RemoveAll(EdgeReader& edges, uint32_t relation = 0);
  Status RemoveAllNodes(IntReader& nodes, uint32_t node_type = 0);
  Status NameAll(const std::string& path);
  // Durable when it returns. Nothing is committed where nothing changes: the timestamp is then that of the last
  // commit of edges. Tells the store's RunMerger, for which it waits where there are many runs. kCancelled, kNoSpace, kCorruption; kInvalidArgument when a sum of
  // weights exceeds float32, and when nodes lack names.
  virtual Result<GraphChangeReport> Commit() = 0;

  // The database as it will be: with the nodes that are added.
  virtual const Manifest& manifest() const = 0;
  uint64_t first_node() const { return manifest().node_count - options().nodes; }  // of those that are added
  // The types of all of them.
  const NodeTypes& types() const;

 protected:
  virtual const TopologyRecord& topology() const = 0;  // of manifest()
  virtual const GraphChangeOptions& options() const = 0;
  // kInvalidArgument names the first edge whose node is not in manifest(), or not one of the relation.
  Status CheckEdges(std::span<const Edge> edges, uint32_t relation) const;

 private:
  struct EdgeEnds;
  EdgeEnds EndsOf(uint32_t relation) const;
  Status CheckRelation(uint32_t relation) const;
  template <typename Take>
  Status TakeAll(EdgeReader& edges, uint32_t relation, const Take& take);

  mutable std::optional<NodeTypes> types_;  // once they are asked for
};

}  // namespace quarry
