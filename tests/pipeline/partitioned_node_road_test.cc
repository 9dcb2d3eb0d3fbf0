// The partitioned road of node classification: each node of a split is in one batch a pass, with its row, its label and
// neighbors that are held, whatever parts there are; and no more is held and read than was said.
#include "quarry/pipeline/partitioned_node_road.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "partition/partitioned_store.h"
#include "pipeline/pass_util.h"
#include "quarry/base/random.h"
#include "quarry/pipeline/held_lists.h"
#include "quarry/storage/compaction.h"
#include "support/counting_backend.h"
#include "support/fault_backend.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing_util::HashBatch;
using testing_util::PartitionedStore;
using testing_util::RandomAssignment;
using testing_util::SmallStore;
using testing_util::TypedEdge;

constexpr Split kSplits[] = {Split::kTrain, Split::kValid, Split::kTest};

// Visits what is left of a stream, a batch at a time.
Status ForEachBatch(BatchStream& stream, const std::function<void(const BatchView&)>& visit) {
  for (;;) {
    QUARRY_TRY(const std::unique_ptr<Batch> batch, stream.Next());
    if (batch == nullptr) return Status::Ok();
    visit(batch->view());
  }
}

class PartitionedNodeRoadTest : public testing::Test {
 protected:
  // Cuts the graph anew; `first`: nodes of the training split go to the parts below.
  void Cut(uint32_t parts, uint64_t seed, uint32_t first = 0) {
    assignment_ = RandomAssignment(SmallStore::kNodes, parts, seed);
    if (first > 0) {
      for (NodeId node = 0; node < SmallStore::kNodes; ++node) {
        uint32_t& part = assignment_.part_of[node];
        part = IsTraining(node) ? part % first : first + part % (parts - first);
      }
    }
    ASSERT_OK(BuildPartitioning(*world_.store, world_.budget, {.table = "narrow"}, assignment_, {}));
    new_ids_ = PartitionedStore::NewIds(assignment_);
    const std::vector<TypedEdge> edges = world_.EdgesIn(new_ids_);
    edges_.clear();
    for (const auto& [source, destination, relation] : edges) ++edges_[{source, destination}];
  }

  PartitionedNodeRoadOptions Options(uint32_t buffer, uint32_t logical, uint64_t seed) {
    PartitionedNodeRoadOptions options;
    options.parts.buffer = buffer;
    options.parts.logical = logical;
    options.spec = {.feature_table = "narrow", .fanouts = {4, 3}, .batch_size = 16, .seed = seed};
    return options;
  }
  std::unique_ptr<PartitionedNodeRoad> Open(const PartitionedNodeRoadOptions& options) {
    auto road = PartitionedNodeRoad::Open(*world_.store, world_.budget, options);
    EXPECT_OK(road);
    return road.ok() ? *std::move(road) : nullptr;
  }

  static int64_t LabelOf(NodeId old_id) {
    return old_id % 11 == 0 ? -1 : static_cast<int64_t>(old_id % SmallStore::kClasses);
  }
  static bool IsIn(Split split, NodeId old_id) {
    return old_id % 4 == static_cast<NodeId>(split) && (split != Split::kTrain || LabelOf(old_id) >= 0);
  }
  static bool IsTraining(NodeId old_id) { return IsIn(Split::kTrain, old_id); }

