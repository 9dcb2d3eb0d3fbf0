#include "quarry/pipeline/road_offers.h"

#include <algorithm>
#include <optional>

#include "quarry/format/batch_view.h"

namespace quarry {
namespace {

using Placement = LiveRoadOptions::TopologyPlacement;

// The division with so many rows, if there is one that leaves reads to overlap.
std::optional<LiveRoadPlan> Divide(const LiveRoad& road, Placement placement, uint64_t rows,
                                   uint64_t stride) {
  Result<LiveRoadPlan> plan = road.DivideWith(placement, rows * stride);
  if (!plan.ok() || plan->batches_in_flight < 2) return std::nullopt;
  return *std::move(plan);
}

std::optional<uint64_t> MostRows(const LiveRoad& road, Placement placement, const FeatureGeometry& geometry) {
  const uint64_t stride = RowStride(geometry.element_type, geometry.dim);
  if (!Divide(road, placement, 0, stride)) return std::nullopt;
  uint64_t fits = 0, beyond = geometry.row_count + 1;
  while (beyond - fits > 1) {
    const uint64_t rows = fits + (beyond - fits) / 2;
    (Divide(road, placement, rows, stride) ? fits : beyond) = rows;
  }
  return fits;
}

}  // namespace

void OfferDivisions(const LiveRoad& road, Placement placement, const FeatureGeometry& geometry,
                    RoadFacts::Offer& offer) {
  const LiveRoadPlan& open = road.plan();
  offer.cache_rows_max = open.retained_max;
  offer.rows_beside_lists.reset();
  if (offer.cache_is_given || open.batches_in_flight < 2) {
    if (open.topology_in_memory) offer.rows_beside_lists = ~uint64_t{0};
    offer.lists_bytes = open.neighbor_cache_bytes;
    return;
  }
  if (placement != Placement::kDisk) offer.rows_beside_lists = MostRows(road, Placement::kMemory, geometry);
  if (offer.rows_beside_lists) offer.cache_rows_max = *offer.rows_beside_lists;
  if (placement == Placement::kMemory) return;
  const std::optional<uint64_t> most = MostRows(road, Placement::kDisk, geometry);
  if (!most) return;
  offer.cache_rows_max = std::max(offer.cache_rows_max, *most);
  const uint64_t stride = RowStride(geometry.element_type, geometry.dim);
  const std::optional<LiveRoadPlan> none = Divide(road, Placement::kDisk, 0, stride);
  const std::optional<LiveRoadPlan> all = Divide(road, Placement::kDisk, *most, stride);
  if (!none || !all) return;
  offer.lists_bytes = none->neighbor_cache_bytes;
  offer.rows_free = std::min(*most, none->slot_count - std::min(none->slot_count, none->batch_nodes_max));
  if (*most > offer.rows_free) {
    offer.row_bytes = static_cast<double>(none->neighbor_cache_bytes - all->neighbor_cache_bytes) /
                      static_cast<double>(*most - offer.rows_free);
  }
}

}  // namespace quarry
