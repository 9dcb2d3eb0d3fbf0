#include "trained_on.h"

#include <memory>

#include "quarry/base/process.h"
#include "quarry/storage/node_properties.h"

namespace quarry::cli {

Result<TrainedOn> CheckLabels(const NodeArguments& arguments, Database& database) {
  const std::shared_ptr<const Manifest> manifest = database.manifest();
  QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, database.store().TakeSnapshot());
  QUARRY_TRY(const NodeProperties properties,
             LoadNodeProperties(database.store(), manifest->node_count, snapshot));
  const RoadSpec& spec = arguments.road.spec;
  QUARRY_RETURN_IF_ERROR(CheckTrainerMemory(arguments.train, FeatureDim(*manifest, spec), properties.labels,
                                            BoundBlock(spec.batch_size, spec.fanouts, manifest->node_count),
                                            false, database.budget().used_bytes(), MemoryLimitBytes()));
  return TrainedOn{.classes = OutputsOf(arguments.train, CountClasses(properties.labels)),
                   .train_nodes = properties.TrainNodes().size(),
                   .valid_nodes = properties.SplitNodes(Split::kValid).size(),
                   .test_nodes = properties.SplitNodes(Split::kTest).size()};
}

}  // namespace quarry::cli
