#include "quarry/format/manifest.h"

#include <algorithm>
#include <cmath>

#include "capnp_bytes.h"
#include "metadata.capnp.h"
#include "quarry/base/units.h"

namespace quarry {
namespace {

void Encode(const TableRecord& table, schema::TableRecord::Builder out) {
  out.setName(ToText(table.name));
  out.setFile(ToText(table.file));
  out.setGeneration(table.generation);
  out.setElementType(static_cast<uint8_t>(table.element_type));
  out.setRowCount(table.row_count);
  out.setDim(table.dim);
  out.setFileBytes(table.file_bytes);
  out.setFolded(table.folded);
}

void Encode(const TopologyRecord& topology, schema::TopologyRecord::Builder out) {
  out.setName(ToText(topology.name));
  out.setFile(ToText(topology.file));
  out.setGeneration(topology.generation);
  out.setNodeCount(topology.node_count);
  out.setEdgeCount(topology.edge_count);
  out.setRelationCount(topology.relation_count);
  out.setHasCsr(topology.has_csr);
  out.setDeduplicated(topology.deduplicated);
  out.setUndirected(topology.undirected);
  out.setWeighted(topology.weighted);
  out.setFileBytes(topology.file_bytes);
}

void Encode(const DeviceRecord& device, schema::DeviceRecord::Builder out) {
  out.setRandomReadsPerSecond(device.random_reads_per_second);
  out.setSequentialBytesPerSecond(device.sequential_bytes_per_second);
  out.setWriteBytesPerSecond(device.write_bytes_per_second);
  out.setGatherBytesPerSecond(device.gather_bytes_per_second);
  out.setMeasuredUtc(ToText(device.measured_utc));
  out.setChecksumBytesPerSecond(device.core.checksum_bytes_per_second);
  out.setCopyBytesPerSecond(device.core.copy_bytes_per_second);
  out.setDecodeBytesPerSecond(device.core.decode_bytes_per_second);
  out.setRequestSeconds(device.core.request_seconds);
}

void Encode(const LayoutRecord& layout, schema::LayoutRecord::Builder out) {
  out.setName(ToText(layout.name));
  out.setDirectory(ToText(layout.directory));
  out.setGeneration(layout.generation);
  out.setTable(ToText(layout.spec.feature_table));
  out.setTableGeneration(layout.table_generation);
  out.setTopology(ToText(layout.spec.topology));
  out.setTopologyGeneration(layout.topology_generation);
  out.setTimestamp(layout.timestamp);
  out.setSeed(layout.spec.seed);
  out.setBatchSize(layout.spec.batch_size);
  auto fanouts = out.initFanouts(static_cast<unsigned>(layout.spec.fanouts.size()));
  for (unsigned i = 0; i < fanouts.size(); ++i) fanouts.set(i, layout.spec.fanouts[i]);
  out.setDirection(static_cast<uint8_t>(layout.spec.direction));
  out.setReplace(layout.spec.replace);
  out.setPolicy(ToText(layout.policy));
  out.setSeedOrder(ToText(layout.spec.seed_order));
  out.setEpochs(layout.epochs);
  out.setBatchCount(layout.batch_count);
  out.setCacheRows(layout.cache_rows);
  out.setBatchesPerSegment(layout.batches_per_segment);
  out.setHashFunctions(layout.hash_functions);
  out.setFileBytes(layout.file_bytes);
  out.setTraceBytes(layout.trace_bytes);
  out.setRowBytesRead(layout.row_bytes_read);
  out.setUsefulBytes(layout.useful_bytes);
  out.setPredictedSeconds(layout.predicted_seconds);
  out.setMeasuredSeconds(layout.measured_seconds);
  out.setMeasuredBytes(layout.measured_bytes);
  out.setPlanSeconds(layout.plan_seconds);
  out.setPlanBytesWritten(layout.plan_bytes_written);
  out.setPlanBytesRead(layout.plan_bytes_read);
  out.setCreatedUtc(ToText(layout.created_utc));
  out.setAccesses(layout.accesses);
  out.setHits(layout.hits);
  out.setDiskBytesMax(layout.disk_bytes_max);
  out.setTraceGeneration(layout.trace_generation);
  auto bases = out.initBases(static_cast<unsigned>(layout.bases.size()));
  for (unsigned i = 0; i < bases.size(); ++i) {
    bases[i].setGeneration(layout.bases[i].generation);
    bases[i].setFileBytes(layout.bases[i].file_bytes);
  }
}

void Encode(const EmbeddingRecord& embedding, schema::EmbeddingRecord::Builder out) {
  out.setName(ToText(embedding.name));
  out.setFile(ToText(embedding.file));
  out.setGeneration(embedding.generation);
  out.setPageBytes(embedding.page_bytes);
  out.setPageCount(embedding.page_count);
  out.setMapFile(ToText(embedding.map_file));
  out.setMapGeneration(embedding.map_generation);
  out.setRowCount(embedding.row_count);
  out.setDim(embedding.dim);
  out.setElementType(static_cast<uint8_t>(embedding.element_type));
  out.setOptimizer(embedding.optimizer);
  out.setInit(embedding.init);
  out.setInitScale(embedding.init_scale);
  out.setSeed(embedding.seed);
  out.setTimestamp(embedding.timestamp);
  out.setCreatedUtc(ToText(embedding.created_utc));
}

void Encode(const TrainingRecord& training, schema::TrainingRecord::Builder out) {
  out.setName(ToText(training.name));
  out.setFile(ToText(training.file));
  out.setGeneration(training.generation);
  out.setFileBytes(training.file_bytes);
  out.setSettings(ToText(training.settings));
  out.setTimestamp(training.timestamp);
  out.setCreatedUtc(ToText(training.created_utc));
  out.setConfig(ToText(training.config));
}

void Encode(const PartitioningRecord& partitioning, schema::PartitioningRecord::Builder out) {
  out.setName(ToText(partitioning.name));
  out.setDirectory(ToText(partitioning.directory));
  out.setGeneration(partitioning.generation);
  out.setTopology(ToText(partitioning.topology));
  out.setTopologyGeneration(partitioning.topology_generation);
  out.setTable(ToText(partitioning.table));
  out.setTableGeneration(partitioning.table_generation);
  out.setTimestamp(partitioning.timestamp);
  out.setMethod(ToText(partitioning.method));
  out.setSeed(partitioning.seed);
  out.setPartCount(partitioning.part_count);
  out.setNodeCount(partitioning.node_count);
  out.setEdgeCount(partitioning.edge_count);
  out.setCutEdges(partitioning.cut_edges);
  out.setFileBytes(partitioning.file_bytes);
  out.setBuildSeconds(partitioning.build_seconds);
  out.setCreatedUtc(ToText(partitioning.created_utc));
}

TopologyRecord Decode(schema::TopologyRecord::Reader in) {
  return {.name = ToString(in.getName()),
          .file = ToString(in.getFile()),
          .generation = in.getGeneration(),
          .node_count = in.getNodeCount(),
          .edge_count = in.getEdgeCount(),
          .relation_count = in.getRelationCount(),
          .has_csr = in.getHasCsr(),
          .deduplicated = in.getDeduplicated(),
          .undirected = in.getUndirected(),
          .weighted = in.getWeighted(),
          .file_bytes = in.getFileBytes()};
}

DeviceRecord Decode(schema::DeviceRecord::Reader in) {
  return {.random_reads_per_second = in.getRandomReadsPerSecond(),
          .sequential_bytes_per_second = in.getSequentialBytesPerSecond(),
          .write_bytes_per_second = in.getWriteBytesPerSecond(),
          .gather_bytes_per_second = in.getGatherBytesPerSecond(),
          .measured_utc = ToString(in.getMeasuredUtc()),
          .core = {.checksum_bytes_per_second = in.getChecksumBytesPerSecond(),
                   .copy_bytes_per_second = in.getCopyBytesPerSecond(),
                   .decode_bytes_per_second = in.getDecodeBytesPerSecond(),
                   .request_seconds = in.getRequestSeconds()}};
}

Result<LayoutRecord> Decode(schema::LayoutRecord::Reader in) {
  std::vector<uint32_t> fanouts;
  for (const uint32_t fanout : in.getFanouts()) fanouts.push_back(fanout);
  std::vector<LayoutBase> bases;
  for (const auto base : in.getBases()) bases.push_back({base.getGeneration(), base.getFileBytes()});
  const uint64_t trace_generation = in.getTraceGeneration();
  RoadSpec spec{.feature_table = ToString(in.getTable()),
                .topology = ToString(in.getTopology()),
                .direction = static_cast<Direction>(in.getDirection()),
                .fanouts = std::move(fanouts),
                .batch_size = in.getBatchSize(),
                .seed = in.getSeed(),
                .replace = in.getReplace()};
  PolicyKind policy = PolicyKind::kNone;
  QUARRY_RETURN_IF_ERROR(FromText(in.getSeedOrder(), spec.seed_order));
  QUARRY_RETURN_IF_ERROR(FromText(in.getPolicy(), policy));
  return LayoutRecord{.name = ToString(in.getName()),
                      .directory = ToString(in.getDirectory()),
                      .generation = in.getGeneration(),
                      .spec = std::move(spec),
                      .table_generation = in.getTableGeneration(),
                      .topology_generation = in.getTopologyGeneration(),
                      .timestamp = in.getTimestamp(),
                      .policy = policy,
                      .epochs = in.getEpochs(),
                      .batch_count = in.getBatchCount(),
                      .cache_rows = in.getCacheRows(),
                      .batches_per_segment = in.getBatchesPerSegment(),
                      .hash_functions = in.getHashFunctions(),
                      .disk_bytes_max = in.getDiskBytesMax(),
                      .trace_generation = trace_generation == 0 ? in.getGeneration() : trace_generation,
                      .bases = std::move(bases),
                      .file_bytes = in.getFileBytes(),
                      .trace_bytes = in.getTraceBytes(),
                      .row_bytes_read = in.getRowBytesRead(),
                      .useful_bytes = in.getUsefulBytes(),
                      .accesses = in.getAccesses(),
                      .hits = in.getHits(),
                      .predicted_seconds = in.getPredictedSeconds(),
                      .measured_seconds = in.getMeasuredSeconds(),
                      .measured_bytes = in.getMeasuredBytes(),
                      .plan_seconds = in.getPlanSeconds(),
                      .plan_bytes_written = in.getPlanBytesWritten(),
                      .plan_bytes_read = in.getPlanBytesRead(),
                      .created_utc = ToString(in.getCreatedUtc())};
}

EmbeddingRecord Decode(schema::EmbeddingRecord::Reader in) {
  return {.name = ToString(in.getName()),
          .file = ToString(in.getFile()),
          .generation = in.getGeneration(),
          .page_bytes = in.getPageBytes(),
          .page_count = in.getPageCount(),
          .map_file = ToString(in.getMapFile()),
          .map_generation = in.getMapGeneration(),
          .row_count = in.getRowCount(),
          .dim = in.getDim(),
          .element_type = static_cast<ElementType>(in.getElementType()),
          .optimizer = in.getOptimizer(),
          .init = in.getInit(),
          .init_scale = in.getInitScale(),
          .seed = in.getSeed(),
          .timestamp = in.getTimestamp(),
          .created_utc = ToString(in.getCreatedUtc())};
}

TrainingRecord Decode(schema::TrainingRecord::Reader in) {
  return {.name = ToString(in.getName()),
          .file = ToString(in.getFile()),
          .generation = in.getGeneration(),
          .file_bytes = in.getFileBytes(),
          .settings = ToString(in.getSettings()),
          .timestamp = in.getTimestamp(),
          .created_utc = ToString(in.getCreatedUtc()),
          .config = ToString(in.getConfig())};
}

PartitioningRecord Decode(schema::PartitioningRecord::Reader in) {
  return {.name = ToString(in.getName()),
          .directory = ToString(in.getDirectory()),
          .generation = in.getGeneration(),
          .topology = ToString(in.getTopology()),
          .topology_generation = in.getTopologyGeneration(),
          .table = ToString(in.getTable()),
          .table_generation = in.getTableGeneration(),
          .timestamp = in.getTimestamp(),
          .method = ToString(in.getMethod()),
          .seed = in.getSeed(),
          .part_count = in.getPartCount(),
          .node_count = in.getNodeCount(),
          .edge_count = in.getEdgeCount(),
          .cut_edges = in.getCutEdges(),
          .file_bytes = in.getFileBytes(),
          .build_seconds = in.getBuildSeconds(),
          .created_utc = ToString(in.getCreatedUtc())};
}

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
  if (layout.spec.fanouts.empty()) fault = "has no fanouts";
  if (layout.epochs == 0) fault = "plans no epochs";
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
  if (partitioning.cut_edges > partitioning.edge_count) fault = "cuts more edges than it has";
  if (!std::isfinite(partitioning.build_seconds) || partitioning.build_seconds < 0) {
    fault = "has a duration that is negative or not finite";
  }
  if (fault.empty()) return Status::Ok();
  return MakeStatus(Code::kCorruption, "{}: the manifest's partitioning \"{}\" {}", path, partitioning.name,
                    fault);
}

Result<Manifest> DecodeRoot(schema::Manifest::Reader in, std::string_view path) {
  Manifest manifest;
  const auto id = in.getDatabaseId();
  if (id.size() != manifest.database_id.size()) {
    return MakeStatus(Code::kCorruption, "{}: the manifest's database id has {} bytes instead of {}", path,
                      id.size(), manifest.database_id.size());
  }
  std::memcpy(manifest.database_id.data(), id.begin(), id.size());
  manifest.node_count = in.getNodeCount();
  manifest.class_count = in.getClassCount();
  manifest.source = ToString(in.getSource());
  manifest.created_utc = ToString(in.getCreatedUtc());
  manifest.has_entity_names = in.getHasEntityNames();
  manifest.has_relation_names = in.getHasRelationNames();
  for (const auto table : in.getTables()) {
    if (!IsElementType(table.getElementType())) {
      return MakeStatus(Code::kUnsupported,
                        "{}: table \"{}\" has element type {}, which this Quarry does not know", path,
                        table.getName().cStr(), table.getElementType());
    }
    manifest.tables.push_back({.name = ToString(table.getName()),
                               .file = ToString(table.getFile()),
                               .generation = table.getGeneration(),
                               .element_type = static_cast<ElementType>(table.getElementType()),
                               .row_count = table.getRowCount(),
                               .dim = table.getDim(),
                               .file_bytes = table.getFileBytes(),
                               .folded = table.getFolded()});
    QUARRY_RETURN_IF_ERROR(CheckFile(manifest.tables.back().file, path));
  }
  for (const auto topology : in.getTopologies()) {
    manifest.topologies.push_back(Decode(topology));
    QUARRY_RETURN_IF_ERROR(CheckFile(manifest.topologies.back().file, path));
  }
  if (in.hasDevice()) {
    manifest.device = Decode(in.getDevice());
    QUARRY_RETURN_IF_ERROR(CheckDevice(*manifest.device, path));
  }
  for (const auto layout : in.getLayouts()) {
    Result<LayoutRecord> record = Decode(layout);
    if (!record.ok()) {
      return MakeStatus(record.status().code(), "{}: the manifest's layout \"{}\": {}", path,
                        layout.getName().cStr(), record.status().message());
    }
    manifest.layouts.push_back(std::move(record).value());
    LayoutRecord& added = manifest.layouts.back();
    if (const TableRecord* const table = manifest.FindTable(added.spec.feature_table)) {
      added.spec.cache_bytes = added.cache_rows * table->row_stride();
    }
    QUARRY_RETURN_IF_ERROR(CheckLayout(manifest.layouts.back(), path));
  }
  for (const auto embedding : in.getEmbeddings()) {
    manifest.embeddings.push_back(Decode(embedding));
    QUARRY_RETURN_IF_ERROR(CheckEmbedding(manifest.embeddings.back(), path));
  }
  for (const auto training : in.getTrainings()) {
    manifest.trainings.push_back(Decode(training));
    QUARRY_RETURN_IF_ERROR(CheckFile(manifest.trainings.back().file, path));
  }
  for (const auto partitioning : in.getPartitionings()) {
    manifest.partitionings.push_back(Decode(partitioning));
    QUARRY_RETURN_IF_ERROR(CheckPartitioning(manifest.partitionings.back(), path));
  }
  return manifest;
}

template <typename Record>
const Record* Find(const std::vector<Record>& records, std::string_view name) {
  const auto found = std::ranges::find(records, name, &Record::name);
  return found == records.end() ? nullptr : &*found;
}

}  // namespace

