#include "quarry/storage/node_properties.h"

#include <algorithm>
#include <cstring>

namespace quarry {
namespace {

template <typename T>
Status ReadProperty(Store& store, std::string_view name, ElementType type, uint64_t node_count,
                    const std::shared_ptr<const Snapshot>& snapshot, std::vector<T>& values) {
  if (snapshot->FindTable(name) == nullptr) return Status::Ok();
  QUARRY_TRY(const std::unique_ptr<FeatureTable> table, store.OpenTable(*snapshot, name));
  const FeatureGeometry& geometry = table->geometry();
  if (geometry.element_type != type || geometry.dim != 1 || geometry.row_count < node_count) {
    return MakeStatus(Code::kCorruption, "{}: {} x {} of {}, expected {} x 1 of {}", table->file().path(),
                      geometry.row_count, geometry.dim, ElementTypeName(geometry.element_type), node_count,
                      ElementTypeName(type));
  }
  values.resize(geometry.row_count);
  QUARRY_RETURN_IF_ERROR(
      table->ReadRows(store.backend(), 0, geometry.row_count, std::as_writable_bytes(std::span(values))));
  QUARRY_TRY(const std::unique_ptr<RowOverlay> overlay, store.OpenOverlay(name, snapshot));
  const std::vector<uint64_t> rows = overlay->TouchedRows();
  QUARRY_RETURN_IF_ERROR(overlay->Read(rows, [&](size_t i, std::span<const std::byte> value) {
    std::memcpy(&values[rows[i]], value.data(), sizeof(T));
  }));
  values.resize(node_count);
  return Status::Ok();
}

}  // namespace

std::vector<NodeId> NodeProperties::SplitNodes(Split split) const {
  std::vector<NodeId> nodes;
  const auto wanted = static_cast<uint8_t>(split);
  nodes.reserve(static_cast<size_t>(std::count(splits.begin(), splits.end(), wanted)));
  for (size_t v = 0; v < splits.size(); ++v) {
    if (splits[v] == wanted) nodes.push_back(static_cast<NodeId>(v));
  }
  return nodes;
}

std::vector<NodeId> NodeProperties::TrainNodes() const {
  std::vector<NodeId> nodes = SplitNodes(Split::kTrain);
  std::erase_if(nodes, [this](NodeId node) { return !labels.empty() && labels[node] < 0; });
  return nodes;
}

uint64_t NodePropertiesBytes(const Manifest& manifest) {
  uint64_t bytes = 0;
  if (const TableRecord* record = manifest.FindTable("label")) bytes += record->row_count * sizeof(int64_t);
  if (const TableRecord* record = manifest.FindTable("split")) bytes += record->row_count * sizeof(uint8_t);
  return bytes;
}

uint32_t CountClasses(std::span<const int64_t> labels) {
  const auto largest = std::ranges::max_element(labels);
  return largest == labels.end() || *largest < 0 ? 0 : static_cast<uint32_t>(*largest + 1);
}

Result<NodeProperties> LoadNodeProperties(Store& store, uint64_t node_count,
                                          const std::shared_ptr<const Snapshot>& snapshot) {
  NodeProperties properties;
  QUARRY_RETURN_IF_ERROR(
      ReadProperty(store, "label", ElementType::kInt64, node_count, snapshot, properties.labels));
  QUARRY_RETURN_IF_ERROR(
      ReadProperty(store, "split", ElementType::kUint8, node_count, snapshot, properties.splits));
  return properties;
}

}  // namespace quarry
