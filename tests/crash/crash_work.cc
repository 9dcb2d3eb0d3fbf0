#include "crash/crash_work.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "quarry/import/graph_change.h"

namespace quarry::crash {
namespace {

Bytes RandomBytes(Rng& rng, uint64_t bytes) {
  Bytes out(bytes);
  for (std::byte& byte : out) byte = static_cast<std::byte>(rng());
  return out;
}

}  // namespace

std::string Orders::ToText() const {
  return fmt::format("{} {} {} {} {} {} {} {}", seed, round, work, kill_point, passages, operation, tell,
                     folder);
}

Orders Orders::FromText(const std::string& text) {
  Orders orders;
  std::istringstream stream(text);
  stream >> orders.seed >> orders.round >> orders.work >> orders.kill_point >> orders.passages >>
      orders.operation >> orders.tell >> std::ws;
  std::getline(stream, orders.folder);
  return orders;
}

WriterBatch BatchOf(uint64_t seed, uint64_t writer, uint64_t number) {
  Rng rng(MixSeed(seed, writer, number));
  const uint64_t nodes = Graph().nodes;
  const auto signed_row = [&] {
    Bytes row = RandomBytes(rng, FeatureBytes());
    for (size_t i = 3; i < row.size(); i += 4) row[i] &= std::byte{0xbf};  // floats that are finite
    std::memcpy(row.data(), &number, sizeof(number));
    std::memcpy(row.data() + sizeof(number), &writer, sizeof(writer));
    return row;
  };
  WriterBatch batch;
  for (uint64_t count = rng.Below(20); count > 0; --count) {
    const uint64_t row = writer + kWriters * rng.Below(nodes / kWriters);
    batch.rows[row] = rng.Below(8) == 0 ? Bytes() : signed_row();
  }
  batch.rows[writer] = signed_row();
  batch.rows[kSharedRow] = signed_row();
  for (uint64_t count = rng.Below(4); count > 0; --count) {
    const auto node = static_cast<NodeId>(writer + kWriters * rng.Below(nodes / kWriters));
    // Which nodes have labels stays as it is: that is what layouts are made for.
    if (Graph().Label(node) >= 0) batch.labels[node] = static_cast<int64_t>(rng.Below(5));
  }
  return batch;
}

EdgeBatch EdgeBatchOf(uint64_t seed, uint64_t number) {
  Rng rng(MixSeed(seed, kWriters + 10, number));
  EdgeBatch batch;
  const auto edge = [&] { return Edge{rng.Below(Graph().nodes), rng.Below(kCountingNode)}; };
  for (uint64_t count = rng.Below(10); count > 0; --count) batch.removed.push_back(edge());
  // Some that are there: of the batches before this one.
  for (uint64_t back = 1; back < number && back < 4; ++back) {
    Rng before(MixSeed(seed, kWriters + 11, number - back));
    batch.removed.push_back({before.Below(Graph().nodes), before.Below(kCountingNode)});
  }
  Rng own(MixSeed(seed, kWriters + 11, number));
  if (EdgeBatch::IsSmall(number)) {
    batch.removed.clear();
    batch.added = {{own.Below(Graph().nodes), own.Below(kCountingNode)}, {kCountingNode, kCountingNode}};
    return batch;
  }
  batch.added.push_back({own.Below(Graph().nodes), own.Below(kCountingNode)});
  for (uint64_t count = rng.Below(20); count > 0; --count) batch.added.push_back(edge());
  batch.added.push_back({kCountingNode, kCountingNode});
  if (number % 4 == 0) {
    const uint64_t node = Graph().nodes + number / 4 - 1;
    batch.node = static_cast<NodeId>(node);
    batch.added.push_back({rng.Below(Graph().nodes), node});
    batch.added.push_back({node, rng.Below(kCountingNode)});
  }
  if (number % 4 == 2 && number > 4) {
    batch.removed_node = static_cast<NodeId>(Graph().nodes + (number - 2) / 4 - 1);
  }
  return batch;
}

Status CommitEdges(Store& store, MemoryBudget& budget, const EdgeBatch& batch) {
  GraphChangeOptions options = {.memory_bytes = kGraphChangeBytesMin};
  if (batch.node) options.nodes = 1;
  if (batch.node) options.first_node = *batch.node;
  QUARRY_TRY(const std::unique_ptr<GraphChange> change, GraphChange::Create(store, budget, options));
  if (batch.node) {
    WriteBatch rows;
    rows.Put("feature", *batch.node, Graph().Row(*batch.node));
    rows.SetLabel(*batch.node, Graph().Label(*batch.node));
    QUARRY_RETURN_IF_ERROR(change->Put(rows));
  }
  if (batch.removed_node) QUARRY_RETURN_IF_ERROR(change->RemoveNodes({&*batch.removed_node, 1}));
  QUARRY_RETURN_IF_ERROR(change->Add(batch.added));
  QUARRY_RETURN_IF_ERROR(change->Remove(batch.removed));
  return change->Commit().status();
}

EdgeLists::EdgeLists() : lists_(Graph().nodes) {
  for (const Edge& edge : Graph().Edges()) lists_[edge.destination].insert(static_cast<NodeId>(edge.source));
}

void EdgeLists::Take(const EdgeBatch& batch) {
  if (batch.node) lists_.resize(*batch.node + 1);
  if (batch.removed_node) {
    lists_[*batch.removed_node].clear();
    for (auto& list : lists_) list.erase(*batch.removed_node);
  }
  for (const Edge& edge : batch.removed) lists_[edge.destination].erase(static_cast<NodeId>(edge.source));
  for (const Edge& edge : batch.added) lists_[edge.destination].insert(static_cast<NodeId>(edge.source));
}

Result<FoundEdges> ReadEdges(Store& store) {
  QUARRY_TRY(const std::unique_ptr<Topology> topology, store.OpenTopology("graph"));
  QUARRY_RETURN_IF_ERROR(topology->LoadIndices(store.backend(), Adjacency::kCsc));
  const std::span<const uint64_t> indptr = topology->indptr(Adjacency::kCsc);
  const std::span<const NodeId> indices = topology->indices(Adjacency::kCsc);
  FoundEdges found;
  for (uint64_t node = 0; node < topology->node_count(); ++node) {
    const auto list = indices.subspan(indptr[node], indptr[node + 1] - indptr[node]);
    found.lists.emplace_back(list.begin(), list.end());
  }
  const auto counting = [](const auto& list) {
    return static_cast<uint64_t>(std::ranges::count(list, kCountingNode));
  };
  static const uint64_t at_first = counting(EdgeLists().lists()[kCountingNode]);
  found.commits = counting(found.lists[kCountingNode]) - at_first;
  return found;
}

std::pair<uint64_t, uint64_t> AuthorOf(const Bytes& row, const Bytes& unwritten) {
  std::pair<uint64_t, uint64_t> author;
  if (row == unwritten) return author;
  std::memcpy(&author.second, row.data(), sizeof(uint64_t));
  std::memcpy(&author.first, row.data() + sizeof(uint64_t), sizeof(uint64_t));
  return author;
}

Bytes TrainingStateOf(uint64_t seed, int64_t timestamp) {
  Rng rng(MixSeed(seed, static_cast<uint64_t>(timestamp)));
  return RandomBytes(rng, 1 + rng.Below(10'000));
}

LayoutSpec LayoutToBuild() {
  return {.road = {.fanouts = {3, 2}, .batch_size = 32, .cache_bytes = Graph().nodes * 128, .seed = 5}};
}

Assignment PartsToBuild(uint64_t number, uint64_t nodes) {
  Assignment assignment{.parts = static_cast<uint32_t>(2 + number % 3), .part_of = {}};
  Rng rng(number);
  for (uint64_t node = 0; node < nodes; ++node) {
    assignment.part_of.push_back(static_cast<uint32_t>(rng.Below(assignment.parts)));
  }
  return assignment;
}

Result<std::vector<Bytes>> ReadFeatures(Store& store, const std::shared_ptr<const Snapshot>& snapshot) {
  QUARRY_TRY(const std::unique_ptr<FeatureTable> table, store.OpenTable(*snapshot, "feature"));
  QUARRY_TRY(const std::unique_ptr<RowOverlay> overlay, store.OpenOverlay("feature", snapshot));
  const uint64_t row_bytes = FeatureBytes();
  Bytes all(snapshot->node_count * row_bytes);
  QUARRY_RETURN_IF_ERROR(table->ReadRows(store.backend(), 0, snapshot->node_count, all));
  const std::vector<uint64_t> touched = overlay->TouchedRows();
  QUARRY_RETURN_IF_ERROR(overlay->Read(touched, [&](size_t i, std::span<const std::byte> value) {
    std::memcpy(all.data() + touched[i] * row_bytes, value.data(), row_bytes);
  }));
  std::vector<Bytes> rows;
  for (auto row = all.begin(); row != all.end(); row += static_cast<ptrdiff_t>(row_bytes)) {
    rows.emplace_back(row, row + static_cast<ptrdiff_t>(row_bytes));
  }
  return rows;
}

}  // namespace quarry::crash
