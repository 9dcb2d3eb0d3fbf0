#include "quarry/format/manifest.h"

#include <algorithm>

#include "capnp_bytes.h"
#include "metadata.capnp.h"

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
  out.setFileBytes(topology.file_bytes);
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
          .file_bytes = in.getFileBytes()};
}

// A record's file lies below the database: a manifest must not lead a reader elsewhere.
Status CheckFile(const std::string& file, std::string_view path) {
  if (file.empty() || file.front() == '/' || file.find("..") != std::string::npos) {
    return MakeStatus(Code::kCorruption,
                      "{}: the manifest names the file \"{}\", which is not inside the database", path, file);
  }
  return Status::Ok();
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
                               .file_bytes = table.getFileBytes()});
    QUARRY_RETURN_IF_ERROR(CheckFile(manifest.tables.back().file, path));
  }
  for (const auto topology : in.getTopologies()) {
    manifest.topologies.push_back(Decode(topology));
    QUARRY_RETURN_IF_ERROR(CheckFile(manifest.topologies.back().file, path));
  }
  return manifest;
}

}  // namespace

const TableRecord* Manifest::FindTable(std::string_view name) const {
  const auto found =
      std::find_if(tables.begin(), tables.end(), [&](const auto& t) { return t.name == name; });
  return found == tables.end() ? nullptr : &*found;
}

const TopologyRecord* Manifest::FindTopology(std::string_view name) const {
  const auto found =
      std::find_if(topologies.begin(), topologies.end(), [&](const auto& t) { return t.name == name; });
  return found == topologies.end() ? nullptr : &*found;
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
  return MessageBytes(message);
}

Result<Manifest> DecodeManifest(std::span<const std::byte> bytes, std::string_view path) {
  return ReadMessage<schema::Manifest, Manifest>(
      bytes, path, "manifest", [path](schema::Manifest::Reader reader) { return DecodeRoot(reader, path); });
}

}  // namespace quarry
