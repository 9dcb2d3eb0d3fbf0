#include "pyg_block.h"

#include <algorithm>
#include <numeric>

namespace quarry::python {
namespace {

quarry_batch_arrays ArraysOf(const quarry_batch* batch) {
  quarry_batch_arrays arrays{};
  Check(quarry_batch_get(batch, &arrays, sizeof arrays));
  return arrays;
}

RecycledArray<int64_t, 1> Int64sOf(const auto* from, size_t count) {
  RecycledArray<int64_t, 1> made({count});
  std::copy_n(from, count, made.data());
  return made;
}

// Names that dictionaries of Python find by their address.
struct Names {
  static nb::str Interned(const char* name) { return nb::steal<nb::str>(PyUnicode_InternFromString(name)); }
  static const Names& Instance() {
    static const auto* const names =
        new Names;  // which outlives the interpreter, as nothing may be freed behind it
    return *names;
  }
  const nb::str batch_size = Interned("batch_size"), num_nodes = Interned("num_nodes"), x = Interned("x"),
                edge_index = Interned("edge_index"), n_id = Interned("n_id"), y = Interned("y"),
                e_id = Interned("e_id"), input_id = Interned("input_id"),
                num_sampled_nodes = Interned("num_sampled_nodes"),
                num_sampled_edges = Interned("num_sampled_edges"), mapping = Interned("_mapping"),
                parent = Interned("_parent"), store = Interned("_store");
};

nb::list ListOf(const std::vector<uint32_t>& counts) {
  nb::list list;
  for (const uint32_t count : counts) list.append(count);
  return list;
}

}  // namespace

PygBlock::PygBlock(const quarry_batch* batch, const PygPass& pass)
    : edge_index_({2, ArraysOf(batch).edge_count}), n_id_({ArraysOf(batch).node_count}) {
  const quarry_batch_arrays arrays = ArraysOf(batch);
  WriteEdges(arrays);
  std::copy_n(arrays.nodes, arrays.node_count, n_id_.data());
  if (!pass.sorted.empty()) WritePositions(arrays, pass);
  if (arrays.labels != nullptr) labels_ = Int64sOf(arrays.labels, arrays.seed_count);
  if (arrays.edge_ids != nullptr) edge_ids_ = Int64sOf(arrays.edge_ids, arrays.edge_count);
  hops_ = HopCounts(arrays);
}

HopCounts::HopCounts(const quarry_batch_arrays& arrays) {
  nodes_.push_back(arrays.hop_offsets[0]);
  uint32_t from = 0;
  for (uint32_t hop = 0; hop < arrays.hop_count; ++hop) {
    const uint32_t to = arrays.hop_offsets[hop];
    nodes_.push_back(arrays.hop_offsets[hop + 1] - to);
    edges_.push_back(arrays.indptr[to] - arrays.indptr[from]);
    from = to;
  }
}
nb::list HopCounts::NodeList() const { return ListOf(nodes_); }
nb::list HopCounts::EdgeList() const { return ListOf(edges_); }
uint64_t HopCounts::nodes() const { return std::reduce(nodes_.begin(), nodes_.end(), uint64_t{0}); }

void PygBlock::Gather(const quarry_batch* batch) {
  const quarry_batch_arrays arrays = ArraysOf(batch);
  if (arrays.dim == 0) return;
  x_.emplace(std::array<size_t, 2>{arrays.node_count, arrays.dim});
  Check(quarry_batch_gather(batch, QUARRY_FLOAT32, x_->data(), /*out_stride_bytes=*/0, /*threads=*/0));
}

void PygBlock::WriteEdges(const quarry_batch_arrays& arrays) {
  int64_t* const rows = edge_index_.data();
  int64_t* const cols = rows + arrays.edge_count;
  std::copy_n(arrays.indices, arrays.edge_count, rows);
  for (uint32_t target = 0; target < arrays.target_count; ++target) {
    std::fill(cols + arrays.indptr[target], cols + arrays.indptr[target + 1], int64_t{target});
  }
}

void PygBlock::WritePositions(const quarry_batch_arrays& arrays, const PygPass& pass) {
  positions_.emplace(std::array<size_t, 1>{arrays.seed_count});
  WriteSeedPositions(arrays, pass, positions_->data());
}

void WriteSeedPositions(const quarry_batch_arrays& arrays, const PygPass& pass, int64_t* at) {
  // A binary search of all seeds at once: their loads of a step do not wait for each other.
  std::fill_n(at, arrays.seed_count, 0);
  for (size_t left = pass.sorted.size(); left > 1; left -= left / 2) {
    const auto half = static_cast<int64_t>(left / 2);
    const uint32_t* const last = pass.sorted.data() + half - 1;
    for (uint32_t i = 0; i < arrays.seed_count; ++i) at[i] += last[at[i]] < arrays.nodes[i] ? half : 0;
  }
  if (pass.order.empty()) return;
  for (uint32_t i = 0; i < arrays.seed_count; ++i) at[i] = pass.order[static_cast<size_t>(at[i])];
}

nb::tuple PygBlock::ToArrays() {
  CheckOnce();
  const auto array = [](auto& owned) -> nb::object {
    return owned ? std::move(*owned).ToNumpy() : nb::none();
  };
  return nb::make_tuple(std::move(edge_index_).ToNumpy(), std::move(n_id_).ToNumpy(), array(positions_),
                        array(labels_), array(edge_ids_), hops_.NodeList(), hops_.EdgeList(), array(x_));
}

nb::dict PygBlock::ToAttributes(const nb::object& tensor_of) {
  CheckOnce();
  const Names& names = Names::Instance();
  nb::dict made;
  made[names.batch_size] = nb::int_(hops_.seeds());
  made[names.num_nodes] = nb::int_(hops_.nodes());
  const auto tensor = [&](const nb::str& name, auto& owned) {
    if (owned) made[name] = tensor_of(std::move(*owned).ToDlpack());
  };
  tensor(names.x, x_);
  made[names.edge_index] = tensor_of(std::move(edge_index_).ToDlpack());
  made[names.n_id] = tensor_of(std::move(n_id_).ToDlpack());
  tensor(names.y, labels_);
  tensor(names.e_id, edge_ids_);
  tensor(names.input_id, positions_);
  made[names.num_sampled_nodes] = hops_.NodeList();
  made[names.num_sampled_edges] = hops_.EdgeList();
  return made;
}

void PygBlock::CheckOnce() {
  if (std::exchange(taken_, true)) throw Failure{QUARRY_USAGE, "what this block has was taken"};
}

PygData::PygData(nb::object tensor_of, nb::object data, nb::object store, nb::dict fields)
    : tensor_of_(std::move(tensor_of)),
      data_(std::move(data)),
      store_(std::move(store)),
      fields_(std::move(fields)) {
  for (const nb::object& type : {data_, store_}) {
    if (PyType_Check(type.ptr()) == 0) throw Failure{QUARRY_USAGE, "a Data is made of two types"};
  }
}

PygData::Blank::Blank(const nb::object& type) {
  auto* const of = reinterpret_cast<PyTypeObject*>(type.ptr());
  const auto make = reinterpret_cast<newfunc>(PyType_GetSlot(of, Py_tp_new));
  object = nb::steal(make(of, nb::tuple().ptr(), nullptr));
  if (object.is_valid()) fields = nb::steal(PyObject_GenericGetDict(object.ptr(), nullptr));
  if (!fields.is_valid()) throw nb::python_error();
}

nb::object PygData::Of(PygBlock& block) const {
  const Names& names = Names::Instance();
  const nb::dict attributes = block.ToAttributes(tensor_of_);
  Blank data(data_), store(store_);
  const nb::object parent = nb::steal(PyWeakref_NewRef(data.object.ptr(), nullptr));
  if (!parent.is_valid()) throw nb::python_error();
  const auto set = [](const nb::object& fields, const nb::str& name, const nb::object& value) {
    if (PyDict_SetItem(fields.ptr(), name.ptr(), value.ptr()) != 0) throw nb::python_error();
  };
  set(store.fields, names.mapping, attributes);
  set(store.fields, names.parent, parent);
  if (PyDict_Update(data.fields.ptr(), fields_.ptr()) != 0) throw nb::python_error();
  set(data.fields, names.store, store.object);
  return std::move(data.object);
}

void Preparation::Run(const quarry_batch* batch, void* preparation) noexcept {
  auto& self = *static_cast<Preparation*>(preparation);
  self.made_ = nullptr;
  self.error_ = nullptr;
  try {
    self.made_ = std::make_unique<PygBlock>(batch, *self.pass_);
  } catch (...) {
    self.error_ = std::current_exception();
  }
}

std::unique_ptr<PygBlock> Preparation::Take() {
  if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
  return std::move(made_);
}

}  // namespace quarry::python
