// Which road a training run should take: the predicted seconds of every road on offer, and the least of them. Pure: a
// function of what is known of the database, the run, a few probed batches and the machine.
//
//   live      rows are read as batches are sampled, with a cache that evicts what was used longest ago
//   planned   epochs are sampled and packed once, before the first, and repeated
//   fresh     every epoch is sampled and planned anew while the one before trains (SuperbatchRoad), packed or
//             not
//
// The seconds of an epoch are the larger of what its reads take the disk and what it takes the processors: sampling,
// verifying, copying and decoding, shared by the cores there are, and the model's arithmetic, which uses them all.
// Stages that have few threads of their own bound it too. Validation and test passes, which planned roads sample live
// and without a cache, are part of a run.
//
// Not known to it: rows in the drive's own cache, what else uses the machine, where --patience will end the run, and
// --disk's segment caches, whose reads it takes for those of chunks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/cache/cache_policy.h"
#include "quarry/format/feature_table.h"
#include "quarry/format/manifest.h"
#include "quarry/layout/use_profile.h"

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
  double sample_seconds = 0;    // on one thread
  double topology_bytes = 0;    // read from disk by sampling
  double train_seconds = 0;     // forward, backward and step, on all processors
  double evaluate_seconds = 0;  // forward

  // Roads on offer: the most rows that each can cache beside all else that it holds.
  struct Offer {
    bool offered = false;
    std::string why_not = {};  // where it is not, in a few words
    uint64_t cache_rows_max = 0;
    bool cache_is_given = false;  // no fewer rows either
  };
  Offer live, planned, fresh;
  std::optional<RoadPlan> built;  // the planned road whose layout is there already
  bool reads_overlap = true;      // the live road has room for two batches at least
  uint64_t disk_bytes = 0;        // for layouts
  std::vector<PolicyKind> policies = {PolicyKind::kBelady,
                                      PolicyKind::kStaticFrequency};  // of planned epochs
};

// Seconds of the whole run, and what they consist of.
struct RoadCost {
  RoadPlan plan;
  double build_seconds = 0;  // before the first epoch
  double epoch_seconds = 0;  // a training pass, the mean
  double other_seconds = 0;  // validation and test passes, all of them
  double seconds = 0;        // all of it
  uint64_t read_bytes = 0;   // by training passes, an epoch
  uint64_t disk_bytes = 0;   // that the layout takes
  bool processor_bound = false;
  std::string ToString() const;  // "planned, packed, belady, a cache of 51200 rows"
};

RoadCost PriceRoad(const RoadFacts& facts, const RoadPlan& plan);

struct RoadChoice {
  std::vector<RoadCost> roads;        // of each kind and policy the cheapest cache, ascending by seconds
  std::vector<std::string> left_out;  // "planned: needs 3.1 GiB of disk, and 2.0 GiB are free"
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
