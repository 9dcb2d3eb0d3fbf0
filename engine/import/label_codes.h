// Labels that are codes: numbers far apart, of which a model would have an output for each up to the largest.
// Private to this room; one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/import/dataset.h"

namespace quarry {

// What labels there are, to tell codes from classes.
class LabelValues {
 public:
  // Labels of a read, which begins with number `first` of the reader's.
  void Add(std::span<const int64_t> labels, const IntReader& reader, uint64_t first);
  uint64_t class_count() const { return static_cast<uint64_t>(largest_ + 1); }
  // kInvalidArgument where there are far more classes than labels, by the place of the largest one.
  Status Check() const;

 private:
  static constexpr size_t kSmallMax = 64 << 10, kLargeMax = 1 << 20;

  std::vector<bool> small_ = std::vector<bool>(kSmallMax);  // labels below kSmallMax
  std::unordered_set<int64_t> large_;                       // others; kLargeMax of them are enough
  uint64_t distinct_ = 0;
  int64_t largest_ = -1;
  std::string largest_place_;
};

// Labels numbered from 0 in ascending order of what they are.
class LabelNumbers {
 public:
  // kOutOfBudget where the numbers of all nodes do not fit.
  static Result<LabelNumbers> Make(uint64_t memory_bytes, uint64_t node_count);
  // kUnsupported for more different ones than there can be classes of.
  Status Add(std::span<const int64_t> labels);  // -1: none
  // All of them were added: what the numbers stand for.
  std::vector<int64_t> Order();
  uint64_t size() const { return numbers_.size(); }
  // The label's number, -1 for none. REQUIRES: Order.
  int64_t NumberOf(uint64_t node) const {
    return numbers_[node] == kNone ? -1 : int64_t{rank_[numbers_[node]]};
  }

 private:
  static constexpr uint32_t kNone = 0xffffffff;
  static constexpr uint64_t kCodesMax = 16 << 20;  // 64 bytes each

  std::unordered_map<int64_t, uint32_t> found_;  // codes, by when they came first
  std::vector<uint32_t> numbers_;                // by node, the same
  std::vector<uint32_t> rank_;
};

}  // namespace quarry
