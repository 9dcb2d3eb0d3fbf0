#include "quarry/format/wire_batch.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <utility>
#include <vector>

#include "quarry/base/random.h"
#include "quarry/format/wire.h"
#include "support/status_matchers.h"

namespace quarry::wire {
namespace {

using testing::ElementsAreArray;
using testing::HasSubstr;

constexpr uint64_t kBatchSeed = 20240612;

// Memory of exactly so many bytes, aligned as slots are: one byte further is an error of ASan's.
class Slot {
 public:
  explicit Slot(uint64_t bytes)
      : bytes_(bytes),
        data_(static_cast<std::byte*>(::operator new(bytes, std::align_val_t(kBatchAlignment)))) {
    std::memset(data_.get(), 0, bytes);
  }
  std::span<std::byte> span() const { return {data_.get(), bytes_}; }

 private:
  struct Free {
    void operator()(std::byte* data) const { ::operator delete(data, std::align_val_t(kBatchAlignment)); }
  };
  uint64_t bytes_;
  std::unique_ptr<std::byte, Free> data_;
};

BatchShape RandomShape(Rng& rng) {
  BatchShape shape = {.index = rng()};
  shape.hops = static_cast<uint32_t>(1 + rng.Below(3));
  shape.seeds = static_cast<uint32_t>(1 + rng.Below(8));
  shape.targets = shape.seeds + static_cast<uint32_t>(shape.hops > 1 ? rng.Below(20) : 0);
  shape.nodes = shape.targets + static_cast<uint32_t>(rng.Below(30));
  shape.edges = rng.Below(100);
  shape.labels = rng.Below(2) == 1;
  shape.edge_ids = rng.Below(2) == 1;
  shape.relations = rng.Below(2) == 1;
  if (rng.Below(4) == 0) return shape;
  if (rng.Below(3) == 0) {
    shape.node_types = static_cast<uint32_t>(1 + rng.Below(5));
    shape.stride_bytes = 4 * rng.Below(20);  // 0: no type has rows
    if (shape.stride_bytes == 0) return shape;
    shape.slots = rng.Below(2) == 1;
    shape.rows = shape.slots ? 1 + rng.Below(40) : shape.nodes;
    return shape;
  }
  shape.element_type = static_cast<ElementType>(1 + rng.Below(4));
  shape.dim = static_cast<uint32_t>(1 + rng.Below(20));
  shape.stride_bytes = (RowBytes(shape.element_type, shape.dim) + 3) / 4 * 4 + 4 * rng.Below(3);
  shape.slots = rng.Below(2) == 1;
  shape.rows = shape.slots ? 1 + rng.Below(40) : shape.nodes;
  shape.rows_outside = rng.Below(3) == 0;
  return shape;
}

// A block of the shape, as the engine would sample one.
void FillBlock(Rng& rng, const BatchWriter& batch) {
  const BatchShape& shape = batch.shape;
  batch.hop_offsets[0] = shape.seeds;
  for (uint32_t hop = 1; hop < shape.hops; ++hop) {
    const uint32_t before = batch.hop_offsets[hop - 1];
    batch.hop_offsets[hop] = before + static_cast<uint32_t>(rng.Below(shape.targets - before + 1));
  }
  batch.hop_offsets[shape.hops - 1] = shape.targets;
  batch.hop_offsets[shape.hops] = shape.nodes;
  for (uint32_t node = 0; node <= shape.targets; ++node) {
    batch.indptr[node] = static_cast<uint32_t>(shape.edges * node / shape.targets);
  }
  for (uint32_t hop = 0, node = 0; hop < shape.hops; ++hop) {
    for (; node < batch.hop_offsets[hop]; ++node) {
      for (uint32_t edge = batch.indptr[node]; edge < batch.indptr[node + 1]; ++edge) {
        batch.indices[edge] = static_cast<uint32_t>(rng.Below(batch.hop_offsets[hop + 1]));
      }
    }
  }
  for (NodeId& node : batch.nodes) node = static_cast<NodeId>(rng());
  for (int64_t& label : batch.labels) label = static_cast<int64_t>(rng.Below(50));
  for (uint64_t& id : batch.edge_ids) id = rng();
  for (uint16_t& relation : batch.relations) relation = static_cast<uint16_t>(rng());
  for (TypeRows& rows : batch.type_rows) {
    rows = {.element_type = ElementType::kFloat16,
            .dim = static_cast<uint32_t>(rng.Below(shape.stride_bytes / 2 + 1))};
  }
  for (uint32_t& slot : batch.slots) slot = static_cast<uint32_t>(rng.Below(shape.rows));
  for (std::byte& byte : batch.rows) byte = static_cast<std::byte>(rng());
}

struct MadeBatch {
  Slot slot;
  Slot outside;
};
MadeBatch MakeBatch(Rng& rng, const BatchShape& shape) {
  const uint64_t bytes = BatchBytes(shape).value();
  MadeBatch made{Slot(bytes), Slot(shape.rows_outside ? shape.rows * shape.stride_bytes : 0)};
  FillBlock(rng, WriteBatchHeader(shape, made.slot.span()).value());
  return made;
}

// Reads every byte that the views have.
uint64_t TouchAll(const BatchView& batch) {
  uint64_t sum = 0;
  const auto touch = [&sum](auto span) {
    for (const std::byte byte : std::as_bytes(span)) sum += std::to_integer<uint64_t>(byte);
  };
  touch(batch.hop_offsets);
  touch(batch.indptr);
  touch(batch.indices);
  touch(batch.nodes);
  touch(batch.labels);
  touch(batch.edge_ids);
  touch(batch.relations);
  touch(batch.type_rows);
  touch(batch.features.slots);
  touch(batch.features.rows);
  return sum;
}

// What a model does with a block: each layer reads the nodes of the hop behind it, and the first one rows.
uint64_t Compute(const BatchView& batch) {
  uint64_t sum = 0;
  uint32_t node = 0;
  for (uint32_t hop = 0; hop < batch.hops(); ++hop) {
    const std::vector<uint8_t> inputs(batch.hop_offsets[hop + 1]);
    for (; node < batch.hop_offsets[hop]; ++node) {
      for (uint32_t edge = batch.indptr[node]; edge < batch.indptr[node + 1]; ++edge) {
        sum += inputs.at(batch.indices[edge]);
      }
    }
  }
  uint64_t row_bytes = batch.features.dim == 0 ? 0 : batch.features.stride_bytes;
  for (const TypeRows& rows : batch.type_rows) {
    if (rows.dim > 0) row_bytes = std::max(row_bytes, RowBytes(rows.element_type, rows.dim));
  }
  for (size_t i = 0; row_bytes > 0 && i < batch.nodes.size(); ++i) {
    sum += std::to_integer<uint64_t>(batch.features.Row(i)[row_bytes - 1]);
  }
  return sum;
}

template <typename A, typename B>
void ExpectSame(A a, B b) {
  ASSERT_EQ(a.size_bytes(), b.size_bytes());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size_bytes()), 0);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b.data()) % kBatchAlignment, 0u);
}

