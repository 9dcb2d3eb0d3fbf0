#include "layout_builder.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <sstream>

#include "layout_file.h"
#include "quarry/base/kill_point.h"
#include "quarry/base/log.h"
#include "quarry/base/random.h"
#include "quarry/base/trace.h"
#include "quarry/base/units.h"
#include "quarry/format/batch_view.h"
#include "quarry/layout/cost_model.h"
#include "quarry/layout/segments.h"
#include "quarry/storage/layout_files.h"
#include "quarry/storage/node_properties.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMarkFile = "sampled";
constexpr int kSegmentTriesMax = 6;

}  // namespace

Status LayoutBuilder::Prepare(const std::string& folder) {
  QUARRY_RETURN_IF_ERROR(CheckPlannable(spec_.road));
  if (spec_.snapshot == nullptr) {
    QUARRY_TRY(spec_.snapshot, store_.TakeSnapshot());
  }
  const std::shared_ptr<const Manifest> manifest = store_.manifest();
  tables_ = SourceRecordsOf(*manifest, spec_.road, spec_.snapshot.get());
  const TopologyRecord* topology = spec_.snapshot->FindTopology(spec_.road.topology);
  for (const SourceRecord& table : tables_) {
    if (table.record == nullptr) {
      QUARRY_RETURN_IF_ERROR(store_.OpenTable(table.name).status());  // says which there are
      return MakeStatus(Code::kNotFound, "table \"{}\" was made since the snapshot", table.name);
    }
    QUARRY_TRY(const FeatureGeometry geometry,
               FeatureGeometry::Make(table.record->element_type, table.record->dim, table.record->row_count));
    geometries_.push_back(geometry);
  }
  if (topology == nullptr) return store_.OpenTopology(spec_.road.topology).status();
  topology_record_ = *topology;
  QUARRY_TRY(rows_, RowLengthsOf(*manifest, spec_.road, spec_.snapshot.get()));
  QUARRY_TRY(place_, PrepareLayout(store_, spec_.name, folder));
  return Status::Ok();
}

// What the sampled batches depend on.
uint64_t LayoutBuilder::TraceKey() const {
  return MixSeed(spec_.road.SampleHash(), spec_.road.edge_ids, spec_.first_pass, spec_.first_batch,
                 spec_.batches, spec_.epochs, topology_record_.timestamp(), topology_record_.edge_count,
                 place_.generation, seed_hash_, spec_.share.rank, spec_.share.ranks,
                 Checksum64(std::as_bytes(std::span(spec_.share.rank_partitioning))));
}

Status LayoutBuilder::WriteMark() const {
  const TraceSummary& t = report_.trace;
  const std::string text =
      fmt::format("{} {} {} {} {} {} {} {}\n", TraceKey(), t.trace_bytes, t.blocks_bytes, t.accesses, t.edges,
                  t.batch_nodes_max, t.batch_edges_max, t.batch_targets_max);
  IoBackend& backend = store_.backend();
  QUARRY_TRY(const File file, backend.Open(Path(kMarkFile), OpenMode::kCreate));
  QUARRY_RETURN_IF_ERROR(backend.WriteAt(file, 0, std::as_bytes(std::span(text))));
  QUARRY_RETURN_IF_ERROR(backend.SyncFile(file));
  QUARRY_RETURN_IF_ERROR(backend.SyncDirectory(place_.building));
  KillPoint("layout: sampled");
  return Status::Ok();
}

Result<std::string> LayoutBuilder::ReadMark() const {
  constexpr uint64_t kMarkBytesMax = 1 << 10;
  IoBackend& backend = store_.backend();
  QUARRY_TRY(const File file, backend.Open(Path(kMarkFile), OpenMode::kReadBuffered));
  QUARRY_TRY(const uint64_t bytes, backend.FileBytes(file));
  std::string text(std::min(bytes, kMarkBytesMax), '\0');
  QUARRY_RETURN_IF_ERROR(backend.ReadAt(file, 0, std::as_writable_bytes(std::span(text))));
  return text;
}

