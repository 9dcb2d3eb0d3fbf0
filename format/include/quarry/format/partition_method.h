// Which partitioner cuts a graph into parts: values that requests have as well (engine/partition says what each does).
#pragma once

#include <cstdint>

#include "quarry/format/road_spec.h"

namespace quarry {

enum class PartitionMethod : uint8_t { kGrem, kMetis, kBgl, kRandom, kKept };
template <>
struct EnumNames<PartitionMethod> {
  static constexpr std::string_view kWhat = "partitioner";
  static constexpr std::string_view kNames[] = {"grem", "metis", "bgl", "random", "kept"};
};

}  // namespace quarry
