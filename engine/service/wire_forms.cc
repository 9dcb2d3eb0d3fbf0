#include "quarry/service/wire_forms.h"

#include "quarry/embedding/embedding_table.h"
#include "quarry/layout/layout.h"

namespace quarry {
namespace {

wire::LayoutInfo InfoOf(const Manifest& manifest, const LayoutRecord& layout) {
  return {.name = layout.name,
          .spec = layout.spec,
          .policy = layout.policy,
          .epochs = layout.epochs,
          .batch_count = layout.batch_count,
          .cache_rows = layout.cache_rows,
          .file_bytes = layout.total_bytes(),
          .servable = IsServable(manifest, layout),
          .batches_per_segment = layout.batches_per_segment};
}

wire::EmbeddingInfo InfoOf(const EmbeddingRecord& table) {
  const EmbeddingSpec spec = {.dim = table.dim, .optimizer = static_cast<OptimizerKind>(table.optimizer)};
  return {.name = table.name,
          .row_count = table.row_count,
          .dim = table.dim,
          .state_dim = spec.state_dim(),
          .element_type = table.element_type,
          .optimizer = table.optimizer};
}

}  // namespace

wire::Description DescriptionOf(const Store& store) {
  const std::shared_ptr<const Manifest> held = store.manifest();
  const Manifest& manifest = *held;
  wire::Description out = {.database_id = manifest.database_id,
                           .node_count = manifest.node_count,
                           .class_count = manifest.class_count,
                           .path = store.path()};
  for (const TableRecord& table : manifest.tables) {
    out.tables.push_back({.name = table.name,
                          .element_type = table.element_type,
                          .row_count = table.row_count,
                          .dim = table.dim,
                          .generation = table.generation});
  }
  for (const TopologyRecord& topology : manifest.topologies) {
    out.topologies.push_back({.name = topology.name,
                              .node_count = topology.node_count,
                              .edge_count = topology.edge_count,
                              .relation_count = topology.relation_count,
                              .has_csr = topology.has_csr,
                              .undirected = topology.undirected,
                              .deduplicated = topology.deduplicated,
                              .weighted = topology.weighted});
  }
  for (const LayoutRecord& layout : manifest.layouts) out.layouts.push_back(InfoOf(manifest, layout));
  for (const EmbeddingRecord& table : manifest.embeddings) out.embeddings.push_back(InfoOf(table));
  return out;
}

wire::Counters CountersOf(const StreamStats& stats) {
  const auto count = [](uint64_t value) { return static_cast<double>(value); };
  return {{{"batches", count(stats.batches)},
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
}

}  // namespace quarry
