// Draws by the weights of edges, of each node by itself. Each reads the weights of a node's whole list, and indices only
// where it has drawn.
#include <numeric>

#include "hop_draw.h"
#include "quarry/base/random.h"
#include "race.h"

namespace quarry {
namespace {

class WeightedDraw final : public HopDraw {
 public:
  WeightedDraw(const NeighborSource& source, const RoadSpec& spec, const Resolver& resolver)
      : lists_(source, /*weighted=*/true),
        replace_(spec.replace),
        tile_max_(resolver.tile_positions_max()),
        race_(std::min(LargestFanout(spec), NeighborSampler::kFanoutMax)) {}

  void Begin(const DrawSeed& seed) override { seed_ = seed.own; }

  Result<uint32_t> Draw(std::span<const NodeId> nodes, uint32_t /*hop*/, uint32_t fanout,
                        std::vector<uint32_t>& indptr, Drawn& drawn, SamplerStats& /*stats*/) override {
    drawn.count = 0;
    uint32_t i = 0;
    for (; i < nodes.size(); ++i) {
      if (i + kNodesAhead < nodes.size()) lists_.Prefetch(nodes[i + kNodesAhead]);
      const StrungList list = lists_.Of(nodes[i]);
      const uint64_t draws = DrawsOf(list.size(), fanout, replace_);
      if (drawn.count > 0 && drawn.count + draws > tile_max_) break;
      drawn.Grow(drawn.count + draws, tile_max_);
      rng_ = RngOfNode(seed_, nodes[i]);
      uint64_t* const out = drawn.positions.data() + drawn.count;
      const uint32_t taken = replace_ ? DrawAgain(list, fanout, out) : DrawDistinct(list, fanout, out);
      drawn.count += taken;
      indptr.push_back(indptr.back() + taken);
    }
    return i;
  }
  uint64_t memory_bytes() const override {
    return race_.memory_bytes() + targets_.capacity() * sizeof(double);
  }

 private:
  // A race. Lists that are not longer than the fanout need none.
  uint32_t DrawDistinct(const StrungList& list, uint32_t fanout, uint64_t* out) {
    uint32_t taken = 0;
    if (list.size() <= fanout) {
      lists_.ForEachWeight(list, [&](uint64_t place, float weight) {
        if (weight > 0) out[taken++] = list.PositionOf(place);
      });
      return taken;
    }
    race_.Start(fanout);
    lists_.ForEachWeight(list, [&](uint64_t place, float weight) {
      const uint64_t bits = rng_();
      race_.EnterWeighted(UnitOf(bits), weight, place, 0);
    });
    for (const Race::Runner& runner : race_.Finish()) out[taken++] = list.PositionOf(runner.place);
    return taken;
  }

  // Independent draws: points on the sum of the weights, ascending, each of which lies in the stretch of one edge.
  uint32_t DrawAgain(const StrungList& list, uint32_t fanout, uint64_t* out) {
    double sum = 0;
    uint64_t last = 0;  // edge with a weight
    lists_.ForEachWeight(list, [&](uint64_t place, float weight) {
      sum += static_cast<double>(weight);
      if (weight > 0) last = place;
    });
    if (sum == 0) return 0;
    targets_.resize(fanout);
    for (double& target : targets_) target = rng_.Unit() * sum;
    std::ranges::sort(targets_);
    uint32_t taken = 0;
    double end = 0;
    lists_.ForEachWeight(list, [&](uint64_t place, float weight) {
      end += static_cast<double>(weight);
      while (taken < fanout && targets_[taken] < end) out[taken++] = list.PositionOf(place);
    });
    while (taken < fanout) out[taken++] = list.PositionOf(last);  // a point that rounding put on the very end
    return taken;
  }

  const StrungLists lists_;
  const bool replace_;
  const uint64_t tile_max_;
  Race race_;
  std::vector<double> targets_;
  uint64_t seed_ = 0;  // of the block
  Rng rng_{0};         // of the node that is drawn for
};

}  // namespace

std::unique_ptr<HopDraw> MakeWeightedDraw(const NeighborSource& source, const RoadSpec& spec,
                                          const Resolver& resolver) {
  return std::make_unique<WeightedDraw>(source, spec, resolver);
}

}  // namespace quarry
