// LABOR (Balin and Catalyurek, "Layer-Neighbor Sampling: Defusing Neighborhood Explosion in GNNs", NeurIPS 2023): every
// node t has one random number r_t in a hop, and each node of the frontier takes those of its neighbors whose numbers are
// the smallest, so that nodes with common neighbors take the same ones, and a batch has fewer nodes.
//
// This is the form that takes exactly min(fanout, degree) neighbors (sequential Poisson sampling, as GraphBolt's
// sample_layer_neighbors), not LABOR-0's r_t <= c_s, which takes as many in expectation: blocks then have the bounds of
// the neighbor sampler, by which memory is planned, and for each node by itself every subset of its neighbors is equally
// likely, as there. With weights the keys are those of a race (race.h), and what one node draws has the distribution of
// the weighted sampler. Parallel edges share the number of their neighbor, so they come together; along both directions
// a neighbor has one number for edges from it and another for edges to it.
//
// Batches depend on each other (RoadSpec::batch_dependency) by numbers that change slowly. GraphBolt moves all of them a
// little from batch to batch, along an arc between two normal variates; here each node keeps its number for
// `batch_dependency` batches, and the nodes' turns to change are spread over them. Numbers stay uniform and
// independent of each other, and need no logarithms and cosines an edge.
#include "draw.h"
#include "hop_draw.h"
#include "quarry/base/random.h"
#include "race.h"

namespace quarry {
namespace {

// Whole lists are read, as many as fit: enough for merged reads, and little beside a batch.
constexpr uint64_t kScannedMax = uint64_t{1} << 17;
constexpr uint64_t kScannedPerNode = 4;    // nodes of a tile are at most a quarter of its positions
constexpr uint64_t kSecondSideStream = 1;  // apart from the numbers of the first side

class LaborDraw final : public HopDraw {
 public:
  LaborDraw(const NeighborSource& source, const RoadSpec& spec, Resolver& resolver)
      : lists_(source, spec.weighted),
        dependency_(spec.batch_dependency),
        tile_max_(std::min(kScannedMax, resolver.tile_positions_max())),
        resolver_(resolver),
        race_(std::min(LargestFanout(spec), NeighborSampler::kFanoutMax)) {}

  void Begin(const DrawSeed& seed) override { seed_ = seed; }

  Result<uint32_t> Draw(std::span<const NodeId> nodes, uint32_t hop, uint32_t fanout,
                        std::vector<uint32_t>& indptr, Drawn& drawn, SamplerStats& stats) override {
    salt_ = MixSeed(seed_.common, hop);
    drawn.count = 0;
    const StrungList first = lists_.Of(nodes.front());
    if (first.size() > tile_max_) {
      QUARRY_RETURN_IF_ERROR(DrawLong(nodes.first(1), first, fanout, drawn, stats));
      indptr.push_back(indptr.back() + static_cast<uint32_t>(drawn.count));
      return 1;
    }
    const uint32_t count = Gather(nodes);
    QUARRY_RETURN_IF_ERROR(Scan(nodes.first(count), stats));
    uint64_t begin = 0;
    for (uint32_t i = 0; i < count; ++i) {
      const StrungList list = lists_.Of(nodes[i]);
      const size_t before = drawn.count;
      race_.Start(fanout);
      Enter(list, 0, std::span(neighbors_).subspan(begin, list.size()));
      Take(list, drawn);
      indptr.push_back(indptr.back() + static_cast<uint32_t>(drawn.count - before));
      begin += list.size();
    }
    return count;
  }
  uint64_t memory_bytes() const override {
    return race_.memory_bytes() + scanned_.memory_bytes() + neighbors_.capacity() * sizeof(NodeId) +
           ends_.capacity() * sizeof(uint32_t);
  }

 private:
  // Strings the lists of as many nodes as fit into a tile; returns how many.
  uint32_t Gather(std::span<const NodeId> nodes) {
    ends_.clear();
    scanned_.count = 0;
    for (const NodeId node : nodes) {
      const StrungList list = lists_.Of(node);
      if (scanned_.count + list.size() > tile_max_ || ends_.size() == tile_max_ / kScannedPerNode) break;
      AddPositions(list, 0, list.size());
    }
    return static_cast<uint32_t>(ends_.size());
  }
  void AddPositions(const StrungList& list, uint64_t begin, uint64_t end) {
    scanned_.Grow(scanned_.count + end - begin, tile_max_);
    for (uint64_t place = begin; place < end; ++place)
      scanned_.positions[scanned_.count++] = list.PositionOf(place);
    ends_.push_back(static_cast<uint32_t>(scanned_.count));
  }