// True when the folder holds the whole trace of the same spec.
bool LayoutBuilder::TakeOverTrace() {
  const Result<std::string> text = ReadMark();
  std::istringstream mark(text.ok() ? *text : "");
  uint64_t key = 0;
  TraceSummary& t = report_.trace;
  if (!(mark >> key >> t.trace_bytes >> t.blocks_bytes >> t.accesses >> t.edges >> t.batch_nodes_max >>
        t.batch_edges_max >> t.batch_targets_max) ||
      key != TraceKey()) {
    return false;
  }
  const std::shared_ptr<const Manifest> manifest = store_.manifest();
  const DatabaseId& id = manifest->database_id;
  return RecordFile::Open(store_.backend(), Path("blocks.tmp"), id, place_.generation, t.blocks_bytes).ok() &&
         Trace::Open(store_.backend(), Path(kTraceFile), id, place_.generation, t.trace_bytes).ok();
}

// A specification that no sampler takes is refused in here: then nothing is left.
Status LayoutBuilder::SampleAnew(TraceSource& source, const TraceSpec& spec) {
  QUARRY_RETURN_IF_ERROR(RemoveTree(store_.backend(), place_.building));
  QUARRY_RETURN_IF_ERROR(store_.backend().CreateDirectory(place_.building));
  Status sampled = SampleInto(source, spec);
  if (!sampled.ok() && sampled.code() != Code::kCancelled) Discard(store_.backend(), place_.building);
  return sampled;
}

Status LayoutBuilder::SampleInto(TraceSource& source, const TraceSpec& spec) {
  report_.trace = TraceSummary();
  QUARRY_RETURN_IF_ERROR(source.CacheNeighbors(budget_));
  QUARRY_TRY(report_.trace,
             SampleTrace(source.neighbors(), spec, store_.backend(), Path(kTraceFile), Path("blocks.tmp"),
                         store_.manifest()->database_id, place_.generation,
                         [&](uint64_t batches) { return Report("sampling", batches, spec.batch_count()); }));
  return WriteMark();
}

Status LayoutBuilder::Sample(TraceSource& source, bool resume) {
  const ScopedSpan span("sample an epoch ahead");
  const double start = MonotonicSeconds();
  report_.sequences = source.sequences();
  seed_hash_ = source.seed_hash();
  QUARRY_TRY(const TraceSpec spec, source.SpecOf(spec_.share));
  batches_per_epoch_ = spec.batch_count() / spec_.epochs;
  report_.resumed = resume && TakeOverTrace();
  if (!report_.resumed) QUARRY_RETURN_IF_ERROR(SampleAnew(source, spec));
  QUARRY_TRY(trace_, Trace::Open(store_.backend(), Path(kTraceFile), store_.manifest()->database_id,
                                 place_.generation, report_.trace.trace_bytes));
  report_.sample_seconds += MonotonicSeconds() - start;
  return Status::Ok();
}

uint64_t LayoutBuilder::TotalBytes() const {
  const uint64_t slack = 64 * kKiB;  // superblock, footer, the pages that sections fill in part
  const uint64_t directory = encoder_->entries().size() * sizeof(BatchEntry) +
                             encoder_->segments().size() * sizeof(SegmentEntry) +
                             cache_plan_.start.size() * 2 * sizeof(uint32_t);
  const uint64_t regions = encoder_->regions_bytes();
  return regions + regions / kPageBytes * sizeof(uint32_t) + directory + report_.trace.trace_bytes + slack;
}

Status LayoutBuilder::Encode() {
  const ScopedSpan span("encode blocks");
  const Status packed = EncodePacked();
  return spec_.packing == Packing::kAlways ? packed : ChoosePacking(packed);
}

// Packs or not, by the seconds of one epoch. `packed`: what encoding for packing came to; it may not fit.
//
// A layout that is used once must earn its packing within that one epoch: reading the table, writing the
// chunks and reading them are held against reading the misses of every batch from the table by merged
// requests (exact, over all batches). When the table wins, or the disk budget has no room for chunks, the
// layout keeps its blocks, slots and cache changes, and frames are filled from the table (Ginex §3.1, with
// merged reads instead of row reads).
Status LayoutBuilder::ChoosePacking(const Status& packed) {
  const bool fits = packed.ok();
  if (!fits && packed.code() != Code::kNoSpace) return packed;
  if (spec_.packing == Packing::kCheaper) {
    QUARRY_TRY(report_.merged_seconds, MergedSeconds());
    report_.packed_seconds = PackedSeconds();
    if (fits && report_.packed_seconds <= report_.merged_seconds) return Status::Ok();
  }
  report_.packed = false;
  if (encoder_->batches_per_segment() > 0) {
    QUARRY_RETURN_IF_ERROR(encoder_->Encode(0, {}, cache_plan_.start, {}));
  }
  encoder_->LeaveRowsInTable();
  if (spec_.disk_bytes == 0 || TotalBytes() <= spec_.disk_bytes) return Status::Ok();
  return MakeStatus(Code::kNoSpace, "a layout of {} does not fit: its blocks and trace alone take {}",
                    FormatBytes(spec_.disk_bytes), FormatBytes(TotalBytes()));
}

