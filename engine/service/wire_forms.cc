#include "quarry/service/wire_forms.h"

#include "quarry/base/same_fields.h"
#include "quarry/embedding/embedding_table.h"
#include "quarry/layout/layout.h"

namespace quarry {
namespace {

// What a record and what is told of it have in common.
template <typename Info, typename T>
Info InfoOf(const T& record) {
  Info info;
  CopySameFields(record, info);
  return info;
}
static_assert(FieldsLeft<TableRecord, wire::TableInfo>() == 0);
static_assert(FieldsLeft<TopologyRecord, wire::TopologyInfo>() == 0);
static_assert(FieldsLeft<LayoutRecord, wire::LayoutInfo>() == 1);        // servable
static_assert(FieldsLeft<EmbeddingRecord, wire::EmbeddingInfo>() == 1);  // state_dim
static_assert(FieldsLeft<Manifest, wire::Description>() == 6);           // four lists, limits, path

}  // namespace

wire::Description DescriptionOf(const Store& store) {
  const std::shared_ptr<const Manifest> held = store.manifest();
  const Manifest& manifest = *held;
  auto out = InfoOf<wire::Description>(manifest);
  out.path = store.path();
  for (const TableRecord& table : manifest.tables) out.tables.push_back(InfoOf<wire::TableInfo>(table));
  for (const TopologyRecord& topology : manifest.topologies) {
    out.topologies.push_back(InfoOf<wire::TopologyInfo>(topology));
  }
  for (const LayoutRecord& layout : manifest.layouts) {
    auto& info = out.layouts.emplace_back(InfoOf<wire::LayoutInfo>(layout));
    info.file_bytes = layout.total_bytes();
    info.servable = IsServable(manifest, layout);
  }
  for (const EmbeddingRecord& table : manifest.embeddings) {
    const EmbeddingSpec spec = {.dim = table.dim, .optimizer = static_cast<OptimizerKind>(table.optimizer)};
    out.embeddings.emplace_back(InfoOf<wire::EmbeddingInfo>(table)).state_dim = spec.state_dim();
  }
  return out;
}

wire::Counters CountersOf(const StreamStats& stats) {
  const auto count = [](uint64_t value) { return static_cast<double>(value); };
  wire::Counters counters = {{{"batches", count(stats.batches)},
                              {"sampled_edges", count(stats.sampled_edges)},
                              {"input_nodes", count(stats.input_nodes)},
                              {"feature_bytes_read", count(stats.feature_bytes_read)},
                              {"topology_bytes_read", count(stats.topology_bytes_read)},
                              {"bytes_useful", count(stats.bytes_useful)},
                              {"read_requests", count(stats.read_requests)},
                              {"cache_lookups", count(stats.cache_lookups)},
                              {"cache_hits", count(stats.cache_hits)},
                              {"sample_seconds", stats.sample_seconds},
                              {"sample_wait_seconds", stats.sample_wait_seconds},
                              {"extract_seconds", stats.extract_seconds},
                              {"extract_wait_seconds", stats.extract_wait_seconds},
                              {"update_seconds", stats.update_seconds},
                              {"consumer_wait_seconds", stats.consumer_wait_seconds}}};
  if (stats.device_bytes > 0) {
    counters.counters.push_back({"device_bytes", count(stats.device_bytes)});
    counters.counters.push_back({"device_hits", count(stats.device_hits)});
  }
  return counters;
}

}  // namespace quarry
