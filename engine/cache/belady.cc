#include "quarry/cache/belady.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace quarry {
namespace {

// Belady's rounds over the trace. The cache is known by how many of its rows each batch uses next.
class BeladyRounds {
 public:
  BeladyRounds(const UseCountReader& counts, const BeladyOptions& options)
      : counts_(counts),
        batch_count_(options.batch_count),
        capacity_(options.capacity),
        rows_(batch_count_),
        hits_(batch_count_) {}

  // Goes on with the next round.
  Status Run() {
    for (uint64_t batch = 0; batch < batch_count_; ++batch) {
      const uint64_t now = first_ + batch;
      hits_[batch] += rows_[batch];
      total_ -= std::exchange(rows_[batch], 0);
      farthest_ = std::max(farthest_, now);
      QUARRY_TRY(const std::span<const UseCount> counts, counts_(batch));
      for (const UseCount& count : counts) {
        if (!Keep(now, first_ + count.next_use, count.rows)) break;
      }
    }
    first_ += batch_count_;
    return Status::Ok();
  }

  const std::vector<uint64_t>& rows() const { return rows_; }
  // By batch, of all rounds since they were forgotten.
  const std::vector<uint64_t>& hits() const { return hits_; }
  void ForgetHits() { std::ranges::fill(hits_, 0); }

 private:
  // False when nothing that is used later can enter either.
  bool Keep(uint64_t now, uint64_t next_use, uint64_t count) {
    uint64_t& rows = rows_[next_use % batch_count_];
    if (next_use > farthest_) {
      const uint64_t taken = std::min(count, capacity_ - total_);
      rows += taken;
      total_ += taken;
      if (taken > 0) farthest_ = next_use;
      return taken == count;
    }
    rows += count;
    total_ += count;
    while (total_ > capacity_) {
      uint64_t& last = rows_[farthest_ % batch_count_];
      const uint64_t given_up = std::min(last, total_ - capacity_);
      last -= given_up;
      total_ -= given_up;
      while (farthest_ > now && rows_[farthest_ % batch_count_] == 0) --farthest_;
    }
    return true;
  }

  const UseCountReader& counts_;
  const uint64_t batch_count_;
  const uint64_t capacity_;
  uint64_t first_ = 0;          // number of the round's first batch, rounds counted on
  std::vector<uint64_t> rows_;  // in the cache, by the batch that uses them next: at most a round ahead
  std::vector<uint64_t> hits_;
  uint64_t total_ = 0;     // rows in the cache
  uint64_t farthest_ = 0;  // none is used after this batch
};

// The hits of each batch in a round, once rounds repeat themselves.
Result<std::vector<uint64_t>> SettledHits(const UseCountReader& counts, const BeladyOptions& options) {
  BeladyRounds rounds(counts, options);
  QUARRY_RETURN_IF_ERROR(rounds.Run());
  if (!options.cyclic) return rounds.hits();
  // Looked for is a state that returns, in windows that double (Brent's algorithm).
  uint64_t window = 1, rounds_run = 1;
  for (;;) {
    const std::vector<uint64_t> seen = rounds.rows();
    rounds.ForgetHits();
    for (uint64_t round = 1; round <= window; ++round) {
      QUARRY_RETURN_IF_ERROR(rounds.Run());
      ++rounds_run;
      const bool returned = rounds.rows() == seen;
      if (!returned && (round < window || rounds_run < options.rounds_max)) continue;
      std::vector<uint64_t> hits = rounds.hits();
      for (uint64_t& count : hits) count /= round;
      return hits;
    }
    window *= 2;
  }
}

// The rows that are kept when each batch is to have so many hits, the rows that were used last before it being
// taken. Goes backwards, so that a batch's rows are met in that order.
class KeptRows {
 public:
  KeptRows(const UseCountReader& counts, const BeladyOptions& options, std::vector<uint64_t> hits)
      : counts_(counts),
        batch_count_(options.batch_count),
        capacity_(options.capacity),
        cyclic_(options.cyclic),
        hits_(std::move(hits)),
        missing_(batch_count_),
        room_(batch_count_),
        rules_(batch_count_),
        older_(batch_count_) {}

  // Finds the rules for the hits. Where more rows would be kept than there is room for, hits are given up, and
  // it begins anew. In a cycle the batches of a second round come first, for what is kept for them.
  Status Sweep() {
    for (bool fits = false; !fits;) {
      QUARRY_TRY(fits, TrySweep());
    }
    return Status::Ok();
  }

