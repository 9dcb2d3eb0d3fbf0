// Prices of roads. What is counted here once is counted in rows, cells and bytes of one mean batch.
#include <algorithm>
#include <cmath>

#include "quarry/base/units.h"
#include "quarry/format/batch_view.h"
#include "quarry/io/coalesce.h"
#include "quarry/layout/cost_model.h"
#include "quarry/layout/topology_place.h"
#include "quarry/pipeline/road_choice.h"

namespace quarry {
namespace {

// Planning a use of a node on one core: `quarry layout build` planned 12.3 million in 1.6 s (4 M nodes, fanout 10,10,5).
constexpr double kPlanSecondsPerUse = 130e-9;
// Looking up a node of a batch in the live road's cache, and putting it into the order of the table if it misses: the
// extractors of a run of 25 million nodes (1 M nodes, fanout 10,10) took so much beside checksums, copies and requests.
constexpr double kLookupSecondsPerNode = 130e-9;
// A planned block holds an edge in the bits of a local id, and about three bytes a node.
constexpr double kBlockBytesPerNode = 3;
// Opening the road of a superbatch: its frames and cache are allocated, and its directory is read.
constexpr double kSuperbatchSeconds = 0.02;

// Shuffling the seeds of a pass: 13 ns a seed where there are 8 million, 3 where they fit into the processor's cache.
constexpr double kOrderSecondsPerSeed = 13e-9;

using Work = RoadWork;

Work ScaledWork(const Work& work, double times) {
  return {.disk_seconds = work.disk_seconds * times,
          .sample_seconds = work.sample_seconds * times,
          .extract_seconds = work.extract_seconds * times,
          .model = {.wall = work.model.wall * times, .processor = work.model.processor * times},
          .read_bytes = work.read_bytes * times};
}

class Pricer {
 public:
  Pricer(const RoadFacts& facts, const RoadPlan& plan)
      : facts_(facts),
        plan_(plan),
        stride_(static_cast<double>(RowStride(facts.geometry.element_type, facts.geometry.dim))) {
    cost_.plan = plan;
    cost_.lists = Offer().PlaceWith(plan.cache_rows);
    if (cost_.lists.cache_bytes <= facts.lists.address_bytes) cost_.lists.cache_bytes = 0;
  }

  RoadCost Run() {
    switch (plan_.road) {
      case RoadKind::kLive:
        PriceLive();
        break;
      case RoadKind::kPlanned:
        PricePlanned();
        break;
      case RoadKind::kFresh:
        PriceFresh();
        break;
    }
    cost_.train_processor_seconds += ProcessorsOf(cost_.epoch) * static_cast<double>(facts_.epochs);
    cost_.seconds =
        cost_.build_seconds + cost_.epoch_seconds * static_cast<double>(facts_.epochs) + cost_.other_seconds;
    return cost_;
  }

 private:
  const RoadFacts::Offer& Offer() const {
    return plan_.road == RoadKind::kLive      ? facts_.live
           : plan_.road == RoadKind::kPlanned ? facts_.planned
                                              : facts_.fresh;
  }
  static double ProcessorsOf(const Work& work) {
    return work.sample_seconds + work.extract_seconds + work.model.processor;
  }
  double cores() const { return std::max(1U, facts_.processors); }
  double nodes() const { return facts_.uses.BatchNodes(); }
  double table_bytes() const { return static_cast<double>(facts_.geometry.data_bytes()); }
  double ScanSeconds(double bytes) const { return bytes / facts_.device.sequential_bytes_per_second; }

  DeviceProfile device() const {
    return {facts_.device.random_reads_per_second, facts_.device.sequential_bytes_per_second};
  }

