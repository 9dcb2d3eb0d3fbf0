// The cache of blocks against a map of what was kept: whatever befalls its files, it never gives a wrong block.
#include "quarry/objects/block_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <thread>

#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/format/checksum.h"
#include "quarry/io/buffer.h"
#include "support/fault_backend.h"
#include "support/killing_backend.h"
#include "support/status_matchers.h"
#include "support/temporary_folder.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing_util::KillingBackend;

constexpr uint64_t kSmallBlock =
    5000;  // no whole number of pages; slots are larger, and their files have holes

// A block is a function of its number, so that any answer can be checked.
class Blocks {
 public:
  Blocks() : buffer_(IoBuffer::Allocate(8192).value()) {}
  std::span<std::byte> buffer() const { return buffer_.span(); }
  uint64_t Fill(uint64_t number) const {
    Rng rng(number);
    for (size_t i = 0; i + 8 <= kSmallBlock; i += 8) {
      const uint64_t word = rng();
      std::memcpy(buffer_.data() + i, &word, 8);
    }
    return Checksum64(buffer_.span().first(kSmallBlock));
  }
  void Put(BlockCache& cache, uint64_t number) const {
    const uint64_t checksum = Fill(number);
    cache.Put(checksum, kSmallBlock, buffer_.span());
  }
  // Whether the cache has it. A block that it gives is right, or this is a failure.
  bool Get(BlockCache& cache, uint64_t number) const {
    const uint64_t checksum = Fill(number);
    std::memset(buffer_.data(), 0x5a, buffer_.size());
    if (!cache.Get(checksum, kSmallBlock, buffer_.span())) return false;
    EXPECT_EQ(Checksum64(buffer_.span().first(kSmallBlock)), checksum) << "block " << number;
    return true;
  }

 private:
  IoBuffer buffer_;
};

class BlockCacheTest : public testing::Test {
 protected:
  std::unique_ptr<BlockCache> Open(uint64_t bytes = 256 * kMiB) { return Open(*backend_, bytes); }
  std::unique_ptr<BlockCache> Open(IoBackend& backend, uint64_t bytes = 256 * kMiB) {
    auto cache = BlockCache::Open(backend, path(), bytes, 7);
    EXPECT_OK(cache);
    return cache.ok() ? std::move(cache).value() : nullptr;
  }
  std::string path() const { return folder_ / "cache"; }
  // Bytes of both files, as their names say.
  uint64_t FileBytes() const { return fs::file_size(path() + "/index") + fs::file_size(path() + "/blocks"); }

  TemporaryFolder folder_{"blocks"};
  const std::unique_ptr<IoBackend> backend_ = MakeDefaultBackend();
  const Blocks blocks_;
};

TEST_F(BlockCacheTest, KeepsWhatFitsOverARestartAndNoMoreThanItsLimit) {
  for (const uint64_t bytes : {64 * kMiB, 5 * kGiB / 2}) {
    SCOPED_TRACE(FormatBytes(bytes));
    uint64_t slots = 0;
    {
      const auto cache = Open(bytes);
      slots = cache->slots();
      EXPECT_GT(slots * 4 * kMiB, bytes * 9 / 10);
      for (uint64_t i = 0; i < slots; i++) blocks_.Put(*cache, i);
    }
    const auto cache = Open(bytes);
    uint64_t found = 0;
    for (uint64_t i = 0; i < slots; i++) found += blocks_.Get(*cache, i) ? 1 : 0;
    EXPECT_GE(found, slots * 95 / 100);  // two sets to choose from: a few blocks find both full
    for (uint64_t i = slots; i < 2 * slots; i++) blocks_.Put(*cache, i);
    EXPECT_LE(FileBytes(), bytes);
    EXPECT_FALSE(blocks_.Get(*cache, 3 * slots));
    EXPECT_EQ(cache->statistics().damaged, 0U);
  }
}

// Epochs that read four times as much as the cache holds: LRU that takes every block would find none.
TEST_F(BlockCacheTest, EpochsLargerThanTheCacheFindPartOfIt) {
  const auto cache = Open(512 * kMiB);
  const uint64_t count = 4 * cache->slots();
  uint64_t found = 0, asked = 0;
  for (int epoch = 0; epoch < 8; epoch++) {
    for (uint64_t i = 0; i < count; i++) {
      const bool there = blocks_.Get(*cache, i);
      if (epoch >= 3) {
        found += there ? 1 : 0;
        ++asked;
      }
      if (!there) blocks_.Put(*cache, i);
    }
  }
  EXPECT_GT(found * 100, asked * 12);  // of the quarter that a fixed set would give
}

// Another database's blocks take the place of those that nobody reads any more.
TEST_F(BlockCacheTest, WhatIsReadNowReplacesWhatWasReadBefore) {
  const auto cache = Open(256 * kMiB);
  const uint64_t slots = cache->slots();
  for (uint64_t i = 0; i < slots; i++) blocks_.Put(*cache, i);
  uint64_t found = 0;
  for (int epoch = 0; epoch < 40; epoch++) {
    found = 0;
    for (uint64_t i = slots; i < slots + slots / 2; i++) {
      if (blocks_.Get(*cache, i)) {
        ++found;
      } else {
        blocks_.Put(*cache, i);
      }
    }
  }
  EXPECT_GT(found, slots / 3);
}

