// EmbeddingSpec: what an embedding table is, whoever makes it: the record of the catalog, a message and the C
// interface hold this one struct. Whether a table can be made of it is CreateEmbeddings' to say.
//
// Plain values: copied freely, thread-safe as such.
#pragma once

#include <cstdint>
#include <string_view>

#include "quarry/format/element_type.h"
#include "quarry/format/road_spec.h"

namespace quarry {

enum class OptimizerKind : uint8_t { kSgd, kAdagrad, kAdam };
enum class InitKind : uint8_t { kZeros, kUniform, kNormal };

template <>
struct EnumNames<OptimizerKind> {
  static constexpr std::string_view kWhat = "optimizer";
  static constexpr std::string_view kNames[] = {"sgd", "adagrad", "adam"};
};
template <>
struct EnumNames<InitKind> {
  static constexpr std::string_view kWhat = "initialization";
  static constexpr std::string_view kNames[] = {"zeros", "uniform", "normal"};
};

struct EmbeddingSpec {
  uint64_t row_count = 0;
  uint32_t dim = 0;
  ElementType element_type = ElementType::kFloat32;  // or kBfloat16
  OptimizerKind optimizer = OptimizerKind::kAdagrad;
  InitKind init = InitKind::kUniform;
  float init_scale = 0.1F;  // uniform in [-scale, scale); standard deviation of normal
  uint64_t seed = 0;
  bool operator==(const EmbeddingSpec&) const = default;

  // sgd 0, adagrad dim, adam 2 dim + 1 (moments, and the number of steps that the row has seen)
  uint32_t state_dim() const {
    switch (optimizer) {
      case OptimizerKind::kSgd:
        return 0;
      case OptimizerKind::kAdagrad:
        return dim;
      case OptimizerKind::kAdam:
        return 2 * dim + 1;
    }
    return 0;
  }
};

}  // namespace quarry
