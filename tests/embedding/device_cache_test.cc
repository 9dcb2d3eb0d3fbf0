// The validation cache of a device against that of the processor.
#include "quarry/embedding/device_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "embedding/row_block_util.h"
#include "quarry/base/random.h"
#include "quarry/io/buffer.h"
#include "support/fake_device.h"
#include "support/repetitions.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using testing_util::FakeDevice;

// A cache on a device of its own, of which a test sees blocks as they are afterwards.
class CacheThere {
 public:
  CacheThere(const EmbeddingSpec& spec, const DeviceValidationCache::Capacity& capacity, uint64_t seed)
      : spec_(spec), device_({.seed = seed}) {
    EXPECT_OK(Make(capacity));
  }

  uint64_t Validate(const CommitTracker::Ticket& ticket, RowBlock& block) {
    const DeviceRowBlock rows = Send(block);
    auto* const replaced = reinterpret_cast<uint64_t*>(memory_.get().data());
    EXPECT_OK(device_.Fill(memory_.get().data(), 0, sizeof(uint64_t), stream_.get()));
    EXPECT_OK(cache_->Validate(ticket, rows, replaced));
    Receive(block);
    uint64_t count = 0;
    std::memcpy(&count, host_.data(), sizeof(count));
    return count;
  }
  Status Insert(const RowBlock& block) {
    const DeviceRowBlock rows = Send(block);
    const Status status = cache_->Insert(rows, block.timestamps.empty() ? 0 : block.timestamps[0]);
    EXPECT_OK(device_.Synchronize(stream_.get()));  // before the pinned memory has the next block
    return status;
  }
  const DeviceValidationCache& cache() const { return *cache_; }
  FakeDevice& device() { return device_; }

 private:
  static constexpr uint64_t kBytes = uint64_t{4} << 20;

  Status Make(const DeviceValidationCache::Capacity& capacity) {
    QUARRY_TRY(host_, IoBuffer::Allocate(kBytes));
    QUARRY_TRY(pinned_, gpu::PinMemory(device_, host_.span()));
    QUARRY_TRY(memory_, gpu::AllocateMemory(device_, kBytes));
    QUARRY_TRY(stream_, gpu::MakeStream(device_));
    QUARRY_TRY(cache_, DeviceValidationCache::Make(device_, spec_, capacity, stream_.get()));
    return Status::Ok();
  }

  // Count of the replaced | ids | timestamps | rows.
  uint64_t TimestampsAt(uint64_t count) const { return 16 + (count * sizeof(RowId) + 15) / 16 * 16; }
  uint64_t RowsAt(uint64_t count) const {
    return TimestampsAt(count) + (count * sizeof(int64_t) + 15) / 16 * 16;
  }

  DeviceRowBlock Send(const RowBlock& block) {
    const uint64_t count = block.ids.size(), stride = DeviceRowStride(spec_);
    std::memcpy(host_.data() + 16, block.ids.data(), count * sizeof(RowId));
    std::memcpy(host_.data() + TimestampsAt(count), block.timestamps.data(), count * sizeof(int64_t));
    auto* const rows = reinterpret_cast<float*>(host_.data() + RowsAt(count));
    for (uint64_t i = 0; i < count; ++i) {
      std::copy_n(block.values.data() + i * spec_.dim, spec_.dim, rows + i * stride);
      std::copy_n(block.state.data() + i * spec_.state_dim(), spec_.state_dim(),
                  rows + i * stride + spec_.dim);
    }
    const uint64_t bytes = RowsAt(count) + count * stride * sizeof(float);
    EXPECT_LE(bytes, kBytes);
    std::byte* const there = memory_.get().data();
    EXPECT_OK(device_.CopyIn(there, host_.data(), bytes, stream_.get()));
    return {.ids = reinterpret_cast<const RowId*>(there + 16),
            .timestamps = reinterpret_cast<int64_t*>(there + TimestampsAt(count)),
            .rows = reinterpret_cast<float*>(there + RowsAt(count)),
            .count = count};
  }
  void Receive(RowBlock& block) {
    const uint64_t count = block.ids.size(), stride = DeviceRowStride(spec_);
    EXPECT_OK(device_.CopyOut(host_.data(), memory_.get().data(),
                              RowsAt(count) + count * stride * sizeof(float), stream_.get()));
    EXPECT_OK(device_.Synchronize(stream_.get()));
    std::memcpy(block.timestamps.data(), host_.data() + TimestampsAt(count), count * sizeof(int64_t));
    const auto* const rows = reinterpret_cast<const float*>(host_.data() + RowsAt(count));
    for (uint64_t i = 0; i < count; ++i) {
      std::copy_n(rows + i * stride, spec_.dim, block.values.data() + i * spec_.dim);
      std::copy_n(rows + i * stride + spec_.dim, spec_.state_dim(),
                  block.state.data() + i * spec_.state_dim());
    }
  }

  const EmbeddingSpec spec_;
  FakeDevice device_;
  IoBuffer host_;
  gpu::Pinned pinned_;
  gpu::Memory memory_;
  std::unique_ptr<DeviceValidationCache> cache_;
  gpu::Stream stream_;
};

