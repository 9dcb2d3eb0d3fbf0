// Imports of a generated edge list (.npy, int64 [2, E]) with several memory limits: what fits in memory, and
// what is sorted outside it.
//
// Limit, measured in the same run: the seconds that the device takes to move the bytes that the import has to
// move (the source and what is spilled read once; what is spilled and the result written once), sequentially,
// in large direct transfers. CPU seconds are printed too: they hold where others use the machine.
//
//   bench_import DIR [EDGES (60M)] [NODES (4M)]
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "quarry/base/process.h"
#include "quarry/base/processor_time.h"
#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/format/npy_writer.h"
#include "quarry/import/import.h"
#include "quarry/storage/store.h"

namespace quarry {
namespace {

constexpr uint64_t kPieceBytes = 4 * kMiB;

struct Speeds {
  double read_bytes_per_second = 0;
  double write_bytes_per_second = 0;
};

// Endpoints skewed as a power law would have them: the square of a uniform number.
Status WriteEdges(IoBackend& backend, const std::string& path, uint64_t edges, uint64_t nodes,
                  Speeds* speeds) {
  QUARRY_TRY(const File file, backend.Open(path, OpenMode::kCreate));
  const std::vector<std::byte> header = EncodeNpyHeader(ElementType::kInt64, std::vector<uint64_t>{2, edges});
  QUARRY_RETURN_IF_ERROR(backend.WriteAt(file, 0, header));
  QUARRY_TRY(const IoBuffer buffer, IoBuffer::Allocate(kPieceBytes));
  const std::span<uint64_t> ids(reinterpret_cast<uint64_t*>(buffer.data()), kPieceBytes / sizeof(uint64_t));
  Rng random(1);
  for (uint64_t done = 0; done < 2 * edges;) {
    const uint64_t n = std::min<uint64_t>(ids.size(), 2 * edges - done);
    for (uint64_t& id : ids.first(n)) {
      const double unit = random.Unit();
      id = static_cast<uint64_t>(unit * unit * static_cast<double>(nodes));
    }
    QUARRY_RETURN_IF_ERROR(
        backend.WriteAt(file, header.size() + done * sizeof(uint64_t), std::as_bytes(ids.first(n))));
    done += n;
  }
  QUARRY_RETURN_IF_ERROR(backend.SyncFile(file));
  // The device's own speeds, in a file beside it.
  const std::string probe = path + ".probe";
  constexpr uint64_t kProbeBytes = 512 * kMiB;
  {
    QUARRY_TRY(const File out, backend.Open(probe, OpenMode::kCreateDirect));
    double start = MonotonicSeconds();
    for (uint64_t at = 0; at < kProbeBytes; at += kPieceBytes) {
      QUARRY_RETURN_IF_ERROR(backend.WriteAt(out, at, buffer.span()));
    }
    QUARRY_RETURN_IF_ERROR(backend.SyncFile(out));
    speeds->write_bytes_per_second = static_cast<double>(kProbeBytes) / (MonotonicSeconds() - start);
    start = MonotonicSeconds();
    for (uint64_t at = 0; at < kProbeBytes; at += kPieceBytes) {
      QUARRY_RETURN_IF_ERROR(backend.ReadAt(out, at, buffer.span()));
    }
    speeds->read_bytes_per_second = static_cast<double>(kProbeBytes) / (MonotonicSeconds() - start);
  }
  std::filesystem::remove(probe);
  return Status::Ok();
}

struct Case {
  const char* name;
  uint64_t memory_bytes;
  bool undirected = false;
};

Status Measure(IoBackend& backend, const std::string& folder, const Case& which, uint64_t edges,
               const Speeds& speeds) {
  const std::string database = folder + "/bench.db";
  std::filesystem::remove_all(database);
  ImportOptions options;
  options.memory_bytes = which.memory_bytes;
  options.undirected = which.undirected;
  double writing_since = 0;
  options.progress = [&](std::string_view phase, uint64_t, uint64_t) {
    if (writing_since == 0 && phase.starts_with("writing")) writing_since = MonotonicSeconds();
    return Status::Ok();
  };
  const double start = MonotonicSeconds();
  const double cpu_start = ProcessProcessorSeconds();
  QUARRY_TRY(Dataset dataset, OpenDataset(folder + "/edges.npy", {}));
  QUARRY_RETURN_IF_ERROR(ImportDatabase(backend, database, std::move(dataset), options));
  const double end = MonotonicSeconds();
  const double cpu_seconds = ProcessProcessorSeconds() - cpu_start;
  QUARRY_TRY(const auto store, Store::Open(backend, database));
  const std::shared_ptr<const Manifest> manifest = store->manifest();
  const TopologyRecord& record = manifest->topologies[0];
  const uint64_t keys = edges * (which.undirected ? 2 : 1);
  const uint64_t key_bytes = keys * sizeof(uint64_t);
  const bool spills = key_bytes > which.memory_bytes / 2;
  const double read_bytes = static_cast<double>(edges * 16 + (spills ? key_bytes : 0));
  const double write_bytes = static_cast<double>(record.file_bytes + (spills ? key_bytes : 0));
  const double limit =
      read_bytes / speeds.read_bytes_per_second + write_bytes / speeds.write_bytes_per_second;
  fmt::print(
      "{:<24} {:>8}: {:5.2f} s (reading {:.2f}, writing {:.2f}), {:.1f} M edges/s; {:.2f} CPU s, {:.1f} M "
      "edges per "
      "CPU s; the device alone {:.2f} s\n",
      which.name, FormatBytes(which.memory_bytes), end - start, writing_since - start, end - writing_since,
      static_cast<double>(edges) / (end - start) / 1e6, cpu_seconds,
      static_cast<double>(edges) / cpu_seconds / 1e6, limit);
  std::filesystem::remove_all(database);
  return Status::Ok();
}

Status Run(int argc, char** argv) {
  if (argc < 2) return Status(Code::kUsage, "bench_import DIR [EDGES] [NODES]");
  const std::string folder = std::string(argv[1]) + "/bench_import";
  QUARRY_TRY(const uint64_t edges, ParseCount(argc > 2 ? argv[2] : "60M"));
  QUARRY_TRY(const uint64_t nodes, ParseCount(argc > 3 ? argv[3] : "4M"));
  std::filesystem::create_directories(folder);
  const std::unique_ptr<IoBackend> backend = MakeDefaultBackend();
  Speeds speeds;
  Status status = WriteEdges(*backend, folder + "/edges.npy", edges, nodes, &speeds);
  if (status.ok()) {
    fmt::print("{} edges, {} nodes; device: reads {:.0f} MB/s, writes {:.0f} MB/s\n", edges, nodes,
               speeds.read_bytes_per_second / 1e6, speeds.write_bytes_per_second / 1e6);
  }
  for (const Case& which :
       {Case{"fits in memory", 4 * kGiB}, Case{"spills", 256 * kMiB}, Case{"spills, merges twice", 32 * kMiB},
        Case{"undirected, spills", 512 * kMiB, true}}) {
    if (status.ok()) status = Measure(*backend, folder, which, edges, speeds);
  }
  fmt::print("peak RSS {}\n", FormatBytes(PeakRssBytes()));
  std::filesystem::remove_all(folder);
  return status;
}

}  // namespace
}  // namespace quarry

int main(int argc, char** argv) {
  const quarry::Status status = quarry::Run(argc, argv);
  if (!status.ok()) fmt::print(stderr, "bench_import: {}\n", status.ToString());
  return quarry::ExitCode(status.code());
}
