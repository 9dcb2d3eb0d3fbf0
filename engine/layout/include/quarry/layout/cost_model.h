// The cost model predicts what an epoch of planned batches would cost with each way of reading its rows, from
// the access trace and the rates of the device. It reads nothing but the trace.
//
//   row reads       each missed row by a request of its own
//   page reads      each 4 KiB page that holds a missed row, once a batch, pages that adjoin as one request
//   merged reads    the misses of a batch sorted and merged (coalesce.h): what the live road does
//   scan and pack   each epoch: the table read front to back, chunks written, chunks read; the price of
//                   packing fresh samples for every epoch
//   packed chunks   chunks written once and read by every epoch: a layout without segment caches
//   segment caches  the same in less space (segments.h)
//
// Seconds are bytes / sequential bandwidth, and for scattered reads also requests / random reads per second,
// whose first page is then part of that price (512 bytes and 4 KiB take the same time): the two add up,
// within a tenth of what scattered reads were measured to take (docs/benchmarks.md). No path is faster than
// the batches' rows can be gathered in memory, nor than the processors verify, copy and decode what was read:
// a device of 6.7 GB/s gives rows faster than two cores check them. Sampling, simulating and training are not
// priced here (road_choice.h prices whole runs).
//
// Where a cache makes the misses, it is simulated as a cycle of epochs (a policy's start is its end), and a
// row that must be put back at the end of the cycle is read with the last batch.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/base/progress.h"
#include "quarry/base/status.h"
#include "quarry/cache/cache_policy.h"
#include "quarry/format/feature_table.h"
#include "quarry/format/manifest.h"
#include "quarry/io/backend.h"
#include "quarry/io/coalesce.h"
#include "quarry/layout/segments.h"
#include "quarry/layout/trace.h"
#include "quarry/storage/store.h"

namespace quarry {

enum class AccessPath : uint8_t {
  kRowReads,
  kPageReads,
  kMergedReads,
  kScanAndPack,
  kPackedChunks,
  kSegmentCaches
};

// "row reads", "page reads", "merged reads", "scan and pack", "packed chunks", "segment caches".
std::string_view AccessPathName(AccessPath path);

// The cost of one epoch, the mean over the epochs of the trace.
struct PathCost {
  AccessPath path = AccessPath::kRowReads;
  PolicyKind policy = PolicyKind::kNone;
  uint64_t useful_bytes = 0;   // rows that miss
  uint64_t read_bytes = 0;     // with all that is read beside them, blocks of packed batches too
  uint64_t written_bytes = 0;  // each epoch
  uint64_t requests = 0;       // that start at a new place; the pieces of a long run count once
  double seconds = 0;
  bool gather_bound = false;     // `seconds` is what gathering in memory takes
  bool processor_bound = false;  // or what verifying, copying and decoding take
  double one_time_seconds = 0;   // before the first epoch
  uint64_t one_time_bytes = 0;   // written then
  double amplification() const {
    return useful_bytes == 0 ? 1.0 : static_cast<double>(read_bytes) / static_cast<double>(useful_bytes);
  }
  // An epoch's share of `epochs` in all.
  double AmortisedSeconds(uint64_t epochs) const {
    return seconds + one_time_seconds / static_cast<double>(epochs);
  }
};

// What the processors have to do with bytes that are read, beside sampling and training.
struct ProcessorWork {
  double checksum_bytes = 0;
  double copied_bytes = 0;
  double decoded_bytes = 0;  // of planned blocks
  double requests = 0;
  // On one core; a rate of 0 is not priced.
  double Seconds(const CoreRates& core) const;
};

// The rates that `quarry calibrate` stored, or those of virtio NVMe and of a core of 2020 (docs/benchmarks.md)
// for what it did not.
DeviceRecord DeviceOf(const Manifest& manifest);

struct CostModelOptions {
  FeatureGeometry geometry;
  uint32_t block_bytes = kSectorBytes;  // the device's: direct reads are multiples of it
  DeviceRecord device;                  // every rate positive, but a core's
  unsigned processors = 1;              // that share the work
  uint64_t cache_rows = 0;
  uint64_t batches_per_epoch = 0;    // the trace holds a multiple of them
  uint64_t planned_block_bytes = 0;  // for the whole trace, in whole pages
  // Policy of the layout that is explained: packed chunks are priced with it beside belady and
  // static-frequency, and so are segment caches where the layout has them.
  PolicyKind policy = PolicyKind::kBelady;
  uint64_t batches_per_segment = 0;  // 0 = it has none
  uint32_t hash_functions = 8;
  uint64_t seed = 0;
  std::span<const uint32_t> degrees;  // by node; for static-degree alone
  // Path of scratch files, which must not exist; nothing is left of them, even when the model fails.
  std::string scratch_path;
};

// Every path, in the order of their list above, each with the policies that it is priced with. Holds
// CostModelBytes, on two threads. The errors of the trace, and kCancelled when `progress` says so.
Result<std::vector<PathCost>> PredictPaths(IoBackend& backend, const Trace& trace,
                                           const CostModelOptions& options, const ProgressFunction& progress);
uint64_t CostModelBytes(const CostModelOptions& options, uint64_t batch_nodes_max);

// Seconds that it takes to read the rows of `misses`, batch after batch, by merged requests: the device's, or those of
// the one thread that verifies and copies what comes (PlannedStream), whichever are more. Holds a bit a node and
// up to 44 bytes a miss of a batch.
Result<double> MergedReadSeconds(const MissReader& misses, uint64_t batch_count,
                                 const FeatureGeometry& geometry, uint32_t block_bytes,
                                 const DeviceRecord& device);

struct PathChoice {
  size_t best = 0;  // the path with the least amortised seconds, the first of equals
  std::string why;  // one sentence
};

// REQUIRES: at least one path and one epoch.
PathChoice ChoosePath(std::span<const PathCost> paths, uint64_t epochs);

}  // namespace quarry
