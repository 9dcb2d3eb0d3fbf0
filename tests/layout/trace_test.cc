#include "quarry/layout/trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <map>
#include <set>

#include "bits.h"
#include "pipeline/tiny_database.h"
#include "quarry/base/random.h"
#include "record_file.h"
#include "support/fault_backend.h"
#include "support/file_text.h"
#include "support/status_matchers.h"
#include "support/temporary_folder.h"
#include "support/unsynced_backend.h"
#include "trace_source.h"

namespace quarry {
namespace {

using testing_util::TinyDatabase;
using testing_util::TinyGraph;

constexpr DatabaseId kTraceId{std::byte{9}};
constexpr uint64_t kTraceGeneration = 2;

// What a batch is, whatever its local ids.
struct Sampled {
  std::vector<std::set<NodeId>> groups;
  std::multiset<std::pair<NodeId, NodeId>> edges;
  bool operator==(const Sampled&) const = default;
};

Sampled MeaningOf(std::span<const NodeId> nodes, std::span<const uint32_t> hop_offsets,
                  std::span<const uint32_t> indptr, std::span<const uint32_t> indices) {
  Sampled sampled;
  uint32_t begin = 0;
  for (const uint32_t end : hop_offsets) {
    sampled.groups.emplace_back(nodes.begin() + begin, nodes.begin() + end);
    EXPECT_EQ(sampled.groups.back().size(), end - begin) << "nodes of a group are unique";
    begin = end;
  }
  EXPECT_EQ(begin, nodes.size());
  for (size_t v = 0; v + 1 < indptr.size(); ++v) {
    for (uint32_t e = indptr[v]; e < indptr[v + 1]; ++e) sampled.edges.emplace(nodes[indices[e]], nodes[v]);
  }
  return sampled;
}

// The topology of a small graph, in memory or on disk, and a folder for traces.
class TraceTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    database_ = std::make_unique<TinyDatabase>(TinyGraph{.nodes = 900, .lonely_from = 850});
  }
  static void TearDownTestSuite() { database_.reset(); }
  TraceTest() : folder_("trace") {
    store_ = std::move(Store::Open(faulty_, database_->path())).value();
    topology_ = std::move(store_->OpenTopology("graph")).value();
    source_ = {.topology = topology_.get(), .direction = Direction::kIn, .backend = &faulty_};
  }
  void LoadIndices() { ASSERT_OK(topology_->LoadIndices(faulty_, Adjacency::kCsc)); }

  // Two epochs of different length, each with a last batch that is not full.
  TraceSpec Spec(unsigned threads) const {
    TraceSpec spec{
        .road = {.fanouts = {4, 3, 2}, .batch_size = 40, .seed = 17}, .first_pass = 5, .threads = threads};
    spec.seeds.push_back(database_->graph().SplitNodes(Split::kTrain));
    spec.seeds.push_back(database_->graph().SplitNodes(Split::kValid));
    return spec;
  }
  std::string TracePath(const std::string& name) const { return folder_ / (name + ".qlt"); }
  std::string BlocksPath(const std::string& name) const { return folder_ / (name + ".tmp"); }
  Result<TraceSummary> Sample(const TraceSpec& spec, const std::string& name,
                              const std::function<Status(uint64_t)>& progress = {}) {
    return SampleTrace(source_, spec, faulty_, TracePath(name), BlocksPath(name), kTraceId, kTraceGeneration,
                       progress);
  }

  static std::unique_ptr<TinyDatabase> database_;
  const TemporaryFolder folder_;
  testing_util::UnsyncedBackend unsynced_;
  FaultBackend faulty_{unsynced_};
  std::unique_ptr<Store> store_;
  std::unique_ptr<Topology> topology_;
  NeighborSource source_;
};
std::unique_ptr<TinyDatabase> TraceTest::database_;

