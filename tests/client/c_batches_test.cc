// Rows into the caller's memory, and a next batch that is waited for so long.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "c/handles.h"
#include "client/c_api_util.h"

namespace quarry {
namespace {

using namespace testing_util;  // NOLINT: a test of what it has
using testing::HasSubstr;

class CRowsTest : public CStoreTest {};
INSTANTIATE_TEST_SUITE_P(Kinds, CRowsTest, kBothKinds, KindName);

TEST_P(CRowsTest, ABatchsRowsAreGatheredWhereTheCallerWantsThem) {
  const std::vector<uint32_t> fanouts = {4, 3};
  const quarry_live_spec live = {
      .size = sizeof(live), .fanouts = fanouts.data(), .fanout_count = 2, .batch_size = 64};
  quarry_stream* stream = nullptr;
  ASSERT_EQ(quarry_open_live(store_, &live, nullptr, &stream), QUARRY_OK) << quarry_last_error();
  ASSERT_EQ(quarry_start_pass(stream, nullptr, nullptr), QUARRY_OK) << quarry_last_error();
  quarry_batch* batch = nullptr;
  ASSERT_EQ(quarry_next(stream, &batch), QUARRY_OK) << quarry_last_error();
  quarry_batch_arrays arrays{};
  ASSERT_EQ(quarry_batch_get(batch, &arrays, sizeof(arrays)), QUARRY_OK);
  constexpr size_t kStride = 160;  // of the caller's; a row has 128 bytes
  for (const int type : {0, static_cast<int>(QUARRY_FLOAT32)}) {
    std::vector<std::byte> out(arrays.node_count * kStride, std::byte{7});
    ASSERT_EQ(quarry_batch_gather(batch, type, out.data(), kStride, 3), QUARRY_OK) << quarry_last_error();
    for (uint32_t i = 0; i < arrays.node_count; ++i) {
      const std::vector<std::byte> row = database_.graph().Row(arrays.nodes[i]);
      ASSERT_EQ(std::memcmp(out.data() + i * kStride, row.data(), row.size()), 0) << i;
      ASSERT_EQ(out[i * kStride + 128], std::byte{7}) << "between rows";
    }
  }
  std::vector<float> dense(arrays.node_count * size_t{32});
  ASSERT_EQ(quarry_batch_gather(batch, QUARRY_FLOAT32, dense.data(), 0, 0), QUARRY_OK);
  const std::vector<std::byte> second = database_.graph().Row(arrays.nodes[1]);
  EXPECT_EQ(std::memcmp(dense.data() + 32, second.data(), 128), 0);
  EXPECT_EQ(quarry_batch_gather(batch, QUARRY_INT64, dense.data(), 0, 0), QUARRY_INVALID_ARGUMENT);
  EXPECT_EQ(quarry_batch_gather(batch, 0, dense.data(), 127, 0), QUARRY_INVALID_ARGUMENT);
  EXPECT_THAT(quarry_last_error(), HasSubstr("127"));
  quarry_batch_free(batch);
  quarry_stream_free(stream);

  const uint32_t seed = 1;
  ASSERT_EQ(quarry_sample(store_, nullptr, &seed, 1, fanouts.data(), 2, QUARRY_IN, 5, &batch), QUARRY_OK);
  EXPECT_EQ(quarry_batch_gather(batch, 0, dense.data(), 0, 0), QUARRY_INVALID_ARGUMENT) << "no features";
  quarry_batch_free(batch);
}

TEST_P(CRowsTest, BlocksAndStreamsThatAreAskedForThemHaveEdgeIds) {
  uint64_t edge_count = 0;
  std::vector<uint32_t> edges(3 * database_.graph().Edges().size());
  ASSERT_EQ(quarry_read_edges(store_, nullptr, 0, edges.size() / 3, edges.data(), &edge_count), QUARRY_OK);
  ASSERT_EQ(3 * edge_count, edges.size());
  const auto expect_ids = [&](const quarry_batch* batch) {
    quarry_batch_arrays arrays{};
    ASSERT_EQ(quarry_batch_get(batch, &arrays, sizeof(arrays)), QUARRY_OK);
    ASSERT_NE(arrays.edge_ids, nullptr);
    for (uint32_t v = 0; v < arrays.target_count; ++v) {
      for (uint32_t e = arrays.indptr[v]; e < arrays.indptr[v + 1]; ++e) {
        ASSERT_LT(arrays.edge_ids[e], edge_count);
        const uint32_t* const edge = &edges[3 * arrays.edge_ids[e]];
        ASSERT_EQ(edge[0], arrays.nodes[arrays.indices[e]]);
        ASSERT_EQ(edge[2], arrays.nodes[v]);
      }
    }
    const size_t before = offsetof(quarry_batch_arrays, edge_ids);  // as a program of version 1.2 asks
    arrays.edge_ids = nullptr;
    ASSERT_EQ(quarry_batch_get(batch, &arrays, before), QUARRY_OK);
    EXPECT_EQ(arrays.edge_ids, nullptr);
  };
  const std::vector<uint32_t> fanouts = {4, 3};
  const std::vector<uint32_t> seeds = {1, 5, 299};
  quarry_batch* batch = nullptr;
  ASSERT_EQ(quarry_sample(store_, nullptr, seeds.data(), 3, fanouts.data(), 2, QUARRY_IN, 5, &batch),
            QUARRY_OK);
  expect_ids(batch);
  quarry_batch_free(batch);
  for (const bool asked : {false, true}) {
    const quarry_live_spec live = {.size = sizeof(live),
                                   .fanouts = fanouts.data(),
                                   .fanout_count = 2,
                                   .batch_size = 64,
                                   .edge_ids = asked ? 1 : 0};
    quarry_stream* stream = nullptr;
    ASSERT_EQ(quarry_open_live(store_, &live, nullptr, &stream), QUARRY_OK) << quarry_last_error();
    uint64_t batches = 0;
    ASSERT_EQ(quarry_start_pass(stream, nullptr, &batches), QUARRY_OK) << quarry_last_error();
    ASSERT_EQ(quarry_next(stream, &batch), QUARRY_OK) << quarry_last_error();
    if (asked) {
      expect_ids(batch);
    } else {
      quarry_batch_arrays arrays{};
      ASSERT_EQ(quarry_batch_get(batch, &arrays, sizeof(arrays)), QUARRY_OK);
      EXPECT_EQ(arrays.edge_ids, nullptr);
    }
    quarry_batch_free(batch);
    quarry_stream_free(stream);
  }
  const quarry_live_spec out = {.size = sizeof(out), .direction = QUARRY_OUT, .edge_ids = 1};
  quarry_stream* stream = nullptr;
  EXPECT_EQ(quarry_open_live(store_, &out, nullptr, &stream), QUARRY_UNSUPPORTED);
  EXPECT_THAT(quarry_last_error(), HasSubstr("'out' has no edge ids"));
  const quarry_live_spec in = {.size = sizeof(in), .edge_ids = 1};
  const quarry_superbatch_spec fresh = {.size = sizeof(fresh), .live = &in};
  ASSERT_EQ(quarry_open_superbatch(store_, &fresh, nullptr, &stream), QUARRY_OK) << quarry_last_error();
  uint64_t batches = 0;
  ASSERT_EQ(quarry_start_pass(stream, nullptr, &batches), QUARRY_OK) << quarry_last_error();
  ASSERT_EQ(quarry_next(stream, &batch), QUARRY_OK) << quarry_last_error();
  expect_ids(batch);
  quarry_batch_free(batch);
  quarry_stream_free(stream);
}

TEST_P(CRowsTest, BlocksAreSampledByASpec) {
  const std::vector<uint32_t> seeds = {1, 5, 299};
  const auto sample = [&](quarry_live_spec spec, std::vector<uint32_t> fanouts, uint64_t seed) {
    spec.size = sizeof(spec);
    spec.fanouts = fanouts.data();
    spec.fanout_count = fanouts.size();
    quarry_batch* batch = nullptr;
    const int code = quarry_sample_by(store_, &spec, seeds.data(), seeds.size(), seed, &batch);
    return std::pair(code, std::unique_ptr<quarry_batch, void (*)(quarry_batch*)>(batch, quarry_batch_free));
  };
  const auto arrays_of = [](const quarry_batch* batch) {
    quarry_batch_arrays arrays{};
    EXPECT_EQ(quarry_batch_get(batch, &arrays, sizeof(arrays)), QUARRY_OK);
    return arrays;
  };
  // The block of quarry_sample.
  const std::vector<uint32_t> fanouts = {4, 3};
  quarry_batch* plain = nullptr;
  ASSERT_EQ(quarry_sample(store_, nullptr, seeds.data(), 3, fanouts.data(), 2, QUARRY_IN, 5, &plain),
            QUARRY_OK);
  const auto [code, batch] = sample({.edge_ids = 1}, fanouts, 5);
  ASSERT_EQ(code, QUARRY_OK) << quarry_last_error();
  const quarry_batch_arrays one = arrays_of(plain), other = arrays_of(batch.get());
  EXPECT_TRUE(
      std::ranges::equal(std::span(one.nodes, one.node_count), std::span(other.nodes, other.node_count)));
  EXPECT_TRUE(
      std::ranges::equal(std::span(one.indices, one.edge_count), std::span(other.indices, other.edge_count)));
  EXPECT_TRUE(std::ranges::equal(std::span(one.edge_ids, one.edge_count),
                                 std::span(other.edge_ids, other.edge_count)));
  quarry_batch_free(plain);
  // All neighbors of the seeds.
  uint64_t edge_count = 0;
  std::vector<uint32_t> edges(3 * database_.graph().Edges().size());
  ASSERT_EQ(quarry_read_edges(store_, nullptr, 0, edges.size() / 3, edges.data(), &edge_count), QUARRY_OK);
  const auto [all_code, all] = sample({}, {QUARRY_ALL_NEIGHBORS}, 5);
  ASSERT_EQ(all_code, QUARRY_OK) << quarry_last_error();
  const quarry_batch_arrays taken = arrays_of(all.get());
  for (size_t i = 0; i < seeds.size(); ++i) {
    std::vector<uint32_t> expected, found;
    for (uint64_t e = 0; e < edge_count; ++e) {
      if (edges[3 * e + 2] == seeds[i]) expected.push_back(edges[3 * e]);
    }
    for (uint32_t e = taken.indptr[i]; e < taken.indptr[i + 1]; ++e)
      found.push_back(taken.nodes[taken.indices[e]]);
    std::ranges::sort(found);
    EXPECT_EQ(found, expected);
  }
  EXPECT_EQ(sample({.replace = 1}, {7}, 5).first, QUARRY_OK);
  // What is not drawn so.
  EXPECT_EQ(sample({.replace = 1}, {QUARRY_ALL_NEIGHBORS}, 5).first, QUARRY_USAGE);
  EXPECT_EQ(sample({.weighted = 1}, {2}, 5).first, QUARRY_INVALID_ARGUMENT) << "edges have no weights";
  EXPECT_EQ(sample({.sampler = "labor"}, {2}, 5).first, QUARRY_UNSUPPORTED);
  const uint32_t by_type = 2;
  EXPECT_EQ(sample({.relation_fanouts = &by_type, .relation_fanout_count = 1}, {2}, 5).first,
            QUARRY_INVALID_ARGUMENT);
  EXPECT_THAT(quarry_last_error(), HasSubstr("no types of edges"));
}

TEST_P(CRowsTest, IdsOfALookupComeInAnyOrderAndMoreThanOnce) {
  const std::vector<uint32_t> ids = {299, 7, 7, 0, 299, 12};
  std::vector<float> out(ids.size() * 40);
  ASSERT_EQ(quarry_lookup_into(store_, "feature", ids.data(), ids.size(), nullptr, QUARRY_FLOAT32, out.data(),
                               40 * sizeof(float)),
            QUARRY_OK)
      << quarry_last_error();
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::vector<std::byte> row = database_.graph().Row(ids[i]);
    EXPECT_EQ(std::memcmp(out.data() + 40 * i, row.data(), 128), 0) << i;
  }
  std::vector<int64_t> labels(ids.size());
  ASSERT_EQ(quarry_lookup_into(store_, "label", ids.data(), ids.size(), nullptr, 0, labels.data(), 0),
            QUARRY_OK)
      << quarry_last_error();
  EXPECT_EQ(labels[3], database_.graph().Label(0));
  EXPECT_EQ(labels[5], database_.graph().Label(12));
  EXPECT_EQ(quarry_lookup_into(store_, "label", ids.data(), 1, nullptr, QUARRY_FLOAT32, out.data(), 0),
            QUARRY_INVALID_ARGUMENT);
  EXPECT_EQ(quarry_lookup_into(store_, "feature", ids.data(), 0, nullptr, 0, nullptr, 0), QUARRY_OK)
      << "none";
}

TEST(CRowsTypesTest, RowsOfEveryFloatTypeAreDecoded) {
  for (const ElementType type :
       {ElementType::kFloat32, ElementType::kFloat16, ElementType::kBfloat16, ElementType::kInt8}) {
    const TinyDatabase database{{.nodes = 40, .dim = 6, .type = type}};
    quarry_store* store = nullptr;
    ASSERT_EQ(quarry_open(database.path().c_str(), nullptr, &store), QUARRY_OK) << quarry_last_error();
    const std::vector<uint32_t> ids = {3, 2};
    std::vector<float> out(12), expected(6);
    ASSERT_EQ(quarry_lookup_into(store, "feature", ids.data(), 2, nullptr, QUARRY_FLOAT32, out.data(), 0),
              QUARRY_OK);
    DecodeRow(type, database.graph().Row(2), expected);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), out.begin() + 6)) << ElementTypeName(type);
    quarry_close(store);
  }
}