  // Rows in scattered places, read by merged requests.
  void ReadScattered(double rows, Work& work) const {
    const FeatureGeometry& geometry = facts_.geometry;
    const auto cells = static_cast<double>(std::max<uint64_t>(1, geometry.cell_count()));
    const auto rows_in_cell = static_cast<double>(std::max<uint64_t>(1, geometry.row_count)) / cells;
    const double row_chance =
        std::min(1.0, rows / static_cast<double>(std::max<uint64_t>(1, geometry.row_count)));
    const double chance = 1 - std::pow(1 - row_chance, std::max(1.0, rows_in_cell));
    const auto cell_bytes = static_cast<double>(geometry.cell_bytes());
    ScatteredReads reads = MergedReadsOf(cells, cell_bytes, chance, device());
    if (cell_bytes < kPageBytes) reads.bytes += reads.requests * static_cast<double>(facts_.block_bytes);
    work.read_bytes += reads.bytes;
    work.disk_seconds += reads.Seconds(device());
    work.extract_seconds += ProcessorWork{.checksum_bytes = cells * chance * cell_bytes,
                                          .copied_bytes = rows * stride_,
                                          .requests = std::max(reads.requests, reads.bytes / (256.0 * kKiB))}
                                .Seconds(facts_.device.core);
  }

  // The processors' share of reading lists, but for requests, is in the seconds that were probed.
  void Sample(const TopologyPlace& place, Work& work) const {
    const double searched = SearchedShare(place) - ProbedShare();
    work.sample_seconds +=
        std::max(0.0, facts_.sample_seconds + searched * facts_.batch_edges * facts_.runs.draw_seconds);
    if (place.in_memory) return;
    const ScatteredReads reads = ReadsOfLists(facts_.lists, place.cache_bytes, device());
    work.read_bytes += reads.bytes;
    work.disk_seconds += reads.Seconds(device());
    if (facts_.lists.in_memory) work.sample_seconds += reads.requests * facts_.device.core.request_seconds;
  }

  // The part of what is drawn that is searched for among the edits of runs: of lists on disk that no neighbor cache has.
  double SearchedShare(const TopologyPlace& place) const {
    if (place.in_memory) return 0;
    const auto whole = static_cast<double>(std::max<uint64_t>(1, facts_.lists.indices_bytes));
    return std::max(0.0, 1 - static_cast<double>(place.cache_bytes) / whole);
  }
  double ProbedShare() const {
    if (facts_.lists.in_memory) return 0;
    return facts_.lists.lists > 0 ? 1 - facts_.lists.hits / facts_.lists.lists : 1;
  }
  // On one core, each time that lists are opened; those in memory are merged.
  double OpenRunsProcessorSeconds(const TopologyPlace& place) const {
    const RunsPrice& runs = facts_.runs;
    return runs.open_seconds - runs.open_disk_seconds - (place.in_memory ? 0 : runs.merge_seconds);
  }
  double OpenRunsSeconds(const TopologyPlace& place) const {
    return std::max(facts_.runs.open_disk_seconds, OpenRunsProcessorSeconds(place));
  }

  Work LiveBatch(double misses, const TopologyPlace& place, const ModelSeconds& model) const {
    Work work{.model = model};
    Sample(place, work);
    ReadScattered(misses, work);
    work.extract_seconds += nodes() * kLookupSecondsPerNode;
    return work;
  }

  // With all cores, if none is ever idle.
  double SharedSeconds(const Work& work) const { return ProcessorsOf(work) / cores(); }
  double ProcessorSeconds(const Work& work) const { return std::max(work.model.wall, SharedSeconds(work)); }

  double LiveSeconds(const Work& work) const {
    const double processors = ProcessorSeconds(work);
    if (!facts_.reads_overlap) return processors + work.disk_seconds;
    return std::max({processors, work.disk_seconds,
                     work.sample_seconds / std::max(1U, facts_.sampler_threads),
                     work.extract_seconds / std::max(1U, facts_.extractor_threads)});
  }