TEST_F(TraceTest, HoldsWhatTheSamplerDrawsForEveryBatch) {
  LoadIndices();
  const TraceSpec spec = Spec(2);
  const auto summary = Sample(spec, "a");
  ASSERT_OK(summary);
  const auto trace = Trace::Open(faulty_, TracePath("a"), kTraceId, kTraceGeneration, summary->trace_bytes);
  const auto blocks =
      RecordFile::Open(faulty_, BlocksPath("a"), kTraceId, kTraceGeneration, summary->blocks_bytes);
  ASSERT_OK(trace);
  ASSERT_OK(blocks);
  ASSERT_EQ((*trace)->batch_count(), spec.batch_count());
  const auto sampler = NeighborSampler::Make(source_, spec.road);
  ASSERT_OK(sampler);

  TraceCursor cursor(**trace);
  IoBuffer buffer;
  Block block;
  TraceSummary expected;
  uint64_t batch = 0;
  for (size_t epoch = 0; epoch < spec.seeds.size(); ++epoch) {
    const std::vector<NodeId>& seeds = spec.seeds[epoch];
    for (size_t first = 0, number = 0; first < seeds.size();
         first += spec.road.batch_size, ++number, ++batch) {
      SCOPED_TRACE(testing::Message() << "epoch " << epoch << " batch " << number);
      const size_t count = std::min<size_t>(spec.road.batch_size, seeds.size() - first);
      ASSERT_OK((*sampler)->Sample(std::span(seeds).subspan(first, count),
                                   MixSeed(spec.road.seed, spec.first_pass + epoch, number), block));
      const auto nodes = cursor.Read(batch);
      ASSERT_OK(nodes);
      const auto words = ReadArray<uint32_t>(**blocks, batch, buffer);
      ASSERT_OK(words);
      const uint32_t targets = (*words)[0];
      EXPECT_EQ(targets + 1, block.indptr.size());
      ASSERT_EQ((*nodes)->hop_offsets, block.hop_offsets);
      ASSERT_EQ(words->size(), 1 + targets + 1 + block.indices.size());
      EXPECT_EQ(MeaningOf((*nodes)->nodes, (*nodes)->hop_offsets, words->subspan(1, targets + 1),
                          words->subspan(2 + targets)),
                MeaningOf(block.nodes, block.hop_offsets, block.indptr, block.indices));
      uint32_t begin = 0;
      for (const uint32_t end : block.hop_offsets) {
        EXPECT_TRUE(std::is_sorted((*nodes)->nodes.begin() + begin, (*nodes)->nodes.begin() + end));
        begin = end;
      }
      expected.accesses += block.nodes.size();
      expected.edges += block.indices.size();
      expected.batch_nodes_max =
          std::max(expected.batch_nodes_max, static_cast<uint32_t>(block.nodes.size()));
      expected.batch_edges_max =
          std::max(expected.batch_edges_max, static_cast<uint32_t>(block.indices.size()));
      expected.batch_targets_max = std::max(expected.batch_targets_max, targets);
    }
  }
  EXPECT_EQ(batch, spec.batch_count());
  EXPECT_EQ(summary->accesses, expected.accesses);
  EXPECT_EQ(summary->edges, expected.edges);
  EXPECT_EQ(summary->batch_nodes_max, expected.batch_nodes_max);
  EXPECT_EQ(summary->batch_edges_max, expected.batch_edges_max);
  EXPECT_EQ(summary->batch_targets_max, expected.batch_targets_max);
}

TEST_F(TraceTest, TheFilesAreTheSameForAnyThreadsFromMemoryAndDisk) {
  ASSERT_OK(Sample(Spec(1), "disk"));
  LoadIndices();
  ASSERT_OK(Sample(Spec(1), "one"));
  ASSERT_OK(Sample(Spec(3), "three"));
  ASSERT_GT(testing_util::FileText(TracePath("one")).size(), 4096u * 20);
  for (const std::string other : {"three", "disk"}) {
    EXPECT_TRUE(testing_util::FileText(TracePath("one")) == testing_util::FileText(TracePath(other)))
        << other;
    EXPECT_TRUE(testing_util::FileText(BlocksPath("one")) == testing_util::FileText(BlocksPath(other)))
        << other;
  }
}

