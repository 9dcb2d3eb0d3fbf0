#include "quarry/partition/partition_buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "partition/partitioned_store.h"
#include "quarry/base/thread.h"
#include "quarry/storage/partition_files.h"
#include "support/fault_backend.h"
#include "support/flip_byte.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using testing_util::AppendEdges;
using testing_util::FlipByte;
using testing_util::PartitionedStore;
using testing_util::RandomAssignment;
using testing_util::SmallStore;
using testing_util::TypedEdge;

constexpr uint32_t kParts = 12;

class PartitionBufferTest : public testing::Test {
 protected:
  PartitionBufferTest() {
    EXPECT_OK(BuildPartitioning(*world_.store, world_.budget, {.table = "narrow"}, assignment_, {}));
    auto opened = StoredPartitioning::Open(*world_.store, world_.budget, "default");
    EXPECT_OK(opened);
    parts_ = *std::move(opened);
    edges_ = world_.EdgesIn(new_ids_);
  }

  std::unique_ptr<PartitionBuffer> Make(const SwapSpec& spec, const PartitionBufferOptions& options = {}) {
    auto plan = PlanSwaps(spec);
    EXPECT_OK(plan);
    auto buffer = PartitionBuffer::Make(*parts_, backend_, world_.budget, *std::move(plan), options);
    EXPECT_OK(buffer);
    return *std::move(buffer);
  }

  // Rows and edges of the step are those of the plain table and topology.
  void ExpectStep(const PartitionBuffer& buffer, bool old_ids = false) {
    const PartitionDirectory& directory = parts_->directory();
    const std::vector<uint32_t>& held = buffer.step().parts;
    std::vector<TypedEdge> edges;
    for (const uint32_t source : held) {
      for (const uint32_t destination : held) {
        AppendEdges(directory, source, destination, buffer.Bucket(source, destination), edges);
      }
    }
    std::ranges::sort(edges);
    std::vector<TypedEdge> expected;
    const auto is_held = [&](NodeId node) {
      return std::ranges::binary_search(held, directory.PartOf(node));
    };
    std::ranges::copy_if(edges_, std::back_inserter(expected), [&](const TypedEdge& edge) {
      return is_held(std::get<0>(edge)) && is_held(std::get<1>(edge));
    });
    ASSERT_EQ(edges, expected);
    const std::vector<std::byte>& rows = world_.world.FindTable("narrow").rows;
    for (size_t node = 0; node < new_ids_.size(); ++node) {
      const uint32_t part = directory.PartOf(new_ids_[node]);
      if (!std::ranges::binary_search(held, part)) continue;
      const uint64_t at = (new_ids_[node] - directory.part_starts[part]) * directory.row_stride;
      ASSERT_EQ(std::memcmp(buffer.Rows(part).data() + at, rows.data() + node * 28, 28), 0);
      ASSERT_EQ(buffer.OldIds(part).size(), old_ids ? directory.part_nodes(part) : 0);
      if (!old_ids) continue;
      ASSERT_EQ(buffer.OldIds(part)[new_ids_[node] - directory.part_starts[part]], node);
    }
  }

  uint64_t InList(const PartitionBuffer& buffer, NodeId node, std::multiset<NodeId>& sources) const {
    const PartitionDirectory& directory = parts_->directory();
    const uint32_t part = directory.PartOf(node);
    const auto local = static_cast<uint32_t>(node - directory.part_starts[part]);
    for (const uint32_t other : buffer.step().parts) {
      for (const uint32_t neighbor : buffer.Bucket(other, part).in.Neighbors(local)) {
        sources.insert(static_cast<NodeId>(directory.part_starts[other] + neighbor));
      }
    }
    return sources.size();
  }

  const std::unique_ptr<IoBackend> disk_ = MakeDefaultBackend();
  FaultBackend backend_{*disk_};
  PartitionedStore world_{*disk_};
  const Assignment assignment_ = RandomAssignment(SmallStore::kNodes, kParts, 8);
  const std::vector<NodeId> new_ids_ = PartitionedStore::NewIds(assignment_);
  std::unique_ptr<StoredPartitioning> parts_;
  std::vector<TypedEdge> edges_;
};