  // `count` batches in a row, the first after `before` others; `window`: batches whose nodes the cache holds.
  double LivePass(double before, double count, double window, const ModelSeconds& model, Work& pass) {
    double seconds = 0;
    const auto price = [&](double batches_before, double times) {
      const Work work = LiveBatch(facts_.uses.MissesAfter(batches_before), cost_.lists, model);
      seconds += times * LiveSeconds(work);
      pass += ScaledWork(work, times);
      processors_set_pass_ = ProcessorSeconds(work) >= work.disk_seconds;
    };
    const double end = before + count;
    double b = before;
    while (b < end && b < window) {  // in steps that grow, as misses fall ever more slowly
      const double step = std::min({std::max(1.0, std::floor(b / 16)), end - b, std::ceil(window - b)});
      price(std::min(window, b + std::max(0.0, step - 1) / 2), step);
      b += step;
    }
    if (b < end) price(window, end - b);
    return seconds;
  }

  void PriceLive() {
    const auto cache_rows = static_cast<double>(plan_.cache_rows);
    const bool all_fit = plan_.cache_rows >= facts_.geometry.row_count;
    const double window = all_fit ? HUGE_VAL : facts_.uses.BatchesOf(cache_rows);
    double fill_seconds = 0;
    double before = 0;
    const double first_rows = facts_.uses.DistinctNodes(static_cast<double>(facts_.train_batches));
    Work epochs, others;
    if (facts_.open_live_rows && facts_.open_live_rows != plan_.cache_rows) {
      fill_seconds = ListsSeconds(cost_.lists) + OpenRunsSeconds(cost_.lists);
    }
    if (all_fit && first_rows / facts_.device.random_reads_per_second > ScanSeconds(table_bytes())) {
      // One extractor reads the whole table before the first batch (buffer_fill.h).
      const double work = ProcessorWork{.checksum_bytes = table_bytes(),
                                        .copied_bytes = table_bytes(),
                                        .requests = table_bytes() / (256.0 * kKiB)}
                              .Seconds(facts_.device.core);
      fill_seconds += std::max(ScanSeconds(table_bytes()), work);
      cost_.train_processor_seconds += work;
      epochs.read_bytes += table_bytes();
      before = 0x1p40;
    }
    double train_seconds = fill_seconds;
    const auto batches = static_cast<double>(facts_.train_batches);
    // Epochs become alike; those after the first few are priced as one of them.
    constexpr uint64_t kEpochsApart = 16;
    for (uint64_t epoch = 0; epoch < facts_.epochs;) {
      const uint64_t alike = epoch < kEpochsApart ? 1 : facts_.epochs - epoch;
      const auto times = static_cast<double>(alike);
      Work pass;
      train_seconds += times * LivePass(before, batches, window, facts_.train, pass);
      epochs += ScaledWork(pass, times);
      cost_.processor_bound = processors_set_pass_;
      before += batches;
      Work valid;
      cost_.other_seconds += times * LivePass(before, facts_.valid_batches, window, facts_.evaluate, valid);
      others += ScaledWork(valid, times);
      before += facts_.valid_batches;
      epoch += alike;
    }
    cost_.other_seconds += LivePass(before, facts_.test_batches, window, facts_.evaluate, others);
    cost_.other_processor_seconds = ProcessorsOf(others);
    cost_.epoch_seconds = train_seconds / static_cast<double>(facts_.epochs);
    SetEpoch(ScaledWork(epochs, 1 / static_cast<double>(facts_.epochs)));
  }

  double BlockBytes() const {
    double bits = std::ceil(std::log2(std::max(2.0, nodes())));
    if (facts_.told_edges > 1) bits += std::ceil(std::log2(static_cast<double>(facts_.told_edges)));
    return facts_.batch_edges * bits / 8 + nodes() * kBlockBytesPerNode;
  }

