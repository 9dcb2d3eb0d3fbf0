#include "graph_upkeep.h"

#include <boost/asio/post.hpp>
#include <utility>

#include "quarry/base/log.h"
#include "quarry/base/units.h"
#include "quarry/layout/cost_model.h"
#include "quarry/storage/growth_cost.h"
#include "quarry/storage/topology_compaction.h"

namespace quarry {
namespace {

// A look compares a few numbers of the manifest.
constexpr std::chrono::milliseconds kTick{500};

}  // namespace

GraphUpkeep::GraphUpkeep(ServerCore& core, double slowdown_max)
    : core_(core),
      slowdown_max_(slowdown_max),
      folded_(core.metrics.AddCounter("quarry_graph_folds_total", "",
                                      "Times that runs of edges were folded by --auto-compact.")),
      folded_bytes_(core.metrics.AddCounter("quarry_graph_fold_bytes_total", "",
                                            "Bytes of the files that they were folded into.")),
      failed_(core.metrics.AddCounter("quarry_graph_folds_failed_total", "",
                                      "Times that --auto-compact could not fold runs of edges.")),
      timer_(core.io) {}

void GraphUpkeep::Wait() {
  if (stopping_) return;
  timer_.expires_after(kTick);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) Look();
  });
}

void GraphUpkeep::Look() {
  const std::shared_ptr<const Manifest> manifest = core_.store.manifest();
  const DeviceRecord device = DeviceOf(*manifest);
  for (const TopologyRecord& topology : manifest->topologies) {
    const GrowthMeasured measured = core_.store.growth().Measured(topology);
    if (!PaysToFold(topology, device, measured, slowdown_max_)) continue;
    const auto failed = failures_.find(topology.name);
    if (failed != failures_.end() && failed->second.timestamp == topology.timestamp()) continue;
    auto turn = core_.maintenance_turn.Take(
        NameOf(wire::MaintenanceTask(wire::CompactTable{.table = topology.name, .topology = true})));
    if (!turn.ok()) break;  // the next tick asks again
    constexpr uint64_t kNoSession = 0;
    return core_.maintainers.Submit(kNoSession, [this, name = topology.name, held = *turn](unsigned) mutable {
      Fold(name);
      held.reset();
      boost::asio::post(core_.io, [this] { Wait(); });
    });
  }
  Wait();
}

void GraphUpkeep::Fold(const std::string& topology) {
  const uint64_t timestamp = core_.store.manifest()->FindTopology(topology)->timestamp();
  const auto progress = [this](std::string_view, uint64_t, uint64_t) {
    return stopping_ ? Status(Code::kCancelled, "the server shuts down") : Status::Ok();
  };
  const auto done = CompactTopology(core_.store, core_.common, topology, /*dry_run=*/false, progress);
  if (done.ok()) {
    failures_.erase(topology);
    folded_.Add(1);
    folded_bytes_.Add(done->bytes);
    return LogInfo("topology {}: {} run{} of edges folded in {:.2f} s, {} written", topology, done->runs,
                   done->runs == 1 ? "" : "s", done->seconds, FormatBytes(done->bytes));
  }
  if (stopping_ || done.status().code() == Code::kBusy) return;
  failed_.Add(1);
  Failure& failure = failures_[topology];
  if (failure.why != done.status().message()) {
    LogWarn("topology {}: its runs are not folded: {}", topology, done.status().message());
  }
  failure = {.timestamp = timestamp, .why = std::string(done.status().message())};
}

}  // namespace quarry