// What it takes to read what the batches miss from the tables.
Result<double> LayoutBuilder::MergedSeconds() {
  double seconds = 0;
  for (size_t i = 0; i < tables_.size(); ++i) {
    QUARRY_TRY(const std::unique_ptr<FeatureTable> table, store_.OpenTable(*spec_.snapshot, tables_[i].name));
    MissReader misses = encoder_->miss_reader();
    RowCursor cursor(*trace_, tables_[i].nodes);
    TraceBatch missed;
    if (!rows_.tables.empty()) {
      misses = [&, all = misses](uint64_t batch) -> Result<std::span<const NodeId>> {
        QUARRY_TRY(const std::span<const NodeId> nodes, all(batch));
        missed.nodes.assign(nodes.begin(), nodes.end());
        return std::span<const NodeId>(cursor.RowsOf(missed).nodes);
      };
    }
    QUARRY_TRY(const double of_table, MergedReadSeconds(misses, trace_->batch_count(), geometries_[i],
                                                        table->block_bytes(), DeviceOf(*store_.manifest())));
    seconds += of_table;
  }
  return seconds;
}

// What it takes to pack, on all threads, and to read what was packed, which one thread verifies: each the device's
// seconds or those of the processors, whichever are more.
double LayoutBuilder::PackedSeconds() const {
  const DeviceRecord device = DeviceOf(*store_.manifest());
  double table_bytes = 0;
  for (const FeatureGeometry& geometry : geometries_)
    table_bytes += static_cast<double>(geometry.data_bytes());
  const auto regions_bytes = static_cast<double>(encoder_->regions_bytes());
  const ReadPlan reads = PlanReads(ProfileOf(*store_.manifest()));
  const double packing =
      ProcessorWork{.checksum_bytes = table_bytes + regions_bytes, .copied_bytes = regions_bytes}.Seconds(
          device.core) /
      std::max(1U, spec_.threads);
  const double reading =
      ProcessorWork{.checksum_bytes = static_cast<double>(reads.bytes)}.Seconds(device.core);
  return std::max(
             table_bytes / device.sequential_bytes_per_second + regions_bytes / device.write_bytes_per_second,
             packing) +
         std::max(reads.seconds, reading);
}

// Encodes the batches, with segments as small as the disk budget allows, or none.
//
// The search knows rows exactly, but not what the blocks will take once some of their rows lie in segments.
// So its answer is encoded and measured, and where that exceeds the disk budget, the search runs again with
// as much less for rows.
Status LayoutBuilder::EncodePacked() {
  const SegmentOptions options{.node_count = rows_.node_count,
                               .batch_count = trace_->batch_count(),
                               .row_bytes = rows_.row_stride,
                               .hash_functions = spec_.hash_functions,
                               .seed = spec_.road.seed};
  const auto progress = [&](uint64_t batch) { return Report("encoding", batch, trace_->batch_count()); };
  QUARRY_RETURN_IF_ERROR(encoder_->Encode(0, options, cache_plan_.start, progress));
  if (spec_.disk_bytes == 0 || TotalBytes() <= spec_.disk_bytes) return Status::Ok();
  if (!rows_.tables.empty()) {
    return MakeStatus(Code::kNoSpace,
                      "a layout of {} does not fit: packed it takes {}, and rows of several types are packed "
                      "for each batch by itself: give it that, or more memory for the cache",
                      FormatBytes(spec_.disk_bytes), FormatBytes(TotalBytes()));
  }

  const double start = MonotonicSeconds();
  const uint64_t chunk_bytes = encoder_->chunk_bytes();
  // A segment row costs its block about four bytes more than a chunk row.
  const uint64_t others = TotalBytes() - chunk_bytes + cache_plan_.misses * 4;
  uint64_t rows_budget = spec_.disk_bytes > others ? spec_.disk_bytes - others : 0;
  for (int tries = 0; tries < kSegmentTriesMax; ++tries) {
    const Result<SegmentSearch> search = SearchSegmentSize(encoder_->miss_reader(), rows_budget, options);
    if (search.status().code() == Code::kNoSpace) {
      return MakeStatus(Code::kNoSpace,
                        "a layout of {} does not fit: besides {} of blocks, trace and cache image, {}",
                        FormatBytes(spec_.disk_bytes), FormatBytes(others), search.status().message());
    }
    QUARRY_RETURN_IF_ERROR(search.status());
    report_.segment_search_seconds = MonotonicSeconds() - start;
    const uint64_t segment_misses =
        cache_plan_.misses * search->batches_per_segment / std::max<uint64_t>(1, trace_->batch_count());
    QUARRY_TRY(const MemoryBudget::Reservation reservation,
               budget_.Reserve(SegmentCacheBytes(segment_misses / 2, options), "ordering a segment cache"));
    QUARRY_RETURN_IF_ERROR(
        encoder_->Encode(search->batches_per_segment, options, cache_plan_.start, progress));
    if (TotalBytes() <= spec_.disk_bytes) return Status::Ok();
    const uint64_t excess = TotalBytes() - spec_.disk_bytes + kMiB;
    rows_budget = rows_budget > excess ? rows_budget - excess : 0;
  }
  return MakeStatus(Code::kNoSpace, "a layout of {} does not fit; {} would", FormatBytes(spec_.disk_bytes),
                    FormatBytes(TotalBytes()));
}