  // A batch from a layout, of which `misses` rows were packed.
  Work PackedBatch(double misses) const {
    const double bytes = misses * stride_ + kPageBytes / 2.0 + BlockBytes();
    Work work{.model = facts_.train, .read_bytes = bytes};
    work.disk_seconds = ScanSeconds(bytes);
    work.extract_seconds = ProcessorWork{.checksum_bytes = bytes,
                                         .decoded_bytes = BlockBytes(),
                                         .requests = bytes / static_cast<double>(kMiB)}
                               .Seconds(facts_.device.core);
    // Rows that enter the cache are copied while nobody trains: about half of the misses where the policy changes it.
    if (plan_.policy == PolicyKind::kBelady) {
      const double copying = ProcessorWork{.copied_bytes = misses * stride_ / 2}.Seconds(facts_.device.core);
      work.model.wall += copying;
      work.model.processor += copying;
    }
    return work;
  }

  // The same with its rows left in the table.
  Work MergedBatch(double misses) const {
    Work work = PackedBatch(0);
    ReadScattered(misses, work);
    return work;
  }

  void SetEpoch(const Work& epoch) {
    cost_.epoch = epoch;
    cost_.read_bytes = static_cast<uint64_t>(epoch.read_bytes);
  }

  // An assembler is one thread.
  double PlannedSeconds(const Work& work) const {
    return std::max({work.disk_seconds, work.extract_seconds, ProcessorSeconds(work)});
  }

  // Building: a source is opened on one core, sampling on all cores, planning on one, and packing by a scan of the table.
  struct Building {
    double sample_processor_seconds = 0;  // of all cores
    double open_disk_seconds = 0,
           open_processor_seconds = 0;  // of the source of the trace; the latter of one core
    double sample_disk_seconds = 0, plan_seconds = 0, pack_disk_seconds = 0, pack_processor_seconds = 0;
    double cores = 1;
    double layout_bytes = 0, least_layout_bytes = 0;
    BuildSeconds Seconds() const {
      return {.sample = std::max(open_processor_seconds, open_disk_seconds) +
                        std::max(sample_processor_seconds, sample_disk_seconds),
              .plan = plan_seconds,
              .pack = std::max(pack_disk_seconds, pack_processor_seconds)};
    }
    // With all cores, if none is ever idle.
    double SharedSeconds() const {
      return sample_processor_seconds + (open_processor_seconds + plan_seconds) / cores +
             pack_processor_seconds;
    }
    double disk_seconds() const { return open_disk_seconds + sample_disk_seconds + pack_disk_seconds; }
    double Alone() const {
      const BuildSeconds seconds = Seconds();
      return seconds.sample + seconds.plan + seconds.pack;
    }
  };
  Building Build(TopologyPlace place, double batches, double misses, bool packed) const {
    Building build{.cores = cores()};
    const ListsOnDisk lists = {.indices_bytes = facts_.lists.indices_bytes,
                               .address_bytes = facts_.lists.address_bytes};
    if (!place.in_memory &&
        !MakesNeighborCaches(lists, static_cast<uint64_t>(batches),
                             ReadsOfLists(facts_.lists, 0, device()).bytes, place.cache_bytes)) {
      place.cache_bytes = 0;
    }
    Work sampling;
    Sample(place, sampling);
    build.sample_processor_seconds = batches * sampling.sample_seconds / cores();
    build.sample_disk_seconds = batches * sampling.disk_seconds;
    build.sample_disk_seconds += ListsSeconds(place);
    const auto source_bytes = static_cast<double>(facts_.source_bytes);
    build.open_disk_seconds = ScanSeconds(source_bytes) + facts_.runs.open_disk_seconds;
    build.open_processor_seconds =
        ProcessorWork{.checksum_bytes = source_bytes, .requests = source_bytes / static_cast<double>(kMiB)}
            .Seconds(facts_.device.core) +
        static_cast<double>(facts_.train_nodes) * kOrderSecondsPerSeed + OpenRunsProcessorSeconds(place);
    build.plan_seconds = batches * nodes() * kPlanSecondsPerUse;
    const double blocks = batches * BlockBytes();
    const double chunks = packed ? misses * stride_ + batches * kPageBytes / 2 : 0;
    build.layout_bytes = blocks + chunks + batches * nodes() * 2;
    // One segment cache holds every row that is missed once, whose place takes each block four bytes more.
    const double pinned =
        plan_.policy == PolicyKind::kStaticFrequency ? static_cast<double>(plan_.cache_rows) : 0;
    const double rows = std::min(misses, std::max(0.0, facts_.uses.DistinctNodes(batches) - pinned));
    build.least_layout_bytes =
        packed ? build.layout_bytes - (misses - rows) * stride_ + misses * sizeof(uint32_t)
               : build.layout_bytes;
    build.pack_disk_seconds =
        (packed ? ScanSeconds(table_bytes()) : 0) + (blocks + chunks) / facts_.device.write_bytes_per_second;
    build.pack_processor_seconds =
        ProcessorWork{.checksum_bytes = (packed ? table_bytes() : 0) + blocks + chunks,
                      .copied_bytes = blocks + chunks,
                      .requests = ((packed ? table_bytes() : 0) + chunks) / (256.0 * kKiB)}
            .Seconds(facts_.device.core) /
        cores();
    return build;
  }

