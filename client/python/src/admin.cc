// Making databases, and their upkeep.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <map>
#include <optional>

#include "bindings.h"

namespace quarry::python {
namespace {

// What a call has done so far, for another thread to read, which may also end it. The call itself never waits
// for Python.
class Progress {
 public:
  void Cancel() { cancelled_ = true; }
  std::tuple<std::string, uint64_t, uint64_t> Read() const {
    const std::lock_guard lock(mutex_);
    return {phase_, done_, total_};
  }
  static int Tell(void* context, const char* phase, uint64_t done, uint64_t total) {
    auto* const self = static_cast<Progress*>(context);
    const std::lock_guard lock(self->mutex_);
    if (self->phase_ != phase) self->phase_ = phase;
    self->done_ = done;
    self->total_ = total;
    return self->cancelled_ ? 1 : 0;
  }

 private:
  mutable std::mutex mutex_;
  std::string phase_;
  uint64_t done_ = 0, total_ = 0;
  std::atomic<bool> cancelled_{false};
};

// Calls it for a report, without Python's lock.
template <typename Call>
nb::dict ReportOf(const Store& store, Call call) {
  const std::shared_ptr<StoreHandle> held = store.handle;
  quarry_store* const handle = held->get();
  quarry_counters* report = nullptr;
  {
    const nb::gil_scoped_release free;
    Check(call(handle, &report));
  }
  return DictOf(report);
}

// Options by their names in quarry_import_options.
void Import(const std::string& path, const std::string& source,
            const std::map<std::string, uint64_t>& numbers, const std::map<std::string, std::string>& texts,
            Progress& progress) {
  quarry_import_options options{};
  options.size = sizeof options;
  options.progress = Progress::Tell;
  options.context = &progress;
  const std::map<std::string, uint64_t*> counts = {{"memory_bytes", &options.memory_bytes},
                                                   {"node_count", &options.node_count},
                                                   {"feature_dim", &options.feature_dim}};
  const std::map<std::string, int*> flags = {{"feature_type", &options.feature_type},
                                             {"undirected", &options.undirected},
                                             {"add_reverse", &options.add_reverse},
                                             {"both_directions", &options.both_directions},
                                             {"deduplicate", &options.deduplicate},
                                             {"allow_nan", &options.allow_nan},
                                             {"bfloat16", &options.bfloat16},
                                             {"relabel", &options.relabel},
                                             {"types", &options.types}};
  const std::map<std::string, const char**> files = {
      {"raw_type", &options.raw_type}, {"edges", &options.edges}, {"features", &options.features},
      {"labels", &options.labels},     {"train", &options.train}, {"valid", &options.valid},
      {"test", &options.test}};
  for (const auto& [name, value] : numbers) {
    if (const auto count = counts.find(name); count != counts.end()) {
      *count->second = value;
    } else {
      *flags.at(name) = static_cast<int>(value);
    }
  }
  for (const auto& [name, value] : texts) *files.at(name) = value.c_str();
  const nb::gil_scoped_release free;
  Check(quarry_import(path.c_str(), source.c_str(), &options));
}

nb::dict BuildLayout(const Store& store, const std::string& name, LiveSpec& live, uint32_t epochs,
                     const std::string& policy, const std::string& seed_order, uint64_t disk_bytes,
                     uint32_t threads, bool resume, Progress& progress) {
  quarry_layout_spec spec{};
  spec.size = sizeof spec;
  spec.name = name.c_str();
  spec.live = live.get();
  spec.epochs = epochs;
  spec.policy = policy.c_str();
  spec.seed_order = seed_order.c_str();
  spec.disk_bytes = disk_bytes;
  spec.threads = threads;
  spec.resume = resume ? 1 : 0;
  spec.progress = Progress::Tell;
  spec.context = &progress;
  return ReportOf(store, [&](quarry_store* handle, quarry_counters** report) {
    return quarry_build_layout(handle, &spec, report);
  });
}

nb::dict BuildPartitioning(const Store& store, const std::string& name, const std::string& method,
                           uint32_t parts, double chunk_share, const std::optional<std::string>& table,
                           const std::string& topology, bool training_first, uint64_t seed,
                           Progress& progress) {
  quarry_partitioning_options options{};
  options.size = sizeof options;
  options.name = name.c_str();
  options.topology = topology.c_str();
  options.table = table ? table->c_str() : nullptr;
  options.edges_only = table ? 0 : 1;
  options.method = method.c_str();
  options.parts = parts;
  options.training_first = training_first ? 1 : 0;
  options.chunk_share = chunk_share;
  options.seed = seed;
  options.progress = Progress::Tell;
  options.context = &progress;
  return ReportOf(store, [&](quarry_store* handle, quarry_counters** report) {
    return quarry_build_partitioning(handle, &options, report);
  });
}

// Calls what takes the name of a thing to drop.
template <auto kDrop>
void Drop(const Store& store, const std::string& name) {
  const std::shared_ptr<StoreHandle> held = store.handle;
  quarry_store* const handle = held->get();
  const nb::gil_scoped_release free;
  Check(kDrop(handle, name.c_str()));
}

nb::dict Verify(const Store& store, Progress& progress) {
  struct Found {
    Progress* progress;
    std::vector<std::string> faults;
  } found{&progress, {}};
  nb::dict report = ReportOf(store, [&](quarry_store* handle, quarry_counters** out) {
    return quarry_verify(
        handle,
        [](void* context, const char* what) { static_cast<Found*>(context)->faults.emplace_back(what); },
        [](void* context, const char* phase, uint64_t done, uint64_t total) {
          return Progress::Tell(static_cast<Found*>(context)->progress, phase, done, total);
        },
        &found, out);
  });
  report["faults"] = nb::cast(found.faults);
  return report;
}

}  // namespace

void BindAdmin(nb::module_& module) {
  nb::class_<Progress>(module, "Progress")
      .def(nb::init<>())
      .def("cancel", &Progress::Cancel)
      .def("read", &Progress::Read);
  module.def("import_", Import, nb::arg("path"), nb::arg("source"), nb::arg("numbers"), nb::arg("texts"),
             nb::arg("progress"));
  module.def("build_layout", BuildLayout, nb::arg("store"), nb::arg("name"), nb::arg("live"),
             nb::arg("epochs"), nb::arg("policy"), nb::arg("seed_order"), nb::arg("disk_bytes"),
             nb::arg("threads"), nb::arg("resume"), nb::arg("progress"));
  module.def("drop_layout", Drop<quarry_drop_layout>);
  module.def("build_partitioning", BuildPartitioning, nb::arg("store"), nb::arg("name"), nb::arg("method"),
             nb::arg("parts"), nb::arg("chunk_share"), nb::arg("table").none(), nb::arg("topology"),
             nb::arg("training_first"), nb::arg("seed"), nb::arg("progress"));
  module.def("drop_partitioning", Drop<quarry_drop_partitioning>);
  module.def("compact", [](const Store& store, const std::string& table, bool dry_run, Progress& progress) {
    return ReportOf(store, [&](quarry_store* handle, quarry_counters** report) {
      return quarry_compact(handle, table.c_str(), dry_run ? 1 : 0, Progress::Tell, &progress, report);
    });
  });
  module.def("compact_topology",
             [](const Store& store, const std::string& topology, bool dry_run, Progress& progress) {
               return ReportOf(store, [&](quarry_store* handle, quarry_counters** report) {
                 return quarry_compact_topology(handle, topology.c_str(), dry_run ? 1 : 0, Progress::Tell,
                                                &progress, report);
               });
             });
  module.def("create_table",
             [](const Store& store, const std::string& table, int element_type, uint64_t dim) {
               const std::shared_ptr<StoreHandle> held = store.handle;
               quarry_store* const handle = held->get();
               const nb::gil_scoped_release free;
               Check(quarry_create_table(handle, table.c_str(), element_type, dim));
             });
  module.def("drop_table", [](const Store& store, const std::string& table) {
    const std::shared_ptr<StoreHandle> held = store.handle;
    quarry_store* const handle = held->get();
    const nb::gil_scoped_release free;
    Check(quarry_drop_table(handle, table.c_str()));
  });
  module.def("checkpoint", [](const Store& store, const std::string& path, Progress& progress) {
    return ReportOf(store, [&](quarry_store* handle, quarry_counters** report) {
      return quarry_checkpoint(handle, path.c_str(), Progress::Tell, &progress, report);
    });
  });
  module.def("verify", Verify);
  module.def("calibrate", [](const Store& store, bool force) {
    return ReportOf(store, [&](quarry_store* handle, quarry_counters** report) {
      return quarry_calibrate(handle, force ? 1 : 0, report);
    });
  });
}

}  // namespace quarry::python
