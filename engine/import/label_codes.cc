#include "label_codes.h"

#include <algorithm>

#include "quarry/base/units.h"

namespace quarry {
namespace {

// Fewer classes train whatever their labels are; more of them are taken for codes where most are of no node.
constexpr uint64_t kClassesAnyway = 1000;
constexpr uint64_t kClassesPerLabel = 16;

}  // namespace

void LabelValues::Add(std::span<const int64_t> labels, const IntReader& reader, uint64_t first) {
  for (const int64_t label : labels) {
    if (label < 0) continue;
    if (label < static_cast<int64_t>(kSmallMax)) {
      distinct_ += small_[static_cast<size_t>(label)] ? 0 : 1;
      small_[static_cast<size_t>(label)] = true;
    } else if (large_.size() < kLargeMax) {
      distinct_ += large_.insert(label).second ? 1 : 0;
    }
  }
  const auto largest = std::ranges::max_element(labels);
  if (largest == labels.end() || *largest <= largest_) return;
  largest_ = *largest;
  largest_place_ = reader.Position(first + static_cast<uint64_t>(largest - labels.begin()));
}

Status LabelValues::Check() const {
  if (class_count() <= std::max(kClassesAnyway, kClassesPerLabel * distinct_)) return Status::Ok();
  return MakeStatus(
      Code::kInvalidArgument,
      "{}: the label is {}, so there would be {} classes, of {} different labels: they look like "
      "codes; correct it, or pass --relabel, which numbers them 0 to {} in ascending order",
      largest_place_, largest_, class_count(), distinct_, distinct_ - 1);
}

Result<LabelNumbers> LabelNumbers::Make(uint64_t memory_bytes, uint64_t node_count) {
  const uint64_t bytes = node_count * sizeof(uint32_t);
  if (bytes > memory_bytes) {
    return MakeStatus(Code::kOutOfBudget,
                      "a memory budget of {} is too little to number the labels of {} nodes; the least is {}",
                      FormatBytes(memory_bytes), node_count, FormatBytes(bytes));
  }
  LabelNumbers numbers;
  numbers.numbers_.reserve(node_count);
  return numbers;
}

Status LabelNumbers::Add(std::span<const int64_t> labels) {
  for (const int64_t label : labels) {
    if (label < 0) {
      numbers_.push_back(kNone);
      continue;
    }
    const auto [place, added] = found_.try_emplace(label, static_cast<uint32_t>(found_.size()));
    if (added && found_.size() > kCodesMax) {
      return MakeStatus(Code::kUnsupported, "there are more than {} different labels: they are no classes",
                        kCodesMax);
    }
    numbers_.push_back(place->second);
  }
  return Status::Ok();
}

std::vector<int64_t> LabelNumbers::Order() {
  std::vector<int64_t> codes;
  for (const auto& [code, number] : found_) codes.push_back(code);
  std::ranges::sort(codes);
  rank_.resize(codes.size());
  for (size_t i = 0; i < codes.size(); i++) rank_[found_[codes[i]]] = static_cast<uint32_t>(i);
  return codes;
}

}  // namespace quarry
