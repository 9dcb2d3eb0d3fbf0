#include "scores.h"

#include <algorithm>
#include <numeric>

#include "metrics.h"

namespace quarry {

void Scores::Add(std::span<const float> logits, std::span<const int64_t> labels) {
  for (size_t i = 0; i < labels.size(); i++) {
    if (labels[i] < 0) continue;
    const std::span<const float> row = logits.subspan(i * class_count_, class_count_);
    nodes_++;
    correct_ += ArgMax(row) == static_cast<uint64_t>(labels[i]);
    if (class_count_ != 2) continue;
    preference_.push_back(row[1] - row[0]);
    positive_.push_back(labels[i] == 1);
  }
}

// A rank's part of a list is its place in a longer one of zeros, which sums put together.
Status Scores::Gather(Communicator& trainers) {
  constexpr size_t kNodes = 0, kCorrect = 1, kListed = 2;
  std::vector<double> counts(kListed + trainers.size(), 0);
  counts[kNodes] = static_cast<double>(nodes_);
  counts[kCorrect] = static_cast<double>(correct_);
  counts[kListed + trainers.rank()] = static_cast<double>(preference_.size());
  QUARRY_RETURN_IF_ERROR(trainers.AllReduceSum(counts));
  nodes_ = static_cast<uint64_t>(counts[kNodes]);
  correct_ = static_cast<uint64_t>(counts[kCorrect]);
  const auto listed = counts.cbegin() + kListed;
  const auto before = static_cast<ptrdiff_t>(std::accumulate(listed, listed + trainers.rank(), 0.0));
  const auto total = static_cast<ptrdiff_t>(std::accumulate(listed, counts.cend(), 0.0));
  if (total == 0) return Status::Ok();
  std::vector<float> all(2 * static_cast<size_t>(total), 0);
  std::ranges::copy(preference_, all.begin() + before);
  std::ranges::copy(positive_, all.begin() + total + before);
  QUARRY_RETURN_IF_ERROR(trainers.AllReduceSum(all));
  preference_.assign(all.begin(), all.begin() + total);
  positive_.assign(all.begin() + total, all.end());
  return Status::Ok();
}

std::optional<Evaluation> Scores::Evaluate() const {
  if (nodes_ == 0) return std::nullopt;
  Evaluation evaluation;
  evaluation.nodes = nodes_;
  evaluation.accuracy = static_cast<double>(correct_) / static_cast<double>(nodes_);
  if (class_count_ == 2) evaluation.auc = RocAuc(preference_, positive_);
  return evaluation;
}

}  // namespace quarry
