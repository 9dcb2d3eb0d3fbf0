// The C interface: stores, what there is, rows, snapshots, embeddings, counters.
#include "handles.h"
#include "options.h"
#include "quarry/format/element_type.h"
#include "rows_out.h"

namespace {

thread_local std::string last_error;

template <typename T>
void Append(std::vector<std::byte>& block, const T* values, size_t count) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(values);
  if (values != nullptr) block.insert(block.end(), bytes, bytes + count * sizeof(T));
}

std::vector<quarry::wire::PutRows> TablesOf(std::span<const quarry_put_rows> tables) {
  std::vector<quarry::wire::PutRows> out;
  for (const quarry_put_rows& rows : tables) {
    std::vector<std::byte> block;
    Append(block, rows.ids, rows.count);
    Append(block, static_cast<const std::byte*>(rows.rows), rows.count * rows.row_bytes);
    out.push_back({.table = quarry::client::TextOr(rows.table, ""),
                   .rows = rows.count,
                   .row_bytes = rows.row_bytes,
                   .block = std::move(block)});
  }
  return out;
}

quarry::wire::PutGraph GraphOf(const quarry_graph_change& change) {
  quarry::wire::PutGraph graph = {.topology = quarry::client::TextOr(change.topology, "graph"),
                                  .first_node = change.first_node,
                                  .nodes = change.nodes,
                                  .edges = change.edge_count,
                                  .weighted = change.weights != nullptr,
                                  .remove = change.remove != 0,
                                  .removed_nodes = change.removed_node_count,
                                  .relation = change.relation,
                                  .node_type = quarry::client::TextOr(change.node_type, "")};
  for (size_t i = 0; i < change.name_count; ++i) {
    graph.names.push_back(quarry::client::TextOr(change.names[i], ""));
  }
  std::vector<std::byte> block;
  Append(block, change.sources, change.edge_count);
  Append(block, change.destinations, change.edge_count);
  Append(block, change.weights, change.edge_count);
  Append(block, change.removed_nodes, change.removed_node_count);
  graph.block = std::move(block);
  return graph;
}

void TellChanged(const quarry::wire::GraphChanged& done, quarry_graph_changed* changed, size_t bytes) {
  if (changed == nullptr) return;
  const quarry_graph_changed out = {.timestamp = done.timestamp,
                                    .added = done.added,
                                    .removed = done.removed,
                                    .present = done.present,
                                    .absent = done.absent,
                                    .first_node = done.first_node,
                                    .nodes_added = done.nodes_added,
                                    .node_count = done.node_count,
                                    .edge_count = done.edge_count,
                                    .runs = done.runs,
                                    .nodes_removed = done.nodes_removed};
  std::memcpy(changed, &out, std::min(bytes, sizeof(out)));
}

}  // namespace

namespace quarry::client {

int Tell(const Status& status) {
  try {
    last_error = status.message();
  } catch (const std::bad_alloc&) {
    last_error.clear();
  }
  return static_cast<int>(status.code());
}

}  // namespace quarry::client

using quarry::Code;
using quarry::MakeStatus;
using quarry::Status;
using quarry::client::Ends;
using quarry::client::Given;
using quarry::client::ListOf;
using quarry::client::TakeOptions;
using quarry::client::TakesAllBut;
namespace wire = quarry::wire;

// Names are the description's; the structs point to them.
struct quarry_description {
  wire::Description description;
  std::vector<quarry_table_info> tables;
  std::vector<quarry_topology_info> topologies;
  std::vector<quarry_layout_info> layouts;
  std::vector<quarry_embedding_info> embeddings;
};

uint32_t quarry_abi_version(void) { return QUARRY_ABI_VERSION; }
const char* quarry_last_error(void) { return last_error.c_str(); }

int quarry_open(const char* address, const quarry_open_options* options, quarry_store** store) {
  return Ends([&]() -> Status {
    if (address == nullptr) return MakeStatus(Code::kUsage, "no address is given");
    QUARRY_TRY(const quarry_open_options given, Given(options, "quarry_open_options"));
    static_assert(TakesAllBut<quarry_open_options, quarry::client::OpenOptions>({}));
    quarry::client::OpenOptions open;
    QUARRY_RETURN_IF_ERROR(TakeOptions(given, open));
    QUARRY_TRY(auto opened, quarry::client::Open(address, open));
    *store = new quarry_store{std::move(opened)};
    return Status();
  });
}
void quarry_close(quarry_store* store) { delete store; }
int quarry_ping(quarry_store* store) {
  return Ends([&] { return store->store->Ping(); });
}