// A stream whose batches come when the test says so.
class HeldBackStream final : public client::Stream {
 public:
  uint32_t feature_dim() const override { return 0; }
  uint32_t slots() const override { return 1; }
  uint64_t timestamp() const override { return 0; }
  Result<uint64_t> StartPass(wire::StartPass) override { return 2; }
  Result<std::unique_ptr<Batch>> Next() override {
    std::unique_lock lock(mutex_);
    ++asked_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return allowed_ > 0; });
    --allowed_;
    return std::make_unique<Batch>(
        BatchView{.index = given_++, .hop_offsets = std::span(kNone), .indptr = std::span(kNone)}, nullptr);
  }
  Result<wire::Counters> Stats() override { return wire::Counters(); }

  void Allow() {
    const std::lock_guard lock(mutex_);
    ++allowed_;
    changed_.notify_all();
  }
  void WaitUntilAsked(int times) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return asked_ >= times; });
  }
  int asked() {
    const std::lock_guard lock(mutex_);
    return asked_;
  }

 private:
  static constexpr uint32_t kNone[] = {0};

  std::mutex mutex_;
  std::condition_variable changed_;
  int allowed_ = 0, asked_ = 0;
  uint64_t given_ = 0;
};

class NextWithinTest : public testing::Test {
 protected:
  NextWithinTest() {
    auto made = std::make_unique<HeldBackStream>();
    source_ = made.get();
    stream_ = new quarry_stream{.stream = std::move(made)};
  }
  ~NextWithinTest() override { quarry_stream_free(stream_); }

