// Layouts against other roads to the same batches, each figure beside its limit, measured in the same run.
//
//   roads     an epoch's reads by road and policy, predicted and measured, beside the sequential limit
//   disk      smaller disk budgets: space, amplification, seconds; the segment search against brute force
//   sampling  an epoch's trace, indices on disk, with a neighbor cache and without
//   packing   batched against individual packing
//   pipeline  pipelined against sequential training
//
// All reads are direct, so every run is cold. Roads that would take minutes are timed on a few batches of the
// epoch, spread over it, and scaled. Exit code 1 when a target is missed.
//
//   bench_layout DB [roads|disk|sampling|packing|pipeline]... [--cache 10%] [--fanout 10,15,20] [--batch-size 1024]
//                [--memory SIZE] [--batches N]
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "bench/layout_epoch.h"
#include "cache_plan.h"
#include "layout/segment_grid.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/cache/gather.h"
#include "quarry/database.h"
#include "quarry/io/device.h"
#include "quarry/io/ring.h"
#include "quarry/trainer/train.h"
#include "trace_source.h"

namespace quarry {
namespace {

using bench::Epoch;

struct Options {
  std::string database;
  std::vector<std::string> parts;
  std::string cache = "10%", memory = "16GiB";
  std::vector<uint32_t> fanouts = {10, 15, 20};
  uint32_t batch_size = 1024;
  uint64_t batches = 4;  // of slow roads
  uint64_t depth = PlannedRoadOptions{}.io_depth;
  bool Wants(const std::string& part) const {
    return parts.empty() || std::ranges::find(parts, part) != parts.end();
  }
};

Result<Options> ParseOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool more = i + 1 < argc;
    if (word == "--cache" && more) {
      options.cache = argv[++i];
    } else if (word == "--memory" && more) {
      options.memory = argv[++i];
    } else if (word == "--batch-size" && more) {
      QUARRY_TRY(const uint64_t size, ParseCount(argv[++i]));
      options.batch_size = static_cast<uint32_t>(size);
    } else if (word == "--depth" && more) {
      QUARRY_TRY(options.depth, ParseCount(argv[++i]));
    } else if (word == "--batches" && more) {
      QUARRY_TRY(options.batches, ParseCount(argv[++i]));
    } else if (word == "--fanout" && more) {
      options.fanouts.clear();
      const std::string text = argv[++i];
      for (size_t begin = 0; begin <= text.size();) {
        const size_t end = std::min(text.find(',', begin), text.size());
        QUARRY_TRY(const uint64_t fanout, ParseCount(text.substr(begin, end - begin)));
        options.fanouts.push_back(static_cast<uint32_t>(fanout));
        begin = end + 1;
      }
    } else if (!word.starts_with("--") && options.database.empty()) {
      options.database = word;
    } else if (!word.starts_with("--")) {
      options.parts.push_back(word);
    } else {
      return MakeStatus(Code::kUsage, "'{}': not an option of bench_layout", word);
    }
  }
  if (options.database.empty()) return Status(Code::kUsage, "which database? bench_layout DB");
  return options;
}

double Giga(uint64_t bytes) { return static_cast<double>(bytes) / 1e9; }

struct Context {
  const Options& options;
  Database& database;
  std::unique_ptr<FeatureTable> table;
  DeviceProfile device;
  uint64_t feature_bytes = 0;
  uint64_t cache_bytes = 0;
  bool missed = false;

  const FeatureGeometry& geometry() const { return table->geometry(); }
  uint64_t stride() const { return RowStride(geometry().element_type, geometry().dim); }
  void Target(std::string_view what, double figure, double target, bool at_least) {
    const bool met = at_least ? figure >= target : figure <= target;
    missed |= !met;
    fmt::print("  target: {} {:.3f}, {} {:.3f}: {}\n", what, figure, at_least ? ">=" : "<=", target,
               met ? "PASS" : "FAIL");
  }
};

LayoutSpec SpecOf(const Context& context, PolicyKind policy, SeedOrder order) {
  return {.name = "bench",
          .road = {.fanouts = context.options.fanouts,
                   .batch_size = context.options.batch_size,
                   .cache_bytes = context.cache_bytes,
                   .seed_order = order},
          .policy = policy,
          .threads = ProcessorCount()};
}

// As bench::RunLayout, by the options.
Result<Epoch> RunLayout(Context& context, const std::string& name, unsigned epoch_count) {
  return bench::RunLayout(context.database, name, epoch_count, static_cast<unsigned>(context.options.depth));
}

