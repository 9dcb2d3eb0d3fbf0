// NewestRoad: each training pass is that of a live road which is opened when the pass begins.
#include "quarry/pipeline/newest_road.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "pipeline/tiny_database.h"
#include "quarry/base/units.h"
#include "quarry/import/graph_change.h"
#include "quarry/pipeline/live_road.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using testing_util::TinyDatabase;
using testing_util::TinyGraph;

class NewestRoadTest : public testing::Test {
 protected:
  NewestRoadTest() { store_ = Store::Open(*backend_, database_.path()).value(); }

  LiveRoadOptions Options() const {
    LiveRoadOptions options;
    options.spec = {.fanouts = {4, 3}, .batch_size = 32, .seed = 5};
    options.tells_plan = false;
    return options;
  }
  NewestRoad::Source Source() {
    return {.newest = [this]() -> Result<uint64_t> {
              QUARRY_TRY(const auto snapshot, store_->TakeSnapshot());
              return snapshot->timestamp;
            },
            .open = [this]() -> Result<NewestRoad::Opened> {
              ++opened_;
              EXPECT_EQ(budget_.used_bytes(), 0u) << "the road before is still open";
              LiveRoadOptions options = Options();
              QUARRY_TRY(options.snapshot, store_->TakeSnapshot());
              QUARRY_TRY(std::unique_ptr<LiveRoad> road, LiveRoad::Open(*store_, budget_, options));
              return NewestRoad::Opened{std::move(road), options.snapshot->timestamp};
            }};
  }

  // Nodes that are trained on, with edges among all.
  void Grow(uint64_t nodes, uint64_t edges, int64_t label) {
    const auto change =
        GraphChange::Create(*store_, others_, {.nodes = nodes, .memory_bytes = kGraphChangeBytesMin});
    ASSERT_OK(change);
    WriteBatch batch;
    for (uint64_t node = nodes_; node < nodes_ + nodes; ++node) {
      batch.Put("feature", node, graph_.Row(static_cast<NodeId>(node)));
      batch.SetLabel(static_cast<NodeId>(node), label);
      batch.SetSplit(static_cast<NodeId>(node), Split::kTrain);
    }
    ASSERT_OK((*change)->Put(batch));
    nodes_ += nodes;
    std::vector<Edge> added;
    for (uint64_t i = 0; i < edges; ++i) added.push_back({rng_.Below(nodes_), rng_.Below(nodes_)});
    ASSERT_OK((*change)->Add(added));
    ASSERT_OK((*change)->Commit());
  }

  // All that the batches of a pass are, row by row.
  std::vector<std::string> Pass(Road& road, Split split, uint64_t pass) {
    std::vector<std::string> batches;
    const auto stream = road.StartSplit(split, {.pass = pass, .ordered = true});
    EXPECT_OK(stream);
    if (!stream.ok()) return batches;
    for (;;) {
      const auto batch = (*stream)->Next();
      EXPECT_OK(batch);
      if (!batch.ok() || *batch == nullptr) return batches;
      const BatchView& view = (*batch)->view();
      std::string& text = batches.emplace_back();
      const auto add = [&](const auto& values) {
        const auto bytes = std::as_bytes(std::span(values));
        text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      };
      add(view.nodes);
      add(view.indptr);
      add(view.indices);
      add(view.labels);
      for (size_t v = 0; v < view.nodes.size(); ++v) {
        text.append(reinterpret_cast<const char*>(view.features.Row(v)), graph_.dim * sizeof(float));
      }
    }
  }

  const TinyGraph graph_{.nodes = 300, .dim = 16};
  const TinyDatabase database_{graph_};
  const std::unique_ptr<IoBackend> backend_ = MakeDefaultBackend();
  MemoryBudget budget_{kGiB}, others_{kGiB};
  std::unique_ptr<Store> store_;
  uint64_t nodes_ = graph_.nodes, opened_ = 0;
  Rng rng_{17};
};

TEST_F(NewestRoadTest, APassTrainsOnWhatThereIsWhenItBegins) {
  const auto road = NewestRoad::Make(Source());
  ASSERT_OK(road);
  uint64_t changes = 0, trained_on = (*road)->CountNodes(Split::kTrain);
  for (uint64_t pass = 1; pass <= 8; ++pass) {
    SCOPED_TRACE(testing::Message() << "pass " << pass);
    const bool grows = pass > 1 && pass % 3 != 0;
    if (grows) {
      ASSERT_NO_FATAL_FAILURE(Grow(pass * 10, 60, 2));
      ++changes;
      trained_on += pass * 10;
    }
    const std::vector<std::string> got = Pass(**road, Split::kTrain, pass);
    EXPECT_EQ((*road)->CountNodes(Split::kTrain), trained_on);
    EXPECT_EQ(got.size(), CeilDiv(trained_on, uint64_t{32}));
    const auto fresh = LiveRoad::Open(*store_, others_, Options());
    ASSERT_OK(fresh);
    EXPECT_TRUE(got == Pass(**fresh, Split::kTrain, pass));
    // Validation is of the road that trained, whatever came meanwhile.
    if (pass == 5) {
      ASSERT_NO_FATAL_FAILURE(Grow(1, 500, 2));
      ++changes;
      ++trained_on;
    }
    EXPECT_TRUE(Pass(**road, Split::kValid, pass) == Pass(**fresh, Split::kValid, pass));
  }
  EXPECT_EQ(opened_, 1 + changes) << "and not where nothing had changed";
}

TEST_F(NewestRoadTest, ClassesThatTheModelDoesNotHaveEndIt) {
  const auto road = NewestRoad::Make(Source());
  ASSERT_OK(road);
  const uint32_t classes = (*road)->class_count();
  ASSERT_NO_FATAL_FAILURE(Grow(1, 3, classes));
  const auto stream = (*road)->StartSplit(Split::kTrain, {.pass = 1});
  EXPECT_EQ(stream.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(stream.status().message()), HasSubstr("begin another run"));
}

TEST_F(NewestRoadTest, WhatTheSourceSaysComesBack) {
  NewestRoad::Source source = Source();
  bool fails = false;
  const auto open = source.open;
  source.open = [&]() -> Result<NewestRoad::Opened> {
    if (fails) return Status(Code::kOutOfBudget, "no room for so many nodes");
    return open();
  };
  const auto road = NewestRoad::Make(source);
  ASSERT_OK(road);
  ASSERT_NO_FATAL_FAILURE(Grow(5, 5, 1));
  fails = true;
  EXPECT_EQ((*road)->StartSplit(Split::kTrain, {.pass = 1}).status().code(), Code::kOutOfBudget);
  EXPECT_EQ(NewestRoad::Make(source).status().code(), Code::kOutOfBudget);
}

}  // namespace
}  // namespace quarry
