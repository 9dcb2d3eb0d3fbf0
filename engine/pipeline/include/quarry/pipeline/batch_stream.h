// BatchStream: the engine as a trainer sees it, whichever road the batches take (docs/architecture.md "Data
// flow").
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/batch_view.h"
#include "quarry/format/types.h"

namespace quarry {

// Figures of one pass so far. Seconds are summed over the threads of a stage. On the planned road "sampling"
// is decoding blocks and reading segment caches, and "extraction" is reading chunks.
struct StreamStats {
  uint64_t batches = 0;
  uint64_t sampled_edges = 0;
  uint64_t input_nodes = 0;
  uint64_t feature_bytes_read = 0;   // by extraction, gaps and block rounding included
  uint64_t topology_bytes_read = 0;  // by sampling from disk
  uint64_t bytes_useful =
      0;  // input_nodes x row bytes that were not already in memory (cache misses x row bytes)
  uint64_t read_requests = 0;
  uint64_t cache_lookups = 0;
  uint64_t cache_hits = 0;    // lookups that cost no read: row in memory, or being read for another batch
  uint64_t device_bytes = 0;  // that went to a device, rows and arrays of blocks
  uint64_t device_hits = 0;   // part of cache_hits: rows that stay there
  double sample_seconds = 0, sample_wait_seconds = 0;    // wait: output queue full
  double extract_seconds = 0, extract_wait_seconds = 0;  // wait: nothing sampled, or no slots free
  double update_seconds = 0;                             // rows copied into the cache between batches
  double consumer_wait_seconds = 0;                      // the trainer waited in Next
};

// Used by one consumer thread. Destroying it at any point cancels and joins its workers; batches must be gone
// first.
class BatchStream {
 public:
  virtual ~BatchStream() = default;
  virtual uint64_t batch_count() const = 0;
  // The next batch, null after the last. The first error of any stage comes back here, and again at every
  // later call. kInternal while the previous batch is still held: the memory may be sized for one, and both
  // would wait for ever. A server's stream says kUsage once as many are held as it has slots.
  virtual Result<std::unique_ptr<Batch>> Next() = 0;
  virtual StreamStats stats() const = 0;
};

struct PassOptions {
  std::vector<NodeId> seeds;  // each used once
  bool shuffle = true;        // by (road seed, pass)
  uint64_t pass = 0;          // epoch number: names the random streams
  bool ordered = false;       // deliver batches in order
  // Once stop is requested, a StartPass that is under way ends soon, with kCancelled. The stream itself does
  // not look at it.
  std::stop_token stop = {};
};

// A road to batches, open for many passes; the trainer is given one.
class Road {
 public:
  virtual ~Road() = default;
  // One stream at a time; the previous one must be gone.
  virtual Result<std::unique_ptr<BatchStream>> StartPass(PassOptions options) = 0;
  virtual std::span<const int64_t> labels() const = 0;  // by node; -1 = none; empty without a label table
  virtual std::vector<NodeId> SplitNodes(Split split) const = 0;  // ascending
  virtual uint32_t feature_dim() const = 0;

  // What training asks for: nodes by split, of which the training ones are those that have a label, if any has. Here they are
  // answered by the lists above; a road that holds nothing of each node has no such lists, and answers them by itself.
  // StartSplit takes all of `options` but the seeds.
  virtual Result<std::unique_ptr<BatchStream>> StartSplit(Split split, PassOptions options);
  virtual uint64_t CountNodes(Split split) const;
  // Whether there are passes over the split. Training goes without the evaluations that there are none for.
  virtual bool Serves(Split /*split*/) const { return true; }
  virtual uint32_t class_count() const;  // as CountClasses; 0 without labels

  // The nodes that training passes run over: those of the train split, ascending; where nodes have labels, those that have
  // one.
  std::vector<NodeId> TrainNodes() const {
    std::vector<NodeId> nodes = SplitNodes(Split::kTrain);
    std::erase_if(nodes, [labels = labels()](NodeId node) { return !labels.empty() && labels[node] < 0; });
    return nodes;
  }
};

}  // namespace quarry
