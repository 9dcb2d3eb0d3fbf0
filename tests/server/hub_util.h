// Users of a StreamHub in this process, and batches as hashes.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "pipeline/pass_util.h"
#include "pipeline/tiny_database.h"
#include "quarry/format/wire_batch.h"
#include "quarry/service/stream_hub.h"
#include "support/eventually.h"
#include "support/sleeping_threads.h"
#include "support/status_matchers.h"

namespace quarry::testing_util {

inline constexpr std::chrono::seconds kPatience{30};  // after which something hangs

// An answer that is to come. A second answer ends the test: the promise throws.
template <typename T>
class Pending {
 public:
  StreamHub::Answer<T> slot() {
    return [promise = promise_](Result<T> result) { promise->set_value(std::move(result)); };
  }
  bool answered(std::chrono::milliseconds wait = std::chrono::milliseconds(0)) const {
    return future_.wait_for(wait) == std::future_status::ready;
  }
  Result<T> Get() const {
    if (answered(kPatience)) return future_.get();
    ADD_FAILURE() << "no answer";
    return Status(Code::kInternal, "no answer");
  }

 private:
  std::shared_ptr<std::promise<Result<T>>> promise_ = std::make_shared<std::promise<Result<T>>>();
  std::shared_future<Result<T>> future_ = promise_->get_future().share();
};

using NextResult = Result<std::optional<StreamBatch>>;
using PendingBatch = Pending<std::optional<StreamBatch>>;

// A stream of a session, closed with it.
class HubUser {
 public:
  HubUser(StreamHub& hub, SessionId session, std::shared_ptr<MemoryBudget> budget)
      : hub_(&hub), session_(session), budget_(std::move(budget)) {}

  Pending<OpenedStream> AskOpen(const wire::OpenStream& request,
                                std::shared_ptr<const Snapshot> snapshot = nullptr) {
    Pending<OpenedStream> pending;
    hub_->Open(session_, client, budget_, request, std::move(snapshot), pending.slot());
    return pending;
  }
  Status Open(const wire::OpenStream& request, std::shared_ptr<const Snapshot> snapshot = nullptr) {
    const Result<OpenedStream> result = AskOpen(request, std::move(snapshot)).Get();
    if (result.ok()) opened = *result;
    return result.status();
  }
  Pending<uint64_t> AskStart(wire::StartPass pass) {
    Pending<uint64_t> pending;
    pass.stream = opened.stream;
    hub_->StartPass(session_, pass, pending.slot());
    return pending;
  }
  Result<uint64_t> Start(const wire::StartPass& pass) { return AskStart(pass).Get(); }
  PendingBatch AskNext(uint64_t tag = 0) {
    PendingBatch pending;
    hub_->Next(session_, opened.stream, tag, pending.slot());
    return pending;
  }
  NextResult Next() { return AskNext().Get(); }
  void Release(const StreamBatch& batch) { hub_->Release(session_, opened.stream, batch.hold); }
  void CancelNext(uint64_t tag) { hub_->CancelNext(session_, opened.stream, tag); }
  Status Close() { return hub_->Close(session_, opened.stream); }
  void CloseSession() { hub_->CloseSession(session_); }
  Result<StreamStats> Stats() { return hub_->Stats(session_, opened.stream); }

  // Checks the batch where it lies.
  uint64_t Hash(const StreamBatch& batch) const {
    const auto view = wire::OpenBatch(opened.region->bytes().subspan(batch.offset, batch.bytes));
    EXPECT_OK(view);
    if (!view.ok()) return 0;
    EXPECT_OK(wire::CheckBatch(*view));
    EXPECT_EQ(view->index, batch.index);
    return HashBatch(*view);
  }

  // The rest of the pass, each batch released once it is read.
  Status Drain(std::vector<std::pair<uint64_t, uint64_t>>& hashes) {
    for (;;) {
      QUARRY_TRY(const std::optional<StreamBatch> batch, Next());
      if (!batch) return Status::Ok();
      hashes.emplace_back(batch->index, Hash(*batch));
      Release(*batch);
    }
  }

  OpenedStream opened;
  ClientId client{};

 private:
  StreamHub* hub_;
  SessionId session_;
  std::shared_ptr<MemoryBudget> budget_;
};

inline wire::LiveSpec SmallLive() {
  wire::LiveSpec spec;
  spec.fanouts = SmallOptions().spec.fanouts;
  spec.batch_size = SmallOptions().spec.batch_size;
  spec.seed = SmallOptions().spec.seed;
  return spec;
}

inline wire::OpenStream Exclusive(decltype(wire::OpenStream::road) road = SmallLive()) {
  return {.road = std::move(road)};
}

inline wire::OpenStream Grouped(wire::StreamMode mode, uint32_t members,
                                decltype(wire::OpenStream::road) road = SmallLive()) {
  return {.road = std::move(road), .mode = mode, .group = "g", .members = members};
}

// Imported once; opened by one test after the other.
inline const TinyDatabase& SharedDatabase() {
  static const TinyDatabase database{TinyGraph()};
  return database;
}

// A hub over a small database, and the road that its batches are held against.
struct HubWorld {
  explicit HubWorld(const StreamHubOptions& options = {}, const TinyDatabase& database = SharedDatabase())
      : open(database.path(), SmallOptions()), hub(StreamHub::Make(*open.store, options)) {}

  HubUser User(SessionId session = 1) { return HubUser(*hub, session, budget); }

  // The batches of a pass over the training nodes, as hashes.
  std::vector<std::pair<uint64_t, uint64_t>> Expected(uint64_t pass) {
    return RunPass(*open.road, {.seeds = open.road->TrainNodes(), .pass = pass, .ordered = true});
  }

  // What was closed is let go of by the hub's threads.
  void ExpectBudgetFree() const {
    EXPECT_TRUE(Eventually([this] { return budget->used_bytes() == 0; })) << budget->used_bytes();
  }

  OpenRoad open;
  std::shared_ptr<MemoryBudget> budget = std::make_shared<MemoryBudget>(kGiB);
  std::unique_ptr<StreamHub> hub;
};

}  // namespace quarry::testing_util
