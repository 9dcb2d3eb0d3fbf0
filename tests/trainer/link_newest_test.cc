// Link prediction over edges that come and go while it runs: each epoch has those that there are when it begins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "quarry/trainer/newest_links.h"
#include "support/status_matchers.h"
#include "trainer/grouped_graph.h"
#include "trainer/link_course.h"

namespace quarry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

LinkData CopyOf(const LinkData& data) {
  LinkData copy;
  copy.train = data.train;
  copy.valid = data.valid;
  copy.test = data.test;
  copy.node_count = data.node_count;
  copy.relation_count = data.relation_count;
  return copy;
}

// What a database has, and what a training reads of it.
class ChangingLinks {
 public:
  explicit ChangingLinks(const LinkData& data) { Change(data); }
  void Change(const LinkData& data) {
    now_ = CopyOf(data);
    ++version_;
  }
  // `always`: says that there is something newer before each epoch, and gives what it gave before.
  NewestLinks Source(bool always = false) {
    return {.is_newer = [this, always]() -> Result<bool> { return always || version_ != read_; },
            .load = [this]() -> Result<LinkData> {
              read_ = version_;
              ++loads_;
              return CopyOf(now_);
            }};
  }
  const LinkData& now() const { return now_; }
  int loads() const { return loads_; }

 private:
  LinkData now_;
  int version_ = 0, read_ = 0, loads_ = 0;
};

Course FollowNewest(const NewestLinks& source, const LinkTrainOptions& options,
                    const std::function<void(const LinkEpochReport&)>& after = {},
                    const std::function<void(std::string_view, uint64_t)>& during = {}) {
  Course course;
  LinkTrainCallbacks callbacks;
  callbacks.epoch = [&](const LinkEpochReport& epoch) {
    course.losses.push_back(epoch.loss);
    course.mrrs.push_back(epoch.valid ? epoch.valid->filtered.mrr : -1);
    if (after) after(epoch);
    return Status::Ok();
  };
  callbacks.progress = [&](std::string_view phase, uint64_t done, uint64_t) {
    if (during) during(phase, done);
    return Status::Ok();
  };
  const auto summary = TrainNewestLinks(source, options, Plenty(), callbacks);
  EXPECT_OK(summary);
  if (summary.ok()) course.summary = *summary;
  return course;
}

LinkTrainOptions WithEncoder(LinkTrainOptions options) {
  options.encoder.model = GnnKind::kSage;
  options.encoder_fanouts = {5};
  return options;
}

// Reading the edges anew before each epoch loses nothing of what was learned, of the optimizer's state, or of the order
// of batches.
TEST(NewestLinks, EdgesThatStayTrainAsEver) {
  LinkTrainOptions options = SmallOptions();
  options.epochs = 4;
  const LinkData data = GroupedGraph();
  for (const LinkTrainOptions& of : {options, WithEncoder(options)}) {
    const Course alone = Follow(data, of);
    for (const bool always : {false, true}) {
      ChangingLinks links(data);
      const Course course = FollowNewest(links.Source(always), of);
      EXPECT_EQ(links.loads(), always ? 4 : 1);
      EXPECT_EQ(course.losses, alone.losses);
      EXPECT_EQ(course.mrrs, alone.mrrs);
      EXPECT_EQ(course.summary.test->filtered.mrr, alone.summary.test->filtered.mrr);
      EXPECT_EQ(course.summary.edges, alone.summary.edges);
      EXPECT_EQ(course.summary.stats.stage(EmbeddingStage::kUpdate).batches,
                alone.summary.stats.stage(EmbeddingStage::kUpdate).batches);
    }
  }
}

TEST(NewestLinks, AnEdgeThatComesDuringAnEpochIsAnExampleOfTheNext) {
  LinkData data = GroupedGraph();
  const size_t all = data.train.size();
  LinkData some = CopyOf(data);
  some.train.resize(all / 2);
  LinkTrainOptions options = SmallOptions();
  options.epochs = 5;
  for (const AsyncMode mode : {AsyncMode::kSync, AsyncMode::kOac}) {
    options.mode = mode;
    ChangingLinks links(some);
    std::vector<uint64_t> edges;
    const Course course = FollowNewest(
        links.Source(), options,
        [&](const LinkEpochReport& epoch) {
          edges.push_back(epoch.edges);
          if (epoch.epoch != 4) return;
          LinkData few = CopyOf(data);
          few.train.resize(130);
          links.Change(few);  // edges go, too
        },
        [&](std::string_view phase, uint64_t done) {
          if (phase == "epoch 2" && done > 0 && links.now().train.size() < all) links.Change(data);
        });
    EXPECT_THAT(edges, ElementsAre(all / 2, all / 2, all, all, 130u));
    EXPECT_EQ(course.summary.edges, all / 2 * 2 + all * 2 + 130);
    EXPECT_EQ(links.loads(), 3);
  }
}

// Edges of nodes that come: they are learned as those of others are.
TEST(NewestLinks, NodesThatComeHaveVectors) {
  constexpr NodeId kBefore = 102;  // the last three groups come later
  const LinkData data = GroupedGraph();
  LinkData before = CopyOf(data), after = CopyOf(data);
  const auto is_new = [](const Triple& edge) { return edge.head >= kBefore || edge.tail >= kBefore; };
  before.node_count = kBefore;
  for (std::vector<Triple>* const edges : {&before.train, &before.valid, &before.test}) {
    std::erase_if(*edges, is_new);
  }
  std::erase_if(after.test, [&](const Triple& edge) { return !is_new(edge); });
  ASSERT_GT(after.test.size(), 10u);
  LinkTrainOptions options = SmallOptions();
  options.epochs = 14;
  for (const LinkTrainOptions& of : {options, WithEncoder(options)}) {
    ChangingLinks links(before);
    const Course course = FollowNewest(links.Source(), of, [&](const LinkEpochReport& epoch) {
      if (epoch.epoch == 2) links.Change(after);
    });
    EXPECT_EQ(course.summary.test->filtered.rankings, 2 * after.test.size());
    EXPECT_GT(course.summary.test->filtered.mrr, 0.3) << "chance is " << kChance;
  }
}

TEST(NewestLinks, WhatIsRefused) {
  ChangingLinks links(GroupedGraph());
  LinkTrainOptions options = SmallOptions();
  options.patience = 2;
  EXPECT_THAT(TrainNewestLinks(links.Source(), options, Plenty()).status().message(), HasSubstr("patience"));
  options.patience = 0;
  LinkTrainOptions featured = WithEncoder(options);
  featured.feature_dim = 4;
  EXPECT_THAT(TrainNewestLinks(links.Source(), featured, Plenty()).status().message(),
              HasSubstr("features are those of the nodes that there were"));
  const NewestLinks broken = {
      .is_newer = []() -> Result<bool> { return Status(Code::kIoError, "the server went away"); },
      .load = links.Source().load};
  EXPECT_THAT(TrainNewestLinks(broken, options, Plenty()).status().message(), HasSubstr("went away"));
  MemoryBudget little(100 << 10);
  EXPECT_EQ(TrainNewestLinks(links.Source(), options, little).status().code(), Code::kOutOfBudget);
  EXPECT_EQ(little.used_bytes(), 0u);
}

}  // namespace
}  // namespace quarry
