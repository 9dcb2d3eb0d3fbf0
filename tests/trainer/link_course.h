// A run of link prediction in memory, and what tells it apart from another.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "quarry/base/units.h"
#include "quarry/trainer/link_train.h"
#include "support/status_matchers.h"

namespace quarry {

inline MemoryBudget& Plenty() {
  static MemoryBudget budget(kGiB);
  return budget;
}

struct Course {
  std::vector<double> losses;
  std::vector<double> mrrs;  // of epochs that were validated; -1 of others
  LinkTrainSummary summary;
};

inline Course Follow(const LinkData& data, const LinkTrainOptions& options) {
  Course course;
  LinkTrainCallbacks callbacks;
  callbacks.epoch = [&](const LinkEpochReport& epoch) {
    course.losses.push_back(epoch.loss);
    course.mrrs.push_back(epoch.valid ? epoch.valid->filtered.mrr : -1);
    return Status::Ok();
  };
  auto summary = TrainLinks(data, options, Plenty(), callbacks);
  EXPECT_OK(summary);
  if (summary.ok()) course.summary = *summary;
  return course;
}

}  // namespace quarry
