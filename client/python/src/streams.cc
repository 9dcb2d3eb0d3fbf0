// Streams and their batches.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <list>
#include <optional>

#include "bindings.h"
#include "memory.h"

namespace quarry::python {
namespace {

// How long `next` leaves signals alone.
constexpr double kSignalSeconds = 0.05;

// ---- batches

template <typename T>
using View = nb::ndarray<nb::numpy, const T, nb::ndim<1>>;

struct SharedBatch {
  SharedBatch(quarry_batch* batch, std::shared_ptr<void> stands_on) : handle(batch, std::move(stands_on)) {}
  BatchHandle handle;
  std::atomic<uint32_t> uses{0};  // arrays, and calls that read it just now
};

struct Batch {
  std::shared_ptr<SharedBatch> shared;

  quarry_batch_arrays arrays() const {
    quarry_batch_arrays out{};
    Check(quarry_batch_get(shared->handle.get(), &out, sizeof out));
    return out;
  }
};

// While there is one, no `next` of another thread gives the batch back.
class UseOf {
 public:
  explicit UseOf(const Batch& batch) : shared_(batch.shared) { ++shared_->uses; }
  ~UseOf() { --shared_->uses; }
  UseOf(const UseOf&) = delete;
  UseOf& operator=(const UseOf&) = delete;

 private:
  const std::shared_ptr<SharedBatch> shared_;
};

// A view that keeps the batch until NumPy, and whoever took the array from there, lets it go.
template <typename T, typename From>
View<T> ViewOf(const Batch& batch, const From* data, size_t count) {
  static_assert(sizeof(T) == sizeof(From));
  const nb::capsule owner(new UseOf(batch), [](void* use) noexcept { delete static_cast<UseOf*>(use); });
  static const T kNothing{};
  const T* const from = data == nullptr ? &kNothing : reinterpret_cast<const T*>(data);
  return View<T>(from, {count}, owner);
}

template <typename T>
using Flat = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void CheckCount(size_t got, size_t wanted, const char* what) {
  if (got == wanted) return;
  throw Failure{QUARRY_USAGE, std::string(what) + " to write to have " + std::to_string(got) +
                                  " elements, not " + std::to_string(wanted)};
}

// What PyG has of a batch, in one call, since each costs a trainer's cold caches some 10 us, and the lock of Python
// another wait: edge_index (source and destination of every edge, as local ids), n_id, where each seed stands in `sorted`
// (which has them all), labels, edge ids (None, where there are none), how many nodes and edges each hop has, the seeds
// first; and with `features` the rows of a batch that has some, in `out`, or where that is None in an array, which comes last.
nb::tuple PygBlock(const Batch& batch, const Flat<const int64_t>& sorted, bool features,
                   const std::optional<Out>& out) {
  const UseOf use(batch);
  const quarry_batch_arrays arrays = batch.arrays();
  const bool gather = features && arrays.dim > 0;
  const uint64_t row_bytes = uint64_t{arrays.dim} * sizeof(float);
  if (out) CheckCount(out->nbytes(), arrays.node_count * row_bytes, "rows, in bytes,");
  std::optional<nb::ndarray<nb::numpy, float>> x;
  if (gather && !out) x = RecycledArray<float>({arrays.node_count, arrays.dim});
  const auto edge_index = RecycledArray<int64_t>({2, arrays.edge_count});
  const auto n_id = RecycledArray<int64_t>({arrays.node_count});
  const auto positions = RecycledArray<int64_t>({arrays.seed_count});
  std::optional<nb::ndarray<nb::numpy, int64_t>> labels, edge_ids;
  if (arrays.labels != nullptr) labels = RecycledArray<int64_t>({arrays.seed_count});
  if (arrays.edge_ids != nullptr) edge_ids = RecycledArray<int64_t>({arrays.edge_count});
  {
    const nb::gil_scoped_release free;
    if (gather) {
      void* const to = out ? out->data() : x->data();
      Check(quarry_batch_gather(batch.shared->handle.get(), QUARRY_FLOAT32, to, row_bytes, /*threads=*/0));
    }
    int64_t* const rows = edge_index.data();
    int64_t* const cols = rows + arrays.edge_count;
    std::copy_n(arrays.indices, arrays.edge_count, rows);
    for (uint32_t target = 0; target < arrays.target_count; ++target) {
      std::fill(cols + arrays.indptr[target], cols + arrays.indptr[target + 1], int64_t{target});
    }
    std::copy_n(arrays.nodes, arrays.node_count, n_id.data());
    if (labels) std::copy_n(arrays.labels, arrays.seed_count, labels->data());
    if (edge_ids) std::copy_n(arrays.edge_ids, arrays.edge_count, edge_ids->data());
    // A binary search of all seeds at once: their loads of a step do not wait for each other.
    int64_t* const at = positions.data();
    std::fill_n(at, arrays.seed_count, 0);
    for (size_t left = sorted.size(); left > 1; left -= left / 2) {
      const auto half = static_cast<int64_t>(left / 2);
      const int64_t* const last = sorted.data() + half - 1;
      for (uint32_t i = 0; i < arrays.seed_count; ++i) at[i] += last[at[i]] < arrays.nodes[i] ? half : 0;
    }
  }
  nb::list nodes, edges;
  nodes.append(arrays.hop_offsets[0]);
  uint32_t from = 0;
  for (uint32_t hop = 0; hop < arrays.hop_count; ++hop) {
    const uint32_t to = arrays.hop_offsets[hop];
    nodes.append(arrays.hop_offsets[hop + 1] - to);
    edges.append(arrays.indptr[to] - arrays.indptr[from]);
    from = to;
  }
  return nb::make_tuple(edge_index, n_id, positions, labels, edge_ids, nodes, edges, x);
}

void NodeIds(const Batch& batch, const Flat<int64_t>& out) {
  const UseOf use(batch);
  const quarry_batch_arrays arrays = batch.arrays();
  CheckCount(out.size(), arrays.node_count, "node ids");
  const nb::gil_scoped_release free;
  std::copy_n(arrays.nodes, arrays.node_count, out.data());
}

void Gather(const Batch& batch, const Out& out, int element_type, uint64_t row_bytes, uint32_t threads) {
  const UseOf use(batch);
  quarry_batch* const handle = batch.shared->handle.get();
  CheckCount(out.nbytes(), batch.arrays().node_count * row_bytes, "rows, in bytes,");
  const nb::gil_scoped_release free;
  Check(quarry_batch_gather(handle, element_type, out.data(), row_bytes, threads));
}

Batch Sample(const Store& store, const std::string& topology, const Ids& seeds,
             const std::vector<uint32_t>& fanouts, int direction, uint64_t stream_seed) {
  const std::shared_ptr<StoreHandle> held = store.handle;
  quarry_store* const handle = held->get();
  quarry_batch* batch = nullptr;
  {
    const nb::gil_scoped_release free;
    Check(quarry_sample(handle, topology.c_str(), seeds.data(), seeds.size(), fanouts.data(), fanouts.size(),
                        direction, stream_seed, &batch));
  }
  return {std::make_shared<SharedBatch>(batch, held)};
}

// ---- streams

struct Stream {
  explicit Stream(std::shared_ptr<StreamHandle> opened) : handle(std::move(opened)) {}
  std::shared_ptr<StreamHandle> handle;
  std::list<std::weak_ptr<SharedBatch>> given;  // the oldest first
  std::mutex in_use;
};

// A stream is for one thread at a time.
class Use {
 public:
  explicit Use(Stream& stream) : lock_(stream.in_use, std::try_to_lock) {
    if (!lock_.owns_lock())
      throw Failure{QUARRY_USAGE, "another thread is using this stream: give each its own"};
  }

