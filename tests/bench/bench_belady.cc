// What a cycle of a packed layout reads with each cache policy, beside the least that any cache could: Belady
// row by row over the trace repeated for ever (tests/cache/belady_oracle.h). Bytes are counted, nothing is
// timed but processor seconds; blocks are encoded as a layout's are, rows are not copied. Exit code 1 when
// Belady misses half a percent more than the least, or reads more than another policy.
//
//   bench_belady DB BATCHES [FANOUT,FANOUT,...]...
//
// BATCHES a cycle (the batch size is chosen for it); caches of 5 to 50 % of the rows; 10; 10,10 and 10,10,5 by
// default.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "cache/belady_oracle.h"
#include "cache_plan.h"
#include "layout_encoder.h"
#include "quarry/base/processor_time.h"
#include "quarry/base/units.h"
#include "quarry/storage/node_properties.h"
#include "quarry/storage/store.h"
#include "trace_source.h"

namespace quarry::bench {
namespace {

constexpr uint64_t kPercents[] = {5, 10, 15, 20, 30, 50};
constexpr PolicyKind kOthers[] = {PolicyKind::kStaticFrequency, PolicyKind::kStaticDegree, PolicyKind::kFifo,
                                  PolicyKind::kLru, PolicyKind::kNone};

struct Options {
  std::string database;
  uint64_t batches = 0;
  std::vector<std::vector<uint32_t>> fanouts;
};

Result<Options> ParseOptions(int argc, char** argv) {
  if (argc < 3) return Status(Code::kUsage, "bench_belady DB BATCHES [FANOUT,FANOUT,...]...");
  Options options{.database = argv[1]};
  QUARRY_TRY(options.batches, ParseCount(argv[2]));
  if (options.batches == 0) return Status(Code::kUsage, "BATCHES: at least one");
  for (int i = 3; i < argc; ++i) {
    const std::string text = argv[i];
    std::vector<uint32_t>& fanouts = options.fanouts.emplace_back();
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      QUARRY_TRY(const uint64_t fanout, ParseCount(text.substr(begin, end - begin)));
      fanouts.push_back(static_cast<uint32_t>(fanout));
      begin = end + 1;
    }
  }
  if (options.fanouts.empty()) options.fanouts = {{10}, {10, 10}, {10, 10, 5}};
  return options;
}

// What a cycle comes to.
struct Cycle {
  uint64_t missed_rows = 0;
  uint64_t read_bytes = 0;  // blocks and chunks
  double plan_seconds = 0;  // of the processor, next uses included
};

class Shape {
 public:
  Shape(Store& store, std::string folder, uint64_t node_count, uint64_t stride)
      : store_(store), folder_(std::move(folder)), node_count_(node_count), stride_(stride) {}

  Status Sample(MemoryBudget& budget, const std::vector<uint32_t>& fanouts, uint64_t batch_count) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, store_.TakeSnapshot());
    QUARRY_TRY(const NodeProperties properties, LoadNodeProperties(store_, node_count_, snapshot));
    const uint64_t seeds = properties.TrainNodes().size();
    const LayoutSpec spec{
        .road = {.fanouts = fanouts, .batch_size = static_cast<uint32_t>(CeilDiv(seeds, batch_count))},
        .snapshot = snapshot,
        .threads = 1};
    QUARRY_TRY(const std::unique_ptr<TraceSource> source, TraceSource::Make(store_, budget, spec));
    QUARRY_TRY(degrees_, source->CountUses());
    QUARRY_TRY(summary_, SampleTrace(source->neighbors(), source->spec(), store_.backend(), Path("trace"),
                                     Path("blocks.tmp"), kScratchId, kScratchGeneration, {}));
    QUARRY_TRY(trace_, Trace::Open(store_.backend(), Path("trace"), kScratchId, kScratchGeneration,
                                   summary_.trace_bytes));
    TraceCursor cursor(*trace_);
    for (uint64_t batch = 0; batch < trace_->batch_count(); ++batch) {
      QUARRY_TRY(const TraceBatch* const nodes, cursor.Read(batch));
      batches_.push_back(nodes->nodes);
    }
    return Status::Ok();
  }

  Result<Cycle> Run(PolicyKind policy, uint64_t capacity) {
    IoBackend& backend = store_.backend();
    for (const char* const file : {"next", "plan.tmp", "misses.tmp", "admit.tmp", "ids.tmp", "encoded.tmp"}) {
      QUARRY_RETURN_IF_ERROR(RemoveTree(backend, Path(file)));
    }
    QUARRY_TRY(
        const std::unique_ptr<LayoutEncoder> encoder,
        LayoutEncoder::Make(backend, folder_, *trace_, summary_.blocks_bytes, kScratchId, kScratchGeneration,
                            {.node_count = node_count_,
                             .row_bytes = stride_,
                             .row_stride = stride_,
                             .tables = {},
                             .ranges = {},
                             .row_counts = {node_count_}},
                            0));
    Cycle cycle;
    double encoding = 0;
    const double start = ProcessProcessorSeconds();
    std::unique_ptr<NextUses> next_uses;
    if (WantsNextUses(policy)) {
      QUARRY_TRY(next_uses, NextUses::Make(backend, *trace_, node_count_, /*cyclic=*/true, Path("next")));
    }
    QUARRY_TRY(const CachePlan plan,
               SimulateCache(*trace_, next_uses.get(),
                             {.policy = policy,
                              .node_count = node_count_,
                              .capacity = policy == PolicyKind::kNone ? 0 : capacity,
                              .degrees = degrees_,
                              .row_bytes = stride_},
                             [&](uint64_t, const TraceBatch& nodes, const CacheStep& step) {
                               const double before = ProcessProcessorSeconds();
                               const Status status = encoder->AddStep(nodes, step);
                               encoding += ProcessProcessorSeconds() - before;
                               return status;
                             }));
    cycle.plan_seconds = ProcessProcessorSeconds() - start - encoding;
    QUARRY_RETURN_IF_ERROR(encoder->FinishSteps(plan.carried, /*cyclic=*/true));
    QUARRY_RETURN_IF_ERROR(encoder->Encode(0, {}, plan.start, {}));
    cycle.read_bytes = encoder->blocks_bytes() + encoder->chunk_bytes();
    for (const BatchEntry& entry : encoder->entries()) cycle.missed_rows += entry.misses;
    return cycle;
  }

  double LeastMisses(uint64_t capacity) const {
    constexpr uint64_t kRounds = 12;
    return EndlessBelady(batches_, node_count_, capacity).LongRunMisses(kRounds);
  }
  const Trace& trace() const { return *trace_; }
  const TraceSummary& summary() const { return summary_; }

 private:
  std::string Path(std::string_view file) const { return fmt::format("{}/{}", folder_, file); }

  Store& store_;
  const std::string folder_;
  const uint64_t node_count_, stride_;
  std::vector<uint32_t> degrees_;
  TraceSummary summary_;
  std::unique_ptr<Trace> trace_;
  std::vector<std::vector<NodeId>> batches_;
};