TEST(WireBatchTest, WhatIsWrittenIsReadInPlace) {
  for (uint64_t round = 0; round < 300; ++round) {
    SCOPED_TRACE(fmt::format("seed {}", MixSeed(kBatchSeed, round)));
    Rng rng(MixSeed(kBatchSeed, round));
    const BatchShape shape = RandomShape(rng);
    const Slot slot(BatchBytes(shape).value());
    const Slot outside(shape.rows_outside ? shape.rows * shape.stride_bytes : 0);
    const BatchWriter written = WriteBatchHeader(shape, slot.span()).value();
    FillBlock(rng, written);
    ASSERT_OK_AND_ASSIGN(const auto read, OpenBatch(slot.span(), outside.span()));
    EXPECT_EQ(read.index, shape.index);
    EXPECT_EQ(read.seed_count, shape.seeds);
    EXPECT_EQ(read.hops(), shape.hops);
    EXPECT_EQ(read.target_count(), shape.targets);
    EXPECT_EQ(read.edge_ids.size(), shape.edge_ids ? shape.edges : 0);
    EXPECT_EQ(read.labels.size(), shape.labels ? shape.seeds : 0);
    const FeatureView& features = read.features;
    EXPECT_EQ(features.element_type, shape.element_type);
    EXPECT_EQ(features.dim, shape.dim);
    EXPECT_EQ(features.stride_bytes, shape.stride_bytes);
    EXPECT_EQ(features.row_count(), shape.rows);
    EXPECT_EQ(features.slots.size(), shape.slots ? shape.nodes : 0);
    EXPECT_EQ(features.rows.size(), shape.rows * shape.stride_bytes);
    ExpectSame(written.hop_offsets, read.hop_offsets);
    ExpectSame(written.indptr, read.indptr);
    ExpectSame(written.indices, read.indices);
    ExpectSame(written.nodes, read.nodes);
    if (shape.labels) ExpectSame(written.labels, read.labels);
    if (shape.edge_ids && shape.edges > 0) ExpectSame(written.edge_ids, read.edge_ids);
    EXPECT_EQ(read.relations.size(), shape.relations ? shape.edges : 0);
    if (shape.relations && shape.edges > 0) ExpectSame(written.relations, read.relations);
    EXPECT_EQ(read.type_rows.size(), shape.node_types);
    if (shape.node_types > 0) ExpectSame(written.type_rows, read.type_rows);
    if (shape.slots) ExpectSame(written.slots, features.slots);
    if (shape.rows_outside) {
      EXPECT_EQ(features.rows.data(), outside.span().data());
    } else if (shape.stride_bytes > 0) {
      ExpectSame(written.rows, features.rows);
    }
    EXPECT_OK(CheckBatch(read));
    (void)Compute(read);
  }
}

