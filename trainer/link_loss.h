// The losses of link prediction and their derivatives, on a tile of scores. Pure functions, the same bits
// whatever thread runs them.
#pragma once

#include <cstdint>

namespace quarry {

// The scores of some edges, all for one side, against the negatives that they share.
struct ScoreTile {
  uint32_t rows = 0;                    // edges
  uint32_t columns = 0;                 // negatives
  float* scores = nullptr;              // [rows, columns]
  float* positives = nullptr;           // [rows]: of the edges themselves
  const uint32_t* negatives = nullptr;  // [columns]: who the negatives are
  const uint32_t* truths = nullptr;     // [rows]: whose place they take
};

// Each replaces `scores` and `positives` by the derivatives of the loss with respect to them, and returns the
// loss summed over the rows. Where a negative is the edge's own truth it has no part in the loss, and
// derivative 0.
double SoftmaxLoss(const ScoreTile& tile);
double MarginLoss(const ScoreTile& tile, float margin);

}  // namespace quarry