int quarry_describe(quarry_store* store, quarry_description** description) {
  return Ends([&]() -> Status {
    QUARRY_TRY(wire::Description told, store->store->Describe());
    auto out = std::make_unique<quarry_description>();
    out->description = std::move(told);
    for (const wire::TableInfo& table : out->description.tables) {
      out->tables.push_back({.name = table.name.c_str(),
                             .row_count = table.row_count,
                             .dim = table.dim,
                             .row_bytes = quarry::RowBytes(table.element_type, table.dim),
                             .element_type = static_cast<int>(table.element_type)});
    }
    for (const wire::TopologyInfo& topology : out->description.topologies) {
      out->topologies.push_back({topology.name.c_str(), topology.node_count, topology.edge_count});
    }
    for (const wire::LayoutInfo& layout : out->description.layouts) {
      out->layouts.push_back({.name = layout.name.c_str(),
                              .batch_count = layout.batch_count,
                              .seed = layout.spec.seed,
                              .batch_size = layout.spec.batch_size,
                              .epochs = layout.epochs,
                              .servable = layout.servable ? 1 : 0});
    }
    for (const wire::EmbeddingInfo& table : out->description.embeddings) {
      out->embeddings.push_back({table.name.c_str(), table.row_count, table.dim, table.state_dim});
    }
    *description = out.release();
    return Status();
  });
}
void quarry_description_free(quarry_description* description) { delete description; }
uint64_t quarry_node_count(const quarry_description* description) {
  return description->description.node_count;
}
uint64_t quarry_class_count(const quarry_description* description) {
  return description->description.class_count;
}

namespace {
template <typename T>
const T* AtOrNull(const std::vector<T>& list, size_t i) {
  return i < list.size() ? &list[i] : nullptr;
}
}  // namespace

const quarry_table_info* quarry_table(const quarry_description* description, size_t i) {
  return AtOrNull(description->tables, i);
}
const quarry_topology_info* quarry_topology(const quarry_description* description, size_t i) {
  return AtOrNull(description->topologies, i);
}
const quarry_layout_info* quarry_layout(const quarry_description* description, size_t i) {
  return AtOrNull(description->layouts, i);
}
const quarry_embedding_info* quarry_embedding(const quarry_description* description, size_t i) {
  return AtOrNull(description->embeddings, i);
}

int quarry_take_snapshot(quarry_store* store, quarry_snapshot** snapshot) {
  return Ends([&]() -> Status {
    QUARRY_TRY(auto taken, store->store->TakeSnapshot());
    *snapshot = new quarry_snapshot{std::move(taken)};
    return Status();
  });
}
void quarry_snapshot_free(quarry_snapshot* snapshot) { delete snapshot; }
uint64_t quarry_snapshot_timestamp(const quarry_snapshot* snapshot) {
  return snapshot->snapshot->timestamp();
}

