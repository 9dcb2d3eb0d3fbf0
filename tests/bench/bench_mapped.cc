// What training over a memory-mapped array waits for: the rows of sampled batches, copied out of a mapped .npy file by
// several threads, as data loaders do. For the demo's table; who runs it bounds the page cache by a memory cgroup.
//
//   bench_mapped DB FEATURES.npy FANOUTS BATCH_SIZE WARM_BATCHES BATCHES [THREADS]     (default 16 threads)
//
// Batches are sampled from the database's adjacency lists, which are read into memory, before the clock starts. The first
// WARM_BATCHES fill the page cache. Prints one line: batches of an epoch, rows and seconds of a batch, bytes that this
// process read from the disk for a batch.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/database.h"
#include "quarry/sampling/sampler.h"
#include "quarry/sampling/seed_order.h"
#include "quarry/storage/node_properties.h"

namespace quarry {
namespace {

struct Options {
  std::string database, features;
  std::vector<uint32_t> fanouts;
  uint64_t batch_size = 0, warm = 0, batches = 0, threads = 16;
};

// A .npy file of version 1 as `quarry generate` writes it: a preamble of 10 bytes, a header, then the rows.
Result<std::span<const std::byte>> MapRows(const std::string& path, uint64_t row_bytes, uint64_t rows) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return ErrnoStatus(errno, "open", path);
  struct stat info {};
  void* const mapped = fstat(descriptor, &info) == 0 ? mmap(nullptr, static_cast<size_t>(info.st_size),
                                                            PROT_READ, MAP_SHARED, descriptor, 0)
                                                     : MAP_FAILED;
  const int error = errno;
  posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);  // the import has just read it
  close(descriptor);
  if (mapped == MAP_FAILED) return ErrnoStatus(error, "map", path);
  madvise(mapped, static_cast<size_t>(info.st_size), MADV_RANDOM);
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(mapped),
                                         static_cast<size_t>(info.st_size));
  uint16_t header_bytes = 0;
  if (bytes.size() >= 10) std::memcpy(&header_bytes, bytes.data() + 8, sizeof(header_bytes));
  if (bytes.size() != 10 + header_bytes + row_bytes * rows) {
    return MakeStatus(Code::kInvalidArgument, "{}: {} bytes, which are not {} rows of {}", path, bytes.size(),
                      rows, row_bytes);
  }
  return bytes.subspan(10 + header_bytes);
}

void Gather(std::span<const std::byte> rows, uint64_t row_bytes, std::span<const NodeId> nodes,
            uint64_t thread_count, std::span<std::byte> to) {
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < thread_count; ++t) {
    threads.emplace_back([=] {
      for (size_t i = nodes.size() * t / thread_count; i < nodes.size() * (t + 1) / thread_count; ++i) {
        std::memcpy(to.data() + i * row_bytes, rows.data() + nodes[i] * row_bytes, row_bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

uint64_t BytesReadByProcess() {
  std::ifstream file("/proc/self/io");
  std::string key;
  uint64_t value = 0;
  while (file >> key >> value) {
    if (key == "read_bytes:") return value;
  }
  return 0;
}

Status Run(const Options& options) {
  QUARRY_TRY(const std::unique_ptr<Database> database, Database::Open(options.database));
  Store& store = database->store();
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  const TableRecord* const table = manifest->FindTable("feature");
  if (table == nullptr || manifest->topologies.empty()) {
    return Status(Code::kInvalidArgument, "the database has no features, or no topology");
  }
  const uint64_t row_bytes = RowBytes(table->element_type, table->dim);
  QUARRY_TRY(const std::unique_ptr<Topology> topology, store.OpenTopology(manifest->topologies.front().name));
  QUARRY_RETURN_IF_ERROR(topology->LoadIndices(store.backend(), Adjacency::kCsc));
  const NeighborSource source{.topology = topology.get()};
  QUARRY_TRY(const std::unique_ptr<NeighborSampler> sampler,
             NeighborSampler::Make(source, {.fanouts = options.fanouts}));
  QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, store.TakeSnapshot());
  QUARRY_TRY(const auto properties, LoadNodeProperties(store, manifest->node_count, snapshot));
  std::vector<NodeId> seeds = properties.TrainNodes();
  ShuffleSeeds(seeds, /*seed=*/1, /*pass=*/0);
  const uint64_t epoch_batches = CeilDiv(seeds.size(), options.batch_size);
  if (options.warm + options.batches > epoch_batches) {
    return MakeStatus(Code::kInvalidArgument, "an epoch has {} batches", epoch_batches);
  }
  std::vector<std::vector<NodeId>> batches;
  Block block;
  for (uint64_t b = 0; b < options.warm + options.batches; ++b) {
    const uint64_t first = b * options.batch_size;
    QUARRY_RETURN_IF_ERROR(sampler->Sample(
        std::span(seeds).subspan(first, std::min(options.batch_size, seeds.size() - first)), b, block));
    batches.emplace_back(block.nodes.begin(), block.nodes.end());
  }
  QUARRY_TRY(const std::span<const std::byte> rows, MapRows(options.features, row_bytes, table->row_count));
  std::vector<std::byte> to;
  double start = 0;
  uint64_t read_before = 0, row_count = 0;
  for (uint64_t b = 0; b < batches.size(); ++b) {
    if (b == options.warm) {
      start = MonotonicSeconds();
      read_before = BytesReadByProcess();
    }
    if (b >= options.warm) row_count += batches[b].size();
    to.resize(std::max(to.size(), batches[b].size() * row_bytes));
    Gather(rows, row_bytes, batches[b], options.threads, to);
  }
  const auto count = static_cast<double>(options.batches);
  fmt::print("{} {:.0f} {:.4f} {:.0f}\n", epoch_batches, static_cast<double>(row_count) / count,
             (MonotonicSeconds() - start) / count,
             static_cast<double>(BytesReadByProcess() - read_before) / count);
  return Status::Ok();
}

Result<Options> ParseOptions(int argc, char** argv) {
  if (argc != 7 && argc != 8) {
    return Status(Code::kUsage,
                  "usage: bench_mapped DB FEATURES.npy FANOUTS BATCH_SIZE WARM_BATCHES BATCHES [THREADS]");
  }
  Options options{.database = argv[1], .features = argv[2]};
  const std::string fanouts = argv[3];
  for (size_t begin = 0; begin <= fanouts.size();) {
    const size_t end = std::min(fanouts.find(',', begin), fanouts.size());
    QUARRY_TRY(const uint64_t fanout, ParseCount(fanouts.substr(begin, end - begin)));
    options.fanouts.push_back(static_cast<uint32_t>(fanout));
    begin = end + 1;
  }
  QUARRY_TRY(options.batch_size, ParseCount(argv[4]));
  QUARRY_TRY(options.warm, ParseCount(argv[5]));
  QUARRY_TRY(options.batches, ParseCount(argv[6]));
  if (argc == 8) {
    QUARRY_TRY(options.threads, ParseCount(argv[7]));
  }
  if (options.batch_size == 0 || options.batches == 0 || options.threads == 0) {
    return Status(Code::kUsage, "bench_mapped: batch size, batches and threads are at least 1");
  }
  return options;
}

}  // namespace
}  // namespace quarry

int main(int argc, char** argv) {
  const auto options = quarry::ParseOptions(argc, argv);
  const quarry::Status status = options.ok() ? quarry::Run(*options) : options.status();
  if (!status.ok()) fmt::print(stderr, "bench_mapped: {}\n", status.message());
  return quarry::ExitCode(status.code());
}
