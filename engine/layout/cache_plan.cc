#include "cache_plan.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace quarry {
namespace {

// Use counts that are kept in memory while a plan is made; more are read from their file in each round.
constexpr uint64_t kCountsMax = 128 << 10;

// Gives use counts out, from memory where all of them may be kept there.
class CountReader {
 public:
  CountReader(const NextUses& next_uses, uint64_t batch_count)
      : next_uses_(next_uses), batch_count_(batch_count) {}

  Status Load() {
    if (!in_memory()) return Status::Ok();
    for (uint64_t batch = 0; batch < batch_count_; ++batch) {
      QUARRY_TRY(const std::span<const UseCount> counts, next_uses_.ReadCounts(batch, buffer_));
      ends_.push_back(counts_.size());
      counts_.insert(counts_.end(), counts.begin(), counts.end());
    }
    ends_.push_back(counts_.size());
    return Status::Ok();
  }
  Result<std::span<const UseCount>> Read(uint64_t batch) {
    if (!in_memory()) return next_uses_.ReadCounts(batch, buffer_);
    return std::span<const UseCount>(counts_).subspan(ends_[batch], ends_[batch + 1] - ends_[batch]);
  }
  bool in_memory() const { return next_uses_.counts() <= kCountsMax; }

 private:
  const NextUses& next_uses_;
  const uint64_t batch_count_;
  std::vector<UseCount> counts_;
  std::vector<uint64_t> ends_;  // by batch: of the one before
  IoBuffer buffer_;
};

Result<BeladyPlan> MakeRules(const Trace& trace, const NextUses& next_uses, const CachePlanOptions& options) {
  // A cycle whose counts are kept may take its time to settle; others have so many batches that they have
  // all but settled after a few rounds.
  constexpr uint64_t kRoundsInMemory = 256, kRoundsFromFile = 4;
  CountReader counts(next_uses, trace.batch_count());
  QUARRY_RETURN_IF_ERROR(counts.Load());
  return PlanBelady([&](uint64_t batch) { return counts.Read(batch); },
                    {.batch_count = trace.batch_count(),
                     .capacity = options.capacity,
                     .cyclic = options.cyclic,
                     .rounds_max = counts.in_memory() ? kRoundsInMemory : kRoundsFromFile});
}

class Simulation {
 public:
  explicit Simulation(const Trace& trace, const TableCache& table)
      : trace_(trace), next_uses_(table.next_uses), options_(table.options), cursor_(trace, table.nodes) {}

  // Runs all batches from `start`; returns the simulator in its last state.
  Result<CacheSimulator> Run(PolicyKind policy, std::span<const NodeId> start,
                             std::span<const KeepRule> rules, const CacheStepFunction& visit) {
    CacheSimulator simulator(policy, options_.node_count, options_.capacity, start, rules);
    for (uint64_t batch = 0; batch < trace_.batch_count(); ++batch) {
      QUARRY_TRY(const TraceBatch* const nodes, cursor_.Read(batch));
      std::span<const uint32_t> next_uses;
      if (WantsNextUses(policy)) {
        QUARRY_TRY(next_uses, next_uses_->Read(batch, buffer_));
      }
      simulator.Step(static_cast<uint32_t>(batch), nodes->nodes, next_uses, step_);
      if (visit) QUARRY_RETURN_IF_ERROR(visit(batch, *nodes, step_));
    }
    return simulator;
  }

  // The rows that rules keep from one round to the next, ascending. Only batches with such rows are looked at.
  Result<std::vector<NodeId>> KeptOverTheSeam(std::span<const KeepRule> rules) {
    const uint64_t batch_count = rules.size();
    uint64_t first = batch_count;
    for (uint64_t batch = 0; batch < batch_count; ++batch) {
      if (rules[batch].batches > batch) first = std::min(first, batch_count + batch - rules[batch].batches);
    }
    std::vector<uint32_t> rows_left;
    for (const KeepRule& rule : rules) rows_left.push_back(rule.rows);
    std::vector<bool> is_kept(options_.node_count);
    for (uint64_t batch = first; batch < batch_count; ++batch) {
      QUARRY_TRY(const TraceBatch* const nodes, cursor_.Read(batch));
      QUARRY_TRY(const std::span<const uint32_t> next_uses, next_uses_->Read(batch, buffer_));
      for (size_t i = 0; i < next_uses.size(); ++i) {
        if (next_uses[i] < batch_count) continue;
        const KeepRule& rule = rules[next_uses[i] - batch_count];
        const uint64_t batches = next_uses[i] - batch;
        uint32_t& left = rows_left[next_uses[i] - batch_count];
        if (batches < rule.batches || (batches == rule.batches && left > 0 && left-- > 0)) {
          is_kept[nodes->nodes[i]] = true;
        }
      }
    }
    std::vector<NodeId> kept;
    for (uint64_t node = 0; node < options_.node_count; ++node) {
      if (is_kept[node]) kept.push_back(static_cast<NodeId>(node));
    }
    return kept;
  }