TEST(WireBatchTest, TheHeaderIsTheseBytes) {
  BatchShape shape = {.index = 7,
                      .hops = 2,
                      .seeds = 1,
                      .targets = 3,
                      .nodes = 4,
                      .edges = 5,
                      .labels = true,
                      .element_type = ElementType::kBfloat16,
                      .dim = 6,
                      .rows = 9,
                      .stride_bytes = 16,
                      .slots = true};
  const Slot slot(BatchBytes(shape).value());
  ASSERT_OK(WriteBatchHeader(shape, slot.span()));
  std::vector<uint64_t> words(kBatchHeaderBytes / 8);
  std::memcpy(words.data(), slot.span().data(), kBatchHeaderBytes);
  // Arrays of less than 64 bytes each take 64, behind a header of 192; the rows take 144.
  EXPECT_THAT(words, ElementsAreArray(std::vector<uint64_t>{0x0a48435441425189,
                                                            1 | uint64_t{3} << 32,
                                                            7,
                                                            768,
                                                            2 | uint64_t{1} << 32,
                                                            3 | uint64_t{4} << 32,
                                                            5,
                                                            3 | uint64_t{6} << 32,
                                                            9,
                                                            16,
                                                            192,
                                                            256,
                                                            320,
                                                            384,
                                                            448,
                                                            512,
                                                            576,
                                                            0,
                                                            0,
                                                            0,
                                                            0,
                                                            0,
                                                            0,
                                                            0}));
  EXPECT_EQ(slot.span().size(), 768u);
  // Where the arrays lie follows from the counts: a header that says otherwise is refused.
  for (size_t at = 80; at < 144; at += 8) {
    slot.span()[at] ^= std::byte{64};
    EXPECT_THAT(OpenBatch(slot.span()), IsStatus(Code::kCorruption)) << at;
    slot.span()[at] ^= std::byte{64};
  }
  EXPECT_OK(OpenBatch(slot.span()));
  // With edge ids, which lie behind the rows, all else is as without.
  shape.edge_ids = true;
  const Slot with(BatchBytes(shape).value());
  ASSERT_OK(WriteBatchHeader(shape, with.span()));
  words[1] += uint64_t{8} << 32;
  words[3] += 64;
  words[17] = 768;
  EXPECT_EQ(std::memcmp(words.data(), with.span().data(), kBatchHeaderBytes), 0);
  EXPECT_EQ(with.span().size(), 832u);
  // And with types, of edges and of rows: behind the edge ids.
  shape.element_type = ElementType::kFloat32;
  shape.dim = 0;
  shape.relations = true;
  shape.node_types = 3;
  const Slot typed(BatchBytes(shape).value());
  ASSERT_OK_AND_ASSIGN(const BatchWriter writer, WriteBatchHeader(shape, typed.span()));
  words[1] += uint64_t{16} << 32;
  words[3] += 128;
  words[7] = 1;
  words[18] = 832;
  words[19] = 896;
  words[20] = 3;
  EXPECT_EQ(std::memcmp(words.data(), typed.span().data(), kBatchHeaderBytes), 0);
  EXPECT_EQ(typed.span().size(), 960u);
  EXPECT_EQ(static_cast<const void*>(writer.relations.data()), &typed.span()[832]);
  writer.type_rows[2] = {.element_type = ElementType::kBfloat16, .dim = 6};
  uint64_t of_type = 0;
  std::memcpy(&of_type, &typed.span()[896 + 2 * 8], 8);
  EXPECT_EQ(of_type & 0xffffffff000000ff, 3 | uint64_t{6} << 32);
  // Rows of a type that are longer than rows are, and elements of no type.
  ASSERT_OK_AND_ASSIGN(BatchView view, OpenBatch(typed.span()));
  const std::vector<TypeRows> longer = {{.dim = 4}, {.dim = 5}}, strange = {{ElementType{9}, 1}};
  for (const auto& [rows, fault] :
       {std::pair(&longer, "of type 1 is 5"), std::pair(&strange, "of type 0 is 1")}) {
    const std::vector<uint32_t> offsets = {1, 3, 4}, indptr = {0, 5, 5, 5}, indices(5), slots(4);
    view.hop_offsets = offsets;
    view.indptr = indptr;
    view.indices = indices;
    view.features.slots = slots;
    view.type_rows = *rows;
    EXPECT_THAT(CheckBatch(view), IsStatus(Code::kCorruption, HasSubstr(fault)));
  }
}

