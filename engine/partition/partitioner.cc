#include "quarry/partition/partitioner.h"

#include <array>

#include "bgl.h"
#include "grem.h"
#include "kept_partition.h"
#include "metis_partition.h"
#include "random_partition.h"

namespace quarry {
namespace {

// Capacities, sizes and shares of a part, whatever the method.
constexpr uint64_t kBytesPerPart = 64;

Status CheckPartitionOptions(const EdgeSource& edges, const PartitionOptions& options) {
  if (options.parts == 0) return MakeStatus(Code::kUsage, "0 parts: a graph is cut into at least one");
  if (!(options.chunk_share > 0 && options.chunk_share <= 1)) {
    return MakeStatus(Code::kUsage, "a chunk of {} of the edges: the share is above 0 and at most 1",
                      options.chunk_share);
  }
  for (const NodeId node : options.train_nodes) {
    if (node < edges.node_count()) continue;
    return MakeStatus(Code::kInvalidArgument, "training node {}: there are {} nodes", node,
                      edges.node_count());
  }
  return Status::Ok();
}

}  // namespace

Result<Assignment> Partition(EdgeSource& edges, const PartitionOptions& options,
                             const PartitionContext& context) {
  QUARRY_RETURN_IF_ERROR(CheckPartitionOptions(edges, options));
  const uint32_t parts = options.parts;
  QUARRY_TRY(const auto parts_reservation,
             context.budget.Reserve(parts * kBytesPerPart, fmt::format("{} parts", parts)));
  switch (options.method) {
    case PartitionMethod::kMetis:
      return PartitionByMetis(edges, parts, options.seed, context);
    case PartitionMethod::kBgl:
      return PartitionByBgl(edges, options.train_nodes, {.parts = parts, .seed = options.seed}, context);
    case PartitionMethod::kRandom: {
      QUARRY_TRY(const auto reservation,
                 context.budget.Reserve(edges.node_count() * sizeof(uint32_t), "the part of each node"));
      return PartitionAtRandom(edges.node_count(), parts, options.seed);
    }
    case PartitionMethod::kKept:
      return PartitionByKeeping(edges, options.kept, parts, context);
    case PartitionMethod::kGrem:
      break;
  }
  return PartitionByGrem(edges, {.parts = parts, .chunk_share = options.chunk_share, .seed = options.seed},
                         context);
}

}  // namespace quarry
