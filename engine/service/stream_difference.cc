#include "stream_difference.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace quarry {
namespace {

constexpr std::string_view kRoadsInWords[] = {"a live road", "a planned road", "a superbatch road"};

// Collects the first field in which two values differ.
class Comparison {
 public:
  template <typename T>
  Comparison& Field(std::string_view name, const T& asked, const T& group) {
    if (!difference_.empty() || asked == group) return *this;
    if constexpr (std::is_enum_v<T>) {
      Say(name, static_cast<unsigned>(asked), static_cast<unsigned>(group));
    } else {
      Say(name, asked, group);
    }
    return *this;
  }
  Comparison& Field(std::string_view name, const std::vector<uint32_t>& asked,
                    const std::vector<uint32_t>& group) {
    if (difference_.empty() && asked != group) Say(name, Listed(asked), Listed(group));
    return *this;
  }
  // A field whose values are too long to be told.
  Comparison& Equal(std::string_view name, bool equal) {
    if (difference_.empty() && !equal) difference_ = fmt::format("{} that the group has not", name);
    return *this;
  }
  const std::string& difference() const { return difference_; }

 private:
  static std::string Listed(const std::vector<uint32_t>& values) {
    return fmt::format("{}", fmt::join(values, ","));
  }
  template <typename A, typename B>
  void Say(std::string_view name, const A& asked, const B& group) {
    difference_ = fmt::format("{} {}, the group has {}", name, asked, group);
  }
  std::string difference_;
};

void Compare(const wire::LiveSpec& asked, const wire::LiveSpec& group, Comparison& comparison) {
  comparison.Field("table", asked.feature_table, group.feature_table)
      .Field("topology", asked.topology, group.topology)
      .Field("direction", asked.direction, group.direction)
      .Field("fanouts", asked.fanouts, group.fanouts)
      .Field("batch size", asked.batch_size, group.batch_size)
      .Field("cache bytes", asked.cache_bytes, group.cache_bytes)
      .Field("seed", asked.seed, group.seed)
      .Field("replace", asked.replace, group.replace)
      .Field("edge ids", asked.edge_ids, group.edge_ids);
}

void Compare(const wire::PlannedSpec& asked, const wire::PlannedSpec& group, Comparison& comparison) {
  comparison.Field("layout", asked.layout, group.layout)
      .Equal("a road for other seeds", asked.live.has_value() == group.live.has_value());
  if (asked.live && group.live) Compare(*asked.live, *group.live, comparison);
}

void Compare(const wire::SuperbatchSpec& asked, const wire::SuperbatchSpec& group, Comparison& comparison) {
  Compare(asked.live, group.live, comparison);
  comparison.Field("policy", asked.policy, group.policy)
      .Field("seed order", asked.live.seed_order, group.live.seed_order)
      .Field("packing", asked.packing, group.packing)
      .Field("disk bytes", asked.disk_bytes, group.disk_bytes);
}

}  // namespace

std::string Difference(const wire::OpenStream& asked, const wire::OpenStream& group) {
  Comparison comparison;
  comparison.Field("mode", asked.mode, group.mode)
      .Field("members", asked.members, group.members)
      .Field("road", kRoadsInWords[asked.road.index()], kRoadsInWords[group.road.index()]);
  if (asked.road.index() != group.road.index()) return comparison.difference();
  std::visit(
      [&](const auto& road) {
        Compare(road, std::get<std::decay_t<decltype(road)>>(group.road), comparison);
      },
      asked.road);
  return comparison.difference();
}

std::string Difference(const wire::StartPass& asked, const wire::StartPass& group) {
  Comparison comparison;
  comparison.Field("pass", asked.pass, group.pass)
      .Field("shuffle", asked.shuffle, group.shuffle)
      .Field("ordered", asked.ordered, group.ordered)
      .Equal("seeds", asked.seeds == group.seeds);
  return comparison.difference();
}

}  // namespace quarry