// Values that tell rows and versions from each other.
RowBlock RandomBlock(Rng& rng, const EmbeddingSpec& spec, std::vector<RowId> ids, int64_t timestamp) {
  RowBlock block = FilledBlock(spec, std::move(ids), timestamp, 0);
  for (float& value : block.values) value = static_cast<float>(rng.Unit());
  for (float& value : block.state) value = static_cast<float>(rng.Unit());
  return block;
}

TEST(DeviceValidationCacheTest, AgreesWithTheProcessorsUnderRandomOperations) {
  constexpr OptimizerKind kOptimizers[] = {OptimizerKind::kSgd, OptimizerKind::kAdagrad,
                                           OptimizerKind::kAdam};
  for (uint64_t seed = 1; seed <= testing_util::Repetitions(60); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    const EmbeddingSpec spec{.row_count = 1 + rng.Below(500),
                             .dim = static_cast<uint32_t>(1 + rng.Below(9)),
                             .optimizer = kOptimizers[rng.Below(3)]};
    const uint64_t rows_max = 1 + rng.Below(100);
    const auto window = static_cast<int64_t>(1 + rng.Below(10));  // batches that are not safe to evict
    // As small as it may be, so that the ring ends, is full, and the table is filled anew.
    CacheThere there(spec, {.rows_max = rows_max, .batches = static_cast<uint64_t>(window) + 2}, seed);
    const auto here = MakeValidationCache(spec);
    int64_t safe = kNeverWritten;
    for (int64_t now = 0; now < 150; ++now) {
      safe = std::max(safe, now - 1 - static_cast<int64_t>(rng.Below(static_cast<uint64_t>(window) + 1)));
      // A batch that has begun later than it may evict, and rows that are newer than its MFCT says.
      const int64_t mfct = safe + static_cast<int64_t>(rng.Below(3));
      RowBlock block = RandomBlock(rng, spec, RandomIds(rng, spec.row_count, rng.Below(rows_max + 1)), 0);
      for (int64_t& timestamp : block.timestamps) timestamp = mfct + static_cast<int64_t>(rng.Below(3)) - 1;
      RowBlock expected = block;
      const CommitTracker::Ticket ticket = {.mfct = mfct, .safe_to_evict = safe};
      ASSERT_EQ(there.Validate(ticket, block), here->Validate(ticket, expected));
      ASSERT_EQ(block.timestamps, expected.timestamps);
      ASSERT_EQ(block.values, expected.values);
      ASSERT_EQ(block.state, expected.state);
      const RowBlock computed =
          RandomBlock(rng, spec, RandomIds(rng, spec.row_count, 1 + rng.Below(rows_max)), now);
      ASSERT_OK(there.Insert(computed));
      here->Insert(computed);
      ASSERT_GE(there.cache().row_count(), here->row_count()) << "it counts versions";
      ASSERT_LE(there.cache().row_count(), (static_cast<uint64_t>(window) + 1) * rows_max);
    }
    EXPECT_EQ(there.device().misuses(), "");
  }
}

TEST(DeviceValidationCacheTest, RowsBeyondItsCapacityAreRefused) {
  const EmbeddingSpec spec{.row_count = 100, .dim = 3};
  CacheThere there(spec, {.rows_max = 4, .batches = 3}, 1);
  for (int64_t now = 0; now < 3; ++now) ASSERT_OK(there.Insert(FilledBlock(spec, {1, 2, 3, 4}, now, 0)));
  EXPECT_THAT(
      there.Insert(FilledBlock(spec, {5}, 3, 0)),
      IsStatus(Code::kOutOfBudget, HasSubstr("has 12 slots, of which 12 rows are in use, and 1 more")));
  RowBlock none;
  there.Validate({.mfct = 1, .safe_to_evict = 1}, none);
  EXPECT_EQ(there.cache().row_count(), 4u);
  EXPECT_OK(there.Insert(FilledBlock(spec, {5}, 4, 0)));
}

TEST(DeviceValidationCacheTest, MemoryIsWhatItSaysAndGoesBack) {
  const EmbeddingSpec spec{.row_count = 100, .dim = 10};
  const DeviceValidationCache::Capacity capacity = {.rows_max = 100, .batches = 8};
  const uint64_t bytes = DeviceValidationCache::MemoryBytes(spec, capacity);
  EXPECT_GT(bytes, 800 * 80u);
  EXPECT_LT(bytes, 800 * (80u + 8 + 3 * 20 + 4));
  FakeDevice device({.memory_bytes = bytes});
  const auto stream = gpu::MakeStream(device);
  ASSERT_OK(stream.status());
  {
    ASSERT_OK_AND_ASSIGN(const auto cache,
                         DeviceValidationCache::Make(device, spec, capacity, stream->get()));
    EXPECT_EQ(cache->memory_bytes(), bytes);
    EXPECT_THAT(DeviceValidationCache::Make(device, spec, capacity, stream->get()),
                IsStatus(Code::kOutOfBudget));
    device.Drain();
  }
  EXPECT_EQ(device.held(), 1u) << "the stream";
  EXPECT_THAT(
      DeviceValidationCache::Make(device, spec, {.rows_max = uint64_t{1} << 31, .batches = 8}, stream->get()),
      IsStatus(Code::kUnsupported, HasSubstr("8 batches of 2147483648 rows are more")));
}

}  // namespace
}  // namespace quarry
