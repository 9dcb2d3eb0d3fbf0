// Vectors that are filled anew for every batch, or range of nodes.
#pragma once

#include <cstddef>
#include <vector>

namespace quarry {

// Gives `values` `count` elements that mean nothing yet. It grows as Matrix does: the old ones go before the new ones
// come, with an eighth of slack for later, larger batches. std::vector would hold both, and twice as many.
template <typename Value>
void ResizeVoid(std::vector<Value>& values, size_t count) {
  if (count > values.capacity()) {
    std::vector<Value>().swap(values);
    values.reserve(count + count / 8);
  }
  values.resize(count);
}

// Frees what `values` holds, which assigning an empty list would keep.
template <typename Value>
void GiveBack(std::vector<Value>& values) {
  std::vector<Value>().swap(values);
}

}  // namespace quarry
