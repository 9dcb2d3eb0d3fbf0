#include <algorithm>

#include "layout_builder.h"
#include "layout_file.h"
#include "quarry/base/units.h"
#include "quarry/layout/layout.h"
#include "quarry/storage/layout_files.h"

namespace quarry {
namespace {

constexpr uint32_t kRanksMax = 4096;

Status CheckRanks(const LayoutSpec& spec, uint32_t ranks) {
  if (ranks == 0 || ranks > kRanksMax) {
    return MakeStatus(Code::kUsage, "{} ranks: a layout is divided among 1 to {} trainers", ranks, kRanksMax);
  }
  if (!spec.cyclic || spec.batches > 0 || spec.packing != Packing::kAlways) {
    return Status(Code::kUsage, "layouts for several trainers hold whole epochs that repeat, packed");
  }
  LayoutSpec longest = spec;
  longest.name = RankLayoutName(spec.name, ranks - 1, ranks);
  return CheckSpec(longest);
}

}  // namespace

std::string RankLayoutName(std::string_view name, uint32_t rank, uint32_t ranks) {
  return fmt::format("{}-{}of{}", name, rank, ranks);
}

// Each builder is done with a step before the next one begins it, so that what all share (the topology, and the table's
// one pass) is there once, and what planning takes is there for one at a time.
Result<std::vector<LayoutRecord>> BuildRankLayouts(Store& store, MemoryBudget& budget, const LayoutSpec& spec,
                                                   uint32_t ranks, const ProgressFunction& progress,
                                                   BuildReport* report) {
  QUARRY_RETURN_IF_ERROR(CheckRanks(spec, ranks));
  BuildReport ignored;
  BuildReport& sum = report != nullptr ? *report : ignored;
  LayoutSpec shared = spec;
  if (shared.snapshot == nullptr) {
    QUARRY_TRY(shared.snapshot, store.TakeSnapshot());
  }
  std::vector<BuildReport> reports(ranks);
  std::vector<std::unique_ptr<LayoutBuilder>> builders;
  std::vector<LayoutBuilder*> all;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    LayoutSpec own = shared;
    own.name = RankLayoutName(spec.name, rank, ranks);
    own.share.rank = rank;
    own.share.ranks = ranks;
    own.disk_bytes = spec.disk_bytes / ranks;
    builders.push_back(std::make_unique<LayoutBuilder>(store, budget, own, progress, reports[rank]));
    all.push_back(builders.back().get());
    QUARRY_RETURN_IF_ERROR(all.back()->Prepare(BuildingFolder(own.name)));
  }
  {
    QUARRY_TRY(const std::unique_ptr<TraceSource> source, TraceSource::Make(store, budget, shared));
    std::shared_ptr<const std::vector<uint32_t>> degrees;
    if (spec.policy == PolicyKind::kStaticDegree) {
      QUARRY_TRY(std::vector<uint32_t> counts, source->CountUses());
      degrees = std::make_shared<const std::vector<uint32_t>>(std::move(counts));
    }
    for (const LayoutBuilder* const builder : all) QUARRY_RETURN_IF_ERROR(builder->CheckShare(*source));
    for (LayoutBuilder* const builder : all) {
      QUARRY_RETURN_IF_ERROR(builder->Sample(*source, /*resume=*/false));
      builder->SetDegrees(degrees);
    }
  }
  const double plan_start = MonotonicSeconds();
  for (LayoutBuilder* const builder : all) {
    QUARRY_RETURN_IF_ERROR(builder->Plan());
    QUARRY_RETURN_IF_ERROR(builder->Encode());
    QUARRY_RETURN_IF_ERROR(builder->ReleasePlanning());
  }
  sum.plan_seconds = MonotonicSeconds() - plan_start;
  for (LayoutBuilder* const builder : all) QUARRY_RETURN_IF_ERROR(builder->BeginFile());
  QUARRY_TRY(const PackStats pack, LayoutBuilder::PackFiles(all));
  sum.pack_seconds = pack.seconds;
  sum.pack_read_seconds = pack.read_seconds;
  PackStats share = pack;  // the pass over the table was for all of them
  share.bytes_read = pack.bytes_read / ranks;
  std::vector<LayoutRecord> records;
  std::vector<LayoutPlace> places;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    QUARRY_TRY(LayoutRecord record, all[rank]->EndFile(share));
    records.push_back(std::move(record));
    places.push_back(all[rank]->place());
    sum.trace.edges += reports[rank].trace.edges;
    sum.trace.accesses += reports[rank].trace.accesses;
    sum.sample_seconds += reports[rank].sample_seconds;
    sum.blocks_bytes += reports[rank].blocks_bytes;
    sum.sequences = reports[rank].sequences;
  }
  QUARRY_RETURN_IF_ERROR(CommitLayouts(store, places, records));
  return records;
}

}  // namespace quarry
