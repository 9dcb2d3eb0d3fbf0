// Columns of edges by ascending positions, as files have them: whichever lists are asked for, near each other or not.
#include "quarry/storage/edge_columns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <vector>

#include "quarry/base/random.h"
#include "storage/small_store.h"
#include "support/counting_backend.h"
#include "support/flip_byte.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;

using testing_util::Lists;
using testing_util::Medium;
using testing_util::SmallStore;

// Lists of some thousand edges, a few of up to a fifth of a million, which reach over several pieces, and empty ones.
Lists LongLists(uint64_t seed) {
  Rng rng(seed);
  Lists lists;
  for (NodeId node = 0; node < SmallStore::kNodes; ++node) {
    const uint64_t edges = rng.Below(100) == 0  ? rng.Below(200'000)
                           : rng.Below(10) == 0 ? 0
                                                : rng.Below(3000);
    for (uint64_t i = 0; i < edges; ++i) {
      lists.indices.push_back(static_cast<NodeId>(rng.Below(SmallStore::kNodes)));
      lists.relations.push_back(static_cast<uint8_t>(rng.Below(SmallStore::kRelations)));
      lists.weights.push_back(static_cast<float>(rng.Below(1'000'000)));
    }
    lists.indptr.push_back(lists.indices.size());
  }
  return lists;
}

struct LargeTopology {
  explicit LargeTopology(uint64_t seed) : store(counting, Medium::kMemory) {
    store.csc = store.csr = LongLists(seed);
    store.graph.edge_count = store.csc.indices.size();
    store.graph.deduplicated = false;
    written = store.Write();
  }
  Result<std::unique_ptr<Topology>> Open() {
    return Topology::Open(counting, store.path(), store.graph, store.manifest.database_id);
  }
  uint32_t Value(EdgeColumn column, uint64_t at) const {
    const Lists& lists = store.csc;
    return column == EdgeColumn::kNeighbors   ? lists.indices[at]
           : column == EdgeColumn::kRelations ? lists.relations[at]
                                              : std::bit_cast<uint32_t>(lists.weights[at]);
  }

  std::unique_ptr<IoBackend> backend = MakeDefaultBackend();
  CountingBackend counting{*backend};
  SmallStore store;
  Status written;
};

TEST(EdgeColumnReaderTest, ReadsListsHoweverFarApartTheyLie) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    LargeTopology large(seed);
    ASSERT_OK(large.written);
    ASSERT_OK_AND_ASSIGN(const auto topology, large.Open());
    const std::span<const uint64_t> indptr = topology->indptr(Adjacency::kCsc);
    Rng rng(seed + 100);
    for (const EdgeColumn column : {EdgeColumn::kNeighbors, EdgeColumn::kWeights, EdgeColumn::kRelations}) {
      ASSERT_OK_AND_ASSIGN(const auto reader,
                           EdgeColumnReader::Make(large.counting, *topology, Adjacency::kCsc, column));
      for (int turn = 0; turn < 6; ++turn) {  // from the front again, each at another pace
        const uint64_t stride = uint64_t{1} << rng.Below(7);
        for (uint64_t node = rng.Below(10); node < SmallStore::kNodes; node += 1 + rng.Below(stride)) {
          uint64_t first = indptr[node], end = indptr[node + 1];
          if (rng.Below(4) == 0) first += rng.Below(end - first + 1);  // a part of it
          ASSERT_OK_AND_ASSIGN(const auto values, reader->Read(first, end));
          ASSERT_EQ(values.size(), end - first);
          for (uint64_t i = 0; i < values.size(); ++i) {
            ASSERT_EQ(values[i], large.Value(column, first + i)) << "node " << node << ", edge " << first + i;
          }
          if (rng.Below(40) == 0) node -= std::min<uint64_t>(node, rng.Below(20));  // back
        }
      }
    }
  }
}

// Reading ahead is no reading twice, and stops where nothing follows.
TEST(EdgeColumnReaderTest, ReadsEachPageOnceAndLittleThatNobodyAsksFor) {
  LargeTopology large(4);
  ASSERT_OK(large.written);
  ASSERT_OK_AND_ASSIGN(const auto topology, large.Open());
  const std::span<const uint64_t> indptr = topology->indptr(Adjacency::kCsc);
  const auto read = [&] { return large.counting.Of("graph").read; };
  const auto read_every = [&](uint64_t stride) {
    const uint64_t before = read();
    const auto reader =
        EdgeColumnReader::Make(large.counting, *topology, Adjacency::kCsc, EdgeColumn::kNeighbors);
    EXPECT_OK(reader);
    for (uint64_t node = 0; node < SmallStore::kNodes; node += stride) {
      EXPECT_OK((*reader)->Read(indptr[node], indptr[node + 1]));
    }
    return read() - before;
  };
  const uint64_t bytes = indptr[SmallStore::kNodes] * sizeof(NodeId);
  EXPECT_LE(read_every(1), bytes + EdgeColumnReader::kPieceBytes);
  EXPECT_LE(read_every(3), bytes + EdgeColumnReader::kPieceBytes);
  EXPECT_LE(read_every(SmallStore::kNodes), (indptr[1] + kPageBytes) * sizeof(NodeId));
}

TEST(EdgeColumnReaderTest, DamageIsToldByItsPage) {
  LargeTopology large(5);
  ASSERT_OK(large.written);
  uint64_t offset = 0, edges = 0;
  {
    ASSERT_OK_AND_ASSIGN(const auto topology, large.Open());
    edges = topology->edge_count();
    offset = topology->indices_offset(Adjacency::kCsc) + edges / 2 * sizeof(NodeId);
  }
  testing_util::FlipByte(large.store.path() + "/" + large.store.graph.file, offset);
  ASSERT_OK_AND_ASSIGN(const auto topology, large.Open());
  const std::span<const uint64_t> indptr = topology->indptr(Adjacency::kCsc);
  ASSERT_OK_AND_ASSIGN(const auto reader, EdgeColumnReader::Make(large.counting, *topology, Adjacency::kCsc,
                                                                 EdgeColumn::kNeighbors));
  Status status;
  uint64_t node = 0;
  for (; node < SmallStore::kNodes && status.ok(); ++node) {
    status = reader->Read(indptr[node], indptr[node + 1]).status();
  }
  EXPECT_THAT(status, IsStatus(Code::kCorruption));
  EXPECT_THAT(std::string(status.message()), HasSubstr(fmt::format("page {} ", offset / kPageBytes)));
  EXPECT_LE(indptr[node - 1], edges / 2) << "lists behind the damage were read";
}

}  // namespace
}  // namespace quarry
