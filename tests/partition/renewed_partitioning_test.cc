// Partitionings that are made anew with the parts that nodes have, where edges alone came and went: what they have against
// one that is built whole of the newer graph, byte by byte, whichever way its buckets were made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "partition/partitioned_store.h"
#include "pipeline/tiny_database.h"
#include "quarry/import/graph_change.h"
#include "quarry/partition/partition_buffer.h"
#include "quarry/partition/read_bucket.h"
#include "quarry/storage/checkpoint.h"
#include "quarry/storage/edges.h"
#include "quarry/storage/partition_files.h"
#include "quarry/storage/topology_compaction.h"
#include "quarry/verify/verify.h"
#include "storage/store_rows.h"
#include "support/flip_byte.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing_util::AppendEdges;
using testing_util::FaultsIn;
using testing_util::FlipByte;
using testing_util::Medium;
using testing_util::RandomAssignment;
using testing_util::ScratchFolder;
using testing_util::TinyGraph;
using testing_util::TypedEdge;
using testing_util::VectorEdgeReader;

constexpr uint32_t kRenewedParts = 5;

class RenewedPartitioningTest : public testing::Test {
 protected:
  std::string path() const { return folder_.path() + "/db"; }

  // A graph of so many relations, and a partitioning of it.
  void Make(uint64_t seed, uint32_t relations) {
    rng_ = Rng(seed);
    relations_ = relations;
    store_.reset();
    fs::remove_all(path());
    Dataset dataset = TinyDataset(graph_);
    if (relations > 1) {
      dataset.edges.clear();
      for (uint32_t relation = 0; relation < relations; ++relation) {
        std::vector<Edge> edges = SomeEdges(400);
        dataset.edges.push_back({.name = "r" + std::to_string(relation),
                                 .path = "memory",
                                 .reader = std::make_unique<VectorEdgeReader>(std::move(edges))});
      }
    }
    ASSERT_OK(ImportDatabase(*backend_, path(), std::move(dataset), {}));
    Open();
    ASSERT_OK(BuildPartitioning(*store_, budget_, {.table = "feature"},
                                RandomAssignment(graph_.nodes, kRenewedParts, seed), {}));
  }
  void Open() {
    store_.reset();
    auto opened = Store::Open(*backend_, path());
    ASSERT_OK(opened);
    store_ = *std::move(opened);
  }
  std::vector<Edge> SomeEdges(uint64_t count) {
    std::vector<Edge> edges;
    for (uint64_t i = 0; i < count; ++i)
      edges.push_back({rng_.Below(graph_.nodes), rng_.Below(graph_.nodes)});
    return edges;
  }
  // Some that are there: of the newest graph.
  std::vector<Edge> EdgesThatAre(uint64_t count) {
    std::vector<Edge> edges;
    const auto topology = store_->OpenTopology("graph");
    EXPECT_OK(topology);
    EXPECT_OK((*topology)->LoadIndices(*backend_, Adjacency::kCsc));
    const auto indptr = (*topology)->indptr(Adjacency::kCsc);
    while (edges.size() < count) {
      const uint64_t node = rng_.Below(graph_.nodes);
      if (indptr[node] == indptr[node + 1]) continue;
      const uint64_t at = indptr[node] + rng_.Below(indptr[node + 1] - indptr[node]);
      edges.push_back({(*topology)->indices(Adjacency::kCsc)[at], node});
    }
    return edges;
  }
  void Change(uint64_t added, uint64_t removed) {
    const std::vector<Edge> gone = EdgesThatAre(removed);
    auto change = GraphChange::Create(*store_, budget_, {.memory_bytes = kGraphChangeBytesMin});
    ASSERT_OK(change);
    for (const Edge& edge : gone) {
      ASSERT_OK((*change)->Remove({&edge, 1}, static_cast<uint32_t>(rng_.Below(relations_))));
    }
    for (const Edge& edge : SomeEdges(added)) {
      ASSERT_OK((*change)->Add({&edge, 1}, {}, static_cast<uint32_t>(rng_.Below(relations_))));
    }
    ASSERT_OK((*change)->Commit());
  }
  Result<PartitioningRecord> Renew() {
    return MakePartitioning(*store_, budget_, {.table = "feature"},
                            {.method = PartitionMethod::kKept, .parts = 0}, {});
  }
  std::unique_ptr<StoredPartitioning> Opened(std::string_view name) {
    auto opened = StoredPartitioning::Open(*store_, budget_, name);
    EXPECT_OK(opened);
    return opened.ok() ? *std::move(opened) : nullptr;
  }
  std::vector<std::byte> BucketOf(const StoredPartitioning& parts, uint32_t source, uint32_t destination) {
    const uint64_t bytes = parts.directory().bucket_bytes(source, destination);
    IoBuffer pages = IoBuffer::Allocate(std::max<uint64_t>(bytes, 1)).value();
    EXPECT_OK(ReadBucket(parts, *backend_, source, destination, pages.span()).status());
    return {pages.data(), pages.data() + bytes};
  }
  // Edges of the newest graph, in new ids.
  std::vector<TypedEdge> EdgesIn(std::span<const NodeId> new_ids) {
    std::vector<TypedEdge> edges;
    const auto list = EdgeList::Open(*store_, budget_, "graph");
    EXPECT_OK(list);
    std::vector<Triple> triples((*list)->size());
    (*list)->Read(0, triples);
    for (const Triple& edge : triples) {
      edges.emplace_back(new_ids[edge.head], new_ids[edge.tail], edge.relation);
    }
    std::ranges::sort(edges);
    return edges;
  }

