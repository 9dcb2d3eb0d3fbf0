#include "export_edges.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <utility>

#include "edge_scan.h"
#include "quarry/base/units.h"

namespace quarry {
namespace {

// Relations that are written at once, and the buffers of their files: with more relations the edges are read
// several times.
constexpr uint64_t kRelationsAtATime = 64;
constexpr uint64_t kRelationBufferBytes = 256 * kKiB;

Status Tell(const ProgressFunction& progress, const EdgeScan& scan, const EdgeFile& file) {
  return progress ? progress("exporting edges", scan.done(), file.record.edge_count) : Status::Ok();
}

class EdgesExport {
 public:
  EdgesExport(Store& store, ExportTarget& target, const EdgeFile& file, const ProgressFunction& progress)
      : store_(store), target_(target), file_(file), progress_(progress) {}

  // Relations [first, first + names.size()).
  Status Write(uint32_t first, std::span<const EdgeArrayNames> names) {
    std::vector<ArrayOutput> outputs;
    std::vector<ArrayOutput> weights;
    const uint64_t buffer_bytes = names.size() == 1 ? 4 * kMiB : kRelationBufferBytes;
    for (const EdgeArrayNames& name : names) {
      QUARRY_TRY(ArrayOutput output, ArrayOutput::Create(target_, name.edges, ElementType::kInt64,
                                                         target_.text ? 2 : 0, buffer_bytes));
      outputs.push_back(std::move(output));
      if (!file_.record.weighted) continue;
      QUARRY_TRY(ArrayOutput weight_output,
                 ArrayOutput::Create(target_, name.weights, ElementType::kFloat32, 0, buffer_bytes));
      weights.push_back(std::move(weight_output));
    }
    std::vector<uint64_t> counts(names.size());
    // An array has all sources, then all destinations: the edges pass twice, and the second time indptr tells
    // all but the relations.
    QUARRY_RETURN_IF_ERROR(Pass(first, names.size(), /*with_heads=*/true,
                                [&](size_t i, const Triple& edge, std::span<const float> weight) -> Status {
                                  ++counts[i];
                                  QUARRY_RETURN_IF_ERROR(outputs[i].Append(names[i].IdOf(edge.head)));
                                  if (target_.text)
                                    QUARRY_RETURN_IF_ERROR(outputs[i].Append(names[i].IdOf(edge.tail)));
                                  return weight.empty() ? Status::Ok()
                                                        : weights[i].Append(std::as_bytes(weight));
                                }));
    if (!target_.text) {
      QUARRY_RETURN_IF_ERROR(Pass(first, names.size(), /*with_heads=*/false,
                                  [&](size_t i, const Triple& edge, std::span<const float>) {
                                    return outputs[i].Append(names[i].IdOf(edge.tail));
                                  }));
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      QUARRY_RETURN_IF_ERROR(outputs[i].Finish(std::array<uint64_t, 2>{2, counts[i]}));
    }
    for (ArrayOutput& output : weights) QUARRY_RETURN_IF_ERROR(output.Finish());
    return Status::Ok();
  }

 private:
  template <typename Visit>
  Status Pass(uint32_t first, size_t count, bool with_heads, const Visit& visit) {
    QUARRY_TRY(const auto scan, EdgeScan::Open(store_, target_.budget, file_, with_heads));
    while (true) {
      QUARRY_TRY(const std::span<const Triple> edges, scan->Next());
      if (edges.empty()) return Status::Ok();
      const std::span<const float> weights = scan->weights();
      for (size_t at = 0; at < edges.size(); ++at) {
        const Triple& edge = edges[at];
        const size_t i = edge.relation - first;  // of a relation before `first`: beyond all
        if (edge.relation < first || i >= count) continue;
        QUARRY_RETURN_IF_ERROR(visit(i, edge, weights.empty() ? weights : weights.subspan(at, 1)));
      }
      QUARRY_RETURN_IF_ERROR(Tell(progress_, *scan, file_));
    }
  }

  Store& store_;
  ExportTarget& target_;
  const EdgeFile& file_;
  const ProgressFunction& progress_;
};

// All names of nodes, one behind the other.
class EntityNames {
 public:
  static Result<EntityNames> Load(Store& store, MemoryBudget& budget) {
    EntityNames names;
    const uint64_t count = store.manifest()->node_count;
    QUARRY_TRY(names.ends_reservation_,
               budget.Reserve((count + 1) * sizeof(uint64_t), "the names of the nodes"));
    names.ends_.reserve(count + 1);
    names.ends_.push_back(0);
    std::optional<std::string> name;
    for (uint64_t id = 0; id < count; ++id) {
      if (store.manifest()->has_entity_names) {
        QUARRY_TRY(name, store.catalog()->NameOfId(NameKind::kEntity, id));
      }
      QUARRY_RETURN_IF_ERROR(names.Add(budget, name.has_value() ? *name : fmt::format("{}", id)));
    }
    return names;
  }
  std::string_view operator[](NodeId node) const {
    return std::string_view(bytes_).substr(ends_[node], ends_[node + uint64_t{1}] - ends_[node]);
  }