  // The lists come into memory by one scan, on one core; those of a neighbor cache by as many as filling it takes.
  double ListsSeconds(const TopologyPlace& place) const {
    const auto bytes = static_cast<double>(facts_.lists.indices_bytes);
    const double scans = place.in_memory ? 1 : place.cache_bytes > 0 ? facts_.lists.cache_scans : 0;
    const double processor =
        ProcessorWork{.checksum_bytes = bytes, .requests = bytes / static_cast<double>(kMiB)}.Seconds(
            facts_.device.core);
    return scans * std::max(ScanSeconds(bytes), processor);
  }

  // Passes over other seeds are sampled live and have no cache, by a road that is opened beside the layout.
  void PriceOthers() {
    const Work work = LiveBatch(nodes(), cost_.lists, facts_.evaluate);
    const double batches = static_cast<double>(facts_.epochs) * facts_.valid_batches + facts_.test_batches;
    cost_.other_seconds =
        ListsSeconds(cost_.lists) + OpenRunsSeconds(cost_.lists) + batches * LiveSeconds(work);
    cost_.other_processor_seconds = batches * ProcessorsOf(work);
  }

  void PricePlanned() {
    const uint64_t batches = facts_.train_batches * facts_.planned_epochs;
    const auto count = static_cast<double>(batches), of_epoch = static_cast<double>(facts_.train_batches);
    const double misses =
        facts_.uses.CycleMisses(plan_.policy, static_cast<double>(plan_.cache_rows), batches, true);
    const Building build = Build(facts_.planned.building, count, misses, /*packed=*/true);
    const double image_bytes = static_cast<double>(plan_.cache_rows) * stride_;
    if (plan_ != facts_.built) {
      cost_.build = build.Seconds();
      cost_.build.pack += image_bytes / facts_.device.write_bytes_per_second;
      cost_.build_seconds = cost_.build.sample + cost_.build.plan + cost_.build.pack;
      cost_.build_processor_seconds = build.SharedSeconds() * cores();
    }
    cost_.disk_bytes = static_cast<uint64_t>(build.layout_bytes + image_bytes);
    cost_.least_disk_bytes = static_cast<uint64_t>(build.least_layout_bytes + image_bytes);
    const Work batch = PackedBatch(misses / count);
    // The image of the cache is read once, before the first batch.
    cost_.build_seconds += ScanSeconds(image_bytes);
    cost_.epoch_seconds = of_epoch * PlannedSeconds(batch);
    SetEpoch(ScaledWork(batch, of_epoch));
    cost_.processor_bound = ProcessorSeconds(batch) >= batch.disk_seconds;
    PriceOthers();
  }

  // Batches that are planned together.
  struct Superbatch {
    double count = 0;
    Work batch = {};
    Building build = {};
  };
  Superbatch MakeSuperbatch(uint64_t batches) const {
    const auto count = static_cast<double>(batches);
    const double misses =
        facts_.uses.CycleMisses(plan_.policy, static_cast<double>(plan_.cache_rows), batches,
                                /*cyclic=*/false);
    return {.count = count,
            .batch = plan_.packed ? PackedBatch(misses / count) : MergedBatch(misses / count),
            .build = Build(facts_.fresh.building, count, misses, plan_.packed)};
  }

