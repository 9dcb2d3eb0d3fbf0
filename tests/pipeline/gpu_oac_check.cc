// Checks optimistic asynchrony control on a GPU: that training ends bit for bit as the serial run of its computation order
// on the processor, which plain asynchrony must not; and what it costs. For a machine that has a GPU and nothing else of
// Quarry.
//
//   gpu_oac_check [--device N] [--seeds N] [--batches N] [--fake]
//
// --seeds 0 or --batches 0 leaves the one or the other half out. --fake: on the device of the tests, where times say
// nothing. Exit code 1 when one of the bits is wrong; times are printed beside what they should be. compute-sanitizer runs
// over it with --seeds 5 --batches 0.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "pipeline/distmult_training.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "support/fake_device.h"

namespace quarry {
namespace {

using testing_util::DistMultTraining;
using testing_util::DistMultTrainingOptions;

struct CheckOptions {
  uint64_t device = 0, seeds = 1000, batches = 60;
  bool fake = false;
};

Result<CheckOptions> ParseCheckOptions(int argc, char** argv) {
  CheckOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view text = argv[i];
    uint64_t* const number = text == "--device"    ? &options.device
                             : text == "--seeds"   ? &options.seeds
                             : text == "--batches" ? &options.batches
                                                   : nullptr;
    if (text == "--fake") {
      options.fake = true;
    } else if (number != nullptr && i + 1 < argc) {
      QUARRY_TRY(*number, ParseCount(argv[++i]));
    } else {
      return Status(Code::kUsage, "gpu_oac_check [--device N] [--seeds N] [--batches N] [--fake]");
    }
  }
  return options;
}

// How many of the seeds 1, 2, ... ended differently from the serial run. Some at a time, each on streams of its own.
Result<uint64_t> CountDiffering(gpu::Device& device, uint64_t seeds, AsyncMode mode) {
  std::atomic<uint64_t> next = 1, differing = 0;
  std::vector<Status> failures(4);
  std::vector<std::thread> threads;
  for (Status& failure : failures) {
    threads.emplace_back([&] {
      for (uint64_t seed = next++; seed <= seeds && failure.ok(); seed = next++) {
        const auto end = testing_util::TrainDistMult(device, seed, mode);
        failure = end.status();
        if (end.ok() && !end->same) ++differing;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& failure : failures) QUARRY_RETURN_IF_ERROR(failure);
  return uint64_t{differing};
}

Result<bool> CheckBits(gpu::Device& device, uint64_t seeds) {
  const double start = MonotonicSeconds();
  QUARRY_TRY(const uint64_t oac, CountDiffering(device, seeds, AsyncMode::kOac));
  const double seconds = MonotonicSeconds() - start;
  const uint64_t others = std::min<uint64_t>(seeds, 100);
  QUARRY_TRY(const uint64_t async, CountDiffering(device, others, AsyncMode::kAsync));
  fmt::print(
      "{}  oac: {} of {} seeds end differently from the serial run of their order (0 wanted), {:.1f} s\n",
      oac == 0 ? "PASS" : "FAIL", oac, seeds, seconds);
  fmt::print("{}  async: {} of {} (some wanted)\n", async > 0 ? "PASS" : "FAIL", async, others);
  return oac == 0 && async > 0;
}

// One mode's, over all its rounds.
struct Measured {
  double seconds = 0;
  uint64_t batches = 0;
  EmbeddingPipelineStats stats;
  uint64_t host_waits = 0;

  double Busy(EmbeddingStage stage) const { return stats.stage(stage).busy_seconds / double(batches) * 1e3; }
  double Device(EmbeddingStage stage) const {
    return stats.stage(stage).device_seconds / double(batches) * 1e3;
  }
  double batch_ms() const { return seconds / double(batches) * 1e3; }
};

// A batch's edges share their negatives, whose number sets how long a device computes, and hardly how much travels.
DistMultTrainingOptions LargeBatches(AsyncMode mode, uint32_t negatives, bool fake) {
  const uint32_t edges = fake ? 64 : 8192;
  DistMultTrainingOptions options;
  options.nodes = {.row_count = fake ? 2000U : 500'000U, .dim = 64};
  options.relations = {.row_count = 200, .dim = 64, .seed = 1};
  options.task = {
      .edges = edges, .chunk_edges = edges, .chunk_negatives = negatives, .ragged = false, .skewed = false};
  options.pipeline = {
      .mode = mode, .batches_in_flight = 8, .prepare_workers = 4, .update_workers = 3, .transfer_workers = 2};
  return options;
}

Status Measure(gpu::Device& device, const DistMultTrainingOptions& options, uint64_t batches, Measured& to) {
  DistMultTraining training(device, options);
  QUARRY_RETURN_IF_ERROR(training.made);
  QUARRY_RETURN_IF_ERROR(training.pipeline->Run(0, 10));  // pages, clocks
  const EmbeddingPipelineStats before = training.pipeline->stats();
  const uint64_t waits = device.counts().host_waits;
  const double start = MonotonicSeconds();
  QUARRY_RETURN_IF_ERROR(training.pipeline->Run(10, batches));
  to.seconds += MonotonicSeconds() - start;
  to.batches += batches;
  to.host_waits += device.counts().host_waits - waits;
  const EmbeddingPipelineStats after = training.pipeline->stats();
  for (size_t i = 0; i < kEmbeddingStageCount; ++i) {
    to.stats.stages[i].busy_seconds += after.stages[i].busy_seconds - before.stages[i].busy_seconds;
    to.stats.stages[i].device_seconds += after.stages[i].device_seconds - before.stages[i].device_seconds;
  }
  to.stats.rows_computed += after.rows_computed - before.rows_computed;
  to.stats.rows_replaced += after.rows_replaced - before.rows_replaced;
  to.stats.cache_bytes_peak = std::max(to.stats.cache_bytes_peak, after.cache_bytes_peak);
  return Status::Ok();
}

// So many negatives that the device computes for half of a batch's time when one goes through all stages by itself: found
// along the line through the last two tries.
Result<uint32_t> NegativesOfHalfTheTime(gpu::Device& device, bool fake) {
  const double most = fake ? 64 : 20'000;
  double tried = 0, compute = 0, wanted = fake ? 16 : 512;
  for (int i = 0; i < 4; ++i) {
    Measured sync;
    QUARRY_RETURN_IF_ERROR(
        Measure(device, LargeBatches(AsyncMode::kSync, static_cast<uint32_t>(wanted), fake), 20, sync));
    const double now = sync.Device(EmbeddingStage::kCompute), rest = sync.batch_ms() - now;
    const double per_negative = std::max((now - compute) / (wanted - tried), 1e-6);
    tried = wanted;
    compute = now;
    wanted = std::clamp(tried + (rest - compute) / per_negative, 16.0, most);
    if (std::abs(wanted - tried) < 0.01 * tried) break;
  }
  return static_cast<uint32_t>(wanted);
}

void PrintMeasured(const char* name, const Measured& m) {
  using enum EmbeddingStage;
  fmt::print(
      "{:<6} {:8.3f} {:8.3f} {:8.3f} {:8.3f} {:8.3f} {:8.3f} | {:8.3f} {:8.3f} {:8.3f} {:6.3f} {:6.2f} "
      "{:9.4f}\n",
      name, m.batch_ms(), m.Busy(kPrepare), m.Busy(kTransfer), m.Busy(kCompute), m.Busy(kTransferBack),
      m.Busy(kUpdate), m.Device(kTransfer), m.Device(kCompute), m.Device(kTransferBack),
      m.Device(kCompute) / m.batch_ms(), double(m.host_waits) / double(m.batches),
      double(m.stats.rows_replaced) / double(m.stats.rows_computed));
}

Status CheckSpeed(gpu::Device& device, uint64_t batches, bool fake) {
  QUARRY_TRY(const uint32_t negatives, NegativesOfHalfTheTime(device, fake));
  constexpr AsyncMode kModes[] = {AsyncMode::kSync, AsyncMode::kAsync, AsyncMode::kOac};
  Measured measured[3];
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < 3; ++i) {
      QUARRY_RETURN_IF_ERROR(Measure(device, LargeBatches(kModes[i], negatives, fake), batches, measured[i]));
    }
  }
  const Measured &sync = measured[0], &async = measured[1], &oac = measured[2];
  const DistMultTrainingOptions options = LargeBatches(AsyncMode::kOac, negatives, fake);
  fmt::print(
      "\nDistMult, {} nodes of dim {} with Adagrad, {} edges and {} negatives a batch, {:.0f} rows of {} "
      "bytes; 3 "
      "rounds of {} batches, 8 in flight\n",
      options.nodes.row_count, options.nodes.dim, options.task.edges, negatives,
      double(oac.stats.rows_computed) / double(oac.batches), DeviceRowStride(options.nodes) * sizeof(float),
      batches);
  fmt::print(
      "ms of a batch; host: busy seconds of each stage's workers | device: its own clock; its compute's "
      "share of "
      "all time; waits of the host a batch; rows replaced\n");
  fmt::print(
      "mode      batch  prepare transfer  compute     back   update |       in  compute      out   busy  "
      "waits  "
      "replaced\n");
  PrintMeasured("sync", sync);
  PrintMeasured("async", async);
  PrintMeasured("oac", oac);
  fmt::print("share of preparation, transfers and update when synchronous: {:.3f}\n",
             1 - sync.Device(EmbeddingStage::kCompute) / sync.batch_ms());
  const double to_async = async.batch_ms() / oac.batch_ms(), to_sync = sync.batch_ms() / oac.batch_ms();
  fmt::print("{}  oac / async: {:.3f} (.98 wanted)\n", to_async >= .98 ? "PASS" : "LESS", to_async);
  fmt::print("{}  oac / sync:  {:.3f} (1.9 wanted)\n", to_sync >= 1.9 ? "PASS" : "LESS", to_sync);
  fmt::print("validation and insertion: {:.1f} us of the device a batch; caches {}\n",
             (oac.Device(EmbeddingStage::kCompute) - async.Device(EmbeddingStage::kCompute)) * 1e3,
             FormatBytes(oac.stats.cache_bytes_peak));
  return Status::Ok();
}

// Whether the bits are right.
Result<bool> Check(const CheckOptions& options) {
  std::unique_ptr<gpu::Device> device;
  if (options.fake) {
    device = std::make_unique<testing_util::FakeDevice>(
        testing_util::FakeDeviceOptions{.memory_bytes = uint64_t{8} << 30});
  } else {
    QUARRY_TRY(device, gpu::OpenDevice(static_cast<int>(options.device)));
  }
  const double start = MonotonicSeconds();
  fmt::print("device {}: {}\n", device->facts().ordinal, device->facts().name);
  bool right = true;
  if (options.seeds > 0) {
    QUARRY_TRY(right, CheckBits(*device, options.seeds));
  }
  std::fflush(stdout);
  QUARRY_TRY(const uint64_t free_before, device->FreeBytes());
  if (options.batches > 0) QUARRY_RETURN_IF_ERROR(CheckSpeed(*device, options.batches, options.fake));
  QUARRY_TRY(const uint64_t free_after, device->FreeBytes());
  fmt::print("{}  device memory: {} free, {} before the larger runs\n",
             free_after == free_before ? "PASS" : "FAIL", FormatBytes(free_after), FormatBytes(free_before));
  fmt::print("{:.1f} s in all\n", MonotonicSeconds() - start);
  return right && free_after == free_before;
}

}  // namespace
}  // namespace quarry

int main(int argc, char** argv) {
  const auto options = quarry::ParseCheckOptions(argc, argv);
  const auto right = options.ok() ? quarry::Check(*options) : options.status();
  if (right.ok()) return *right ? 0 : 1;
  std::fprintf(stderr, "%s\n", right.status().ToString().c_str());
  return quarry::ExitCode(right.status().code());
}
