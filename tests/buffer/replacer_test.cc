#include "replacer.h"

#include <gtest/gtest.h>

namespace quarry {
namespace {

TEST(ClockReplacerTest, NothingLeavesThatMayNot) {
  const auto clock = MakeClockReplacer(4);
  EXPECT_EQ(clock->Candidate(), kNoFrame);
  clock->SetEvictable(2, true);
  EXPECT_EQ(clock->Candidate(), 2u);
  EXPECT_EQ(clock->Candidate(), 2u) << "until somebody says otherwise";
  clock->SetEvictable(2, false);
  clock->SetEvictable(2, false);
  EXPECT_EQ(clock->Candidate(), kNoFrame);
}

TEST(ClockReplacerTest, WhatWasTouchedLeavesAfterWhatWasNot) {
  const auto clock = MakeClockReplacer(4);
  for (uint32_t frame = 0; frame < 4; ++frame) {
    clock->SetEvictable(frame, true);
    if (frame != 2) clock->Touch(frame);
  }
  EXPECT_EQ(clock->Candidate(), 2u);
  clock->SetEvictable(2, false);
  EXPECT_EQ(clock->Candidate(), 0u) << "the hand has been past 0 and 1 and has passed 3: a second round";
}

TEST(ClockReplacerTest, ATouchedFrameAloneStillLeaves) {
  const auto clock = MakeClockReplacer(3);
  clock->SetEvictable(1, true);
  clock->Touch(1);
  EXPECT_EQ(clock->Candidate(), 1u);
}

}  // namespace
}  // namespace quarry
