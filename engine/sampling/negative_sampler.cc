#include "quarry/sampling/negative_sampler.h"

#include <cassert>
#include <cmath>

#include "quarry/base/random.h"

namespace quarry {
namespace {

constexpr uint64_t kNegativeStream = 0x6e65;  // apart from other streams of the same seed

}  // namespace

void SampleNegatives(const NegativeOptions& options, const NegativePool& pool, const NegativeDraw& draw,
                     std::span<NodeId> out) {
  assert(options.degree_share >= 0 && options.degree_share <= 1);
  const auto by_degree =
      static_cast<size_t>(std::llround(options.degree_share * static_cast<double>(out.size())));
  assert(by_degree == 0 || !pool.edge_ends.empty());
  assert(by_degree == out.size() || pool.node_count > 0);
  Rng rng(MixSeed(options.seed, kNegativeStream, draw.epoch, draw.batch, draw.chunk, draw.side));
  for (NodeId& node : out.first(by_degree)) node = pool.edge_ends[rng.Below(pool.edge_ends.size())];
  for (NodeId& node : out.subspan(by_degree)) {
    node = pool.node_first + static_cast<NodeId>(rng.Below(pool.node_count));
  }
}

}  // namespace quarry