  // It has what one has that is built whole of the graph as it is, with the parts that nodes have.
  void Check() {
    ASSERT_EQ(FaultsIn(*store_), "");
    auto kept = ReadAssignment(*store_, budget_, "default");
    ASSERT_OK(kept);
    const auto whole_record =
        BuildPartitioning(*store_, budget_, {.name = "whole", .table = "feature"}, *std::move(kept), {});
    ASSERT_OK(whole_record);
    const auto parts = Opened("default"), whole = Opened("whole");
    ASSERT_TRUE(parts != nullptr && whole != nullptr);
    ASSERT_TRUE(IsFresh(*store_->manifest(), parts->record()));
    EXPECT_EQ(parts->record().edge_count, whole_record->edge_count);
    EXPECT_EQ(parts->record().cut_edges, whole_record->cut_edges);
    std::vector<NodeId> new_ids(graph_.nodes);
    ASSERT_OK(parts->ReadNewIds(0, new_ids));
    std::vector<TypedEdge> edges;
    for (uint32_t source = 0; source < kRenewedParts; ++source) {
      for (uint32_t destination = 0; destination < kRenewedParts; ++destination) {
        const auto bytes = BucketOf(*parts, source, destination);
        ASSERT_TRUE(bytes == BucketOf(*whole, source, destination)) << source << " to " << destination;
        AppendEdges(parts->directory(), source, destination, parts->View(source, destination, bytes), edges);
      }
    }
    std::ranges::sort(edges);
    EXPECT_EQ(edges, EdgesIn(new_ids));
    ASSERT_NO_FATAL_FAILURE(CheckBuffer(*parts, edges));
    ASSERT_OK(DropPartitioning(*store_, "whole"));
  }

  // Training reads parts by a buffer: each edge is in a bucket of one of its steps.
  void CheckBuffer(const StoredPartitioning& parts, const std::vector<TypedEdge>& expected) {
    auto plan = PlanSwaps({.order = PartitionOrder::kBeta, .parts = kRenewedParts, .buffer = 2, .seed = 3});
    ASSERT_OK(plan);
    const auto buffer = PartitionBuffer::Make(parts, *backend_, budget_, *std::move(plan));
    ASSERT_OK(buffer);
    std::vector<TypedEdge> edges;
    for (;;) {
      const auto more = (*buffer)->Next();
      ASSERT_OK(more);
      if (!*more) break;
      for (const PartPair& pair : (*buffer)->step().buckets) {
        AppendEdges(parts.directory(), pair.source, pair.destination,
                    (*buffer)->Bucket(pair.source, pair.destination), edges);
      }
    }
    std::ranges::sort(edges);
    EXPECT_EQ(edges, expected);
  }
  ino_t PartsFile() const {
    struct stat file {};
    const auto manifest = store_->manifest();
    EXPECT_EQ(stat((path() + "/" + PartsFileOf(*manifest->FindPartitioning("default"))).c_str(), &file), 0);
    return file.st_ino;
  }

