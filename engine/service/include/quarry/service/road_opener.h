// What a client asks a stream to read from, opened: the road, and the size of the shared memory that its
// batches need, both paid from the session's budget.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/format/wire_requests.h"
#include "quarry/format/wire_responses.h"
#include "quarry/pipeline/batch_stream.h"
#include "quarry/pipeline/device_target.h"
#include "quarry/pipeline/partitioned_node_road.h"
#include "quarry/storage/store.h"

namespace quarry {

struct OpenedRoad {
  uint64_t timestamp = 0;  // of its rows: the snapshot's, or that of the partitioning
  std::shared_ptr<const Snapshot> snapshot;
  std::unique_ptr<Road> road;
  uint64_t node_count = 0;
  uint64_t slot_bytes = 0;   // the largest batch in wire form, estimated; a multiple of wire::kLeaseAlignment
  uint32_t slots = 0;        // batches that a member may hold at a time
  uint64_t places = 0;       // batches that all members together may hold
  uint64_t spare_bytes = 0;  // for batches that are larger than the estimate
  MemoryBudget::Reservation region;        // places * slot_bytes + spare_bytes
  std::optional<wire::OpenedParts> parts;  // of the partitioned road
  uint64_t device_bytes = 0;               // that the road takes of the device's memory
  bool all_on_device = false;              // batches of every pass come there
};

// What a trainer and its run are told of such a road.
wire::OpenedParts PartsOf(const PartitionedNodeRoad& road);

// What a stream takes while it is open, at most, beside helpers without which it goes on: its producer, the
// threads of a pass and of the next epoch's plan; its region, the files of its tables and layouts, and rings.
struct StreamCost {
  uint64_t threads = 0;
  uint64_t descriptors = 0;
};
StreamCost CostOf(const wire::OpenStream& request);

// kUnsupported for a given snapshot (not null) of a road that has no choice of rows.
Status CheckSnapshot(const wire::OpenStream& request, const Snapshot* snapshot);

// `name` is for the road's files, and nobody else's while it is open. `snapshot` null: as things are. Errors
// as the roads', but kInvalidArgument for what they call wrong usage; kCancelled soon after `stop` is
// requested. `store` and `budget` outlive the road. `device`: a road that can keep rows there does; the batches of others
// lie in memory (device_feed.h).
Result<OpenedRoad> OpenRoad(Store& store, MemoryBudget& budget, const wire::OpenStream& request,
                            std::shared_ptr<const Snapshot> snapshot, const std::string& name,
                            const std::stop_token& stop = {}, const DeviceTarget& device = {});

// Begins the pass that is asked of the road. kInvalidArgument for seeds that are no nodes, or are given twice.
Result<std::unique_ptr<BatchStream>> StartPass(const OpenedRoad& opened, const wire::StartPass& request,
                                               const std::stop_token& stop = {});

}  // namespace quarry