int quarry_lookup(quarry_store* store, const char* table, const uint32_t* ids, size_t count,
                  const quarry_snapshot* snapshot, quarry_rows** rows) {
  return Ends([&]() -> Status {
    QUARRY_TRY(auto found, store->store->Lookup({.table = quarry::client::TextOr(table, ""),
                                                 .ids = ListOf(ids, count),
                                                 .snapshot = quarry::client::IdOf(snapshot)}));
    *rows = new quarry_rows{std::move(found)};
    return Status();
  });
}
void quarry_rows_free(quarry_rows* rows) { delete rows; }
uint64_t quarry_rows_count(const quarry_rows* rows) { return rows->rows->count(); }
uint32_t quarry_rows_dim(const quarry_rows* rows) { return rows->rows->dim(); }
int quarry_rows_element_type(const quarry_rows* rows) { return static_cast<int>(rows->rows->element_type()); }
const void* quarry_rows_data(const quarry_rows* rows, uint64_t* bytes) {
  if (bytes != nullptr) *bytes = rows->rows->bytes().size();
  return rows->rows->bytes().data();
}
int quarry_rows_float32(const quarry_rows* rows, float* out, size_t count) {
  return Ends([&]() -> Status {
    const quarry::client::Rows& from = *rows->rows;
    const uint64_t floats = from.count() * from.dim();
    if (!quarry::IsFloatType(from.element_type()) || count != floats) {
      return MakeStatus(Code::kInvalidArgument, "{} floats for {} rows of {} elements of type {}", count,
                        from.count(), from.dim(), quarry::ElementTypeName(from.element_type()));
    }
    const uint64_t row_bytes = quarry::RowBytes(from.element_type(), from.dim());
    for (uint64_t i = 0; i < from.count(); ++i) {
      quarry::DecodeRow(from.element_type(), from.bytes().subspan(i * row_bytes, row_bytes),
                        {out + i * from.dim(), from.dim()});
    }
    return Status();
  });
}
int quarry_lookup_into(quarry_store* store, const char* table, const uint32_t* ids, size_t count,
                       const quarry_snapshot* snapshot, int element_type, void* out,
                       uint64_t out_stride_bytes) {
  return Ends([&]() -> Status {
    QUARRY_TRY(const auto found, store->store->Lookup({.table = quarry::client::TextOr(table, ""),
                                                       .ids = ListOf(ids, count),
                                                       .snapshot = quarry::client::IdOf(snapshot)}));
    return quarry::client::WriteRows({.base = found->bytes().data(),
                                      .stride_bytes = quarry::RowBytes(found->element_type(), found->dim()),
                                      .count = found->count(),
                                      .element_type = found->element_type(),
                                      .dim = found->dim()},
                                     {element_type, out, out_stride_bytes}, 0);
  });
}

int quarry_put(quarry_store* store, const quarry_put_rows* tables, size_t table_count, int sync,
               uint64_t* timestamp) {
  return Ends([&]() -> Status {
    QUARRY_TRY(*timestamp, store->store->Put({.sync = sync != 0, .tables = TablesOf({tables, table_count})}));
    return Status();
  });
}
int quarry_change_graph(quarry_store* store, const quarry_graph_change* change, const quarry_put_rows* tables,
                        size_t table_count, quarry_graph_changed* changed, size_t changed_bytes) {
  return Ends([&]() -> Status {
    QUARRY_TRY(const quarry_graph_change given, Given(change, "quarry_graph_change"));
    QUARRY_TRY(
        const wire::GraphChanged done,
        store->store->ChangeGraph({.tables = TablesOf({tables, table_count}), .graph = GraphOf(given)}));
    TellChanged(done, changed, changed_bytes);
    return Status();
  });
}

int quarry_begin_put(quarry_store* store, const quarry_graph_change* graph, quarry_large_put** put) {
  return Ends([&]() -> Status {
    std::optional<wire::PutGraph> first;
    if (graph != nullptr) {
      QUARRY_TRY(const quarry_graph_change given, Given(graph, "quarry_graph_change"));
      first = GraphOf(given);
    }
    auto out = std::make_unique<quarry_large_put>();
    if (first) out->graph = first->Nodes();
    QUARRY_TRY(out->put, store->store->BeginPut(first));
    *put = out.release();
    return Status();
  });
}
int quarry_put_more(quarry_large_put* put, const quarry_put_rows* tables, size_t table_count) {
  return Ends([&] { return put->put->Add(TablesOf({tables, table_count})); });
}
int quarry_change_more(quarry_large_put* put, const quarry_graph_change* change) {
  return Ends([&]() -> Status {
    QUARRY_TRY(const quarry_graph_change given, Given(change, "quarry_graph_change"));
    wire::PutGraph some = GraphOf(given);
    if (put->graph) {
      if (given.topology == nullptr) some.topology = put->graph->topology;
      if (given.node_type == nullptr) some.node_type = put->graph->node_type;
      if (given.nodes == 0 && given.first_node == 0) {
        some.nodes = put->graph->nodes;
        some.first_node = put->graph->first_node;
      }
    }
    return put->put->Change(some);
  });
}
int quarry_commit_put(quarry_large_put* put, quarry_graph_changed* changed, size_t changed_bytes) {
  return Ends([&]() -> Status {
    QUARRY_TRY(const uint64_t timestamp, put->put->Commit());
    wire::GraphChanged done = put->put->changed();
    done.timestamp = timestamp;
    TellChanged(done, changed, changed_bytes);
    return Status();
  });
}
void quarry_large_put_free(quarry_large_put* put) { delete put; }
int quarry_encode_row(int element_type, const float* values, uint32_t dim, void* row, size_t row_bytes) {
  return Ends([&]() -> Status {
    const auto type = static_cast<quarry::ElementType>(element_type);
    const bool known = element_type >= QUARRY_FLOAT32 && element_type <= QUARRY_INT8;
    if (!known || row_bytes != quarry::RowBytes(type, dim)) {
      return MakeStatus(Code::kInvalidArgument, "{} bytes are no row of {} elements of type {}", row_bytes,
                        dim, element_type);
    }
    quarry::EncodeRow(type, {values, dim}, {static_cast<std::byte*>(row), row_bytes});
    return Status();
  });
}