// Builds the layout "bench" anew; the one before goes first, so that the disk need not hold two.
Result<LayoutRecord> Build(Context& context, const LayoutSpec& spec, BuildReport* report = nullptr) {
  if (context.database.manifest()->FindLayout(spec.name) != nullptr) {
    QUARRY_RETURN_IF_ERROR(DropLayout(context.database.store(), spec.name));
  }
  return context.database.BuildLayout(spec, false, {}, report);
}

// --- reads of chosen batches
// --------------------------------------------------------------------------------------

// The misses of batches spread over the epoch, under a policy, and those of the whole.
struct SampledMisses {
  std::vector<std::vector<NodeId>> batches;  // ascending
  uint64_t misses = 0;                       // of the epoch
  uint64_t batch_count = 0;
  uint64_t sampled() const {
    uint64_t count = 0;
    for (const auto& batch : batches) count += batch.size();
    return count;
  }
};

Result<SampledMisses> Misses(Context& context, const Trace& trace, PolicyKind policy, uint64_t take) {
  const std::string scratch = context.options.database + "/layouts/bench-next.tmp";
  std::filesystem::remove(scratch);
  const uint64_t node_count = context.geometry().row_count;
  CachePlanOptions options{
      .policy = policy, .node_count = node_count, .capacity = context.cache_bytes / context.stride()};
  std::unique_ptr<NextUses> next_uses;
  if (WantsNextUses(policy)) {
    QUARRY_TRY(next_uses, NextUses::Make(context.database.backend(), trace, node_count, true, scratch));
  }
  SampledMisses result{.batch_count = trace.batch_count()};
  const uint64_t step = std::max<uint64_t>(1, trace.batch_count() / take);
  const auto visit = [&](uint64_t batch, const TraceBatch& nodes, const CacheStep& plan) -> Status {
    if (batch % step != step / 2 || result.batches.size() == take) return Status::Ok();
    std::vector<NodeId>& misses = result.batches.emplace_back();
    for (size_t i = 0; i < nodes.nodes.size(); ++i) {
      if (plan.slots[i] == kNoSlot) misses.push_back(nodes.nodes[i]);
    }
    std::ranges::sort(misses);
    return Status::Ok();
  };
  const auto plan = SimulateCache(trace, next_uses.get(), options, visit);
  std::filesystem::remove(scratch);
  QUARRY_RETURN_IF_ERROR(plan.status());
  result.misses = plan->misses;
  return result;
}

struct Reading {
  double seconds = 0;
  uint64_t bytes = 0;
  uint64_t requests = 0;
};

// Reads by up to 64 requests in flight, into staging that stays in the processor's cache.
Result<Reading> ReadAll(Context& context, std::span<const MergedRead> reads) {
  constexpr unsigned kDepth = 64;
  uint64_t largest = 0;
  Reading reading{.requests = reads.size()};
  for (const MergedRead& read : reads) {
    largest = std::max<uint64_t>(largest, read.bytes);
    reading.bytes += read.bytes;
  }
  if (reads.empty()) return reading;
  const uint64_t pieces = std::clamp<uint64_t>(16 * kMiB / largest, 32, 2 * kDepth);
  largest = RoundUp(largest, 512);
  QUARRY_TRY(const IoBuffer staging, IoBuffer::Allocate(pieces * largest));
  QUARRY_TRY(const std::unique_ptr<IoRing> ring, IoRing::Make(context.database.backend(), kDepth));
  std::vector<uint32_t> idle;
  for (uint32_t piece = 0; piece < pieces; ++piece) idle.push_back(piece);
  std::vector<uint64_t> done;
  const double start = MonotonicSeconds();
  for (size_t next = 0; next < reads.size() || ring->pending() > 0;) {
    for (; next < reads.size() && !idle.empty(); ++next) {
      const ReadRequest request{&context.table->file(), reads[next].offset, reads[next].bytes,
                                staging.data() + idle.back() * largest, idle.back()};
      idle.pop_back();
      QUARRY_RETURN_IF_ERROR(ring->Submit({&request, 1}));
    }
    done.clear();
    QUARRY_RETURN_IF_ERROR(ring->Wait(done));
    for (const uint64_t piece : done) idle.push_back(static_cast<uint32_t>(piece));
  }
  reading.seconds = MonotonicSeconds() - start;
  return reading;
}

