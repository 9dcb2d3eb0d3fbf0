#include "quarry/layout/cost_model.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <optional>

#include "cache_plan.h"
#include "quarry/base/mutex.h"
#include "quarry/base/thread.h"
#include "quarry/base/units.h"
#include "quarry/format/batch_view.h"
#include "quarry/io/coalesce.h"
#include "quarry/layout/segment_reads.h"
#include "quarry/layout/segments.h"
#include "record_file.h"
#include "scratch_file.h"

namespace quarry {
namespace {

DeviceProfile ReadsOf(const DeviceRecord& device) {
  return {.random_reads_per_second = device.random_reads_per_second,
          .sequential_bytes_per_second = device.sequential_bytes_per_second};
}

struct ReadCount {
  uint64_t bytes = 0;
  uint64_t requests = 0;  // as PathCost::requests
};

// A request that begins within the gap of the one before goes on with its run.
void Add(std::span<const MergedRead> reads, uint64_t gap_bytes_max, ReadCount& count) {
  for (size_t i = 0; i < reads.size(); ++i) {
    count.bytes += reads[i].bytes;
    const bool goes_on = i > 0 && reads[i].offset <= reads[i - 1].offset + reads[i - 1].bytes + gap_bytes_max;
    count.requests += !goes_on;
  }
}

// What the misses of one policy come to, over the whole trace.
struct MissTotals {
  uint64_t rows = 0;
  uint64_t accesses = 0;
  ReadCount row_reads, page_reads, merged_reads;
  uint64_t chunk_bytes = 0;   // each chunk in whole pages
  uint64_t carried_rows = 0;  // the part of `rows` read with the last batch for the next cycle alone
  uint64_t image_rows = 0;    // that the cache starts with
};

// Adds up the misses of one batch after the other. Holds a bit a node, and up to 44 bytes a miss of a batch.
class MissCounter {
 public:
  MissCounter(const FeatureGeometry& geometry, uint32_t block_bytes, uint64_t gap_bytes_max)
      : geometry_(geometry),
        block_bytes_(block_bytes),
        gap_bytes_max_(gap_bytes_max),
        missed_(CeilDiv(geometry.row_count, 64)) {}

  // Marks a miss of the batch at hand. False when it was marked before.
  bool Mark(NodeId node) {
    uint64_t& word = missed_[node / 64];
    const uint64_t bit = uint64_t{1} << (node % 64);
    const bool fresh = (word & bit) == 0;
    word |= bit;
    return fresh;
  }

  // Those marked, ascending. Valid until the next call.
  const std::vector<NodeId>& Marked() {
    nodes_.clear();
    for (size_t word = 0; word < missed_.size(); ++word) {
      for (uint64_t bits = missed_[word]; bits != 0; bits &= bits - 1) {
        nodes_.push_back(static_cast<NodeId>(word * 64 + static_cast<unsigned>(std::countr_zero(bits))));
      }
    }
    return nodes_;
  }

  void FinishBatch(MissTotals& totals) {
    ranges_.clear();
    reads_.clear();
    next_page_ = 0;
    const uint64_t rows_before = totals.rows;
    for (const NodeId node : Marked()) AddRow(node, totals);
    std::ranges::fill(missed_, 0);
    totals.chunk_bytes +=
        RoundUp((totals.rows - rows_before) * RowStride(geometry_.element_type, geometry_.dim), kPageBytes);
    Coalesce(ranges_, {.block_bytes = block_bytes_, .gap_bytes_max = gap_bytes_max_}, reads_);
    Add(reads_, gap_bytes_max_, totals.merged_reads);
  }

 private:
  void AddRow(NodeId node, MissTotals& totals) {
    ++totals.rows;
    const uint64_t cell = geometry_.CellOffset(geometry_.CellOfRow(node));
    const uint64_t cell_bytes = geometry_.cell_bytes();
    ranges_.push_back({cell, cell_bytes});
    ++totals.row_reads.requests;
    totals.row_reads.bytes += RoundUp(cell + cell_bytes, block_bytes_) - RoundDown(cell, block_bytes_);
    const uint64_t begin = cell / kPageBytes;
    const uint64_t first = std::max(next_page_, begin);
    if (begin > next_page_ || next_page_ == 0) ++totals.page_reads.requests;  // pages that adjoin are one
    next_page_ = std::max(next_page_, CeilDiv(cell + cell_bytes, kPageBytes));
    totals.page_reads.bytes += (next_page_ - first) * kPageBytes;
  }