// Whether Belady is what it says.
Result<bool> RunShape(Shape& shape, const std::string& name, uint64_t node_count, uint64_t stride) {
  const auto megabytes = [](double bytes) { return fmt::format("{:.2f}", bytes / 1e6); };
  bool met = true;
  for (const uint64_t percent : kPercents) {
    const uint64_t capacity = node_count * percent / 100;
    QUARRY_TRY(const Cycle belady, shape.Run(PolicyKind::kBelady, capacity));
    const double least = shape.LeastMisses(capacity), missed = static_cast<double>(belady.missed_rows);
    const auto row_bytes = static_cast<double>(stride);
    met &= missed <= 1.005 * least + static_cast<double>(shape.trace().batch_count());
    fmt::print("| {} | {} % | {} | {} | {:.4f} | **{}** |", name, percent, megabytes(least * row_bytes),
               megabytes(missed * row_bytes), least > 0 ? missed / least : 1,
               megabytes(static_cast<double>(belady.read_bytes)));
    for (const PolicyKind policy : kOthers) {
      QUARRY_TRY(const Cycle other, shape.Run(policy, capacity));
      met &= belady.read_bytes <= other.read_bytes;
      fmt::print(" {}{} |", megabytes(static_cast<double>(other.read_bytes)),
                 belady.read_bytes > other.read_bytes ? " (less: FAIL)" : "");
    }
    fmt::print(" {:.2f} |\n", belady.plan_seconds);
    std::fflush(stdout);
  }
  return met;
}

Result<bool> Run(const Options& options) {
  const std::unique_ptr<IoBackend> backend = MakeDefaultBackend();
  QUARRY_TRY(const std::unique_ptr<Store> store, Store::Open(*backend, options.database));
  MemoryBudget budget(8 * kGiB);
  QUARRY_TRY(const std::unique_ptr<FeatureTable> table, store->OpenTable("feature"));
  const FeatureGeometry& geometry = table->geometry();
  const uint64_t stride = RowStride(geometry.element_type, geometry.dim);
  fmt::print("\n{}: {} nodes, {} bytes a row; MB a cycle\n\n", options.database, geometry.row_count, stride);
  fmt::print("| hops, batches, accesses | cache | least rows | Belady's rows | ratio | **Belady reads** |");
  for (const PolicyKind policy : kOthers) fmt::print(" {} |", NameOf(policy));
  fmt::print(" plan, CPU s |\n| --- |");
  for (size_t column = 0; column < 6 + std::size(kOthers); ++column) fmt::print(" ---: |");
  fmt::print("\n");
  bool met = true;
  for (const std::vector<uint32_t>& fanouts : options.fanouts) {
    Shape shape(*store, options.database + "/layouts/.bench-belady", geometry.row_count, stride);
    QUARRY_RETURN_IF_ERROR(shape.Sample(budget, fanouts, options.batches));
    const std::string name = fmt::format("{}, {}, {}", fmt::join(fanouts, "×"), shape.trace().batch_count(),
                                         FormatCount(static_cast<double>(shape.summary().accesses)));
    QUARRY_TRY(const bool shape_met, RunShape(shape, name, geometry.row_count, stride));
    met &= shape_met;
  }
  std::filesystem::remove_all(options.database + "/layouts/.bench-belady");
  fmt::print("\ntarget: within 0.5 % of the least, and no policy reads less: {}\n", met ? "PASS" : "FAIL");
  return met;
}

}  // namespace
}  // namespace quarry::bench

int main(int argc, char** argv) {
  const auto options = quarry::bench::ParseOptions(argc, argv);
  quarry::Status status = options.status();
  if (options.ok()) {
    const auto met = quarry::bench::Run(*options);
    if (met.ok()) return *met ? 0 : 1;
    status = met.status();
  }
  fmt::print(stderr, "bench_belady: {}\n", status.ToString());
  return quarry::ExitCode(status.code());
}