enum class Path { kRows, kPages, kCoalesced };

// The reads of one batch's misses by a path.
std::vector<MergedRead> PlanReads(const Context& context, std::span<const NodeId> misses, Path path) {
  const FeatureGeometry& geometry = context.geometry();
  std::vector<ByteRange> ranges;
  for (const NodeId node : misses) {
    const uint64_t cell = geometry.CellOfRow(node);
    ranges.push_back({geometry.CellOffset(cell), geometry.cell_bytes()});
  }
  std::vector<MergedRead> reads;
  if (path == Path::kRows) {
    for (const ByteRange& range : ranges) {
      Coalesce(std::span(&range, 1), {.block_bytes = context.table->block_bytes(), .gap_bytes_max = 0},
               reads);
    }
    return reads;
  }
  const bool pages = path == Path::kPages;
  Coalesce(ranges,
           {.block_bytes = pages ? 4096 : context.table->block_bytes(),
            .gap_bytes_max = pages ? 0 : context.device.GapBytesMax(),
            .request_bytes_max = 256U << 10},
           reads);
  return reads;
}

// --- roads
// --------------------------------------------------------------------------------------------------------

constexpr std::string_view kRow = "{:<34}{:>9}{:>9}{:>8}{:>10}{:>10}{:>7}{:>9}\n";

struct RoadLine {
  std::string road;
  uint64_t useful = 0, read = 0;
  double seconds = 0, predicted = 0, limit = 0;
};

void PrintLine(const RoadLine& line) {
  fmt::print(fmt::runtime(kRow), line.road, fmt::format("{:.2f}", Giga(line.useful)),
             fmt::format("{:.2f}", Giga(line.read)),
             fmt::format("{:.3f}", static_cast<double>(line.read) / static_cast<double>(line.useful)),
             fmt::format("{:.2f}", line.seconds), fmt::format("{:.2f}", line.predicted),
             fmt::format("{:.2f}", line.predicted / line.seconds),
             line.limit > 0 ? fmt::format("{:.2f}", line.limit / line.seconds) : "-");
  std::fflush(stdout);
}

Result<RoadLine> MeasurePath(Context& context, const SampledMisses& misses, Path path,
                             const std::string& road) {
  RoadLine line{.road = road, .useful = misses.misses * context.geometry().row_bytes};
  Reading total;
  uint64_t continued = 0;  // pieces of one long run: no request of their own
  for (const std::vector<NodeId>& batch : misses.batches) {
    const std::vector<MergedRead> reads = PlanReads(context, batch, path);
    QUARRY_TRY(const Reading reading, ReadAll(context, reads));
    total.seconds += reading.seconds;
    total.bytes += reading.bytes;
    total.requests += reading.requests;
    for (size_t i = 1; path == Path::kCoalesced && i < reads.size(); ++i) {
      if (reads[i].offset <= reads[i - 1].offset + reads[i - 1].bytes + context.device.GapBytesMax())
        ++continued;
    }
  }
  const double scale = static_cast<double>(misses.misses) / static_cast<double>(misses.sampled());
  line.read = static_cast<uint64_t>(static_cast<double>(total.bytes) * scale);
  line.seconds = total.seconds * scale;
  line.predicted = context.device.ReadSeconds(total.bytes, total.requests - continued) * scale;
  return line;
}

