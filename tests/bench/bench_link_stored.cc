// Link prediction on stored vectors, four times as many as the pool's memory holds: batches a second of one
// batch at a time, of several unprotected, and of several under optimistic asynchrony control, in turns on
// one table; with the real decoder and optimizer.
//
// Nodes are as skewed as in knowledge graphs (Zipf, exponent 1) and numbered as an import numbers them, by
// their first appearance; half of the negatives are drawn by degree. Limits, measured in the same run: the
// same batches on tables in memory (what the decoder can do), and the device reading and writing as many
// pages, 64 at a time (what the disk can do).
//
//   bench_link_stored [DIR (build/bench-data)] [NODES (1000000)] [DIM (100)] [BATCHES (100)]
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
#include "quarry/io/buffer.h"
#include "quarry/io/ring.h"

namespace quarry::bench {
namespace {

constexpr uint32_t kRelations = 100;
constexpr uint64_t kEdges = 500'000;
constexpr int kRounds = 3;

struct Setup {
  std::string folder;
  uint64_t nodes = 0;
  LinkTrainOptions train;
  uint64_t batches = 0;  // of each run
};

// 0 to count - 1, the i-th in proportion to 1 / (i + 1), nearly.
uint64_t DrawZipf(Rng& rng, uint64_t count) {
  const double draw = std::exp(rng.Unit() * std::log(static_cast<double>(count) + 1));
  return std::min(static_cast<uint64_t>(draw), count) - 1;
}

LinkData SkewedGraph(uint64_t nodes) {
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
  for (uint64_t i = 0; i < kEdges; ++i) {
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
  // `stored` is null for tables in memory.
  Runner(const Setup& setup, const LinkData& data, std::vector<EmbeddingTable*> tables,
         const StoredEmbeddings* stored)
      : setup_(setup), tables_(std::move(tables)), stored_(stored), task_(data, setup.train) {}

  Result<Outcome> Run(AsyncMode mode) {
    const LinkTrainOptions& train = setup_.train;
    const auto pipeline = EmbeddingPipeline::Make(tables_, task_,
                                                  {.mode = mode,
                                                   .batches_in_flight = train.batches_in_flight,
                                                   .prepare_workers = train.workers,
                                                   .update_workers = train.workers,
                                                   .last_timestamp = last_timestamp_});
    QUARRY_RETURN_IF_ERROR(task_.StartEpoch(++epoch_, {}));
    const BufferPoolStats before = PoolStats();
    const double start = MonotonicSeconds();
    QUARRY_RETURN_IF_ERROR(pipeline->Run(task_.first_batch(), setup_.batches));
    Outcome outcome{MonotonicSeconds() - start, pipeline->stats(), Since(before, PoolStats())};
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

void Print(const Setup& setup, const char* name, const std::vector<Outcome>& outcomes) {
  const Outcome median = Median(outcomes);
  const auto batches = static_cast<double>(setup.batches);
  const auto [fastest, slowest] = std::ranges::minmax(outcomes, {}, &Outcome::seconds);
  const auto stage = [&](EmbeddingStage which) { return median.stages.stage(which); };
  const double pins = static_cast<double>(median.pool.hits + median.pool.misses);
  fmt::print(
      "{:<10} {:>9.1f} {:>6.1f} to {:>6.1f} {:>9.0f} | {:>8.2f} {:>8.2f} {:>8.2f} {:>8.2f} | {:>9.3f} "
      "{:>7.0f} {:>7.0f} {:>9.3f}\n",
      name, batches / median.seconds, batches / slowest.seconds, batches / fastest.seconds,
      batches * setup.train.batch_edges / median.seconds, stage(EmbeddingStage::kPrepare).busy_seconds,
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
    QUARRY_TRY(Outcome outcome, runner.Run(AsyncMode::kSync));
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
  QUARRY_RETURN_IF_ERROR(runner.Run(AsyncMode::kAsync).status());
  Outcomes outcomes;
  for (int round = 0; round < kRounds; ++round) {
    for (const AsyncMode mode : {AsyncMode::kSync, AsyncMode::kAsync, AsyncMode::kOac}) {
      QUARRY_TRY(Outcome outcome, runner.Run(mode));
      outcomes[mode].push_back(std::move(outcome));
    }
  }
  return outcomes;
}

Status Run(const Setup& setup) {
  const std::unique_ptr<IoBackend> backend = MakeDefaultBackend();
  std::filesystem::remove_all(setup.folder);
  std::filesystem::create_directories(setup.folder);
  const std::string path = setup.folder + "/db";
  const LinkData data = SkewedGraph(setup.nodes);
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
  Print(setup, "in memory", in_memory);
  QUARRY_TRY(std::unique_ptr<Store> store, MakeStore(*backend, path));
  QUARRY_TRY(Outcomes outcomes, Stored(setup, data, *store, specs));
  Print(setup, "sync", outcomes[AsyncMode::kSync]);
  Print(setup, "async", outcomes[AsyncMode::kAsync]);
  Print(setup, "oac", outcomes[AsyncMode::kOac]);

  const Outcome oac = Median(outcomes[AsyncMode::kOac]);
  const double async = Median(outcomes[AsyncMode::kAsync]).seconds;
  const double sync = Median(outcomes[AsyncMode::kSync]).seconds;
  const std::string file = path + "/" + store->manifest()->FindEmbedding("nodes")->file;
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
                             .batches = number(4, 100)};
  setup.train.spec.dim = static_cast<uint32_t>(number(3, 100));
  setup.train.degree_share = 0.5;
  setup.train.compute_threads = std::max(1U, quarry::ProcessorCount());
  setup.train.workers = 2;
  const quarry::Status status = quarry::bench::Run(setup);
  if (!status.ok()) fmt::print(stderr, "bench_link_stored: {}\n", status.message());
  return quarry::ExitCode(status.code());
}
