// IdSet: which ids a query's constraints leave: a range, or a list. Private to this room.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "table.h"

namespace quarry::sql {

// Whether `value`, of an operand made a number where it can be one, is this integer.
std::optional<int64_t> IntegerOfReal(const Value& value);
inline std::optional<int64_t> IntegerOf(const Value& value) {
  if (const int64_t* integer = std::get_if<int64_t>(&value)) return *integer;
  return IntegerOfReal(value);
}

// Ids in ascending order, each once. A value.
class IdSet {
 public:
  // The ids from 0 to count - 1 that the query's constraints on this INTEGER column allow.
  static IdSet Make(const Query& query, int column, uint64_t count);
  static IdSet Range(uint64_t first, uint64_t end);
  static IdSet List(std::vector<uint64_t> ids);  // REQUIRES: ascending, each once

  uint64_t size() const { return is_list_ ? list_.size() : end_ - first_; }
  uint64_t operator[](uint64_t i) const { return is_list_ ? list_[i] : first_ + i; }
  bool is_list() const { return is_list_; }
  bool Contains(uint64_t id) const;

 private:
  bool is_list_ = false;
  uint64_t first_ = 0;  // a range's
  uint64_t end_ = 0;
  std::vector<uint64_t> list_;
};

// The share of ids that constraints on the column leave, as far as their kinds tell.
struct IdShare {
  std::optional<double> ids;  // a number of ids, whatever the table's size
  double share = 1;
  double Of(double count) const { return ids ? std::min(*ids, count) : share * count; }
};
IdShare ShareOf(const Query& query, int column);

}  // namespace quarry::sql
