#include "quarry/partition/assignment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quarry {
namespace {

using testing::ElementsAre;

TEST(AssignmentTest, PartsThatNoNodeIsInHaveSizeZero) {
  const Assignment assignment{.parts = 4, .part_of = {2, 0, 2, 1, 2}};
  EXPECT_THAT(assignment.Sizes(), ElementsAre(1, 1, 3, 0));
}

}  // namespace
}  // namespace quarry