  // Holds a batch against the database.
  void ExpectBatch(const BatchView& batch, const RoadSpec& spec, uint32_t buffer) {
    const std::vector<std::byte>& rows = world_.world.FindTable("narrow").rows;
    std::set<uint32_t> parts;
    ASSERT_EQ(batch.labels.size(), batch.seed_count);
    ASSERT_EQ(std::set(batch.nodes.begin(), batch.nodes.end()).size(), batch.nodes.size());
    for (size_t i = 0; i < batch.nodes.size(); ++i) {
      const NodeId old_id = batch.nodes[i];
      parts.insert(assignment_.part_of[old_id]);
      ASSERT_EQ(std::memcmp(batch.features.Row(i), rows.data() + size_t{old_id} * 28, 28), 0)
          << "node " << old_id;
      if (i < batch.seed_count) {
        ASSERT_EQ(batch.labels[i], LabelOf(old_id));
      }
    }
    ASSERT_LE(parts.size(), buffer);
    for (uint32_t i = 0; i < batch.target_count(); ++i) {
      std::map<NodeId, uint64_t> drawn;
      for (uint32_t e = batch.indptr[i]; e < batch.indptr[i + 1]; ++e) ++drawn[batch.nodes[batch.indices[e]]];
      const size_t hop = i < batch.hop_offsets[0] ? 0 : 1;
      ASSERT_LE(batch.indptr[i + 1] - batch.indptr[i], spec.fanouts[hop]);
      for (const auto& [neighbor, times] : drawn) {
        uint64_t there = 0;
        const NodeId source = new_ids_[neighbor], destination = new_ids_[batch.nodes[i]];
        if (spec.direction != Direction::kOut) there += Count(source, destination);
        if (spec.direction != Direction::kIn) there += Count(destination, source);
        ASSERT_LE(times, there) << "from " << neighbor << " to " << batch.nodes[i];
      }
    }
  }
  uint64_t Count(NodeId source, NodeId destination) const {
    const auto found = edges_.find({source, destination});
    return found == edges_.end() ? 0 : found->second;
  }

  // The seeds of a pass; expects each batch to be right.
  std::vector<NodeId> Pass(PartitionedNodeRoad& road, const RoadSpec& spec, Split split, uint64_t pass) {
    std::vector<NodeId> seeds;
    auto stream = road.StartSplit(split, {.shuffle = split == Split::kTrain, .pass = pass});
    EXPECT_OK(stream);
    if (!stream.ok()) return seeds;
    uint64_t batches = 0;
    EXPECT_OK(ForEachBatch(**stream, [&](const BatchView& batch) {
      ++batches;
      ExpectBatch(batch, spec, road.plan().parts.buffer);
      seeds.insert(seeds.end(), batch.seeds().begin(), batch.seeds().end());
    }));
    EXPECT_EQ(batches, (*stream)->batch_count());
    return seeds;
  }

  const std::unique_ptr<IoBackend> disk_ = MakeDefaultBackend();
  CountingBackend counted_{*disk_};
  FaultBackend backend_{counted_};
  PartitionedStore world_{backend_};
  Assignment assignment_;
  std::vector<NodeId> new_ids_;
  std::map<std::pair<NodeId, NodeId>, uint64_t> edges_;  // in new ids, and how often
};

TEST_F(PartitionedNodeRoadTest, EachNodeOfASplitIsUsedOnceAPassWithWhatTheDatabaseHasOfIt) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    Rng rng(MixSeed(31, seed));
    const auto parts = static_cast<uint32_t>(2 + rng.Below(11));
    const auto first = static_cast<uint32_t>(rng.Below(2) * rng.Below(parts));
    const auto buffer = static_cast<uint32_t>(2 + rng.Below(parts - 1));
    ASSERT_NO_FATAL_FAILURE(Cut(parts, seed, first));
    PartitionedNodeRoadOptions options = Options(buffer, 0, seed);
    options.spec.direction = static_cast<Direction>(rng.Below(3));
    options.parts.prefetch = rng.Below(2) == 0;
    options.sampler_threads = static_cast<unsigned>(1 + rng.Below(3));
    SCOPED_TRACE(fmt::format("seed {}: {} parts, {} held, training nodes in the first {}, {}", seed, parts,
                             buffer, first, NameOf(options.spec.direction)));
    const uint64_t used = world_.budget.used_bytes();
    {
      const auto road = Open(options);
      ASSERT_NE(road, nullptr);
      EXPECT_EQ(road->class_count(), SmallStore::kClasses);
      EXPECT_TRUE(road->plan().training_stays || first == 0 || first >= buffer);
      std::set<std::vector<NodeId>> orders;
      for (uint64_t pass = 1; pass <= 2; ++pass) {
        for (const Split split : kSplits) {
          std::vector<NodeId> seeds = Pass(*road, options.spec, split, pass);
          if (split == Split::kTrain) orders.insert(seeds);
          std::ranges::sort(seeds);
          std::vector<NodeId> expected;
          for (NodeId node = 0; node < SmallStore::kNodes; ++node) {
            if (IsIn(split, node)) expected.push_back(node);
          }
          ASSERT_EQ(seeds, expected);
          EXPECT_EQ(road->CountNodes(split), expected.size());
        }
      }
      EXPECT_EQ(orders.size(), 2u) << "each epoch has an order of its own";
    }
    EXPECT_EQ(world_.budget.used_bytes(), used);
  }
}

