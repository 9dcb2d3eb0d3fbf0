// The C interface: blocks, streams, and their batches.
#include <algorithm>
#include <chrono>

#include "handles.h"
#include "options.h"
#include "quarry/base/process.h"
#include "rows_out.h"

using quarry::Code;
using quarry::MakeStatus;
using quarry::Result;
using quarry::Split;
using quarry::Status;
using quarry::client::Ends;
using quarry::client::Given;
using quarry::client::ListOf;
using quarry::client::TextOr;
using quarry::client::ValueOf;
namespace wire = quarry::wire;

namespace quarry::client {

Result<quarry::RoadSpec> SpecOf(const quarry_live_spec* spec) {
  QUARRY_TRY(const quarry_live_spec given, Given(spec, "quarry_live_spec"));
  static_assert(TakesAllBut<quarry_live_spec, quarry::RoadSpec>({"padding", "padding_of_edge_ids"}));
  quarry::RoadSpec live;
  QUARRY_RETURN_IF_ERROR(TakeOptions(given, live));
  if (live.batch_dependency == 1) live.batch_dependency = 0;  // the same, so that specs compare equal
  return live;
}

}  // namespace quarry::client

namespace {

using quarry::client::SpecOf;
using quarry::client::TakeOptions;
using quarry::client::TakesAllBut;

template <typename Road>
Status Open(quarry_store* store, Road road, const quarry_stream_options* options, quarry_stream** stream) {
  QUARRY_TRY(const quarry_stream_options given, Given(options, "quarry_stream_options"));
  wire::OpenStream open;
  open.road = std::move(road);
  static_assert(TakesAllBut<quarry_stream_options, wire::OpenStream>(
      {"snapshot", "device", "padding_of_device", "device_bytes", "device_cache_bytes", "device_samples",
       "padding_of_device_samples"}));
  QUARRY_RETURN_IF_ERROR(TakeOptions(given, open));
  open.snapshot = quarry::client::IdOf(given.snapshot);
  if (given.device < 0) {
    return MakeStatus(Code::kUsage, "device {}: 1 + a GPU's ordinal, or 0, which leaves batches in memory",
                      given.device);
  }
  // Where nothing is said, the number before the first: none, and as many as can be.
  const quarry::client::StreamDevice device = {.ordinal = given.device - 1,
                                               .bytes = given.device_bytes,
                                               .cache_bytes = given.device_cache_bytes - 1,
                                               .samples = given.device_samples != 0};
  QUARRY_TRY(auto opened, store->store->OpenStream(open, device));
  *stream = new quarry_stream{.stream = std::move(opened)};
  return Status();
}

constexpr double kWaitSecondsMax = 1e8;  // three years

template <typename T>
const T* PointerTo(std::span<const T> array) {
  return array.empty() ? nullptr : array.data();
}

}  // namespace

int quarry_sample(quarry_store* store, const char* topology, const uint32_t* seeds, size_t seed_count,
                  const uint32_t* fanouts, size_t fanout_count, int direction, uint64_t stream_seed,
                  quarry_batch** batch) {
  return Ends([&]() -> Status {
    wire::Sample sample = {.topology = TextOr(topology, "graph"),
                           .seeds = ListOf(seeds, seed_count),
                           .fanouts = ListOf(fanouts, fanout_count),
                           .stream_seed = stream_seed};
    QUARRY_TRY(sample.direction, ValueOf<quarry::Direction>("direction", direction));
    sample.edge_ids = sample.direction == quarry::Direction::kIn;
    QUARRY_TRY(auto sampled, store->store->Sample(sample));
    *batch = new quarry_batch{std::move(sampled)};
    return Status();
  });
}
int quarry_sample_by(quarry_store* store, const quarry_live_spec* spec, const uint32_t* seeds,
                     size_t seed_count, uint64_t stream_seed, quarry_batch** batch) {
  static_assert(QUARRY_ALL_NEIGHBORS == quarry::kAllNeighbors);
  return Ends([&]() -> Status {
    QUARRY_TRY(quarry::RoadSpec road, SpecOf(spec));
    if (road.sampler != quarry::SamplerKind::kNeighbor) {
      return Status(Code::kUnsupported,
                    "blocks are drawn of each node by itself: streams have the sampler 'labor'");
    }
    QUARRY_TRY(auto sampled, store->store->Sample({.topology = std::move(road.topology),
                                                   .seeds = ListOf(seeds, seed_count),
                                                   .fanouts = std::move(road.fanouts),
                                                   .direction = road.direction,
                                                   .stream_seed = stream_seed,
                                                   .edge_ids = road.edge_ids,
                                                   .replace = road.replace,
                                                   .relation_fanouts = std::move(road.relation_fanouts),
                                                   .weighted = road.weighted}));
    *batch = new quarry_batch{std::move(sampled)};
    return Status();
  });
}
void quarry_batch_free(quarry_batch* batch) { delete batch; }
int quarry_batch_get(const quarry_batch* batch, quarry_batch_arrays* arrays, size_t arrays_bytes) {
  return Ends([&]() -> Status {
    const quarry::BatchView& view = batch->batch->view();
    const quarry::FeatureView& features = view.features;
    const quarry_batch_arrays out = {.index = view.index,
                                     .hop_count = view.hops(),
                                     .seed_count = view.seed_count,
                                     .target_count = view.target_count(),
                                     .node_count = static_cast<uint32_t>(view.nodes.size()),
                                     .edge_count = view.indices.size(),
                                     .hop_offsets = view.hop_offsets.data(),
                                     .indptr = view.indptr.data(),
                                     .indices = PointerTo(view.indices),
                                     .nodes = PointerTo(view.nodes),
                                     .labels = PointerTo(view.labels),
                                     .slots = PointerTo(features.slots),
                                     .rows = PointerTo(features.rows),
                                     .row_count = features.row_count(),
                                     .row_stride_bytes = features.stride_bytes,
                                     .dim = features.dim,
                                     .element_type = static_cast<int>(features.element_type),
                                     .edge_ids = PointerTo(view.edge_ids),
                                     .relations = PointerTo(view.relations)};
    std::memcpy(arrays, &out, std::min(arrays_bytes, sizeof(out)));
    return Status();
  });
}