TEST_F(TraceTest, CancellingStopsAfterTheBatchAtHand) {
  LoadIndices();
  for (const unsigned threads : {1u, 3u}) {
    for (const uint64_t last : {1u, 2u, 7u}) {
      SCOPED_TRACE(testing::Message() << threads << " threads, cancelled at " << last);
      std::vector<uint64_t> reported;  // by whose turn it is
      const auto summary =
          Sample(Spec(threads), "cancelled" + std::to_string(threads * 10 + last), [&](uint64_t batches) {
            reported.push_back(batches);
            return batches == last ? Status(Code::kCancelled, "enough") : Status::Ok();
          });
      EXPECT_EQ(summary.status().code(), Code::kCancelled);
      std::vector<uint64_t> expected;
      for (uint64_t batches = 1; batches <= last; ++batches) expected.push_back(batches);
      EXPECT_EQ(reported, expected);
    }
  }
}

TEST_F(TraceTest, AnyFailingReadOrWriteStopsAllThreads) {
  for (const FaultKind kind : {FaultKind::kRead, FaultKind::kWrite, FaultKind::kSync}) {
    faulty_.SetPlans({});
    const std::string name = "fault" + std::to_string(static_cast<int>(kind)) + "-";
    ASSERT_OK(Sample(Spec(3), name + "none"));
    // Threads draw from what they have read, so the number of reads varies a little.
    const uint64_t count = faulty_.count(kind) * 9 / 10;
    ASSERT_GT(count, 2u);
    for (uint64_t at = 1; at <= count; at += 1 + count / 9) {
      SCOPED_TRACE(testing::Message() << name << at);
      faulty_.SetPlans({{.kind = kind, .at = at, .error = EIO}});
      EXPECT_EQ(Sample(Spec(3), name + std::to_string(at)).status().code(), Code::kIoError);
      EXPECT_EQ(faulty_.strikes(), 1u);
    }
  }
}

