// Link prediction by parts on a graph whose vectors and edges exceed memory many times: the first sets of an epoch, in a
// memory budget. Each phase is a process of its own, so that its peak of memory is its own.
//
//   bench_partition_big make  FOLDER NODES EDGES             a database with a skewed random graph
//   bench_partition_big cut   FOLDER PARTS MEMORY            its partitioning, at random
//   bench_partition_big train FOLDER DIM SETS MEMORY FANOUT  trains until so many sets of parts are used (0: the epoch),
//                                                            with SAGE of FANOUT neighbors of each side; 0: dot alone
//
// MEMORY as 8GiB. tests/bench/bench_partition_big.sh runs all three.
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "quarry/base/process.h"
#include "quarry/base/processor_time.h"
#include "quarry/base/random.h"
#include "quarry/base/text.h"
#include "quarry/base/units.h"
#include "quarry/import/topology_builder.h"
#include "quarry/partition/partitioner.h"
#include "quarry/partition/stored_partitioning.h"
#include "quarry/trainer/link_run.h"

namespace quarry::bench {
namespace {

using Words = std::vector<std::string>;

Status MakeGraph(IoBackend& backend, const std::string& folder, const Words& words) {
  QUARRY_TRY(const uint64_t nodes, ParseCount(words[0]));
  QUARRY_TRY(const uint64_t edges, ParseCount(words[1]));
  const std::string path = folder + "/db";
  QUARRY_RETURN_IF_ERROR(CreateStoreDirectory(backend, path));
  Manifest empty;
  empty.database_id.fill(std::byte{1});
  QUARRY_TRY(const std::unique_ptr<Catalog> catalog, Catalog::Create(path));
  QUARRY_RETURN_IF_ERROR(catalog->CommitManifest(empty));
  QUARRY_RETURN_IF_ERROR(catalog->Close());
  QUARRY_TRY(const std::unique_ptr<Store> store, Store::Open(backend, path));
  QUARRY_TRY(const auto builder,
             TopologyBuilder::Create(backend, {.memory_bytes = kGiB / 2, .scratch_directory = folder}));
  Rng rng(1);
  std::vector<Edge> some;
  for (uint64_t i = 0; i < edges; ++i) {
    const double skewed = rng.Unit() * rng.Unit() * static_cast<double>(nodes);
    some.push_back({.source = rng.Below(nodes), .destination = static_cast<uint64_t>(skewed)});
    if (some.size() < 65536 && i + 1 < edges) continue;
    QUARRY_RETURN_IF_ERROR(builder->Add(some));
    some.clear();
  }
  TopologyRecord record;
  QUARRY_TRY(record,
             builder->Finish(path + "/topology/graph-1.qtp", nodes, store->manifest()->database_id, 1));
  record.name = "graph";
  record.file = "topology/graph-1.qtp";
  return store->UpdateManifest([&](Manifest& manifest) {
    manifest.node_count = nodes;
    manifest.topologies = {record};
    return Status::Ok();
  });
}

Status Cut(IoBackend& backend, const std::string& folder, const Words& words) {
  QUARRY_TRY(const uint64_t parts, ParseCount(words[0]));
  QUARRY_TRY(const uint64_t memory, ParseBytes(words[1], 0));
  QUARRY_TRY(const std::unique_ptr<Store> store, Store::Open(backend, folder + "/db"));
  MemoryBudget budget(memory);
  return MakePartitioning(
             *store, budget, {},
             {.method = PartitionMethod::kRandom, .parts = static_cast<uint32_t>(parts), .seed = 1}, {})
      .status();
}

Status Train(IoBackend& backend, const std::string& folder, const Words& words) {
  QUARRY_TRY(const uint64_t dim, ParseCount(words[0]));
  QUARRY_TRY(const uint64_t sets, ParseCount(words[1]));
  QUARRY_TRY(const uint64_t memory, ParseBytes(words[2], 0));
  QUARRY_TRY(const uint64_t fanout, ParseCount(words[3]));
  QUARRY_TRY(const std::unique_ptr<Store> store, Store::Open(backend, folder + "/db"));
  MemoryBudget budget(memory);
  QUARRY_TRY(const auto partitioning, StoredPartitioning::Open(*store, budget, "default"));
  LinkTrainOptions train{.batch_edges = 10'000,
                         .chunk_edges = 500,
                         .negatives = 500,
                         .epochs = 1,
                         .mode = AsyncMode::kSync,
                         .compute_threads = ProcessorCount()};
  train.spec.decoder = DecoderKind::kDot;
  train.spec.dim = static_cast<uint32_t>(dim);
  if (fanout > 0) train.encoder_fanouts = {static_cast<uint32_t>(fanout)};
  LinkData data;
  data.node_count = partitioning->directory().node_count();
  if (sets == 0) {  // a ranking comes at the end
    Rng rng(2);
    for (int i = 0; i < 100; ++i) {
      data.test.push_back({static_cast<NodeId>(rng.Below(data.node_count)), 0,
                           static_cast<NodeId>(rng.Below(data.node_count))});
    }
  }
  QUARRY_RETURN_IF_ERROR(LeaveEdgesInParts(*partitioning, *store, budget, data));
  QUARRY_TRY(const auto run,
             LinkRun::Open(*store, budget, data, train, {.keep = false, .partitioning = partitioning.get()}));
  const PartitionedRoadOptions& road = run->road()->options();
  uint64_t entered = 0, last = UINT64_MAX, trained = 0;
  const double start = MonotonicSeconds();
  const auto report = [&] {
    const double seconds = MonotonicSeconds() - start;
    const PartitionBufferStats buckets = run->road()->stats();
    const BufferPoolStats vectors = run->stats().pools;
    fmt::print(
        "{} of {} parts held; {} sets, {} edges in {:.1f} s ({:.0f} edges/s, {:.1f} s of processor time); {} "
        "of "
        "buckets read, {} and {} pages of vectors read and written\n",
        road.buffer, partitioning->directory().parts(), entered, trained, seconds,
        static_cast<double>(trained) / seconds, ProcessProcessorSeconds(), FormatBytes(buckets.bytes_read),
        vectors.pages_read, vectors.pages_written);
  };
  const LinkTrainCallbacks callbacks{.epoch = {},
                                     .progress = [&](std::string_view phase, uint64_t done, uint64_t) {
                                       if (!phase.starts_with("epoch")) return Status::Ok();
                                       const uint64_t first = run->road()->step().first_batch();
                                       entered += first == last ? 0 : 1;
                                       last = first;
                                       if (sets > 0 && entered > sets)
                                         return Status(Code::kCancelled, "enough");
                                       trained = done;
                                       return Status::Ok();
                                     }};
  const auto summary = TrainLinks(data, train, budget, callbacks, *run);
  report();
  if (!summary.ok() && summary.status().code() != Code::kCancelled) return summary.status();
  if (summary.ok() && summary->test) {
    fmt::print("ranked {} edges both ways among all nodes in {:.1f} s\n", data.test.size(),
               summary->test_seconds);
  }
  return Status::Ok();
}

Status Main(const Words& words) {
  const auto is = [&](std::string_view phase, size_t count) {
    return words.size() == 2 + count && words[0] == phase;
  };
  const auto backend = MakeDefaultBackend();
  const double start = MonotonicSeconds();
  Status status(Code::kUsage, "usage: bench_partition_big make|cut|train FOLDER ...");
  if (is("make", 2)) status = MakeGraph(*backend, words[1], {words.begin() + 2, words.end()});
  if (is("cut", 2)) status = Cut(*backend, words[1], {words.begin() + 2, words.end()});
  if (is("train", 4)) status = Train(*backend, words[1], {words.begin() + 2, words.end()});
  if (!status.ok()) return status;
  fmt::print("{}: {:.1f} s, {:.1f} of processor time, peak memory {}\n", words[0], MonotonicSeconds() - start,
             ProcessProcessorSeconds(), FormatBytes(PeakRssBytes()));
  return status;
}

}  // namespace
}  // namespace quarry::bench

int main(int argc, char** argv) {
  const quarry::Status status = quarry::bench::Main({argv + 1, argv + argc});
  if (!status.ok()) fmt::print(stderr, "bench_partition_big: {}\n", status.message());
  return quarry::ExitCode(status.code());
}