TEST_F(BlockCacheTest, NoDamageMakesAWrongBlock) {
  constexpr uint64_t kSeed = 23;
  SCOPED_TRACE(fmt::format("seed {}", kSeed));
  Rng rng(kSeed);
  uint64_t damaged = 0;
  for (int trial = 0; trial < 16; trial++) {
    {
      const auto cache = Open();
      for (uint64_t i = 0; i < 40; i++) blocks_.Put(*cache, i);
    }
    const std::string path = this->path() + (trial % 2 == 0 ? "/index" : "/blocks");
    const uint64_t bytes = fs::file_size(path);
    if (trial % 5 == 4) {
      fs::resize_file(path, rng.Below(bytes));
    } else {
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      for (int i = 0; i < 300; i++) {  // in slots' first pages, where blocks are
        const uint64_t slot = rng.Below(64) * 4 * kMiB;
        const uint64_t at = trial % 2 == 0 ? rng.Below(bytes) : (slot + rng.Below(kSmallBlock)) % bytes;
        file.seekp(static_cast<std::streamoff>(at));
        file.put(static_cast<char>(rng()));
      }
    }
    const auto cache = Open();
    ASSERT_NE(cache, nullptr);
    for (uint64_t i = 0; i < 40; i++) {
      if (!blocks_.Get(*cache, i)) blocks_.Put(*cache, i);
    }
    for (uint64_t i = 0; i < 40; i++) blocks_.Get(*cache, i);
    damaged += cache->statistics().damaged;
  }
  EXPECT_GT(damaged, 30U);
}

TEST_F(BlockCacheTest, AKillAtAnyOperationLosesBlocksAndNothingElse) {
  bool died = true;
  for (uint64_t k = 1; died; k += k < 12 ? 1 : 9) {
    SCOPED_TRACE(fmt::format("operation {}", k));
    const pid_t child = fork();
    if (child ==
        0) {  // the test has no threads: the backend that reads and writes at once starts none before a port
      KillingBackend killing(*backend_, k);
      auto cache = BlockCache::Open(killing, path(), 64 * kMiB, k);
      for (uint64_t i = 0; cache.ok() && i < 30; i++) blocks_.Put(**cache, i);
      _exit(cache.ok() ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    died = WIFSIGNALED(status);
    ASSERT_TRUE(died || WEXITSTATUS(status) == 0);
    const auto cache = Open(64 * kMiB);
    ASSERT_NE(cache, nullptr);
    for (uint64_t i = 0; i < 30; i++) blocks_.Get(*cache, i);
    EXPECT_EQ(cache->statistics().damaged, 0U) << "an entry is written when its block is";
    if (k % 4 == 0) fs::remove_all(path());
  }
}

TEST_F(BlockCacheTest, ADiskThatFailsCostsBlocksAndNothingElse) {
  FaultBackend faults(*backend_);
  for (const FaultKind kind : {FaultKind::kRead, FaultKind::kWrite}) {
    const auto cache = Open(faults);
    for (uint64_t i = 0; i < 20; i++) blocks_.Put(*cache, i);
    faults.SetPlans(
        {{.kind = kind, .at = 1, .sticky = true, .error = kind == FaultKind::kRead ? EIO : ENOSPC}});
    for (uint64_t i = 0; i < 40; i++) {
      blocks_.Put(*cache, i);
      EXPECT_EQ(blocks_.Get(*cache, i), kind == FaultKind::kWrite && i < 20);
    }
    EXPECT_GE(cache->statistics().failed, 20U);
    faults.SetPlans({});
    for (uint64_t i = 0; i < 20; i++) EXPECT_TRUE(blocks_.Get(*cache, i));
    fs::remove_all(path());
  }
}

// As two processes would: each opens the files by itself.
TEST_F(BlockCacheTest, TwoShareIt) {
  const auto one = Open(64 * kMiB), two = Open(64 * kMiB);
  blocks_.Put(*one, 1);
  EXPECT_TRUE(blocks_.Get(*two, 1));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++) {
    threads.emplace_back([&, t] {
      const Blocks blocks;
      BlockCache& cache = t % 2 == 0 ? *one : *two;
      Rng rng(static_cast<uint64_t>(t));
      for (int i = 0; i < 1500; i++) {
        const uint64_t number = rng.Below(12);
        if (!blocks.Get(cache, number)) blocks.Put(cache, number);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(FileBytes(), 64 * kMiB);
  // How many were hits depends on who came first; none was wrong.
}

TEST_F(BlockCacheTest, ItsSizeIsOneAndItsFolderItsOwn) {
  EXPECT_THAT(BlockCache::Open(*backend_, path(), 1 * kMiB),
              IsStatus(Code::kUsage, HasSubstr("64.0 MiB at least")));
  {
    const auto cache = Open(128 * kMiB);
    blocks_.Put(*cache, 1);
    EXPECT_THAT(BlockCache::Open(*backend_, path(), 256 * kMiB), IsStatus(Code::kBusy, HasSubstr(path())));
    EXPECT_TRUE(blocks_.Get(*cache, 1));
  }
  EXPECT_FALSE(blocks_.Get(*Open(256 * kMiB), 1));  // begun anew
  folder_.Write("other/thesis.tex", "years of work");
  EXPECT_THAT(BlockCache::Open(*backend_, folder_ / "other", 64 * kMiB),
              IsStatus(Code::kAlreadyExists, HasSubstr("thesis.tex")));
  EXPECT_TRUE(fs::exists(folder_ / "other/thesis.tex"));
}

}  // namespace
}  // namespace quarry
