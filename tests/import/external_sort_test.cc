#include "quarry/import/external_sort.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "quarry/base/units.h"
#include "support/fault_backend.h"
#include "support/status_matchers.h"
#include "support/temporary_folder.h"

namespace quarry {
namespace {

// Keys of so few distinct values that there are duplicates, spread over the whole width.
template <typename Key>
std::vector<Key> RandomKeys(uint64_t seed, size_t count, uint64_t distinct) {
  Rng random(seed);
  std::vector<Key> keys(count);
  for (Key& key : keys) {
    key = Mix64(random.Below(distinct)) >> 1;
    if constexpr (sizeof(Key) > 8) key = key << 32 | random.Below(3);
  }
  return keys;
}

template <typename Key>
void ExpectRadixSorts(const std::vector<Key>& keys) {
  std::vector<Key> expected = keys;
  std::sort(expected.begin(), expected.end());
  std::vector<Key> sorted = keys;
  std::vector<Key> scratch(keys.size());
  const Key* const result = RadixSort(sorted.data(), scratch.data(), sorted.size());
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), result));
}

TEST(RadixSortTest, AgreesWithStdSort) {
  for (uint64_t seed = 0; seed < 40; seed++) {
    SCOPED_TRACE(seed);
    Rng random(seed);
    const size_t count = random.Below(3000);
    ExpectRadixSorts(RandomKeys<uint64_t>(seed, count, 1 + random.Below(5000)));
    ExpectRadixSorts(RandomKeys<uint128_t>(seed, count, 1 + random.Below(5000)));
  }
  ExpectRadixSorts<uint64_t>({});
  ExpectRadixSorts<uint64_t>({7});
  ExpectRadixSorts<uint64_t>({~uint64_t{0}, 0, 1, ~uint64_t{0} - 1});
}

struct SortCase {
  uint64_t memory_bytes;
  size_t count;
  bool spills;
};

template <typename Key>
Result<std::vector<Key>> Sort(IoBackend& backend, const ExternalSortOptions& options,
                              const std::vector<Key>& keys, uint64_t seed, uint64_t* spilled_bytes) {
  Rng random(seed);
  ExternalSorter<Key> sorter(backend, options);
  for (size_t at = 0; at < keys.size();) {
    const size_t n = std::min<size_t>(keys.size() - at, random.Below(10'000));
    QUARRY_RETURN_IF_ERROR(sorter.Add(std::span(keys).subspan(at, n)));
    at += n;
  }
  QUARRY_RETURN_IF_ERROR(sorter.Finish());
  *spilled_bytes = sorter.spilled_bytes();
  std::vector<Key> sorted;
  std::vector<Key> batch(7000);
  while (true) {
    QUARRY_TRY(const size_t n, sorter.Read(std::span(batch).first(1 + random.Below(batch.size()))));
    if (n == 0) return sorted;
    sorted.insert(sorted.end(), batch.begin(), batch.begin() + static_cast<ptrdiff_t>(n));
  }
}

template <typename Key>
void ExpectExternalSort() {
  const auto backend = MakeThreadBackend(1);
  // 2 MiB merge four runs at a time, so that the last two cases need passes in between.
  for (const SortCase& which :
       {SortCase{64 * kMiB, 0, false}, SortCase{64 * kMiB, 100'000, false}, SortCase{3 * kMiB, 400'000, true},
        SortCase{2 * kMiB, 600'000, true}, SortCase{2 * kMiB, 1'200'000, true}}) {
    for (const bool deduplicate : {false, true}) {
      SCOPED_TRACE(
          fmt::format("seed {} memory {} deduplicate {}", which.count, which.memory_bytes, deduplicate));
      const TemporaryFolder folder("sort");
      const std::vector<Key> keys = RandomKeys<Key>(which.count, which.count, which.count + 1);
      std::vector<Key> expected = keys;
      std::sort(expected.begin(), expected.end());
      if (deduplicate) expected.erase(std::unique(expected.begin(), expected.end()), expected.end());
      uint64_t spilled_bytes = 0;
      const auto sorted = Sort(*backend,
                               {.memory_bytes = which.memory_bytes,
                                .scratch_directory = folder.path(),
                                .deduplicate = deduplicate},
                               keys, which.count, &spilled_bytes);
      ASSERT_OK(sorted);
      EXPECT_TRUE(*sorted == expected);
      EXPECT_EQ(spilled_bytes > 0, which.spills);
      EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
    }
  }
}

TEST(ExternalSortTest, AgreesWithStdSortForPairs) { ExpectExternalSort<uint64_t>(); }
TEST(ExternalSortTest, AgreesWithStdSortForTypedPairs) { ExpectExternalSort<uint128_t>(); }

TEST(ExternalSortTest, ReportsEveryFaultOfTheDisk) {
  const auto disk = MakeThreadBackend(1);
  FaultBackend backend(*disk);
  const std::vector<uint64_t> keys = RandomKeys<uint64_t>(1, 700'000, 1'000'000);
  for (const FaultKind kind : {FaultKind::kCreate, FaultKind::kRead, FaultKind::kWrite}) {
    uint64_t at = 1;
    while (true) {
      const TemporaryFolder folder("sort");
      backend.SetPlans({{.kind = kind, .at = at, .error = kind == FaultKind::kWrite ? ENOSPC : EIO}});
      const uint64_t strikes = backend.strikes();
      uint64_t spilled_bytes = 0;
      const auto sorted = Sort(backend, {.memory_bytes = 2 * kMiB, .scratch_directory = folder.path()}, keys,
                               1, &spilled_bytes);
      EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
      if (backend.strikes() == strikes) {
        EXPECT_OK(sorted);
        break;
      }
      EXPECT_EQ(sorted.status().code(), kind == FaultKind::kWrite ? Code::kNoSpace : Code::kIoError);
      at += 1 + at / 3;
    }
    EXPECT_GT(at, 1u);
  }
}

}  // namespace
}  // namespace quarry