  const FeatureGeometry& geometry_;
  const uint32_t block_bytes_;
  const uint64_t gap_bytes_max_;
  std::vector<uint64_t> missed_;
  std::vector<ByteRange> ranges_;
  std::vector<MergedRead> reads_;
  std::vector<NodeId> nodes_;
  uint64_t next_page_ = 0;  // no page before it is read again by this batch
};

// Rows that were read where they lie in the table: the cells that hold them are verified, and they are copied.
ProcessorWork ScatteredWork(const FeatureGeometry& geometry, uint64_t rows, const ReadCount& reads) {
  return {.checksum_bytes = static_cast<double>(std::min(rows * geometry.cell_bytes(), reads.bytes)),
          .copied_bytes = static_cast<double>(rows * RowStride(geometry.element_type, geometry.dim)),
          .requests = static_cast<double>(reads.requests)};
}

bool PricesOwnPolicy(const CostModelOptions& options) {
  return options.policy != PolicyKind::kBelady && options.policy != PolicyKind::kStaticFrequency;
}

class CostModel {
 public:
  CostModel(IoBackend& backend, const Trace& trace, const CostModelOptions& options,
            const ProgressFunction& progress)
      : backend_(backend), trace_(trace), options_(options), progress_(progress) {}

  Result<std::vector<PathCost>> Run() {
    // Beside the others: it takes as long as they do.
    auto live = BackgroundTask<Result<MissTotals>>::Start(
        "simulate", [this] { return Simulate(PolicyKind::kLru, nullptr); });
    QUARRY_TRY(const MissTotals belady, SimulatePacked(PolicyKind::kBelady));
    QUARRY_TRY(const MissTotals frequency, SimulatePacked(PolicyKind::kStaticFrequency));
    std::optional<MissTotals> own;
    if (PricesOwnPolicy(options_)) {
      QUARRY_TRY(own, SimulatePacked(options_.policy));
    }
    QUARRY_TRY(const MissTotals lru, live.Get());
    accesses_ = lru.accesses;
    AddScattered(AccessPath::kRowReads, &MissTotals::row_reads, lru, belady);
    AddScattered(AccessPath::kPageReads, &MissTotals::page_reads, lru, belady);
    AddScattered(AccessPath::kMergedReads, &MissTotals::merged_reads, lru, belady);
    AddScanAndPack(belady);
    AddPacked(PolicyKind::kBelady, belady);
    AddPacked(PolicyKind::kStaticFrequency, frequency);
    if (own) AddPacked(options_.policy, *own);
    if (segments_) AddSegmentCaches();
    return std::move(paths_);
  }

 private:
  // What segment caches come to, over the whole trace.
  struct SegmentTotals {
    uint64_t miss_rows = 0;
    uint64_t carried_rows = 0;  // in the chunk of the last batch, wherever else they are
    uint64_t chunk_bytes = 0;
    uint64_t cache_bytes = 0;  // on disk
    uint64_t image_rows = 0;
    ReadCount reads;
  };

  // Writes the misses of each batch to `misses` too, carried rows left out, unless it is null.
  Result<MissTotals> Simulate(PolicyKind policy, RecordWriter* misses);
  Result<MissTotals> SimulatePacked(PolicyKind policy);
  Result<SegmentTotals> CountSegments(const RecordFile& misses, const MissTotals& totals);
  Status ReportBatch();
  Status CountSegment(const MissReader& misses, uint64_t segment, const SegmentOptions& options,
                      std::vector<uint32_t>& places, SegmentTotals& totals);

