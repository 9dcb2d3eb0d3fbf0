#include <algorithm>
#include <atomic>

#include "bits.h"
#include "quarry/base/exhaustion.h"
#include "quarry/base/mutex.h"
#include "quarry/base/radix_sort.h"
#include "quarry/base/random.h"
#include "quarry/base/thread.h"
#include "quarry/base/units.h"
#include "quarry/layout/trace.h"
#include "record_file.h"
#include "trace_source.h"

namespace quarry {
namespace {

// Puts each hop group of a block in ascending order of ids, and renumbers the edges accordingly.
class Canonizer {
 public:
  void Apply(const Block& block) {
    const auto node_count = static_cast<uint32_t>(block.nodes.size());
    nodes.resize(node_count);
    new_id_.resize(node_count);
    old_id_.resize(node_count);
    uint32_t begin = 0;
    for (const uint32_t end : block.hop_offsets) {
      SortGroup(block, begin, end);
      begin = end;
    }
    const auto targets = static_cast<uint32_t>(block.indptr.size()) - 1;
    indptr.resize(targets + 1);
    indices.resize(block.indices.size());
    edge_low.resize(block.edge_ids.size());
    edge_high.resize(block.edge_ids.size());
    relations.resize(block.relations.size());
    indptr[0] = 0;
    for (uint32_t v = 0; v < targets; ++v) {  // targets are whole groups, so they stay a prefix
      const uint32_t old = old_id_[v];
      uint32_t at = indptr[v];
      for (uint32_t e = block.indptr[old]; e < block.indptr[old + 1]; ++e) {
        if (!block.edge_ids.empty()) {
          edge_low[at] = static_cast<uint32_t>(block.edge_ids[e]);
          edge_high[at] = static_cast<uint32_t>(block.edge_ids[e] >> 32);
        }
        if (!block.relations.empty()) relations[at] = block.relations[e];
        indices[at++] = new_id_[block.indices[e]];
      }
      indptr[v + 1] = at;
    }
  }

  std::vector<NodeId> nodes;
  std::vector<uint32_t> indptr, indices;
  // Words of the edges' ids, and their relations, where the block has them.
  std::vector<uint32_t> edge_low, edge_high, relations;

 private:
  void SortGroup(const Block& block, uint32_t begin, uint32_t end) {
    pairs_.clear();
    NodeId id_max = 0;
    for (uint32_t i = begin; i < end; ++i) {
      pairs_.push_back(uint64_t{block.nodes[i]} << 32 | i);
      id_max = std::max(id_max, block.nodes[i]);
    }
    RadixSortByKey(pairs_, id_max, scratch_);
    for (uint32_t i = begin; i < end; ++i) {
      const uint64_t pair = pairs_[i - begin];
      const auto old = static_cast<uint32_t>(pair);
      nodes[i] = static_cast<NodeId>(pair >> 32);
      old_id_[i] = old;
      new_id_[old] = i;
    }
  }

  std::vector<uint64_t> pairs_, scratch_;
  std::vector<uint32_t> new_id_, old_id_;
};

class TraceSampling {
 public:
  TraceSampling(const NeighborSource& source, const TraceSpec& spec, std::span<const uint64_t> only,
                RecordWriter& trace, RecordWriter& blocks, const std::function<Status(uint64_t)>& progress)
      : source_(source), spec_(spec), only_(only), trace_(trace), blocks_(blocks), progress_(progress) {}

  Status Run() {
    return RunOnThreads("sample", spec_.threads, [this](unsigned) { return Work(); });
  }
  const TraceSummary& summary() const { return summary_; }

 private:
  // The first error, of whichever thread: those whose turn does not come any more return it too.
  Status Work() {
    const Status status = CatchExhaustion("sampling an epoch", [this] { return SampleBatches(); });
    MutexLock lock(mutex_);
    if (error_.ok()) error_ = status;
    turn_changed_.NotifyAll();
    return error_;
  }

  Status SampleBatches() {
    QUARRY_TRY(const std::unique_ptr<NeighborSampler> sampler, NeighborSampler::Make(source_, spec_.road));
    Block block;
    Canonizer canonizer;
    std::vector<std::byte> encoded;
    const uint64_t count = only_.empty() ? spec_.batch_count() : only_.size();
    for (uint64_t turn = next_++; turn < count; turn = next_++) {
      QUARRY_RETURN_IF_ERROR(Sample(*sampler, only_.empty() ? turn : only_[turn], block));
      canonizer.Apply(block);
      encoded.clear();
      Encode(canonizer.nodes, block.hop_offsets, encoded);
      MutexLock lock(mutex_);
      while (turn_ != turn && error_.ok()) turn_changed_.Wait(mutex_);
      if (!error_.ok()) return error_;
      QUARRY_RETURN_IF_ERROR(Write(canonizer, encoded));
      if (progress_) QUARRY_RETURN_IF_ERROR(progress_(turn_ + 1));
      ++turn_;
      turn_changed_.NotifyAll();
    }
    return Status::Ok();
  }

