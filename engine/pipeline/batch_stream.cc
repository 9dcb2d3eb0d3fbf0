#include "quarry/pipeline/batch_stream.h"

#include <utility>

#include "quarry/storage/node_properties.h"

namespace quarry {

Result<std::unique_ptr<BatchStream>> Road::StartSplit(Split split, PassOptions options) {
  options.seeds = split == Split::kTrain ? TrainNodes() : SplitNodes(split);
  return StartPass(std::move(options));
}

uint64_t Road::CountNodes(Split split) const {
  return split == Split::kTrain ? TrainNodes().size() : SplitNodes(split).size();
}

uint32_t Road::class_count() const { return CountClasses(labels()); }

}  // namespace quarry
