// One epoch of the live road without training: batches are sampled and extracted, and let go.
//
// Limits, measured in the same run: the seconds that the device takes for as many requests of the same mean
// size, at random places and at the same depth, and for as many bytes in large sequential requests.
//
//   bench_live DB [--memory SIZE] [--cache SIZE] [--batch-size N] [--fanout A,B,C] [--samplers N]
//   [--extractors N]
//                 [--batches N] [--passes N] [--ordered]
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "quarry/base/process.h"
#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/database.h"
#include "quarry/io/ring.h"

namespace quarry {
namespace {

struct Options {
  std::string database;
  std::string memory = "1GiB", cache = "10%", fanout = "10,15,20";
  uint64_t batch_size = 1024, samplers = 1, extractors = 1, batches = 0, passes = 1;
  bool ordered = false;
};

Result<Options> ParseOptions(int argc, char** argv) {
  Options options;
  const std::map<std::string, std::string*> texts = {
      {"--memory", &options.memory}, {"--cache", &options.cache}, {"--fanout", &options.fanout}};
  const std::map<std::string, uint64_t*> counts = {{"--batch-size", &options.batch_size},
                                                   {"--samplers", &options.samplers},
                                                   {"--extractors", &options.extractors},
                                                   {"--batches", &options.batches},
                                                   {"--passes", &options.passes}};
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--ordered") {
      options.ordered = true;
    } else if (i + 1 < argc && texts.contains(word)) {
      *texts.at(word) = argv[++i];
    } else if (i + 1 < argc && counts.contains(word)) {
      QUARRY_TRY(*counts.at(word), ParseCount(argv[++i]));
    } else if (options.database.empty() && !word.starts_with("--")) {
      options.database = word;
    } else {
      return MakeStatus(Code::kUsage, "'{}': not an option of bench_live", word);
    }
  }
  if (options.database.empty()) return Status(Code::kUsage, "which database? bench_live DB");
  return options;
}

Result<std::vector<uint32_t>> ParseFanouts(const std::string& text) {
  std::vector<uint32_t> fanouts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    QUARRY_TRY(const uint64_t fanout, ParseCount(text.substr(begin, end - begin)));
    fanouts.push_back(static_cast<uint32_t>(fanout));
    begin = end + 1;
  }
  return fanouts;
}

// Requests a second of `bytes` each, at random or consecutive places of the table.
Result<double> RequestRate(IoBackend& backend, const FeatureTable& table, uint64_t bytes, bool random,
                           unsigned depth, double seconds) {
  const uint64_t request_bytes = RoundUp(std::max<uint64_t>(bytes, 1), table.block_bytes());
  const uint64_t places = table.geometry().data_bytes() / request_bytes;
  if (places == 0) return Status(Code::kUnsupported, "the table is smaller than one request");
  QUARRY_TRY(IoBuffer buffer, IoBuffer::Allocate(depth * request_bytes));
  QUARRY_TRY(const std::unique_ptr<IoRing> ring, IoRing::Make(backend, depth));
  Rng rng(1);
  uint64_t issued = 0, completed = 0;
  std::vector<ReadRequest> submits;
  std::vector<uint64_t> done(depth);
  std::iota(done.begin(), done.end(), uint64_t{0});
  const double start = MonotonicSeconds();
  double now = start;
  while (now - start < seconds) {
    submits.clear();
    for (const uint64_t place : done) {
      const uint64_t at = random ? rng.Below(places) : issued % places;
      ++issued;
      submits.push_back({.file = &table.file(),
                         .offset = table.geometry().data_offset + at * request_bytes,
                         .bytes = static_cast<uint32_t>(request_bytes),
                         .buffer = buffer.data() + place * request_bytes,
                         .user_data = place});
    }
    QUARRY_RETURN_IF_ERROR(ring->Submit(submits));
    done.clear();
    QUARRY_RETURN_IF_ERROR(ring->Wait(done));
    completed += done.size();
    now = MonotonicSeconds();
  }
  ring->Drain();
  return static_cast<double>(completed) / (now - start);
}

Result<double> RunPass(LiveRoad& road, PassOptions pass, uint64_t batches, StreamStats& stats) {
  const double start = MonotonicSeconds();
  QUARRY_TRY(const std::unique_ptr<BatchStream> stream, road.StartPass(std::move(pass)));
  for (uint64_t i = 0; batches == 0 || i < batches; ++i) {
    QUARRY_TRY(const std::unique_ptr<Batch> batch, stream->Next());
    if (!batch) break;
  }
  stats = stream->stats();
  return MonotonicSeconds() - start;
}