TEST_F(PartitionedNodeRoadTest, OneSeedGivesOnePassForAnyNumberOfThreads) {
  ASSERT_NO_FATAL_FAILURE(Cut(8, 3));
  std::map<Split, std::vector<uint64_t>> expected;
  for (const unsigned threads : {1U, 2U, 5U}) {
    PartitionedNodeRoadOptions options = Options(4, 4, 9);
    options.sampler_threads = threads;
    const auto road = Open(options);
    for (const Split split : {Split::kTest, Split::kTrain}) {
      const auto stream = road->StartSplit(split, {.pass = 5, .ordered = true});
      ASSERT_OK(stream);
      std::vector<uint64_t> hashes;
      ASSERT_OK(ForEachBatch(**stream, [&](const BatchView& batch) {
        EXPECT_EQ(batch.index, hashes.size());
        hashes.push_back(HashBatch(batch));
      }));
      const auto [found, is_new] = expected.emplace(split, hashes);
      EXPECT_EQ(found->second, hashes) << threads << " threads";
    }
  }
}

// By Pearson's test: every edge of a node to a held one is drawn as often as any other of its side.
TEST_F(PartitionedNodeRoadTest, EveryHeldEdgeIsDrawnAlike) {
  ASSERT_NO_FATAL_FAILURE(Cut(6, 4));
  const auto partitioning = StoredPartitioning::Open(*world_.store, world_.budget, "default");
  ASSERT_OK(partitioning);
  SwapPlan plan = PlanSwaps({.order = PartitionOrder::kBeta, .parts = 6, .buffer = 4}).value();
  const auto buffer = PartitionBuffer::Make(**partitioning, backend_, world_.budget, std::move(plan));
  ASSERT_OK(buffer);
  ASSERT_TRUE((*buffer)->Next().value());
  for (const bool apart : {false, true}) {
    HeldLists lists(Direction::kBoth);
    lists.TakeStep(**buffer);
    const auto id_of = [&](NodeId place) {
      const HeldLists::Place at = lists.At(place);
      return static_cast<NodeId>((*partitioning)->directory().part_starts[(*buffer)->step().parts[at.held]] +
                                 at.node);
    };
    constexpr uint32_t kFanout = 3, kTimes = 4000;
    const auto sampler = NeighborSampler::Make(
        {.lists = &lists, .sides_apart = apart, .direction = Direction::kBoth}, {.fanouts = {kFanout}});
    ASSERT_OK(sampler);
    Rng rng(5);
    double chi2 = 0, freedom = 0;
    for (int node = 0; node < 12; ++node) {
      const auto place = static_cast<NodeId>(rng.Below(lists.node_count()));
      std::map<NodeId, uint64_t> in, out, drawn;
      uint64_t sum[2] = {0, 0};
      for (NodeId other = 0; other < lists.node_count(); ++other) {
        if (const uint64_t edges = Count(id_of(other), id_of(place))) sum[0] += in[other] = edges;
        if (const uint64_t edges = Count(id_of(place), id_of(other))) sum[1] += out[other] = edges;
      }
      ASSERT_EQ(lists.Degree(0, place), sum[0]);
      ASSERT_EQ(lists.Degree(1, place), sum[1]);
      Block block;
      for (uint32_t time = 0; time < kTimes; ++time) {
        ASSERT_OK((*sampler)->Sample(std::span(&place, 1), MixSeed(7, time), block));
        const uint64_t count = apart
                                   ? std::min<uint64_t>(kFanout, sum[0]) + std::min<uint64_t>(kFanout, sum[1])
                                   : std::min<uint64_t>(kFanout, sum[0] + sum[1]);
        ASSERT_EQ(block.indices.size(), count);
        for (const uint32_t index : block.indices) ++drawn[block.nodes[index]];
      }
      std::set<NodeId> others;
      for (const auto* side : {&in, &out}) {
        for (const auto& [other, edges] : *side) others.insert(other);
      }
      ASSERT_LE(drawn.size(), others.size());
      for (const NodeId other : others) {
        // Each edge is drawn with the share of its list that is taken; edges of one node exclude each other little.
        double expected = 0, variance = 0;
        for (size_t side = 0; side < 2; ++side) {
          const auto& list = side == 0 ? in : out;
          const auto found = list.find(other);
          const auto edges = found == list.end() ? 0.0 : static_cast<double>(found->second);
          const auto degree = static_cast<double>(apart ? sum[side] : sum[0] + sum[1]);
          const double share = std::min(1.0, kFanout / degree);
          expected += kTimes * edges * share;
          variance += kTimes * edges * share * (1 - share);
        }
        if (variance == 0) {
          ASSERT_EQ(static_cast<double>(drawn[other]), expected);
          continue;
        }
        const double off = static_cast<double>(drawn[other]) - expected;
        chi2 += off * off / variance;
        ++freedom;
      }
    }
    ASSERT_GT(freedom, 50);
    EXPECT_LT(std::abs(chi2 - freedom) / std::sqrt(2 * freedom), 5)
        << chi2 << " of " << freedom << ", apart " << apart;
  }
}

