// Rows of a source's type into rows of a table's, with the checks between. Private to this room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/element_type.h"
#include "quarry/import/dataset.h"

namespace quarry {

// One thread. `rows` outlives it.
class RowConverter {
 public:
  RowConverter(const RowReader& rows, ElementType to, bool allow_nan)
      : rows_(rows), from_(rows.element_type()), to_(to), allow_nan_(allow_nan), values_(rows.dim()) {}

  // Converts `in`, whose first row is number `first`; the result is valid until the next call.
  // kInvalidArgument names the row and the column of a value that the table cannot hold.
  Result<std::span<const std::byte>> Convert(std::span<const std::byte> in, uint64_t first);

 private:
  Status CheckFinite(std::span<const std::byte> in, uint64_t first);
  Status CheckOverflow(std::span<const std::byte> in, uint64_t first);
  float ValueAt(std::span<const std::byte> in, uint64_t row, uint64_t column);

  const RowReader& rows_;
  const ElementType from_;
  const ElementType to_;
  const bool allow_nan_;
  std::vector<float> values_;
  std::vector<std::byte> converted_;
};

}  // namespace quarry