Status Roads(Context& context) {
  constexpr unsigned kEpochs = 5;
  fmt::print("\nroads: one epoch, gather only; cache {} of {}\n", FormatBytes(context.cache_bytes),
             FormatBytes(context.feature_bytes));
  fmt::print(fmt::runtime(kRow), "road", "GB useful", "GB read", "ampl", "seconds", "predicted", "ratio",
             "of limit");
  std::map<std::string, RoadLine> lines;
  for (const SeedOrder order : {SeedOrder::kRandom, SeedOrder::kProximity}) {
    const std::string suffix = order == SeedOrder::kProximity ? ", proximity" : "";
    for (const PolicyKind policy : {PolicyKind::kStaticFrequency, PolicyKind::kBelady}) {
      BuildReport report;
      QUARRY_TRY(const LayoutRecord record, Build(context, SpecOf(context, policy, order), &report));
      if (policy == PolicyKind::kStaticFrequency) {
        if (order == SeedOrder::kProximity) {
          fmt::print("  ({} breadth-first sequences; {:.1f} s to order and sample)\n", report.sequences,
                     report.sample_seconds);
        } else {
          QUARRY_TRY(const std::unique_ptr<Layout> layout, Layout::Open(context.database.store(), "bench"));
          QUARRY_TRY(const std::unique_ptr<Trace> trace, layout->OpenTrace(context.database.store()));
          const uint64_t take = context.options.batches;
          QUARRY_TRY(const SampledMisses lru, Misses(context, *trace, PolicyKind::kLru, take));
          QUARRY_TRY(const SampledMisses belady, Misses(context, *trace, PolicyKind::kBelady, take));
          for (const auto& [misses, path, name] :
               {std::tuple(&lru, Path::kRows, "live, row reads (LRU) *"),
                std::tuple(&lru, Path::kPages, "live, page reads (LRU) *"),
                std::tuple(&lru, Path::kCoalesced, "live, merged reads (LRU) *"),
                std::tuple(&belady, Path::kRows, "Ginex: Belady, row reads *"),
                std::tuple(&belady, Path::kCoalesced, "Belady, merged reads *")}) {
            QUARRY_TRY(const RoadLine line, MeasurePath(context, *misses, path, name));
            PrintLine(line);
            lines[name] = line;
          }
        }
      }
      QUARRY_TRY(const Epoch epoch, RunLayout(context, "bench", kEpochs));
      const std::string name =
          (policy == PolicyKind::kBelady ? "Belady + packed" : "DiskGNN: static + packed") + suffix;
      RoadLine line{.road = name,
                    .useful = epoch.stats.bytes_useful,
                    .read = epoch.stats.feature_bytes_read,
                    .seconds = epoch.seconds,
                    .predicted = record.predicted_seconds,
                    .limit = epoch.limit_seconds};
      PrintLine(line);
      fmt::print(
          "  (of the limit in {} epochs: {:.2f} to {:.2f}; {:.2f} GB of blocks; hits {:.1f} %; loading "
          "{:.2f} s busy {:.2f} s waiting, decoding {:.2f} / "
          "{:.2f}, changes {:.2f}, consumer waited {:.2f})\n",
          kEpochs, epoch.least_share, epoch.largest_share, Giga(epoch.stats.topology_bytes_read),
          100.0 * static_cast<double>(epoch.stats.cache_hits) /
              static_cast<double>(epoch.stats.cache_lookups),
          epoch.stats.extract_seconds, epoch.stats.extract_wait_seconds, epoch.stats.sample_seconds,
          epoch.stats.sample_wait_seconds, epoch.stats.update_seconds, epoch.stats.consumer_wait_seconds);
      lines[name] = line;
    }
  }
  fmt::print("  (* {} of the batches, scaled)\n", context.options.batches);
  const RoadLine& best = lines["Belady + packed"];
  uint64_t least = best.read;
  double furthest = 0;  // of predictions from what was measured
  for (const auto& [name, line] : lines) {
    if (!name.ends_with("proximity")) least = std::min(least, line.read);
    furthest = std::max(furthest, std::abs(line.predicted / line.seconds - 1));
  }
  context.Target("predicted seconds, furthest from measured", furthest, 0.2, false);
  // Chunks end with whole pages; half a per mille is for that.
  context.Target("Belady + packed reads GB, least of all", Giga(best.read), 1.0005 * Giga(least), false);
  context.Target("Belady + packed amplification",
                 static_cast<double>(best.read) / static_cast<double>(best.useful), 1.02, false);
  context.Target("Belady + packed share of the limit", best.limit / best.seconds, 0.9, true);
  return Status::Ok();
}

// --- disk
// ---------------------------------------------------------------------------------------------------------

uint64_t FolderBytes(const std::string& path) {
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (entry.is_regular_file()) bytes += entry.file_size();
  }
  return bytes;
}