  // Reads the neighbors at the positions.
  Status Scan(std::span<const NodeId> nodes, SamplerStats& stats) {
    if (neighbors_.size() < scanned_.positions.size()) {
      neighbors_ = {};  // else the old ones were copied
      neighbors_.resize(scanned_.positions.size());
    }
    const PositionTile tile{
        .nodes = nodes, .ends = ends_, .positions = {scanned_.positions.data(), scanned_.count}};
    return resolver_.Resolve(tile, neighbors_.data(), stats);
  }

  // A list that no tile holds, in pieces.
  Status DrawLong(std::span<const NodeId> node, const StrungList& list, uint32_t fanout, Drawn& drawn,
                  SamplerStats& stats) {
    race_.Start(fanout);
    for (uint64_t begin = 0; begin < list.size(); begin += tile_max_) {
      ends_.clear();
      scanned_.count = 0;
      AddPositions(list, begin, std::min(list.size(), begin + tile_max_));
      QUARRY_RETURN_IF_ERROR(Scan(node, stats));
      Enter(list, begin, std::span(neighbors_).first(scanned_.count));
    }
    Take(list, drawn);
    return Status::Ok();
  }

  // The neighbors of a list from a place on.
  void Enter(const StrungList& list, uint64_t place, std::span<const NodeId> neighbors) {
    for (const NodeId neighbor : neighbors) {
      const double number = NumberOf(neighbor, place >= list.degree[0]);
      if (!lists_.weighted()) {
        race_.Enter(number, place, neighbor);
      } else {
        race_.EnterWeighted(number, lists_.WeightAt(list, place), place, neighbor);
      }
      ++place;
    }
  }
  void Take(const StrungList& list, Drawn& drawn) {
    const std::span<const Race::Runner> first = race_.Finish();
    drawn.Grow(drawn.count + first.size(), tile_max_ + first.size());
    for (const Race::Runner& runner : first) {
      drawn.positions[drawn.count++] = list.PositionOf(runner.place);
      drawn.neighbors.push_back(runner.neighbor);
    }
  }

  // `second`: of the second side along both directions, where a node has another number, for a pair with edges both
  // ways would else be drawn twice or not at all.
  double NumberOf(NodeId node, bool second) const {
    uint64_t number = MixSeed(salt_, node);
    if (second) number = MixSeed(number, kSecondSideStream);
    if (dependency_ > 1) {
      const uint64_t turn = static_cast<uint32_t>(number >> 32) % dependency_;
      number = MixSeed(number, (seed_.number + turn) / dependency_);
    }
    return UnitOf(number);
  }

  const StrungLists lists_;
  const uint32_t dependency_;
  const uint64_t tile_max_;
  Resolver& resolver_;
  Race race_;
  DrawSeed seed_{0};
  uint64_t salt_ = 0;  // of the hop
  Drawn scanned_;
  std::vector<uint32_t> ends_;  // by node, in scanned_
  std::vector<NodeId> neighbors_;
};

}  // namespace

std::unique_ptr<HopDraw> MakeLaborDraw(const NeighborSource& source, const RoadSpec& spec,
                                       Resolver& resolver) {
  return std::make_unique<LaborDraw>(source, spec, resolver);
}

uint64_t HopDrawTile(const RoadSpec& spec, uint64_t drawn, uint64_t tile_max) {
  return spec.sampler == SamplerKind::kLabor ? std::min(kScannedMax, tile_max) : drawn;
}

uint64_t HopDrawBytesMax(const RoadSpec& spec, uint64_t tile_positions) {
  // Where all neighbors are taken, the runners' vector doubles; by weights, nobody races then.
  const bool labor = spec.sampler == SamplerKind::kLabor;
  const uint64_t all = labor ? 2 * uint64_t{LargestFanout(spec)} : 0;
  const uint64_t most = std::max<uint64_t>(NeighborSampler::kFanoutMax, all);
  const uint64_t racing = most * (sizeof(Race::Runner) + sizeof(double));
  if (spec.DrawsPlainly()) return SubsetDrawer::BytesMax(NeighborSampler::kFanoutMax);
  if (!labor) return racing;
  // Positions to read, their neighbors, ends of lists; a fanout of positions, and what was taken, in a vector that
  // doubles.
  return racing +
         tile_positions * (sizeof(uint64_t) + sizeof(NodeId) + sizeof(uint32_t) + 2 * sizeof(NodeId)) +
         most * (sizeof(uint64_t) + 2 * sizeof(NodeId));
}

}  // namespace quarry
