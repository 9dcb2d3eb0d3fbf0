// LoadLinkData: edges with their relations, out of topologies.
#include <algorithm>
#include <cstring>
#include <utility>

#include "link_memory.h"
#include "quarry/base/random.h"
#include "quarry/format/topology.h"
#include "quarry/storage/data_file.h"

namespace quarry {
namespace {

constexpr uint64_t kHeldOutStream = 4;  // apart from other streams of the seed

// Relation ids as the file has them, beside the indices of CSC; none where there is one relation.
class RelationIds {
 public:
  static Result<RelationIds> Load(Store& store, const TopologyRecord& record) {
    RelationIds ids;
    if (record.relation_count <= 1) return ids;
    ids.width_ = RelationIdBytes(record.relation_count);
    ids.bytes_.resize(record.edge_count * ids.width_);
    QUARRY_TRY(const DataFile data, OpenDataFile(store.backend(), store.path() + "/" + record.file,
                                                 {.kind = FileKind::kTopology,
                                                  .database_id = store.manifest().database_id,
                                                  .generation = record.generation,
                                                  .file_bytes = record.file_bytes}));
    const std::string_view name = SectionsOf(Adjacency::kCsc).relations;
    QUARRY_TRY(const Section section, data.Find(name, ids.bytes_.size()));
    QUARRY_TRY(const std::vector<uint32_t> checksums, LoadChecksums(store.backend(), data, section));
    QUARRY_RETURN_IF_ERROR(LoadPages(store.backend(), data, section, checksums, ids.bytes_));
    for (uint64_t edge = 0; edge < record.edge_count; edge++) {
      if (ids[edge] < record.relation_count) continue;
      return MakeStatus(Code::kCorruption, "{}: {}[{}] = {}, and there are {} relations", data.file.path(),
                        name, edge, ids[edge], record.relation_count);
    }
    return ids;
  }

  uint32_t operator[](uint64_t edge) const {
    uint32_t relation = 0;
    if (width_ > 0) std::memcpy(&relation, bytes_.data() + edge * width_, width_);
    return relation;
  }

 private:
  uint64_t width_ = 0;
  std::vector<std::byte> bytes_;
};

Result<std::vector<Triple>> ReadTriples(Store& store, MemoryBudget& budget, const TopologyRecord& record) {
  QUARRY_TRY(const MemoryBudget::Reservation reserved,
             budget.Reserve(TopologyReadBytes(record), "reading a topology"));
  QUARRY_TRY(const std::unique_ptr<Topology> topology, store.OpenTopology(record.name));
  QUARRY_RETURN_IF_ERROR(topology->LoadIndices(store.backend(), Adjacency::kCsc));
  QUARRY_TRY(const RelationIds relations, RelationIds::Load(store, record));
  const std::span<const uint64_t> indptr = topology->indptr(Adjacency::kCsc);
  const std::span<const NodeId> sources = topology->indices(Adjacency::kCsc);
  std::vector<Triple> triples;
  triples.reserve(record.edge_count);
  for (NodeId destination = 0; destination < record.node_count; destination++) {
    for (uint64_t edge = indptr[destination]; edge < indptr[destination + 1]; edge++) {
      triples.push_back({sources[edge], relations[edge], destination});
    }
  }
  return triples;
}

// A topology of its own, or a share of the training edges: one of the two.
Status CheckHeldOut(const Store& store, std::string_view name, double share) {
  if (!(share >= 0 && share < 1)) {
    return MakeStatus(Code::kUsage, "--{}-share is {}, but must be from 0 to below 1", name, share);
  }
  const bool has_topology = store.manifest().FindTopology(name) != nullptr;
  if (!has_topology && share == 0) {
    return MakeStatus(
        Code::kInvalidArgument,
        "{}: the database has no edges \"{}\" to rank; import a folder of triples that has them, "
        "or hold some of the edges out with --{}-share 5%",
        store.path(), name, name);
  }
  if (has_topology && share > 0) {
    return MakeStatus(Code::kInvalidArgument,
                      "{}: the database has edges \"{}\" of its own: leave out --{}-share", store.path(),
                      name, name);
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

}  // namespace

Result<LinkData> LoadLinkData(Store& store, MemoryBudget& budget, const HeldOutShares& shares) {
  QUARRY_RETURN_IF_ERROR(CheckHeldOut(store, "valid", shares.valid));
  QUARRY_RETURN_IF_ERROR(CheckHeldOut(store, "test", shares.test));
  if (shares.valid + shares.test >= 1) {
    return MakeStatus(Code::kUsage, "--valid-share {} and --test-share {} leave no edge to train on",
                      shares.valid, shares.test);
  }
  const Manifest& manifest = store.manifest();
  LinkData data;
  data.held_out = shares;
  data.node_count = manifest.node_count;
  const std::pair<const TopologyRecord*, std::vector<Triple>*> parts[] = {
      {manifest.FindTopology("graph"), &data.train},
      {manifest.FindTopology("valid"), &data.valid},
      {manifest.FindTopology("test"), &data.test}};
  uint64_t edge_count = 0;
  for (const auto& [record, edges] : parts) edge_count += record == nullptr ? 0 : record->edge_count;
  QUARRY_TRY(data.reserved, budget.Reserve(edge_count * sizeof(Triple), "the edges"));
  for (const auto& [record, edges] : parts) {
    if (record == nullptr) continue;
    QUARRY_TRY(*edges, ReadTriples(store, budget, *record));
    data.relation_count = std::max(data.relation_count, record->relation_count);
  }
  if (shares.valid + shares.test > 0) QUARRY_RETURN_IF_ERROR(HoldOut(shares, budget, data));
  if (data.train.empty()) {
    return MakeStatus(Code::kInvalidArgument, "{}: the database has no edges to train on", store.path());
  }
  return data;
}

}  // namespace quarry
