// Which road a training run should take: the predicted seconds of every road on offer, and the least of them. Pure: a
// function of what is known of the database, the run, a few probed batches and the machine.
//
//   live      rows are read as batches are sampled, with a cache that evicts what was used longest ago
//   planned   epochs are sampled and packed once, before the first, and repeated
//   fresh     every epoch is sampled and planned anew while the one before trains (SuperbatchRoad), packed or
//             not
//
// The seconds of an epoch are the largest of what its reads take the disk, what it takes the processors (sampling,
// verifying, copying, decoding and the model's arithmetic, shared by the cores there are), and what each stage takes
// with the threads that it has. What processors do is measured by their own clocks (processor_time.h), since the clock on
// the wall says more of who else uses the machine; only the pace of a model of several threads needs that one. Validation and test passes, which planned roads sample live
// and without a cache, are part of a run; so is bringing lists into memory or a neighbor cache, which takes one scan of them: a stored
// cache would have to be read too, and of a few large lists a scan reads little more.
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

namespace quarry {

enum class RoadKind : uint8_t { kLive, kPlanned, kFresh };
std::string_view NameOf(RoadKind road);  // "live", "planned", "fresh"

// One way to run: what is priced.
struct RoadPlan {
  RoadKind road = RoadKind::kLive;
  PolicyKind policy = PolicyKind::kLru;
  bool packed = false;
  uint64_t cache_rows = 0;
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
  uint64_t valid_batches = 0;  // after each epoch
  uint64_t test_batches = 0;   // at the end
  uint64_t planned_epochs = 1;

  // A mean batch, as it was probed.
  UseProfile uses;
  double batch_edges = 0;
  double sample_seconds = 0;  // of one core
  ListsProbe lists;
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
    // Where the lists lie: of passes that are sampled live, and while a layout is built.
    TopologyPlace passes = {.in_memory = true};
    TopologyPlace building = {.in_memory = true};
  };
  Offer live, planned, fresh;
  std::optional<RoadPlan> built;  // the planned road whose layout is there already
  bool reads_overlap = true;      // the live road has room for two batches at least
  uint64_t disk_bytes = 0;        // for layouts
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
  RoadWork epoch = {};      // of a training pass, the mean; a layout that is built meanwhile is not in it
  BuildSeconds build = {};  // of the first layout; nothing on the live road
  std::string ToString() const;  // "planned, packed, belady, a cache of 51200 rows"
};

RoadCost PriceRoad(const RoadFacts& facts, const RoadPlan& plan);

struct RoadChoice {
  std::vector<RoadCost> roads;        // of each kind and policy the cheapest cache, ascending by seconds
  std::vector<std::string> left_out;  // "planned: needs 3.1 GiB of disk, and 2.0 GiB are free"
  Code code = Code::kOutOfBudget;     // as an error has it that the last of these is left out
  const RoadCost& best() const { return roads.front(); }
  // Two lines: what was chosen, and what the next best road of another kind would take, or why there is none.
  std::string ToString() const;
  // One line a road.
  std::string Table() const;
};

// Every plan that `facts` offers, priced. The live road is the choice where nothing else is on offer, and where another
// road is not a twentieth, and half a second, cheaper: it writes nothing and its samples are fresh.
RoadChoice ChooseRoad(const RoadFacts& facts);

}  // namespace quarry
