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
// Shares of what fits that are tried: a smaller cache is read in sooner.
constexpr uint64_t kCacheShares = 4;
// Segment caches are not simulated: a tenth more than they are predicted to take has to fit.
constexpr uint64_t kDiskMargin = 10;

std::vector<uint64_t> CacheSizes(const RoadFacts::Offer& offer, const RoadFacts& facts) {
  const uint64_t most = std::min(offer.cache_rows_max, facts.geometry.row_count);
  if (offer.cache_is_given) return {most};
  std::vector<uint64_t> sizes;
  for (uint64_t share = 1; share <= kCacheShares; ++share) sizes.push_back(most * share / kCacheShares);
  return sizes;
}

class Chooser {
 public:
  explicit Chooser(const RoadFacts& facts) : facts_(facts) {}

  RoadChoice Run() {
    if (facts_.live.offered) {
      const uint64_t rows = std::min(facts_.live.cache_rows_max, facts_.geometry.row_count);
      Take(PriceRoad(facts_, {.road = RoadKind::kLive, .policy = PolicyKind::kLru, .cache_rows = rows}));
    } else {
      LeaveOut(RoadKind::kLive, facts_.live.why_not, facts_.live.code);
    }
    if (facts_.built) Take(PriceRoad(facts_, *facts_.built));
    OfferLayouts(RoadKind::kPlanned, facts_.planned, facts_.policies, {true});
    OfferLayouts(RoadKind::kFresh, facts_.fresh, {{facts_.fresh_policy}}, {true, false});
    std::ranges::stable_sort(choice_.roads, {}, &RoadCost::seconds);
    const auto live = std::ranges::find(choice_.roads, RoadKind::kLive,
                                        [](const RoadCost& cost) { return cost.plan.road; });
    const double saved = live == choice_.roads.end() ? 0 : live->seconds - choice_.roads.front().seconds;
    if (live != choice_.roads.end() && saved < std::max(kSavedSeconds, kSavedPart * live->seconds)) {
      std::rotate(choice_.roads.begin(), live, live + 1);
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

  // The cheapest cache of each policy and packing.
  void OfferLayouts(RoadKind road, const RoadFacts::Offer& offer, std::span<const PolicyKind> policies,
                    const std::vector<bool>& packings) {
    if (!offer.offered) return LeaveOut(road, offer.why_not, offer.code);
    std::vector<std::vector<RoadCost>> tried;
    for (const PolicyKind policy : policies) {
      for (const bool packed : packings) {
        std::vector<RoadCost>& costs = tried.emplace_back();
        for (const uint64_t rows : CacheSizes(offer, facts_)) {
          costs.push_back(
              PriceRoad(facts_, {.road = road, .policy = policy, .packed = packed, .cache_rows = rows}));
        }
      }
    }
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
      const RoadCost* best = nullptr;
      for (const RoadCost& cost : costs) {
        if (fits(cost) && (best == nullptr || cost.seconds < best->seconds)) best = &cost;
      }
      if (best != nullptr) Take(*best);
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
  return text + fmt::format(", a cache of {} rows", FormatCount(static_cast<double>(plan.cache_rows)));
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
  std::string text =
      fmt::format("{:<2}{:<8} {:<9} {:<17} {:>10} {:>9} {:>9} {:>9} {:>10} {:>10}\n", "", "road", "rows",
                  "policy", "cache", "s before", "s/epoch", "s in all", "read/epoch", "disk");
  for (size_t i = 0; i < roads.size(); ++i) {
    const RoadCost& cost = roads[i];
    text += fmt::format(
        "{:<2}{:<8} {:<9} {:<17} {:>10} {:>9.3g} {:>9.3g} {:>9.3g} {:>10} {:>10}\n", i == 0 ? "*" : "",
        NameOf(cost.plan.road), cost.plan.packed ? "packed" : "in table", quarry::NameOf(cost.plan.policy),
        FormatCount(static_cast<double>(cost.plan.cache_rows)), cost.build_seconds, cost.epoch_seconds,
        cost.seconds, FormatBytes(cost.read_bytes), FormatBytes(cost.disk_bytes));
  }
  text += fmt::format("{:<2}{:<8} {:<9} {:<17} {:>8} {:>8} {:>8} {:>8} | {:>8} {:>8} {:>8} | {:>8}\n", "",
                      "of these", "", "s/epoch:", "disk", "sample", "extract", "model", "sample", "plan",
                      "pack", "other");
  for (size_t i = 0; i < roads.size(); ++i) {
    const RoadCost& cost = roads[i];
    text += fmt::format(
        "{:<2}{:<8} {:<9} {:<17} {:>8.3g} {:>8.3g} {:>8.3g} {:>8.3g} | {:>8.3g} {:>8.3g} {:>8.3g} | "
        "{:>8.3g}\n",
        i == 0 ? "*" : "", NameOf(cost.plan.road), cost.plan.packed ? "packed" : "in table",
        quarry::NameOf(cost.plan.policy), cost.epoch.disk_seconds, cost.epoch.sample_seconds,
        cost.epoch.extract_seconds, cost.epoch.model.wall, cost.build.sample, cost.build.plan,
        cost.build.pack, cost.other_seconds);
  }
  for (const std::string& line : left_out) text += fmt::format("not on offer: {}\n", line);
  return text;
}

}  // namespace quarry