namespace {

// The stream's own threads bring the next batches meanwhile. A gather that has all processors holds them up: on two of them
// a planned batch took 8.4 ms by two threads and 7.6 by one, of which reading alone takes 7.3 (bench python loader).
unsigned GatherThreads(uint32_t threads) {
  return threads == 0 ? std::max(1U, quarry::ProcessorCount() / 2) : threads;
}

}  // namespace

int quarry_batch_gather(const quarry_batch* batch, int element_type, void* out, uint64_t out_stride_bytes,
                        uint32_t threads) {
  return Ends([&]() -> Status {
    const quarry::BatchView& view = batch->batch->view();
    const quarry::FeatureView& features = view.features;
    if (features.dim == 0) return Status(Code::kInvalidArgument, "the batch has no features");
    if (batch->batch->on_device() != nullptr) {
      return Status(Code::kUsage,
                    "the batch's rows are on a device: quarry_batch_to_device writes them there");
    }
    return quarry::client::WriteRows({.base = features.rows.data(),
                                      .stride_bytes = features.stride_bytes,
                                      .slots = PointerTo(features.slots),
                                      .count = view.nodes.size(),
                                      .element_type = features.element_type,
                                      .dim = features.dim},
                                     {element_type, out, out_stride_bytes}, GatherThreads(threads));
  });
}

int quarry_batch_gather_type(const quarry_batch* batch, uint32_t node_type, const uint32_t* positions,
                             size_t count, int element_type, void* out, uint64_t out_stride_bytes,
                             uint32_t threads) {
  return Ends([&]() -> Status {
    const quarry::BatchView& view = batch->batch->view();
    const quarry::FeatureView& features = view.features;
    if (node_type >= view.type_rows.size() || view.type_rows[node_type].dim == 0) {
      return MakeStatus(Code::kInvalidArgument, "the batch has no features of nodes of type {}", node_type);
    }
    std::vector<uint32_t> slots(count);
    for (size_t i = 0; i < count; ++i) {
      if (positions[i] >= view.nodes.size()) {
        return MakeStatus(Code::kInvalidArgument, "place {}: the batch has {} nodes", positions[i],
                          view.nodes.size());
      }
      slots[i] = features.slots.empty() ? positions[i] : features.slots[positions[i]];
    }
    return quarry::client::WriteRows({.base = features.rows.data(),
                                      .stride_bytes = features.stride_bytes,
                                      .slots = slots.data(),
                                      .count = count,
                                      .element_type = view.type_rows[node_type].element_type,
                                      .dim = view.type_rows[node_type].dim},
                                     {element_type, out, out_stride_bytes}, GatherThreads(threads));
  });
}

int quarry_batch_to_device(quarry_batch* batch, const quarry_device_arrays* arrays, void* stream) {
  return Ends([&]() -> Status {
    QUARRY_TRY(const quarry_device_arrays given, Given(arrays, "quarry_device_arrays"));
    if (given.element_type != 0 && given.element_type != QUARRY_FLOAT32) {
      return MakeStatus(Code::kInvalidArgument, "x of element type {}: 0, as rows are stored, or {}",
                        given.element_type, static_cast<int>(QUARRY_FLOAT32));
    }
    quarry::DeviceBatch* const on_device = batch->batch->on_device();
    if (on_device == nullptr) {
      return Status(Code::kUsage,
                    "the batch lies in memory: streams to a device are opened with "
                    "quarry_stream_options.device");
    }
    return on_device->WriteTo({.x = given.x,
                               .decoded = given.element_type == QUARRY_FLOAT32,
                               .x_stride_bytes = given.x_stride_bytes,
                               .edge_index = given.edge_index,
                               .nodes = given.nodes,
                               .labels = given.labels,
                               .edge_ids = given.edge_ids},
                              stream);
  });
}

