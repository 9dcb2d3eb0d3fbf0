// A graph whose edges a decoder can learn, and options that learn it in milliseconds.
#pragma once

#include "quarry/base/random.h"
#include "quarry/trainer/link_train.h"

namespace quarry {

inline constexpr uint64_t kGraphSeed = 17;

// 120 nodes in 20 groups of 6; relation r leads from each node of group g to all of group (5 r + 19 - g) mod
// 20, and so both ways, as DistMult needs it. Nearly all rivals of an edge in the right group are known:
// a model that learns the groups ranks it first.
inline LinkData GroupedGraph() {
  constexpr uint32_t kGroups = 20, kMembers = 6, kRelations = 3;
  LinkData data;
  data.node_count = kGroups * kMembers;
  data.relation_count = kRelations;
  Rng rng(kGraphSeed);
  for (NodeId head = 0; head < data.node_count; head++) {
    for (uint32_t relation = 0; relation < kRelations; relation++) {
      const uint32_t group = (5 * relation + 19 + kGroups - head / kMembers) % kGroups;
      for (uint32_t member = 0; member < kMembers; member++) {
        const uint64_t part = rng.Below(20);
        auto& edges = part == 0 ? data.valid : part == 1 ? data.test : data.train;
        edges.push_back({head, relation, group * kMembers + member});
      }
    }
  }
  return data;
}
// A model that knows nothing ranks evenly: the mean of 1 / rank over 120 ranks.
inline constexpr double kChance = 0.045;

inline LinkTrainOptions SmallOptions() {
  LinkTrainOptions options;
  options.spec.dim = 16;
  options.batch_edges = 100;
  options.chunk_edges = 50;
  options.negatives = 30;
  options.optimizer_options.learning_rate = 0.2F;
  options.epochs = 12;
  options.seed = kGraphSeed;
  options.ordered = true;
  return options;
}
// Options that learn so fast that epochs soon differ by luck alone, and the best one is not the last.
inline LinkTrainOptions RestlessOptions() {
  LinkTrainOptions options = SmallOptions();
  options.optimizer_options.learning_rate = 1;
  options.negatives = 5;
  options.epochs = 60;
  options.patience = 2;
  return options;
}
// Batches in an epoch of GroupedGraph with SmallOptions.
inline constexpr uint64_t kEpochBatches = 20;

}  // namespace quarry
