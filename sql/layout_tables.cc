// What the catalog and the directories of layouts say of them: layouts, batches, segments, caches.
#include "list_table.h"
#include "quarry/layout/layout.h"
#include "tables.h"

namespace quarry::sql {
namespace {

constexpr ColumnType kInteger = ColumnType::kInteger, kReal = ColumnType::kReal, kText = ColumnType::kText;
constexpr int kLayout = 0;  // the column, of all tables but layouts

Value Name(NamedEnum auto value) { return std::string(NameOf(value)); }

// Calls visit(layout) with each that the query asks for, opened, one at a time. Those that cannot be served
// any more are left out: what their directories say is of batches that are no more.
template <typename Visit>
Status ForEachLayout(Session& session, const Query& query, RowList& rows, Visit&& visit) {
  const std::shared_ptr<const Manifest> manifest = session.manifest();
  for (size_t i = 0; i < manifest->layouts.size(); ++i) {
    const LayoutRecord& record = manifest->layouts[i];
    if (!query.Allows(kLayout, record.name) || !IsServable(*manifest, record)) continue;
    QUARRY_RETURN_IF_ERROR(session.Look());
    const uint64_t bytes = record.total_bytes() / kPageBytes * sizeof(uint32_t) +
                           record.batch_count * sizeof(BatchEntry) +
                           record.cache_rows * (sizeof(NodeId) + sizeof(uint32_t));
    QUARRY_TRY(const MemoryBudget::Reservation reservation,
               session.budget().Reserve(bytes, "the directory of layout \"" + record.name + "\""));
    QUARRY_TRY(const std::unique_ptr<Layout> layout, Layout::Open(session.store(), record));
    rows.NumberFrom(static_cast<int64_t>(i) << 32);
    QUARRY_RETURN_IF_ERROR(visit(*layout));
  }
  return Status::Ok();
}

enum BatchColumn : int { kBatch = 1, kSeeds, kInputNodes, kChunkBytes, kMisses };

// All batches of an epoch have batch_size seeds, but for the last, which has what is left; every epoch has as
// many.
Result<uint64_t> LastSeeds(Session& session, const Layout& layout) {
  QUARRY_TRY(const std::unique_ptr<Trace> trace, layout.OpenTrace(session.store()));
  QUARRY_TRY(const MemoryBudget::Reservation reservation,
             session.budget().Reserve(trace->resident_bytes(), "the trace of a layout"));
  TraceCursor cursor(*trace);
  QUARRY_TRY(const TraceBatch* const last, cursor.Read(layout.directory().batches_per_epoch - 1));
  return uint64_t{last->hop_offsets.front()};
}

Result<RowList> ListBatches(Session& session, const Query& query) {
  RowList rows;
  const auto add = [&](const Layout& layout) -> Status {
    const LayoutDirectory& directory = layout.directory();
    uint64_t last_seeds = 0;
    if (query.Wants(kSeeds)) {
      QUARRY_TRY(last_seeds, LastSeeds(session, layout));
    }
    for (uint64_t i = 0; i < directory.batches.size(); ++i) {
      const BatchEntry& batch = directory.batches[i];
      const bool last = (i + 1) % directory.batches_per_epoch == 0;
      rows.Add({layout.record().name, Integer(i),
                Integer(last ? last_seeds : layout.record().spec.batch_size), Integer(batch.nodes),
                Integer(directory.chunk_bytes(batch)), Integer(batch.misses)});
    }
    return Status::Ok();
  };
  QUARRY_RETURN_IF_ERROR(ForEachLayout(session, query, rows, add));
  return rows;
}

Result<RowList> ListSegments(Session& session, const Query& query) {
  RowList rows;
  const auto add = [&](const Layout& layout) {
    const LayoutDirectory& directory = layout.directory();
    const uint64_t size = layout.record().batches_per_segment;
    for (uint64_t i = 0; i < directory.segments.size(); ++i) {
      const uint64_t first = i * size;
      rows.Add({layout.record().name, Integer(i), Integer(first),
                Integer(std::min<uint64_t>(size, directory.batches.size() - first)),
                Integer(directory.segments[i].rows),
                Integer(directory.segments[i].rows * directory.row_stride)});
    }
    return Status::Ok();
  };
  QUARRY_RETURN_IF_ERROR(ForEachLayout(session, query, rows, add));
  return rows;
}

// What each layout keeps in memory between batches.
Result<RowList> ListCaches(Session& session, const Query&) {
  RowList rows;
  const std::shared_ptr<const Manifest> manifest = session.manifest();
  for (const LayoutRecord& layout : manifest->layouts) {
    if (layout.cache_rows == 0) continue;
    const bool typed = !layout.spec.relation_fanouts.empty();  // rows differ in length
    const TableRecord* const table = typed ? nullptr : manifest->FindTable(layout.spec.feature_table);
    const Value bytes = typed ? Integer(layout.spec.cache_bytes)
                        : table == nullptr
                            ? Value()
                            : Integer(layout.cache_rows * RowBytes(table->element_type, table->dim));
    rows.Add({layout.name, "memory", Name(layout.policy), Integer(layout.cache_rows), bytes,
              Integer(layout.hits)});
  }
  return rows;
}

}  // namespace

std::vector<std::unique_ptr<Table>> MakeLayoutTables(Session& session) {
  std::vector<std::unique_ptr<Table>> tables;
  const auto add = [&](std::string_view name, std::vector<Column> columns, ListTable::Make make) {
    tables.push_back(std::make_unique<ListTable>(session, name, std::move(columns), std::move(make)));
  };
  using M = Manifest;
  using L = LayoutRecord;
  tables.push_back(MakeRecordTable<L>(
      session, "layouts",
      {{{"name", kText}, [](const M&, const L& l) -> Value { return l.name; }},
       {{"policy", kText}, [](const M&, const L& l) { return Name(l.policy); }},
       {{"seed_order", kText}, [](const M&, const L& l) { return Name(l.spec.seed_order); }},
       {{"table", kText},  // of the one; where nodes have types, rows are of each type's
        [](const M&, const L& l) -> Value {
          return l.spec.relation_fanouts.empty() ? Value(l.spec.feature_table) : Value();
        }},
       {{"batch_size", kInteger}, [](const M&, const L& l) { return Integer(l.spec.batch_size); }},
       {{"epochs", kInteger}, [](const M&, const L& l) { return Integer(l.epochs); }},
       {{"batches", kInteger}, [](const M&, const L& l) { return Integer(l.batch_count); }},
       {{"batches_per_segment", kInteger},
        [](const M&, const L& l) { return Integer(l.batches_per_segment); }},
       {{"cache_rows", kInteger}, [](const M&, const L& l) { return Integer(l.cache_rows); }},
       {{"accesses", kInteger}, [](const M&, const L& l) { return Integer(l.accesses); }},
       {{"hits", kInteger}, [](const M&, const L& l) { return Integer(l.hits); }},
       {{"bytes", kInteger}, [](const M&, const L& l) { return Integer(l.total_bytes()); }},
       {{"predicted_seconds", kReal}, [](const M&, const L& l) -> Value { return l.predicted_seconds; }},
       {{"measured_seconds", kReal},
        [](const M&, const L& l) { return l.measured_seconds == 0 ? Value() : Value(l.measured_seconds); }},
       {{"fresh", kInteger}, [](const M& m, const L& l) { return Flag(IsFresh(m, l)); }},
       {{"servable", kInteger}, [](const M& m, const L& l) { return Flag(IsServable(m, l)); }},
       {{"created_utc", kText}, [](const M&, const L& l) -> Value { return l.created_utc; }}},
      [](const M& manifest) { return std::span(manifest.layouts); }));
  add("batches",
      {{"layout", kText, Pushdown::kEquality},
       {"batch", kInteger},
       {"seeds", kInteger},
       {"input_nodes", kInteger},
       {"chunk_bytes", kInteger},
       {"misses", kInteger}},
      ListBatches);
  add("segments",
      {{"layout", kText, Pushdown::kEquality},
       {"segment", kInteger},
       {"first_batch", kInteger},
       {"batches", kInteger},
       {"rows", kInteger},
       {"bytes", kInteger}},
      ListSegments);
  add("caches",
      {{"layout", kText},
       {"level", kText},
       {"policy", kText},
       {"rows", kInteger},
       {"bytes", kInteger},
       {"hits", kInteger}},
      ListCaches);
  return tables;
}

}  // namespace quarry::sql