// Counted at the disk: an epoch that follows another one is as if both were one plan.
TEST_F(PartitionedNodeRoadTest, ReadsWhatThePlansSayToThePage) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    Rng rng(MixSeed(33, seed));
    ASSERT_NO_FATAL_FAILURE(Cut(8, seed, static_cast<uint32_t>(rng.Below(3))));
    MemoryBudget budget(64 * kMiB);
    const PartitionedNodeRoadOptions options = Options(static_cast<uint32_t>(3 + rng.Below(6)), 0, seed);
    const auto road = PartitionedNodeRoad::Open(*world_.store, budget, options);
    ASSERT_OK(road);
    const PartitionDirectory& directory = (*road)->partitioning().directory();
    std::vector<SwapStep> steps;
    uint64_t before = 0, useful = 0;
    for (uint64_t pass = 1; pass <= 6; ++pass) {
      const Split split = kSplits[rng.Below(3)];
      SCOPED_TRACE(fmt::format("seed {}, pass {} over split {}", seed, pass, static_cast<int>(split)));
      const SwapPlan plan =
          PlanSwaps({.order = PartitionOrder::kNode,
                     .parts = 8,
                     .buffer = options.parts.buffer,
                     .logical = 8,
                     .training_parts = split == Split::kTrain ? directory.training_parts() : 8,
                     .seed = MixSeed(seed, 13, pass)})
              .value();
      const uint64_t read = counted_.Of("parts.qpp").read;
      {
        const auto stream = (*road)->StartSplit(split, {.pass = pass});
        ASSERT_OK(stream);
        std::set<NodeId> used;
        ASSERT_OK(ForEachBatch(
            **stream, [&](const BatchView& batch) { used.insert(batch.nodes.begin(), batch.nodes.end()); }));
        // Each part is there once a pass, or since the one before.
        const auto stayed = [&](NodeId node) {
          const uint32_t part = directory.PartOf(new_ids_[node]);
          return !steps.empty() && std::ranges::count(steps.back().parts, part) > 0 &&
                 std::ranges::count(plan.steps().front().parts, part) > 0;
        };
        std::erase_if(used, stayed);
        const StreamStats stats = (*stream)->stats();
        EXPECT_EQ(stats.bytes_useful, used.size() * directory.row_bytes);
        EXPECT_LE(stats.bytes_useful, stats.feature_bytes_read);
        useful += stats.bytes_useful;
        EXPECT_EQ(stats.feature_bytes_read + stats.topology_bytes_read, counted_.Of("parts.qpp").read - read);
      }
      steps.insert(steps.end(), plan.steps().begin(), plan.steps().end());
      const SwapCost cost =
          CostOf(SwapPlan(plan.spec(), steps), PartBytesRead(directory, {.labels = true, .old_ids = true}),
                 directory.BucketBytes());
      EXPECT_EQ(counted_.Of("parts.qpp").read - read, cost.bytes_read - before);
      before = cost.bytes_read;
    }
    EXPECT_GT(useful, 0U);
  }
}