TEST(WireBatchTest, EveryFlippedByteGivesAnErrorOrViewsInBounds) {
  for (uint64_t round = 0; round < 6; ++round) {
    SCOPED_TRACE(fmt::format("seed {}", MixSeed(kBatchSeed, round)));
    Rng rng(MixSeed(kBatchSeed, round));
    const MadeBatch made = MakeBatch(rng, RandomShape(rng));
    uint64_t refused = 0, checked = 0;
    for (size_t at = 0; at < made.slot.span().size(); ++at) {
      for (const unsigned mask : {0x01u, 0x10u, 0x80u, 0xffu}) {
        made.slot.span()[at] ^= static_cast<std::byte>(mask);
        const auto batch = OpenBatch(made.slot.span(), made.outside.span());
        if (!batch.ok()) {
          refused++;
        } else {
          (void)TouchAll(*batch);
          const bool sound = CheckBatch(*batch).ok();
          if (sound) (void)Compute(*batch);
          checked += sound ? 0 : 1;
        }
        made.slot.span()[at] ^= static_cast<std::byte>(mask);
      }
    }
    EXPECT_GT(refused, 100u) << "headers are checked";
    EXPECT_GT(checked, 20u) << "and what the arrays hold";
  }
}

TEST(WireBatchTest, HostileHeadersGiveErrorsOrViewsInBounds) {
  constexpr uint64_t kHostile[] = {0,          1,          2,           0x7fffffff, 0x80000000,
                                   0xfffffffe, 0xffffffff, 0x100000000, 1ull << 62, 1ull << 63,
                                   ~0ull,      ~0ull - 63, ~0ull - 7};
  for (uint64_t round = 0; round < 40; ++round) {
    SCOPED_TRACE(fmt::format("seed {}", MixSeed(kBatchSeed, round)));
    Rng rng(MixSeed(kBatchSeed, round));
    const MadeBatch made = MakeBatch(rng, RandomShape(rng));
    const std::vector<std::byte> header(made.slot.span().begin(),
                                        made.slot.span().begin() + kBatchHeaderBytes);
    for (int mutation = 0; mutation < 200; ++mutation) {
      for (uint64_t fields = 1 + rng.Below(3); fields > 0; --fields) {
        const size_t bytes = rng.Below(2) == 0 ? 4 : 8;
        const size_t at = 8 + rng.Below((168 - 8) / bytes) * bytes;
        uint64_t value = kHostile[rng.Below(std::size(kHostile))];
        if (rng.Below(3) == 0) {
          std::memcpy(&value, &made.slot.span()[at], bytes);
          value += rng.Below(2) == 0 ? 1 : -1;
        }
        std::memcpy(&made.slot.span()[at], &value, bytes);
      }
      const auto batch = OpenBatch(made.slot.span(), made.outside.span());
      if (batch.ok()) {
        (void)TouchAll(*batch);
        if (CheckBatch(*batch).ok()) (void)Compute(*batch);
      }
      std::ranges::copy(header, made.slot.span().begin());
    }
  }
}

TEST(WireBatchTest, ASlotThatIsTooSmallIsRefused) {
  Rng rng(kBatchSeed);
  BatchShape shape = {.hops = 1, .seeds = 2, .targets = 2, .nodes = 5, .edges = 6, .dim = 4, .rows = 5};
  shape.stride_bytes = 16;
  const MadeBatch made = MakeBatch(rng, shape);
  for (size_t bytes = 0; bytes < made.slot.span().size(); ++bytes) {
    EXPECT_THAT(OpenBatch(made.slot.span().first(bytes)), IsStatus(Code::kCorruption)) << bytes;
    EXPECT_THAT(WriteBatchHeader(shape, made.slot.span().first(bytes)), IsStatus(Code::kInvalidArgument));
  }
  EXPECT_OK(OpenBatch(made.slot.span()));
  shape.rows_outside = true;
  const MadeBatch outside = MakeBatch(rng, shape);
  EXPECT_OK(OpenBatch(outside.slot.span(), outside.outside.span()));
  const Status less = OpenBatch(outside.slot.span(), outside.outside.span().first(79)).status();
  EXPECT_THAT(less, IsStatus(Code::kCorruption, HasSubstr("80 bytes outside; there are 79")));
}

