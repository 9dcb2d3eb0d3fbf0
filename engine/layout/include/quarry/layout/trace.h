// The access trace: which nodes' rows each mini-batch of the planned epochs reads, in the order of batches.
//
// Sampled once, ahead of training (DiskGNN §3), it is what everything else is planned on: caches are
// simulated on it, chunks packed from it. It lies in a file (layouts/NAME-<gen>/trace.qlt) and is read batch
// by batch, so a trace of any length needs memory for one batch.
//
// Within a batch nodes stand in their hop groups (seeds, nodes first found by hop 1, by hop 2, ...), each
// group ascending by id: passes over arrays by node then run nearly in order, and a node costs about a byte.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/io/backend.h"
#include "quarry/io/buffer.h"
#include "quarry/sampling/sampler.h"

namespace quarry {

class RecordFile;

struct TraceBatch {
  std::vector<NodeId> nodes;
  std::vector<uint32_t> hop_offsets;  // as Block::hop_offsets
};

// An open trace. Const use is thread-safe, each thread with its own TraceCursor.
class Trace {
 public:
  static Result<std::unique_ptr<Trace>> Open(IoBackend& backend, const std::string& path,
                                             std::span<const std::byte, 16> database_id, uint64_t generation,
                                             uint64_t file_bytes);
  ~Trace();
  uint64_t batch_count() const;
  uint64_t resident_bytes() const;

 private:
  friend class TraceCursor;
  explicit Trace(std::unique_ptr<RecordFile> file);
  const std::unique_ptr<RecordFile> file_;
};

// Reads batches of a trace into memory of its own. One thread.
class TraceCursor {
 public:
  explicit TraceCursor(const Trace& trace) : trace_(trace) {}
  // Valid until the next call. kCorruption and kIoError as reading gives them.
  Result<const TraceBatch*> Read(uint64_t batch);

 private:
  const Trace& trace_;
  IoBuffer buffer_;
  TraceBatch batch_;
};

// What is sampled: batch b of epoch e takes seeds[e][b * batch_size ...], with the random stream of the live
// road (seed, e, b), so that a planned epoch equals the live epoch of the same number.
struct TraceSpec {
  RoadSpec road;
  std::vector<std::vector<NodeId>> seeds;  // by epoch, in the order of use
  uint64_t first_pass = 1;                 // the pass number of seeds[0]
  uint64_t first_batch = 0;                // the number in its pass of the first batch of seeds[0]
  // One of several trainers: its batch b is number b * batch_step + batch_offset of the pass.
  uint64_t batch_step = 1, batch_offset = 0;
  unsigned threads = 1;
  uint64_t batch_count() const;
};

struct TraceSummary {
  uint64_t trace_bytes = 0;  // size of the two files
  uint64_t blocks_bytes = 0;
  uint64_t accesses = 0;  // input nodes, summed over batches
  uint64_t edges = 0;
  uint32_t batch_nodes_max = 0;
  uint32_t batch_edges_max = 0;
  uint32_t batch_targets_max = 0;  // nodes with sampled neighbors
};

// Samples the batches and writes two files that must not exist: the trace, and beside it the blocks (targets'
// degrees and neighbors in local ids of the trace's order) for the packer. `progress` gets the batches done;
// what it returns other than OK stops the work. Errors leave the files for the caller to remove.
Result<TraceSummary> SampleTrace(const NeighborSource& source, const TraceSpec& spec, IoBackend& backend,
                                 const std::string& trace_path, const std::string& blocks_path,
                                 const std::array<std::byte, 16>& database_id, uint64_t generation,
                                 const std::function<Status(uint64_t batches)>& progress);

}  // namespace quarry