Status Disk(Context& context) {
  fmt::print("\ndisk budgets, Belady; k = hash functions of the MinHash order (0: by node id)\n");
  constexpr std::string_view kLine = "{:>7}{:>4}{:>10}{:>10}{:>9}{:>9}{:>9}{:>9}{:>9}{:>10}\n";
  fmt::print(fmt::runtime(kLine), "budget", "k", "GB", "GB used", "segment", "GB read", "ampl", "s/epoch",
             "of limit", "search s");
  for (const double times : {5.0, 3.0, 2.0, 1.5}) {
    for (const uint32_t k : {8U, 2U, 0U}) {
      LayoutSpec spec = SpecOf(context, PolicyKind::kBelady, SeedOrder::kRandom);
      spec.disk_bytes = static_cast<uint64_t>(times * static_cast<double>(context.feature_bytes));
      spec.hash_functions = k;
      BuildReport report;
      const Result<LayoutRecord> record = Build(context, spec, &report);
      if (record.status().code() == Code::kNoSpace) {
        fmt::print("{:>6}x{:>4}  {}\n", times, k, record.status().message());
        break;
      }
      QUARRY_RETURN_IF_ERROR(record.status());
      const uint64_t used = FolderBytes(context.options.database + "/" + record->directory);
      QUARRY_TRY(const Epoch epoch, RunLayout(context, "bench", 1));
      fmt::print(fmt::runtime(kLine), fmt::format("{}x", times), k,
                 fmt::format("{:.2f}", Giga(spec.disk_bytes)), fmt::format("{:.2f}", Giga(used)),
                 record->batches_per_segment, fmt::format("{:.2f}", Giga(epoch.stats.feature_bytes_read)),
                 fmt::format("{:.3f}", epoch.amplification()), fmt::format("{:.2f}", epoch.seconds),
                 fmt::format("{:.2f}", epoch.limit_seconds / epoch.seconds),
                 fmt::format("{:.2f}", report.segment_search_seconds));
      std::fflush(stdout);
      if (used > spec.disk_bytes) context.Target("GB used", Giga(used), Giga(spec.disk_bytes), false);
      if (record->batches_per_segment == 0) break;  // no segments: no order
    }
  }
  return Status::Ok();
}

// Algorithm 2 against the grid, on the misses alone (DiskGNN Table 4).
Status Search(Context& context) {
  QUARRY_RETURN_IF_ERROR(Build(context, SpecOf(context, PolicyKind::kNone, SeedOrder::kRandom)).status());
  QUARRY_TRY(const std::unique_ptr<Layout> layout, Layout::Open(context.database.store(), "bench"));
  QUARRY_TRY(const std::unique_ptr<Trace> trace, layout->OpenTrace(context.database.store()));
  QUARRY_TRY(const SampledMisses misses, Misses(context, *trace, PolicyKind::kBelady, trace->batch_count()));
  const MissReader reader = [&](uint64_t batch) -> Result<std::span<const NodeId>> {
    return std::span<const NodeId>(misses.batches[batch]);
  };
  const SegmentOptions options{.node_count = context.geometry().row_count,
                               .batch_count = trace->batch_count(),
                               .row_bytes = context.stride(),
                               .hash_functions = 2};  // as the paper has it
  fmt::print(
      "\nsegment search against brute force over (segment size, rows in the cache), touched pages alone\n");
  for (const double times : {2.0}) {
    const auto budget = static_cast<uint64_t>(times * static_cast<double>(context.feature_bytes));
    double start = MonotonicSeconds();
    const Result<SegmentSearch> search = SearchSegmentSize(reader, budget, options);
    const double search_seconds = MonotonicSeconds() - start;
    if (!search.ok()) {
      fmt::print("  {}x: {}\n", times, search.status().message());
      continue;
    }
    QUARRY_TRY(const SegmentCost cost, MeasureSegments(reader, search->batches_per_segment, options));
    start = MonotonicSeconds();
    QUARRY_TRY(const auto grid,
               SearchSegmentGrid(reader, budget, options,
                                 {.batches = std::max<uint64_t>(1, options.batch_count / 6),
                                  .cache_rows = std::max<uint64_t>(1, options.node_count / 6)}));
    const double grid_seconds = MonotonicSeconds() - start;
    fmt::print("  {}x: search {:.2f} s, amplification {:.3f} (segments of {}, estimate {:.3f}); ", times,
               search_seconds, cost.amplification(), search->batches_per_segment,
               search->estimate.amplification());
    if (grid) {
      fmt::print("brute force {:.1f} s, {:.3f}; {:.0f} times faster\n", grid_seconds,
                 grid->cost.amplification(), grid_seconds / search_seconds);
    } else {
      fmt::print("brute force {:.1f} s found nothing\n", grid_seconds);
    }
  }
  return Status::Ok();
}

// --- packing
// ------------------------------------------------------------------------------------------------------