  uint64_t IndexOf(quarry_batch* batch) {
    quarry_batch_arrays arrays{};
    EXPECT_EQ(quarry_batch_get(batch, &arrays, sizeof(arrays)), QUARRY_OK);
    quarry_batch_free(batch);
    return arrays.index;
  }

  HeldBackStream* source_ = nullptr;
  quarry_stream* stream_ = nullptr;
  quarry_batch* batch_ = nullptr;
};

TEST_F(NextWithinTest, ABatchThatIsLateIsTheNextCalls) {
  EXPECT_EQ(quarry_next_within(stream_, 0.01, &batch_), QUARRY_TIMED_OUT);
  EXPECT_EQ(batch_, nullptr);
  EXPECT_THAT(quarry_last_error(), HasSubstr("0.01 s"));
  EXPECT_EQ(quarry_next_within(stream_, 0, &batch_), QUARRY_TIMED_OUT);
  source_->WaitUntilAsked(1);
  source_->Allow();
  ASSERT_EQ(quarry_next_within(stream_, -1, &batch_), QUARRY_OK) << quarry_last_error();
  EXPECT_EQ(IndexOf(batch_), 0u);
  EXPECT_EQ(source_->asked(), 1);
  EXPECT_EQ(quarry_next_within(stream_, 0, &batch_), QUARRY_TIMED_OUT);
  source_->Allow();
  ASSERT_EQ(quarry_next(stream_, &batch_), QUARRY_OK) << "without a limit, for the batch that is under way";
  EXPECT_EQ(IndexOf(batch_), 1u);
  EXPECT_EQ(source_->asked(), 2);
}

