#include "id_set.h"

#include <algorithm>
#include <cmath>

namespace quarry::sql {
namespace {

constexpr double kIdsPerList = 32;  // for an IN whose length is not known yet
constexpr double kSharePerInequality = 0.25;
// Beyond all ids (they have 32 bits), and exact as a double.
constexpr int64_t kBeyond = int64_t{1} << 40;

// Bounds that an inequality sets, both included.
struct Bounds {
  int64_t first = 0;
  int64_t last = kBeyond;
};

// Numbers come first, then texts and blobs, which are greater than any number; nothing holds for NULL.
Bounds BoundsOf(Op op, const Value& value) {
  constexpr Bounds kNone{1, 0};
  const bool below = op == Op::kLess || op == Op::kLessEqual;
  if (std::holds_alternative<std::monostate>(value)) return kNone;
  if (std::holds_alternative<std::string>(value) || std::holds_alternative<std::vector<std::byte>>(value)) {
    return below ? Bounds{} : kNone;
  }
  int64_t floor = 0;
  bool whole = true;
  if (const double* real = std::get_if<double>(&value)) {
    const double clamped = std::clamp(*real, -1.0, static_cast<double>(kBeyond));
    floor = static_cast<int64_t>(std::floor(clamped));
    whole = std::floor(clamped) == clamped;
  } else {
    floor = std::clamp<int64_t>(std::get<int64_t>(value), -1, kBeyond);
  }
  switch (op) {
    case Op::kLess:
      return {0, whole ? floor - 1 : floor};
    case Op::kLessEqual:
      return {0, floor};
    case Op::kGreater:
      return {floor + 1, kBeyond};
    default:
      return {whole ? floor : floor + 1, kBeyond};
  }
}

void Intersect(std::optional<std::vector<uint64_t>>& list, const std::vector<Value>& values) {
  std::vector<uint64_t> ids;
  for (const Value& value : values) {
    const std::optional<int64_t> id = IntegerOf(value);
    if (id && *id >= 0) ids.push_back(static_cast<uint64_t>(*id));
  }
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  if (list) {
    std::erase_if(*list, [&](uint64_t id) { return !std::ranges::binary_search(ids, id); });
  } else {
    list = std::move(ids);
  }
}

}  // namespace

std::optional<int64_t> IntegerOfReal(const Value& value) {
  const double* real = std::get_if<double>(&value);
  if (real == nullptr || std::abs(*real) > static_cast<double>(kBeyond)) return std::nullopt;
  const auto integer = static_cast<int64_t>(*real);
  return static_cast<double>(integer) == *real ? std::optional(integer) : std::nullopt;
}

IdSet IdSet::Make(const Query& query, int column, uint64_t count) {
  Bounds bounds{0, static_cast<int64_t>(count) - 1};
  std::optional<std::vector<uint64_t>> list;
  for (const Constraint& constraint : query.constraints) {
    if (constraint.column != column) continue;
    if (constraint.op == Op::kEqual || constraint.op == Op::kIn) {
      Intersect(list, constraint.values);
    } else {
      const Bounds more = BoundsOf(constraint.op, constraint.values.front());
      bounds = {std::max(bounds.first, more.first), std::min(bounds.last, more.last)};
    }
  }
  const auto first = static_cast<uint64_t>(bounds.first);
  const auto end = static_cast<uint64_t>(std::max(bounds.last + 1, bounds.first));
  if (!list) return Range(first, end);
  std::erase_if(*list, [&](uint64_t id) { return id < first || id >= end; });
  return List(std::move(*list));
}

IdSet IdSet::Range(uint64_t first, uint64_t end) {
  IdSet set;
  set.first_ = first;
  set.end_ = end;
  return set;
}

IdSet IdSet::List(std::vector<uint64_t> ids) {
  IdSet set;
  set.is_list_ = true;
  set.list_ = std::move(ids);
  return set;
}

bool IdSet::Contains(uint64_t id) const {
  if (!is_list_) return id >= first_ && id < end_;
  return std::ranges::binary_search(list_, id);
}

IdShare ShareOf(const Query& query, int column) {
  IdShare result;
  for (const Constraint& constraint : query.constraints) {
    if (constraint.column != column) continue;
    if (constraint.op == Op::kEqual) {
      result.ids = 1;
    } else if (constraint.op == Op::kIn) {
      result.ids = std::min(result.ids.value_or(kIdsPerList), kIdsPerList);
    } else {
      result.share *= kSharePerInequality;
    }
  }
  return result;
}

}  // namespace quarry::sql
