// What each batch of a layout finds in memory: the caches of its tables, planned.
#include <algorithm>

#include "layout_builder.h"
#include "quarry/base/trace.h"

namespace quarry {
namespace {

// The next uses of a table's rows.
std::string NextUsesFile(size_t table) { return fmt::format("next-{}.tmp", table); }

}  // namespace

// A cache for the rows of each table, all of the memory that the specification gives them. With several tables each has next
// uses, by which it is divided.
Result<std::vector<TableCache>> LayoutBuilder::Caches() {
  const bool one_table = rows_.tables.empty();
  const uint64_t cache_bytes = CacheBytesOf(spec_, rows_);
  std::vector<TableCache> caches;
  uint64_t bytes = 0;
  degrees_by_table_.resize(tables_.size());
  for (size_t i = 0; i < tables_.size(); ++i) {
    const uint64_t stride = rows_.StrideOf(i);
    caches.push_back({.nodes = one_table ? std::span<const NodeTypes::Range>() : tables_[i].nodes,
                      .options = {.policy = spec_.policy,
                                  .node_count = rows_.row_counts[i],
                                  .capacity = std::min(cache_bytes / stride, rows_.row_counts[i]),
                                  .cyclic = spec_.cyclic,
                                  .row_bytes = stride}});
    if (degrees_ != nullptr && one_table) caches[i].options.degrees = *degrees_;
    for (const NodeTypes::Range& nodes : caches[i].nodes) {
      if (degrees_ == nullptr) break;
      std::vector<uint32_t>& degrees = degrees_by_table_[i];
      degrees.insert(degrees.end(), degrees_->begin() + static_cast<ptrdiff_t>(nodes.first),
                     degrees_->begin() + static_cast<ptrdiff_t>(nodes.end));
      caches[i].options.degrees = degrees;
    }
    bytes += CachePlanBytes(caches[i].options, report_.trace.batch_nodes_max);
  }
  QUARRY_TRY(reservation_,
             budget_.Reserve(bytes + trace_->resident_bytes() +
                                 LayoutEncoder::MemoryBytes(rows_.node_count, report_.trace, spec_.road),
                             "planning a layout"));
  const bool divides = !one_table && cache_bytes > 0;
  for (size_t i = 0; i < caches.size(); ++i) {
    const std::string file = NextUsesFile(i);
    QUARRY_RETURN_IF_ERROR(Remove(file));
    if (!divides && !WantsNextUses(spec_.policy)) continue;
    QUARRY_TRY(std::unique_ptr<NextUses> uses, NextUses::Make(store_.backend(), *trace_, rows_.row_counts[i],
                                                              spec_.cyclic, Path(file), caches[i].nodes));
    caches[i].next_uses = uses.get();
    next_uses_.push_back(std::move(uses));
  }
  if (divides) {
    QUARRY_TRY(const std::vector<uint64_t> rows, DivideCache(*trace_, caches, cache_bytes));
    for (size_t i = 0; i < caches.size(); ++i) caches[i].options.capacity = rows[i];
  }
  cache_slots_ = 0;
  for (const TableCache& cache : caches) cache_slots_ += cache.options.capacity;
  return caches;
}

Status LayoutBuilder::Plan() {
  const ScopedSpan span("plan the cache");
  IoBackend& backend = store_.backend();
  QUARRY_TRY(const std::vector<TableCache> caches, Caches());
  for (const std::string_view file : {"plan.tmp", "misses.tmp", "admit.tmp"}) {
    QUARRY_RETURN_IF_ERROR(Remove(file));
  }
  QUARRY_TRY(encoder_, LayoutEncoder::Make(backend, place_.building, *trace_, report_.trace.blocks_bytes,
                                           store_.manifest()->database_id, place_.generation, rows_,
                                           ProfileOf(*store_.manifest()).GapBytesMax()));
  QUARRY_TRY(cache_plan_, SimulateCaches(*trace_, caches,
                                         [&](uint64_t batch, const TraceBatch& nodes, const CacheStep& step) {
                                           QUARRY_RETURN_IF_ERROR(encoder_->AddStep(nodes, step));
                                           return Report("planning", batch + 1, trace_->batch_count());
                                         }));
  for (size_t i = 0; i < rows_.tables.size(); ++i) {
    rows_.tables[i].cache_slots = caches[i].options.capacity;
    rows_.tables[i].image_rows = cache_plan_.table_rows[i];
  }
  next_uses_.clear();
  degrees_by_table_.clear();
  QUARRY_RETURN_IF_ERROR(encoder_->FinishSteps(cache_plan_.carried, spec_.cyclic));
  for (size_t i = 0; i < caches.size(); ++i) QUARRY_RETURN_IF_ERROR(Remove(NextUsesFile(i)));
  return Status::Ok();
}

}  // namespace quarry