TEST(WireBatchTest, ASlotAtACrookedPlaceIsRefused) {
  Rng rng(kBatchSeed);
  const MadeBatch made = MakeBatch(rng, {.hops = 1, .seeds = 1, .targets = 1, .nodes = 2, .edges = 1});
  const Slot larger(made.slot.span().size() + 8);
  std::ranges::copy(made.slot.span(), larger.span().begin() + 8);
  EXPECT_THAT(OpenBatch(larger.span().subspan(8)), IsStatus(Code::kCorruption));
}

TEST(WireBatchTest, ShapesThatCannotBeAreRefused) {
  const BatchShape good = {
      .hops = 2, .seeds = 1, .targets = 2, .nodes = 3, .edges = 4, .dim = 2, .rows = 3, .stride_bytes = 8};
  EXPECT_OK(BatchBytes(good));
  const auto refused = [&good](auto change) {
    BatchShape shape = good;
    change(shape);
    return BatchBytes(shape).status().code() == Code::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](BatchShape& shape) { shape.hops = 0; }));
  EXPECT_TRUE(refused([](BatchShape& shape) { shape.hops = kHopsMax + 1; }));
  EXPECT_TRUE(refused([](BatchShape& shape) { shape.hops = 1; })) << "targets are the seeds then";
  EXPECT_TRUE(refused([](BatchShape& shape) { shape.seeds = 3; }));
  EXPECT_TRUE(refused([](BatchShape& shape) { shape.targets = 4; }));
  EXPECT_TRUE(refused([](BatchShape& shape) { shape.edges = (uint64_t{1} << 31) + 1; }));
  EXPECT_TRUE(refused([](BatchShape& shape) { shape.rows = 2; })) << "a row for each node, without slots";
  EXPECT_TRUE(refused([](BatchShape& shape) { shape.stride_bytes = 4; }));
  EXPECT_TRUE(refused([](BatchShape& shape) { shape.stride_bytes = 10; }));
  EXPECT_TRUE(refused([](BatchShape& shape) { shape.dim = 0; }));
  EXPECT_TRUE(refused([](BatchShape& shape) { shape.node_types = 2; })) << "of one table, and of types";
  EXPECT_TRUE(refused([](BatchShape& shape) { shape.node_types = (1 << 16) + 1, shape.dim = 0; }));
  EXPECT_TRUE(refused([](BatchShape& shape) { shape.dim = kDimMax + 1; }));
  EXPECT_TRUE(refused([](BatchShape& shape) { shape.element_type = ElementType{9}; }));
  EXPECT_TRUE(refused([](BatchShape& shape) {
    shape.slots = true;
    shape.rows = ~uint64_t{0};
  }));
}

TEST(WireBatchTest, ArraysThatAreNoBlockAreCorrupt) {
  Rng rng(kBatchSeed);
  BatchShape shape = {.hops = 2,
                      .seeds = 2,
                      .targets = 4,
                      .nodes = 8,
                      .edges = 12,
                      .dim = 1,
                      .rows = 3,
                      .stride_bytes = 4,
                      .slots = true};
  const MadeBatch made = MakeBatch(rng, shape);
  const BatchWriter batch = WriteBatchHeader(shape, made.slot.span()).value();
  const BatchView view = OpenBatch(made.slot.span()).value();
  ASSERT_OK(CheckBatch(view));
  const auto fault = [&view](uint32_t& place, uint32_t value) {
    const uint32_t before = std::exchange(place, value);
    const Status status = CheckBatch(view);
    place = before;
    EXPECT_THAT(status, IsStatus(Code::kCorruption));
    return std::string(status.message());
  };
  EXPECT_THAT(fault(batch.hop_offsets[0], 3), HasSubstr("hop offset 0 is 3"));
  EXPECT_THAT(fault(batch.hop_offsets[1], 5), HasSubstr("hop offset 1 is 5"));
  EXPECT_THAT(fault(batch.hop_offsets[2], 9), HasSubstr("hop offset 2 is 9"));
  EXPECT_THAT(fault(batch.indptr[0], 1), HasSubstr("list offset 0 is 1"));
  EXPECT_THAT(fault(batch.indptr[2], 13), HasSubstr("list offset 2 is 13"));
  EXPECT_THAT(fault(batch.indptr[4], 11), HasSubstr("list offset 4 is 11"));
  EXPECT_THAT(fault(batch.indices[0], 4), HasSubstr("neighbor 0 is 4")) << "the first hop knows 4 nodes";
  EXPECT_THAT(fault(batch.indices[11], 8), HasSubstr("neighbor 11 is 8"));
  EXPECT_THAT(fault(batch.slots[7], 3), HasSubstr("slot 7 is 3"));
}