  Status Sample(NeighborSampler& sampler, uint64_t batch, Block& block) const {
    uint64_t number = batch;
    size_t epoch = 0;
    for (;; ++epoch) {
      const uint64_t batches = CeilDiv(spec_.seeds[epoch].size(), spec_.road.batch_size);
      if (number < batches) break;
      number -= batches;
    }
    const std::vector<NodeId>& seeds = spec_.seeds[epoch];
    const uint64_t of_pass =
        number * spec_.batch_step + spec_.batch_offset + (epoch == 0 ? spec_.first_batch : 0);
    const uint64_t first = number * spec_.road.batch_size;
    const uint64_t count = std::min<uint64_t>(spec_.road.batch_size, seeds.size() - first);
    return sampler.Sample({seeds.data() + first, count}, spec_.road.SeedOf(spec_.first_pass + epoch, of_pass),
                          block);
  }

  static void Encode(const std::vector<NodeId>& nodes, const std::vector<uint32_t>& hop_offsets,
                     std::vector<std::byte>& out) {
    ByteWriter writer(out);
    writer.U32(static_cast<uint32_t>(hop_offsets.size()));
    for (const uint32_t end : hop_offsets) writer.U32(end);
    uint32_t begin = 0;
    for (const uint32_t end : hop_offsets) {
      writer.Ascending(std::span(nodes).subspan(begin, end - begin));
      begin = end;
    }
  }

  // Writes the batch whose turn it is: records stand in the order of batches whatever the threads do.
  Status Write(const Canonizer& canonizer, const std::vector<std::byte>& encoded) QUARRY_REQUIRES(mutex_) {
    const auto targets = static_cast<uint32_t>(canonizer.indptr.size()) - 1;
    const auto nodes = static_cast<uint32_t>(canonizer.nodes.size());
    const auto edges = static_cast<uint32_t>(canonizer.indices.size());
    summary_.accesses += nodes;
    summary_.edges += edges;
    summary_.batch_nodes_max = std::max(summary_.batch_nodes_max, nodes);
    summary_.batch_edges_max = std::max(summary_.batch_edges_max, edges);
    summary_.batch_targets_max = std::max(summary_.batch_targets_max, targets);
    QUARRY_RETURN_IF_ERROR(trace_.Append({encoded}));
    return blocks_.Append({std::as_bytes(std::span(&targets, 1)), BytesOf(canonizer.indptr),
                           BytesOf(canonizer.indices), BytesOf(canonizer.edge_low),
                           BytesOf(canonizer.edge_high), BytesOf(canonizer.relations)});
  }

  const NeighborSource source_;
  const TraceSpec& spec_;
  const std::span<const uint64_t> only_;  // batches, by turn; empty: all
  RecordWriter& trace_;
  RecordWriter& blocks_;
  const std::function<Status(uint64_t)>& progress_;
  std::atomic<uint64_t> next_{0};

  Mutex mutex_;
  CondVar turn_changed_;
  uint64_t turn_ QUARRY_GUARDED_BY(mutex_) = 0;
  Status error_ QUARRY_GUARDED_BY(mutex_);
  TraceSummary summary_;  // by whose turn it is
};

}  // namespace

uint64_t TraceSpec::batch_count() const {
  uint64_t count = 0;
  for (const std::vector<NodeId>& epoch : seeds) count += CeilDiv(epoch.size(), road.batch_size);
  return count;
}

Result<TraceSummary> SampleSome(const NeighborSource& source, const TraceSpec& spec,
                                std::span<const uint64_t> only, IoBackend& backend,
                                const std::string& trace_path, const std::string& blocks_path,
                                const std::array<std::byte, 16>& database_id, uint64_t generation,
                                const std::function<Status(uint64_t batches)>& progress) {
  QUARRY_TRY(const std::unique_ptr<RecordWriter> trace, RecordWriter::Create(backend, trace_path));
  QUARRY_TRY(const std::unique_ptr<RecordWriter> blocks, RecordWriter::Create(backend, blocks_path));
  TraceSampling sampling(source, spec, only, *trace, *blocks, progress);
  QUARRY_RETURN_IF_ERROR(sampling.Run());
  TraceSummary summary = sampling.summary();
  QUARRY_TRY(summary.trace_bytes, trace->Finish(database_id, generation));
  QUARRY_TRY(summary.blocks_bytes, blocks->Finish(database_id, generation));
  return summary;
}

Result<TraceSummary> SampleTrace(const NeighborSource& source, const TraceSpec& spec, IoBackend& backend,
                                 const std::string& trace_path, const std::string& blocks_path,
                                 const std::array<std::byte, 16>& database_id, uint64_t generation,
                                 const std::function<Status(uint64_t batches)>& progress) {
  return SampleSome(source, spec, {}, backend, trace_path, blocks_path, database_id, generation, progress);
}

}  // namespace quarry
