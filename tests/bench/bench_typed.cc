// Layouts of a graph with types, whose rows differ in length, beside their limits: an epoch of the planned road beside the
// sequential rate of the device, measured in the same run, and live batches of the same epoch; how the cache was divided.
//
//   bench_typed [--nodes 4M] [--memory 1GiB] [--cache 10%] [--degree 8] [--train 100k] [--fanout 5,5] [--batch-size 1024]
//               [--epochs 5] [--live-batches 20] [--folder build/bench-data]
//
// Half of the nodes are papers (rows of 640 bytes), three eighths authors (384), the others venues (256): of 4 M nodes that
// is 1.98 GB. --degree: edges of each type into a node of its destination, on average; --fanout: by edges of each type;
// --epochs: of which the one with the median share of the limit counts. The database is made once in --folder. Exit code 1
// when a target is missed.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/layout_epoch.h"
#include "quarry/base/random.h"
#include "quarry/base/text.h"
#include "quarry/import/dataset.h"
#include "quarry/import/import.h"

namespace quarry::bench {
namespace {

struct Options {
  uint64_t nodes = 4'000'000, degree = 8, train = 100'000, epochs = 5, live_batches = 20;
  uint32_t batch_size = 1024;
  std::vector<uint32_t> fanouts = {5, 5};
  std::string memory = "1GiB", cache = "10%", folder = "build/bench-data";
};

Result<Options> ParseOptions(const std::vector<std::string>& words) {
  Options options;
  for (size_t i = 0; i < words.size(); i += 2) {
    if (i + 1 == words.size()) return MakeStatus(Code::kUsage, "{} needs a value", words[i]);
    const std::string& word = words[i];
    std::string value = words[i + 1];
    if (word == "--memory") {
      options.memory = value;
    } else if (word == "--cache") {
      options.cache = value;
    } else if (word == "--folder") {
      options.folder = value;
    } else if (word == "--fanout") {
      options.fanouts.clear();
      for (size_t begin = 0; begin <= value.size();) {
        const size_t end = std::min(value.find(',', begin), value.size());
        QUARRY_TRY(const uint64_t fanout, ParseCount(value.substr(begin, end - begin)));
        options.fanouts.push_back(static_cast<uint32_t>(fanout));
        begin = end + 1;
      }
    } else {
      QUARRY_TRY(const uint64_t count, ParseCount(value));
      if (word == "--nodes") {
        options.nodes = count;
      } else if (word == "--degree") {
        options.degree = count;
      } else if (word == "--train") {
        options.train = count;
      } else if (word == "--epochs") {
        options.epochs = std::max<uint64_t>(1, count);
      } else if (word == "--live-batches") {
        options.live_batches = count;
      } else if (word == "--batch-size") {
        options.batch_size = static_cast<uint32_t>(count);
      } else {
        return MakeStatus(Code::kUsage, "'{}': not an option of bench_typed", word);
      }
    }
  }
  return options;
}

// Noise.
class NoiseRows final : public RowReader {
 public:
  NoiseRows(uint64_t rows, uint64_t dim) : rows_(rows), dim_(dim) {}
  ElementType element_type() const override { return ElementType::kFloat32; }
  uint64_t dim() const override { return dim_; }
  uint64_t row_count() const override { return rows_; }
  Result<size_t> Read(std::span<std::byte> out) override {
    const uint64_t rows = std::min<uint64_t>(out.size() / (dim_ * sizeof(float)), rows_ - next_);
    for (uint64_t i = 0; i < rows * dim_; ++i) {
      const float value = static_cast<float>(rng_.Below(1 << 20)) / static_cast<float>(1 << 20);
      std::memcpy(out.data() + i * sizeof(value), &value, sizeof(value));
    }
    next_ += rows;
    return rows;
  }
  std::string Position(uint64_t row) const override { return fmt::format("row {}", row); }

 private:
  const uint64_t rows_, dim_;
  uint64_t next_ = 0;
  Rng rng_{7};
};

// Every `step`th of so many numbers; or, with classes, a class for each.
class Numbers final : public IntReader {
 public:
  Numbers(uint64_t count, uint64_t step, uint64_t classes = 0)
      : count_(count), step_(step), classes_(classes) {}
  Result<size_t> Read(std::span<int64_t> out) override {
    size_t filled = 0;
    for (; filled < out.size() && next_ < count_; next_ += step_) {
      out[filled++] = static_cast<int64_t>(classes_ > 0 ? Mix64(next_) % classes_ : next_);
    }
    return filled;
  }
  std::optional<uint64_t> count() const override { return CeilDiv(count_, step_); }
  std::string Position(uint64_t index) const override { return fmt::format("number {}", index); }