int quarry_open_live(quarry_store* store, const quarry_live_spec* spec, const quarry_stream_options* options,
                     quarry_stream** stream) {
  return Ends([&]() -> Status {
    QUARRY_TRY(quarry::RoadSpec live, SpecOf(spec));
    return Open(store, std::move(live), options, stream);
  });
}
int quarry_open_planned(quarry_store* store, const char* layout, const quarry_live_spec* other,
                        const quarry_stream_options* options, quarry_stream** stream) {
  return Ends([&]() -> Status {
    wire::PlannedSpec planned = {.layout = TextOr(layout, "default")};
    if (other != nullptr) {
      QUARRY_TRY(planned.live, SpecOf(other));
    }
    return Open(store, std::move(planned), options, stream);
  });
}
int quarry_open_superbatch(quarry_store* store, const quarry_superbatch_spec* spec,
                           const quarry_stream_options* options, quarry_stream** stream) {
  return Ends([&]() -> Status {
    QUARRY_TRY(const quarry_superbatch_spec given, Given(spec, "quarry_superbatch_spec"));
    static_assert(TakesAllBut<quarry_superbatch_spec, wire::SuperbatchSpec, quarry::RoadSpec>({"live"}));
    wire::SuperbatchSpec superbatch;
    QUARRY_TRY(superbatch.live, SpecOf(given.live));
    QUARRY_RETURN_IF_ERROR(TakeOptions(given, superbatch));
    QUARRY_RETURN_IF_ERROR(TakeOptions(given, superbatch.live));
    return Open(store, std::move(superbatch), options, stream);
  });
}
int quarry_open_partitioned(quarry_store* store, const quarry_partitioned_spec* spec,
                            const quarry_stream_options* options, quarry_stream** stream) {
  return Ends([&]() -> Status {
    QUARRY_TRY(const quarry_partitioned_spec given, Given(spec, "quarry_partitioned_spec"));
    static_assert(TakesAllBut<quarry_partitioned_spec, wire::PartitionedSpec>({"live"}));
    wire::PartitionedSpec parts;
    QUARRY_TRY(parts.live, SpecOf(given.live));
    QUARRY_RETURN_IF_ERROR(TakeOptions(given, parts));
    return Open(store, std::move(parts), options, stream);
  });
}
void quarry_stream_free(quarry_stream* stream) { delete stream; }
uint32_t quarry_stream_slots(const quarry_stream* stream) { return stream->stream->slots(); }
uint32_t quarry_stream_feature_dim(const quarry_stream* stream) { return stream->stream->feature_dim(); }
uint64_t quarry_stream_timestamp(const quarry_stream* stream) { return stream->stream->timestamp(); }

int quarry_start_pass(quarry_stream* stream, const quarry_pass* pass, uint64_t* batch_count) {
  return Ends([&]() -> Status {
    QUARRY_TRY(const quarry_pass given, Given(pass, "quarry_pass"));
    wire::StartPass start = {
        .shuffle = given.no_shuffle == 0, .pass = given.pass, .ordered = given.ordered != 0};
    if (given.seeds != nullptr) {
      start.seeds = wire::NodeIds(ListOf(given.seeds, given.seed_count));
    } else if (given.split != 0) {
      QUARRY_TRY(start.seeds, ValueOf<Split>("split", given.split));
    }
    stream->asker.Forget();
    QUARRY_TRY(const uint64_t batches, stream->stream->StartPass(std::move(start)));
    quarry::client::Asker::Prepare prepare;
    if (given.prepare != nullptr) {
      prepare = [call = given.prepare,
                 context = given.prepare_context](std::unique_ptr<quarry::client::Batch>& batch) {
        quarry_batch lent{std::move(batch)};
        call(&lent, context);
        batch = std::move(lent.batch);
      };
    }
    stream->asker.PrepareBy(std::move(prepare));
    if (batch_count != nullptr) *batch_count = batches;
    return Status();
  });
}
int quarry_next(quarry_stream* stream, quarry_batch** batch) {
  return Ends([&]() -> Status {
    QUARRY_TRY(auto next, stream->asker.Next());
    *batch = next == nullptr ? nullptr : new quarry_batch{std::move(next)};
    return Status();
  });
}
int quarry_next_within(quarry_stream* stream, double seconds, quarry_batch** batch) {
  bool timed_out = false;
  const int code = Ends([&]() -> Status {
    quarry::client::Asker::Deadline deadline;
    if (seconds >= 0) {
      const std::chrono::duration<double> wait(std::min(seconds, kWaitSecondsMax));
      deadline = std::chrono::steady_clock::now() +
                 std::chrono::duration_cast<std::chrono::steady_clock::duration>(wait);
    }
    QUARRY_TRY(auto next, stream->asker.NextWithin(deadline));
    timed_out = !next.has_value();
    if (timed_out) return MakeStatus(Code::kCancelled, "no batch came within {} s", seconds);
    *batch = *next == nullptr ? nullptr : new quarry_batch{*std::move(next)};
    return Status();
  });
  return timed_out ? QUARRY_TIMED_OUT : code;
}
int quarry_begin_next(quarry_stream* stream) {
  return Ends([&] { return stream->asker.Begin(); });
}
void quarry_stream_cancel(quarry_stream* stream) { stream->asker.Cancel(); }
