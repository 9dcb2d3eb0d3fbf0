// Planned epochs read from an object store that answers at once, and from one that answers after a delay: throughput, and
// the ratio of the two. The store is the tests' own (tests/objects/fake_store.h), in this process, on the loopback, so its
// work is part of both figures.
//
//   bench_objects [--mib N] [--epochs N] [--delay-ms N] [--memory-mib N] [--cache-dir DIR] [--json]
//
// --mib: of features. An epoch's rows are packed, and read several times as much; all epochs are planned, so that no block
// is read twice. --memory-mib: for blocks that are on their way. --cache-dir: a third run reads from blocks that were kept
// there.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "objects/fake_store.h"
#include "pipeline/pass_util.h"
#include "pipeline/tiny_database.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/objects/push.h"
#include "quarry/objects/thin_database.h"
#include "quarry/pipeline/planned_road.h"

namespace quarry {
namespace {

struct Arguments {
  uint64_t mib = 16, epochs = 4, delay_ms = 150, memory_mib = 288;
  std::string cache_folder;
  bool json = false;
};

struct Run {
  double seconds = 0;
  uint64_t bytes = 0;  // that batches were made of
  ObjectReadStatistics read;
  double rate() const { return static_cast<double>(bytes) / seconds; }
};

const ObjectPlace kBenchPlace{"bucket", "bench"};

class Bench {
 public:
  Bench(const Arguments& arguments, const std::string& folder)
      : arguments_(arguments),
        thin_(folder + "/thin"),
        database_({.nodes = arguments.mib * 256, .dim = 1024, .degree = 12}, folder + "/") {
    std::erase_if(seeds_ = database_.graph().SplitNodes(Split::kTrain),
                  [this](NodeId node) { return database_.graph().Label(node) < 0; });
  }

  Status Prepare() {
    const auto backend = MakeDefaultBackend();
    {
      QUARRY_TRY(const auto store, Store::Open(*backend, database_.path()));
      LayoutSpec spec{.road = testing_util::SmallOptions().spec.ForOtherPasses(),
                      .epochs = static_cast<uint32_t>(arguments_.epochs),
                      .threads = 2};
      spec.road.batch_size = 256;
      spec.road.fanouts = {10, 5};
      spec.road.cache_bytes = arguments_.mib * kMiB / 10;
      QUARRY_RETURN_IF_ERROR(BuildLayout(*store, budget_, spec, false, {}).status());
    }
    QUARRY_TRY(const auto objects, ObjectStore::Open(kBenchPlace, server_.access(), budget_, {}));
    QUARRY_RETURN_IF_ERROR(PushDatabase(*objects, *backend, budget_,
                                        {.folder = database_.path(), .database_id = "id", .publication = "p"},
                                        {})
                               .status());
    return PullDatabase(*objects, *backend, budget_, thin_, {}, /*thin=*/true).status();
  }

  Result<Run> Read(double delay_seconds, bool cached) {
    server_.SetSchedule([delay_seconds](const SeenRequest&) { return Fate{.delay_seconds = delay_seconds}; });
    QUARRY_TRY(const auto backend,
               OpenThin(MakeDefaultBackend(), thin_, server_.access(),
                        {.memory_bytes = arguments_.memory_mib * kMiB,
                         .cache_folder = cached ? arguments_.cache_folder : "",
                         .cache_bytes = cached ? 64 * arguments_.mib * arguments_.epochs * kMiB : 0}));
    QUARRY_TRY(const auto store, Store::Open(*backend, thin_));
    QUARRY_TRY(const auto road, PlannedRoad::Open(*store, budget_, {.tells_plan = false}));
    Run run;
    const double start = MonotonicSeconds();
    for (uint64_t epoch = 0; epoch < arguments_.epochs; epoch++) {
      QUARRY_TRY(const auto stream, road->StartPass({.seeds = seeds_, .pass = epoch + 1}));
      while (true) {
        QUARRY_TRY(const auto batch, stream->Next());
        if (batch == nullptr) break;
      }
      const StreamStats stats = stream->stats();
      run.bytes += stats.feature_bytes_read + stats.topology_bytes_read;
    }
    run.seconds = MonotonicSeconds() - start;
    run.read = backend->statistics();
    return run;
  }