 private:
  const uint64_t count_, step_, classes_;
  uint64_t next_ = 0;
};

// Edges whose sources are the more often drawn the smaller their number is; destinations are drawn alike.
class SkewedEdges final : public EdgeReader {
 public:
  SkewedEdges(uint64_t sources, uint64_t destinations, uint64_t edges, uint64_t seed)
      : sources_(sources), destinations_(destinations), edges_(edges), rng_(seed) {}
  Result<size_t> Read(std::span<Edge> out) override {
    const auto count = static_cast<size_t>(std::min<uint64_t>(out.size(), edges_ - next_));
    for (size_t i = 0; i < count; ++i) {
      const double drawn = static_cast<double>(rng_.Below(1 << 30)) / static_cast<double>(1 << 30);
      // Scattered over the ids, as popular nodes are.
      const auto rank = static_cast<uint64_t>(std::pow(drawn, 3) * static_cast<double>(sources_));
      out[i] = {Mix64(rank) % sources_, rng_.Below(destinations_)};
    }
    next_ += count;
    return count;
  }
  std::optional<uint64_t> count() const override { return edges_; }
  uint64_t bytes_read() const override { return next_ * sizeof(Edge); }
  uint64_t bytes_total() const override { return edges_ * sizeof(Edge); }
  std::string Position(uint64_t edge) const override { return fmt::format("edge {}", edge); }

