// What the crash test and its child both know: what the child is told, what it tells, and what it writes. All
// that it writes is a function of (seed, who writes, how many times it has), so the parent needs no record of
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/tiny_database.h"
#include "quarry/base/random.h"
#include "quarry/layout/layout.h"
#include "quarry/partition/stored_partitioning.h"
#include "quarry/storage/store.h"
#include "support/growing_graph.h"

namespace quarry::crash {

using Bytes = std::vector<std::byte>;

inline constexpr uint64_t kWriters = 3;
// Writer w has the rows w, w + kWriters, w + 2 * kWriters, ... but for this one, which all of them write.
inline constexpr uint64_t kSharedRow = kWriters;

inline testing_util::TinyGraph Graph() { return {.nodes = 250, .both_directions = true}; }
inline uint64_t FeatureBytes() { return RowBytes(Graph().type, Graph().dim); }

// What a child works at, each kind in threads of its own.
enum Work : uint32_t {
  kPut = 1,
  kCompact = 2,
  kTrain = 4,
  kBuild = 8,
  kCopy = 16,
  kEdges = 32,
  kImport = 64,
  kTypes = 128  // the graph has types (TypesOf); of the others, kCompact and kCopy alone may be with it
};

// What the child is told, in its environment: it is a process of its own, because RocksDB's threads do not
// come along in a fork.
struct Orders {
  uint64_t seed = 0, round = 0;
  uint32_t work = 0;        // of Work
  int64_t kill_point = -1;  // of kKillPoints; -1 = none
  uint64_t passages = 0;    // until it kills
  uint64_t operation = 0;   // that changes files and kills; 0 = none
  int tell = -1;            // where messages go
  std::string folder;

  std::string database() const { return folder + "/db"; }
  std::string copy() const { return folder + "/copy"; }  // a checkpoint of it
  std::string imported() const { return folder + "/imported"; }
  std::string ToText() const;
  static Orders FromText(const std::string& text);
};
inline constexpr const char* kOrdersVariable = "QUARRY_CRASH_ORDERS";

// What was acknowledged to the child, or what it found when it began.
struct Message {
  enum Kind : uint32_t {
    kBatch,
    kTrained,
    kCompacted,
    kBuilt,
    kPartitioned,
    kCopied,
    kEdged,
    kImported
  } kind = kBatch;
  uint32_t writer = 0;
  uint64_t number = 0;  // of the writer's batches; the timestamp that was trained to
};

// The number-th batch of a writer. An empty row: deleted.
struct WriterBatch {
  std::map<uint64_t, Bytes> rows;  // the writer's first row and the shared one always among them
  std::map<NodeId, int64_t> labels;
};
WriterBatch BatchOf(uint64_t seed, uint64_t writer, uint64_t number);

// The number-th commit of edges; what is removed goes first. Each adds one more edge from the last node to itself, whose
// list nothing else changes, so that the graph tells how many there were. Every fourth adds a node, too, with the row and
// the label that Graph() has of its number, and edges from and to it; the second one after it removes that node. The one
// between these two adds one edge besides, so that few batches of a layout draw from lists that it changes.
struct EdgeBatch {
  static bool IsSmall(uint64_t number) { return number % 4 == 1; }
  std::vector<Edge> removed, added;
  std::optional<NodeId> node, removed_node;
};
EdgeBatch EdgeBatchOf(uint64_t seed, uint64_t number);
Status CommitEdges(Store& store, MemoryBudget& budget, const EdgeBatch& batch);
inline constexpr NodeId kCountingNode = 249;

// The in-neighbors of each node after so many commits of edges.
class EdgeLists {
 public:
  EdgeLists();
  void Take(const EdgeBatch& batch);
  const std::vector<std::multiset<NodeId>>& lists() const { return lists_; }

 private:
  std::vector<std::multiset<NodeId>> lists_;
};
// The lists of the newest graph, each ascending, and by the counting node how many commits of edges it has.
struct FoundEdges {
  std::vector<std::vector<NodeId>> lists;
  uint64_t commits = 0;
};
Result<FoundEdges> ReadEdges(Store& store);

// The graph with types that kTypes commits to.
inline testing_util::GrowingGraph TypesOf(uint64_t seed) {
  return testing_util::GrowingGraph(seed, {.named = true, .csr = true});
}

// Which writer wrote a row, and in which of its batches; {0, 0} of a row that nobody wrote.
std::pair<uint64_t, uint64_t> AuthorOf(const Bytes& row, const Bytes& unwritten);

// What a training run keeps beside its tables.
Bytes TrainingStateOf(uint64_t seed, int64_t timestamp);

LayoutSpec LayoutToBuild();
// The number-th partitioning that a child builds.
Assignment PartsToBuild(uint64_t number, uint64_t nodes);

// All rows of the features, as the snapshot has them.
Result<std::vector<Bytes>> ReadFeatures(Store& store, const std::shared_ptr<const Snapshot>& snapshot);

// Works until it is killed.
[[noreturn]] void RunChild(const Orders& orders);

}  // namespace quarry::crash