 private:
  const Trace& trace_;
  const NextUses* const next_uses_;
  const CachePlanOptions& options_;
  RowCursor cursor_;
  IoBuffer buffer_;
  CacheStep step_;
};

// About what a planned block grows by with each row that enters the cache: its place in the frame and its
// slot (docs/format.md).
uint64_t AdmissionBytes(uint64_t admissions, const CachePlanOptions& options) {
  constexpr uint64_t kFrameRowBits = 3;
  return admissions * (kFrameRowBits + static_cast<uint64_t>(std::bit_width(options.capacity))) / 8;
}

// The node whose row is number `row` of the table.
NodeId NodeOfRow(std::span<const NodeTypes::Range> nodes, NodeId row) {
  if (nodes.empty()) return row;
  const auto range = std::prev(std::ranges::upper_bound(nodes, uint64_t{row}, {}, &NodeTypes::Range::row));
  return static_cast<NodeId>(range->first + (row - range->row));
}

// What Belady comes to.
struct BeladyCycle {
  BeladyPlan plan;
  std::vector<NodeId> start;
  bool constant =
      false;  // the rows that are used most read as little and never change: they are kept instead
};

// Most often the hits alone tell whether changes of the cache cost more bytes than they save. Else they are
// counted in a round that does nothing else.
Result<BeladyCycle> PlanBeladyCycle(Simulation& simulation, const Trace& trace, const NextUses& next_uses,
                                    const CachePlanOptions& options) {
  BeladyCycle cycle;
  QUARRY_TRY(cycle.plan, MakeRules(trace, next_uses, options));
  if (!options.cyclic) return cycle;
  const uint64_t hits = cycle.plan.hits;
  const uint64_t saved = (hits - std::min(hits, next_uses.UsesOfTop(options.capacity))) * options.row_bytes;
  const bool compares = options.row_bytes > 0;
  cycle.constant = compares && saved == 0;
  if (cycle.constant) return cycle;
  QUARRY_TRY(cycle.start, simulation.KeptOverTheSeam(cycle.plan.rules));
  // No row enters without being used.
  if (!compares || saved > AdmissionBytes(hits, options)) return cycle;
  uint64_t admissions = 0;
  const auto count = [&](uint64_t, const TraceBatch&, const CacheStep& step) {
    admissions += step.admitted.size();
    return Status::Ok();
  };
  QUARRY_RETURN_IF_ERROR(simulation.Run(PolicyKind::kBelady, cycle.start, cycle.plan.rules, count).status());
  cycle.constant = saved <= AdmissionBytes(admissions, options);
  return cycle;
}

}  // namespace

uint64_t NextUses::UsesOfTop(uint64_t count) const {
  uint64_t uses = 0;
  for (uint64_t each = nodes_by_uses_.size(); count > 0 && each-- > 0;) {
    const uint64_t nodes = std::min(count, nodes_by_uses_[each]);
    uses += nodes * each;
    count -= nodes;
  }
  return uses;
}

Result<std::unique_ptr<NextUses>> NextUses::Make(IoBackend& backend, const Trace& trace, uint64_t node_count,
                                                 bool cyclic, const std::string& path,
                                                 std::span<const NodeTypes::Range> nodes_of_table) {
  std::unique_ptr<NextUses> result(new NextUses());
  std::vector<uint32_t> upcoming(node_count, kNeverUsed);  // by node: its next use, seen from this batch
  const uint64_t batch_count = trace.batch_count();
  RowCursor cursor(trace, nodes_of_table);
  if (cyclic) {
    // The first batch follows the last one: its uses are numbered as batches beyond the end.
    std::vector<uint32_t> uses(node_count);
    for (uint64_t batch = batch_count; batch-- > 0;) {
      QUARRY_TRY(const TraceBatch* const nodes, cursor.Read(batch));
      for (const NodeId node : nodes->nodes) {
        upcoming[node] = static_cast<uint32_t>(batch_count + batch);
        ++uses[node];
      }
    }
    result->nodes_by_uses_.resize(batch_count + 1);
    for (const uint32_t count : uses) ++result->nodes_by_uses_[count];
  }
  QUARRY_TRY(const std::unique_ptr<RecordWriter> writer, RecordWriter::Create(backend, path));
  std::vector<uint32_t> next_uses, met;
  std::vector<uint32_t> rows(2 * batch_count);  // by next use; zero between batches
  std::vector<UseCount> counts;
  for (uint64_t batch = batch_count; batch-- > 0;) {
    QUARRY_TRY(const TraceBatch* const nodes, cursor.Read(batch));
    next_uses.clear();
    met.clear();
    counts.clear();
    for (const NodeId node : nodes->nodes) {
      const uint32_t next_use = std::exchange(upcoming[node], static_cast<uint32_t>(batch));
      next_uses.push_back(next_use);
      if (next_use != kNeverUsed && rows[next_use]++ == 0) met.push_back(next_use);
    }
    std::ranges::sort(met);
    for (const uint32_t next_use : met) counts.push_back({next_use, std::exchange(rows[next_use], 0)});
    result->count_sizes_.push_back(static_cast<uint32_t>(counts.size()));
    QUARRY_RETURN_IF_ERROR(writer->Append({BytesOf(counts), BytesOf(next_uses)}));
  }
  QUARRY_TRY(const uint64_t file_bytes, writer->Finish(kScratchId, kScratchGeneration));
  QUARRY_TRY(result->file_, RecordFile::Open(backend, path, kScratchId, kScratchGeneration, file_bytes));
  return result;
}

