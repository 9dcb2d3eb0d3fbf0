#include "quarry/service/maintenance.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "create_table.h"
#include "inspection.h"
#include "layout_report.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/embedding/verify_embeddings.h"
#include "quarry/layout/rebuild.h"
#include "quarry/partition/stored_partitioning.h"
#include "quarry/service/calibration.h"
#include "quarry/service/export.h"
#include "quarry/storage/checkpoint.h"
#include "quarry/storage/compaction.h"
#include "quarry/storage/topology_compaction.h"
#include "quarry/storage/training_state.h"
#include "quarry/verify/verify.h"

namespace quarry {
namespace {

constexpr uint64_t kVerifyBytes = 16 * kMiB;  // as VerifyStore says

using Report = wire::MaintenanceReport;
using Counters = std::vector<wire::Counter>;

double Number(uint64_t value) { return static_cast<double>(value); }

Counters CountersOf(const CompactionReport& done) {
  return {{"rows_changed", Number(done.rows_changed)},
          {"rows", Number(done.row_count)},
          {"bytes", done.rows_changed == 0 ? 0 : Number(done.bytes)},
          {"timestamp", Number(done.timestamp)},
          {"generation", Number(done.generation)},
          {"resumed_row", Number(done.resumed_row)},
          {"seconds", done.seconds}};
}

Counters CountersOf(const TopologyCompactionReport& done) {
  return {{"runs", Number(done.runs)},
          {"nodes_added", Number(done.nodes_added)},
          {"edges_added", Number(done.edges_added)},
          {"edges_removed", Number(done.edges_removed)},
          {"edges", Number(done.edge_count)},
          {"bytes", Number(done.bytes)},
          {"timestamp", Number(done.timestamp)},
          {"generation", Number(done.generation)},
          {"resumed_edges", Number(done.resumed_edges)},
          {"seconds", done.seconds}};
}

Counters CountersOf(const CheckpointReport& done) {
  return {{"timestamp", Number(done.timestamp)},
          {"files_linked", Number(done.files_linked)},
          {"files_reflinked", Number(done.files_reflinked)},
          {"files_copied", Number(done.files_copied)},
          {"bytes", Number(done.bytes)},
          {"bytes_copied", Number(done.bytes_copied)},
          {"seconds", done.seconds}};
}

Counters CountersOf(const ExportReport& done) {
  return {{"timestamp", Number(done.timestamp)},
          {"files", Number(done.files)},
          {"bytes", Number(done.bytes)},
          {"seconds", done.seconds}};
}

Counters CountersOf(const LayoutRecord& record, const BuildReport& built) {
  return {{"batches", Number(record.batch_count)},
          {"disk_bytes", Number(record.total_bytes())},
          {"cache_rows", Number(record.cache_rows)},
          {"bytes_read", Number(record.row_bytes_read)},
          {"bytes_useful", Number(record.useful_bytes)},
          {"predicted_seconds", record.predicted_seconds},
          {"edges", Number(built.trace.edges)},
          {"block_bytes", Number(built.blocks_bytes)},
          {"sequences", Number(built.sequences)},
          {"resumed", built.resumed ? 1.0 : 0.0},
          {"sample_seconds", built.sample_seconds},
          {"plan_seconds", built.plan_seconds},
          {"segment_search_seconds", built.segment_search_seconds},
          {"pack_seconds", built.pack_seconds}};
}

Counters CountersOf(const PartitioningRecord& record) {
  return {{"parts", Number(record.part_count)},         {"nodes", Number(record.node_count)},
          {"edges", Number(record.edge_count)},         {"cut_edges", Number(record.cut_edges)},
          {"disk_bytes", Number(record.total_bytes())}, {"seconds", record.build_seconds}};
}

Counters CountersOf(const RebuildReport& done) {
  return {{"path", static_cast<double>(done.path)},
          {"rows_changed", Number(done.rows_changed)},
          {"places", Number(done.places)},
          {"seeds_changed", Number(done.seeds_changed)},
          {"batches_changed", Number(done.batches_changed)},
          {"find_seconds", done.find_seconds},
          {"patch_seconds", done.patch_seconds},
          {"patch_bytes", Number(done.patch_bytes)},
          {"build_seconds", done.build_seconds},
          {"build_bytes", Number(done.build_bytes)},
          {"mend_seconds", done.mend_seconds},
          {"anew_seconds", done.anew_seconds},
          {"batches_sampled", Number(done.batches_sampled)},
          {"rows_read", Number(done.rows_read)},
          {"seconds", done.seconds},
          {"bytes_written", Number(done.bytes_written)}};
}

Counters CountersOf(const DeviceRecord& device) {
  return {{"random_reads_per_second", device.random_reads_per_second},
          {"sequential_bytes_per_second", device.sequential_bytes_per_second},
          {"write_bytes_per_second", device.write_bytes_per_second},
          {"gather_bytes_per_second", device.gather_bytes_per_second},
          {"core_checksum_bytes_per_second", device.core.checksum_bytes_per_second},
          {"core_copy_bytes_per_second", device.core.copy_bytes_per_second},
          {"core_decode_bytes_per_second", device.core.decode_bytes_per_second},
          {"core_request_seconds", device.core.request_seconds}};
}

Report ReportOf(const VerifyReport& found) {
  Report report = {.counters = {{"faults", Number(found.faults.size())},
                                {"files", Number(found.files)},
                                {"bytes", Number(found.bytes)}},
                   .notes = found.notes};
  for (const Status& fault : found.faults) report.faults.emplace_back(fault.message());
  for (const Damage& damage : found.damages) {
    report.damages.push_back(
        {static_cast<uint8_t>(damage.kind), damage.name, damage.first_row, damage.row_count});
  }
  return report;
}

// The report of a task that has nothing to tell but its error.
Result<Report> After(const Status& status) {
  if (!status.ok()) return status;
  return Report{};
}

LayoutSpec SpecOf(const wire::BuildLayout& build) {
  return {.name = build.name,
          .road = build.road,
          .epochs = build.epochs,
          .policy = build.policy,
          .disk_bytes = build.disk_bytes,
          .hash_functions = build.hash_functions,
          .share = {.rank_partitioning = build.rank_partitioning},
          .threads = build.threads > 0 ? build.threads : ProcessorCount()};
}

// What layouts that are read side by side come to: the slowest says how long an epoch is read.
LayoutRecord SumOf(const std::vector<LayoutRecord>& records) {
  LayoutRecord sum = records.front();
  for (size_t i = 1; i < records.size(); i++) {
    sum.batch_count += records[i].batch_count;
    sum.file_bytes += records[i].file_bytes;
    sum.trace_bytes += records[i].trace_bytes;
    sum.cache_rows += records[i].cache_rows;
    sum.row_bytes_read += records[i].row_bytes_read;
    sum.useful_bytes += records[i].useful_bytes;
    sum.predicted_seconds = std::max(sum.predicted_seconds, records[i].predicted_seconds);
  }
  return sum;
}

// Whether a checkpoint of embedding tables came between the two.
bool TablesMoved(const Manifest& before, const Manifest& after) {
  return !std::ranges::equal(
      before.embeddings, after.embeddings, [](const EmbeddingRecord& a, const EmbeddingRecord& b) {
        return a.name == b.name && a.generation == b.generation && a.map_generation == b.map_generation;
      });
}

}  // namespace

// One overload a task.
struct Maintenance::Runner {
  Store& store;
  EmbeddingService& embeddings;
  StoredTables& tables;
  MemoryBudget& budget;
  const ProgressFunction& progress;