  const TinyGraph graph_ = {.nodes = 300, .dim = 8, .degree = 5};
  const ScratchFolder folder_{Medium::kMemory};
  const std::unique_ptr<IoBackend> backend_ = MakeDefaultBackend();
  MemoryBudget budget_{kGiB};
  std::unique_ptr<Store> store_;
  Rng rng_{1};
  uint32_t relations_ = 1;
};

TEST_F(RenewedPartitioningTest, HasTheEdgesOfTheNewestGraphWhateverCameAndWent) {
  const char* const given = std::getenv("QUARRY_GROWN_SEED");
  const uint64_t base = given == nullptr ? 30 : std::strtoull(given, nullptr, 10);
  uint64_t linked = 0;
  for (const uint32_t relations : {1U, 3U}) {
    const uint64_t seed = base + relations;
    SCOPED_TRACE(testing::Message() << "QUARRY_GROWN_SEED=" << base << ", relations " << relations);
    ASSERT_NO_FATAL_FAILURE(Make(seed, relations));
    const ino_t parts = PartsFile();
    for (int step = 0; step < 12; ++step) {
      SCOPED_TRACE(testing::Message() << "step " << step);
      const bool many = rng_.Below(5) == 0;
      ASSERT_NO_FATAL_FAILURE(Change(many ? 900 : rng_.Below(12), rng_.Below(many ? 200 : 12)));
      if (rng_.Below(4) == 0) {
        ASSERT_OK(CompactTopology(*store_, budget_, "graph", false, {}));
      }
      if (rng_.Below(3) == 0) {
        ASSERT_NO_FATAL_FAILURE(Open());
      }
      if (rng_.Below(4) == 0) continue;  // several commits between two renewals
      const auto record = Renew();
      ASSERT_OK(record);
      ASSERT_NO_FATAL_FAILURE(Check());
      EXPECT_GT(record->buckets_bytes, 0U);
      EXPECT_EQ(PartsFile(), parts) << "rows and maps are where they were";
      ++linked;
    }
  }
  EXPECT_GT(linked, 10U);
  EXPECT_EQ(budget_.used_bytes(), 0U);
}

// A commit of one edge changes one list, and so the buckets with edges to that node; the others stay where they are.
TEST_F(RenewedPartitioningTest, BucketsThatDidNotChangeStay) {
  ASSERT_NO_FATAL_FAILURE(Make(8, 1));
  const auto one_edge = [&](const Edge& edge) {
    auto change = GraphChange::Create(*store_, budget_, {.memory_bytes = kGraphChangeBytesMin});
    ASSERT_OK(change);
    ASSERT_OK((*change)->Add({&edge, 1}));
    ASSERT_OK((*change)->Commit());
  };
  const auto kept = ReadAssignment(*store_, budget_, "default");
  ASSERT_OK(kept);
  const Edge edges[] = {{7, 200}, {31, 100}};
  std::set<std::pair<uint32_t, uint32_t>> expected, found;
  for (const Edge& edge : edges) {
    ASSERT_NO_FATAL_FAILURE(one_edge(edge));
    ASSERT_OK(Renew());
    expected.emplace(kept->part_of[edge.source], kept->part_of[edge.destination]);
    const auto parts = Opened("default");
    found.clear();
    for (uint32_t source = 0; source < kRenewedParts; ++source) {
      for (uint32_t destination = 0; destination < kRenewedParts; ++destination) {
        if (parts->IsRenewed(source, destination)) found.emplace(source, destination);
      }
    }
    EXPECT_EQ(found, expected) << "the second time with those of the first";
  }
  ASSERT_NO_FATAL_FAILURE(Check());
  // Nothing changed: nothing is written but what was there.
  ASSERT_OK(Renew());
  ASSERT_NO_FATAL_FAILURE(Check());
}

