// PendingWrites: what a transaction has written and not committed: rows, and nodes and edges that come and go. Private to this
// room; one thread.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/format/topology_record.h"
#include "quarry/format/types.h"
#include "quarry/storage/store.h"

namespace quarry {
class GraphChange;
}  // namespace quarry

namespace quarry::sql {

class PendingWrites {
 public:
  // What makes edges equal.
  struct EdgeKey {
    uint64_t destination = 0, source = 0;
    uint32_t relation = 0;
    auto operator<=>(const EdgeKey&) const = default;
  };

  explicit PendingWrites(MemoryBudget& budget) : budget_(budget) {}

  // Each of them: kOutOfBudget names the most that one transaction may write.
  // `row` of the table, encoded.
  Status Put(std::string_view table, uint64_t row, std::vector<std::byte> bytes);
  // The next node behind the `node_count` that there are and those that were added before; its id. `type`: where nodes have
  // types, one for all that a transaction adds (kInvalidArgument).
  Result<uint64_t> AddNode(uint64_t node_count, std::optional<std::string> name, const std::string& type);
  // One that is there: its edges go with it, and whatever is put to its rows.
  Status RemoveNode(NodeId node);
  // Without a weight it has 1, where edges have weights.
  Status AddEdge(const Edge& edge, uint32_t relation, std::optional<float> weight);
  // One of the copies of an edge that is there.
  Status RemoveEdge(const EdgeKey& edge);
  // One of the copies of an edge that is there, by its place among them, gets this weight; the last one that is set counts. An
  // edge that the transaction also removes, or a node of which, is gone.
  Status SetWeight(const EdgeKey& edge, uint64_t copy, float weight);

  // What was put there last; empty: nothing. Valid until it is rolled back or committed.
  std::span<const std::byte> Find(std::string_view table, uint64_t row) const;
  uint64_t nodes_added() const { return nodes_added_; }
  const std::string& node_type() const {
    return node_type_;
  }  // of these; empty: none, or nodes have no types
  // How many copies of each edge go.
  const std::map<EdgeKey, uint64_t>& removed() const { return removed_; }
  // Copies of edges that get weights, by their places: entries of the log, of which the last one counts.
  using Weighed = std::map<uint64_t, std::vector<size_t>>;
  const std::map<EdgeKey, Weighed>& weighed() const { return weighed_; }
  bool empty() const { return log_.empty(); }

  // All of it as one commit: what is removed goes before anything comes. kBusy where weights are set, and the last commit of
  // edges is no longer that of `edges_timestamp`. Also after an error nothing is pending any more.
  // REQUIRES: of an edge that gets weights, all copies have one.
  Status Commit(Store& store, uint64_t edges_timestamp);
  void Rollback();

  // Savepoints are numbered from 0, inner ones higher. Several tables may announce the same one.
  void Mark(int savepoint);
  void Release(int savepoint);     // and those within it
  void RollbackTo(int savepoint);  // which stays

 private:
  using Key = std::pair<std::string, uint64_t>;
  struct Row {
    Key key;
    std::vector<std::byte> bytes;
  };
  struct Node {
    std::optional<std::string> name;
  };
  struct RemovedNode {
    NodeId node = 0;
  };
  struct AddedEdge {
    Edge edge;
    uint32_t relation = 0;
    std::optional<float> weight;
  };
  struct RemovedEdge {
    EdgeKey edge;
  };
  struct WeighedEdge {
    EdgeKey edge;
    uint64_t copy = 0;
    float weight = 0;
  };
  using Entry = std::variant<Row, Node, RemovedNode, AddedEdge, RemovedEdge, WeighedEdge>;
  // Edges of one relation that a commit adds.
  struct Additions {
    std::vector<Edge> edges;
    std::vector<float> weights;
    bool weighted = false;

    void Add(const Edge& edge, std::optional<float> weight);
  };

  static uint64_t BytesOf(const Entry& entry);
  Status Append(Entry entry);
  void PopTo(size_t entries);
  void TakeBack(const Entry& entry);
  Status CommitGraph(Store& store, const WriteBatch& rows, uint64_t edges_timestamp);
  Status ChangeEdges(GraphChange& change, const TopologyRecord& graph, std::span<const NodeId> gone) const;
  bool IsRemoved(const EdgeKey& edge, const TopologyRecord& graph, std::span<const NodeId> gone) const;
  Status CheckInserted(const EdgeKey& edge, const TopologyRecord& graph) const;

  MemoryBudget& budget_;
  MemoryBudget::Reservation reservation_;  // for the most, while anything is pending
  std::deque<Entry> log_;
  std::map<Key, std::vector<size_t>> places_;  // in the log, of each row
  std::map<EdgeKey, uint64_t> removed_;
  std::map<EdgeKey, Weighed> weighed_;
  uint64_t first_node_ = 0, nodes_added_ = 0;
  std::string node_type_;
  uint64_t changes_ = 0;  // entries that are of edges, or of nodes that go
  uint64_t bytes_ = 0;
  std::vector<size_t> marks_;  // the log's length at each savepoint
};

}  // namespace quarry::sql
