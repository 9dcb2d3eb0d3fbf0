// What the sources of the Python module share: handles that Python's references keep, and errors. The module
// is written over quarry.h alone.
//
// Ownership: an array keeps its batch, a batch its stream, and that its store, each by a shared pointer; so
// what C wants freed first goes first, whatever order Python forgets things in. Handles are the process's that
// made them: in a fork they are left alone, and using them raises.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "quarry.h"

namespace quarry::python {

namespace nb = nanobind;

// Becomes the exception of its code in quarry/_errors.py.
struct Failure {
  int code;
  std::string message;
};
inline constexpr int kForked = -1;  // beside the codes of quarry.h
inline constexpr int kHeld = -2;

// Throws what the last call of this thread failed with.
inline void Check(int code) {
  if (code != QUARRY_OK) throw Failure{code, quarry_last_error()};
}

// A handle of C with what it stands on.
template <typename T, void (*Free)(T*)>
class Handle {
 public:
  Handle(T* handle, std::shared_ptr<void> stands_on) : handle_(handle), stands_on_(std::move(stands_on)) {}
  ~Handle() { Release(); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  T* get() const {
    if (getpid() != pid_) {
      throw Failure{kForked,
                    "this process was forked from the one that opened the database: the threads and rings "
                    "behind it stayed there. Open the database after the fork (a server serves several "
                    "processes: `quarry serve`), or start workers by \"spawn\""};
    }
    if (handle_ == nullptr) throw Failure{QUARRY_USAGE, closed_};
    return handle_;
  }
  bool closed() const { return handle_ == nullptr; }
  // Frees it now; `why` is what its users are told from then on.
  void Release(const char* why = "this is closed") {
    closed_ = why;
    if (handle_ != nullptr && getpid() == pid_) Free(handle_);
    handle_ = nullptr;
    if (getpid() == pid_) stands_on_.reset();
  }
  const std::shared_ptr<void>& stands_on() const { return stands_on_; }

 private:
  T* handle_;
  std::shared_ptr<void> stands_on_;
  const char* closed_ = "";
  const pid_t pid_ = getpid();
};

using StoreHandle = Handle<quarry_store, quarry_close>;
using SnapshotHandle = Handle<quarry_snapshot, quarry_snapshot_free>;
using StreamHandle = Handle<quarry_stream, quarry_stream_free>;
using BatchHandle = Handle<quarry_batch, quarry_batch_free>;

struct Store {
  std::shared_ptr<StoreHandle> handle;
};
struct Snapshot {
  std::shared_ptr<SnapshotHandle> handle;
};

// Ids, flat and in order.
using Ids = nb::ndarray<const uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
// Memory to write to.
using Out = nb::ndarray<nb::c_contig, nb::device::cpu>;

inline const quarry_snapshot* PointerTo(const Snapshot* snapshot) {
  return snapshot == nullptr ? nullptr : snapshot->handle->get();
}

// Reports and counters become dictionaries.
inline nb::dict DictOf(quarry_counters* counters) {
  nb::dict values;
  for (size_t i = 0; i < quarry_counters_count(counters); ++i) {
    values[quarry_counter_name(counters, i)] = quarry_counter_value(counters, i);
  }
  quarry_counters_free(counters);
  return values;
}

// What a spec points to.
struct LiveSpec {
  std::string feature_table, topology, sampler;
  std::vector<uint32_t> fanouts, relation_fanouts;
  quarry_live_spec spec{};

  LiveSpec(std::string table, std::string graph, int direction, std::vector<uint32_t> hops,
           uint32_t batch_size, uint64_t cache_bytes, uint64_t seed, bool replace, bool edge_ids,
           std::string sampler_name, uint32_t batch_dependency, bool weighted,
           std::vector<uint32_t> hops_by_relation)
      : feature_table(std::move(table)),
        topology(std::move(graph)),
        sampler(std::move(sampler_name)),
        fanouts(std::move(hops)),
        relation_fanouts(std::move(hops_by_relation)) {
    spec.size = sizeof spec;
    spec.direction = direction;
    spec.batch_size = batch_size;
    spec.cache_bytes = cache_bytes;
    spec.seed = seed;
    spec.replace = replace ? 1 : 0;
    spec.edge_ids = edge_ids ? 1 : 0;
    spec.batch_dependency = batch_dependency;
    spec.weighted = weighted ? 1 : 0;
  }
  LiveSpec(const LiveSpec&) = delete;
  LiveSpec& operator=(const LiveSpec&) = delete;
  const quarry_live_spec* get() {
    spec.feature_table = feature_table.c_str();
    spec.topology = topology.c_str();
    spec.sampler = sampler.c_str();
    spec.fanouts = fanouts.data();
    spec.fanout_count = fanouts.size();
    spec.relation_fanouts = relation_fanouts.empty() ? nullptr : relation_fanouts.data();
    spec.relation_fanout_count = relation_fanouts.size();
    return &spec;
  }
};

void BindAdmin(nb::module_& module);
void BindSql(nb::module_& module);
void BindStreams(nb::module_& module);
nb::class_<Store> BindTables(nb::module_& module);
void BindTraining(nb::module_& module, nb::class_<Store>& store);

}  // namespace quarry::python
