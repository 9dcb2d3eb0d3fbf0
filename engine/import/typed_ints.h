// What nodes of several types have, as one list over all nodes. Private to this room.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/import/dataset.h"

namespace quarry {

// Labels of all nodes in their order, -1 for those of types without. kInvalidArgument where a type has more labels or
// fewer than nodes.
class TypedLabels final : public IntReader {
 public:
  // The types outlive it.
  explicit TypedLabels(std::span<const NodeTypeInput> types);
  Result<size_t> Read(std::span<int64_t> out) override;
  std::optional<uint64_t> count() const override { return count_; }
  std::string Position(uint64_t index) const override;
  // By type, 1 + the largest label read so far.
  std::span<const uint64_t> class_counts() const { return class_counts_; }

 private:
  Status CheckEnd(const NodeTypeInput& type);

  const std::span<const NodeTypeInput> types_;
  uint64_t count_ = 0;
  size_t type_ = 0;    // what is read next
  uint64_t done_ = 0;  // nodes of it
  std::vector<uint64_t> class_counts_;
};

// The nodes of a split, of each type in turn, as nodes of the whole graph; null where no type has any. The types outlive
// it. kInvalidArgument for an id that its type does not have.
std::unique_ptr<IntReader> JoinSplits(std::span<const NodeTypeInput> types,
                                      std::unique_ptr<IntReader> NodeTypeInput::*split);

}  // namespace quarry
