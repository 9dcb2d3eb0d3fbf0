// The passes of evaluation. A pass names the random streams of its samples (quarry/pipeline/batch_stream.h):
// evaluation uses the same ones at every epoch, far from the training passes', so that a change of the metric is
// a change of the model.
#pragma once

#include <cstdint>

namespace quarry {

inline constexpr uint64_t kValidPass = uint64_t{1} << 40;
inline constexpr uint64_t kTestPass = kValidPass + 1;

}  // namespace quarry
