// Embedding tables, and states of training runs.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "bindings.h"

namespace quarry::python {
namespace {

// Both are memory of their own, which may outlive the store.
using EmbeddingRowsHandle = Handle<quarry_embedding_rows, quarry_embedding_rows_free>;
using TrainingHandle = Handle<quarry_training, quarry_training_free>;

struct EmbeddingRows {
  std::shared_ptr<EmbeddingRowsHandle> handle;

  quarry_embedding_arrays arrays() const {
    quarry_embedding_arrays out{};
    Check(quarry_embedding_rows_get(handle->get(), &out, sizeof out));
    return out;
  }
};

struct Training {
  std::shared_ptr<TrainingHandle> handle;
};

// A view that keeps the rows until NumPy, and whoever took the array from there, lets it go.
template <typename T, size_t kDimensions>
nb::ndarray<nb::numpy, T, nb::ndim<kDimensions>> ViewOf(const EmbeddingRows& rows, T* data,
                                                        const size_t (&shape)[kDimensions]) {
  const nb::capsule owner(new EmbeddingRows(rows),
                          [](void* kept) noexcept { delete static_cast<EmbeddingRows*>(kept); });
  static std::remove_const_t<T> nothing{};
  return nb::ndarray<nb::numpy, T, nb::ndim<kDimensions>>(data == nullptr ? &nothing : data, kDimensions,
                                                          shape, owner);
}

using RowIds = nb::ndarray<const uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

EmbeddingRows ReadEmbeddings(const Store& store, const std::string& table, const RowIds& ids) {
  const std::shared_ptr<StoreHandle> held = store.handle;
  quarry_store* const handle = held->get();
  quarry_embedding_rows* rows = nullptr;
  {
    const nb::gil_scoped_release free;
    Check(quarry_read_embeddings(handle, table.c_str(), ids.data(), ids.size(), &rows));
  }
  return {std::make_shared<EmbeddingRowsHandle>(rows, nullptr)};
}

// The timestamp of the commit and 0; or -1 and how many rows were written since they were read.
std::tuple<int64_t, uint64_t> CommitEmbeddings(
    const Store& store, const std::vector<std::tuple<std::string, EmbeddingRows>>& updates) {
  const std::shared_ptr<StoreHandle> held = store.handle;
  quarry_store* const handle = held->get();
  std::vector<const char*> tables;
  std::vector<quarry_embedding_rows*> rows;
  for (const auto& [table, block] : updates) {
    tables.push_back(table.c_str());
    rows.push_back(block.handle->get());
  }
  int64_t timestamp = -1;
  uint64_t stale_rows = 0;
  const nb::gil_scoped_release free;
  Check(quarry_commit_embeddings(handle, tables.data(), rows.data(), rows.size(), &timestamp, &stale_rows));
  return {timestamp, stale_rows};
}

void CreateEmbeddings(const Store& store, const std::string& table, uint64_t row_count, uint32_t dim,
                      int optimizer, int element_type, int init, float init_scale, uint64_t seed) {
  quarry_embedding_spec spec{};
  spec.size = sizeof spec;
  spec.row_count = row_count;
  spec.dim = dim;
  spec.optimizer = optimizer;
  spec.element_type = element_type;
  spec.init = init;
  spec.init_scale = init_scale;
  spec.seed = seed;
  const std::shared_ptr<StoreHandle> held = store.handle;
  quarry_store* const handle = held->get();
  const nb::gil_scoped_release free;
  Check(quarry_create_embeddings(handle, table.c_str(), &spec));
}

void DropEmbeddings(const Store& store, const std::string& table) {
  const std::shared_ptr<StoreHandle> held = store.handle;
  quarry_store* const handle = held->get();
  const nb::gil_scoped_release free;
  Check(quarry_drop_embeddings(handle, table.c_str()));
}

Training ReadTraining(const Store& store, const std::string& name, bool with_state) {
  const std::shared_ptr<StoreHandle> held = store.handle;
  quarry_store* const handle = held->get();
  quarry_training* training = nullptr;
  {
    const nb::gil_scoped_release free;
    Check(quarry_read_training(handle, name.c_str(), with_state ? 1 : 0, &training));
  }
  return {std::make_shared<TrainingHandle>(training, nullptr)};
}

Training SaveTraining(const Store& store, const std::string& name, const std::string& settings,
                      const nb::bytes& state, bool with_embeddings) {
  quarry_training_to_save save{};
  save.size = sizeof save;
  save.name = name.c_str();
  save.settings = settings.c_str();
  save.state = state.data();
  save.state_bytes = state.size();
  save.with_embeddings = with_embeddings ? 1 : 0;
  const std::shared_ptr<StoreHandle> held = store.handle;
  quarry_store* const handle = held->get();
  quarry_training* training = nullptr;
  {
    const nb::gil_scoped_release free;
    Check(quarry_save_training(handle, &save, &training));
  }
  return {std::make_shared<TrainingHandle>(training, nullptr)};
}

nb::bytes StateOf(const Training& training) {
  uint64_t bytes = 0;
  const void* const state = quarry_training_state(training.handle->get(), &bytes);
  return nb::bytes(state == nullptr ? "" : state, bytes);
}

}  // namespace

void BindTraining(nb::module_& module, nb::class_<Store>& store) {
  nb::class_<EmbeddingRows>(module, "EmbeddingRows")
      .def_prop_ro(
          "ids",
          [](const EmbeddingRows& self) {
            const quarry_embedding_arrays arrays = self.arrays();
            return ViewOf<const uint64_t>(self, arrays.ids, {arrays.row_count});
          },
          nb::rv_policy::reference)
      .def_prop_ro(
          "timestamps",
          [](const EmbeddingRows& self) {
            const quarry_embedding_arrays arrays = self.arrays();
            return ViewOf<const int64_t>(self, arrays.timestamps, {arrays.row_count});
          },
          nb::rv_policy::reference)
      .def_prop_ro(
          "values",
          [](const EmbeddingRows& self) {
            const quarry_embedding_arrays arrays = self.arrays();
            return ViewOf<float>(self, arrays.values, {arrays.row_count, arrays.dim});
          },
          nb::rv_policy::reference)
      .def_prop_ro(
          "state",
          [](const EmbeddingRows& self) {
            const quarry_embedding_arrays arrays = self.arrays();
            return ViewOf<float>(self, arrays.state, {arrays.row_count, arrays.state_dim});
          },
          nb::rv_policy::reference);
  nb::class_<Training>(module, "Training")
      .def_prop_ro("settings",
                   [](const Training& self) { return quarry_training_settings(self.handle->get()); })
      .def_prop_ro("created_utc",
                   [](const Training& self) { return quarry_training_created_utc(self.handle->get()); })
      .def_prop_ro("timestamp",
                   [](const Training& self) { return quarry_training_timestamp(self.handle->get()); })
      .def_prop_ro("state", StateOf);
  store.def("read_embeddings", ReadEmbeddings, nb::arg("table"), nb::arg("ids"))
      .def("commit_embeddings", CommitEmbeddings, nb::arg("updates"))
      .def("read_training", ReadTraining, nb::arg("name"), nb::arg("with_state") = true)
      .def("save_training", SaveTraining, nb::arg("name"), nb::arg("settings"), nb::arg("state"),
           nb::arg("with_embeddings"));
  module.def("create_embeddings", CreateEmbeddings, nb::arg("store"), nb::arg("table"), nb::arg("row_count"),
             nb::arg("dim"), nb::arg("optimizer"), nb::arg("element_type"), nb::arg("init"),
             nb::arg("init_scale"), nb::arg("seed"));
  module.def("drop_embeddings", DropEmbeddings, nb::arg("store"), nb::arg("table"));
}

}  // namespace quarry::python
