// Metrics of classification. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace quarry {

// The area under the ROC curve by ranks (Mann and Whitney), exact, ties counted half: the chance that a
// positive scores above a negative. Nothing when one of the classes is absent. Depends on the multiset of
// pairs, not their order.
std::optional<double> RocAuc(std::span<const float> scores, std::span<const uint8_t> positive);

// The index of the largest value; the first of several. REQUIRES: not empty.
uint32_t ArgMax(std::span<const float> values);

}  // namespace quarry
