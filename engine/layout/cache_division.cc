// How a cache is divided among tables whose rows differ in length.
#include <algorithm>
#include <numeric>

#include "cache_plan.h"

namespace quarry {
namespace {

// Use counts of the rows of all tables together, in units of bytes that every row's length is a multiple of.
class JointCounts {
 public:
  JointCounts(std::span<const TableCache> tables, uint64_t unit_bytes)
      : tables_(tables), unit_bytes_(unit_bytes), buffers_(tables.size()) {}

  Result<std::span<const UseCount>> Read(uint64_t batch) {
    counts_.clear();
    for (size_t table = 0; table < tables_.size(); ++table) {
      QUARRY_TRY(const std::span<const UseCount> counts, OfTable(table, batch));
      for (const UseCount& count : counts) counts_.push_back({count.next_use, count.rows * UnitsOf(table)});
    }
    std::ranges::sort(counts_, {}, &UseCount::next_use);
    size_t kept = 0;
    for (const UseCount& count : counts_) {
      if (kept > 0 && counts_[kept - 1].next_use == count.next_use) {
        counts_[kept - 1].rows += count.rows;
      } else {
        counts_[kept++] = count;
      }
    }
    counts_.resize(kept);
    return std::span<const UseCount>(counts_);
  }
  Result<std::span<const UseCount>> OfTable(size_t table, uint64_t batch) {
    return tables_[table].next_uses->ReadCounts(batch, buffers_[table]);
  }
  uint32_t UnitsOf(size_t table) const {
    return static_cast<uint32_t>(tables_[table].options.row_bytes / unit_bytes_);
  }

 private:
  const std::span<const TableCache> tables_;
  const uint64_t unit_bytes_;
  std::vector<IoBuffer> buffers_;
  std::vector<UseCount> counts_;
};

// Gives `bytes` out by shares, to each table no more than its rows take.
std::vector<uint64_t> RowsByShares(std::span<const TableCache> tables, std::vector<double> shares,
                                   uint64_t bytes) {
  std::vector<uint64_t> rows(tables.size());
  auto left = static_cast<double>(bytes);
  for (size_t round = 0; round < tables.size(); ++round) {  // each fills a table, or gives all out
    double sum = 0;
    for (const double share : shares) sum += share;
    if (sum <= 0) break;
    const double given = left;
    for (size_t table = 0; table < tables.size(); ++table) {
      const CachePlanOptions& options = tables[table].options;
      const auto row_bytes = static_cast<double>(options.row_bytes);
      const auto more = static_cast<uint64_t>(given * shares[table] / sum / row_bytes);
      const uint64_t taken = std::min(more, options.node_count - rows[table]);
      rows[table] += taken;
      left -= static_cast<double>(taken) * row_bytes;
      if (rows[table] == options.node_count) shares[table] = 0;
    }
  }
  return rows;
}

}  // namespace

Result<std::vector<uint64_t>> DivideCache(const Trace& trace, std::span<const TableCache> tables,
                                          uint64_t bytes) {
  std::vector<double> shares;  // bytes of each table's rows
  uint64_t all_bytes = 0, unit_bytes = 0;
  for (const TableCache& table : tables) {
    all_bytes += table.options.node_count * table.options.row_bytes;
    unit_bytes = std::gcd(unit_bytes, table.options.row_bytes);
    shares.push_back(static_cast<double>(table.options.node_count * table.options.row_bytes));
  }
  if (bytes >= all_bytes) {
    std::vector<uint64_t> rows;
    for (const TableCache& table : tables) rows.push_back(table.options.node_count);
    return rows;
  }
  constexpr uint64_t kRounds = 4;
  const uint64_t batch_count = trace.batch_count();
  JointCounts joint(tables, unit_bytes);
  QUARRY_TRY(const BeladyPlan plan, PlanBelady([&](uint64_t batch) { return joint.Read(batch); },
                                               {.batch_count = batch_count,
                                                .capacity = bytes / unit_bytes,
                                                .cyclic = tables.front().options.cyclic,
                                                .rounds_max = kRounds}));
  std::vector<double> held(tables.size());  // bytes, added up over batches
  for (uint64_t batch = 0; batch < batch_count; ++batch) {
    QUARRY_TRY(const std::span<const UseCount> counts, joint.Read(batch));
    const std::vector<UseCount> all(counts.begin(), counts.end());
    for (size_t table = 0; table < tables.size(); ++table) {
      QUARRY_TRY(const std::span<const UseCount> of_table, joint.OfTable(table, batch));
      for (const UseCount& count : of_table) {
        const KeepRule& rule = plan.rules[count.next_use % batch_count];
        const uint64_t gap = count.next_use - batch;
        if (gap > rule.batches) continue;
        double kept = static_cast<double>(count.rows) * joint.UnitsOf(table);
        if (gap == rule.batches) {
          const auto together = std::ranges::lower_bound(all, count.next_use, {}, &UseCount::next_use);
          kept *= std::min(1.0, static_cast<double>(rule.rows) / static_cast<double>(together->rows));
        }
        held[table] += kept * static_cast<double>(gap);
      }
    }
  }
  const bool any = std::ranges::any_of(held, [](double each) { return each > 0; });
  std::vector<uint64_t> rows = RowsByShares(tables, any ? held : shares, bytes);
  uint64_t left = bytes;  // by rounding, and where all rows of a table are held
  for (size_t table = 0; table < tables.size(); ++table)
    left -= rows[table] * tables[table].options.row_bytes;
  for (size_t table = 0; table < tables.size(); ++table) {
    const CachePlanOptions& options = tables[table].options;
    const uint64_t more = std::min(left / options.row_bytes, options.node_count - rows[table]);
    rows[table] += more;
    left -= more * options.row_bytes;
  }
  return rows;
}

}  // namespace quarry
