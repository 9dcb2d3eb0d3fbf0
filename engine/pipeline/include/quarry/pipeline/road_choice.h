// Which road a training run should take: the predicted seconds of every road on offer, and the least of them. Pure: a
// function of what is known of the database, the run, a few probed batches and the machine.
//
//   live      rows are read as batches are sampled, with a cache that evicts what was used longest ago
//   planned   epochs are sampled and packed once, before the first, and repeated
//   fresh     every epoch is sampled and planned anew, a superbatch while the one before trains (SuperbatchRoad), packed or
//             not; how many batches a superbatch has is part of the choice
//
// Rows that stay and adjacency lists share one memory: the more rows stay, the less is left for the lists of passes that
// are sampled live, which then lie on disk behind a neighbor cache of what is left. So one number, the rows that stay,
// says how it is divided, and the one of the least predicted seconds is searched: this is where a byte more gains as much
// on either side (CaliEX's rule).
//
// The seconds of an epoch are the largest of what its reads take the disk, what it takes the processors (sampling,
// verifying, copying, decoding and the model's arithmetic, shared by the cores there are), and what each stage takes
// with the threads that it has. What processors do is measured by their own clocks (processor_time.h), since the clock on
// the wall says more of who else uses the machine; only the pace of a model of several threads needs that one. Validation and test passes, which planned roads sample live
// and without a cache, are part of a run; so is bringing lists into memory, by one scan of them, or into a neighbor cache, by one or two (neighbor_cache.h).
//
// Not known to it: rows in the drive's own cache, what else uses the machine, where --patience will end the run (it
// prices all epochs), and --disk's segment caches, whose reads it takes for those of chunks: a layout that needs them is
// on offer only where somebody has chosen the road.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/cache/cache_policy.h"
#include "quarry/format/feature_table.h"
#include "quarry/format/manifest.h"
#include "quarry/layout/topology_place.h"
#include "quarry/layout/use_profile.h"
#include "quarry/pipeline/model_seconds.h"
#include "quarry/pipeline/scattered_reads.h"
#include "quarry/storage/runs_price.h"

namespace quarry {

enum class RoadKind : uint8_t { kLive, kPlanned, kFresh };
std::string_view NameOf(RoadKind road);  // "live", "planned", "fresh"

// One way to run: what is priced. Where the lists lie follows from the rows that stay (RoadFacts::Offer).
struct RoadPlan {
  RoadKind road = RoadKind::kLive;
  PolicyKind policy = PolicyKind::kLru;
  bool packed = false;
  uint64_t cache_rows = 0;
  uint64_t superbatch = 0;  // batches that the fresh road plans together; 0: an epoch
  friend bool operator==(const RoadPlan&, const RoadPlan&) = default;
};

struct RoadFacts {
  FeatureGeometry geometry;
  uint32_t block_bytes = kSectorBytes;
  DeviceRecord device;  // every rate positive (DeviceOf)
  unsigned processors = 1;
  unsigned sampler_threads = 1, extractor_threads = 1;  // of the live road

  // The run.
  uint64_t epochs = 1;
  uint64_t train_batches = 1;  // of an epoch
  // After each epoch, and at the end: a short batch counts as its part of a whole one, since few nodes may be held out.
  double valid_batches = 0, test_batches = 0;
  uint64_t planned_epochs = 1;

  // A mean batch, as it was probed.
  UseProfile uses;
  double batch_edges = 0;
  uint64_t told_edges = 0;    // of the graph, where batches say which of them they have
  double sample_seconds = 0;  // of one core
  ListsProbe lists;
  RunsPrice runs = {};  // of edges, which are opened with the lists and searched where these are on disk
  // For each layout that is built: what is read before its first batch is sampled, and the seeds that are ordered.
  uint64_t source_bytes = 0, train_nodes = 0;
  ModelSeconds train;     // forward, backward and step
  ModelSeconds evaluate;  // forward