const SwapSpec kSpecs[] = {
    {.order = PartitionOrder::kBeta, .parts = kParts, .buffer = 4, .seed = 1},
    {.order = PartitionOrder::kComet, .parts = kParts, .buffer = 4, .logical = 6, .seed = 2},
    {.order = PartitionOrder::kComet, .parts = kParts, .buffer = kParts, .logical = 2, .seed = 3},
    {.order = PartitionOrder::kEuler, .parts = kParts, .buffer = 8, .logical = 3, .seed = 4},
    {.order = PartitionOrder::kNode,
     .parts = kParts,
     .buffer = 3,
     .logical = 12,
     .training_parts = 12,
     .seed = 5},
    {.order = PartitionOrder::kNode, .parts = kParts, .buffer = 5, .training_parts = 2, .seed = 6},
};

TEST_F(PartitionBufferTest, HoldsWhatTheGraphHasOfEachStepAndReadsWhatThePlanSays) {
  const PartitionDirectory& directory = parts_->directory();
  const uint64_t before = world_.budget.used_bytes();
  for (const SwapSpec& spec : kSpecs) {
    for (const bool prefetch : {true, false}) {
      SCOPED_TRACE(testing::Message() << PartitionOrderName(spec.order) << ", prefetch " << prefetch);
      const PartitionBufferOptions options = {.prefetch = prefetch, .labels = prefetch, .old_ids = !prefetch};
      const auto buffer = Make(spec, options);
      EXPECT_EQ(world_.budget.used_bytes() - before, buffer->memory_bytes());
      uint64_t steps = 0;
      uint64_t most = 0;
      while (true) {
        const auto more = buffer->Next();
        ASSERT_OK(more);
        most = std::max(most, buffer->held_bytes());
        if (!*more) break;
        ASSERT_EQ(buffer->step_number(), steps++);
        ASSERT_NO_FATAL_FAILURE(ExpectStep(*buffer, options.old_ids));
      }
      EXPECT_EQ(steps, buffer->plan().steps().size());
      EXPECT_EQ(most, buffer->memory_bytes());  // exactly what was reserved, in the largest step
      const SwapCost cost =
          CostOf(buffer->plan(), PartBytesRead(directory, options), directory.BucketBytes());
      EXPECT_EQ(buffer->stats().bytes_read, cost.bytes_read);
      EXPECT_EQ(buffer->stats().parts_read, cost.parts_read);
      EXPECT_FALSE(buffer->Next().value());
    }
  }
  EXPECT_EQ(world_.budget.used_bytes(), before);
}

TEST_F(PartitionBufferTest, AnEpochUsesEveryEdgeOnce) {
  const PartitionDirectory& directory = parts_->directory();
  for (const SwapSpec& spec : std::span(kSpecs).first(4)) {
    const auto buffer = Make(spec);
    std::vector<TypedEdge> used;
    while (buffer->Next().value()) {
      for (const PartPair& pair : buffer->step().buckets) {
        AppendEdges(directory, pair.source, pair.destination, buffer->Bucket(pair.source, pair.destination),
                    used);
      }
    }
    std::ranges::sort(used);
    EXPECT_EQ(used, edges_);
  }
}

TEST_F(PartitionBufferTest, ANodesListIsTheUnionOfItsBuckets) {
  const auto buffer = Make(kSpecs[1]);
  while (buffer->Next().value()) {
    const PartitionDirectory& directory = parts_->directory();
    const std::vector<uint32_t>& held = buffer->step().parts;
    for (size_t old_id = 0; old_id < new_ids_.size(); ++old_id) {
      if (!std::ranges::binary_search(held, assignment_.part_of[old_id])) continue;
      std::multiset<NodeId> sources, expected;
      InList(*buffer, new_ids_[old_id], sources);
      const auto& csc = world_.world.csc;
      for (uint64_t i = csc.indptr[old_id]; i < csc.indptr[old_id + 1]; ++i) {
        const NodeId source = new_ids_[csc.indices[i]];
        if (std::ranges::binary_search(held, directory.PartOf(source))) expected.insert(source);
      }
      ASSERT_EQ(sources, expected);
    }
  }
}