Status BatchedPacking(Context& context) {
  BuildReport report;
  QUARRY_TRY(const LayoutRecord record,
             Build(context, SpecOf(context, PolicyKind::kBelady, SeedOrder::kRandom), &report));
  QUARRY_TRY(const std::unique_ptr<Layout> layout, Layout::Open(context.database.store(), "bench"));
  QUARRY_TRY(const std::unique_ptr<Trace> trace, layout->OpenTrace(context.database.store()));
  QUARRY_TRY(const SampledMisses misses,
             Misses(context, *trace, PolicyKind::kBelady, context.options.batches));
  // Individual packing: each batch's rows are read where they lie, gathered and written to its chunk.
  const std::string path = context.options.database + "/layouts/bench-chunks.tmp";
  double read_seconds[2] = {}, write_seconds = 0;
  std::filesystem::remove(path);
  QUARRY_TRY(const File file, context.database.backend().Open(path, OpenMode::kCreateDirect));
  uint64_t offset = 0;
  for (const std::vector<NodeId>& batch : misses.batches) {
    for (const Path way : {Path::kRows, Path::kCoalesced}) {
      QUARRY_TRY(const Reading reading, ReadAll(context, PlanReads(context, batch, way)));
      read_seconds[way == Path::kCoalesced ? 1 : 0] += reading.seconds;
    }
    QUARRY_TRY(const IoBuffer chunk,
               IoBuffer::Allocate(RoundUp(batch.size() * context.stride(), kPageBytes)));
    const double start = MonotonicSeconds();
    QUARRY_RETURN_IF_ERROR(context.database.backend().WriteAt(file, offset, chunk.span()));
    write_seconds += MonotonicSeconds() - start;
    offset += chunk.size();
  }
  std::filesystem::remove(path);
  const double scale = static_cast<double>(misses.misses) / static_cast<double>(misses.sampled());
  fmt::print("\npacking {:.2f} GB of chunks from a table of {:.2f} GB\n", Giga(record.file_bytes),
             Giga(context.feature_bytes));
  fmt::print("  {:<34}{:>10}{:>10}\n", "", "seconds", "reading");
  fmt::print("  {:<34}{:>10.2f}{:>10.2f}\n", "batched", report.pack_seconds, report.pack_read_seconds);
  for (const int merged : {0, 1}) {
    fmt::print("  {:<34}{:>10.2f}{:>10.2f}\n",
               merged ? "individual, merged reads *" : "individual, row reads *",
               (read_seconds[merged] + write_seconds) * scale, read_seconds[merged] * scale);
  }
  fmt::print(
      "  (* {} batches, scaled)\n  limit: {:.2f} s to read the table and write the chunks at the device's "
      "rates\n",
      misses.batches.size(),
      static_cast<double>(context.feature_bytes) / context.device.sequential_bytes_per_second +
          static_cast<double>(record.file_bytes) /
              context.database.manifest()->device->write_bytes_per_second);
  context.Target("batched packing, times faster than row reads",
                 (read_seconds[0] + write_seconds) * scale / report.pack_seconds, 1, true);
  return Status::Ok();
}

// --- sampling
// -----------------------------------------------------------------------------------------------------

uint64_t ProcessBytesRead() {
  std::ifstream file("/proc/self/io");
  for (std::string name; file >> name;) {
    uint64_t value = 0;
    file >> value;
    if (name == "read_bytes:") return value;
  }
  return 0;
}

