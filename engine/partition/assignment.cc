#include "quarry/partition/assignment.h"

namespace quarry {

std::vector<uint64_t> Assignment::Sizes() const {
  std::vector<uint64_t> sizes(parts);
  for (const uint32_t part : part_of) ++sizes[part];
  return sizes;
}

}  // namespace quarry
