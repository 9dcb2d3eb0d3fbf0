// LoadLinkData: edges with their relations, out of topologies.
#include <algorithm>
#include <memory>
#include <unordered_set>
#include <utility>

#include "quarry/base/random.h"
#include "quarry/io/buffer.h"
#include "quarry/partition/read_bucket.h"
#include "quarry/partition/stored_partitioning.h"
#include "quarry/storage/edges.h"
#include "quarry/trainer/link_train.h"

namespace quarry {
namespace {

constexpr std::string_view kTrainTopology = "graph";

constexpr uint64_t kHeldOutStream = 4;  // apart from other streams of the seed

Result<std::vector<Triple>> ReadTriples(Store& store, MemoryBudget& budget, const TopologyRecord& record) {
  QUARRY_TRY(const std::unique_ptr<EdgeList> edges, EdgeList::Open(store, budget, record.name));
  std::vector<Triple> triples(edges->size());
  edges->Read(0, triples);
  return triples;
}

// What is not of this process may say anything.
Status CheckEdges(const LinkSource& source, const TopologyRecord& record, std::span<const Triple> edges) {
  const auto fits = [&](const Triple& edge) {
    return edge.head < source.manifest.node_count && edge.tail < source.manifest.node_count &&
           edge.relation < record.relation_count;
  };
  const auto bad = std::ranges::find_if_not(edges, fits);
  if (bad == edges.end() && edges.size() == record.edge_count) return Status::Ok();
  if (bad == edges.end()) {
    return MakeStatus(Code::kCorruption, "{}: topology \"{}\" has {} edges, and {} came", source.path,
                      record.name, record.edge_count, edges.size());
  }
  return MakeStatus(Code::kCorruption, "{}: topology \"{}\": edge ({}, {}, {}) of {} nodes and {} relations",
                    source.path, record.name, bad->head, bad->relation, bad->tail, source.manifest.node_count,
                    record.relation_count);
}

// A topology of its own, or a share of the training edges: one of the two.
Status CheckHeldOut(const LinkSource& source, std::string_view name, double share) {
  if (!(share >= 0 && share < 1)) {
    return MakeStatus(Code::kUsage, "--{}-share is {}, but must be from 0 to below 1", name, share);
  }
  const bool has_topology = source.manifest.FindTopology(name) != nullptr;
  if (!has_topology && share == 0) {
    return MakeStatus(
        Code::kInvalidArgument,
        "{}: the database has no edges \"{}\" to rank; import a folder of triples that has them, "
        "or hold some of the edges out with --{}-share 5%",
        source.path, name, name);
  }
  if (has_topology && share > 0) {
    return MakeStatus(Code::kInvalidArgument,
                      "{}: the database has edges \"{}\" of its own: leave out --{}-share", source.path, name,
                      name);
  }
  return Status::Ok();
}

// Moves the shares of the training edges to validation and test.
Status HoldOut(const HeldOutShares& shares, MemoryBudget& budget, LinkData& data) {
  QUARRY_TRY(const MemoryBudget::Reservation reserved,
             budget.Reserve(data.train.size() * sizeof(Triple), "holding edges out"));
  const auto part_of = [&](const Triple& edge) -> std::vector<Triple>& {
    const auto [low, high] = std::minmax(edge.head, edge.tail);
    const double at = Rng(MixSeed(shares.seed, kHeldOutStream, low, high)).Unit();
    if (at < shares.test) return data.test;
    return at < shares.test + shares.valid ? data.valid : data.train;
  };
  const std::vector<Triple> edges = std::exchange(data.train, {});
  uint64_t train_count = 0, valid_count = 0;
  for (const Triple& edge : edges) {
    const std::vector<Triple>& part = part_of(edge);
    train_count += &part == &data.train ? 1 : 0;
    valid_count += &part == &data.valid ? 1 : 0;
  }
  data.train.reserve(train_count);
  if (shares.valid > 0) data.valid.reserve(valid_count);
  if (shares.test > 0) data.test.reserve(edges.size() - train_count - valid_count);
  for (const Triple& edge : edges) part_of(edge).push_back(edge);
  return Status::Ok();
}

// The pairs of node and relation that rankings ask for.
class RankedPairs {
 public:
  explicit RankedPairs(const LinkData& data) {
    for (const auto* const edges : {&data.valid, &data.test}) {
      for (const Triple& edge : *edges) {
        heads_.insert(Key(edge.head, edge.relation));
        tails_.insert(Key(edge.tail, edge.relation));
      }
    }
  }
  bool Has(const Triple& edge) const {
    return heads_.contains(Key(edge.head, edge.relation)) || tails_.contains(Key(edge.tail, edge.relation));
  }
  bool empty() const { return heads_.empty(); }
  // What a set of so many edges takes: a node of each hash table, with its place in the table.
  static uint64_t Bytes(uint64_t edges) { return 2 * edges * (4 * sizeof(uint64_t)); }