// An epoch's trace, its indices on disk: with the neighbor cache that the rest of the memory holds, and without.
Status Sampling(Context& context) {
  Store& store = context.database.store();
  const LayoutSpec spec = SpecOf(context, PolicyKind::kBelady, SeedOrder::kRandom);
  const std::string folder = context.options.database + "/layouts/";
  std::filesystem::create_directories(folder);
  fmt::print("\nsampling an epoch ahead, within {}\n", FormatBytes(context.database.budget().limit_bytes()));
  fmt::print("  {:<34}{:>9}{:>9}{:>10}\n", "", "GB read", "seconds", "edges");
  for (const bool cached : {false, true}) {
    const double start = MonotonicSeconds();
    const uint64_t bytes_before = ProcessBytesRead();
    QUARRY_TRY(const std::unique_ptr<TraceSource> source,
               TraceSource::Make(store, context.database.budget(), spec));
    if (cached) QUARRY_RETURN_IF_ERROR(source->CacheNeighbors(context.database.budget()));
    const NeighborSource& neighbors = source->neighbors();
    const NeighborCache* const cache = neighbors.caches[0];
    const double ready = MonotonicSeconds();
    const uint64_t bytes_ready = ProcessBytesRead();
    for (const char* const file : {"bench-trace.tmp", "bench-blocks.tmp"}) {
      QUARRY_RETURN_IF_ERROR(RemoveTree(store.backend(), folder + file));
    }
    QUARRY_TRY(const TraceSummary trace,
               SampleTrace(neighbors, source->spec(), store.backend(), folder + "bench-trace.tmp",
                           folder + "bench-blocks.tmp", store.manifest()->database_id, 1, {}));
    std::string name = "no neighbor cache";
    if (!neighbors.topology->indices(Adjacency::kCsc).empty()) name = "indices in memory: give less --memory";
    if (cache != nullptr) {
      name = fmt::format("neighbor cache of {}", FormatBytes(cache->memory_bytes()));
      fmt::print("  {:<34}{:>9.2f}{:>9.2f}\n", "  to fill it, and open", Giga(bytes_ready - bytes_before),
                 ready - start);
    }
    fmt::print("  {:<34}{:>9.2f}{:>9.2f}{:>9}\n", name, Giga(ProcessBytesRead() - bytes_before),
               MonotonicSeconds() - start, FormatCount(static_cast<double>(trace.edges)));
    std::fflush(stdout);
  }
  for (const char* const file : {"bench-trace.tmp", "bench-blocks.tmp"}) {
    QUARRY_RETURN_IF_ERROR(RemoveTree(store.backend(), folder + file));
  }
  return Status::Ok();
}

// --- superbatch
// ---------------------------------------------------------------------------------------------------

// An epoch that is sampled to be used once: packed and read, or read from the table by merged requests.
// Belady either way; sampling and simulating, which both do, are left out.
Status Superbatch(Context& context) {
  LayoutSpec spec = SpecOf(context, PolicyKind::kBelady, SeedOrder::kRandom);
  spec.name = "bench-superbatch";
  spec.cyclic = false;
  fmt::print("\nan epoch of fresh samples, read once: packed first, or not\n");
  fmt::print("  {:<34}{:>9}{:>9}{:>10}{:>11}{:>7}\n", "", "GB read", "ampl", "seconds", "predicted", "ratio");
  double seconds[2] = {};
  BuildReport choice;  // of the cost model
  for (const Packing packing : {Packing::kCheaper, Packing::kNever}) {
    spec.packing = packing;
    BuildReport report;
    QUARRY_TRY(const LayoutRecord record,
               BuildPassingLayout(context.database.store(), context.database.budget(), spec, {}, &report));
    if (packing == Packing::kCheaper) choice = report;
    {
      QUARRY_TRY(const std::unique_ptr<PlannedRoad> road, context.database.OpenLayout({.record = record}));
      IoBuffer dense;
      const double start = MonotonicSeconds();
      QUARRY_TRY(
          const StreamStats stats,
          bench::GatherEpoch(*road, road->TrainNodes(), road->layout().directory().cache_slots, {}, dense));
      double& taken = seconds[report.packed ? 1 : 0];
      taken = MonotonicSeconds() - start + (report.packed ? report.pack_seconds : 0);
      const double predicted = report.packed ? choice.packed_seconds : choice.merged_seconds;
      fmt::print("  {:<34}{:>9.2f}{:>9.3f}{:>10.2f}{:>11.2f}{:>7.2f}\n",
                 report.packed ? "packed, then read" : "merged reads from the table",
                 Giga(stats.feature_bytes_read),
                 static_cast<double>(stats.feature_bytes_read) / static_cast<double>(stats.bytes_useful),
                 taken, predicted, predicted / taken);
      std::fflush(stdout);
      context.Target("predicted seconds, off by", std::abs(predicted / taken - 1), 0.2, false);
    }
    std::filesystem::remove_all(context.options.database + "/" + record.directory);
    if (!choice.packed) break;  // what was cheaper was not packing: that is measured
  }
  if (choice.packed) {
    context.Target("the way that was chosen, seconds of the other", seconds[0], seconds[1], true);
  }
  return Status::Ok();
}

// --- pipeline
// -----------------------------------------------------------------------------------------------------

// A road without validation and test nodes: training alone.
class TrainingOnly final : public Road {
 public:
  explicit TrainingOnly(Road& road) : road_(road) {}
  Result<std::unique_ptr<BatchStream>> StartPass(PassOptions options) override {
    return road_.StartPass(std::move(options));
  }
  std::span<const int64_t> labels() const override { return road_.labels(); }
  std::vector<NodeId> SplitNodes(Split split) const override {
    return split == Split::kTrain ? road_.SplitNodes(split) : std::vector<NodeId>();
  }
  uint32_t feature_dim() const override { return road_.feature_dim(); }

