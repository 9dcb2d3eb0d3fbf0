// Streams and their batches.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <list>
#include <optional>
#include <utility>

#include "bindings.h"
#include "hetero_block.h"
#include "memory.h"
#include "pyg_block.h"

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
  std::shared_ptr<PygBlock> prepared;  // where the pass asked for it, until Python has it

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

std::vector<uint32_t> ListOf(const Ids& ids) { return {ids.data(), ids.data() + ids.size()}; }

std::shared_ptr<PygBlock> PygBlockOf(Batch& batch, bool features) {
  const UseOf use(batch);
  quarry_batch* const handle = batch.shared->handle.get();
  std::shared_ptr<PygBlock> block = std::exchange(batch.prepared, nullptr);
  if (block != nullptr && !features) return block;
  const nb::gil_scoped_release free;
  if (block == nullptr) block = std::make_shared<PygBlock>(handle, PygPass{});
  if (features) block->Gather(handle);
  return block;
}

// `pass`: null of a block alone, whose seeds may be of any types.
nb::dict HeteroBlockOf(const Batch& batch, const HeteroTypes& types, uint32_t seed_type,
                       const PygPass* pass) {
  const UseOf use(batch);
  quarry_batch* const handle = batch.shared->handle.get();
  std::optional<HeteroBlock> block;
  {
    const nb::gil_scoped_release free;
    if (pass == nullptr) {
      block.emplace(handle, types);
    } else {
      block.emplace(handle, types, seed_type, *pass);
    }
  }
  return block->ToDict();
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

// Nodes and edges of each hop, the seeds first, as lists.
nb::tuple HopsOf(const Batch& batch) {
  const UseOf use(batch);
  const HopCounts counts(batch.arrays());
  return nb::make_tuple(counts.NodeList(), counts.EdgeList());
}

// Addresses of the device's memory, 0 for what is not wanted; `stream` is a CUstream.
void ToDevice(const Batch& batch, uintptr_t stream, uintptr_t x, uintptr_t edge_index, uintptr_t nodes,
              uintptr_t labels, uintptr_t edge_ids) {
  const UseOf use(batch);
  const auto ids = [](uintptr_t address) { return std::bit_cast<int64_t*>(address); };
  const quarry_device_arrays arrays = {.size = sizeof arrays,
                                       .x = std::bit_cast<void*>(x),
                                       .element_type = QUARRY_FLOAT32,
                                       .edge_index = ids(edge_index),
                                       .nodes = ids(nodes),
                                       .labels = ids(labels),
                                       .edge_ids = ids(edge_ids)};
  const nb::gil_scoped_release free;
  Check(quarry_batch_to_device(batch.shared->handle.get(), &arrays, std::bit_cast<void*>(stream)));
}

Batch Sample(const Store& store, LiveSpec& spec, const Ids& seeds, uint64_t stream_seed) {
  const std::shared_ptr<StoreHandle> held = store.handle;
  quarry_store* const handle = held->get();
  quarry_batch* batch = nullptr;
  {
    const nb::gil_scoped_release free;
    Check(quarry_sample_by(handle, spec.get(), seeds.data(), seeds.size(), stream_seed, &batch));
  }
  return {std::make_shared<SharedBatch>(batch, held), nullptr};
}

// ---- streams

// What a stream's pass makes of its batches, ahead of `Next`. The handle of the stream stands on it, whose thread uses it.
struct Preparations {
  explicit Preparations(std::shared_ptr<StoreHandle> held) : store(std::move(held)) {}
  std::shared_ptr<StoreHandle> store;
  std::unique_ptr<Preparation> current;
};

struct Stream {
  Stream(std::shared_ptr<StreamHandle> opened, std::shared_ptr<Preparations> made)
      : handle(std::move(opened)), preparations(std::move(made)) {}
  std::shared_ptr<StreamHandle> handle;
  std::list<std::weak_ptr<SharedBatch>> given;  // the oldest first
  std::shared_ptr<Preparations> preparations;   // which the handle stands on, too
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

// `device`: a GPU's ordinal, negative: batches stay in memory; `device_bytes` 0: half of what is free there;
// `device_cache_bytes` negative: as many rows stay there as there is room for; `device_samples`: batches are sampled there;
// `partitioning`: batches are of its parts, of which `buffer` are held (0: as many as there is memory for).
std::unique_ptr<Stream> OpenStream(const Store& store, LiveSpec* live,
                                   const std::optional<std::string>& layout, bool fresh, uint64_t disk_bytes,
                                   const Snapshot* snapshot, int device, uint64_t device_bytes,
                                   int64_t device_cache_bytes, bool device_samples,
                                   const std::optional<std::string>& partitioning, uint32_t buffer) {
  const std::shared_ptr<StoreHandle> held = store.handle;
  quarry_store* const handle = held->get();
  quarry_stream_options options{};
  options.size = sizeof options;
  options.snapshot = PointerTo(snapshot);
  options.device = device + 1;
  options.device_bytes = device_bytes;
  options.device_cache_bytes = static_cast<uint64_t>(device_cache_bytes + 1);
  options.device_samples = device_samples ? 1 : 0;
  const quarry_live_spec* const spec = live == nullptr ? nullptr : live->get();
  quarry_superbatch_spec superbatch{};
  superbatch.size = sizeof superbatch;
  superbatch.live = spec;
  superbatch.disk_bytes = disk_bytes;
  quarry_partitioned_spec parts{};
  parts.size = sizeof parts;
  parts.live = spec;
  parts.partitioning = partitioning ? partitioning->c_str() : nullptr;
  parts.buffer = buffer;
  quarry_stream* stream = nullptr;
  {
    const nb::gil_scoped_release free;
    Check(partitioning ? quarry_open_partitioned(handle, &parts, &options, &stream)
          : fresh      ? quarry_open_superbatch(handle, &superbatch, &options, &stream)
          : layout     ? quarry_open_planned(handle, layout->c_str(), spec, &options, &stream)
                       : quarry_open_live(handle, spec, &options, &stream));
  }
  auto preparations = std::make_shared<Preparations>(held);
  return std::make_unique<Stream>(std::make_shared<StreamHandle>(stream, preparations), preparations);
}

uint64_t StartPass(Stream& stream, int split, const std::optional<Ids>& seeds, bool shuffle, bool ordered,
                   uint64_t number, const std::shared_ptr<PygPass>& pyg) {
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
  std::unique_ptr<Preparation> preparation;
  if (pyg != nullptr) {
    preparation = std::make_unique<Preparation>(pyg);
    pass.prepare = Preparation::Run;
    pass.prepare_context = preparation.get();
  }
  uint64_t batches = 0;
  const nb::gil_scoped_release free;
  Check(quarry_start_pass(handle, &pass, &batches));
  stream.preparations->current = std::move(preparation);
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
  Preparation* const preparation = stream.preparations->current.get();
  return Batch{std::move(made), preparation == nullptr ? nullptr : preparation->Take()};
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
  // Which holds the store, and the thread of a Loader may know this object for a moment longer.
  stream.preparations = std::make_shared<Preparations>(nullptr);
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
      .def("pyg_block", PygBlockOf, nb::arg("features") = false)
      .def("hetero_block", HeteroBlockOf, nb::arg("types"), nb::arg("seed_type"), nb::arg("pyg").none())
      .def("write_node_ids", NodeIds, nb::arg("out"))
      .def_prop_ro("has_labels", [](const Batch& self) { return self.arrays().labels != nullptr; })
      .def_prop_ro("has_edge_ids", [](const Batch& self) { return self.arrays().edge_ids != nullptr; })
      .def("hops", HopsOf)
      .def("to_device", ToDevice, nb::arg("stream"), nb::arg("x") = 0, nb::arg("edge_index") = 0,
           nb::arg("nodes") = 0, nb::arg("labels") = 0, nb::arg("edge_ids") = 0)
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
                    bool, std::string, uint32_t, bool, std::vector<uint32_t>>(),
           nb::arg("feature_table"), nb::arg("topology"), nb::arg("direction"), nb::arg("fanouts"),
           nb::arg("batch_size"), nb::arg("cache_bytes"), nb::arg("seed"), nb::arg("replace"),
           nb::arg("edge_ids") = false, nb::arg("sampler") = "neighbor", nb::arg("batch_dependency") = 0,
           nb::arg("weighted") = false, nb::arg("relation_fanouts") = std::vector<uint32_t>());
  nb::class_<HeteroTypes>(module, "HeteroTypes")
      .def(
          "__init__",
          [](HeteroTypes* self, const std::vector<std::tuple<uint32_t, uint64_t, uint32_t, uint32_t>>& ranges,
             const std::vector<uint32_t>& dims, const std::vector<uint32_t>& sources,
             const std::vector<uint32_t>& destinations) {
            std::vector<TypedRange> typed;
            for (const auto& [first, end, type, row] : ranges) typed.push_back({first, end, type, row});
            new (self) HeteroTypes{std::move(typed), dims, sources, destinations};
          },
          nb::arg("ranges"), nb::arg("dims"), nb::arg("sources"), nb::arg("destinations"));
  BindBatch(module);
  nb::class_<PygPass>(module, "PygPass")
      .def(
          "__init__",
          [](PygPass* self, const Ids& sorted, const std::optional<Ids>& order) {
            new (self) PygPass{.sorted = ListOf(sorted)};
            if (order) self->order = ListOf(*order);
          },
          nb::arg("sorted"), nb::arg("order").none());
  nb::class_<PygBlock>(module, "PygBlock")
      .def("arrays", &PygBlock::ToArrays)
      .def("attributes", &PygBlock::ToAttributes, nb::arg("tensor_of"));
  nb::class_<PygData>(module, "PygData")
      .def(nb::init<nb::object, nb::object, nb::object, nb::dict>(), nb::arg("tensor_of"), nb::arg("data"),
           nb::arg("store"), nb::arg("fields"))
      .def("__call__", &PygData::Of, nb::arg("block"));
  module.def("sample", Sample, nb::arg("store"), nb::arg("spec"), nb::arg("seeds"), nb::arg("stream_seed"));
  nb::class_<Stream>(module, "Stream")
      .def_static("open", OpenStream, nb::arg("store"), nb::arg("live").none(), nb::arg("layout").none(),
                  nb::arg("fresh"), nb::arg("disk_bytes"), nb::arg("snapshot").none(), nb::arg("device") = -1,
                  nb::arg("device_bytes") = 0, nb::arg("device_cache_bytes") = -1,
                  nb::arg("device_samples") = false, nb::arg("partitioning").none() = nb::none(),
                  nb::arg("buffer") = 0)
      .def_prop_ro("slots", [](const Stream& self) { return quarry_stream_slots(self.handle->get()); })
      .def_prop_ro("feature_dim",
                   [](const Stream& self) { return quarry_stream_feature_dim(self.handle->get()); })
      .def_prop_ro("timestamp",
                   [](const Stream& self) { return quarry_stream_timestamp(self.handle->get()); })
      .def("start_pass", StartPass, nb::arg("split"), nb::arg("seeds").none(), nb::arg("shuffle"),
           nb::arg("ordered"), nb::arg("number"), nb::arg("pyg").none() = nb::none())
      .def("next", Next, nb::arg("timeout_seconds") = -1.0)
      .def("begin_next", BeginNext)
      .def("cancel", [](const Stream& self) { quarry_stream_cancel(self.handle->get()); })
      .def("stats", StreamStats)
      .def("close", CloseStream);
}

}  // namespace quarry::python
