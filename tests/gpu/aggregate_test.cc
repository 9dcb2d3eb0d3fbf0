// What a device aggregates against the trainer's own kernel, bit by bit.
#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "gpu/random_features.h"
#include "quarry/gpu/rows.h"
#include "quarry/trainer/aggregate.h"
#include "support/device_space.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing_util::Below;
using testing_util::Bits;
using testing_util::DeviceSpace;
using testing_util::Features;
using testing_util::kFloatTypes;
using testing_util::Lists;
using testing_util::Random;

class AggregateOnDeviceTest : public testing::TestWithParam<DeviceSpace::Kind> {};

// Whether the trainer multiplies an int8 row's scale within the addition, as it does on processors that can, but not where
// it is built for sanitizers: (1 + 2^-23) * 127 - 127 is 127 * 2^-23, unless the product was rounded.
bool TrainerFuses() {
  struct {
    int8_t value = 127, padding[3] = {};
    float scale = 0;
  } stored[2];
  stored[0].scale = 0x1.000002p0F;
  stored[1].scale = -1;
  const std::span rows = std::as_bytes(std::span(stored));
  const FeatureView view = {
      .rows = rows, .stride_bytes = 8, .element_type = ElementType::kInt8, .dim = 1, .slots = {}};
  const std::vector<uint32_t> indptr = {0, 2}, indices = {1, 0};
  float out[2] = {};
  Aggregate({.aggregator = Aggregator::kSum}, view, RowNorm::kNone, indptr, indices, 0, 1, out);
  return out[1] == 127 * 0x1p-23F;
}

TEST_P(AggregateOnDeviceTest, IsTheTrainersBitByBit) {
  const bool fuses = TrainerFuses();
  RecordProperty("int8", fuses ? "compared" : "not compared: the trainer does not fuse");
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    DeviceSpace space(GetParam(), seed);
    Random random(seed);
    const auto nodes = static_cast<uint32_t>(1 + Below(random, 100));
    const auto targets = static_cast<uint32_t>(1 + Below(random, nodes));
    const auto dim = static_cast<uint32_t>(1 + Below(random, 140));
    const ElementType type = kFloatTypes[seed % 4];
    const Features features(random, type, dim, nodes, /*finite=*/true);
    const Lists lists(random, targets, nodes);
    const bool mean = Below(random, 3) != 0;
    const Gathering gathering = {.aggregator = mean ? Aggregator::kMean : Aggregator::kSum,
                                 .self_apart = Below(random, 2) == 0};
    if (type == ElementType::kInt8 && !fuses) continue;

    std::vector<float> expected(size_t{targets} * gathering.width(dim));
    Aggregate(gathering, features.View(), RowNorm::kNone, lists.indptr, lists.indices, 0, targets,
              expected.data());
    float* const out = space.Put(std::vector<float>(expected.size(), 77.0F));
    ASSERT_OK(gpu::AggregateRows(space.device(), features.PutOn(space),
                                 {.indptr = space.Put(lists.indptr),
                                  .indices = space.Put(lists.indices),
                                  .targets = targets,
                                  .self_apart = gathering.self_apart,
                                  .mean = mean},
                                 out, space.stream()));
    ASSERT_EQ(Bits(space.Get(out, expected.size())), Bits(expected))
        << "seed " << seed << ", " << ElementTypeName(type) << ", dim " << dim;
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, AggregateOnDeviceTest, testing::ValuesIn(DeviceSpace::Kinds()),
                         DeviceSpace::NameOf);

}  // namespace
}  // namespace quarry