  void AddScattered(AccessPath path, ReadCount MissTotals::*reads, const MissTotals& lru,
                    const MissTotals& belady);
  void AddScanAndPack(const MissTotals& totals);
  void AddPacked(PolicyKind policy, const MissTotals& totals);
  void AddSegmentCaches();
  void AddOneTime(uint64_t bytes, PathCost& cost) const;
  // Turns the totals in `cost` into an epoch's, and prices them. `seeks` = requests that cost time of their
  // own, and `work`: of the whole trace.
  void Price(PathCost cost, uint64_t seeks, const ProcessorWork& work);
  // Chunks and blocks are read a MiB at a time, verified whole, and used where they are.
  ProcessorWork PackedWork(uint64_t region_bytes) const {
    return {.checksum_bytes = static_cast<double>(region_bytes),
            .decoded_bytes = static_cast<double>(options_.planned_block_bytes),
            .requests = static_cast<double>(region_bytes) / static_cast<double>(kMiB)};
  }

  uint64_t epochs() const { return std::max<uint64_t>(1, trace_.batch_count() / options_.batches_per_epoch); }
  uint64_t stride() const { return RowStride(options_.geometry.element_type, options_.geometry.dim); }
  double ReadSeconds(uint64_t bytes) const {
    return static_cast<double>(bytes) / options_.device.sequential_bytes_per_second;
  }
  double WriteSeconds(uint64_t bytes) const {
    return static_cast<double>(bytes) / options_.device.write_bytes_per_second;
  }