Result<std::vector<uint32_t>> CountAccesses(const Trace& trace, uint64_t node_count,
                                            std::span<const NodeTypes::Range> nodes_of_table) {
  std::vector<uint32_t> counts(node_count);
  RowCursor cursor(trace, nodes_of_table);
  for (uint64_t batch = 0; batch < trace.batch_count(); ++batch) {
    QUARRY_TRY(const TraceBatch* const nodes, cursor.Read(batch));
    for (const NodeId node : nodes->nodes) ++counts[node];
  }
  return counts;
}

uint64_t CachePlanBytes(const CachePlanOptions& options, uint64_t batch_nodes_max) {
  constexpr uint64_t kBytesPerBatchNode = 32;  // nodes, next uses, slots, and their buffers
  return 2 * options.node_count * sizeof(uint32_t) + 3 * options.capacity * sizeof(uint32_t) +
         CachePolicy::MemoryBytes(options.policy, options.node_count, options.capacity, batch_nodes_max) +
         (WantsNextUses(options.policy) ? kCountsMax * sizeof(UseCount) : 0) +
         batch_nodes_max * kBytesPerBatchNode;
}

Result<const TraceBatch*> RowCursor::Read(uint64_t batch) {
  QUARRY_TRY(const TraceBatch* const nodes, cursor_.Read(batch));
  return nodes_.empty() ? nodes : &RowsOf(*nodes);
}

const TraceBatch& RowCursor::RowsOf(const TraceBatch& batch) {
  rows_.nodes.clear();
  positions_.clear();
  NodeTypes::Range at;  // nodes that follow each other are mostly of one
  for (uint32_t i = 0; i < batch.nodes.size(); ++i) {
    const NodeId node = batch.nodes[i];
    if (node < at.first || node >= at.end) {
      const auto range = std::ranges::upper_bound(nodes_, uint64_t{node}, {}, &NodeTypes::Range::end);
      if (range == nodes_.end() || node < range->first) continue;
      at = *range;
    }
    rows_.nodes.push_back(static_cast<NodeId>(at.RowOf(node)));
    positions_.push_back(i);
  }
  return rows_;
}

namespace {

// What a cache holds before the first batch, and by what it goes.
struct CacheStart {
  PolicyKind policy = PolicyKind::kNone;
  std::vector<NodeId> rows;
  std::vector<KeepRule> rules;
};

Result<CacheStart> PrepareCache(const Trace& trace, const TableCache& table) {
  const CachePlanOptions& options = table.options;
  CacheStart start{.policy = options.policy};
  Simulation simulation(trace, table);
  if (start.policy == PolicyKind::kBelady) {
    QUARRY_TRY(BeladyCycle belady, PlanBeladyCycle(simulation, trace, *table.next_uses, options));
    start.rows = std::move(belady.start);
    start.rules = std::move(belady.plan.rules);
    if (belady.constant) start.policy = PolicyKind::kStaticFrequency;
  } else if (options.cyclic && !IsStatic(start.policy)) {
    QUARRY_TRY(const CacheSimulator warm, simulation.Run(start.policy, {}, {}, {}));
    start.rows = warm.Residents();
  }
  if (start.policy == PolicyKind::kStaticDegree) {
    start.rows = TopNodes(options.degrees, options.capacity);
  } else if (start.policy == PolicyKind::kStaticFrequency) {
    QUARRY_TRY(const std::vector<uint32_t> counts, CountAccesses(trace, options.node_count, table.nodes));
    start.rows = TopNodes(counts, options.capacity);
  }
  return start;
}

// One table's cache while all are run.
class TableRun {
 public:
  static Result<std::unique_ptr<TableRun>> Make(const Trace& trace, const TableCache& table) {
    QUARRY_TRY(CacheStart start, PrepareCache(trace, table));
    return std::make_unique<TableRun>(trace, table, std::move(start));
  }
  TableRun(const Trace& trace, const TableCache& table, CacheStart start)
      : table_(table),
        start_(std::move(start)),
        cursor_(trace, table.nodes),
        simulator_(start_.policy, table.options.node_count, table.options.capacity, start_.rows,
                   start_.rules) {}

