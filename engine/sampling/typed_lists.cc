#include "quarry/sampling/typed_lists.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "quarry/base/units.h"
#include "quarry/storage/relation_scan.h"

namespace quarry {
namespace {

constexpr uint64_t kRelationsAtATime = 64 * kKiB;

}  // namespace

uint64_t TypedLists::Bytes(const Manifest& manifest) {
  return TypedLists(manifest, manifest.node_count).end_count_ * sizeof(uint32_t);
}

TypedLists::TypedLists(const Manifest& manifest, uint64_t node_count)
    : nodes_(manifest.node_types, node_count),
      relation_count_(static_cast<uint32_t>(manifest.edge_types.size())) {
  for (const NodeTypeRecord& type : manifest.node_types) types_.push_back({.name = type.name});
  for (uint32_t relation = 0; relation < relation_count_; ++relation) {
    types_[manifest.edge_types[relation].destination].relations.push_back(relation);
  }
  for (uint32_t t = 0; t < types_.size(); ++t) {
    types_[t].ends_at = end_count_;
    const size_t into = types_[t].relations.size();
    end_count_ += nodes_.Count(t) * (into == 0 ? 0 : into - 1);
  }
}

Result<std::unique_ptr<TypedLists>> TypedLists::Load(Store& store, MemoryBudget& budget,
                                                     const Manifest& manifest, const Topology& topology) {
  const TopologyRecord* const graph = manifest.FindTopology("graph");
  if (graph == nullptr || manifest.edge_types.empty() || (graph->relation_count > 1 && !graph->by_relation)) {
    return MakeStatus(Code::kInvalidArgument, "{}: the graph has no types of edges to sample by",
                      store.path());
  }
  if (graph->relation_count > uint32_t{1} << 16) {
    return MakeStatus(Code::kUnsupported, "{}: {} types of edges: samples by type are of 65536 at most",
                      store.path(), graph->relation_count);
  }
  QUARRY_TRY(RelationScan scan, RelationScan::Open(store.backend(), budget, topology));
  QUARRY_TRY(const auto reservation,
             budget.Reserve(kRelationsAtATime * sizeof(uint32_t), "reading the types of edges"));
  std::vector<uint32_t> ids;
  uint64_t left = topology.edge_count();
  return Make(manifest, topology, [&]() -> Result<std::span<const uint32_t>> {
    ids.resize(std::min(left, kRelationsAtATime));
    left -= ids.size();
    QUARRY_RETURN_IF_ERROR(scan.Read(ids));
    return std::span<const uint32_t>(ids);
  });
}

Result<std::unique_ptr<TypedLists>> TypedLists::FromMemory(const Manifest& manifest, const Topology& topology,
                                                           std::span<const uint32_t> relations) {
  return Make(manifest, topology, [&]() -> Result<std::span<const uint32_t>> {
    return std::exchange(relations, std::span<const uint32_t>());
  });
}

Result<std::unique_ptr<TypedLists>> TypedLists::Make(const Manifest& manifest, const Topology& topology,
                                                     const NextRelations& next) {
  std::unique_ptr<TypedLists> lists(new TypedLists(manifest, topology.node_count()));
  QUARRY_RETURN_IF_ERROR(lists->Fill(topology, next));
  return lists;
}

// One pass over the edges beside indptr: a list's edges ascend by relation, and each step to the next relation of the
// node's type is an end.
Status TypedLists::Fill(const Topology& topology, const NextRelations& next) {
  const std::span<const uint64_t> indptr = topology.indptr(Adjacency::kCsc);
  ends_.resize(end_count_);
  degrees_max_.resize(relation_count_);
  std::span<const uint32_t> relations;
  uint64_t edge = 0;
  for (const NodeTypes::Range& range : nodes_.ranges()) {
    const Type& type = types_[range.type];
    const size_t kept = type.relations.empty() ? 0 : type.relations.size() - 1;
    for (uint64_t node = range.first; node < range.end; ++node) {
      const uint64_t begin = indptr[node];
      const uint64_t end = indptr[node + 1];
      if (end - begin > std::numeric_limits<uint32_t>::max()) {
        return MakeStatus(Code::kUnsupported, "{}: node {} has {} in-neighbors, too many to sample by type",
                          topology.file().path(), node, end - begin);
      }
      uint32_t* const ends = ends_.data() + type.ends_at + range.RowOf(node) * kept;
      size_t k = 0;
      for (; edge < end; ++edge) {
        if (relations.empty()) {
          QUARRY_TRY(relations, next());
          if (relations.empty())
            return MakeStatus(Code::kCorruption, "{}: fewer relations than edges", topology.file().path());
        }
        const uint32_t relation = relations.front();
        relations = relations.subspan(1);
        while (k < type.relations.size() && type.relations[k] < relation) {
          if (k < kept) ends[k] = static_cast<uint32_t>(edge - begin);
          ++k;
        }
        if (k < type.relations.size() && type.relations[k] == relation) continue;
        return MakeStatus(
            Code::kCorruption,
            "{}: edge {} into node {} is of type {}, which does not run into nodes of type '{}', or not "
            "behind the one before it",
            topology.file().path(), edge, node, relation, type.name);
      }
      for (; k < kept; ++k) ends[k] = static_cast<uint32_t>(end - begin);
      for (uint32_t from = 0, j = 0; j < type.relations.size(); ++j) {
        const uint32_t to = j == kept ? static_cast<uint32_t>(end - begin) : ends[j];
        uint32_t& most = degrees_max_[type.relations[j]];
        most = std::max(most, to - from);
        from = to;
      }
    }
  }
  return Status::Ok();
}

}  // namespace quarry