TEST_F(NextWithinTest, WhatWasBegunIsTheNextCalls) {
  ASSERT_EQ(quarry_begin_next(stream_), QUARRY_OK) << quarry_last_error();
  source_->WaitUntilAsked(1);
  ASSERT_EQ(quarry_begin_next(stream_), QUARRY_OK) << "is under way";
  source_->Allow();
  ASSERT_EQ(quarry_next(stream_, &batch_), QUARRY_OK) << quarry_last_error();
  EXPECT_EQ(IndexOf(batch_), 0u);
  EXPECT_EQ(source_->asked(), 1);
}

TEST_F(NextWithinTest, AnotherThreadEndsTheWaiting) {
  std::thread other([this] {
    source_->WaitUntilAsked(1);
    quarry_stream_cancel(stream_);
  });
  EXPECT_EQ(quarry_next_within(stream_, -1, &batch_), QUARRY_CANCELLED);
  other.join();
  source_->Allow();
  ASSERT_EQ(quarry_next_within(stream_, -1, &batch_), QUARRY_OK) << quarry_last_error();
  EXPECT_EQ(IndexOf(batch_), 0u);
  quarry_stream_cancel(stream_);
  EXPECT_EQ(quarry_next_within(stream_, -1, &batch_), QUARRY_CANCELLED) << "the next, where none waits";
  source_->Allow();
}

