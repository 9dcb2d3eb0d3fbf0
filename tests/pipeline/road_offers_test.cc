#include "quarry/pipeline/road_offers.h"

#include <gtest/gtest.h>

#include "pipeline/pass_util.h"
#include "pipeline/tiny_database.h"
#include "quarry/base/units.h"
#include "quarry/format/batch_view.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing_util::OpenRoad;
using testing_util::SmallOptions;
using testing_util::TinyDatabase;
using testing_util::TinyGraph;
using Placement = LiveRoadOptions::TopologyPlacement;

// What the choice of a road is told of divisions holds of the roads that open so.
TEST(RoadOffersTest, DivisionsThatAreOfferedOpen) {
  const TinyGraph graph{.nodes = 2000};
  const TinyDatabase database(graph);
  LiveRoadOptions options = SmallOptions();
  options.cache_takes_what_is_left = true;
  uint64_t least_bytes = 0;
  {
    const OpenRoad roomy(database.path(), options);
    ASSERT_OK(roomy.status);
    least_bytes = roomy.road->NeedWith(0).least_bytes;
  }
  const FeatureGeometry geometry = FeatureGeometry::Make(graph.type, graph.dim, graph.nodes).value();
  const uint64_t stride = RowStride(geometry.element_type, geometry.dim);
  constexpr uint64_t kRounding = 256 * kKiB;  // of buffers and tables; between the ends rows take the mean
  int split = 0, in_memory = 0;
  // Those that sample from disk hold megabytes for it.
  for (uint64_t step = 0; step < 16; ++step) {
    const uint64_t more_bytes = step < 8 ? step * 40 * kKiB : (step - 7) * 3 * kMiB;
    for (const Placement placement : {Placement::kAuto, Placement::kMemory, Placement::kDisk}) {
      SCOPED_TRACE(testing::Message() << "step " << step << ", placement " << static_cast<int>(placement));
      options.topology_placement = placement;
      OpenRoad open(database.path(), options, least_bytes + more_bytes);
      if (!open.status.ok()) continue;
      RoadFacts::Offer offer;
      OfferDivisions(*open.road, placement, geometry, offer);
      ASSERT_GE(offer.cache_rows_max, open.road->plan().retained_max);
      if (open.road->plan().batches_in_flight < 2) continue;
      for (uint64_t part = 0; part <= 8; ++part) {
        const uint64_t rows = offer.cache_rows_max * part / 8;
        const TopologyPlace place = offer.PlaceWith(rows);
        const Result<LiveRoadPlan> plan =
            open.road->DivideWith(place.in_memory ? Placement::kMemory : Placement::kDisk, rows * stride);
        ASSERT_OK(plan);
        EXPECT_EQ(plan->retained_max, rows);
        EXPECT_EQ(plan->topology_in_memory, place.in_memory);
        EXPECT_LE(plan->total_bytes(), open.budget->limit_bytes());
        if (!place.in_memory) {
          EXPECT_NEAR(static_cast<double>(plan->neighbor_cache_bytes), static_cast<double>(place.cache_bytes),
                      kRounding);
        }
        ++(place.in_memory ? in_memory : split);
      }
    }
  }
  EXPECT_GT(split, 0);
  EXPECT_GT(in_memory, 0);
}

}  // namespace
}  // namespace quarry
