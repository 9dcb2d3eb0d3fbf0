// Stores, what there is in them, rows and snapshots.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <tuple>

#include "bindings.h"

namespace quarry::python {
namespace {

Store Open(const std::string& address, uint64_t memory_bytes, double timeout_seconds) {
  quarry_open_options options{};
  options.size = sizeof options;
  options.memory_bytes = memory_bytes;
  options.timeout_seconds = timeout_seconds;
  quarry_store* store = nullptr;
  {
    const nb::gil_scoped_release free;
    Check(quarry_open(address.c_str(), &options, &store));
  }
  return {std::make_shared<StoreHandle>(store, nullptr)};
}

nb::dict Describe(const Store& store) {
  const std::shared_ptr<StoreHandle> held = store.handle;
  quarry_store* const handle = held->get();
  quarry_description* raw = nullptr;
  {
    const nb::gil_scoped_release free;
    Check(quarry_describe(handle, &raw));
  }
  const std::unique_ptr<quarry_description, decltype(&quarry_description_free)> told(raw,
                                                                                     quarry_description_free);
  nb::list tables, topologies, layouts, embeddings;
  for (size_t i = 0; const quarry_table_info* table = quarry_table(raw, i); ++i) {
    tables.append(
        nb::make_tuple(table->name, table->row_count, table->dim, table->row_bytes, table->element_type));
  }
  for (size_t i = 0; const quarry_topology_info* topology = quarry_topology(raw, i); ++i) {
    topologies.append(nb::make_tuple(topology->name, topology->node_count, topology->edge_count));
  }
  for (size_t i = 0; const quarry_layout_info* layout = quarry_layout(raw, i); ++i) {
    layouts.append(nb::make_tuple(layout->name, layout->batch_count, layout->batch_size, layout->epochs,
                                  layout->seed, layout->servable != 0));
  }
  for (size_t i = 0; const quarry_embedding_info* table = quarry_embedding(raw, i); ++i) {
    embeddings.append(nb::make_tuple(table->name, table->row_count, table->dim, table->state_dim));
  }
  nb::dict out;
  out["nodes"] = quarry_node_count(raw);
  out["classes"] = quarry_class_count(raw);
  out["tables"] = tables;
  out["topologies"] = topologies;
  out["layouts"] = layouts;
  out["embeddings"] = embeddings;
  return out;
}

void CheckRoom(const Out& out, uint64_t bytes) {
  if (out.nbytes() < bytes) {
    throw Failure{QUARRY_USAGE, "the array to write to has " + std::to_string(out.nbytes()) +
                                    " bytes, and the rows have " + std::to_string(bytes)};
  }
}

// `row_bytes`: of a row as `out` has it.
void Lookup(const Store& store, const std::string& table, const Ids& ids, const Snapshot* snapshot,
            int element_type, const Out& out, uint64_t row_bytes) {
  CheckRoom(out, ids.size() * row_bytes);
  const std::shared_ptr<StoreHandle> held = store.handle;
  quarry_store* const handle = held->get();
  const std::shared_ptr<SnapshotHandle> as_of_held = snapshot == nullptr ? nullptr : snapshot->handle;
  const quarry_snapshot* const as_of = PointerTo(snapshot);
  const nb::gil_scoped_release free;
  Check(quarry_lookup_into(handle, table.c_str(), ids.data(), ids.size(), as_of, element_type, out.data(),
                           row_bytes));
}

using PutIds = nb::ndarray<const uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using PutRows = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// Rows of each table by their ids; without any they are deleted.
using PutTables = std::vector<std::tuple<std::string, PutIds, std::optional<PutRows>>>;

// Arrays and names outlive it.
std::vector<quarry_put_rows> PutsOf(const PutTables& tables) {
  std::vector<quarry_put_rows> puts;
  for (const auto& [table, ids, rows] : tables) {
    quarry_put_rows put{};
    put.table = table.c_str();
    put.ids = ids.data();
    put.count = ids.size();
    if (rows) {
      if (rows->shape(0) != ids.size()) {
        throw Failure{QUARRY_USAGE, std::to_string(rows->shape(0)) + " rows of table '" + table + "' for " +
                                        std::to_string(ids.size()) + " ids"};
      }
      put.rows = rows->data();
      put.row_bytes = static_cast<uint32_t>(rows->shape(1));
    }
    puts.push_back(put);
  }
  return puts;
}

uint64_t Put(const Store& store, const PutTables& tables, bool sync) {
  const std::vector<quarry_put_rows> puts = PutsOf(tables);
  const std::shared_ptr<StoreHandle> held = store.handle;
  quarry_store* const handle = held->get();
  uint64_t timestamp = 0;
  const nb::gil_scoped_release free;
  Check(quarry_put(handle, puts.data(), puts.size(), sync ? 1 : 0, &timestamp));
  return timestamp;
}

using Ends = nb::ndarray<const uint32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using RemovedNodes = nb::ndarray<const uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Weights = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// So many nodes from `first_node` on, which follow the last one, with rows of them, and edges: what became of the graph, by
// name. `node_type`: empty where nodes have none.
nb::dict ChangeGraph(const Store& store, const std::string& topology, uint64_t first_node, uint64_t nodes,
                     const std::string& node_type, const PutTables& tables,
                     const std::vector<std::string>& names, const Ends& edges,
                     const std::optional<Weights>& weights, bool remove, const RemovedNodes& removed,
                     uint32_t relation) {
  if (edges.shape(0) != 2) throw Failure{QUARRY_USAGE, "edges are two rows: sources and destinations"};
  if (weights && weights->size() != edges.shape(1)) {
    throw Failure{QUARRY_USAGE, std::to_string(weights->size()) + " weights for " +
                                    std::to_string(edges.shape(1)) + " edges"};
  }
  const std::vector<quarry_put_rows> puts = PutsOf(tables);
  std::vector<const char*> texts;
  for (const std::string& name : names) texts.push_back(name.c_str());
  quarry_graph_change change{};
  change.size = sizeof(change);
  change.topology = topology.c_str();
  change.first_node = first_node;
  change.nodes = nodes;
  change.node_type = node_type.c_str();
  change.names = texts.data();
  change.name_count = texts.size();
  change.sources = edges.data();
  change.destinations = edges.data() + edges.shape(1);
  change.weights = weights ? weights->data() : nullptr;
  change.edge_count = edges.shape(1);
  change.remove = remove ? 1 : 0;
  change.removed_nodes = removed.data();
  change.removed_node_count = removed.size();
  change.relation = relation;
  const std::shared_ptr<StoreHandle> held = store.handle;
  quarry_store* const handle = held->get();
  quarry_graph_changed done{};
  {
    const nb::gil_scoped_release free;
    Check(quarry_change_graph(handle, &change, puts.data(), puts.size(), &done, sizeof(done)));
  }
  nb::dict out;
  out["timestamp"] = done.timestamp;
  out["added"] = done.added;
  out["removed"] = done.removed;
  out["present"] = done.present;
  out["absent"] = done.absent;
  out["first_node"] = done.first_node;
  out["nodes_added"] = done.nodes_added;
  out["nodes_removed"] = done.nodes_removed;
  out["nodes"] = done.node_count;
  out["edges"] = done.edge_count;
  out["runs"] = done.runs;
  return out;
}

void Encode(int element_type,
            const nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>& rows,
            const nb::ndarray<uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>& out) {
  if (rows.shape(0) != out.shape(0)) throw Failure{QUARRY_USAGE, "not as many rows to write as to encode"};
  const nb::gil_scoped_release free;
  for (size_t i = 0; i < rows.shape(0); ++i) {
    Check(quarry_encode_row(element_type, rows.data() + i * rows.shape(1),
                            static_cast<uint32_t>(rows.shape(1)), out.data() + i * out.shape(1),
                            out.shape(1)));
  }
}

Snapshot TakeSnapshot(const Store& store) {
  const std::shared_ptr<StoreHandle> held = store.handle;
  quarry_store* const handle = held->get();
  quarry_snapshot* snapshot = nullptr;
  {
    const nb::gil_scoped_release free;
    Check(quarry_take_snapshot(handle, &snapshot));
  }
  return {std::make_shared<SnapshotHandle>(snapshot, held)};
}

// Head, relation and tail of each edge, to `out`; how many there were.
uint64_t ReadEdges(const Store& store, const std::string& topology, uint64_t first,
                   const nb::ndarray<uint32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>& out) {
  if (out.shape(1) != 3) throw Failure{QUARRY_USAGE, "edges are rows of three"};
  const std::shared_ptr<StoreHandle> held = store.handle;
  quarry_store* const handle = held->get();
  uint64_t count = 0;
  const nb::gil_scoped_release free;
  Check(quarry_read_edges(handle, topology.c_str(), first, out.shape(0), out.data(), &count));
  return count;
}

nb::dict Stats(const Store& store) {
  const std::shared_ptr<StoreHandle> held = store.handle;
  quarry_store* const handle = held->get();
  quarry_counters* counters = nullptr;
  {
    const nb::gil_scoped_release free;
    Check(quarry_stats(handle, &counters));
  }
  return DictOf(counters);
}

}  // namespace

nb::class_<Store> BindTables(nb::module_& module) {
  nb::class_<Snapshot>(module, "Snapshot")
      .def_prop_ro("timestamp",
                   [](const Snapshot& self) { return quarry_snapshot_timestamp(self.handle->get()); })
      .def("close", [](Snapshot& self) {
        // A lookup of another thread may still read it.
        self.handle = std::make_shared<SnapshotHandle>(nullptr, nullptr);
        self.handle->Release("the snapshot is closed");
      });
  module.def("encode", Encode, nb::arg("element_type"), nb::arg("rows"), nb::arg("out"));
  nb::class_<Store> store(module, "Store");
  store.def_static("open", Open, nb::arg("address"), nb::arg("memory_bytes"), nb::arg("timeout_seconds"))
      .def("close",
           [](Store& self) {
             // Streams and snapshots that are still there keep the store until they go.
             std::shared_ptr<StoreHandle> mine = std::move(self.handle);
             self.handle = std::make_shared<StoreHandle>(nullptr, nullptr);
             self.handle->Release("the database is closed");
             const nb::gil_scoped_release free;
             mine.reset();
           })
      .def("ping",
           [](const Store& self) {
             const std::shared_ptr<StoreHandle> held = self.handle;
             quarry_store* const handle = held->get();
             const nb::gil_scoped_release free;
             Check(quarry_ping(handle));
           })
      .def("describe", Describe)
      .def("stats", Stats)
      .def("lookup", Lookup, nb::arg("table"), nb::arg("ids"), nb::arg("snapshot").none(),
           nb::arg("element_type"), nb::arg("out"), nb::arg("row_bytes"))
      .def("put", Put, nb::arg("tables"), nb::arg("sync"))
      .def("change_graph", ChangeGraph, nb::arg("topology"), nb::arg("first_node"), nb::arg("nodes"),
           nb::arg("node_type"), nb::arg("tables"), nb::arg("names"), nb::arg("edges"),
           nb::arg("weights").none(), nb::arg("remove"), nb::arg("removed"), nb::arg("relation"))
      .def("take_snapshot", TakeSnapshot)
      .def("read_edges", ReadEdges, nb::arg("topology"), nb::arg("first"), nb::arg("out"));
  return store;
}

}  // namespace quarry::python