  uint64_t image_rows() const { return start_.rows.size(); }
  uint64_t other_slots() const { return table_.options.capacity - image_rows(); }
  // Slots of the image, and the others, are these among those of all tables.
  void SetNumbers(uint64_t image_first, uint64_t others_first) {
    image_first_ = image_first;
    others_first_ = others_first;
  }

  // Adds what the table's rows come to in the batch.
  Status Step(uint64_t batch, const TraceBatch& nodes, CachePlan& plan, CacheStep& all) {
    std::span<const uint32_t> next_uses;
    if (WantsNextUses(start_.policy)) {
      QUARRY_TRY(next_uses, table_.next_uses->Read(batch, buffer_));
    }
    const bool one_table = table_.nodes.empty();
    const TraceBatch& rows = one_table ? nodes : cursor_.RowsOf(nodes);
    CacheStep& step = one_table ? all : step_;
    simulator_.Step(static_cast<uint32_t>(batch), rows.nodes, next_uses, step);
    plan.accesses += rows.nodes.size();
    plan.hits += rows.nodes.size() - step.misses;
    plan.misses += step.misses;
    if (one_table) return Status::Ok();
    const std::span<const uint32_t> positions = cursor_.positions();
    for (size_t i = 0; i < positions.size(); ++i) {
      if (step.slots[i] != kNoSlot) all.slots[positions[i]] = NumberOf(step.slots[i]);
    }
    for (const Admission& admission : step.admitted) {
      all.admitted.push_back({positions[admission.position], NumberOf(admission.slot)});
    }
    all.misses += step.misses;
    return Status::Ok();
  }

  void AddStart(CachePlan& plan) const {
    for (const NodeId row : start_.rows) plan.start.push_back(NodeOfRow(table_.nodes, row));
    plan.table_rows.push_back(start_.rows.size());
  }
  void Close(CachePlan& plan) {
    std::vector<CacheSimulator::Carried> carried;
    simulator_.Close(start_.rows, carried);
    for (const CacheSimulator::Carried& row : carried) {
      plan.carried.push_back({NodeOfRow(table_.nodes, row.node), NumberOf(row.slot)});
    }
    for (const NodeId row : start_.rows) plan.wrap.push_back(NumberOf(simulator_.SlotOf(row)));
  }

 private:
  uint32_t NumberOf(uint32_t slot) const {
    return static_cast<uint32_t>(slot < image_rows() ? image_first_ + slot
                                                     : others_first_ + (slot - image_rows()));
  }

  const TableCache& table_;
  const CacheStart start_;
  RowCursor cursor_;
  CacheSimulator simulator_;
  IoBuffer buffer_;
  CacheStep step_;
  uint64_t image_first_ = 0, others_first_ = 0;
};

}  // namespace

Result<CachePlan> SimulateCaches(const Trace& trace, std::span<const TableCache> tables,
                                 const CacheStepFunction& visit) {
  CachePlan plan;
  std::vector<std::unique_ptr<TableRun>> runs;
  for (const TableCache& table : tables) {
    QUARRY_TRY(std::unique_ptr<TableRun> run, TableRun::Make(trace, table));
    run->AddStart(plan);
    runs.push_back(std::move(run));
  }
  uint64_t image_first = 0, others_first = plan.start.size();
  for (const auto& run : runs) {
    run->SetNumbers(image_first, others_first);
    image_first += run->image_rows();
    others_first += run->other_slots();
  }
  TraceCursor cursor(trace);
  CacheStep step;
  for (uint64_t batch = 0; batch < trace.batch_count(); ++batch) {
    QUARRY_TRY(const TraceBatch* const nodes, cursor.Read(batch));
    step.slots.assign(nodes->nodes.size(), kNoSlot);
    step.admitted.clear();
    step.misses = 0;
    for (const auto& run : runs) QUARRY_RETURN_IF_ERROR(run->Step(batch, *nodes, plan, step));
    if (visit) QUARRY_RETURN_IF_ERROR(visit(batch, *nodes, step));
  }
  if (tables.empty() || !tables.front().options.cyclic) return plan;
  for (const auto& run : runs) run->Close(plan);
  std::ranges::sort(plan.carried, {}, &CacheSimulator::Carried::node);
  plan.misses += plan.carried.size();
  return plan;
}

Result<CachePlan> SimulateCache(const Trace& trace, const NextUses* next_uses,
                                const CachePlanOptions& options, const CacheStepFunction& visit) {
  const TableCache table{.nodes = {}, .next_uses = next_uses, .options = options};
  return SimulateCaches(trace, {&table, 1}, visit);
}

}  // namespace quarry
