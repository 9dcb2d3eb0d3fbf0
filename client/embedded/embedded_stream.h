// Streams of this process. Private to this library.
#pragma once

#include <memory>

#include "quarry/client/store.h"
#include "quarry/service/road_opener.h"
#include "quarry/service/stream_hub.h"

namespace quarry::client {

// The road is this stream's alone, and its batches are given out in place: one at a time.
std::unique_ptr<Stream> MakeRoadStream(OpenedRoad opened);

// A member of a group: batches that threads of this process share, or share out among them (StreamHub). What
// others do is waited for. The hub outlives it.
Result<std::unique_ptr<Stream>> JoinGroup(StreamHub& hub, SessionId session,
                                          std::shared_ptr<MemoryBudget> budget,
                                          const wire::OpenStream& request,
                                          std::shared_ptr<const quarry::Snapshot> snapshot);

}  // namespace quarry::client