TEST_F(NextWithinTest, ANewPassForgetsWhatWasUnderWay) {
  EXPECT_EQ(quarry_next_within(stream_, 0, &batch_), QUARRY_TIMED_OUT);
  quarry_stream_cancel(stream_);
  source_->Allow();
  ASSERT_EQ(quarry_start_pass(stream_, nullptr, nullptr), QUARRY_OK);
  source_->Allow();
  ASSERT_EQ(quarry_next_within(stream_, -1, &batch_), QUARRY_OK) << quarry_last_error();
  EXPECT_EQ(IndexOf(batch_), 1u) << "the first was of the pass before";
}

// By whichever call the batch comes, and of the pass that asked for it alone.
TEST_F(NextWithinTest, EachBatchIsPreparedOnceBeforeItIsGivenOut) {
  std::vector<uint64_t> prepared;
  const quarry_pass pass = {.size = sizeof(pass),
                            .prepare =
                                [](const quarry_batch* batch, void* context) {
                                  quarry_batch_arrays arrays{};
                                  EXPECT_EQ(quarry_batch_get(batch, &arrays, sizeof(arrays)), QUARRY_OK);
                                  static_cast<std::vector<uint64_t>*>(context)->push_back(arrays.index);
                                },
                            .prepare_context = &prepared};
  ASSERT_EQ(quarry_start_pass(stream_, &pass, nullptr), QUARRY_OK) << quarry_last_error();
  for (int i = 0; i < 4; ++i) source_->Allow();
  ASSERT_EQ(quarry_next_within(stream_, -1, &batch_), QUARRY_OK) << quarry_last_error();
  EXPECT_EQ(prepared, std::vector<uint64_t>({0}));
  EXPECT_EQ(IndexOf(batch_), 0u);
  ASSERT_EQ(quarry_begin_next(stream_), QUARRY_OK) << quarry_last_error();
  ASSERT_EQ(quarry_next_within(stream_, -1, &batch_), QUARRY_OK) << quarry_last_error();
  EXPECT_EQ(IndexOf(batch_), 1u);
  ASSERT_EQ(quarry_next(stream_, &batch_), QUARRY_OK) << quarry_last_error();
  EXPECT_EQ(IndexOf(batch_), 2u);
  EXPECT_EQ(prepared, std::vector<uint64_t>({0, 1, 2}));
  ASSERT_EQ(quarry_start_pass(stream_, nullptr, nullptr), QUARRY_OK) << quarry_last_error();
  ASSERT_EQ(quarry_next_within(stream_, -1, &batch_), QUARRY_OK) << quarry_last_error();
  EXPECT_EQ(IndexOf(batch_), 3u);
  EXPECT_EQ(prepared.size(), 3u) << "the pass that asked for it is over";
}

}  // namespace
}  // namespace quarry