void Print(const StreamStats& s, double seconds) {
  const auto d = [](uint64_t value) { return static_cast<double>(value); };
  fmt::print("  {} batches in {:.2f} s, {:.0f} input nodes and {:.0f} edges a batch\n", s.batches, seconds,
             d(s.input_nodes) / d(s.batches), d(s.sampled_edges) / d(s.batches));
  fmt::print("  extraction: {} requests, {} read, {} useful, amplification {:.2f}, mean request {:.1f} KiB\n",
             s.read_requests, FormatBytes(s.feature_bytes_read), FormatBytes(s.bytes_useful),
             s.bytes_useful == 0 ? 0 : d(s.feature_bytes_read) / d(s.bytes_useful),
             s.read_requests == 0 ? 0 : d(s.feature_bytes_read) / d(s.read_requests) / 1024);
  fmt::print("  hit ratio {:.3f}; topology read {}\n", d(s.cache_hits) / d(s.cache_lookups),
             FormatBytes(s.topology_bytes_read));
  fmt::print(
      "  stages: sample {:.2f} s (+ {:.2f} waiting), extract {:.2f} s (+ {:.2f} waiting), consumer waited "
      "{:.2f} s\n",
      s.sample_seconds, s.sample_wait_seconds, s.extract_seconds, s.extract_wait_seconds,
      s.consumer_wait_seconds);
}

Status Run(const Options& options) {
  QUARRY_TRY(const uint64_t memory_bytes, ParseBytes(options.memory, MemoryLimitBytes()));
  QUARRY_TRY(const std::unique_ptr<Database> database,
             Database::Open(options.database, {.memory_bytes = memory_bytes}));
  QUARRY_TRY(const std::unique_ptr<FeatureTable> table, database->store().OpenTable("feature"));
  const FeatureGeometry& geometry = table->geometry();
  LiveRoadOptions road_options;
  QUARRY_TRY(road_options.spec.cache_bytes,
             ParseBytes(options.cache, geometry.row_count * geometry.row_bytes));
  QUARRY_TRY(road_options.spec.fanouts, ParseFanouts(options.fanout));
  road_options.spec.batch_size = static_cast<uint32_t>(options.batch_size);
  road_options.sampler_threads = static_cast<unsigned>(options.samplers);
  road_options.extractor_threads = static_cast<unsigned>(options.extractors);
  const double open_start = MonotonicSeconds();
  QUARRY_TRY(const std::unique_ptr<LiveRoad> road, database->OpenLiveRoad(road_options));
  fmt::print("{}\nopened in {:.2f} s\n", road->plan().ToString(), MonotonicSeconds() - open_start);

  std::vector<NodeId> seeds = road->SplitNodes(Split::kTrain);
  if (seeds.empty()) {
    seeds.resize(geometry.row_count);
    std::iota(seeds.begin(), seeds.end(), NodeId{0});
  }
  StreamStats stats;
  for (uint64_t pass = 0; pass < options.passes; ++pass) {
    QUARRY_TRY(
        const double seconds,
        RunPass(*road, {.seeds = seeds, .pass = pass, .ordered = options.ordered}, options.batches, stats));
    fmt::print("pass {}\n", pass);
    Print(stats, seconds);
  }
  if (stats.read_requests > 0) {
    const uint64_t mean_bytes = stats.feature_bytes_read / stats.read_requests;
    QUARRY_TRY(const double random_rate, RequestRate(database->backend(), *table, mean_bytes, true, 64, 2));
    QUARRY_TRY(const double sequential_rate,
               RequestRate(database->backend(), *table, std::min<uint64_t>(kMiB, geometry.data_bytes()),
                           false, 16, 2));
    const uint64_t sequential_bytes = std::min<uint64_t>(kMiB, geometry.data_bytes());
    fmt::print("limits of the device, for the last pass's extraction\n");
    fmt::print("  as many random requests of {:.1f} KiB at depth 64: {:.2f} s ({:.0f} requests/s)\n",
               static_cast<double>(mean_bytes) / 1024, static_cast<double>(stats.read_requests) / random_rate,
               random_rate);
    const double rate = sequential_rate * static_cast<double>(sequential_bytes);
    fmt::print("  as many bytes in order: {:.2f} s ({:.2f} GB/s)\n",
               static_cast<double>(stats.feature_bytes_read) / rate, rate / 1e9);
  }
  fmt::print("peak RSS {} of a budget of {}\n", FormatBytes(PeakRssBytes()), FormatBytes(memory_bytes));
  return Status::Ok();
}

}  // namespace
}  // namespace quarry

int main(int argc, char** argv) {
  const auto options = quarry::ParseOptions(argc, argv);
  const quarry::Status status = options.ok() ? quarry::Run(*options) : options.status();
  if (!status.ok()) fmt::print(stderr, "bench_live: {}\n", status.ToString());
  return quarry::ExitCode(status.code());
}
