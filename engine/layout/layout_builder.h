// LayoutBuilder: builds one layout, step by step (layout.h, architecture.md: The planned road). Private to this room.
//
//   Prepare -> Sample [a source is there] -> Plan -> Encode -> BeginFile -> PackFiles [of one builder, or of several, whose
//   rows then come from one pass over the table] -> EndFile -> the record, which is committed
//
// One thread. Errors after Sample leave the folder for the next build of the name, which removes it or takes its trace over.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache_plan.h"
#include "layout_encoder.h"
#include "layout_file.h"
#include "layout_place.h"
#include "packer.h"
#include "quarry/base/process.h"
#include "quarry/base/progress.h"
#include "quarry/layout/layout.h"
#include "quarry/storage/data_file.h"
#include "quarry/storage/row_sources.h"
#include "trace_source.h"

namespace quarry {

class LayoutBuilder {
 public:
  // All outlive it. `spec` gets a snapshot in Prepare where it has none.
  LayoutBuilder(Store& store, MemoryBudget& budget, const LayoutSpec& spec, const ProgressFunction& progress,
                BuildReport& report)
      : store_(store), budget_(budget), spec_(spec), progress_(progress), report_(report) {}
  LayoutBuilder(const LayoutBuilder&) = delete;
  LayoutBuilder& operator=(const LayoutBuilder&) = delete;

  const LayoutSpec& spec() const { return spec_; }
  const LayoutPlace& place() const { return place_; }
  bool packed() const { return encoder_->packed(); }

  // Looks everything up.
  Status Prepare(const std::string& folder);
  // kUsage where the share that the specification asks for has no batch.
  Status CheckShare(TraceSource& source) const { return source.SpecOf(spec_.share).status(); }
  // Makes the folder, and in it the trace of that share. `resume`: a trace of the same batches is taken over.
  Status Sample(TraceSource& source, bool resume);
  // By node, for PolicyKind::kStaticDegree; may be shared.
  void SetDegrees(std::shared_ptr<const std::vector<uint32_t>> degrees) { degrees_ = std::move(degrees); }
  // Simulates the cache and keeps what each batch finds there.
  Status Plan();
  Status Encode();
  // Gives back what planning took, beside what the rest needs.
  Status ReleasePlanning();
  // Begins the file, with the blocks.
  Status BeginFile();
  // Writes the rows of layouts of one snapshot and the same tables, whose files have begun, by all memory that is left. REQUIRES:
  // all are packed.
  static Result<PackStats> PackFiles(std::span<LayoutBuilder* const> builders);
  // The directory, and the record of the layout, as it is committed.
  Result<LayoutRecord> EndFile(const PackStats& pack);

 private:
  Status SampleAnew(TraceSource& source, const TraceSpec& spec);
  Status SampleInto(TraceSource& source, const TraceSpec& spec);
  bool TakeOverTrace();
  uint64_t TraceKey() const;
  Status WriteMark() const;
  Result<std::string> ReadMark() const;
  Status EncodePacked();
  Status ChoosePacking(const Status& packed);
  PackTarget Target();
  LayoutRecord Describe(const PackStats& pack) const;
  Status RemoveScratch();
  Status Report(std::string_view phase, uint64_t done, uint64_t total) const {
    return progress_ ? progress_(phase, done, total) : Status::Ok();
  }
  std::string Path(std::string_view file) const { return fmt::format("{}/{}", place_.building, file); }
  Status Remove(std::string_view file) const { return RemoveTree(store_.backend(), Path(file)); }
  uint64_t TotalBytes() const;  // on disk, once it is packed
  Result<std::vector<TableCache>> Caches();
  Result<double> MergedSeconds();
  // What a cycle of epochs will read.
  struct ReadPlan {
    uint64_t bytes = 0;
    uint64_t useful_bytes = 0;
    double seconds = 0;
  };
  ReadPlan PlanReads(const DeviceProfile& device) const;
  double PackedSeconds() const;

  Store& store_;
  MemoryBudget& budget_;
  LayoutSpec spec_;
  const ProgressFunction& progress_;
  BuildReport& report_;

  double start_seconds_ = MonotonicSeconds();
  MemoryBudget::Reservation reservation_;
  std::vector<SourceRecord> tables_;         // whose records are the snapshot's
  std::vector<FeatureGeometry> geometries_;  // of these
  RowLengths rows_;  // with room for what is joined to rows when they are read (quarry/storage/times.h)
  TopologyRecord topology_record_;
  LayoutPlace place_;

  std::shared_ptr<const std::vector<uint32_t>> degrees_;
  std::vector<std::vector<uint32_t>> degrees_by_table_;
  std::vector<std::unique_ptr<NextUses>> next_uses_;  // by table, while a cache is planned
  uint64_t cache_slots_ = 0;
  std::unique_ptr<Trace> trace_;
  CachePlan cache_plan_;
  std::unique_ptr<LayoutEncoder> encoder_;
  std::unique_ptr<DataFileWriter> writer_;
  std::vector<uint32_t> checksums_;  // of the regions' pages
  uint64_t seed_hash_ = 0;
  uint64_t batches_per_epoch_ = 0;
  uint64_t file_bytes_ = 0;
};

}  // namespace quarry