TEST_F(RenewedPartitioningTest, IsBuiltWholeWhereMoreThanEdgesChanged) {
  ASSERT_NO_FATAL_FAILURE(Make(9, 1));
  const auto expect_whole = [&] {
    ASSERT_NO_FATAL_FAILURE(Change(5, 5));
    const auto record = Renew();
    ASSERT_OK(record);
    EXPECT_EQ(record->buckets_bytes, 0U);
    EXPECT_EQ(record->parts_generation, 0U);
    ASSERT_NO_FATAL_FAILURE(Check());
  };
  WriteBatch row, split;
  row.Put("feature", 17, graph_.Row(18));
  ASSERT_OK(store_->Write(row));
  ASSERT_NO_FATAL_FAILURE(expect_whole());
  split.SetSplit(3, Split::kNone);
  ASSERT_OK(store_->Write(split));
  ASSERT_NO_FATAL_FAILURE(expect_whole());
  // And edges alone again, on top of that.
  ASSERT_NO_FATAL_FAILURE(Change(5, 5));
  const auto record = Renew();
  ASSERT_OK(record);
  EXPECT_GT(record->buckets_bytes, 0U);
  ASSERT_NO_FATAL_FAILURE(Check());
  auto change = GraphChange::Create(*store_, budget_, {.nodes = 1, .memory_bytes = kGraphChangeBytesMin});
  ASSERT_OK(change);
  ASSERT_OK((*change)->Commit());
  const auto grown = Renew();
  ASSERT_OK(grown);
  EXPECT_EQ(grown->node_count, graph_.nodes + 1);
  EXPECT_EQ(grown->buckets_bytes, 0U);
}

TEST_F(RenewedPartitioningTest, EveryDamagedPageIsFoundAndACopyHasAllFiles) {
  ASSERT_NO_FATAL_FAILURE(Make(10, 3));
  ASSERT_NO_FATAL_FAILURE(Change(30, 30));
  ASSERT_OK(Renew());
  const std::string copy = folder_.path() + "/copy";
  ASSERT_OK(CheckpointStore(*store_, budget_, copy, {}));
  {
    const auto opened = Store::Open(*backend_, copy);
    ASSERT_OK(opened);
    EXPECT_EQ(FaultsIn(**opened), "");
    ASSERT_OK(StoredPartitioning::Open(**opened, budget_, "default"));
  }
  const auto manifest = store_->manifest();
  const std::string file = path() + "/" + BucketsFileOf(*manifest->FindPartitioning("default"));
  const uint64_t pages = fs::file_size(file) / kPageBytes;
  ASSERT_GT(pages, 4U);
  for (uint64_t page = 0; page < pages; ++page) {
    const uint64_t offset = page * kPageBytes + rng_.Below(kPageBytes);
    FlipByte(file, offset);
    EXPECT_THAT(FaultsIn(*store_), HasSubstr("buckets.qpp")) << "page " << page << ", offset " << offset;
    FlipByte(file, offset);
  }
  EXPECT_EQ(FaultsIn(*store_), "");
  // Buckets that are damaged are made again of the graph.
  FlipByte(file, kPageBytes + 9);
  ASSERT_NO_FATAL_FAILURE(Change(3, 3));
  ASSERT_OK(Renew());
  ASSERT_NO_FATAL_FAILURE(Check());
}

TEST_F(RenewedPartitioningTest, LittleMemoryIsRefusedOrEnough) {
  ASSERT_NO_FATAL_FAILURE(Make(11, 1));
  ASSERT_NO_FATAL_FAILURE(Change(20, 20));
  const auto before = *store_->manifest()->FindPartitioning("default");
  bool refused = false, made = false;
  for (uint64_t bytes = 64 << 10; !made; bytes *= 2) {
    MemoryBudget little(bytes);
    const auto record = MakePartitioning(*store_, little, {.table = "feature"},
                                         {.method = PartitionMethod::kKept, .parts = 0}, {});
    made = record.ok();
    if (!made) {
      refused = true;
      ASSERT_EQ(record.status().code(), Code::kOutOfBudget) << record.status().ToString();
      EXPECT_EQ(store_->manifest()->FindPartitioning("default")->generation, before.generation);
      ASSERT_LT(bytes, kGiB);
    }
    EXPECT_EQ(little.used_bytes(), 0U);
  }
  EXPECT_TRUE(refused);
  ASSERT_NO_FATAL_FAILURE(Check());
}

}  // namespace
}  // namespace quarry