TEST_F(PartitionedNodeRoadTest, TheTunedBufferIsTheLargestThatFits) {
  ASSERT_NO_FATAL_FAILURE(Cut(8, 6));
  uint32_t last = 0;
  for (uint64_t memory = 2 * kMiB; memory <= 64 * kMiB; memory += memory / 6) {
    MemoryBudget budget(memory);
    PartitionedNodeRoadOptions options = Options(0, 0, 1);
    options.spec.feature_table = "narrow";
    const auto road = PartitionedNodeRoad::Open(*world_.store, budget, options);
    if (!road.ok()) {
      EXPECT_THAT(road, IsStatus(Code::kOutOfBudget)) << memory;
      continue;
    }
    EXPECT_GE((*road)->plan().parts.buffer, last);
    last = (*road)->plan().parts.buffer;
    if (last < 8) {  // one more part, with the samplers that it is tuned for, would not fit
      MemoryBudget wide(256 * kMiB);
      PartitionedNodeRoadOptions more = options;
      more.parts.buffer = last + 1;
      more.sampler_threads = PartitionedNodeRoad::kTunedSamplers;
      const auto larger = PartitionedNodeRoad::Open(*world_.store, wide, more);
      ASSERT_OK(larger);
      EXPECT_EQ((*larger)->plan().samplers, more.sampler_threads);
      EXPECT_GT((*larger)->plan().bytes() + (*larger)->partitioning().resident_bytes(), memory);
    }
    const auto stream = (*road)->StartSplit(Split::kTrain, {.pass = 1});
    ASSERT_OK(stream);
    EXPECT_OK(ForEachBatch(**stream, [&](const BatchView&) { EXPECT_LE(budget.used_bytes(), memory); }));
  }
  EXPECT_EQ(last, 8u);
}

// The buffer decides what batches hold: it must not be that of the machine's threads.
TEST_F(PartitionedNodeRoadTest, TheTunedBufferIsOneForAnyNumberOfThreads) {
  ASSERT_NO_FATAL_FAILURE(Cut(8, 6));
  std::set<uint32_t> buffers;
  bool took_fewer = false;
  for (uint64_t memory = 256 * kKiB; memory <= 64 * kMiB; memory += memory / 6) {
    std::optional<uint32_t> buffer;
    std::vector<uint64_t> expected;
    for (const unsigned threads : {1U, 2U, 8U}) {
      SCOPED_TRACE(fmt::format("{} of memory, {} threads", memory, threads));
      MemoryBudget budget(memory);
      PartitionedNodeRoadOptions options = Options(0, 0, 9);
      options.sampler_threads = threads;
      const auto road = PartitionedNodeRoad::Open(*world_.store, budget, options);
      if (!road.ok()) {
        EXPECT_THAT(road, IsStatus(Code::kOutOfBudget));
        EXPECT_FALSE(buffer.has_value()) << "fewer threads did";
        continue;
      }
      if (!buffer && threads == 1) buffer = (*road)->plan().parts.buffer;
      EXPECT_EQ(buffer, (*road)->plan().parts.buffer);
      EXPECT_LE((*road)->plan().samplers, threads);
      took_fewer = took_fewer || (*road)->plan().samplers < threads;
      buffers.insert((*road)->plan().parts.buffer);
      const auto stream = (*road)->StartSplit(Split::kTrain, {.pass = 2, .ordered = true});
      ASSERT_OK(stream);
      std::vector<uint64_t> hashes;
      ASSERT_OK(ForEachBatch(**stream, [&](const BatchView& batch) {
        hashes.push_back(HashBatch(batch));
        EXPECT_LE(budget.used_bytes(), memory);
      }));
      if (expected.empty()) expected = hashes;
      EXPECT_EQ(hashes, expected);
    }
  }
  EXPECT_GT(buffers.size(), 2u);
  EXPECT_TRUE(took_fewer);
}

