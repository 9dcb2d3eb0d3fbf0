// Link prediction on stored vectors, four times as many as the pool's memory holds: batches a second of one
// batch at a time, of several unprotected, and of several under optimistic asynchrony control, in turns on
// one table; with the real decoder and optimizer.
//
// Nodes are as skewed as in knowledge graphs (Zipf, exponent 1) and numbered as an import numbers them, by
// their first appearance; half of the negatives are drawn by degree. Limits, measured in the same run: the
// same batches on tables in memory (what the decoder can do), and the device reading and writing as many
// pages, 64 at a time (what the disk can do).
//
// Then by parts, in the same memory: a whole epoch of each order, whose vectors swap part by part.
//
//   bench_link_stored [DIR (build/bench-data)] [NODES (1000000)] [DIM (100)] [BATCHES (100)] [EDGES (500000)]
//                     [PARTS (16)]
//
// The database is DIR/link_stored, which goes before and after.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "link_memory.h"
#include "link_task.h"
#include "quarry/base/process.h"
#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/embedding/embedding_store.h"
#include "quarry/import/topology_builder.h"
#include "quarry/io/buffer.h"
#include "quarry/io/ring.h"
#include "quarry/pipeline/partitioned_road.h"

namespace quarry::bench {
namespace {

constexpr uint32_t kRelations = 100;
constexpr int kRounds = 3;

struct Setup {
  std::string folder;
  uint64_t nodes = 0;
  LinkTrainOptions train;
  uint64_t batches = 0;  // of each run
  uint64_t edges = 0;
  uint32_t parts = 0;
};

// 0 to count - 1, the i-th in proportion to 1 / (i + 1), nearly.
uint64_t DrawZipf(Rng& rng, uint64_t count) {
  const double draw = std::exp(rng.Unit() * std::log(static_cast<double>(count) + 1));
  return std::min(static_cast<uint64_t>(draw), count) - 1;
}

LinkData SkewedGraph(uint64_t nodes, uint64_t edges) {
  LinkData data;
  data.node_count = nodes;
  data.relation_count = kRelations;
  std::vector<NodeId> ids(nodes, kNoNode);
  NodeId next = 0;
  Rng rng(1);
  const auto draw_node = [&] {
    NodeId& id = ids[DrawZipf(rng, nodes)];
    if (id == kNoNode) id = next++;
    return id;
  };
  for (uint64_t i = 0; i < edges; ++i) {
    const NodeId head = draw_node();
    data.train.push_back({head, static_cast<uint32_t>(DrawZipf(rng, kRelations)), draw_node()});
  }
  return data;
}

Result<std::unique_ptr<Store>> MakeStore(IoBackend& backend, const std::string& path) {
  QUARRY_RETURN_IF_ERROR(CreateStoreDirectory(backend, path));
  Manifest manifest;
  manifest.database_id.fill(std::byte{1});
  QUARRY_TRY(const std::unique_ptr<Catalog> catalog, Catalog::Create(path));
  QUARRY_RETURN_IF_ERROR(catalog->CommitManifest(manifest));
  QUARRY_RETURN_IF_ERROR(catalog->Close());
  return Store::Open(backend, path);
}

// Writes every row once, so that every page has a place on the disk.
Status FillTable(EmbeddingTable& table) {
  constexpr uint64_t kStep = 4096;
  const uint64_t rows = table.spec().row_count;
  RowBlock block;
  for (uint64_t first = 0; first < rows; first += kStep) {
    block.ids.resize(std::min(kStep, rows - first));
    std::iota(block.ids.begin(), block.ids.end(), first);
    QUARRY_RETURN_IF_ERROR(table.Read(block));
    std::ranges::fill(block.timestamps, 0);
    QUARRY_RETURN_IF_ERROR(table.Write(block));
  }
  return Status::Ok();
}

// One run of one mode.
struct Outcome {
  uint64_t batches = 0, edges = 0;
  double seconds = 0;
  EmbeddingPipelineStats stages;
  BufferPoolStats pool;  // of the nodes
};

BufferPoolStats Since(const BufferPoolStats& before, BufferPoolStats stats) {
  stats.hits -= before.hits;
  stats.misses -= before.misses;
  stats.pages_read -= before.pages_read;
  stats.pages_written -= before.pages_written;
  stats.read_wait_seconds -= before.read_wait_seconds;
  stats.frame_wait_seconds -= before.frame_wait_seconds;
  return stats;
}

// Runs modes in turns on the same tables, whose timestamps go on.
class Runner {
 public:
  // `stored` is null for tables in memory, `road` for batches of all edges.
  Runner(const Setup& setup, const LinkData& data, std::vector<EmbeddingTable*> tables,
         const StoredEmbeddings* stored, PartitionedRoad* road = nullptr)
      : setup_(setup), tables_(std::move(tables)), stored_(stored), task_(data, setup.train, road) {}