  // Pages of embedding tables that a checkpoint no longer names are written over. Where one came meanwhile,
  // what looks like a fault need not be one: these tables are read once more, while they stand still.
  Result<Report> operator()(const wire::VerifyDatabase&) const {
    QUARRY_TRY(const auto reservation, budget.Reserve(kVerifyBytes, "verifying the database"));
    QUARRY_TRY(const VerifyReport files, VerifyStore(store, progress));
    const std::shared_ptr<const Manifest> before = store.manifest();
    VerifyReport all = files;
    QUARRY_RETURN_IF_ERROR(VerifyEmbeddings(store, progress, all));
    if (all.faults.size() > files.faults.size() && TablesMoved(*before, *store.manifest())) {
      all = files;
      QUARRY_RETURN_IF_ERROR(embeddings.HoldStill([&] { return VerifyEmbeddings(store, progress, all); }));
    }
    return ReportOf(all);
  }
  Result<Report> operator()(const wire::CompactTable& compact) const {
    if (compact.topology) {
      QUARRY_TRY(const TopologyCompactionReport done,
                 CompactTopology(store, budget, compact.table, compact.dry_run, progress));
      return Report{.counters = CountersOf(done)};
    }
    QUARRY_TRY(const CompactionReport done,
               quarry::CompactTable(store, budget, compact.table, compact.dry_run, progress));
    return Report{.counters = CountersOf(done)};
  }
  // With what was committed to embedding tables so far.
  Result<Report> operator()(const wire::CheckpointDatabase& checkpoint) const {
    QUARRY_RETURN_IF_ERROR(embeddings.Checkpoint());
    QUARRY_TRY(const CheckpointReport done, CheckpointStore(store, budget, checkpoint.path, progress));
    return Report{.counters = CountersOf(done)};
  }
  Result<Report> operator()(const wire::BuildLayout& build) const {
    BuildReport built;
    if (build.ranks > 0) {
      QUARRY_TRY(const std::vector<LayoutRecord> records,
                 quarry::BuildRankLayouts(store, budget, SpecOf(build), build.ranks, progress, &built));
      return Report{.counters = CountersOf(SumOf(records), built)};
    }
    QUARRY_TRY(const LayoutRecord record,
               quarry::BuildLayout(store, budget, SpecOf(build), build.resume, progress, &built));
    return Report{.counters = CountersOf(record, built)};
  }
  Result<Report> operator()(const wire::RebuildLayout& rebuild) const {
    RebuildReport done;
    QUARRY_RETURN_IF_ERROR(
        quarry::RebuildLayout(store, budget, rebuild.name,
                              {.full = rebuild.full, .dry_run = rebuild.dry_run, .threads = ProcessorCount()},
                              progress, &done)
            .status());
    return Report{.counters = CountersOf(done), .notes = {done.why}};
  }
  Result<Report> operator()(const wire::CalibrateDevice& calibrate) const {
    const std::shared_ptr<const Manifest> manifest = store.manifest();
    if (!calibrate.force && manifest->device) {
      Report report = {.counters = CountersOf(*manifest->device)};
      report.counters.push_back({"measured_now", 0});
      return report;
    }
    QUARRY_TRY(const Calibration fresh, MeasureDevice(store, budget));
    Report report = {.counters = CountersOf(fresh.device)};
    report.counters.push_back({"measured_now", 1});
    report.counters.push_back({"row_read_bytes", Number(fresh.row_bytes)});
    for (const ReadRate& rate : fresh.random_reads) {
      report.counters.push_back(
          {fmt::format("random_reads_of_{}", rate.request_bytes), rate.reads_per_second});
    }
    return report;
  }
  Result<Report> operator()(const wire::InspectDatabase&) const { return Inspect(store, budget); }
  Result<Report> operator()(const wire::ExportDatabase& what) const {
    QUARRY_TRY(ExportReport done, quarry::ExportDatabase(store, budget, what, progress));
    return Report{.counters = CountersOf(done), .notes = std::move(done.import_options)};
  }
  Result<Report> operator()(const wire::ExplainLayout& explain) const {
    return quarry::ExplainLayout(store, budget, explain, progress);
  }
  Result<Report> operator()(const wire::TraceLayout& trace) const {
    return quarry::TraceLayout(store, budget, trace, progress);
  }
  Result<Report> operator()(const wire::CreateEmbeddings& create) const {
    return After(embeddings.Create(create.table, create.spec));
  }
  Result<Report> operator()(const wire::DropEmbeddings& drop) const {
    return After(embeddings.Drop(drop.table));
  }
  Result<Report> operator()(const wire::DropLayout& drop) const {
    return After(quarry::DropLayout(store, drop.name));
  }
  Result<Report> operator()(const wire::BuildPartitioning& build) const {
    PartitioningSpec spec = {
        .name = build.name, .topology = build.topology, .training_first = build.training_first};
    // A database need not have features.
    const std::shared_ptr<const Manifest> manifest = store.manifest();
    const bool usual = build.table == wire::BuildPartitioning().table;
    if (build.rows && !(usual && manifest->FindTable(build.table) == nullptr)) spec.table = build.table;
    PartitionOptions options = {
        .method = build.method, .parts = build.parts, .chunk_share = build.chunk_share, .seed = build.seed};
    if (build.parts == 0 && build.method != PartitionMethod::kKept) {
      const TopologyRecord* const topology = manifest->FindTopology(build.topology);
      if (topology == nullptr) return store.OpenTopology(build.topology).status();
      QUARRY_TRY(const PartitionTuning tuning,
                 TuneParts(*manifest, *topology, spec.table, ProfileOf(*manifest), budget.available_bytes()));
      options.parts = tuning.parts;
    }
    QUARRY_TRY(const PartitioningRecord record,
               MakePartitioning(store, budget, std::move(spec), options, progress));
    return Report{.counters = CountersOf(record)};
  }
  Result<Report> operator()(const wire::DropPartitioning& drop) const {
    return After(quarry::DropPartitioning(store, drop.name));
  }
  Result<Report> operator()(const wire::DropTraining& drop) const {
    return After(quarry::DropTraining(store, drop.name));
  }
  Result<Report> operator()(const wire::DropTable& drop) const {
    tables.LetGo();
    return After(store.DropTable(drop.table));
  }
  Result<Report> operator()(const wire::CreateTable& create) const {
    return After(quarry::CreateTable(store, budget, create, progress));
  }
};

Result<Report> Maintenance::Run(const wire::MaintenanceTask& task, MemoryBudget& budget,
                                const ProgressFunction& progress) {
  return std::visit(Runner{store_, embeddings_, tables_, budget, progress}, task);
}

std::string NameOf(const wire::MaintenanceTask& task) {
  struct Namer {
    std::string operator()(const wire::VerifyDatabase&) const { return "a verification"; }
    std::string operator()(const wire::CompactTable& compact) const {
      return fmt::format("a compaction of {} \"{}\"", compact.topology ? "topology" : "table", compact.table);
    }
    std::string operator()(const wire::CheckpointDatabase&) const { return "a checkpoint"; }
    std::string operator()(const wire::BuildLayout& build) const {
      return fmt::format("a build of layout \"{}\"", build.name);
    }
    std::string operator()(const wire::RebuildLayout& rebuild) const {
      return fmt::format("a rebuild of layout \"{}\"", rebuild.name);
    }
    std::string operator()(const wire::DropLayout& drop) const {
      return fmt::format("the removal of layout \"{}\"", drop.name);
    }
    std::string operator()(const wire::CalibrateDevice&) const { return "a calibration"; }
    std::string operator()(const wire::InspectDatabase&) const { return "a look at the database"; }
    std::string operator()(const wire::ExportDatabase&) const { return "an export"; }
    std::string operator()(const wire::ExplainLayout& explain) const {
      return fmt::format("an explanation of layout \"{}\"", explain.name);
    }
    std::string operator()(const wire::TraceLayout& trace) const {
      return fmt::format("a look at the trace of layout \"{}\"", trace.name);
    }
    std::string operator()(const wire::BuildPartitioning& build) const {
      return fmt::format("a build of partitioning \"{}\"", build.name);
    }
    std::string operator()(const wire::DropPartitioning& drop) const {
      return fmt::format("the removal of partitioning \"{}\"", drop.name);
    }
    std::string operator()(const wire::DropTraining& drop) const {
      return fmt::format("the removal of training run \"{}\"", drop.name);
    }
    std::string operator()(const wire::DropTable& drop) const {
      return fmt::format("the removal of table \"{}\"", drop.table);
    }
    std::string operator()(const wire::CreateTable& create) const {
      return fmt::format("the creation of table \"{}\"", create.table);
    }
    std::string operator()(const wire::CreateEmbeddings& create) const {
      return fmt::format("the creation of embedding table \"{}\"", create.table);
    }
    std::string operator()(const wire::DropEmbeddings& drop) const {
      return fmt::format("the removal of embedding table \"{}\"", drop.table);
    }
  };
  return std::visit(Namer{}, task);
}

const std::string* PathOf(const wire::MaintenanceTask& task) {
  if (const auto* const checkpoint = std::get_if<wire::CheckpointDatabase>(&task)) return &checkpoint->path;
  const auto* const what = std::get_if<wire::ExportDatabase>(&task);
  return what == nullptr ? nullptr : &what->path;
}

bool OnlyReads(const wire::MaintenanceTask& task) {
  if (const auto* const compact = std::get_if<wire::CompactTable>(&task)) return compact->dry_run;
  if (const auto* const rebuild = std::get_if<wire::RebuildLayout>(&task)) return rebuild->dry_run;
  return std::holds_alternative<wire::VerifyDatabase>(task) ||
         std::holds_alternative<wire::InspectDatabase>(task) ||
         std::holds_alternative<wire::ExplainLayout>(task) || std::holds_alternative<wire::TraceLayout>(task);
}

wire::BuildLayout RequestOf(const LayoutSpec& spec, bool resume) {
  return {.name = spec.name,
          .road = spec.road,
          .epochs = spec.epochs,
          .policy = spec.policy,
          .disk_bytes = spec.disk_bytes,
          .hash_functions = spec.hash_functions,
          .threads = spec.threads,
          .resume = resume,
          .ranks = spec.share.ranks,
          .rank_partitioning = spec.share.rank_partitioning};
}

}  // namespace quarry
