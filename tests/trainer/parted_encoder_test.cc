// What an encoder makes of all nodes, from the buckets of a partitioning, beside what it makes of them in memory.
#include "parted_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "graph_memory.h"
#include "partition/partitioned_store.h"
#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "support/backend_wrapper.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using testing_util::PartitionedStore;
using testing_util::RandomAssignment;
using testing_util::SmallStore;

constexpr uint64_t kEncodedSeed = 23;
constexpr uint32_t kEncodedDim = 12, kEncodedParts = 5;

// All but every twelfth node in part 0, so that with wide rows it takes several tiles.
Assignment LopsidedAssignment() {
  Assignment assignment{.parts = kEncodedParts, .part_of = {}};
  for (uint32_t node = 0; node < SmallStore::kNodes; ++node) {
    assignment.part_of.push_back(node % 12 == 0 ? 1 + node / 12 % (kEncodedParts - 1) : 0);
  }
  return assignment;
}

class PartedEncoderTest : public testing::Test {
 protected:
  PartedEncoderTest() { Cut(RandomAssignment(SmallStore::kNodes, kEncodedParts, 4), kEncodedDim); }

  void Cut(Assignment assignment, uint32_t dim) {
    assignment_ = std::move(assignment);
    dim_ = dim;
    partitioning_.reset();
    EXPECT_OK(BuildPartitioning(*world_.store, world_.budget, {}, assignment_, {}));
    auto opened = StoredPartitioning::Open(*world_.store, world_.budget, "default");
    EXPECT_OK(opened);
    partitioning_ = *std::move(opened);
    Rng rng(kEncodedSeed);
    vectors_.resize(SmallStore::kNodes * dim_);
    for (float& value : vectors_) value = static_cast<float>(rng.Unit() - 0.5);
  }

  std::unique_ptr<GnnLayers> Layers(uint32_t count, unsigned threads = 1) const {
    return GnnLayers::Make({.spec = spec_,
                            .widths = std::vector<uint32_t>(count + 1, dim_),
                            .seed = kEncodedSeed,
                            .threads = threads,
                            .input_gradients = true,
                            .split_products = true})
        .value();
  }

  // The oracle: all lists in memory, the other ends of each node's edges, both ways.
  std::vector<float> EncodedInMemory(uint32_t layers) const {
    std::vector<std::vector<NodeId>> lists(SmallStore::kNodes);
    for (const auto& [source, destination, relation] :
         world_.EdgesIn(PartitionedStore::NewIds(assignment_))) {
      lists[source].push_back(destination);
      lists[destination].push_back(source);
    }
    std::vector<uint64_t> indptr(1);
    std::vector<NodeId> indices;
    for (const std::vector<NodeId>& list : lists) {
      indices.insert(indices.end(), list.begin(), list.end());
      indptr.push_back(indices.size());
    }
    std::vector<float> rows = vectors_;
    EXPECT_OK(ForwardGraph(*Layers(layers), indptr, indices, rows));
    return rows;
  }

  MemoryBudget BudgetOf(uint32_t layers, uint32_t group) const {
    const PartitionDirectory& directory = partitioning_->directory();
    return MemoryBudget(EncodePartsBytes(directory, spec_, dim_, layers, group) -
                        EncodePartsBytes(directory, spec_, dim_, layers, 1));
  }

  // Stops at the call of progress number `stop_at`, from 1 on.
  Result<std::vector<float>> Encoded(uint32_t layers, unsigned threads, MemoryBudget& budget,
                                     uint64_t stop_at = 0) {
    vectors_read_ = calls_ = done_ = total_ = 0;
    const auto sage = Layers(layers, threads);
    const PartedEncoding encoding{.partitioning = *partitioning_,
                                  .backend = *disk_,
                                  .scratch_folder = world_.store->path(),
                                  .layers = *sage,
                                  .spec = spec_,
                                  .dim = dim_};
    QUARRY_TRY(const auto rows,
               EncodeParts(
                   encoding, budget,
                   [&](std::span<const RowId> ids, std::span<float> values) {
                     vectors_read_ += ids.size();
                     for (size_t i = 0; i < ids.size(); ++i) {
                       std::copy_n(vectors_.begin() + ids[i] * dim_, dim_, values.begin() + i * dim_);
                     }
                     return Status::Ok();
                   },
                   [&](uint64_t done, uint64_t total) {
                     EXPECT_GE(done, done_) << "it goes back";
                     done_ = done;
                     total_ = total;
                     return ++calls_ == stop_at ? Status(Code::kCancelled, "stopped") : Status::Ok();
                   }));
    std::vector<RowId> ids(SmallStore::kNodes);
    std::iota(ids.begin(), ids.end(), RowId{0});
    std::vector<float> values(ids.size() * dim_);
    QUARRY_RETURN_IF_ERROR(rows->Read(ids, values));
    return values;
  }

  const std::unique_ptr<IoBackend> disk_ = MakeDefaultBackend();
  PartitionedStore world_{*disk_};
  Assignment assignment_;
  uint32_t dim_ = 0;
  ModelSpec spec_;
  std::unique_ptr<StoredPartitioning> partitioning_;
  std::vector<float> vectors_;
  uint64_t vectors_read_ = 0;
  uint64_t calls_ = 0, done_ = 0, total_ = 0;  // of progress
};