int quarry_read_embeddings(quarry_store* store, const char* table, const uint64_t* ids, size_t count,
                           quarry_embedding_rows** rows) {
  return Ends([&]() -> Status {
    QUARRY_TRY(auto read, store->store->ReadEmbeddings(quarry::client::TextOr(table, ""), {ids, count}));
    *rows = new quarry_embedding_rows{std::move(read)};
    return Status();
  });
}
void quarry_embedding_rows_free(quarry_embedding_rows* rows) { delete rows; }
int quarry_embedding_rows_get(quarry_embedding_rows* rows, quarry_embedding_arrays* arrays,
                              size_t arrays_bytes) {
  return Ends([&]() -> Status {
    const auto from = rows->rows->arrays();
    const quarry_embedding_arrays out = {.row_count = rows->rows->shape().rows,
                                         .dim = rows->rows->shape().dim,
                                         .state_dim = rows->rows->shape().state_dim,
                                         .ids = from.ids.data(),
                                         .timestamps = from.timestamps.data(),
                                         .values = from.values.data(),
                                         .state = from.state.data()};
    std::memcpy(arrays, &out, std::min(arrays_bytes, sizeof(out)));
    return Status();
  });
}
int quarry_commit_embeddings(quarry_store* store, const char* const* tables,
                             quarry_embedding_rows* const* rows, size_t count, int64_t* timestamp,
                             uint64_t* stale_rows) {
  return Ends([&]() -> Status {
    std::vector<quarry::client::Store::Update> updates;
    for (size_t i = 0; i < count; ++i) updates.push_back({.table = tables[i], .rows = rows[i]->rows.get()});
    QUARRY_TRY(const wire::EmbeddingsCommitted committed, store->store->CommitEmbeddings(updates));
    *timestamp = committed.timestamp;
    if (stale_rows != nullptr) *stale_rows = committed.stale_rows;
    return Status();
  });
}

int quarry_stats(quarry_store* store, quarry_counters** counters) {
  return Ends([&]() -> Status {
    QUARRY_TRY(wire::Counters counted, store->store->Stats());
    *counters = new quarry_counters{std::move(counted)};
    return Status();
  });
}
int quarry_stream_stats(quarry_stream* stream, quarry_counters** counters) {
  return Ends([&]() -> Status {
    stream->asker.Settle();
    QUARRY_TRY(wire::Counters counted, stream->stream->Stats());
    *counters = new quarry_counters{std::move(counted)};
    return Status();
  });
}
void quarry_counters_free(quarry_counters* counters) { delete counters; }
size_t quarry_counters_count(const quarry_counters* counters) { return counters->counters.counters.size(); }
const char* quarry_counter_name(const quarry_counters* counters, size_t i) {
  const wire::Counter* const counter = AtOrNull(counters->counters.counters, i);
  return counter == nullptr ? nullptr : counter->name.c_str();
}
double quarry_counter_value(const quarry_counters* counters, size_t i) {
  const wire::Counter* const counter = AtOrNull(counters->counters.counters, i);
  return counter == nullptr ? 0 : counter->value;
}