TEST_F(PartitionBufferTest, LessMemoryThanItTakesIsRefused) {
  SwapPlan plan = PlanSwaps(kSpecs[0]).value();
  const uint64_t bytes = PartitionBuffer::Bytes(parts_->directory(), plan, {});
  EXPECT_GT(bytes, PartitionBuffer::Bytes(parts_->directory(), plan, {.prefetch = false}));
  MemoryBudget small(bytes - 1);
  const auto refused = PartitionBuffer::Make(*parts_, backend_, small, plan);
  EXPECT_THAT(refused, IsStatus(Code::kOutOfBudget));
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("a buffer of 4 of 12 parts"));
  MemoryBudget enough(bytes);
  EXPECT_OK(PartitionBuffer::Make(*parts_, backend_, enough, plan));
  const auto other =
      PartitionBuffer::Make(*parts_, backend_, enough,
                            PlanSwaps({.order = PartitionOrder::kBeta, .parts = 4, .buffer = 2}).value());
  EXPECT_THAT(other, IsStatus(Code::kUsage));
}

TEST_F(PartitionBufferTest, TheTunedBufferHoldsThePlansOfAllEpochs) {
  const PartitionDirectory& directory = parts_->directory();
  uint32_t last = 0;
  for (uint64_t memory = 40 * kKiB; memory < 2 * kMiB; memory += memory / 4) {
    for (const PartitionOrder order :
         {PartitionOrder::kComet, PartitionOrder::kEuler, PartitionOrder::kNode}) {
      for (const bool prefetch : {true, false}) {
        const auto tuned =
            TuneBuffer(directory, {.order = order, .memory_bytes = memory, .prefetch = prefetch});
        if (!tuned.ok()) {
          EXPECT_THAT(tuned, IsStatus(Code::kOutOfBudget));
          continue;
        }
        EXPECT_LE(tuned->memory_bytes, memory);
        if (order == PartitionOrder::kComet && prefetch) {
          EXPECT_GE(tuned->buffer, last);
          last = tuned->buffer;
        }
        for (uint64_t seed = 0; seed < 5; ++seed) {
          const auto plan = PlanSwaps({.order = order,
                                       .parts = kParts,
                                       .buffer = tuned->buffer,
                                       .logical = tuned->logical,
                                       .training_parts = kParts,
                                       .seed = seed});
          ASSERT_OK(plan);
          EXPECT_LE(PartitionBuffer::Bytes(directory, *plan, {.prefetch = prefetch}), tuned->memory_bytes);
        }
      }
    }
  }
  EXPECT_EQ(last, kParts);
}

TEST_F(PartitionBufferTest, ADamagedPageEndsItWithThePartsName) {
  const std::string path = world_.world.path() + "/" + PartsFileOf(parts_->record());
  FlipByte(path, parts_->RowsAt(7) + 100);
  const auto buffer = Make(kSpecs[0]);
  Status status;
  while (status.ok()) {
    const auto more = buffer->Next();
    status = more.status();
    ASSERT_TRUE(!more.ok() || *more) << "the damage was not seen";
  }
  EXPECT_THAT(status, IsStatus(Code::kCorruption));
  EXPECT_THAT(std::string(status.message()), HasSubstr("rows of part 7 of partitioning \"default\""));
}

// Reads that fail, once at each place: an error, and nothing hangs or is used.
TEST_F(PartitionBufferTest, EveryFailedReadIsAnError) {
  for (uint64_t at = 1;; ++at) {
    ASSERT_LT(at, 2000U);
    const auto buffer = Make(kSpecs[3], {.prefetch = at % 2 == 0});
    backend_.SetPlans({{.kind = FaultKind::kRead, .at = at, .error = EIO}});
    Status status;
    bool more = true;
    while (status.ok() && more) {
      const auto next = buffer->Next();
      status = next.status();
      more = next.ok() && *next;
    }
    const bool struck = backend_.strikes() > 0;
    backend_.SetPlans({});
    EXPECT_EQ(status.ok(), !struck) << at;
    if (!struck) break;
    EXPECT_THAT(status, IsStatus(Code::kIoError));
  }
}

TEST_F(PartitionBufferTest, WithoutAThreadItReadsByItself) {
  FailThreadStarts(1);
  const auto buffer = Make(kSpecs[1]);
  while (buffer->Next().value()) ASSERT_NO_FATAL_FAILURE(ExpectStep(*buffer));
  FailThreadStarts(0);
}

TEST_F(PartitionBufferTest, ItMayEndInTheMidstOfAnEpoch) {
  for (uint64_t steps = 0; steps < 4; ++steps) {
    const auto buffer = Make(kSpecs[1]);
    for (uint64_t i = 0; i < steps; ++i) ASSERT_TRUE(buffer->Next().value());
  }
  EXPECT_EQ(world_.budget.used_bytes(), parts_->resident_bytes());
}

}  // namespace
}  // namespace quarry