 private:
  const uint64_t sources_, destinations_, edges_;
  uint64_t next_ = 0;
  Rng rng_;
};

Dataset MakeGraph(const Options& options) {
  Dataset dataset{.source = "bench"};
  const uint64_t counts[] = {options.nodes / 2, options.nodes * 3 / 8, options.nodes / 8};
  constexpr uint64_t kDims[] = {160, 96, 64};
  constexpr const char* kNames[] = {"paper", "author", "venue"};
  for (size_t type = 0; type < 3; ++type) {
    dataset.node_types.push_back({.name = kNames[type],
                                  .count = counts[type],
                                  .features = std::make_unique<NoiseRows>(counts[type], kDims[type])});
  }
  dataset.node_types[0].labels = std::make_unique<Numbers>(counts[0], 1, 50);
  dataset.node_types[0].train =
      std::make_unique<Numbers>(counts[0], std::max<uint64_t>(1, counts[0] / options.train));
  const std::tuple<uint32_t, const char*, uint32_t> relations[] = {
      {1, "writes", 0}, {0, "cites", 0}, {2, "publishes", 0}, {0, "rev_writes", 1}};
  for (const auto& [source, name, destination] : relations) {
    const uint64_t edges = counts[destination] * options.degree;
    dataset.edges.push_back({.name = name,
                             .path = name,
                             .reader = std::make_unique<SkewedEdges>(counts[source], counts[destination],
                                                                     edges, dataset.edges.size()),
                             .source = source,
                             .destination = destination});
  }
  return dataset;
}

bool Target(std::string_view what, double figure, double target, bool at_least) {
  const bool met = at_least ? figure >= target : figure <= target;
  fmt::print("  target: {} {:.3f}, {} {:.3f}: {}\n", what, figure, at_least ? ">=" : "<=", target,
             met ? "PASS" : "FAIL");
  return met;
}

// Seconds of an epoch on the live road, of so many of its batches.
Result<double> LiveSeconds(Database& database, const RoadSpec& road, uint64_t batches, StreamStats& stats) {
  LiveRoadOptions options{.spec = road};
  options.sampler_threads = options.extractor_threads = std::max(1U, ProcessorCount() / 2);
  QUARRY_TRY(const std::unique_ptr<LiveRoad> live, database.OpenLiveRoad(options));
  QUARRY_TRY(const std::unique_ptr<BatchStream> stream,
             live->StartPass({.seeds = live->TrainNodes(), .ordered = true}));
  const double start = MonotonicSeconds();
  uint64_t taken = 0;
  for (; taken < batches; ++taken) {
    QUARRY_TRY(const std::unique_ptr<Batch> batch, stream->Next());
    if (batch == nullptr) break;
  }
  const double seconds = MonotonicSeconds() - start;
  stats = stream->stats();
  return seconds * static_cast<double>(stream->batch_count()) /
         static_cast<double>(std::max<uint64_t>(1, taken));
}

Result<bool> Run(const Options& options) {
  const std::string path = fmt::format("{}/typed-{}-{}.db", options.folder, options.nodes, options.degree);
  std::filesystem::create_directories(options.folder);
  if (!std::filesystem::exists(path)) {
    const std::unique_ptr<IoBackend> backend = MakeDefaultBackend();
    QUARRY_RETURN_IF_ERROR(ImportDatabase(*backend, path, MakeGraph(options), {}));
  }
  DatabaseOptions database_options;
  QUARRY_TRY(database_options.memory_bytes, ParseBytes(options.memory, 0));
  QUARRY_TRY(const std::unique_ptr<Database> database, Database::Open(path, std::move(database_options)));
  QUARRY_RETURN_IF_ERROR(database->Calibrate(true).status());
  const std::shared_ptr<const Manifest> manifest = database->manifest();
  uint64_t feature_bytes = 0;
  for (const NodeTypeRecord& type : manifest->node_types) {
    const TableRecord& table = *manifest->FindTable(type.feature_table);
    feature_bytes += table.row_count * table.row_stride();
    fmt::print("{}: {} rows of {} bytes\n", type.name, table.row_count, table.row_stride());
  }
  constexpr uint32_t kInto = 3;  // types of edges into a paper
  LayoutSpec spec{.name = "bench",
                  .road = {.fanouts = {}, .batch_size = options.batch_size},
                  .threads = ProcessorCount()};
  for (const uint32_t fanout : options.fanouts) {
    spec.road.fanouts.push_back(kInto * fanout);
    spec.road.relation_fanouts.insert(spec.road.relation_fanouts.end(), manifest->edge_types.size(), fanout);
  }
  QUARRY_TRY(spec.road.cache_bytes, ParseBytes(options.cache, feature_bytes));
  if (manifest->FindLayout(spec.name) != nullptr)
    QUARRY_RETURN_IF_ERROR(DropLayout(database->store(), spec.name));
  BuildReport report;
  QUARRY_TRY(const LayoutRecord record, database->BuildLayout(spec, false, {}, &report));
  fmt::print(
      "{} of features, {} nodes, {} of memory, a cache of {}: {} batches of {} input nodes, built in {:.1f} "
      "s ({:.1f} "
      "sampling, {:.1f} planning, {:.1f} packing), {} on disk\n",
      FormatBytes(feature_bytes), manifest->node_count, options.memory, FormatBytes(spec.road.cache_bytes),
      record.batch_count, record.accesses / record.batch_count, record.plan_seconds, report.sample_seconds,
      report.plan_seconds, report.pack_seconds, FormatBytes(record.total_bytes()));
  {
    QUARRY_TRY(const std::unique_ptr<Layout> layout, Layout::Open(database->store(), spec.name));
    const LayoutDirectory& directory = layout->directory();
    for (size_t i = 0; i < directory.tables.size(); ++i) {
      const RowForm& table = directory.tables[i];
      fmt::print("  of the cache {:.1f} % has rows of {} bytes: {}\n",
                 100.0 * static_cast<double>(table.cache_slots * table.places * directory.row_stride) /
                     static_cast<double>(std::max<uint64_t>(1, spec.road.cache_bytes)),
                 table.row_bytes, table.cache_slots);
    }
  }
  StreamStats live;
  QUARRY_TRY(const double live_seconds, LiveSeconds(*database, spec.road, options.live_batches, live));
  QUARRY_TRY(const Epoch epoch, RunLayout(*database, spec.name, static_cast<unsigned>(options.epochs)));
  fmt::print("live road: {:.2f} s an epoch, by {} of its batches; amplification {:.3f}\n", live_seconds,
             options.live_batches,
             static_cast<double>(live.feature_bytes_read) /
                 static_cast<double>(std::max<uint64_t>(1, live.bytes_useful)));
  fmt::print(
      "planned road: {:.2f} s an epoch, {:.2f} GB; at the device's sequential rate {:.2f} s, {:.2f} of it "
      "({:.2f} to "
      "{:.2f} in {} epochs); hits {:.1f} %, consumer waited {:.2f} s\n",
      epoch.seconds, static_cast<double>(epoch.bytes()) / 1e9, epoch.limit_seconds, epoch.share(),
      epoch.least_share, epoch.largest_share, options.epochs,
      100.0 * static_cast<double>(epoch.stats.cache_hits) /
          static_cast<double>(std::max<uint64_t>(1, epoch.stats.cache_lookups)),
      epoch.stats.consumer_wait_seconds);
  const bool reads = Target("amplification", epoch.amplification(), 1.02, false);
  const bool share = Target("share of the limit", epoch.share(), 0.9, true);
  return reads && share;
}

}  // namespace
}  // namespace quarry::bench

int main(int argc, char** argv) {
  const auto options = quarry::bench::ParseOptions({argv + 1, argv + argc});
  quarry::Status status = options.status();
  if (options.ok()) {
    const auto met = quarry::bench::Run(*options);
    if (met.ok()) return *met ? 0 : 1;
    status = met.status();
  }
  fmt::print(stderr, "bench_typed: {}\n", status.ToString());
  return quarry::ExitCode(status.code());
}