Status LayoutBuilder::ReleasePlanning() {
  encoder_->ReleaseWork();
  degrees_.reset();
  constexpr uint64_t kBuffersBytes = 16 * kMiB;
  const uint64_t kept = trace_->resident_bytes() + kBuffersBytes +
                        encoder_->entries().size() * (sizeof(BatchEntry) + 2 * sizeof(uint64_t)) +
                        encoder_->regions_bytes() / kPageBytes * sizeof(uint32_t);
  reservation_.Release();
  QUARRY_TRY(reservation_, budget_.Reserve(kept, "a layout that is to be packed"));
  return Status::Ok();
}

Status LayoutBuilder::BeginFile() {
  std::error_code error;
  const fs::space_info space = fs::space(place_.building, error);
  if (!error && space.available < encoder_->regions_bytes()) {
    return MakeStatus(Code::kNoSpace, "{}: {} free, and the layout needs {}", place_.building,
                      FormatBytes(space.available), FormatBytes(encoder_->regions_bytes()));
  }
  QUARRY_RETURN_IF_ERROR(Remove(kLayoutFile));
  QUARRY_TRY(writer_, DataFileWriter::Create(store_.backend(), Path(kLayoutFile)));
  const uint64_t regions_bytes = encoder_->regions_bytes();
  writer_->BeginSection(kRegionsSection, DataFileWriter::Cover::kCells, regions_bytes);
  checksums_.resize(regions_bytes / kPageBytes);
  if (regions_bytes == 0) return Status::Ok();
  return encoder_->WriteBlocks(writer_->file(), writer_->position(), checksums_);
}

PackTarget LayoutBuilder::Target() {
  return {.ids = &encoder_->ids(),
          .streams = encoder_->Streams(),
          .file = &writer_->file(),
          .section_offset = writer_->position(),
          .checksums = checksums_};
}