// A writer that changes the memory while it is looked at: another process, as a client or a server would be,
// and a page behind the batch that nobody may touch.
TEST(WireBatchTest, MemoryThatChangesMeanwhileNeverLeadsOutOfIt) {
  BatchShape shape = {.hops = 2,
                      .seeds = 4,
                      .targets = 8,
                      .nodes = 64,
                      .edges = 512,
                      .dim = 1,
                      .rows = 64,
                      .stride_bytes = 4,
                      .slots = true};
  const uint64_t bytes = BatchBytes(shape).value();
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t mapped = (bytes + page - 1) / page * page;
  void* memory = mmap(nullptr, mapped + page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  ASSERT_EQ(mprotect(static_cast<std::byte*>(memory) + mapped, page, PROT_NONE), 0);
  const std::span<std::byte> slot(static_cast<std::byte*>(memory) + mapped - bytes, bytes);
  Rng rng(kBatchSeed);
  FillBlock(rng, WriteBatchHeader(shape, slot).value());
  const uint64_t offsets = kBatchHeaderBytes;  // of hops, then of lists

  const pid_t writer = fork();
  ASSERT_GE(writer, 0);
  if (writer == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (true) {  // one byte of a count, a place, or an offset, right and wrong in turn
      volatile std::byte& byte = slot[rng.Below(2) == 0 ? 24 + rng.Below(112) : offsets + rng.Below(128)];
      const std::byte right = byte, wrong = static_cast<std::byte>(rng());
      for (int turn = 0; turn < 500; ++turn) {
        byte = wrong;
        byte = right;
      }
    }
  }
  uint64_t opened = 0, refused = 0;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  // Until both have been seen, however slowly the writer gets its turns.
  while (opened == 0 || refused == 0 || std::chrono::steady_clock::now() < deadline) {
    const auto batch = OpenBatch(slot);
    (batch.ok() ? opened : refused)++;
    if (!batch.ok()) continue;
    (void)CheckBatch(*batch);
    (void)TouchAll(*batch);
  }
  kill(writer, SIGKILL);
  waitpid(writer, nullptr, 0);
  munmap(memory, mapped + page);
}

TEST(WireRowBlockTest, ItsArraysFollowEachOther) {
  const RowBlockShape shape = {.rows = 3, .dim = 2, .state_dim = 5};
  ASSERT_EQ(RowBlockBytes(shape), 3u * (8 + 8 + 8 + 20));
  const Slot slot(RowBlockBytes(shape));
  const auto written = OpenRowBlock(slot.span(), shape).value();
  std::iota(written.ids.begin(), written.ids.end(), 10);
  std::iota(written.timestamps.begin(), written.timestamps.end(), -1);
  std::iota(written.values.begin(), written.values.end(), 0.5F);
  std::iota(written.state.begin(), written.state.end(), 100.F);
  const auto read = OpenRowBlock(std::span<const std::byte>(slot.span()), shape).value();
  EXPECT_EQ(std::vector<uint64_t>(read.ids.begin(), read.ids.end()), (std::vector<uint64_t>{10, 11, 12}));
  EXPECT_EQ(std::vector<int64_t>(read.timestamps.begin(), read.timestamps.end()),
            (std::vector<int64_t>{-1, 0, 1}));
  EXPECT_EQ(read.values.size(), 6u);
  EXPECT_EQ(read.values[5], 5.5F);
  EXPECT_EQ(read.state.size(), 15u);
  EXPECT_EQ(read.state[14], 114.F);
  EXPECT_THAT(OpenRowBlock(slot.span().first(131), shape), IsStatus(Code::kInvalidArgument));
}

}  // namespace
}  // namespace quarry::wire