 private:
  static uint64_t Key(NodeId node, uint32_t relation) { return uint64_t{node} << 32 | relation; }
  std::unordered_set<uint64_t> heads_, tails_;
};

// Calls edge(triple), in new ids, for all edges of a partitioning; holds a bucket at a time, which the caller has
// reserved.
template <typename Visit>
Status VisitEdges(const StoredPartitioning& partitioning, IoBackend& backend, const IoBuffer& pages,
                  const Visit& edge) {
  const PartitionDirectory& directory = partitioning.directory();
  for (uint32_t source = 0; source < directory.parts(); source++) {
    for (uint32_t destination = 0; destination < directory.parts(); destination++) {
      QUARRY_TRY(const EdgeBucket bucket,
                 ReadBucket(partitioning, backend, source, destination, pages.span()));
      const BucketLists& lists = bucket.in;
      const bool typed = lists.shape().relation_bytes > 0;
      const auto heads = static_cast<NodeId>(directory.part_starts[source]);
      const auto tails = static_cast<NodeId>(directory.part_starts[destination]);
      lists.ForEachList([&](uint32_t node, uint32_t first, std::span<const uint32_t> neighbors) {
        for (size_t i = 0; i < neighbors.size(); i++) {
          edge(Triple{heads + neighbors[i], typed ? lists.Relation(first + i) : 0, tails + node});
        }
      });
    }
  }
  return Status::Ok();
}

}  // namespace

Status LeaveEdgesInParts(const StoredPartitioning& partitioning, Store& store, MemoryBudget& budget,
                         LinkData& data) {
  const PartitionDirectory& directory = partitioning.directory();
  data.train = {};
  data.known = {};
  data.relation_count = std::max(data.relation_count, directory.relation_count);
  data.parted_edges = 0;
  for (const uint64_t edges : directory.BucketEdges()) data.parted_edges += edges;
  const uint64_t held_out = data.valid.size() + data.test.size();
  data.reserved.Release();
  QUARRY_TRY(data.reserved, budget.Reserve(held_out * sizeof(Triple), "the held-out edges"));
  if (held_out == 0) return Status::Ok();
  const uint64_t largest = LargestBucketBytes(directory);
  QUARRY_TRY(
      const MemoryBudget::Reservation reading,
      budget.Reserve(RankedPairs::Bytes(held_out) + IoBuffer::MappedBytes(largest), "finding known edges"));
  const RankedPairs ranked(data);
  QUARRY_TRY(const IoBuffer pages, IoBuffer::Allocate(largest));
  uint64_t known = 0;
  QUARRY_RETURN_IF_ERROR(VisitEdges(partitioning, store.backend(), pages,
                                    [&](const Triple& edge) { known += ranked.Has(edge) ? 1 : 0; }));
  data.reserved.Release();
  QUARRY_TRY(data.reserved,
             budget.Reserve((held_out + known) * sizeof(Triple), "the held-out and known edges"));
  data.known.reserve(known);
  return VisitEdges(partitioning, store.backend(), pages, [&](const Triple& edge) {
    if (ranked.Has(edge)) data.known.push_back(edge);
  });
}

Result<LinkData> LoadPartedLinkData(Store& store, const StoredPartitioning& partitioning,
                                    MemoryBudget& budget) {
  const auto read = [&](const TopologyRecord& record) -> Result<std::vector<Triple>> {
    return ReadTriples(store, budget, record);
  };
  const LinkSource source{.path = store.path(), .manifest = *store.manifest(), .read = read};
  LinkData data;
  data.node_count = source.manifest.node_count;
  for (const auto& [name, edges] : {std::pair("valid", &data.valid), std::pair("test", &data.test)}) {
    QUARRY_RETURN_IF_ERROR(CheckHeldOut(source, name, 0));
    const TopologyRecord& record = *source.manifest.FindTopology(name);
    QUARRY_TRY(*edges, read(record));
    QUARRY_RETURN_IF_ERROR(CheckEdges(source, record, *edges));
    data.relation_count = std::max(data.relation_count, record.relation_count);
  }
  QUARRY_RETURN_IF_ERROR(RenumberNodes(partitioning, budget, data));
  QUARRY_RETURN_IF_ERROR(LeaveEdgesInParts(partitioning, store, budget, data));
  if (data.parted_edges > 0) return data;
  return MakeStatus(Code::kInvalidArgument, "{}: the database has no edges to train on", source.path);
}

Result<LinkData> LoadLinkData(Store& store, MemoryBudget& budget, const HeldOutShares& shares) {
  const auto read = [&](const TopologyRecord& record) { return ReadTriples(store, budget, record); };
  return LoadLinkData({.path = store.path(), .manifest = *store.manifest(), .read = read}, budget, shares);
}

Result<LinkData> LoadLinkData(const LinkSource& source, MemoryBudget& budget, const HeldOutShares& shares) {
  QUARRY_RETURN_IF_ERROR(CheckHeldOut(source, "valid", shares.valid));
  QUARRY_RETURN_IF_ERROR(CheckHeldOut(source, "test", shares.test));
  if (shares.valid + shares.test >= 1) {
    return MakeStatus(Code::kUsage, "--valid-share {} and --test-share {} leave no edge to train on",
                      shares.valid, shares.test);
  }
  const Manifest& manifest = source.manifest;
  LinkData data;
  data.held_out = shares;
  data.node_count = manifest.node_count;
  const std::pair<const TopologyRecord*, std::vector<Triple>*> parts[] = {
      {manifest.FindTopology(kTrainTopology), &data.train},
      {manifest.FindTopology("valid"), &data.valid},
      {manifest.FindTopology("test"), &data.test}};
  uint64_t edge_count = 0;
  for (const auto& [record, edges] : parts) edge_count += record == nullptr ? 0 : record->edge_count;
  QUARRY_TRY(data.reserved, budget.Reserve(edge_count * sizeof(Triple), "the edges"));
  for (const auto& [record, edges] : parts) {
    if (record == nullptr) continue;
    QUARRY_TRY(*edges, source.read(*record));
    QUARRY_RETURN_IF_ERROR(CheckEdges(source, *record, *edges));
    data.relation_count = std::max(data.relation_count, record->relation_count);
  }
  if (shares.valid + shares.test > 0) QUARRY_RETURN_IF_ERROR(HoldOut(shares, budget, data));
  if (data.train.empty()) {
    return MakeStatus(Code::kInvalidArgument, "{}: the database has no edges to train on", source.path);
  }
  return data;
}

Status RenumberNodes(const StoredPartitioning& partitioning, MemoryBudget& budget, LinkData& data) {
  if (data.held_out.valid + data.held_out.test > 0) {
    return Status(Code::kInvalidArgument,
                  "--road partitioned trains on all edges of the partitioning: it cannot hold out a share of "
                  "them; import valid and test edges of their own");
  }
  if (partitioning.record().topology != kTrainTopology) {
    return MakeStatus(Code::kInvalidArgument,
                      "partitioning \"{}\" is of topology \"{}\", and training takes the edges of \"{}\": "
                      "`quarry partition "
                      "build` one of that",
                      partitioning.record().name, partitioning.record().topology, kTrainTopology);
  }
  const uint64_t nodes = partitioning.directory().node_count();
  if (nodes != data.node_count) {
    return MakeStatus(Code::kInvalidArgument, "partitioning \"{}\" has {} nodes, and the database {}",
                      partitioning.record().name, nodes, data.node_count);
  }
  QUARRY_TRY(const MemoryBudget::Reservation reserved,
             budget.Reserve(nodes * sizeof(NodeId), "the new ids of nodes"));
  std::vector<NodeId> new_ids(nodes);
  QUARRY_RETURN_IF_ERROR(partitioning.ReadNewIds(0, new_ids));
  for (std::vector<Triple>* const edges : {&data.train, &data.valid, &data.test}) {
    for (Triple& edge : *edges) {
      edge.head = new_ids[edge.head];
      edge.tail = new_ids[edge.tail];
    }
  }
  return Status::Ok();
}

}  // namespace quarry