 private:
  Status Add(MemoryBudget& budget, std::string_view name) {
    if (bytes_.size() + name.size() > bytes_.capacity()) {
      const uint64_t room = std::max<uint64_t>(2 * bytes_.capacity(), kMiB) + name.size();
      QUARRY_TRY(MemoryBudget::Reservation larger, budget.Reserve(room, "the names of the nodes"));
      bytes_.reserve(room);
      reservation_ = std::move(larger);
    }
    bytes_ += name;
    ends_.push_back(bytes_.size());
    return Status::Ok();
  }

  MemoryBudget::Reservation ends_reservation_, reservation_;
  std::vector<uint64_t> ends_;
  std::string bytes_;
};

template <typename NameOf>
Status WriteDictionary(ExportTarget& target, const std::string& file, uint64_t count, const NameOf& name_of) {
  QUARRY_TRY(FileOutput output, FileOutput::Create(target, file, 0));
  std::string line;
  for (uint64_t id = 0; id < count; ++id) {
    line.clear();
    fmt::format_to(std::back_inserter(line), "{}\t{}\n", id, name_of(id));
    QUARRY_RETURN_IF_ERROR(output.Append(line));
  }
  return output.Finish({});
}

Status WriteTriples(Store& store, ExportTarget& target, const Snapshot& snapshot, std::string_view topology,
                    const std::string& file, const EntityNames& entities,
                    const std::vector<std::string>& relations, const ProgressFunction& progress) {
  QUARRY_TRY(const EdgeFile edge_file, EdgeFile::Open(store, target.budget, snapshot, topology));
  QUARRY_TRY(const auto scan, EdgeScan::Open(store, target.budget, edge_file));
  QUARRY_TRY(FileOutput output, FileOutput::Create(target, file, 0));
  std::string line;
  while (true) {
    QUARRY_TRY(const std::span<const Triple> edges, scan->Next());
    if (edges.empty()) return output.Finish({});
    for (size_t i = 0; i < edges.size(); ++i) {
      const Triple& edge = edges[i];
      line.clear();
      fmt::format_to(std::back_inserter(line), "{}\t{}\t{}", entities[edge.head], relations[edge.relation],
                     entities[edge.tail]);
      // The shortest number that reads back as the same.
      if (!scan->weights().empty()) {
        fmt::format_to(std::back_inserter(line), "\t{}", scan->weights()[i]);
      }
      line += '\n';
      QUARRY_RETURN_IF_ERROR(output.Append(line));
    }
    QUARRY_RETURN_IF_ERROR(Tell(progress, *scan, edge_file));
  }
}

}  // namespace

Result<std::vector<std::string>> RelationNames(Store& store) {
  std::vector<std::string> names;
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  const TopologyRecord* const graph = manifest->FindTopology("graph");
  if (graph == nullptr || (graph->relation_count <= 1 && !manifest->has_relation_names)) return names;
  for (uint64_t id = 0; id < graph->relation_count; ++id) {
    QUARRY_TRY(const std::optional<std::string> name, store.catalog()->NameOfId(NameKind::kRelation, id));
    names.push_back(name.has_value() ? *name : fmt::format("{}", id));
  }
  return names;
}

Status ExportEdges(Store& store, ExportTarget& target, const Snapshot& snapshot,
                   const std::vector<EdgeArrayNames>& names, const ProgressFunction& progress) {
  QUARRY_TRY(const EdgeFile file, EdgeFile::Open(store, target.budget, snapshot, "graph"));
  EdgesExport edges(store, target, file, progress);
  for (size_t first = 0; first < names.size(); first += kRelationsAtATime) {
    const size_t count = std::min(kRelationsAtATime, names.size() - first);
    QUARRY_RETURN_IF_ERROR(edges.Write(static_cast<uint32_t>(first), std::span(names).subspan(first, count)));
  }
  return Status::Ok();
}

Status ExportTriples(Store& store, ExportTarget& target, const Snapshot& snapshot,
                     const std::vector<std::string>& relations, const ProgressFunction& progress) {
  QUARRY_TRY(const EntityNames entities, EntityNames::Load(store, target.budget));
  // A single relation without a name has its number, too.
  const std::vector<std::string> names = relations.empty() ? std::vector<std::string>{"0"} : relations;
  QUARRY_RETURN_IF_ERROR(WriteDictionary(target, "entities.dict", store.manifest()->node_count,
                                         [&](uint64_t id) { return entities[static_cast<NodeId>(id)]; }));
  QUARRY_RETURN_IF_ERROR(WriteDictionary(target, "relations.dict", names.size(),
                                         [&](uint64_t id) -> const std::string& { return names[id]; }));
  const std::pair<const char*, const char*> parts[] = {
      {"graph", "train.txt"}, {"valid", "valid.txt"}, {"test", "test.txt"}};
  for (const auto& [topology, file] : parts) {
    if (store.manifest()->FindTopology(topology) == nullptr) continue;
    QUARRY_RETURN_IF_ERROR(WriteTriples(store, target, snapshot, topology, file, entities, names, progress));
  }
  return Status::Ok();
}

}  // namespace quarry