  // Gives hits to batches for which more rows can be kept, those that are kept for the shortest time first.
  // Averages are rounded down, so that there may be a few. False when there are none. After a Sweep.
  bool Raise() {
    std::vector<uint32_t> order(batch_count_);
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::stable_sort(order, {}, [&](uint32_t batch) { return older_[batch].batches; });
    bool raised = false;
    for (const uint32_t batch : order) {
      const Older& older = older_[batch];
      uint64_t more = older.rows;
      for (uint64_t back = 1; more > 0 && back <= older.batches; ++back)
        more = std::min(more, Room(batch, back));
      if (more == 0) continue;
      for (uint64_t back = 1; back <= older.batches; ++back) Room(batch, back) -= more;
      hits_[batch] += more;
      raised = true;
    }
    return raised;
  }

  BeladyPlan Plan() && {
    return {.rules = std::move(rules_), .hits = std::reduce(hits_.begin(), hits_.end())};
  }

 private:
  // The rows next in turn, were one more to be kept.
  struct Older {
    uint64_t batches = 0;
    uint64_t rows = 0;
  };

  Result<bool> TrySweep() {
    std::ranges::fill(missing_, 0);
    std::ranges::fill(rules_, KeepRule());
    std::ranges::fill(older_, Older());
    bool fits = true;
    uint64_t kept = 0;  // from `batch` on to later ones
    const uint64_t end = cyclic_ ? 2 * batch_count_ : batch_count_;
    for (uint64_t batch = end; batch-- > 0;) {
      if (batch + 1 < end) {
        const uint64_t opened = (batch + 1) % batch_count_;
        kept += missing_[opened] = hits_[opened];
      }
      for (uint64_t later = batch + batch_count_; kept > capacity_; --later) {
        const uint64_t given_up = std::min(missing_[later % batch_count_], kept - capacity_);
        missing_[later % batch_count_] -= given_up;
        hits_[later % batch_count_] -= given_up;
        kept -= given_up;
        fits = false;
      }
      room_[batch % batch_count_] = capacity_ - kept;
      QUARRY_TRY(const std::span<const UseCount> counts, counts_(batch % batch_count_));
      const uint64_t first = batch - batch % batch_count_;  // of its round
      for (const UseCount& count : counts) {
        if (first + count.next_use < end) kept -= Take(batch, first + count.next_use, count.rows);
      }
    }
    return fits;
  }

  uint64_t& Room(uint64_t batch, uint64_t back) {
    return room_[(batch + batch_count_ - back) % batch_count_];
  }

  // `count` rows of `batch` could be kept for `later`: how many are.
  uint64_t Take(uint64_t batch, uint64_t later, uint64_t count) {
    const uint64_t number = later % batch_count_;
    const uint64_t taken = std::min(count, missing_[number]);
    missing_[number] -= taken;
    if (cyclic_ && later < batch_count_) return taken;  // its oldest rows are beyond the sweep
    if (taken > 0) rules_[number] = {static_cast<uint32_t>(later - batch), static_cast<uint32_t>(taken)};
    if (taken < count && older_[number].rows == 0) older_[number] = {later - batch, count - taken};
    return taken;
  }

  const UseCountReader& counts_;
  const uint64_t batch_count_;
  const uint64_t capacity_;
  const bool cyclic_;
  std::vector<uint64_t> hits_;     // by batch
  std::vector<uint64_t> missing_;  // of its hits, to be found in the batches before
  std::vector<uint64_t> room_;     // after a batch
  std::vector<KeepRule> rules_;
  std::vector<Older> older_;
};

}  // namespace

// Why averages will do: with h hits at batch j, the newest rows being taken, max(0, h - S) rows are kept for it
// after a batch i, where S rows of the batches between use it next. That is convex in h. So when rounds with
// different hits each fit, a round with their average fits as well, and hits as much as they do on average,
// which no cycle can exceed: Belady's rounds are the best that a cache can do over all of them. What rounding
// down leaves free is given out again.
Result<BeladyPlan> PlanBelady(const UseCountReader& counts, const BeladyOptions& options) {
  constexpr int kSweepsMax = 8;
  if (options.batch_count == 0) return BeladyPlan();
  QUARRY_TRY(std::vector<uint64_t> hits, SettledHits(counts, options));
  KeptRows rows(counts, options, std::move(hits));
  QUARRY_RETURN_IF_ERROR(rows.Sweep());
  for (int sweep = 0; sweep < kSweepsMax && rows.Raise(); ++sweep) QUARRY_RETURN_IF_ERROR(rows.Sweep());
  return std::move(rows).Plan();
}

}  // namespace quarry