  double ServeSeconds(const Superbatch& now) const {
    return now.count * PlannedSeconds(now.batch) + kSuperbatchSeconds;
  }

  // `next` is built beside `now`, from the same disk and processors. Where the model's own pace leaves cores idle, building
  // has those.
  double BesideSeconds(const Superbatch& now, const Superbatch& next) const {
    return std::max({now.count * PlannedSeconds(now.batch), next.build.Alone(),
                     now.count * now.batch.disk_seconds + next.build.disk_seconds(),
                     now.count * now.batch.model.wall,
                     now.count * SharedSeconds(now.batch) + next.build.SharedSeconds()}) +
           kSuperbatchSeconds;
  }

  void PriceFresh() {
    const uint64_t of_epoch = facts_.train_batches;
    const uint64_t size = plan_.superbatch == 0 ? of_epoch : std::min(plan_.superbatch, of_epoch);
    const uint64_t whole = of_epoch / size, rest = of_epoch % size;
    const Superbatch full = MakeSuperbatch(size);
    const Superbatch end = rest > 0 ? MakeSuperbatch(rest) : full;
    const auto epochs = static_cast<double>(facts_.epochs), fulls = static_cast<double>(whole);
    const double before_end =
        (fulls - 1) * BesideSeconds(full, full) + (rest > 0 ? BesideSeconds(full, end) : 0);
    // The last superbatch of all has nothing beside it.
    cost_.build = full.build.Seconds();
    cost_.build_seconds = full.build.Alone();
    cost_.build_processor_seconds = full.build.SharedSeconds() * cores();
    cost_.epoch_seconds = before_end + ((epochs - 1) * BesideSeconds(end, full) + ServeSeconds(end)) / epochs;
    Work epoch = ScaledWork(full.batch, full.count * fulls);
    if (rest > 0) epoch += ScaledWork(end.batch, end.count);
    SetEpoch(epoch);
    const double built = epochs * fulls - 1;
    cost_.train_processor_seconds +=
        cores() * (built * full.build.SharedSeconds() + (rest > 0 ? epochs * end.build.SharedSeconds() : 0));
    // Two are there at a time.
    const double times = built + (rest > 0 ? epochs : 0) > 0 ? 2 : 1;
    cost_.disk_bytes = static_cast<uint64_t>(times * full.build.layout_bytes);
    cost_.least_disk_bytes = static_cast<uint64_t>(times * full.build.least_layout_bytes);
    cost_.processor_bound = ProcessorSeconds(full.batch) >= full.batch.disk_seconds;
    PriceOthers();
  }

  const RoadFacts& facts_;
  const RoadPlan plan_;
  const double stride_;
  bool processors_set_pass_ = false;  // the end of the last live one
  RoadCost cost_;
};

}  // namespace

RoadWork& RoadWork::operator+=(const RoadWork& other) {
  disk_seconds += other.disk_seconds;
  sample_seconds += other.sample_seconds;
  extract_seconds += other.extract_seconds;
  model.wall += other.model.wall;
  model.processor += other.model.processor;
  read_bytes += other.read_bytes;
  return *this;
}

TopologyPlace RoadFacts::Offer::PlaceWith(uint64_t cache_rows) const {
  if (rows_beside_lists && cache_rows <= *rows_beside_lists) return {.in_memory = true};
  const uint64_t rows = cache_rows - std::min(cache_rows, rows_free);
  const double left = static_cast<double>(lists_bytes) - row_bytes * static_cast<double>(rows);
  return {.cache_bytes = left > 0 ? static_cast<uint64_t>(left) : 0};
}

RoadCost PriceRoad(const RoadFacts& facts, const RoadPlan& plan) { return Pricer(facts, plan).Run(); }

}  // namespace quarry
