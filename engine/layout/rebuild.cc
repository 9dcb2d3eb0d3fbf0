#include "quarry/layout/rebuild.h"

#include <algorithm>

#include "bits.h"
#include "mend.h"
#include "patch.h"
#include "quarry/base/kill_point.h"
#include "quarry/base/process.h"
#include "quarry/base/trace.h"
#include "quarry/base/units.h"
#include "quarry/format/batch_view.h"
#include "quarry/layout/changed_seeds.h"
#include "quarry/layout/cost_model.h"
#include "quarry/layout/mend_price.h"
#include "quarry/storage/layout_files.h"
#include "quarry/storage/node_properties.h"
#include "quarry/storage/row_sources.h"
#include "quarry/storage/times.h"

namespace quarry {
namespace {

constexpr size_t kBasesMax = 16;    // files besides its own
constexpr uint64_t kGrowthMax = 2;  // a layout without a disk budget takes up to so much more by patches

// A fault of the layout, and of nothing else, which building it anew heals.
bool IsOfLayout(const Status& status) {
  return status.code() == Code::kCorruption || status.code() == Code::kUnsupported;
}

class Rebuild {
 public:
  Rebuild(Store& store, MemoryBudget& budget, const RebuildOptions& options, const ProgressFunction& progress,
          RebuildReport& report)
      : store_(store), budget_(budget), options_(options), progress_(progress), report_(report) {}

  Result<LayoutRecord> Run(std::string_view name) {
    const double start = MonotonicSeconds();
    const std::shared_ptr<const Manifest> manifest = store_.manifest();
    const LayoutRecord* const found = manifest->FindLayout(name);
    if (found == nullptr) return Layout::Open(store_, name).status();  // says what there is
    record_ = *found;
    QUARRY_TRY(snapshot_, store_.TakeSnapshot());
    report_.build_seconds = record_.plan_seconds;
    report_.build_bytes = record_.plan_bytes_written;
    QUARRY_RETURN_IF_ERROR(Choose());
    if (options_.dry_run) return record_;
    QUARRY_TRY(LayoutRecord record, Carry());
    report_.seconds = MonotonicSeconds() - start;
    return record;
  }

 private:
  Status Choose();
  Result<std::string> WhyOtherBatches();
  Result<std::string> WhyOtherEdges();
  Result<bool> PropertiesMayDiffer() const;
  Status ChooseMend();
  Status ChoosePatch();
  Status FindNewerRows();
  bool WithinBounds(const PatchPlan& plan, uint64_t trace_bytes, std::string* excess) const;
  void PlanWithinBounds();
  void Price();
  Result<LayoutRecord> Carry();
  Result<LayoutRecord> ChangeRecord();
  Result<LayoutRecord> Patch();
  Result<LayoutRecord> MendBatches();
  Result<LayoutRecord> WriteMended(const LayoutPlace& place);
  Status PlanMend(const Mend& mend);
  // Makes what `write` does the next generation of the layout, or nothing.
  template <typename Write>
  Result<LayoutRecord> Replace(const Write& write);
  Result<LayoutRecord> Build();
  Result<LayoutSpec> Spec() const;
  void Take(RebuildPath path, std::string why) {
    report_.path = path;
    report_.why = std::move(why);
  }
  // Records of older databases do not say. A layout that needed segment caches had a budget, which was what
  // it takes.
  uint64_t DiskBytesMax() const {
    const bool untold = record_.disk_bytes_max == 0 && record_.batches_per_segment > 0;
    return untold ? record_.total_bytes() : record_.disk_bytes_max;
  }
  // To what the layout's rows belong from now on.
  void Renew(LayoutRecord& record) const {
    record.table_generation = snapshot_->FindTable(record.spec.feature_table)->generation;
    record.topology_generation = snapshot_->FindTopology(record.spec.topology)->generation;
    record.timestamp = snapshot_->timestamp;
  }

