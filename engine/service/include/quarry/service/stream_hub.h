// StreamHub: the roads that sessions have open, and whose turn it is.
//
// A *group* (stream_group.h) is one road with its producer thread and its region of shared memory: of one
// member (exclusive), or of all that opened it under one name (shared, split). The producer takes a batch
// from the road, waits for a free range of the region and for its turn, copies the batch there in wire form
// (wire_batch.h; rows dense, in the order of the nodes), and gives it to whom it is for. A range is free when
// all that were given it have released it or have left: a member that never reads stops its own group when
// the region is full, and nobody else. In a shared group, which others would wait in for ever, it is dropped
// after `lag_max`; one whose connection is lost finds its place again within `return_max` (docs/protocol.md).
//
// Turns are by deficit round-robin over sessions (deficit_round_robin.h), in bytes copied: a session of many
// streams gets no more than one of few. A group uses the turns of the session that opened it first.
//
// Knows nothing of sockets. Thread-safe; callbacks come from any thread, also from within the call, and hold
// no lock of the hub. Nothing blocks but the destructor, which waits for the producers.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/format/wire_requests.h"
#include "quarry/format/wire_responses.h"
#include "quarry/format/wire_status.h"
#include "quarry/pipeline/batch_stream.h"
#include "quarry/service/allowance.h"
#include "quarry/service/road_metrics.h"
#include "quarry/service/shared_region.h"
#include "quarry/storage/store.h"

namespace quarry {

using SessionId = uint64_t;
using ClientId = std::array<std::byte, 16>;

struct OpenedStream {
  uint64_t stream = 0;  // the hub's number for it, never given again
  uint32_t feature_dim = 0;
  uint32_t slots = 0;  // batches that a member may hold at a time
  uint64_t timestamp = 0;
  std::shared_ptr<SharedRegion> region;    // the group's
  std::optional<wire::OpenedParts> parts;  // of the partitioned road
};

// A batch that a member holds until it releases it.
struct StreamBatch {
  uint64_t hold = 0;  // names it in Release
  uint64_t index = 0;
  uint64_t offset = 0, bytes = 0;  // in the region of the stream
};

struct StreamHubOptions {
  // What streams take threads and descriptors from; outlive the hub. Null: nobody counts.
  Allowance* threads = nullptr;
  Allowance* descriptors = nullptr;
  unsigned producing_max = 2;  // turns at a time
  unsigned copy_threads = 2;   // for each of them
  // How long a member of a shared group may stop the others by not releasing.
  std::chrono::milliseconds lag_max{10'000};
  // How long the place of a member of a shared group is kept when its connection is lost.
  std::chrono::milliseconds return_max{2'000};
};

class StreamHub {
 public:
  template <typename T>
  using Answer = std::function<void(Result<T>)>;

  static constexpr size_t kStreamsMax = 64;  // per session

  // `metrics`, which outlive the hub, are told what streams deliver and read; null: nobody is.
  static std::unique_ptr<StreamHub> Make(Store& store, const StreamHubOptions& options,
                                         RoadMetrics* metrics = nullptr);
  // Everything is closed; pending answers get kCancelled. Not from within a callback.
  virtual ~StreamHub() = default;

  // `client` is told by its id when its connection is lost and it comes back; zeros: it does not.
  //
  // The road, its region and what it holds are paid from `budget`, the session's, which the group keeps alive
  // while it exists. A member that joins a group pays nothing. Errors as the roads', but kInvalidArgument for
  // what they call wrong usage; it also says in what a joining member's request differs. kOutOfBudget,
  // before anything is taken, when a new group would exceed the threads or descriptors. kBusy when a group
  // is full or in the middle of a pass, or the session has kStreamsMax streams.
  virtual void Open(SessionId session, const ClientId& client, std::shared_ptr<MemoryBudget> budget,
                    const wire::OpenStream& request, std::shared_ptr<const Snapshot> snapshot,
                    Answer<OpenedStream> answer) = 0;
  // `request.seeds` are a split or ids in memory. Answers with the number of batches when all members have
  // started the pass. Calls of Next that wait for a batch of the pass before are answered kCancelled.
  virtual void StartPass(SessionId session, const wire::StartPass& request, Answer<uint64_t> answer) = 0;
  // Nothing after the last batch. After an error of the road the same at every call, until another pass is
  // started. Answers in the order of the calls. `tag` is the session's, for CancelNext.
  virtual void Next(SessionId session, uint64_t stream, uint64_t tag,
                    Answer<std::optional<StreamBatch>> answer) = 0;
  // The call is answered kCancelled, unless it has been answered.
  virtual void CancelNext(SessionId session, uint64_t stream, uint64_t tag) = 0;
  virtual void Release(SessionId session, uint64_t stream,
                       uint64_t hold) = 0;  // of what is not held: nothing
  virtual Status Close(SessionId session, uint64_t stream) = 0;
  // Returns once streams that were closed, and were paid from the budget, hold nothing of it any more.
  virtual void WaitClosed(const MemoryBudget& budget) = 0;
  // The session is gone: its streams are closed, its holds are free, groups go on without it; a shared one
  // keeps its place for a while.
  virtual void CloseSession(SessionId session) = 0;
  virtual Result<StreamStats> Stats(SessionId session, uint64_t stream) = 0;

  // For the status page.
  virtual std::vector<wire::StreamStatus> Streams() const = 0;
};

}  // namespace quarry
