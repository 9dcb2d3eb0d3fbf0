#include "quarry/format/manifest.h"

#include <algorithm>
#include <cmath>

#include "capnp_bytes.h"
#include "metadata.capnp.h"
#include "quarry/base/units.h"
#include "quarry/format/node_types.h"
#include "schema_codec.h"

namespace quarry {
namespace {

// A record's file lies below the database: a manifest must not lead a reader elsewhere.
Status CheckFile(const std::string& file, std::string_view path) {
  if (file.empty() || file.front() == '/' || file.find("..") != std::string::npos) {
    return MakeStatus(Code::kCorruption,
                      "{}: the manifest names the file \"{}\", which is not inside the database", path, file);
  }
  return Status::Ok();
}

// Reads are priced by dividing by these.
Status CheckDevice(const DeviceRecord& device, std::string_view path) {
  for (const double rate : {device.random_reads_per_second, device.sequential_bytes_per_second,
                            device.write_bytes_per_second, device.gather_bytes_per_second}) {
    if (std::isfinite(rate) && rate > 0) continue;
    return MakeStatus(Code::kCorruption, "{}: the manifest's device profile has a rate of {} per second",
                      path, rate);
  }
  const CoreRates& core = device.core;
  for (const double rate : {core.checksum_bytes_per_second, core.copy_bytes_per_second,
                            core.decode_bytes_per_second, core.request_seconds}) {
    if (std::isfinite(rate) && rate >= 0) continue;
    return MakeStatus(Code::kCorruption, "{}: the manifest's device profile has a rate of {} for a core",
                      path, rate);
  }
  return Status::Ok();
}

Status CheckLayout(const LayoutRecord& layout, std::string_view path) {
  QUARRY_RETURN_IF_ERROR(CheckFile(layout.directory, path));
  std::string_view fault;
  if (layout.name.empty()) fault = "has no name";
  if (layout.spec.feature_table.empty()) fault = "names no table";
  if (layout.spec.topology.empty()) fault = "names no topology";
  if (layout.spec.batch_size == 0) fault = "has a batch size of 0";
  if (!IsKnown(layout.spec.direction)) fault = "has an unknown direction";
  if (!IsKnown(layout.spec.sampler)) fault = "has an unknown sampler";
  if (layout.spec.fanouts.empty()) fault = "has no fanouts";
  if (layout.epochs == 0) fault = "plans no epochs";
  if (layout.share.ranks > 0 && layout.share.rank >= layout.share.ranks)
    fault = "is of a rank that there is not";
  if (layout.batch_count < layout.epochs) fault = "has fewer batches than epochs";
  for (const double seconds : {layout.predicted_seconds, layout.measured_seconds, layout.plan_seconds}) {
    if (!std::isfinite(seconds) || seconds < 0) fault = "has a duration that is negative or not finite";
  }
  if (fault.empty()) return Status::Ok();
  return MakeStatus(Code::kCorruption, "{}: the manifest's layout \"{}\" {}", path, layout.name, fault);
}

Status CheckEmbedding(const EmbeddingRecord& embedding, std::string_view path) {
  QUARRY_RETURN_IF_ERROR(CheckFile(embedding.file, path));
  const bool checkpointed = !embedding.map_file.empty();
  if (checkpointed) QUARRY_RETURN_IF_ERROR(CheckFile(embedding.map_file, path));
  const bool kept = !embedding.kept_map_file.empty();
  if (kept) QUARRY_RETURN_IF_ERROR(CheckFile(embedding.kept_map_file, path));
  if (!IsElementType(static_cast<uint8_t>(embedding.element_type))) {
    return MakeStatus(Code::kUnsupported,
                      "{}: embedding table \"{}\" has element type {}, which this Quarry does not know", path,
                      embedding.name, static_cast<uint8_t>(embedding.element_type));
  }
  std::string_view fault;
  if (embedding.name.empty()) fault = "has no name";
  if (embedding.page_bytes == 0 || embedding.page_bytes % 4096 != 0)
    fault = "has a page size that is not a multiple of 4096";
  if (embedding.page_count == 0) fault = "has no pages";
  if (embedding.row_count == 0) fault = "has no rows";
  if (embedding.dim == 0) fault = "has rows of no elements";
  if (!std::isfinite(embedding.init_scale)) fault = "has initial values without a scale";
  if (kept != (embedding.kept_map_generation > 0) || (!kept && embedding.kept_timestamp != 0))
    fault = "keeps a map without a generation, or a checkpoint without a map";
  if (kept && (embedding.kept_timestamp < -1 || embedding.kept_timestamp > embedding.timestamp ||
               embedding.kept_map_generation > embedding.map_generation))
    fault = "keeps a checkpoint that is not an earlier one";
  if (embedding.timestamp < -1) fault = "has a checkpoint with a negative timestamp";
  if (!checkpointed && embedding.timestamp != -1) fault = "has a checkpoint without a map";
  if (checkpointed != (embedding.map_generation > 0))
    fault = "has a map without a generation, or a generation without a map";
  if (fault.empty()) return Status::Ok();
  return MakeStatus(Code::kCorruption, "{}: the manifest's embedding table \"{}\" {}", path, embedding.name,
                    fault);
}

Status CheckPartitioning(const PartitioningRecord& partitioning, std::string_view path) {
  QUARRY_RETURN_IF_ERROR(CheckFile(partitioning.directory, path));
  std::string_view fault;
  if (partitioning.name.empty()) fault = "has no name";
  if (partitioning.topology.empty()) fault = "names no topology";
  if (partitioning.part_count == 0) fault = "has no parts";
  if (partitioning.parts_generation > partitioning.generation) fault = "has parts of a later generation";
  if (partitioning.cut_edges > partitioning.edge_count) fault = "cuts more edges than it has";
  if (!std::isfinite(partitioning.build_seconds) || partitioning.build_seconds < 0) {
    fault = "has a duration that is negative or not finite";
  }
  if (fault.empty()) return Status::Ok();
  return MakeStatus(Code::kCorruption, "{}: the manifest's partitioning \"{}\" {}", path, partitioning.name,
                    fault);
}

// What follows from other fields.
void Complete(Manifest& manifest) {
  for (LayoutRecord& layout : manifest.layouts) {
    if (layout.trace_generation == 0) layout.trace_generation = layout.generation;
    const TableRecord* const table = manifest.FindTable(layout.spec.feature_table);
    if (layout.spec.cache_bytes == 0 && table != nullptr) {  // of a version that did not say
      layout.spec.cache_bytes = layout.cache_rows * table->row_stride();
    }
  }
}

Status CheckTable(const TableRecord& table, std::string_view path) {
  if (!IsElementType(static_cast<uint8_t>(table.element_type))) {
    return MakeStatus(Code::kUnsupported,
                      "{}: table \"{}\" has element type {}, which this Quarry does not know", path,
                      table.name, static_cast<uint8_t>(table.element_type));
  }
  if (table.added_rows > table.row_count) {
    return MakeStatus(Code::kCorruption,
                      "{}: the manifest's table \"{}\" has {} rows, and {} of them were added", path,
                      table.name, table.row_count, table.added_rows);
  }
  return CheckFile(table.file, path);
}

// The types have all nodes, each of them one, and edges run between them.
Status CheckTypes(const Manifest& manifest, std::string_view path) {
  const auto fault = [&](std::string_view name, std::string_view what) {
    return MakeStatus(Code::kCorruption, "{}: the manifest's type \"{}\" {}", path, name, what);
  };
  const auto within = [&](const TypeRange& range) {
    return range.first <= manifest.node_count && range.count <= manifest.node_count - range.first;
  };
  for (const NodeTypeRecord& type : manifest.node_types) {
    if (type.name.empty()) return fault(type.name, "has no name");
    if (!within({type.first, type.count}) || !std::ranges::all_of(type.later, within) ||
        !std::ranges::is_sorted(type.later, {}, &TypeRange::first) ||
        (!type.later.empty() && type.later.front().first < type.first)) {
      return fault(type.name, "has more nodes than there are, or not in their order");
    }
    if (type.feature_table.empty()) continue;
    const TableRecord* const table = manifest.FindTable(type.feature_table);
    if (table == nullptr || table->row_count != NodeCount(type)) {
      return fault(type.name, "has a feature table of other rows than its nodes', or one that is not there");
    }
  }
  uint64_t next = 0;
  const NodeTypes types(manifest.node_types);
  for (const NodeTypes::Range& range : types.ranges()) {
    if (range.first != next) {
      return fault(manifest.node_types[range.type].name, "does not begin where the one before it ends");
    }
    next = range.end;
  }
  if (!manifest.node_types.empty() && next != manifest.node_count) {
    return fault(manifest.node_types.back().name, "and the others do not have the last nodes");
  }
  for (const EdgeTypeRecord& type : manifest.edge_types) {
    if (std::max(type.source, type.destination) < manifest.node_types.size()) continue;
    return fault(type.name, "joins types of nodes that are not there");
  }
  const TopologyRecord* const graph = manifest.FindTopology("graph");
  const uint64_t relations = graph == nullptr ? 0 : graph->relation_count;
  if (manifest.edge_types.empty() || manifest.edge_types.size() == relations) return Status::Ok();
  return MakeStatus(Code::kCorruption, "{}: the manifest has {} types of edges, and the graph {} relations",
                    path, manifest.edge_types.size(), relations);
}

// Runs follow each other: positions in one are positions in what the ones before it make.
Status CheckTopology(const TopologyRecord& topology, std::string_view path) {
  QUARRY_RETURN_IF_ERROR(CheckFile(topology.file, path));
  if (topology.added_nodes > topology.node_count) {
    return MakeStatus(Code::kCorruption,
                      "{}: the manifest's topology \"{}\" has {} nodes, and {} of them were added", path,
                      topology.name, topology.node_count, topology.added_nodes);
  }
  uint64_t edges = topology.base_edge_count();
  uint64_t timestamp = topology.folded;
  for (const TopologyRun& run : topology.runs) {
    QUARRY_RETURN_IF_ERROR(CheckFile(run.file, path));
    if (run.edges_before != edges || run.removed > edges || run.timestamp <= timestamp) {
      return MakeStatus(Code::kCorruption,
                        "{}: the manifest's run {} of topology \"{}\" does not follow the one before it",
                        path, run.file, topology.name);
    }
    edges = run.edges_after();
    timestamp = run.timestamp;
  }
  if (edges == topology.edge_count) return Status::Ok();
  return MakeStatus(Code::kCorruption,
                    "{}: the manifest's topology \"{}\" has {} edges, and its runs end at {}", path,
                    topology.name, topology.edge_count, edges);
}

Status Check(const Manifest& manifest, std::string_view path) {
  for (const TopologyRecord& topology : manifest.topologies) {
    QUARRY_RETURN_IF_ERROR(CheckTopology(topology, path));
  }
  QUARRY_RETURN_IF_ERROR(CheckTypes(manifest, path));
  if (manifest.device) QUARRY_RETURN_IF_ERROR(CheckDevice(*manifest.device, path));
  for (const LayoutRecord& layout : manifest.layouts) QUARRY_RETURN_IF_ERROR(CheckLayout(layout, path));
  for (const EmbeddingRecord& embedding : manifest.embeddings) {
    QUARRY_RETURN_IF_ERROR(CheckEmbedding(embedding, path));
  }
  for (const TrainingRecord& training : manifest.trainings) {
    QUARRY_RETURN_IF_ERROR(CheckFile(training.file, path));
  }
  for (const PartitioningRecord& partitioning : manifest.partitionings) {
    QUARRY_RETURN_IF_ERROR(CheckPartitioning(partitioning, path));
  }
  return Status();
}

Result<Manifest> DecodeRoot(schema::Manifest::Reader in, uint64_t records_max, std::string_view path) {
  Manifest manifest;
  if (const Status status = format::ReadRoot<schema::Manifest>(in, records_max, manifest); !status.ok()) {
    const Code code = status.code() == Code::kInvalidArgument ? Code::kCorruption : status.code();
    return MakeStatus(code, "{}: the manifest: {}", path, status.message());
  }
  // Before anything is computed from element types.
  for (const TableRecord& table : manifest.tables) QUARRY_RETURN_IF_ERROR(CheckTable(table, path));
  Complete(manifest);
  QUARRY_RETURN_IF_ERROR(Check(manifest, path));
  return manifest;
}

template <typename Record>
const Record* Find(const std::vector<Record>& records, std::string_view name) {
  const auto found = std::ranges::find(records, name, &Record::name);
  return found == records.end() ? nullptr : &*found;
}

}  // namespace

uint64_t TableRecord::row_stride() const { return RoundUp(RowBytes(element_type, dim), sizeof(float)); }

uint64_t TopologyRecord::ChangedSince(uint64_t timestamp) const {
  uint64_t edges = 0;
  for (const TopologyRun& run : runs) {
    if (run.timestamp > timestamp) edges += run.added + run.removed;
  }
  return edges;
}

uint64_t LayoutRecord::total_bytes() const {
  uint64_t bytes = file_bytes + trace_bytes;
  for (const LayoutBase& base : bases) bytes += base.file_bytes;
  return bytes;
}

const TableRecord* Manifest::FindTable(std::string_view name) const { return Find(tables, name); }
const TopologyRecord* Manifest::FindTopology(std::string_view name) const { return Find(topologies, name); }
const LayoutRecord* Manifest::FindLayout(std::string_view name) const { return Find(layouts, name); }
std::vector<std::string> EmbeddingRecord::files() const {
  std::vector<std::string> files{file};
  if (!map_file.empty()) files.push_back(map_file);
  if (!kept_map_file.empty() && kept_map_file != map_file) files.push_back(kept_map_file);
  return files;
}

const EmbeddingRecord* Manifest::FindEmbedding(std::string_view name) const { return Find(embeddings, name); }
const TrainingRecord* Manifest::FindTraining(std::string_view name) const { return Find(trainings, name); }

const PartitioningRecord* Manifest::FindPartitioning(std::string_view name) const {
  return Find(partitionings, name);
}

std::vector<std::byte> EncodeManifest(const Manifest& manifest) {
  capnp::MallocMessageBuilder message;
  format::WriteRoot<schema::Manifest>(manifest, message.initRoot<schema::Manifest>());
  return MessageBytes(message);
}

Result<Manifest> DecodeManifest(std::span<const std::byte> bytes, std::string_view path) {
  const uint64_t records_max = bytes.size() / sizeof(capnp::word);  // none is without a word
  return ReadMessage<schema::Manifest, Manifest>(
      bytes, path, "manifest",
      [&](schema::Manifest::Reader reader) { return DecodeRoot(reader, records_max, path); });
}

}  // namespace quarry