// Bytes that verify but were not written by this code are an error of the trace, at any length of them.
TEST_F(TraceTest, MalformedBatchesAreCorruption) {
  std::vector<std::byte> good;
  ByteWriter writer(good);
  for (const uint32_t word : {3, 2, 4, 6}) writer.U32(word);
  for (const std::vector<uint32_t>& group :
       {std::vector<uint32_t>{1, 800}, std::vector<uint32_t>{5, 6}, std::vector<uint32_t>{0, 70000}}) {
    writer.Ascending(group);
  }
  std::vector<std::vector<std::byte>> records;
  for (size_t bytes = 0; bytes <= good.size(); ++bytes)
    records.emplace_back(good.begin(), good.begin() + bytes);
  for (const std::vector<uint32_t>& head : std::vector<std::vector<uint32_t>>{
           {0}, {10, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {2, 5, 4, 1, 1, 1}, {1, 0xffffffff, 1, 1}}) {
    ByteWriter(records.emplace_back()).Packed(head, 32);
  }
  auto out = RecordWriter::Create(faulty_, TracePath("odd"));
  ASSERT_OK(out);
  for (const std::vector<std::byte>& record : records) ASSERT_OK((*out)->Append({record}));
  const auto file_bytes = (*out)->Finish(kTraceId, kTraceGeneration);
  ASSERT_OK(file_bytes);
  const auto trace = Trace::Open(faulty_, TracePath("odd"), kTraceId, kTraceGeneration, *file_bytes);
  ASSERT_OK(trace);
  TraceCursor cursor(**trace);
  for (size_t i = 0; i < records.size(); ++i) {
    const auto batch = cursor.Read(i);
    if (i == good.size()) {
      ASSERT_OK(batch);
      EXPECT_EQ((*batch)->nodes, (std::vector<NodeId>{1, 800, 5, 6, 0, 70000}));
      EXPECT_EQ((*batch)->hop_offsets, (std::vector<uint32_t>{2, 4, 6}));
      continue;
    }
    EXPECT_EQ(batch.status().code(), Code::kCorruption) << "record " << i;
  }
}

TEST_F(TraceTest, ANeighborCacheBeforeIndicesOnDiskChangesNoTraceAndReadsLess) {
  const auto snapshot = store_->TakeSnapshot();
  ASSERT_OK(snapshot);
  const LayoutSpec layout{
      .road = {.fanouts = {4, 3, 2}, .batch_size = 40, .seed = 17}, .epochs = 2, .snapshot = *snapshot};
  const TopologyRecord record = *store_->manifest()->FindTopology("graph");
  // What Make asks for, and a byte less than what would put the indices into memory.
  MemoryBudget plenty(kGiB);
  const auto in_memory = TraceSource::Make(*store_, plenty, layout);
  ASSERT_OK(in_memory);
  ASSERT_OK((*in_memory)->CacheNeighbors(plenty));
  EXPECT_EQ((*in_memory)->neighbors().caches[0], nullptr) << "indices in memory need no cache";
  MemoryBudget tight(plenty.used_bytes() + 128 * kMiB - 1);
  const auto on_disk = TraceSource::Make(*store_, tight, layout);
  ASSERT_OK(on_disk);
  ASSERT_TRUE((*on_disk)->neighbors().topology->indices(Adjacency::kCsc).empty());

  std::string traces[3];
  uint64_t read_bytes[2] = {};
  const auto sample = [&](const TraceSource& source, const std::string& name) {
    const auto summary = SampleTrace(source.neighbors(), source.spec(), faulty_, TracePath(name),
                                     BlocksPath(name), kTraceId, kTraceGeneration, {});
    EXPECT_OK(summary);
    return testing_util::FileText(TracePath(name)) + testing_util::FileText(BlocksPath(name));
  };
  const std::string expected = sample(**in_memory, "memory");
  EXPECT_EQ(sample(**on_disk, "disk"), expected);
  ASSERT_OK((*on_disk)->CacheNeighbors(tight));
  const NeighborCache* const cache = (*on_disk)->neighbors().caches[0];
  ASSERT_NE(cache, nullptr);
  EXPECT_GT(cache->cached_nodes(), 0u);
  EXPECT_LE(cache->memory_bytes(), tight.used_bytes());
  EXPECT_EQ(sample(**on_disk, "cached"), expected);

  for (const bool cached : {false, true}) {
    NeighborSource source = (*on_disk)->neighbors();
    if (!cached) source.caches[0] = nullptr;
    const auto sampler = NeighborSampler::Make(source, layout.road);
    ASSERT_OK(sampler);
    Block block;
    ASSERT_OK((*sampler)->Sample(database_->graph().SplitNodes(Split::kTrain), 1, block));
    read_bytes[cached] = (*sampler)->stats().bytes_read;
  }
  EXPECT_LE(read_bytes[true], read_bytes[false]);
}

TEST(NeighborCacheBytesTest, TakesWhatIsLeftWhereItSavesMoreThanItsScan) {
  const ListsOnDisk lists{.indices_bytes = 80'000'000, .address_bytes = 4'000'000};
  const auto bytes = [&](uint64_t batches, uint64_t available, unsigned threads = 1, uint64_t working = kMiB,
                         uint64_t read_bytes = 5'000'000) {
    const SampledBatch batch{.read_bytes = read_bytes, .working_bytes = working};
    return NeighborCacheBytes(batch, batches, threads, lists, available);
  };
  EXPECT_EQ(bytes(16, kGiB), 0u) << "16 batches read as much as the scan";
  EXPECT_GT(bytes(17, kGiB), 84'000'000u);
  EXPECT_LT(bytes(17, kGiB), 90'000'000u) << "no more than all lists and their addresses take";
  EXPECT_EQ(bytes(17, 160 * kMiB), 32 * kMiB) << "128 MiB are for sampling";
  EXPECT_EQ(bytes(17, 128 * kMiB), 0u);
  EXPECT_EQ(bytes(17, 0), 0u);
  EXPECT_EQ(bytes(17, 300 * kMiB, 2, 100 * kMiB), 50 * kMiB) << "and a quarter more than two threads took";
  EXPECT_EQ(bytes(17, 300 * kMiB, 3, 100 * kMiB), 0u);
  EXPECT_EQ(bytes(17, 128 * kMiB + 4'000'000), 0u) << "addresses alone find no list";
  EXPECT_EQ(bytes(17, 128 * kMiB + 4'000'001), 4'000'001u);
  EXPECT_EQ(bytes(3, kGiB, 1, kMiB, 80'000'000), 0u) << "however much three batches read";
  EXPECT_GT(bytes(4, kGiB, 1, kMiB, 80'000'000), 0u);
}

}  // namespace
}  // namespace quarry