  IoBackend& backend_;
  const Trace& trace_;
  const CostModelOptions& options_;
  const ProgressFunction& progress_;
  Mutex mutex_;
  uint64_t batches_done_ QUARRY_GUARDED_BY(mutex_) = 0;
  uint64_t accesses_ = 0;
  std::optional<SegmentTotals> segments_;
  std::vector<PathCost> paths_;
};

Result<MissTotals> CostModel::Simulate(PolicyKind policy, RecordWriter* misses) {
  const uint64_t node_count = options_.geometry.row_count;
  std::unique_ptr<NextUses> next_uses;
  if (WantsNextUses(policy)) {
    const ScratchFile scratch(backend_, options_.scratch_path + "-next");
    QUARRY_TRY(next_uses, NextUses::Make(backend_, trace_, node_count, /*cyclic=*/true, scratch.path()));
  }
  MissTotals totals;
  MissCounter counter(options_.geometry, options_.block_bytes, ReadsOf(options_.device).GapBytesMax());
  const auto visit = [&](uint64_t batch, const TraceBatch& nodes, const CacheStep& step) -> Status {
    if (batch > 0) counter.FinishBatch(totals);  // the last batch waits for the carried rows
    for (size_t i = 0; i < step.slots.size(); ++i) {
      if (step.slots[i] == kNoSlot) counter.Mark(nodes.nodes[i]);
    }
    if (misses != nullptr) QUARRY_RETURN_IF_ERROR(misses->Append({BytesOf(counter.Marked())}));
    return ReportBatch();
  };
  QUARRY_TRY(const CachePlan plan, SimulateCache(trace_, next_uses.get(),
                                                 {.policy = policy,
                                                  .node_count = node_count,
                                                  .capacity = options_.cache_rows,
                                                  .degrees = options_.degrees,
                                                  .row_bytes = stride()},
                                                 visit));
  for (const CacheSimulator::Carried& carried : plan.carried) {
    totals.carried_rows += counter.Mark(carried.node);
  }
  counter.FinishBatch(totals);
  totals.image_rows = plan.start.size();
  totals.accesses = plan.accesses;
  return totals;
}

Status CostModel::ReportBatch() {
  if (!progress_) return Status::Ok();
  const uint64_t passes = uint64_t{3} + PricesOwnPolicy(options_) + (options_.batches_per_segment > 0);
  MutexLock lock(mutex_);
  return progress_("simulating caches", ++batches_done_, passes * trace_.batch_count());
}

// Counts segment caches too when it is the layout's policy and has them.
Result<MissTotals> CostModel::SimulatePacked(PolicyKind policy) {
  if (policy != options_.policy || options_.batches_per_segment == 0) return Simulate(policy, nullptr);
  const ScratchFile scratch(backend_, options_.scratch_path + "-misses");
  QUARRY_TRY(const std::unique_ptr<RecordWriter> writer, RecordWriter::Create(backend_, scratch.path()));
  QUARRY_TRY(const MissTotals totals, Simulate(policy, writer.get()));
  QUARRY_TRY(const uint64_t bytes, writer->Finish(kScratchId, kScratchGeneration));
  QUARRY_TRY(const std::unique_ptr<RecordFile> misses,
             RecordFile::Open(backend_, scratch.path(), kScratchId, kScratchGeneration, bytes));
  scratch.Remove();
  QUARRY_TRY(segments_, CountSegments(*misses, totals));
  return totals;
}

Result<CostModel::SegmentTotals> CostModel::CountSegments(const RecordFile& misses,
                                                          const MissTotals& totals) {
  IoBuffer buffer;
  const MissReader reader = [&](uint64_t batch) { return ReadArray<NodeId>(misses, batch, buffer); };
  const SegmentOptions options{.node_count = options_.geometry.row_count,
                               .batch_count = trace_.batch_count(),
                               .row_bytes = stride(),
                               .hash_functions = options_.hash_functions,
                               .seed = options_.seed};
  SegmentTotals segments{
      .miss_rows = totals.rows, .carried_rows = totals.carried_rows, .image_rows = totals.image_rows};
  std::vector<uint32_t> places(options.node_count, kNoSlot);
  for (uint64_t segment = 0; segment * options_.batches_per_segment < options.batch_count; ++segment) {
    QUARRY_RETURN_IF_ERROR(CountSegment(reader, segment, options, places, segments));
  }
  return segments;
}

Status CostModel::CountSegment(const MissReader& misses, uint64_t segment, const SegmentOptions& options,
                               std::vector<uint32_t>& places, SegmentTotals& totals) {
  const uint64_t first = segment * options_.batches_per_segment;
  const uint64_t count = std::min(options_.batches_per_segment, options.batch_count - first);
  QUARRY_TRY(const SegmentCache cache, BuildSegmentCache(misses, first, count, options));
  for (uint32_t i = 0; i < cache.nodes.size(); ++i) places[cache.nodes[i]] = i;
  totals.cache_bytes += RoundUp(cache.nodes.size() * stride(), kPageBytes);
  const uint64_t gap_bytes_max = ReadsOf(options_.device).GapBytesMax();
  std::vector<uint32_t> batch_places;
  std::vector<ByteRange> ranges;
  std::vector<MergedRead> reads;
  for (uint64_t batch = first; batch < first + count; ++batch) {
    QUARRY_TRY(const std::span<const NodeId> nodes, misses(batch));
    batch_places.clear();
    for (const NodeId node : nodes) {
      if (places[node] != kNoSlot) batch_places.push_back(places[node]);
    }
    std::ranges::sort(batch_places);
    const uint64_t carried_rows = batch + 1 == options.batch_count ? totals.carried_rows : 0;
    totals.chunk_bytes += RoundUp((nodes.size() - batch_places.size() + carried_rows) * stride(), kPageBytes);
    reads.clear();
    PlanSegmentReads(0, stride(), batch_places, gap_bytes_max, ranges, reads);
    Add(reads, gap_bytes_max, totals.reads);
    QUARRY_RETURN_IF_ERROR(ReportBatch());
  }
  for (const NodeId node : cache.nodes) places[node] = kNoSlot;
  return Status::Ok();
}

void CostModel::AddScattered(AccessPath path, ReadCount MissTotals::*reads, const MissTotals& lru,
                             const MissTotals& belady) {
  const auto add = [&](PolicyKind policy, const MissTotals& totals) {
    Price({.path = path,
           .policy = policy,
           .useful_bytes = totals.rows * options_.geometry.row_bytes,
           .read_bytes = (totals.*reads).bytes,
           .requests = (totals.*reads).requests},
          (totals.*reads).requests, ScatteredWork(options_.geometry, totals.rows, totals.*reads));
  };
  add(PolicyKind::kLru, lru);
  add(PolicyKind::kBelady, belady);
}

void CostModel::AddScanAndPack(const MissTotals& totals) {
  const uint64_t region_bytes = totals.chunk_bytes + options_.planned_block_bytes;
  ProcessorWork work = PackedWork(region_bytes);
  work.checksum_bytes += static_cast<double>(epochs() * options_.geometry.data_bytes() + region_bytes);
  work.copied_bytes += static_cast<double>(totals.chunk_bytes);
  Price({.path = AccessPath::kScanAndPack,
         .policy = PolicyKind::kBelady,
         .useful_bytes = totals.rows * options_.geometry.row_bytes,
         .read_bytes = epochs() * options_.geometry.data_bytes() + region_bytes,
         .written_bytes = region_bytes,
         .requests = epochs() + trace_.batch_count()},
        0, work);
}

void CostModel::AddPacked(PolicyKind policy, const MissTotals& totals) {
  const uint64_t region_bytes = totals.chunk_bytes + options_.planned_block_bytes;
  PathCost cost{.path = AccessPath::kPackedChunks,
                .policy = policy,
                .useful_bytes = totals.rows * options_.geometry.row_bytes,
                .read_bytes = region_bytes,
                .requests = trace_.batch_count()};
  AddOneTime(region_bytes + RoundUp(totals.image_rows * stride(), kPageBytes), cost);
  Price(cost, 0, PackedWork(region_bytes));
}

void CostModel::AddSegmentCaches() {
  const uint64_t region_bytes = segments_->chunk_bytes + options_.planned_block_bytes;
  PathCost cost{.path = AccessPath::kSegmentCaches,
                .policy = options_.policy,
                .useful_bytes = segments_->miss_rows * options_.geometry.row_bytes,
                .read_bytes = region_bytes + segments_->reads.bytes,
                .requests = trace_.batch_count() + segments_->reads.requests};
  AddOneTime(region_bytes + segments_->cache_bytes + RoundUp(segments_->image_rows * stride(), kPageBytes),
             cost);
  ProcessorWork work = PackedWork(region_bytes + segments_->reads.bytes);
  work.copied_bytes = static_cast<double>(segments_->miss_rows * stride());
  work.requests += static_cast<double>(segments_->reads.requests);
  Price(cost, segments_->reads.requests, work);
}

// Packing: the table is read once, front to back, and `bytes` are written.
void CostModel::AddOneTime(uint64_t bytes, PathCost& cost) const {
  cost.one_time_bytes = bytes;
  cost.one_time_seconds = ReadSeconds(options_.geometry.data_bytes()) + WriteSeconds(bytes);
}

void CostModel::Price(PathCost cost, uint64_t seeks, const ProcessorWork& work) {
  const auto epoch_count = static_cast<double>(epochs());
  const double io_seconds =
      ReadsOf(options_.device).ReadSeconds(cost.read_bytes, seeks) + WriteSeconds(cost.written_bytes);
  const double gather_seconds =
      static_cast<double>(accesses_ * options_.geometry.row_bytes) / options_.device.gather_bytes_per_second;
  const double work_seconds = work.Seconds(options_.device.core) / std::max(1U, options_.processors);
  cost.processor_bound = work_seconds > std::max(io_seconds, gather_seconds);
  cost.gather_bound = !cost.processor_bound && gather_seconds > io_seconds;
  cost.seconds = std::max({io_seconds, gather_seconds, work_seconds}) / epoch_count;
  for (uint64_t PathCost::*figure :
       {&PathCost::useful_bytes, &PathCost::read_bytes, &PathCost::written_bytes, &PathCost::requests}) {
    cost.*figure /= epochs();
  }
  paths_.push_back(cost);
}

std::string Describe(const PathCost& cost) {
  return fmt::format("{} with {}", AccessPathName(cost.path), NameOf(cost.policy));
}

// What a path takes most of its time for.
std::string MainCost(const PathCost& cost) {
  switch (cost.path) {
    case AccessPath::kRowReads:
    case AccessPath::kPageReads:
      return fmt::format("{} requests", FormatCount(static_cast<double>(cost.requests)));
    case AccessPath::kMergedReads:
      return fmt::format("{} read for {} of rows", FormatBytes(cost.read_bytes),
                         FormatBytes(cost.useful_bytes));
    case AccessPath::kScanAndPack:
      return fmt::format("the table is read and {} are written anew", FormatBytes(cost.written_bytes));
    case AccessPath::kPackedChunks:
    case AccessPath::kSegmentCaches:
      return fmt::format("{} read, {} packed once", FormatBytes(cost.read_bytes),
                         FormatBytes(cost.one_time_bytes));
  }
  return "";
}

}  // namespace

std::string_view AccessPathName(AccessPath path) {
  constexpr std::string_view kNames[] = {"row reads",     "page reads",    "merged reads",
                                         "scan and pack", "packed chunks", "segment caches"};
  return kNames[static_cast<size_t>(path)];
}

uint64_t CostModelBytes(const CostModelOptions& options, uint64_t batch_nodes_max) {
  const uint64_t node_count = options.geometry.row_count;
  constexpr uint64_t kBytesPerMiss = sizeof(ByteRange) + sizeof(MergedRead) + sizeof(NodeId);
  const auto simulation_bytes = [&](PolicyKind policy) {
    const CachePlanOptions plan{.policy = policy, .node_count = node_count, .capacity = options.cache_rows};
    return CachePlanBytes(plan, batch_nodes_max) + node_count / 8 + batch_nodes_max * kBytesPerMiss;
  };
  // Places and the counts with which segments are built (segments.h).
  const uint64_t segment_bytes = options.batches_per_segment == 0 ? 0 : node_count * 2 * sizeof(uint32_t);
  return simulation_bytes(PolicyKind::kLru) +
         std::max({simulation_bytes(PolicyKind::kBelady), simulation_bytes(options.policy), segment_bytes});
}

Result<std::vector<PathCost>> PredictPaths(IoBackend& backend, const Trace& trace,
                                           const CostModelOptions& options,
                                           const ProgressFunction& progress) {
  return CostModel(backend, trace, options, progress).Run();
}

Result<double> MergedReadSeconds(const MissReader& misses, uint64_t batch_count,
                                 const FeatureGeometry& geometry, uint32_t block_bytes,
                                 const DeviceRecord& device) {
  MissTotals totals;
  MissCounter counter(geometry, block_bytes, ReadsOf(device).GapBytesMax());
  for (uint64_t batch = 0; batch < batch_count; ++batch) {
    QUARRY_TRY(const std::span<const NodeId> nodes, misses(batch));
    for (const NodeId node : nodes) counter.Mark(node);
    counter.FinishBatch(totals);
  }
  const ReadCount& reads = totals.merged_reads;
  return std::max(ReadsOf(device).ReadSeconds(reads.bytes, reads.requests),
                  ScatteredWork(geometry, totals.rows, reads).Seconds(device.core));
}

PathChoice ChoosePath(std::span<const PathCost> paths, uint64_t epochs) {
  const auto seconds = [epochs](const PathCost& cost) { return cost.AmortisedSeconds(epochs); };
  const auto best = std::ranges::min_element(paths, {}, seconds);
  PathChoice choice{.best = static_cast<size_t>(best - paths.begin())};
  const PathCost* next = nullptr;  // the best of another kind: how much depends on the way of reading
  for (const PathCost& cost : paths) {
    if (cost.path != best->path && (next == nullptr || seconds(cost) < seconds(*next))) next = &cost;
  }
  choice.why =
      fmt::format("{}: {:.2f} s an epoch, its share of {:.2f} s of packing over {} epoch{} included",
                  Describe(*best), seconds(*best), best->one_time_seconds, epochs, epochs == 1 ? "" : "s");
  if (best->one_time_seconds == 0)
    choice.why = fmt::format("{}: {:.2f} s an epoch", Describe(*best), best->seconds);
  if (best->gather_bound) {
    choice.why += ", which is what gathering the rows in memory takes, whatever the disk does";
  } else if (best->processor_bound) {
    choice.why += ", which is what processors take to verify, copy and decode what is read";
  } else if (next != nullptr) {
    choice.why += fmt::format("; the next best way, {}, takes {:.2f} s ({})", Describe(*next), seconds(*next),
                              MainCost(*next));
  }
  choice.why += '.';
  return choice;
}

}  // namespace quarry
