#include "train_types.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "layout_options.h"
#include "opened_store.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/storage/relation_scan.h"
#include "quarry/storage/times.h"

namespace quarry::cli {

Status AskByType(const Manifest& manifest, const ModelSpec& model, const std::vector<uint32_t>& fanouts,
                 RoadSpec& road) {
  if (!model.needs_relations() || manifest.edge_types.empty()) return Status::Ok();
  return DrawByType(manifest, fanouts, road);
}

Status TakeInputs(const Manifest& manifest, const RoadSpec& road, TrainOptions& train) {
  if (!train.spec.needs_relations()) return Status::Ok();
  const auto columns = [&](const std::string& name) {
    const TableRecord* const table = name.empty() ? nullptr : manifest.FindTable(name);
    return table == nullptr ? 0 : static_cast<uint32_t>(table->dim);
  };
  train.inputs = {};
  if (!manifest.edge_types.empty()) {
    train.inputs.kind_count = static_cast<uint32_t>(manifest.edge_types.size());
    for (const NodeTypeRecord& type : manifest.node_types) {
      train.inputs.types.push_back({.name = type.name, .dim = columns(type.feature_table)});
    }
    train.inputs.nodes = NodeTypes(manifest.node_types);
    return Status::Ok();
  }
  const TopologyRecord* const graph = manifest.FindTopology(road.topology);
  if (graph == nullptr || graph->relation_count < 2) {
    return MakeStatus(
        Code::kInvalidArgument,
        "--model {} tells relations of edges apart, and those of this database have one: import a "
        "file of edges for each relation (edges_NAME.npy) or a folder with types, or take another "
        "model",
        quarry::NameOf(train.spec.model));
  }
  train.inputs.kind_count = static_cast<uint32_t>(graph->relation_count);
  train.inputs.types.push_back({.dim = columns(road.feature_table) + JoinedDim(manifest, road.topology)});
  return Status::Ok();
}

Status TakeKindsOf(client::Store& store, const Manifest& manifest, const RoadSpec& road,
                   TrainOptions& train) {
  if (!train.spec.needs_relations() || !road.relation_fanouts.empty()) return Status::Ok();
  const TopologyRecord& record = *manifest.FindTopology(road.topology);  // TakeInputs has found it
  if (const uint64_t bytes = record.edge_count * sizeof(uint32_t); bytes > MemoryLimitBytes()) {
    return MakeStatus(Code::kOutOfBudget,
                      "--model {} holds the relations of {} edges, {}, and the machine or cgroup allows {}",
                      quarry::NameOf(train.spec.model), record.edge_count, FormatBytes(bytes),
                      FormatBytes(MemoryLimitBytes()));
  }
  constexpr uint64_t kPieceEdges = 256 << 10;
  auto kinds = std::make_shared<std::vector<uint32_t>>();
  kinds->reserve(record.edge_count);
  while (kinds->size() < record.edge_count) {
    const uint64_t count = std::min(kPieceEdges, record.edge_count - kinds->size());
    QUARRY_TRY(const std::vector<uint32_t> numbers, store.ReadEdges(record.name, kinds->size(), count));
    if (numbers.size() != 3 * count) {
      return MakeStatus(Code::kInvalidArgument,
                        "topology \"{}\" had {} edges and has fewer by now: start the training again",
                        record.name, record.edge_count);
    }
    for (size_t i = 0; i < numbers.size(); i += 3) kinds->push_back(numbers[i + 1]);
  }
  train.inputs.kinds = std::move(kinds);
  return Status::Ok();
}

Status CheckEdgesStayed(client::Store& store, const std::string& address, const Manifest& manifest,
                        const RoadSpec& road, const TrainOptions& train) {
  if (train.inputs.kinds == nullptr) return Status::Ok();
  QUARRY_TRY(const Manifest now, ManifestOf(store, address));
  const TopologyRecord* const before = manifest.FindTopology(road.topology);
  const TopologyRecord* const after = now.FindTopology(road.topology);
  if (after != nullptr && after->timestamp() == before->timestamp() &&
      after->edge_count == before->edge_count) {
    return Status::Ok();
  }
  return MakeStatus(Code::kInvalidArgument,
                    "{}: edges of topology \"{}\" came or went while their relations were read: start again",
                    address, road.topology);
}

Status TakeKinds(Database& database, const RoadSpec& road, TrainOptions& train) {
  if (!train.spec.needs_relations() || !road.relation_fanouts.empty()) return Status::Ok();
  struct Loaded {
    MemoryBudget::Reservation bytes;
    std::vector<uint32_t> kinds;
  };
  Store& store = database.store();
  QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, store.TakeSnapshot());
  const TopologyRecord* const record = snapshot->FindTopology(road.topology);
  if (record == nullptr) return store.OpenTopology(road.topology).status();
  QUARRY_TRY(const MemoryBudget::Reservation lists,
             database.budget().Reserve(Topology::ResidentBytes(*record), "reading the relations of edges"));
  QUARRY_TRY(const std::unique_ptr<Topology> topology, OpenPlaces(store, *snapshot, road.topology));
  const auto loaded = std::make_shared<Loaded>();
  QUARRY_TRY(loaded->bytes,
             database.budget().Reserve(topology->edge_count() * sizeof(uint32_t), "the relations of edges"));
  QUARRY_TRY(RelationScan scan, RelationScan::Open(store.backend(), database.budget(), *topology));
  loaded->kinds.resize(topology->edge_count());
  QUARRY_RETURN_IF_ERROR(scan.Read(loaded->kinds));
  train.inputs.kinds = {loaded, &loaded->kinds};
  return Status::Ok();
}

}  // namespace quarry::cli
