// Named tensors of a file that others wrote: the weights of a model, for `quarry train --from`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/named_tensor.h"

namespace quarry {

// All tensors of a .safetensors file, in the order of its header, their elements as floats. kInvalidArgument for
// another file, and names the tensor; kOutOfBudget, before any is read, for tensors of more than `bytes_max` as floats.
Result<std::vector<NamedTensor>> ReadTensors(const std::string& path, uint64_t bytes_max);

}  // namespace quarry
