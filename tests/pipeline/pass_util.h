// Opening roads over test databases, and passes as hashes.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/format/checksum.h"
#include "quarry/pipeline/live_road.h"
#include "support/fault_backend.h"
#include "support/status_matchers.h"

namespace quarry::testing_util {

// An open road and what it stands on; `status` tells why there is none.
struct OpenRoad {
  std::unique_ptr<IoBackend> real = MakeDefaultBackend();
  FaultBackend backend{*real};  // passes everything on until it is told otherwise
  std::unique_ptr<Store> store;
  std::unique_ptr<MemoryBudget> budget;
  std::unique_ptr<LiveRoad> road;
  Status status;

  OpenRoad(const std::string& path, const LiveRoadOptions& options, uint64_t memory_bytes = kGiB)
      : budget(std::make_unique<MemoryBudget>(memory_bytes)) {
    auto opened = Store::Open(backend, path);
    EXPECT_OK(opened);
    store = std::move(opened).value();
    Reopen(options);
  }
  void Reopen(const LiveRoadOptions& options) {
    road.reset();
    auto made = LiveRoad::Open(*store, *budget, options);
    status = made.status();
    if (made.ok()) road = std::move(made).value();
  }
};

inline LiveRoadOptions SmallOptions() {
  LiveRoadOptions options;
  options.spec.fanouts = {4, 3};
  options.spec.batch_size = 32;
  options.spec.seed = 5;
  return options;
}

// Ways to draw neighbors that differ from that of SmallOptions.
inline std::vector<RoadSpec> OtherDraws() {
  std::vector<RoadSpec> specs(6, SmallOptions().spec);
  specs[0].replace = true;
  specs[1].sampler = SamplerKind::kLabor;
  specs[2].sampler = SamplerKind::kLabor;
  specs[2].batch_dependency = 4;
  specs[3].weighted = true;
  specs[4].sampler = SamplerKind::kLabor;
  specs[4].weighted = true;
  specs[5].replace = true;
  specs[5].weighted = true;
  return specs;
}
inline std::string DrawsOf(const RoadSpec& spec) {
  return fmt::format("{}, dependency {}, weighted {}, replace {}", NameOf(spec.sampler),
                     spec.batch_dependency, spec.weighted, spec.replace);
}

// One number for everything that a trainer can see of a batch.
inline uint64_t HashBatch(const BatchView& batch) {
  uint64_t hash = MixSeed(1, batch.index);
  const auto add = [&hash](const auto& values) {
    hash = MixSeed(hash, Checksum64(std::as_bytes(std::span(values))));
  };
  add(batch.nodes);
  add(batch.hop_offsets);
  add(batch.indptr);
  add(batch.indices);
  add(batch.labels);
  if (!batch.edge_ids.empty()) add(batch.edge_ids);
  const uint64_t row_bytes = RowBytes(batch.features.element_type, batch.features.dim);
  for (size_t i = 0; i < batch.nodes.size(); ++i) {
    hash = MixSeed(hash, Checksum64({batch.features.Row(i), row_bytes}));
  }
  return hash;
}

// What a pass delivered: batch numbers and hashes in the order of delivery, and how it ended.
struct PassOutcome {
  std::vector<std::pair<uint64_t, uint64_t>> hashes;
  Status status;
  StreamStats stats;
};

inline PassOutcome TryPass(Road& road, PassOptions pass) {
  PassOutcome outcome;
  auto stream = road.StartPass(std::move(pass));
  outcome.status = stream.status();
  while (outcome.status.ok()) {
    auto batch = (*stream)->Next();
    outcome.status = batch.status();
    if (!batch.ok() || !*batch) break;
    outcome.hashes.emplace_back((*batch)->index(), HashBatch((*batch)->view()));
  }
  if (stream.ok()) outcome.stats = (*stream)->stats();
  if (outcome.status.ok()) {
    EXPECT_EQ(outcome.hashes.size(), (*stream)->batch_count());
  }
  return outcome;
}

// Expects success.
inline std::vector<std::pair<uint64_t, uint64_t>> RunPass(Road& road, PassOptions pass,
                                                          StreamStats* stats = nullptr) {
  PassOutcome outcome = TryPass(road, std::move(pass));
  EXPECT_OK(outcome.status);
  if (stats != nullptr) *stats = outcome.stats;
  return outcome.hashes;
}

}  // namespace quarry::testing_util