  Store& store_;
  MemoryBudget& budget_;
  const RebuildOptions options_;
  const ProgressFunction& progress_;
  RebuildReport& report_;
  LayoutRecord record_;
  std::shared_ptr<const Snapshot> snapshot_;
  std::unique_ptr<Layout> layout_;
  MemoryBudget::Reservation reservation_;  // for the open layout
  std::unique_ptr<RowOverlay> newer_;      // than the layout's rows
  MemoryBudget::Reservation newer_reservation_;
  FoundRows found_;
  PatchPlan plan_;
  ChangedSeeds changed_;
  MendCounts counts_;  // where batches are touched
};

Status Rebuild::Choose() {
  Result<std::unique_ptr<Layout>> layout = Layout::Open(store_, record_);
  if (!layout.ok() && !IsOfLayout(layout.status())) return layout.status();
  if (options_.full || !layout.ok()) {
    Take(RebuildPath::kBuild, options_.full ? "that was asked for" : std::string(layout.status().message()));
  }
  if (!layout.ok()) return Status::Ok();
  layout_ = std::move(layout).value();
  QUARRY_TRY(reservation_, budget_.Reserve(layout_->resident_bytes(), "an open layout"));
  if (options_.full) return Status::Ok();
  if (!record_.spec.relation_fanouts.empty()) {
    Take(RebuildPath::kBuild, "its rows are of several types, and such a layout is always built");
    return Status::Ok();
  }
  QUARRY_TRY(const std::string others, WhyOtherBatches());
  if (!others.empty()) {
    Take(RebuildPath::kBuild, others);
    return Status::Ok();
  }
  const Status status = changed_.batches.empty() ? ChoosePatch() : ChooseMend();
  if (!IsOfLayout(status) && status.code() != Code::kOutOfBudget) return status;
  Take(RebuildPath::kBuild, std::string(status.message()));
  return Status::Ok();
}

// Empty when a build would plan batches of the same seeds, and of the same rows where no list that they draw from has changed.
Result<std::string> Rebuild::WhyOtherBatches() {
  const LayoutDirectory& directory = layout_->directory();
  const TableRecord* const table = snapshot_->FindTable(record_.spec.feature_table);
  const uint64_t row_bytes = RowBytes(table->element_type, table->dim);
  if (row_bytes != directory.row_bytes || table->row_count < directory.node_count) {
    return fmt::format("table \"{}\" has other rows", record_.spec.feature_table);
  }
  QUARRY_TRY(const std::string edges, WhyOtherEdges());
  if (!edges.empty()) return edges;
  QUARRY_TRY(const bool may_differ, PropertiesMayDiffer());
  if (!may_differ) return std::string();
  if (record_.spec.seed_order != SeedOrder::kRandom) {
    return std::string("labels or splits have changed, on which the order of the batches depends");
  }
  QUARRY_TRY(const MemoryBudget::Reservation reservation,
             budget_.Reserve(NodePropertiesBytes(*store_.manifest()), "labels and splits"));
  // Nodes that came since are trained on, too.
  const uint64_t nodes =
      Times::Of(*snapshot_->FindTopology(record_.spec.topology), snapshot_->node_count).nodes();
  QUARRY_TRY(const NodeProperties properties, LoadNodeProperties(store_, nodes, snapshot_));
  if (HashSeeds(properties.TrainNodes()) == directory.seed_hash) return std::string();
  return std::string("other nodes are trained on: labels or splits have changed");
}

// What is drawn for a node depends on its list alone, so batches stay where no list that they draw from has changed. The
// order of proximity depends on all of them.
Result<std::string> Rebuild::WhyOtherEdges() {
  const std::string& name = record_.spec.topology;
  if (snapshot_->FindTopology(name)->timestamp() <= record_.timestamp) return std::string();
  if (record_.spec.edge_ids) {
    return fmt::format(
        "edges of topology \"{}\" were added or removed, and the batches say which edges they have: an edge "
        "that comes or goes gives others another number",
        name);
  }
  if (record_.spec.seed_order != SeedOrder::kRandom) {
    return fmt::format("edges of topology \"{}\" were added or removed", name);
  }
  QUARRY_TRY(changed_, CountChangedSeeds(store_, budget_, *layout_, *snapshot_, progress_));
  report_.seeds_changed = changed_.seeds_changed;
  report_.batches_changed = changed_.batches.size();
  if (!changed_.known) {
    return fmt::format("edges of topology \"{}\" were added or removed, and folded into its file", name);
  }
  return std::string();
}

Result<bool> Rebuild::PropertiesMayDiffer() const {
  for (const std::string_view name : {"label", "split"}) {
    const TableRecord* const table = snapshot_->FindTable(name);
    if (table == nullptr) continue;
    if (table->folded > record_.timestamp) return true;
    QUARRY_TRY(const std::unique_ptr<RowOverlay> newer,
               store_.OpenOverlay(name, snapshot_, TableVersion{table->generation, record_.timestamp}));
    if (!newer->empty()) return true;
  }
  return false;
}

// Some batches draw from lists that changed: are these planned anew, or all of them?
Status Rebuild::ChooseMend() {
  const std::shared_ptr<const Manifest> manifest = store_.manifest();
  counts_ = MendCountsOf(*layout_, *manifest, changed_);
  const MendPrice price = PriceMend(counts_, DeviceOf(*manifest));
  report_.mend_seconds = price.mend_seconds;
  report_.anew_seconds = price.build_seconds;
  const std::string draw = fmt::format(
      "edges of topology \"{}\" were added or removed: {} of {} seeds, in {} of {} batches, draw from "
      "lists that changed; ",
      record_.spec.topology, changed_.seeds_changed, changed_.seeds, changed_.batches.size(),
      record_.batch_count);
  const LayoutDirectory& directory = layout_->directory();
  const uint64_t nodes = snapshot_->FindTable(record_.spec.feature_table)->row_count;
  if (!directory.segments.empty() && BitsFor(nodes) != BitsFor(directory.node_count)) {
    Take(RebuildPath::kBuild, draw + "ids of nodes take more bits than its blocks have for them");
    return Status::Ok();
  }
  if (!price.mends()) {
    Take(RebuildPath::kBuild, draw + "building takes less time than mending these batches");
    return Status::Ok();
  }
  QUARRY_RETURN_IF_ERROR(FindNewerRows());
  Take(RebuildPath::kMend, draw + "mending these batches takes less time than building");
  return Status::Ok();
}

// The batches are the same; what becomes of their rows?
Status Rebuild::ChoosePatch() {
  QUARRY_RETURN_IF_ERROR(FindNewerRows());
  if (!layout_->directory().packed) {
    Take(RebuildPath::kRecord, "its rows are not packed, but read from the table");
    return Status::Ok();
  }
  if (found_.places.empty()) {
    Take(RebuildPath::kRecord, "it holds none of the rows that have changed");
    return Status::Ok();
  }
  PlanWithinBounds();
  Price();
  return Status::Ok();
}

Status Rebuild::FindNewerRows() {
  const ScopedSpan span("find changed rows");
  QUARRY_TRY(newer_, store_.OpenOverlay(record_.spec.feature_table, snapshot_,
                                        TableVersion{record_.table_generation, record_.timestamp}));
  QUARRY_TRY(newer_reservation_, budget_.Reserve(newer_->resident_bytes(), "the versions of changed rows"));
  report_.rows_changed = newer_->TouchedRows().size();
  if (!layout_->directory().packed) return Status::Ok();
  const double start = MonotonicSeconds();
  if (!newer_->empty()) {
    QUARRY_TRY(found_, FindRows(store_.backend(), budget_, *layout_, *newer_, progress_));
  }
  report_.places = found_.places.size();
  report_.find_seconds = MonotonicSeconds() - start;
  return Status::Ok();
}

// Says by how much where it is not.
bool Rebuild::WithinBounds(const PatchPlan& plan, uint64_t trace_bytes, std::string* excess) const {
  LayoutRecord patched = record_;
  patched.file_bytes = plan.file_bytes;
  patched.bases = plan.bases;
  patched.trace_bytes = trace_bytes;
  const uint64_t bytes_max = DiskBytesMax() > 0
                                 ? DiskBytesMax()
                                 : kGrowthMax * layout_->directory().regions_bytes + record_.trace_bytes;
  if (patched.bases.size() <= kBasesMax && patched.total_bytes() <= bytes_max) return true;
  *excess =
      fmt::format("it would take {} in {} files, and may take {} in {}", FormatBytes(patched.total_bytes()),
                  2 + patched.bases.size(), FormatBytes(bytes_max), 2 + kBasesMax);
  return false;
}

// Plans a patch, or a copy where patches would leave too much behind: more than the disk budget allows
// (without one: as much again as the regions), or parts in more than kBasesMax files, each of which a reader
// has to open. A copy puts everything into one file again.
void Rebuild::PlanWithinBounds() {
  plan_ = PlanPatch(*layout_, found_.places);
  Take(RebuildPath::kPatch, "");
  std::string excess;
  if (WithinBounds(plan_, record_.trace_bytes, &excess)) return;
  Take(RebuildPath::kCopy, fmt::format("patched, {}; ", excess));
  plan_ = PlanCopy(layout_->directory());
}

// Chooses between the plan and building anew: what building took the last time is measured, what patching
// will take is predicted from the rates of the device.
void Rebuild::Price() {
  report_.patch_bytes = plan_.file_bytes;
  report_.patch_seconds =
      ProfileOf(*store_.manifest())
          .ReadSeconds(plan_.written_bytes(), plan_.written.size() + report_.rows_changed) +
      static_cast<double>(plan_.file_bytes) / DeviceOf(*store_.manifest()).write_bytes_per_second;
  if (report_.patch_seconds > report_.build_seconds) {
    report_.path = RebuildPath::kBuild;
    report_.why += "that takes less time than patching";
  } else {
    report_.why += "that takes less time than building";
  }
}

Result<LayoutRecord> Rebuild::Carry() {
  if (report_.path == RebuildPath::kRecord) return ChangeRecord();
  if (report_.path == RebuildPath::kBuild) return Build();
  Result<LayoutRecord> patched = report_.path == RebuildPath::kMend ? MendBatches() : Patch();
  if (!IsOfLayout(patched.status()) && patched.status().code() != Code::kOutOfBudget) return patched;
  Take(RebuildPath::kBuild, std::string(patched.status().message()));
  return Build();
}

Result<LayoutRecord> Rebuild::ChangeRecord() {
  QUARRY_RETURN_IF_ERROR(store_.UpdateManifest([&](Manifest& manifest) {
    for (LayoutRecord& layout : manifest.layouts) {
      if (layout.name == record_.name) Renew(layout);
    }
    return Status::Ok();
  }));
  return *store_.manifest()->FindLayout(record_.name);
}

template <typename Write>
Result<LayoutRecord> Rebuild::Replace(const Write& write) {
  QUARRY_TRY(const LayoutPlace place, PrepareLayout(store_, record_.name, BuildingFolder(record_.name)));
  const auto make = [&]() -> Result<LayoutRecord> {
    QUARRY_RETURN_IF_ERROR(RemoveTree(store_.backend(), place.building));
    QUARRY_RETURN_IF_ERROR(store_.backend().CreateDirectory(place.building));
    QUARRY_TRY(LayoutRecord record, write(place));
    KillPoint("layout: patch written");
    Renew(record);
    QUARRY_RETURN_IF_ERROR(CommitLayout(store_, place, record));
    return record;
  };
  Result<LayoutRecord> record = make();
  if (!record.ok()) Discard(store_.backend(), place.building);
  return record;
}

Result<LayoutRecord> Rebuild::Patch() {
  const ScopedSpan span("patch");
  return Replace([&](const LayoutPlace& place) -> Result<LayoutRecord> {
    const ReadRegions read = [&](uint64_t offset, std::span<std::byte> pages) {
      return layout_->ReadPages(store_.backend(), offset, pages);
    };
    QUARRY_TRY(LayoutRecord record, WritePatch(store_, budget_, place, record_, plan_, read,
                                               std::move(found_.places), *newer_, progress_));
    report_.bytes_written = record.file_bytes;
    return record;
  });
}

Result<LayoutRecord> Rebuild::MendBatches() {
  const ScopedSpan span("mend");
  return Replace([&](const LayoutPlace& place) { return WriteMended(place); });
}

Result<LayoutRecord> Rebuild::WriteMended(const LayoutPlace& place) {
  QUARRY_TRY(const LayoutSpec spec, Spec());
  const bool lists_in_memory = PriceMend(counts_, DeviceOf(*store_.manifest())).lists_in_memory;
  QUARRY_TRY(const std::unique_ptr<Mend> mend,
             Mend::Make(store_, budget_, *layout_, spec, place, changed_, lists_in_memory, progress_));
  QUARRY_RETURN_IF_ERROR(mend->MovePlaces(*newer_, found_));
  QUARRY_RETURN_IF_ERROR(PlanMend(*mend));
  QUARRY_RETURN_IF_ERROR(mend->WriteTrace());
  const ReadRegions read = [&](uint64_t offset, std::span<std::byte> pages) {
    return mend->Read(offset, pages);
  };
  QUARRY_TRY(LayoutRecord record, WritePatch(store_, budget_, place, record_, plan_, read,
                                             std::move(found_.places), *newer_, progress_));
  mend->Describe(record);
  KillPoint("layout: mended, scratch files there");
  QUARRY_RETURN_IF_ERROR(mend->RemoveScratch());
  report_.bytes_written = record.file_bytes + record.trace_bytes;
  report_.batches_sampled = changed_.batches.size();
  report_.rows_read = mend->rows_read();
  return record;
}

// As a patch, or all of it in one file again where a patch would leave too much behind, and building is not cheaper then.
Status Rebuild::PlanMend(const Mend& mend) {
  plan_ = PlanPatch(*layout_, mend.directory(), mend.parts(), found_.places);
  plan_.keeps_trace = false;
  std::string excess;
  if (WithinBounds(plan_, record_.trace_bytes, &excess)) return Status::Ok();
  MendCounts copied = counts_;
  copied.touched_bytes = copied.regions_bytes;
  plan_ = PlanCopy(mend.directory());
  plan_.keeps_trace = false;
  std::string excess_of_copy;
  if (PriceMend(copied, DeviceOf(*store_.manifest())).mends() &&
      WithinBounds(plan_, record_.trace_bytes, &excess_of_copy)) {
    return Status::Ok();
  }
  return MakeStatus(Code::kUnsupported, "mended, {}", excess);
}

Result<LayoutRecord> Rebuild::Build() {
  QUARRY_TRY(LayoutSpec spec, Spec());
  layout_.reset();  // what it holds, building may need
  newer_.reset();
  found_ = {};
  reservation_.Release();
  newer_reservation_.Release();
  QUARRY_TRY(LayoutRecord record,
             BuildLayout(store_, budget_, spec, /*resume=*/false, progress_, &report_.build));
  report_.bytes_written = record.plan_bytes_written;
  report_.batches_sampled = record.batch_count;
  report_.rows_read = 0;
  if (spec.packing != Packing::kAlways) return record;
  for (const SourceRecord& table : SourceRecordsOf(*store_.manifest(), record_.spec, snapshot_.get())) {
    report_.rows_read += table.record->row_count;
  }
  return record;
}

// What the layout was built with.
Result<LayoutSpec> Rebuild::Spec() const {
  LayoutSpec spec{.name = record_.name,
                  .road = record_.spec,
                  .epochs = record_.epochs,
                  .policy = record_.policy,
                  .disk_bytes = DiskBytesMax(),
                  .hash_functions = record_.hash_functions,
                  .share = record_.share,
                  .snapshot = snapshot_,
                  .threads = options_.threads};
  if (layout_ != nullptr) spec.packing = layout_->directory().packed ? Packing::kAlways : Packing::kNever;
  return spec;
}

}  // namespace

std::string_view RebuildPathName(RebuildPath path) {
  switch (path) {
    case RebuildPath::kRecord:
      return "record";
    case RebuildPath::kPatch:
      return "patch";
    case RebuildPath::kCopy:
      return "copy";
    case RebuildPath::kMend:
      return "mend";
    case RebuildPath::kBuild:
      break;
  }
  return "build";
}

Result<LayoutRecord> RebuildLayout(Store& store, MemoryBudget& budget, std::string_view name,
                                   const RebuildOptions& options, const ProgressFunction& progress,
                                   RebuildReport* report) {
  RebuildReport ignored;
  Rebuild rebuild(store, budget, options, progress, report != nullptr ? *report : ignored);
  return rebuild.Run(name);
}

}  // namespace quarry