  Result<Outcome> Run(AsyncMode mode, uint64_t batches) {
    const LinkTrainOptions& train = setup_.train;
    const auto pipeline = EmbeddingPipeline::Make(tables_, task_,
                                                  {.mode = mode,
                                                   .batches_in_flight = train.batches_in_flight,
                                                   .prepare_workers = train.workers,
                                                   .update_workers = train.workers,
                                                   .last_timestamp = last_timestamp_});
    const BufferPoolStats before = PoolStats();
    const double start = MonotonicSeconds();
    QUARRY_RETURN_IF_ERROR(task_.StartEpoch(++epoch_, {}));
    batches = std::min(batches, task_.batch_count());
    for (uint64_t batch = 0; batch < batches;) {
      QUARRY_TRY(const uint64_t in_step, task_.Enter(batch));
      const uint64_t count = std::min(in_step, batches - batch);
      QUARRY_RETURN_IF_ERROR(pipeline->Run(task_.first_batch() + batch, count));
      batch += count;
    }
    Outcome outcome{batches, task_.EdgesBefore(batches), MonotonicSeconds() - start, pipeline->stats(),
                    Since(before, PoolStats())};
    last_timestamp_ = pipeline->last_timestamp();
    return outcome;
  }

 private:
  BufferPoolStats PoolStats() const { return stored_ == nullptr ? BufferPoolStats() : stored_->stats(); }