// Reads that fail, once at each place: an error, and the next pass is whole.
TEST_F(PartitionedNodeRoadTest, EveryFailedReadIsAnErrorAndTheNextPassIsWhole) {
  ASSERT_NO_FATAL_FAILURE(Cut(6, 7));
  PartitionedNodeRoadOptions options = Options(3, 0, 2);
  options.sampler_threads = 2;
  const auto road = Open(options);
  const auto run = [&](uint64_t pass) -> Status {
    QUARRY_TRY(const auto stream, road->StartSplit(Split::kTrain, {.pass = pass}));
    return ForEachBatch(*stream, [](const BatchView&) {});
  };
  uint64_t at = 1;
  for (;; ++at) {
    ASSERT_LT(at, 1000U);
    backend_.SetPlans({{.kind = FaultKind::kRead, .at = at, .error = EIO}});
    const Status status = run(at);
    const bool struck = backend_.strikes() > 0;
    backend_.SetPlans({});
    EXPECT_EQ(status.ok(), !struck) << at;
    if (!struck) break;
    EXPECT_THAT(status, IsStatus(Code::kIoError));
    if (at % 5 == 0) {
      ASSERT_OK(run(at + 5000));
    }
  }
  EXPECT_GT(at, 20u);
}

TEST_F(PartitionedNodeRoadTest, APassMayEndAnywhere) {
  ASSERT_NO_FATAL_FAILURE(Cut(6, 8));
  const PartitionedNodeRoadOptions options = Options(3, 0, 2);
  const auto road = Open(options);
  for (uint64_t batches = 0; batches < 12; ++batches) {
    const auto stream = road->StartSplit(Split::kTrain, {.pass = batches});
    ASSERT_OK(stream);
    EXPECT_THAT(road->StartSplit(Split::kTrain, {.pass = 1}), IsStatus(Code::kInternal));
    for (uint64_t i = 0; i < batches; ++i) {
      auto batch = (*stream)->Next();
      ASSERT_OK(batch);
      if (i > 0) continue;
      EXPECT_THAT((*stream)->Next(), IsStatus(Code::kInternal)) << "one is held";
    }
  }
  std::vector<NodeId> seeds = Pass(*road, options.spec, Split::kTrain, 1);
  EXPECT_EQ(seeds.size(), road->CountNodes(Split::kTrain));
}

// Labels and splits are those of the build: newer ones are said, and once they are the file's there is no telling.
TEST_F(PartitionedNodeRoadTest, LabelsThatAreNewerThanThePartsAreNoticed) {
  for (const std::string& table : {std::string("label"), std::string("split")}) {
    SCOPED_TRACE(table);
    ASSERT_NO_FATAL_FAILURE(Cut(4, 9));
    const auto open = [&](std::string& said) {
      testing::internal::CaptureStderr();
      const Status status =
          PartitionedNodeRoad::Open(*world_.store, world_.budget, Options(2, 0, 1)).status();
      said = testing::internal::GetCapturedStderr();
      return status;
    };
    std::string said;
    EXPECT_OK(open(said));
    EXPECT_THAT(said, Not(HasSubstr("have been written since")));
    WriteBatch batch;
    table == "label" ? batch.SetLabel(3, 1) : batch.SetSplit(3, Split::kTest);
    ASSERT_OK(world_.store->Write(batch));
    EXPECT_OK(open(said));
    EXPECT_THAT(said, HasSubstr("rows of table \"" + table + "\" have been written since"));
    ASSERT_OK(CompactTable(*world_.store, world_.budget, table, false, {}));
    const Status refused = open(said);
    EXPECT_THAT(refused, IsStatus(Code::kUnsupported));
    EXPECT_THAT(refused.ToString(), HasSubstr("table \"" + table + "\" has been compacted"));
    EXPECT_THAT(refused.ToString(), HasSubstr("`quarry partition build` makes it anew"));
    EXPECT_OK(StoredPartitioning::Open(*world_.store, world_.budget, "default")) << "edges have no labels";
    ASSERT_OK(BuildPartitioning(*world_.store, world_.budget, {.table = "narrow"}, assignment_, {}));
    EXPECT_OK(open(said));
    EXPECT_THAT(said, Not(HasSubstr("have been written since")));
  }
}

