#include "stream_difference.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "quarry/base/fields.h"

namespace quarry {
namespace {

constexpr std::string_view kRoadsInWords[] = {"a live road", "a planned road", "a superbatch road",
                                              "a partitioned road"};

template <typename T>
std::string Shown(const T& value) {
  if constexpr (NamedEnum<T>) {
    return std::string(IsKnown(value) ? NameOf(value) : "unknown");
  } else if constexpr (std::is_enum_v<T>) {
    return std::to_string(static_cast<unsigned>(value));
  } else {
    return fmt::format("{}", value);
  }
}
std::string Shown(const std::vector<uint32_t>& values) { return fmt::format("{}", fmt::join(values, ",")); }

// Collects the first field in which two values differ.
class Comparison {
 public:
  template <typename T>
  Comparison& Field(std::string_view name, const T& asked, const T& group) {
    if (!difference_.empty() || asked == group) return *this;
    if constexpr (Record<T>) {
      Fields(asked, group);
    } else {
      std::string words(name);
      std::ranges::replace(words, '_', ' ');
      difference_ = fmt::format("{} {}, the group has {}", words, Shown(asked), Shown(group));
    }
    return *this;
  }
  // What passes over other seeds are sampled with.
  Comparison& Field(std::string_view name, const std::optional<wire::LiveSpec>& asked,
                    const std::optional<wire::LiveSpec>& group) {
    if (asked && group) return Field(name, *asked, *group);
    if (difference_.empty() && asked) difference_ = "a road for other seeds, the group has none";
    if (difference_.empty() && group) difference_ = "no road for other seeds, the group has one";
    return *this;
  }
  // Every field of a struct.
  template <Record T>
  Comparison& Fields(const T& asked, const T& group) {
    ForEachField(asked, group,
                 [&](std::string_view name, const auto& a, const auto& b) { Field(name, a, b); });
    return *this;
  }
  // A field whose values are too long to be told.
  Comparison& Equal(std::string_view name, bool equal) {
    if (difference_.empty() && !equal) difference_ = fmt::format("{} that the group has not", name);
    return *this;
  }
  const std::string& difference() const { return difference_; }

 private:
  std::string difference_;
};

}  // namespace

std::string Difference(const wire::OpenStream& asked, const wire::OpenStream& group) {
  Comparison comparison;
  comparison.Field("mode", asked.mode, group.mode)
      .Field("members", asked.members, group.members)
      .Field("road", kRoadsInWords[asked.road.index()], kRoadsInWords[group.road.index()]);
  if (asked.road.index() != group.road.index()) return comparison.difference();
  std::visit(
      [&](const auto& road) { comparison.Fields(road, std::get<std::decay_t<decltype(road)>>(group.road)); },
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