  const Setup& setup_;
  const std::vector<EmbeddingTable*> tables_;
  const StoredEmbeddings* const stored_;
  LinkTask task_;
  uint32_t epoch_ = 0;
  int64_t last_timestamp_ = 0;
};

// The device doing as many reads and writes of pages as a run, on the file that the table left.
Result<double> DeviceSeconds(IoBackend& backend, const std::string& path, uint32_t page_bytes,
                             const BufferPoolStats& stats) {
  constexpr size_t kDepth = 64;
  QUARRY_TRY(const File file, backend.Open(path, OpenMode::kReadWriteDirect));
  QUARRY_TRY(const uint64_t file_bytes, backend.FileBytes(file));
  QUARRY_TRY(const IoBuffer buffer, IoBuffer::Allocate(kDepth * page_bytes));
  QUARRY_TRY(const std::unique_ptr<IoRing> ring, IoRing::Make(backend, kDepth));
  const uint64_t total = stats.pages_read + stats.pages_written;
  const uint64_t slots = (file_bytes - kPageBytes) / page_bytes;
  std::vector<uint64_t> spare(kDepth);
  std::iota(spare.begin(), spare.end(), 0U);
  Rng rng(2);
  uint64_t submitted = 0, written = 0;
  const double start = MonotonicSeconds();
  while (submitted < total || ring->pending() > 0) {
    std::vector<IoRequest> requests;
    for (; submitted < total && !spare.empty(); ++submitted) {
      const bool write = rng.Below(total) < stats.pages_written;
      const uint64_t slot = write ? written++ % slots : rng.Below(slots);
      requests.push_back({.file = &file,
                          .offset = kPageBytes + slot * page_bytes,
                          .bytes = page_bytes,
                          .buffer = buffer.data() + spare.back() * page_bytes,
                          .user_data = spare.back(),
                          .kind = write ? RawRequest::Kind::kWrite : RawRequest::Kind::kRead});
      spare.pop_back();
    }
    QUARRY_RETURN_IF_ERROR(ring->Submit(requests));
    QUARRY_RETURN_IF_ERROR(ring->Wait(spare));
  }
  return MonotonicSeconds() - start;
}

// The run whose time is the median.
Outcome Median(std::vector<Outcome> outcomes) {
  std::ranges::sort(outcomes, {}, &Outcome::seconds);
  return outcomes[outcomes.size() / 2];
}

void Print(const char* name, const std::vector<Outcome>& outcomes) {
  const Outcome median = Median(outcomes);
  const auto batches = static_cast<double>(median.batches);
  const auto [fastest, slowest] = std::ranges::minmax(outcomes, {}, &Outcome::seconds);
  const auto stage = [&](EmbeddingStage which) { return median.stages.stage(which); };
  const double pins = static_cast<double>(median.pool.hits + median.pool.misses);
  fmt::print(
      "{:<10} {:>9.1f} {:>6.1f} to {:>6.1f} {:>9.0f} | {:>8.2f} {:>8.2f} {:>8.2f} {:>8.2f} | {:>9.3f} "
      "{:>7.0f} {:>7.0f} {:>9.3f}\n",
      name, batches / median.seconds, batches / slowest.seconds, batches / fastest.seconds,
      static_cast<double>(median.edges) / median.seconds, stage(EmbeddingStage::kPrepare).busy_seconds,
      stage(EmbeddingStage::kCompute).busy_seconds, stage(EmbeddingStage::kCompute).wait_seconds,
      stage(EmbeddingStage::kUpdate).busy_seconds,
      pins == 0 ? 1 : static_cast<double>(median.pool.hits) / pins,
      static_cast<double>(median.pool.pages_read) / batches,
      static_cast<double>(median.pool.pages_written) / batches,
      static_cast<double>(median.stages.rows_replaced) /
          static_cast<double>(std::max<uint64_t>(median.stages.rows_computed, 1)));
  std::fflush(stdout);
}

Result<std::vector<Outcome>> InMemory(const Setup& setup, const LinkData& data,
                                      std::span<const EmbeddingSpec> specs) {
  std::vector<std::unique_ptr<EmbeddingTable>> tables;
  std::vector<EmbeddingTable*> pointers;
  for (const EmbeddingSpec& spec : specs) {
    tables.push_back(MakeMemoryEmbeddingTable(spec));
    if (tables.back() == nullptr) return Status(Code::kOutOfBudget, "no memory for tables in memory");
    pointers.push_back(tables.back().get());
  }
  Runner runner(setup, data, pointers, nullptr);
  std::vector<Outcome> outcomes;
  for (int round = 0; round < kRounds; ++round) {
    QUARRY_TRY(Outcome outcome, runner.Run(AsyncMode::kSync, setup.batches));
    outcomes.push_back(std::move(outcome));
  }
  return outcomes;
}

using Outcomes = std::map<AsyncMode, std::vector<Outcome>>;

// Modes in turns, after a run that fills the pool.
Result<Outcomes> Stored(const Setup& setup, const LinkData& data, Store& store,
                        std::span<const EmbeddingSpec> specs) {
  constexpr const char* kNames[] = {"nodes", "relations"};
  MemoryBudget budget(4 * kGiB);
  std::vector<std::unique_ptr<StoredEmbeddings>> opened;
  std::vector<EmbeddingTable*> tables;
  for (size_t i = 0; i < specs.size(); ++i) {
    QUARRY_RETURN_IF_ERROR(CreateEmbeddings(store, kNames[i], specs[i], SmallestPageBytes(specs[i])));
    const uint64_t whole_bytes = StoredPoolBytes(specs[i], setup.train.workers).most;
    const uint64_t pool_bytes = i == 0 ? whole_bytes / 4 : whole_bytes;
    QUARRY_TRY(std::unique_ptr<StoredEmbeddings> table,
               StoredEmbeddings::Open(store, budget, kNames[i], {.memory_bytes = pool_bytes}));
    QUARRY_RETURN_IF_ERROR(FillTable(table->table()));
    QUARRY_RETURN_IF_ERROR(table->Checkpoint(0));
    tables.push_back(&table->table());
    opened.push_back(std::move(table));
  }
  Runner runner(setup, data, tables, opened[0].get());
  QUARRY_RETURN_IF_ERROR(runner.Run(AsyncMode::kAsync, setup.batches).status());
  Outcomes outcomes;
  for (int round = 0; round < kRounds; ++round) {
    for (const AsyncMode mode : {AsyncMode::kSync, AsyncMode::kAsync, AsyncMode::kOac}) {
      QUARRY_TRY(Outcome outcome, runner.Run(mode, setup.batches));
      outcomes[mode].push_back(std::move(outcome));
    }
  }
  return outcomes;
}

Status WriteGraph(const Setup& setup, const LinkData& data, Store& store) {
  QUARRY_TRY(const auto builder,
             TopologyBuilder::Create(store.backend(), {.relation_count = kRelations,
                                                       .memory_bytes = kGiB / 2,
                                                       .scratch_directory = setup.folder}));
  std::vector<std::vector<Edge>> edges(kRelations);
  for (const Triple& edge : data.train) edges[edge.relation].push_back({edge.head, edge.tail});
  for (uint32_t relation = 0; relation < kRelations; ++relation) {
    QUARRY_RETURN_IF_ERROR(builder->Add(edges[relation], relation));
  }
  TopologyRecord record;
  QUARRY_TRY(record, builder->Finish(store.path() + "/topology/graph-1.qtp", setup.nodes,
                                     store.manifest()->database_id, 1));
  record.name = "graph";
  record.file = "topology/graph-1.qtp";
  return store.UpdateManifest([&](Manifest& manifest) {
    manifest.node_count = setup.nodes;
    manifest.topologies = {record};
    return Status::Ok();
  });
}

// Holds each part once, so that every page has a place on the disk.
Status FillParts(PartedTable& table) {
  const PartLayout& layout = table.layout();
  for (uint32_t part = 0; part < layout.parts(); ++part) {
    QUARRY_RETURN_IF_ERROR(table.Hold({&part, 1}, {}));
    RowBlock block;
    for (uint64_t row = layout.part_starts[part]; row < layout.part_starts[part + 1]; ++row) {
      block.ids.push_back(row);
      if (block.ids.size() < 4096 && row + 1 < layout.part_starts[part + 1]) continue;
      QUARRY_RETURN_IF_ERROR(table.Read(block));
      std::ranges::fill(block.timestamps, 0);
      QUARRY_RETURN_IF_ERROR(table.Write(block));
      block.ids.clear();
    }
  }
  return Status::Ok();
}

// An epoch by parts in each order that suits, with a buffer for which vectors and buckets take `memory_bytes`.
Status ByParts(const Setup& setup, const LinkData& data, Store& store, std::span<const EmbeddingSpec> specs,
               uint64_t memory_bytes) {
  QUARRY_RETURN_IF_ERROR(WriteGraph(setup, data, store));
  MemoryBudget budget(4 * kGiB);
  QUARRY_RETURN_IF_ERROR(
      MakePartitioning(store, budget, {}, {.method = PartitionMethod::kRandom, .parts = setup.parts}, {})
          .status());
  QUARRY_TRY(const auto partitioning, StoredPartitioning::Open(store, budget, "default"));
  const PartitionDirectory& directory = partitioning->directory();
  QUARRY_TRY(const PartLayout layout, LayOutParts(specs[0], directory.part_starts));
  QUARRY_RETURN_IF_ERROR(CreateEmbeddings(store, "parts", layout.file_spec(), layout.page_bytes));
  const uint64_t frame_bytes = PartedTable::Bytes(layout, 2) - PartedTable::Bytes(layout, 1);
  bool is_full = false;
  for (const PartitionOrder order : {PartitionOrder::kComet, PartitionOrder::kBeta}) {
    for (const bool prefetch : {false, true}) {
      if (order == PartitionOrder::kBeta && !prefetch) continue;
      QUARRY_TRY(const PartitionedRoadOptions options,
                 TuneRoad(directory, {.order = order, .prefetch = prefetch}, frame_bytes, memory_bytes));
      QUARRY_TRY(const auto nodes,
                 StoredEmbeddings::OpenParts(store, budget, "parts", layout, RoadFrames(directory, options)));
      QUARRY_TRY(
          const auto relations,
          StoredEmbeddings::Open(store, budget, "relations",
                                 {.memory_bytes = StoredPoolBytes(specs[1], setup.train.workers).most}));
      if (!is_full) {
        QUARRY_RETURN_IF_ERROR(FillParts(*nodes->parts()));
        QUARRY_RETURN_IF_ERROR(nodes->Checkpoint(0));
        is_full = true;
      }
      QUARRY_TRY(const auto road,
                 PartitionedRoad::Make(*partitioning, store.backend(), budget, nodes->parts(), options,
                                       setup.train.seed, setup.train.batch_edges));
      Runner runner(setup, data, {&nodes->table(), &relations->table()}, nodes.get(), road.get());
      std::vector<Outcome> outcomes;
      for (int round = 0; round < kRounds; ++round) {
        QUARRY_TRY(Outcome outcome, runner.Run(AsyncMode::kOac, UINT64_MAX));
        outcomes.push_back(std::move(outcome));
      }
      Print(std::string(PartitionOrderName(order)).c_str(), outcomes);
      const PartedStats stats = nodes->parts()->stats();
      fmt::print(
          "           {} of {} parts held, {}; an epoch of {} batches reads {}, writes {}, and waits {:.2f} "
          "s for them\n",
          options.buffer, setup.parts, prefetch ? "the next ones prefetched" : "none prefetched",
          outcomes[0].batches, FormatBytes(stats.pages_read * layout.page_bytes / kRounds),
          FormatBytes(stats.pages_written * layout.page_bytes / kRounds), stats.wait_seconds / kRounds);
      std::fflush(stdout);
    }
  }
  return Status::Ok();
}

Status Run(const Setup& setup) {
  const std::unique_ptr<IoBackend> backend = MakeDefaultBackend();
  std::filesystem::remove_all(setup.folder);
  std::filesystem::create_directories(setup.folder);
  const std::string path = setup.folder + "/db";
  const LinkData data = SkewedGraph(setup.nodes, setup.edges);
  const EmbeddingSpec specs[] = {NodeTableSpec(setup.train, setup.nodes),
                                 RelationTableSpec(setup.train, kRelations)};
  const uint64_t whole_bytes = StoredPoolBytes(specs[0], setup.train.workers).most;
  fmt::print(
      "{} nodes of {} floats and their optimizer's state: {}, in a pool of {}; batches of {} edges, {} "
      "in flight, {} threads\n",
      setup.nodes, setup.train.spec.dim, FormatBytes(whole_bytes), FormatBytes(whole_bytes / 4),
      setup.train.batch_edges, setup.train.batches_in_flight, setup.train.compute_threads);
  fmt::print(
      "           batches/s     lowest to best   edges/s |  prepare  compute    waits   update |      "
      "hits  read/b  writ/b  replaced\n");
  QUARRY_TRY(const std::vector<Outcome> in_memory, InMemory(setup, data, specs));
  Print("in memory", in_memory);
  QUARRY_TRY(std::unique_ptr<Store> store, MakeStore(*backend, path));
  QUARRY_TRY(Outcomes outcomes, Stored(setup, data, *store, specs));
  Print("sync", outcomes[AsyncMode::kSync]);
  Print("async", outcomes[AsyncMode::kAsync]);
  Print("oac", outcomes[AsyncMode::kOac]);

  const Outcome oac = Median(outcomes[AsyncMode::kOac]);
  const double async = Median(outcomes[AsyncMode::kAsync]).seconds;
  const double sync = Median(outcomes[AsyncMode::kSync]).seconds;
  const std::string file = path + "/" + store->manifest()->FindEmbedding("nodes")->file;
  QUARRY_RETURN_IF_ERROR(ByParts(setup, data, *store, specs, whole_bytes / 4));
  store.reset();
  QUARRY_TRY(const double device, DeviceSeconds(*backend, file, SmallestPageBytes(specs[0]), oac.pool));
  fmt::print("oac / async {:.3f} (at least 0.95 is wanted), async / sync {:.2f}, oac / sync {:.2f}\n",
             async / oac.seconds, sync / async, sync / oac.seconds);
  fmt::print(
      "limits: the device takes {:.2f} s for the pages of oac's {:.2f} s, the decoder in memory {:.2f}\n",
      device, oac.seconds, Median(in_memory).seconds);
  std::filesystem::remove_all(setup.folder);
  return Status::Ok();
}

}  // namespace
}  // namespace quarry::bench

int main(int argc, char** argv) {
  const auto number = [&](int i, uint64_t otherwise) {
    return argc > i ? std::strtoull(argv[i], nullptr, 10) : otherwise;
  };
  quarry::bench::Setup setup{.folder = std::string(argc > 1 ? argv[1] : "build/bench-data") + "/link_stored",
                             .nodes = number(2, 1'000'000),
                             .batches = number(4, 100),
                             .edges = number(5, 500'000),
                             .parts = static_cast<uint32_t>(number(6, 16))};
  setup.train.spec.dim = static_cast<uint32_t>(number(3, 100));
  setup.train.degree_share = 0.5;
  setup.train.compute_threads = std::max(1U, quarry::ProcessorCount());
  setup.train.workers = 2;
  const quarry::Status status = quarry::bench::Run(setup);
  if (!status.ok()) fmt::print(stderr, "bench_link_stored: {}\n", status.message());
  return quarry::ExitCode(status.code());
}