uint64_t TableRecord::row_stride() const { return RoundUp(RowBytes(element_type, dim), sizeof(float)); }

uint64_t LayoutRecord::total_bytes() const {
  uint64_t bytes = file_bytes + trace_bytes;
  for (const LayoutBase& base : bases) bytes += base.file_bytes;
  return bytes;
}

const TableRecord* Manifest::FindTable(std::string_view name) const { return Find(tables, name); }
const TopologyRecord* Manifest::FindTopology(std::string_view name) const { return Find(topologies, name); }
const LayoutRecord* Manifest::FindLayout(std::string_view name) const { return Find(layouts, name); }
const EmbeddingRecord* Manifest::FindEmbedding(std::string_view name) const { return Find(embeddings, name); }
const TrainingRecord* Manifest::FindTraining(std::string_view name) const { return Find(trainings, name); }

const PartitioningRecord* Manifest::FindPartitioning(std::string_view name) const {
  return Find(partitionings, name);
}

std::vector<std::byte> EncodeManifest(const Manifest& manifest) {
  capnp::MallocMessageBuilder message;
  auto out = message.initRoot<schema::Manifest>();
  const auto& id = manifest.database_id;
  out.setDatabaseId({reinterpret_cast<const capnp::byte*>(id.data()), id.size()});
  out.setNodeCount(manifest.node_count);
  out.setClassCount(manifest.class_count);
  out.setSource(ToText(manifest.source));
  out.setCreatedUtc(ToText(manifest.created_utc));
  out.setHasEntityNames(manifest.has_entity_names);
  out.setHasRelationNames(manifest.has_relation_names);
  auto tables = out.initTables(static_cast<unsigned>(manifest.tables.size()));
  for (unsigned i = 0; i < tables.size(); ++i) Encode(manifest.tables[i], tables[i]);
  auto topologies = out.initTopologies(static_cast<unsigned>(manifest.topologies.size()));
  for (unsigned i = 0; i < topologies.size(); ++i) Encode(manifest.topologies[i], topologies[i]);
  if (manifest.device) Encode(*manifest.device, out.initDevice());
  auto layouts = out.initLayouts(static_cast<unsigned>(manifest.layouts.size()));
  for (unsigned i = 0; i < layouts.size(); ++i) Encode(manifest.layouts[i], layouts[i]);
  auto embeddings = out.initEmbeddings(static_cast<unsigned>(manifest.embeddings.size()));
  for (unsigned i = 0; i < embeddings.size(); ++i) Encode(manifest.embeddings[i], embeddings[i]);
  auto trainings = out.initTrainings(static_cast<unsigned>(manifest.trainings.size()));
  for (unsigned i = 0; i < trainings.size(); ++i) Encode(manifest.trainings[i], trainings[i]);
  auto partitionings = out.initPartitionings(static_cast<unsigned>(manifest.partitionings.size()));
  for (unsigned i = 0; i < partitionings.size(); ++i) Encode(manifest.partitionings[i], partitionings[i]);
  return MessageBytes(message);
}

Result<Manifest> DecodeManifest(std::span<const std::byte> bytes, std::string_view path) {
  return ReadMessage<schema::Manifest, Manifest>(
      bytes, path, "manifest", [path](schema::Manifest::Reader reader) { return DecodeRoot(reader, path); });
}

}  // namespace quarry