  // Roads on offer: the most rows that each can cache beside all else that it holds.
  struct Offer {
    bool offered = false;
    std::string why_not = {};        // where it is not, in a few words
    Code code = Code::kOutOfBudget;  // and as an error has it
    uint64_t cache_rows_max = 0;
    bool cache_is_given = false;  // no fewer rows either
    // A layout that is too large gets segment caches, and where these are too large as well, building says so.
    bool segments = false;
    TopologyPlace building = {.in_memory = true};  // where the lists lie while a layout is built
    // Where those of passes that are sampled live lie: in memory where no more rows stay than these, ...
    std::optional<uint64_t> rows_beside_lists = ~uint64_t{0};  // nothing: on disk in any case
    // ... else on disk, behind a neighbor cache of so much, of which each row takes its part beyond those that lie where
    // a batch in flight would.
    uint64_t lists_bytes = 0, rows_free = 0;
    double row_bytes = 0;
    TopologyPlace PlaceWith(uint64_t cache_rows) const;
  };
  Offer live, planned, fresh;
  std::optional<RoadPlan> built;           // the planned road whose layout is there already
  std::optional<uint64_t> open_live_rows;  // the live road that is open: others have to read lists anew
  // For the fresh road: how many batches may be planned together, each with the most rows that can then be cached.
  // Nothing: an epoch, with the offer's.
  struct Superbatch {
    uint64_t batches = 0;
    uint64_t cache_rows_max = 0;
  };
  std::vector<Superbatch> superbatches;
  bool reads_overlap = true;  // the live road has room for two batches at least
  uint64_t disk_bytes = 0;    // for layouts
  std::vector<PolicyKind> policies = {PolicyKind::kBelady,
                                      PolicyKind::kStaticFrequency};  // of planned epochs
  PolicyKind fresh_policy = PolicyKind::kBelady;                      // of epochs that are used once
};

// What a pass takes of each part of the machine.
struct RoadWork {
  double disk_seconds = 0;
  double sample_seconds = 0;   // of one core, by the samplers
  double extract_seconds = 0;  // of one core, by the extractors, or by a layout's assembler
  ModelSeconds model = {};
  double read_bytes = 0;
  RoadWork& operator+=(const RoadWork& other);
};

// What building a layout takes, one after the other.
struct BuildSeconds {
  double sample = 0, plan = 0, pack = 0;
};

// Seconds of the whole run, and what they consist of.
struct RoadCost {
  RoadPlan plan;
  double build_seconds = 0;       // before the first epoch
  double epoch_seconds = 0;       // a training pass, the mean
  double other_seconds = 0;       // validation and test passes, all of them
  double seconds = 0;             // all of it
  uint64_t read_bytes = 0;        // by training passes, an epoch
  uint64_t disk_bytes = 0;        // that the layout takes
  uint64_t least_disk_bytes = 0;  // about, where all its batches share one segment cache
  bool processor_bound = false;
  TopologyPlace lists = {};  // of passes that are sampled live
  RoadWork epoch = {};       // of a training pass, the mean; a layout that is built meanwhile is not in it
  BuildSeconds build = {};   // of the first layout; nothing on the live road
  // By all processors: before the first epoch, in all training passes and what is built beside them, and in the others.
  double build_processor_seconds = 0, train_processor_seconds = 0, other_processor_seconds = 0;
  std::string ToString() const;  // "planned, packed, belady, a cache of 51200 rows"
};

RoadCost PriceRoad(const RoadFacts& facts, const RoadPlan& plan);

// Sizes of superbatches that are tried for passes of so many batches, descending from all of them: such that a pass ends a
// whole one, or nearly so.
std::vector<uint64_t> SuperbatchSizes(uint64_t train_batches);

struct RoadChoice {
  // The cheapest of each kind, policy, packing and place of the lists, and of whole epochs and superbatches, ascending by
  // seconds.
  std::vector<RoadCost> roads;
  std::vector<std::string> left_out;  // "planned: needs 3.1 GiB of disk, and 2.0 GiB are free"
  Code code = Code::kOutOfBudget;     // as an error has it that the last of these is left out
  RunsPrice runs = {};                // that the graph has
  const RoadCost& best() const { return roads.front(); }
  // Two lines: what was chosen, and what the next best road of another kind would take, or why there is none.
  std::string ToString() const;
  // One line a road.
  std::string Table() const;
};

// Every plan that `facts` offers, priced. The live road is the choice where nothing else is on offer, and where another
// road is not a twentieth, and half a second, cheaper: it writes nothing and its samples are fresh. So is the live road
// as it is open, where another division of its memory does not save as much.
RoadChoice ChooseRoad(const RoadFacts& facts);

}  // namespace quarry
