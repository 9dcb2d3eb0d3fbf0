// A run of DistMult on a device, and what it is compared with.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <utility>

#include "pipeline/distmult_task.h"
#include "quarry/base/random.h"
#include "quarry/pipeline/device_task.h"

namespace quarry::testing_util {

struct DistMultTrainingOptions {
  EmbeddingSpec nodes = {.row_count = 40, .dim = 5};
  EmbeddingSpec relations = {.row_count = 6, .dim = 5, .seed = 1};
  DistMultOptions task;
  EmbeddingPipelineOptions pipeline = {.record_order = true};
  uint64_t memory_bytes = 0;  // of the device; 0: whatever it has
};

// Few rows, skewed, so that batches overlap heavily.
inline DistMultTrainingOptions RandomDistMultTraining(uint64_t seed, AsyncMode mode) {
  Rng rng(seed);
  DistMultTrainingOptions options;
  const auto dim = static_cast<uint32_t>(1 + rng.Below(9));
  options.nodes = {.row_count = 10 + rng.Below(60), .dim = dim, .init_scale = 1, .seed = rng()};
  options.relations = {.row_count = 1 + rng.Below(8), .dim = dim, .init_scale = 1, .seed = rng()};
  for (EmbeddingSpec* spec : {&options.nodes, &options.relations}) {
    if (rng.Below(3) == 0) spec->element_type = ElementType::kBfloat16;
  }
  options.task = {.seed = seed,
                  .edges = static_cast<uint32_t>(1 + rng.Below(16)),
                  .chunk_edges = static_cast<uint32_t>(1 + rng.Below(6)),
                  .chunk_negatives = static_cast<uint32_t>(1 + rng.Below(4))};
  options.pipeline.mode = mode;
  options.pipeline.ordered = rng.Below(3) == 0;
  options.pipeline.batches_in_flight = static_cast<unsigned>(1 + rng.Below(8));
  for (unsigned* workers : {&options.pipeline.prepare_workers, &options.pipeline.transfer_workers,
                            &options.pipeline.update_workers}) {
    *workers = static_cast<unsigned>(1 + rng.Below(3));
  }
  return options;
}

// A pipeline over tables of its own. What came of making it is `made`.
struct DistMultTraining {
  DistMultTraining(gpu::Device& device, const DistMultTrainingOptions& options)
      : nodes(MakeMemoryEmbeddingTable(options.nodes)),
        relations(MakeMemoryEmbeddingTable(options.relations)),
        task(options.nodes, options.relations, options.task) {
    auto result = MakeDeviceEmbeddingPipeline(tables(), task, device, options.memory_bytes, options.pipeline);
    made = result.status();
    if (made.ok()) pipeline = std::move(result).value();
  }

  std::array<EmbeddingTable*, 2> tables() const { return {nodes.get(), relations.get()}; }

  Result<bool> Equals(const SerialDistMult& serial) const {
    bool same = true;
    for (size_t t = 0; t < 2; ++t) {
      RowBlock all;
      all.ids.resize(tables()[t]->spec().row_count);
      std::iota(all.ids.begin(), all.ids.end(), RowId{0});
      QUARRY_RETURN_IF_ERROR(tables()[t]->Read(all));
      same = same && serial.Has(t, all);
    }
    return same;
  }

  std::unique_ptr<EmbeddingTable> nodes, relations;
  DistMultTask task;
  Status made;
  std::unique_ptr<EmbeddingPipeline> pipeline;
};

// How a run ended.
struct DistMultEnd {
  bool same = true;      // as the serial run of its computation order, at each of two boundaries
  uint64_t batches = 0;  // that were trained
};

inline Result<DistMultEnd> TrainDistMult(gpu::Device& device, uint64_t seed, AsyncMode mode) {
  DistMultTraining training(device, RandomDistMultTraining(seed, mode));
  QUARRY_RETURN_IF_ERROR(training.made);
  SerialDistMult serial(training.nodes->spec(), training.relations->spec(), training.task);
  Rng rng(seed);
  DistMultEnd end;
  for (const uint64_t count : {rng.Below(20), 1 + rng.Below(30)}) {
    QUARRY_RETURN_IF_ERROR(training.pipeline->Run(end.batches, count));
    serial.Train(training.pipeline->order().subspan(end.batches));
    end.batches += count;
    QUARRY_TRY(const bool same, training.Equals(serial));
    end.same = end.same && same;
  }
  return end;
}

}  // namespace quarry::testing_util
