// LiveRoad: sample now, extract now (GNNDrive §4, Ginex §3.2). Owns what outlives an epoch: topology or
// neighbor caches, the feature buffer with its cached rows, labels; and opens one BatchStream per pass over
// some seeds.
//
//   samplers -> extract queue -> extractors (io_uring into the feature buffer)
//            -> train queue -> consumer -> release
//
// Memory is divided once, at Open, and reserved from the budget:
//   fixed    indptr, checksums, mapping table, labels, samplers' scratch, staging, blocks in flight
//   cache    retained rows (--cache); where these are all rows, one scan brings them in if that is cheaper
//   flight   what batches_in_flight batches need beyond that, by a few probed batches plus a margin; retained
//            rows make way for them
//   topology indices in memory when the rest allows, else on disk with a neighbor cache of what is left
// When that cannot hold one batch, kOutOfBudget states the least memory that can. With a GPU the feature buffer's rows, cache
// and flight, lie in its memory, and the budget pays for the rest.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/format/road_spec.h"
#include "quarry/io/coalesce.h"
#include "quarry/pipeline/batch_stream.h"
#include "quarry/pipeline/device_target.h"
#include "quarry/sampling/block.h"
#include "quarry/sampling/sampler.h"
#include "quarry/storage/store.h"

namespace quarry {

struct LiveRoadOptions {
  RoadSpec spec;
  unsigned sampler_threads = 1;
  unsigned extractor_threads = 1;
  unsigned io_depth = 64;
  // Empty: the device as it was calibrated, or, for tables from 256 MiB on, measured at open (0.2 s).
  std::optional<DeviceProfile> device;
  // Says in the log how the budget was divided. A server sets it to false (then it is a debug message), since
  // strangers open its roads.
  bool tells_plan = true;
  // What the road sees while it is open; null: everything committed when it is opened.
  std::shared_ptr<const Snapshot> snapshot;
  // Once stop is requested, opening the road ends with kCancelled, at the next probed batch or after the file
  // that is being read.
  std::stop_token stop = {};
  // Memory that the caller needs beside the road for batches of up to this many nodes and, as far as can be
  // told, edges: it is left free, and is part of the least that kOutOfBudget states. May be empty.
  std::function<uint64_t(uint64_t batch_nodes_max, uint64_t batch_edges_max)> beside_bytes = {};
  // spec.cache_bytes does not count: as many rows stay as the budget has room for.
  bool cache_takes_what_is_left = false;
  // Batches go to this GPU. As many rows stay there as it has room for beside the batches under way, whatever
  // spec.cache_bytes says.
  DeviceTarget gpu = {};
  // The GPU that batches are sampled on, if it samples; the same as `gpu` where that has one.
  DeviceTarget sampling = {};
  enum class TopologyPlacement { kAuto, kMemory, kDisk } topology_placement = TopologyPlacement::kAuto;
};

// How the budget was divided, for people and tests. The parts add up to what was reserved.
struct LiveRoadPlan {
  uint64_t fixed_bytes = 0;
  uint64_t cache_bytes = 0;   // retained_max rows
  uint64_t flight_bytes = 0;  // the other slot_count - retained_max rows
  uint64_t topology_bytes = 0;
  uint64_t neighbor_cache_bytes = 0;
  // What is taken of a GPU, which has cache and flight then; 0: there is none.
  uint64_t device_bytes = 0;
  uint64_t sampling_device_bytes = 0;  // the same, of lists and samplers
  uint64_t total_bytes() const {
    return fixed_bytes + (device_bytes > 0 ? 0 : cache_bytes + flight_bytes) + topology_bytes +
           neighbor_cache_bytes;
  }

  bool topology_in_memory = false;
  uint64_t batch_nodes_max = 0;  // estimated largest batch, in input nodes
  uint64_t batch_edges_max = 0;  // and in edges
  uint32_t batches_in_flight = 0;
  uint32_t frame_count = 0;    // batches at any stage, from sampling to release
  uint64_t slot_count = 0;     // rows that the feature buffer holds
  uint64_t retained_max = 0;   // part of these that may stay between batches
  uint64_t staging_bytes = 0;  // for each extractor

  std::string ToString() const;  // one line
};

// What a few batches of training nodes were like, for whoever prices roads (road_choice.h).
struct RoadProbe {
  uint64_t batches = 0;
  uint64_t input_nodes = 0;  // of all of them
  uint64_t edges = 0;
  uint64_t lists = 0;                        // that sampling asked for
  uint64_t list_hits = 0;                    // of these, found in the neighbor cache
  uint64_t topology_bytes = 0;               // read from disk
  uint64_t topology_requests = 0;            // by so many requests
  double sample_seconds = 0;                 // of a processor
  DeviceProfile device = {};                 // as the road prices its reads
  std::vector<uint64_t> nodes_by_uses = {};  // [c]: nodes that c of the batches used
  Block last = {};                           // the last of them
};

// What a live road of some batches needs.
struct LiveRoadNeed {
  uint64_t batch_nodes_max = 0;  // as LiveRoadPlan
  // The least budget in which it opens, if nobody else holds any of it, and with nothing beside it.
  uint64_t least_bytes = 0;
};

class LiveRoad : public Road {
 public:
  // Probes a few batches as opening does, for whoever could not open the road: holds what is resident, and one batch, of
  // `budget`, until it returns. The need is that with its cache, or without one where that takes what is left. The
  // errors of Open; kOutOfBudget where the budget cannot even hold that.
  static Result<LiveRoadNeed> Measure(Store& store, MemoryBudget& budget, const LiveRoadOptions& options);

  // The need of a road of the same batches with such a cache, by what opening this one has probed.
  virtual LiveRoadNeed NeedWith(uint64_t cache_bytes) const = 0;

  // How the same memory would be divided with lists and cache as they are named here. kOutOfBudget where it cannot.
  virtual Result<LiveRoadPlan> DivideWith(LiveRoadOptions::TopologyPlacement placement,
                                          uint64_t cache_bytes) const = 0;

  // Samples `batches` batches, drawn without regard to their epochs; no row is read. The same figures every time, but
  // for the seconds. kInvalidArgument without training nodes, and the errors of sampling. Not while a stream is open.
  // REQUIRES: at least 1 and at most 255 batches.
  virtual Result<RoadProbe> ProbeTraining(uint32_t batches) = 0;

  // `store` and `budget` outlive the road.
  static Result<std::unique_ptr<LiveRoad>> Open(Store& store, MemoryBudget& budget,
                                                const LiveRoadOptions& options);
  virtual const LiveRoadPlan& plan() const = 0;
};

}  // namespace quarry