Result<PackStats> LayoutBuilder::PackFiles(std::span<LayoutBuilder* const> builders) {
  const ScopedSpan span("pack");
  LayoutBuilder& first = *builders.front();
  Store& store = first.store_;
  const LayoutSpec& spec = first.spec_;
  std::vector<std::unique_ptr<FeatureTable>> tables;
  std::vector<std::unique_ptr<RowOverlay>> newer;
  std::vector<PackSource> sources;
  uint64_t streams = 0, fixed = 0;
  for (size_t i = 0; i < first.tables_.size(); ++i) {
    const SourceRecord& named = first.tables_[i];
    QUARRY_TRY(std::unique_ptr<FeatureTable> table, store.OpenTable(*spec.snapshot, named.name));
    QUARRY_TRY(std::unique_ptr<RowOverlay> overlay, store.OpenOverlay(named.name, spec.snapshot));
    fixed += table->resident_bytes() + overlay->resident_bytes() +
             overlay->TouchedRows().size() * sizeof(uint64_t);
    sources.push_back({.table = table.get(), .newer = overlay.get(), .row_stride = first.rows_.StrideOf(i)});
    if (!first.rows_.tables.empty()) sources.back().nodes = named.nodes;
    tables.push_back(std::move(table));
    newer.push_back(std::move(overlay));
  }
  std::vector<PackTarget> targets;
  for (LayoutBuilder* const builder : builders) {
    targets.push_back(builder->Target());
    streams += targets.back().streams.size();
    fixed += builder->checksums_.size() * sizeof(uint32_t);
  }
  fixed += streams * sizeof(PackStream);
  const uint64_t least = PackBytesMin(first.rows_.StrideMax(), streams, spec.threads);
  for (LayoutBuilder* const builder : builders) builder->reservation_.Release();
  MemoryBudget& budget = first.budget_;
  QUARRY_TRY(const MemoryBudget::Reservation reservation,
             budget.Reserve(std::max(fixed + least, budget.available_bytes()), "packing a layout"));
  return PackRows(store.backend(), sources, targets,
                  {.memory_bytes = reservation.bytes() - fixed, .threads = spec.threads},
                  [&](uint64_t rows, uint64_t total) { return first.Report("packing", rows, total); });
}

Result<LayoutRecord> LayoutBuilder::EndFile(const PackStats& pack) {
  const uint64_t regions_bytes = encoder_->regions_bytes();
  writer_->SkipWritten(regions_bytes);
  for (const uint32_t checksum : checksums_) QUARRY_RETURN_IF_ERROR(writer_->AddChecksum(checksum));
  QUARRY_RETURN_IF_ERROR(writer_->EndSection());
  const LayoutDirectory directory{.row_bytes = rows_.row_bytes,
                                  .row_stride = rows_.row_stride,
                                  .tables = rows_.tables,
                                  .ranges = rows_.ranges,
                                  .node_count = rows_.node_count,
                                  .cache_slots = cache_slots_,
                                  .packed = encoder_->packed(),
                                  .batches_per_epoch = batches_per_epoch_,
                                  .seed_hash = seed_hash_,
                                  .image_rows = cache_plan_.start.size(),
                                  .regions_bytes = regions_bytes,
                                  .batches = encoder_->entries(),
                                  .segments = encoder_->segments(),
                                  .start_nodes = cache_plan_.start,
                                  .wrap = cache_plan_.wrap};
  QUARRY_RETURN_IF_ERROR(WriteDirectory(*writer_, directory));
  QUARRY_TRY(file_bytes_, writer_->Finish({.kind = FileKind::kLayout,
                                           .database_id = store_.manifest()->database_id,
                                           .generation = place_.generation,
                                           .row_count = rows_.node_count,
                                           .dim = geometries_.front().dim}));
  writer_.reset();
  KillPoint("layout: file written");
  report_.blocks_bytes += encoder_->blocks_bytes();
  LayoutRecord record = Describe(pack);
  QUARRY_RETURN_IF_ERROR(RemoveScratch());
  return record;
}

// What an epoch reads of the layout, by the plan.
LayoutBuilder::ReadPlan LayoutBuilder::PlanReads(const DeviceProfile& device) const {
  ReadPlan plan;
  for (const BatchEntry& entry : encoder_->entries()) {
    plan.bytes += RoundUp(entry.block_bytes, kPageBytes);
    if (encoder_->packed()) plan.bytes += RoundUp(entry.chunk_bytes, kPageBytes);
    plan.useful_bytes += entry.useful_bytes;
  }
  const SegmentReadCost segments = encoder_->segment_reads();
  plan.bytes += segments.bytes;
  plan.seconds = device.ReadSeconds(plan.bytes, segments.requests);
  if (!encoder_->packed()) plan.seconds += report_.merged_seconds;
  return plan;
}