class PartedEncodersTest : public PartedEncoderTest, public testing::WithParamInterface<ModelSpec> {
 protected:
  PartedEncodersTest() { spec_ = GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Encoders, PartedEncodersTest,
                         testing::Values(ModelSpec{}, ModelSpec{.aggregator = Aggregator::kMax},
                                         ModelSpec{.model = GnnKind::kGcn},
                                         ModelSpec{.model = GnnKind::kGat, .heads = 2},
                                         ModelSpec{.model = GnnKind::kGin}));

TEST_P(PartedEncodersTest, EncodesAsInMemoryToTheSameBitsForAnyThreadsAndMemory) {
  for (const bool wide : {false, true}) {
    if (wide) Cut(LopsidedAssignment(), 256);  // 512 rows go through a layer together
    for (const uint32_t layers : {1U, 2U, 3U}) {
      if (wide && layers == 3) continue;
      const std::vector<float> expected = EncodedInMemory(layers);
      std::vector<float> first;
      for (const unsigned threads : {1U, 3U}) {
        for (const uint32_t group : {1U, 2U, 3U, kEncodedParts}) {
          SCOPED_TRACE(fmt::format("seed {}, {} floats, {} layers, {} threads, states of {} parts",
                                   kEncodedSeed, dim_, layers, threads, group));
          MemoryBudget budget = BudgetOf(layers, group);
          const auto encoded = Encoded(layers, threads, budget);
          ASSERT_OK(encoded);
          EXPECT_EQ(budget.used_bytes(), 0u);
          const uint64_t groups = CeilDiv(kEncodedParts, group);
          const bool own_first = spec_.model == GnnKind::kGat;
          EXPECT_EQ(vectors_read_, (groups + (own_first ? 1 : 0)) * SmallStore::kNodes)
              << "not so many states at a time";
          EXPECT_EQ(calls_, (layers * (groups + 1) + 1) * kEncodedParts);
          EXPECT_EQ(done_, total_);
          EXPECT_EQ(total_, 2 * layers * world_.world.csc.indices.size());
          if (first.empty()) first = *encoded;
          EXPECT_TRUE(*encoded == first);
        }
      }
      for (size_t i = 0; i < first.size(); ++i) {
        ASSERT_NEAR(first[i], expected[i], 5e-5 * std::max(1.0F, std::abs(expected[i]))) << i;
      }
    }
  }
}

TEST_F(PartedEncoderTest, IsStoppedAtAnyPart) {
  constexpr uint32_t kLayers = 2, kGroup = 2;
  MemoryBudget budget = BudgetOf(kLayers, kGroup);
  ASSERT_OK(Encoded(kLayers, 1, budget));
  const uint64_t calls = calls_;
  for (uint64_t call = 1; call <= calls; ++call) {
    EXPECT_THAT(Encoded(kLayers, 1, budget, call), IsStatus(Code::kCancelled));
    EXPECT_EQ(calls_, call) << "it went on";
    EXPECT_EQ(budget.used_bytes(), 0u);
  }
}

// Flips a bit of what is read, once it is told to.
class FlippingBackend final : public BackendWrapper {
 public:
  using BackendWrapper::BackendWrapper;
  Status ReadAt(const File& file, uint64_t offset, std::span<std::byte> out) override {
    QUARRY_RETURN_IF_ERROR(inner().ReadAt(file, offset, out));
    if (flip) out[out.size() / 3] ^= std::byte{4};
    return Status::Ok();
  }
  bool flip = false;
};

TEST_F(PartedEncoderTest, ScratchRowsAreVerified) {
  constexpr uint64_t kRows = 100'000;
  FlippingBackend disk(*disk_);
  const auto rows = ScratchRows::Make(disk, world_.store->path(), kRows, 7);
  ASSERT_OK(rows);
  Rng rng(kEncodedSeed);
  std::vector<float> values(kRows * 7);
  for (float& value : values) value = static_cast<float>(rng.Unit());
  for (uint64_t first = 0; first < kRows;) {
    const uint64_t count = std::min(kRows - first, 1 + rng.Below(30'000));
    ASSERT_OK((*rows)->Append(std::span(values).subspan(first * 7, count * 7)));
    first += count;
  }
  for (int round = 0; round < 20; ++round) {
    std::vector<RowId> ids;
    for (int i = 0; i < 50; ++i) ids.push_back(rng.Below(kRows));
    std::vector<float> read(ids.size() * 7);
    ASSERT_OK((*rows)->Read(ids, read));
    for (size_t i = 0; i < ids.size(); ++i) {
      for (size_t c = 0; c < 7; ++c) ASSERT_EQ(read[i * 7 + c], values[ids[i] * 7 + c]) << ids[i];
    }
  }
  std::vector<RowId> ids{0};
  std::vector<float> read(7);
  ASSERT_OK((*rows)->Read(ids, read));
  disk.flip = true;
  ids[0] = kRows - 1;
  const Status flipped = (*rows)->Read(ids, read);
  EXPECT_THAT(flipped, IsStatus(Code::kCorruption));
  EXPECT_THAT(std::string(flipped.message()), HasSubstr("are not what was written there"));
  disk.flip = false;
  ASSERT_OK((*rows)->Read(ids, read));
  EXPECT_EQ(read[6], values.back());
}

}  // namespace
}  // namespace quarry
