#include "quarry/pipeline/road_choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "quarry/base/units.h"
#include "quarry/format/batch_view.h"

namespace quarry {
namespace {

// What another road must save to be taken instead of the live one: a part that a prediction can tell, and a time that
// somebody who waits can.
constexpr double kSavedPart = 0.05;
constexpr double kSavedSeconds = 0.5;
// Shares of what fits that are tried: a smaller cache is read in sooner, and leaves more to the lists. Then the best one's
// neighborhood is halved so often.
constexpr uint64_t kCacheShares = 16;
constexpr int kHalvings = 8;
// Segment caches are not simulated: a tenth more than they are predicted to take has to fit.
constexpr uint64_t kDiskMargin = 10;

std::vector<uint64_t> CacheSizes(const RoadFacts::Offer& offer, uint64_t most) {
  if (offer.cache_is_given) return {most};
  std::vector<uint64_t> sizes;
  for (uint64_t share = 1; share <= kCacheShares; ++share) sizes.push_back(most * share / kCacheShares);
  // Where lists leave memory, seconds jump, and where rows begin to take from them, they bend.
  for (const uint64_t rows : {offer.rows_beside_lists.value_or(0), offer.rows_free}) {
    if (rows <= most) sizes.push_back(rows);
    if (rows < most) sizes.push_back(rows + 1);
  }
  std::ranges::sort(sizes);
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

class Chooser {
 public:
  explicit Chooser(const RoadFacts& facts) : facts_(facts) {}

  RoadChoice Run() {
    choice_.runs = facts_.runs;
    if (facts_.live.offered) {
      OfferLive();
    } else {
      LeaveOut(RoadKind::kLive, facts_.live.why_not, facts_.live.code);
    }
    if (facts_.built) Take(PriceRoad(facts_, *facts_.built));
    OfferPlanned();
    OfferFresh();
    std::ranges::stable_sort(choice_.roads, {}, &RoadCost::seconds);
    // The live road as it is open, then the cheapest.
    for (const bool open : {true, false}) {
      const auto live = std::ranges::find_if(choice_.roads, [&](const RoadCost& cost) {
        return cost.plan.road == RoadKind::kLive && (!open || cost.plan.cache_rows == facts_.open_live_rows);
      });
      if (live == choice_.roads.end()) continue;
      const double saved = live->seconds - choice_.roads.front().seconds;
      if (saved >= std::max(kSavedSeconds, kSavedPart * live->seconds)) continue;
      std::rotate(choice_.roads.begin(), live, live + 1);
      break;
    }
    return std::move(choice_);
  }

 private:
  void Take(const RoadCost& cost) { choice_.roads.push_back(cost); }
  void LeaveOut(RoadKind road, std::string_view why, Code code) {
    if (why.empty()) return;
    choice_.left_out.push_back(fmt::format("{}: {}", NameOf(road), why));
    choice_.code = code;
  }

  // Every cache of a plan that is tried, ascending by rows. The cheapest of those that the disk has room for is searched
  // among its neighbors, on its own side of where lists leave memory.
  std::vector<RoadCost> TryCaches(RoadPlan plan, const RoadFacts::Offer& offer, uint64_t rows_max) const {
    const uint64_t most = std::min(rows_max, facts_.geometry.row_count);
    std::vector<RoadCost> costs;
    const auto price = [&](uint64_t rows) {
      plan.cache_rows = rows;
      return PriceRoad(facts_, plan);
    };
    for (const uint64_t rows : CacheSizes(offer, most)) costs.push_back(price(rows));
    const auto cheaper = [&](const RoadCost& a, const RoadCost& b) {
      const bool a_fits = a.disk_bytes <= facts_.disk_bytes, b_fits = b.disk_bytes <= facts_.disk_bytes;
      return a_fits != b_fits ? a_fits : a.seconds < b.seconds;
    };
    for (int i = 0; i < kHalvings && costs.size() > 1; ++i) {
      const auto best = std::ranges::min_element(costs, cheaper);
      const uint64_t rows = best->plan.cache_rows;
      std::vector<RoadCost> between;
      if (best != costs.begin()) {
        const uint64_t below = (best - 1)->plan.cache_rows;
        if (rows - below > 1) between.push_back(price(below + (rows - below) / 2));
      }
      if (best + 1 != costs.end()) {
        const uint64_t above = (best + 1)->plan.cache_rows;
        if (above - rows > 1) between.push_back(price(rows + (above - rows) / 2));
      }
      if (between.empty()) break;
      costs.insert(costs.end(), between.begin(), between.end());
      std::ranges::sort(costs, {}, [](const RoadCost& cost) { return cost.plan.cache_rows; });
    }
    return costs;
  }

  void OfferLive() {
    const RoadPlan plan = {.road = RoadKind::kLive, .policy = PolicyKind::kLru};
    const std::vector<RoadCost> costs = TryCaches(plan, facts_.live, facts_.live.cache_rows_max);
    (void)TakeThose({costs}, [](const RoadCost&) { return true; });
    if (!facts_.open_live_rows || *facts_.open_live_rows > facts_.live.cache_rows_max) return;
    RoadPlan open = plan;
    open.cache_rows = std::min(*facts_.open_live_rows, facts_.geometry.row_count);
    if (std::ranges::find(choice_.roads, open, &RoadCost::plan) == choice_.roads.end()) {
      Take(PriceRoad(facts_, open));
    }
  }

  void OfferPlanned() {
    const RoadFacts::Offer& offer = facts_.planned;
    if (!offer.offered) return LeaveOut(RoadKind::kPlanned, offer.why_not, offer.code);
    std::vector<std::vector<RoadCost>> tried;
    for (const PolicyKind policy : facts_.policies) {
      tried.push_back(TryCaches({.road = RoadKind::kPlanned, .policy = policy, .packed = true}, offer,
                                offer.cache_rows_max));
    }
    TakeWhatFits(RoadKind::kPlanned, offer, tried);
  }

  void OfferFresh() {
    const RoadFacts::Offer& offer = facts_.fresh;
    if (!offer.offered) return LeaveOut(RoadKind::kFresh, offer.why_not, offer.code);
    std::vector<RoadFacts::Superbatch> sizes = facts_.superbatches;
    if (sizes.empty()) sizes.push_back({.cache_rows_max = offer.cache_rows_max});
    std::vector<std::vector<RoadCost>> tried;
    for (const bool packed : {true, false}) {
      std::vector<RoadCost>& parts = tried.emplace_back();
      std::vector<RoadCost> epochs;
      for (const auto& [batches, rows_max] : sizes) {
        const bool whole = batches == 0 || batches >= facts_.train_batches;
        const RoadPlan plan = {.road = RoadKind::kFresh,
                               .policy = facts_.fresh_policy,
                               .packed = packed,
                               .superbatch = whole ? 0 : batches};
        const std::vector<RoadCost> costs = TryCaches(plan, offer, rows_max);
        std::vector<RoadCost>& to = whole ? epochs : parts;
        to.insert(to.end(), costs.begin(), costs.end());
      }
      tried.push_back(std::move(epochs));
    }
    std::erase_if(tried, [](const std::vector<RoadCost>& costs) { return costs.empty(); });
    TakeWhatFits(RoadKind::kFresh, offer, tried);
  }

  // The cheapest of each of `tried` that the disk has room for.
  void TakeWhatFits(RoadKind road, const RoadFacts::Offer& offer,
                    const std::vector<std::vector<RoadCost>>& tried) {
    if (TakeThose(tried, [&](const RoadCost& cost) { return cost.disk_bytes <= facts_.disk_bytes; })) return;
    const auto least_of = [&](uint64_t RoadCost::*const bytes) {
      const RoadCost* least = &tried.front().front();
      for (const std::vector<RoadCost>& costs : tried) {
        const RoadCost& cost = *std::ranges::min_element(costs, {}, bytes);
        if (cost.*bytes < least->*bytes) least = &cost;
      }
      return *least;
    };
    if (!offer.segments) {
      return LeaveOut(road,
                      fmt::format("takes {} of disk, and there is room for {}",
                                  FormatBytes(least_of(&RoadCost::disk_bytes).disk_bytes),
                                  FormatBytes(facts_.disk_bytes)),
                      Code::kNoSpace);
    }
    const auto surely = [&](const RoadCost& cost) {
      return cost.least_disk_bytes + cost.least_disk_bytes / kDiskMargin <= facts_.disk_bytes;
    };
    if (!TakeThose(tried, surely)) Take(least_of(&RoadCost::least_disk_bytes));
  }

  template <typename Predicate>
  bool TakeThose(const std::vector<std::vector<RoadCost>>& tried, const Predicate& fits) {
    const size_t before = choice_.roads.size();
    for (const std::vector<RoadCost>& costs : tried) {
      for (const bool in_memory : {true, false}) {
        const RoadCost* best = nullptr;
        for (const RoadCost& cost : costs) {
          if (cost.lists.in_memory != in_memory || !fits(cost)) continue;
          if (best == nullptr || cost.seconds < best->seconds) best = &cost;
        }
        if (best != nullptr) Take(*best);
      }
    }
    return choice_.roads.size() > before;
  }

  const RoadFacts& facts_;
  RoadChoice choice_;
};

}  // namespace

std::string_view NameOf(RoadKind road) {
  constexpr std::string_view kNames[] = {"live", "planned", "fresh"};
  return kNames[static_cast<size_t>(road)];
}

std::string RoadCost::ToString() const {
  std::string text(NameOf(plan.road));
  if (plan.road == RoadKind::kPlanned) text += fmt::format(", packed, {}", quarry::NameOf(plan.policy));
  if (plan.road == RoadKind::kFresh) {
    text +=
        fmt::format(", {}, {}", plan.packed ? "packed" : "rows in the table", quarry::NameOf(plan.policy));
  }
  if (plan.superbatch > 0) text += fmt::format(", superbatches of {} batches", plan.superbatch);
  text += fmt::format(", a cache of {} rows", FormatCount(static_cast<double>(plan.cache_rows)));
  if (lists.in_memory) return text;
  return text + (lists.cache_bytes == 0
                     ? std::string(", lists on disk")
                     : fmt::format(", lists on disk behind {} of cache", FormatBytes(lists.cache_bytes)));
}

std::vector<uint64_t> SuperbatchSizes(uint64_t train_batches) {
  std::vector<uint64_t> sizes;
  constexpr uint64_t kSuperbatchesMax = 64;
  for (uint64_t parts = 1; parts <= std::min(train_batches, kSuperbatchesMax);
       parts += std::max<uint64_t>(1, parts / 4)) {
    const uint64_t batches = CeilDiv(train_batches, parts);
    if (sizes.empty() || batches < sizes.back()) sizes.push_back(batches);
  }
  return sizes;
}

RoadChoice ChooseRoad(const RoadFacts& facts) { return Chooser(facts).Run(); }

std::string RoadChoice::ToString() const {
  const RoadCost& chosen = best();
  std::string text = fmt::format("road: {}: {:.3g} s predicted", chosen.ToString(), chosen.seconds);
  if (chosen.build_seconds > 0)
    text += fmt::format(", {:.3g} s of them before the first epoch", chosen.build_seconds);
  text += fmt::format("; an epoch {:.3g} s, which {} set", chosen.epoch_seconds,
                      chosen.processor_bound ? "processors" : "reads");
  const auto next = std::find_if(roads.begin() + 1, roads.end(),
                                 [&](const RoadCost& cost) { return cost.plan.road != chosen.plan.road; });
  if (next != roads.end()) {
    text += fmt::format("\nnext: {}: {:.3g} s, {:.3g} s of them before the first epoch", next->ToString(),
                        next->seconds, next->build_seconds);
  } else {
    text += fmt::format("\nno other road: {}", left_out.empty() ? "the options leave one"
                                                                : fmt::to_string(fmt::join(left_out, "; ")));
  }
  return text;
}

std::string RoadChoice::Table() const {
  const auto name = [&](size_t i) {
    const RoadPlan& plan = roads[i].plan;
    return fmt::format("{:<2}{:<8} {:<9} {:<17} {:>10}", i == 0 ? "*" : "", NameOf(plan.road),
                       plan.packed ? "packed" : "in table", quarry::NameOf(plan.policy),
                       plan.superbatch > 0             ? std::to_string(plan.superbatch)
                       : plan.road == RoadKind::kFresh ? "an epoch"
                                                       : "");
  };
  std::string text = fmt::format(
      "{:<2}{:<8} {:<9} {:<17} {:>10} {:>10} {:>20} {:>9} {:>9} {:>9} {:>10} {:>10}\n", "", "road", "rows",
      "policy", "superbatch", "cache", "lists", "s before", "s/epoch", "s in all", "read/epoch", "disk");
  for (size_t i = 0; i < roads.size(); ++i) {
    const RoadCost& cost = roads[i];
    const std::string lists = cost.lists.in_memory ? "in memory"
                              : cost.lists.cache_bytes == 0
                                  ? "on disk"
                                  : "disk + " + FormatBytes(cost.lists.cache_bytes) + " cache";
    text += fmt::format("{} {:>10} {:>20} {:>9.3g} {:>9.3g} {:>9.3g} {:>10} {:>10}\n", name(i),
                        FormatCount(static_cast<double>(cost.plan.cache_rows)), lists, cost.build_seconds,
                        cost.epoch_seconds, cost.seconds, FormatBytes(cost.read_bytes),
                        FormatBytes(cost.disk_bytes));
  }
  text += fmt::format("{:<2}{:<8} {:<9} {:<17} {:>10} {:>8} {:>8} {:>8} {:>8} | {:>8} {:>8} {:>8} | {:>8}\n",
                      "", "of these", "", "s/epoch:", "", "disk", "sample", "extract", "model", "sample",
                      "plan", "pack", "other");
  for (size_t i = 0; i < roads.size(); ++i) {
    const RoadCost& cost = roads[i];
    text += fmt::format("{} {:>8.3g} {:>8.3g} {:>8.3g} {:>8.3g} | {:>8.3g} {:>8.3g} {:>8.3g} | {:>8.3g}\n",
                        name(i), cost.epoch.disk_seconds, cost.epoch.sample_seconds,
                        cost.epoch.extract_seconds, cost.epoch.model.wall, cost.build.sample, cost.build.plan,
                        cost.build.pack, cost.other_seconds);
  }
  if (runs.open_seconds > 0) {
    text += fmt::format(
        "runs of edges, in all of these: {:.3g} s whenever the graph is opened, {:.2g} us for a neighbor "
        "that is drawn "
        "from lists on disk\n",
        runs.open_seconds, runs.draw_seconds * 1e6);
  }
  for (const std::string& line : left_out) text += fmt::format("not on offer: {}\n", line);
  return text;
}

}  // namespace quarry