LayoutRecord LayoutBuilder::Describe(const PackStats& pack) const {
  const ReadPlan reads = PlanReads(ProfileOf(*store_.manifest()));
  RoadSpec road = spec_.road;
  road.cache_bytes = CacheBytesOf(spec_, rows_);
  uint64_t generation = 0;
  for (const SourceRecord& table : tables_) generation += table.record->generation;
  return LayoutRecord{.name = spec_.name,
                      .directory = place_.folder,
                      .generation = place_.generation,
                      .spec = std::move(road),
                      .table_generation = generation,
                      .topology_generation = topology_record_.generation,
                      .timestamp = spec_.snapshot->timestamp,
                      .policy = spec_.policy,
                      .epochs = spec_.epochs,
                      .batch_count = trace_->batch_count(),
                      .cache_rows = cache_slots_,
                      .batches_per_segment = encoder_->batches_per_segment(),
                      .hash_functions = spec_.hash_functions,
                      .disk_bytes_max = spec_.disk_bytes,
                      .share = spec_.share,
                      .trace_generation = place_.generation,
                      .file_bytes = file_bytes_,
                      .trace_bytes = report_.trace.trace_bytes,
                      .row_bytes_read = reads.bytes,
                      .useful_bytes = reads.useful_bytes,
                      .accesses = cache_plan_.accesses,
                      .hits = cache_plan_.hits,
                      .predicted_seconds = reads.seconds / spec_.epochs,
                      .plan_seconds = MonotonicSeconds() - start_seconds_,
                      .plan_bytes_written = file_bytes_ + report_.trace.trace_bytes,
                      .plan_bytes_read = pack.bytes_read,
                      .created_utc = UtcNow()};
}

Status LayoutBuilder::RemoveScratch() {
  encoder_.reset();
  trace_.reset();
  for (const std::string_view file : {"plan.tmp", "misses.tmp", "admit.tmp", "ids.tmp", "next.tmp",
                                      "encoded.tmp", "blocks.tmp", "sampled"}) {
    QUARRY_RETURN_IF_ERROR(
        Remove(file));  // what stays would be of the layout; next.tmp is an older version's
  }
  return store_.backend().SyncDirectory(place_.building);
}

namespace {

// Without a place in the catalog when `named` is false.
Result<LayoutRecord> BuildOne(Store& store, MemoryBudget& budget, const LayoutSpec& spec, bool resume,
                              bool named, const ProgressFunction& progress, BuildReport& report) {
  QUARRY_RETURN_IF_ERROR(CheckSpec(spec));
  LayoutBuilder builder(store, budget, spec, progress, report);
  QUARRY_RETURN_IF_ERROR(builder.Prepare(named ? BuildingFolder(spec.name) : PassingFolder(spec.name)));
  {  // the topology goes when it is needed no more
    QUARRY_TRY(const std::unique_ptr<TraceSource> source, TraceSource::Make(store, budget, builder.spec()));
    QUARRY_RETURN_IF_ERROR(builder.Sample(*source, resume));
    if (spec.policy == PolicyKind::kStaticDegree) {
      QUARRY_TRY(std::vector<uint32_t> degrees, source->CountUses());
      builder.SetDegrees(std::make_shared<const std::vector<uint32_t>>(std::move(degrees)));
    }
  }
  const double plan_start = MonotonicSeconds();
  QUARRY_RETURN_IF_ERROR(builder.Plan());
  QUARRY_RETURN_IF_ERROR(builder.Encode());
  report.plan_seconds = MonotonicSeconds() - plan_start;
  QUARRY_RETURN_IF_ERROR(builder.BeginFile());
  PackStats pack;
  LayoutBuilder* const one[] = {&builder};
  if (builder.packed()) {
    QUARRY_TRY(pack, LayoutBuilder::PackFiles(one));
  }
  report.pack_seconds = pack.seconds;
  report.pack_read_seconds = pack.read_seconds;
  QUARRY_TRY(LayoutRecord record, builder.EndFile(pack));
  if (named) QUARRY_RETURN_IF_ERROR(CommitLayout(store, builder.place(), record));
  return record;
}

}  // namespace

Result<LayoutRecord> BuildLayout(Store& store, MemoryBudget& budget, const LayoutSpec& spec, bool resume,
                                 const ProgressFunction& progress, BuildReport* report) {
  BuildReport ignored;
  return BuildOne(store, budget, spec, resume, /*named=*/true, progress,
                  report != nullptr ? *report : ignored);
}

Result<LayoutRecord> BuildPassingLayout(Store& store, MemoryBudget& budget, const LayoutSpec& spec,
                                        const ProgressFunction& progress, BuildReport* report) {
  BuildReport ignored;
  return BuildOne(store, budget, spec, /*resume=*/false, /*named=*/false, progress,
                  report != nullptr ? *report : ignored);
}

}  // namespace quarry