TEST_F(PartitionedNodeRoadTest, OneWrongLabelIsNamed) {
  for (const int64_t wrong :
       {int64_t{1'000'000'000}, int64_t{0xFFFFFFFE}, int64_t{0xFFFFFFFF}, int64_t{1} << 40}) {
    SCOPED_TRACE(wrong);
    WriteBatch batch;
    batch.SetLabel(5, wrong);
    ASSERT_OK(world_.store->Write(batch));
    ASSERT_NO_FATAL_FAILURE(Cut(4, 9));  // link prediction has no use for labels
    {
      const auto parts = StoredPartitioning::Open(*world_.store, world_.budget, "default");
      ASSERT_OK(parts);
      const auto largest = (*parts)->FindLargestLabel(world_.budget);
      ASSERT_OK(largest);
      EXPECT_EQ(largest->node, 5U);
      EXPECT_EQ(largest->label, wrong);
      EXPECT_EQ(largest->next, SmallStore::kClasses - 1);
    }
    const auto road = PartitionedNodeRoad::Open(*world_.store, world_.budget, Options(2, 0, 1));
    if (wrong < 0xFFFFFFFE) {
      ASSERT_OK(road);
      EXPECT_EQ((*road)->class_count(), wrong + 1);
      continue;
    }
    EXPECT_THAT(road, IsStatus(Code::kInvalidArgument));
    EXPECT_THAT(road.status().ToString(), HasSubstr(fmt::format("the label of node 5 is {}", wrong)));
  }
}

TEST_F(PartitionedNodeRoadTest, WhatCannotBeIsRefused) {
  ASSERT_NO_FATAL_FAILURE(Cut(8, 9));
  const auto refused = [&](const PartitionedNodeRoadOptions& options) {
    return PartitionedNodeRoad::Open(*world_.store, world_.budget, options).status();
  };
  PartitionedNodeRoadOptions options = Options(4, 0, 1);
  options.spec.feature_table = "feature";
  EXPECT_THAT(refused(options), IsStatus(Code::kUnsupported));
  EXPECT_THAT(refused(options).ToString(), HasSubstr("has rows of table \"narrow\""));
  options = Options(4, 0, 1);
  options.spec.topology = "train";
  EXPECT_THAT(refused(options), IsStatus(Code::kUnsupported));
  EXPECT_THAT(refused(options).ToString(), HasSubstr("is of topology \"graph\", and batches need \"train\""));
  options = Options(4, 0, 1);
  options.parts.order = PartitionOrder::kComet;
  EXPECT_THAT(refused(options), IsStatus(Code::kUsage));
  EXPECT_THAT(refused(Options(9, 0, 1)), IsStatus(Code::kUsage));
  EXPECT_THAT(refused(Options(3, 4, 1)), IsStatus(Code::kUsage)) << "no whole number of logical parts";
  options = Options(4, 0, 1);
  options.spec.edge_ids = true;
  EXPECT_THAT(refused(options), IsStatus(Code::kUnsupported));
  options = Options(4, 0, 1);
  options.partitioning = "other";
  EXPECT_THAT(refused(options), IsStatus(Code::kNotFound));
  const auto road = Open(Options(4, 0, 1));
  EXPECT_THAT(road->StartPass({.seeds = {1}}), IsStatus(Code::kUnsupported));
  ASSERT_OK(BuildPartitioning(*world_.store, world_.budget, {}, assignment_, {}));
  EXPECT_THAT(refused(Options(4, 0, 1)), IsStatus(Code::kUnsupported)) << "no rows";
}

}  // namespace
}  // namespace quarry