 private:
  const Arguments arguments_;
  const std::string thin_;
  testing_util::TinyDatabase database_;
  std::vector<NodeId> seeds_;
  MemoryBudget budget_{8 * kGiB};
  FakeStore server_;
};

Status RunBench(const Arguments& arguments) {
  const std::string folder =
      (std::filesystem::temp_directory_path() / fmt::format("quarry-bench-objects-{}", getpid())).string();
  std::filesystem::create_directories(folder);
  const std::shared_ptr<void> removed(nullptr, [&folder](void*) { std::filesystem::remove_all(folder); });
  Bench bench(arguments, folder);
  QUARRY_RETURN_IF_ERROR(bench.Prepare());
  QUARRY_TRY(const Run near, bench.Read(0, false));
  const double delay = static_cast<double>(arguments.delay_ms) / 1000;
  QUARRY_TRY(const Run far, bench.Read(delay, false));
  std::optional<Run> kept;
  if (!arguments.cache_folder.empty()) {
    QUARRY_RETURN_IF_ERROR(bench.Read(delay, true).status());  // fills it
    QUARRY_TRY(kept, bench.Read(delay, true));
  }
  const double ratio = far.rate() / near.rate();
  if (arguments.json) {
    std::printf(
        "{\"bytes\": %lu, \"bytes_per_second\": %.0f, \"delayed_bytes_per_second\": %.0f, \"ratio\": %.3f, ",
        near.bytes, near.rate(), far.rate(), ratio);
    std::printf("\"delay_ms\": %lu, \"blocks_ahead\": %.3f, \"kept_bytes_per_second\": %.0f}\n",
                arguments.delay_ms,
                static_cast<double>(far.read.blocks_ahead) /
                    static_cast<double>(std::max<uint64_t>(1, far.read.blocks_from_store)),
                kept ? kept->rate() : 0.0);
    return Status::Ok();
  }
  const auto print = [](const std::string& what, const Run& run) {
    std::printf("%-28s %10s/s  %s in %.2f s, %lu blocks from the store, %lu from the cache\n", what.c_str(),
                FormatBytes(static_cast<uint64_t>(run.rate())).c_str(), FormatBytes(run.bytes).c_str(),
                run.seconds, run.read.blocks_from_store, run.read.blocks_from_cache);
  };
  print("store without delay", near);
  print(fmt::format("store, {} ms a request", arguments.delay_ms), far);
  if (kept) print("the same, blocks kept here", *kept);
  std::printf("ratio: %.3f (more than 0.95 is the aim)\n", ratio);
  return Status::Ok();
}

}  // namespace
}  // namespace quarry

int main(int argc, char** argv) {
  quarry::Arguments arguments;
  CLI::App app("planned epochs from an object store with and without a delay");
  app.add_option("--mib", arguments.mib)->check(CLI::Range(8, 65536))->capture_default_str();
  app.add_option("--epochs", arguments.epochs)->check(CLI::Range(1, 100))->capture_default_str();
  app.add_option("--delay-ms", arguments.delay_ms)->capture_default_str();
  app.add_option("--memory-mib", arguments.memory_mib)->check(CLI::Range(18, 65536))->capture_default_str();
  app.add_option("--cache-dir", arguments.cache_folder);
  app.add_flag("--json", arguments.json);
  CLI11_PARSE(app, argc, argv);
  const quarry::Status status = quarry::RunBench(arguments);
  if (!status.ok()) std::fprintf(stderr, "bench_objects: %s\n", status.ToString().c_str());
  return quarry::ExitCode(status.code());
}