 private:
  std::unique_lock<std::mutex> lock_;
};

// Batches that only their Python object holds are given back, the oldest first, until one more can be had;
// those whose arrays are used cannot be.
void MakeRoom(Stream& stream, size_t held_max, const char* instead) {
  std::list<std::weak_ptr<SharedBatch>> held;
  for (const std::weak_ptr<SharedBatch>& batch : stream.given) {
    const std::shared_ptr<SharedBatch> alive = batch.lock();
    if (alive != nullptr && !alive->handle.closed()) held.push_back(batch);
  }
  for (auto batch = held.begin(); batch != held.end() && held.size() > held_max;) {
    const std::shared_ptr<SharedBatch> alive = batch->lock();
    if (alive->uses > 0) {
      ++batch;
      continue;
    }
    alive->handle.Release("this batch was given back when the next one was asked for: batch.copy() is kept");
    batch = held.erase(batch);
  }
  stream.given = std::move(held);
  if (stream.given.size() <= held_max) return;
  throw Failure{kHeld, std::to_string(stream.given.size()) +
                           " of this stream's batches are held by arrays of theirs, and " + instead +
                           ": let them go, or keep batch.copy() instead"};
}

std::unique_ptr<Stream> OpenStream(const Store& store, LiveSpec* live,
                                   const std::optional<std::string>& layout, bool fresh, uint64_t disk_bytes,
                                   const Snapshot* snapshot) {
  const std::shared_ptr<StoreHandle> held = store.handle;
  quarry_store* const handle = held->get();
  quarry_stream_options options{};
  options.size = sizeof options;
  options.snapshot = PointerTo(snapshot);
  const quarry_live_spec* const spec = live == nullptr ? nullptr : live->get();
  quarry_superbatch_spec superbatch{};
  superbatch.size = sizeof superbatch;
  superbatch.live = spec;
  superbatch.disk_bytes = disk_bytes;
  quarry_stream* stream = nullptr;
  {
    const nb::gil_scoped_release free;
    Check(fresh    ? quarry_open_superbatch(handle, &superbatch, &options, &stream)
          : layout ? quarry_open_planned(handle, layout->c_str(), spec, &options, &stream)
                   : quarry_open_live(handle, spec, &options, &stream));
  }
  return std::make_unique<Stream>(std::make_shared<StreamHandle>(stream, held));
}

uint64_t StartPass(Stream& stream, int split, const std::optional<Ids>& seeds, bool shuffle, bool ordered,
                   uint64_t number) {
  const Use use(stream);
  quarry_stream* const handle = stream.handle->get();
  MakeRoom(stream, 0, "no pass begins meanwhile");
  quarry_pass pass{};
  pass.size = sizeof pass;
  pass.split = split;
  static const uint32_t kNone = 0;
  if (seeds) pass.seeds = seeds->size() == 0 ? &kNone : seeds->data();
  if (seeds) pass.seed_count = seeds->size();
  pass.no_shuffle = shuffle ? 0 : 1;
  pass.ordered = ordered ? 1 : 0;
  pass.pass = number;
  uint64_t batches = 0;
  const nb::gil_scoped_release free;
  Check(quarry_start_pass(handle, &pass, &batches));
  return batches;
}

// Null behind the last. `timeout_seconds` < 0: none.
std::optional<Batch> Next(Stream& stream, double timeout_seconds) {
  const Use use(stream);
  quarry_stream* const handle = stream.handle->get();
  const uint32_t slots = quarry_stream_slots(handle);
  MakeRoom(stream, slots - 1, slots == 1 ? "it has memory for one" : "it has memory for no more");
  quarry_batch* batch = nullptr;
  double waited = 0;
  while (true) {
    double wait = kSignalSeconds;
    if (timeout_seconds >= 0) wait = std::min(wait, timeout_seconds - waited);
    int code = QUARRY_OK;
    {
      const nb::gil_scoped_release free;
      code = quarry_next_within(handle, std::max(0.0, wait), &batch);
    }
    if (code == QUARRY_OK) break;
    if (code != QUARRY_TIMED_OUT) Check(code);
    waited += wait;
    if (timeout_seconds >= 0 && waited >= timeout_seconds) {
      throw Failure{code, "no batch came within " + std::to_string(timeout_seconds) +
                              " s; the next call goes on waiting for it"};
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
  if (batch == nullptr) return std::nullopt;
  auto made = std::make_shared<SharedBatch>(batch, stream.handle);
  stream.given.push_back(made);
  return Batch{std::move(made)};
}

void BeginNext(Stream& stream) {
  const Use use(stream);
  const nb::gil_scoped_release free;
  Check(quarry_begin_next(stream.handle->get()));
}

void CloseStream(Stream& stream) {
  const Use use(stream);
  for (const std::weak_ptr<SharedBatch>& batch : stream.given) {
    const std::shared_ptr<SharedBatch> alive = batch.lock();
    if (alive != nullptr && alive->uses == 0) alive->handle.Release("the stream of this batch is closed");
  }
  std::shared_ptr<StreamHandle> mine = std::move(stream.handle);
  stream.handle = std::make_shared<StreamHandle>(nullptr, nullptr);
  stream.handle->Release("the stream is closed");
  const nb::gil_scoped_release free;
  mine.reset();
  RecycledMemory::Instance().Forget();
}

nb::dict StreamStats(Stream& stream) {
  const Use use(stream);
  quarry_stream* const handle = stream.handle->get();
  quarry_counters* counters = nullptr;
  {
    const nb::gil_scoped_release free;
    Check(quarry_stream_stats(handle, &counters));
  }
  return DictOf(counters);
}

void BindBatch(nb::module_& module) {
  nb::class_<Batch>(module, "Batch")
      .def_prop_ro("index", [](const Batch& self) { return self.arrays().index; })
      .def_prop_ro("seed_count", [](const Batch& self) { return self.arrays().seed_count; })
      .def_prop_ro("node_count", [](const Batch& self) { return self.arrays().node_count; })
      .def_prop_ro("edge_count", [](const Batch& self) { return self.arrays().edge_count; })
      .def_prop_ro("dim", [](const Batch& self) { return self.arrays().dim; })
      .def_prop_ro("element_type", [](const Batch& self) { return self.arrays().element_type; })
      .def_prop_ro(
          "nodes",
          [](const Batch& self) {
            const quarry_batch_arrays arrays = self.arrays();
            return ViewOf<uint32_t>(self, arrays.nodes, arrays.node_count);
          },
          nb::rv_policy::reference)
      .def_prop_ro(
          "hop_offsets",
          [](const Batch& self) {
            const quarry_batch_arrays arrays = self.arrays();
            return ViewOf<int32_t>(self, arrays.hop_offsets, arrays.hop_count + size_t{1});
          },
          nb::rv_policy::reference)
      .def_prop_ro(
          "indptr",
          [](const Batch& self) {
            const quarry_batch_arrays arrays = self.arrays();
            return ViewOf<int32_t>(self, arrays.indptr, arrays.target_count + size_t{1});
          },
          nb::rv_policy::reference)
      .def_prop_ro(
          "indices",
          [](const Batch& self) {
            const quarry_batch_arrays arrays = self.arrays();
            return ViewOf<int32_t>(self, arrays.indices, arrays.edge_count);
          },
          nb::rv_policy::reference)
      .def_prop_ro(
          "labels",
          [](const Batch& self) {
            const quarry_batch_arrays arrays = self.arrays();
            return ViewOf<int64_t>(self, arrays.labels, arrays.labels == nullptr ? 0 : arrays.seed_count);
          },
          nb::rv_policy::reference)
      .def_prop_ro(
          "edge_ids",
          [](const Batch& self) {
            const quarry_batch_arrays arrays = self.arrays();
            return ViewOf<int64_t>(self, arrays.edge_ids, arrays.edge_ids == nullptr ? 0 : arrays.edge_count);
          },
          nb::rv_policy::reference)
      .def("pyg_block", PygBlock, nb::arg("sorted"), nb::arg("features") = false,
           nb::arg("out").none() = nb::none())
      .def("write_node_ids", NodeIds, nb::arg("out"))
      .def("gather", Gather, nb::arg("out"), nb::arg("element_type"), nb::arg("row_bytes"),
           nb::arg("threads") = 0)
      .def_prop_ro("closed", [](const Batch& self) { return self.shared->handle.closed(); })
      .def("close", [](const Batch& self) {
        if (self.shared->handle.closed()) return;
        if (self.shared->uses > 0) {
          throw Failure{kHeld, "arrays of this batch are still used; it goes with the last of them"};
        }
        self.shared->handle.Release("this batch is closed");
      });
}

}  // namespace

void BindStreams(nb::module_& module) {
  nb::class_<LiveSpec>(module, "LiveSpec")
      .def(nb::init<std::string, std::string, int, std::vector<uint32_t>, uint32_t, uint64_t, uint64_t, bool,
                    bool>(),
           nb::arg("feature_table"), nb::arg("topology"), nb::arg("direction"), nb::arg("fanouts"),
           nb::arg("batch_size"), nb::arg("cache_bytes"), nb::arg("seed"), nb::arg("replace"),
           nb::arg("edge_ids") = false);
  BindBatch(module);
  module.def("sample", Sample, nb::arg("store"), nb::arg("topology"), nb::arg("seeds"), nb::arg("fanouts"),
             nb::arg("direction"), nb::arg("stream_seed"));
  nb::class_<Stream>(module, "Stream")
      .def_static("open", OpenStream, nb::arg("store"), nb::arg("live").none(), nb::arg("layout").none(),
                  nb::arg("fresh"), nb::arg("disk_bytes"), nb::arg("snapshot").none())
      .def_prop_ro("slots", [](const Stream& self) { return quarry_stream_slots(self.handle->get()); })
      .def_prop_ro("feature_dim",
                   [](const Stream& self) { return quarry_stream_feature_dim(self.handle->get()); })
      .def_prop_ro("timestamp",
                   [](const Stream& self) { return quarry_stream_timestamp(self.handle->get()); })
      .def("start_pass", StartPass, nb::arg("split"), nb::arg("seeds").none(), nb::arg("shuffle"),
           nb::arg("ordered"), nb::arg("number"))
      .def("next", Next, nb::arg("timeout_seconds") = -1.0)
      .def("begin_next", BeginNext)
      .def("cancel", [](const Stream& self) { quarry_stream_cancel(self.handle->get()); })
      .def("stats", StreamStats)
      .def("close", CloseStream);
}

}  // namespace quarry::python