 private:
  Road& road_;
};

Status Pipeline(Context& context) {
  QUARRY_RETURN_IF_ERROR(Build(context, SpecOf(context, PolicyKind::kBelady, SeedOrder::kRandom)).status());
  fmt::print("\ntraining an epoch from the layout, one stage after the other and pipelined\n");
  double seconds[2] = {};
  for (const unsigned frames : {1U, 0U}) {
    QUARRY_TRY(const std::unique_ptr<PlannedRoad> road,
               context.database.OpenLayout({.layout = "bench", .frame_count = frames}));
    TrainingOnly training(*road);
    TrainOptions options{.layers = static_cast<uint32_t>(context.options.fanouts.size()),
                         .epochs = 2,
                         .torch_threads = ProcessorCount()};
    TrainCallbacks callbacks;
    callbacks.epoch = [&](const EpochReport& epoch) {
      if (epoch.epoch != 2) return Status::Ok();
      seconds[frames == 1 ? 0 : 1] = epoch.seconds;
      fmt::print(
          "  {:<11}{:.2f} s: compute {:.2f}, waited for batches {:.2f}; loading {:.2f} busy / {:.2f} "
          "waiting, "
          "decoding {:.2f} / {:.2f}, changes {:.2f}\n",
          frames == 1 ? "sequential" : "pipelined", epoch.seconds, epoch.compute_seconds,
          epoch.stats.consumer_wait_seconds, epoch.stats.extract_seconds, epoch.stats.extract_wait_seconds,
          epoch.stats.sample_seconds, epoch.stats.sample_wait_seconds, epoch.stats.update_seconds);
      std::fflush(stdout);
      return Status::Ok();
    };
    QUARRY_RETURN_IF_ERROR(Train(training, options, callbacks).status());
  }
  context.Target("pipelined, times faster", seconds[0] / seconds[1], 1, true);
  return Status::Ok();
}

Result<bool> Run(const Options& options) {
  DatabaseOptions database_options;
  QUARRY_TRY(database_options.memory_bytes, ParseBytes(options.memory, 0));
  QUARRY_TRY(const std::unique_ptr<Database> database,
             Database::Open(options.database, std::move(database_options)));
  QUARRY_RETURN_IF_ERROR(database->Calibrate(true).status());
  Context context{.options = options, .database = *database};
  QUARRY_TRY(context.table, database->store().OpenTable("feature"));
  context.device = ProfileOf(*database->manifest());
  context.feature_bytes = context.geometry().row_count * context.geometry().row_bytes;
  QUARRY_TRY(context.cache_bytes, ParseBytes(options.cache, context.feature_bytes));
  fmt::print("{}: {} x {} {}, {}; device {:.1f} k row reads/s, {:.2f} GB/s\n", options.database,
             context.geometry().row_count, context.geometry().dim,
             ElementTypeName(context.geometry().element_type), FormatBytes(context.feature_bytes),
             context.device.random_reads_per_second / 1e3, context.device.sequential_bytes_per_second / 1e9);
  if (options.Wants("roads")) QUARRY_RETURN_IF_ERROR(Roads(context));
  if (options.Wants("disk")) QUARRY_RETURN_IF_ERROR(Disk(context));
  if (options.Wants("search")) QUARRY_RETURN_IF_ERROR(Search(context));
  if (options.Wants("sampling")) QUARRY_RETURN_IF_ERROR(Sampling(context));
  if (options.Wants("packing")) QUARRY_RETURN_IF_ERROR(BatchedPacking(context));
  if (options.Wants("superbatch")) QUARRY_RETURN_IF_ERROR(Superbatch(context));
  if (options.Wants("pipeline")) QUARRY_RETURN_IF_ERROR(Pipeline(context));
  return context.missed;
}

}  // namespace
}  // namespace quarry

int main(int argc, char** argv) {
  const auto options = quarry::ParseOptions(argc, argv);
  quarry::Status status = options.status();
  if (options.ok()) {
    const auto missed = quarry::Run(*options);
    if (missed.ok()) return *missed ? 1 : 0;
    status = missed.status();
  }
  fmt::print(stderr, "bench_layout: {}\n", status.ToString());
  return quarry::ExitCode(status.code());
}
