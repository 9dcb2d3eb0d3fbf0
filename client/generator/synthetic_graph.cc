// Compiled with -ffp-contract=off (client/CMakeLists.txt): a fused multiply-add would change the last bit of
// features.
#include "generator/synthetic_graph.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>

#include "quarry/base/random.h"

namespace quarry {
namespace {

// The random streams, as MixSeed's second part.
enum Stream : uint64_t { kPlaces, kSplits, kDestinations, kSources, kCentroids, kFeatures };

// Three edge ends in ten are uniform and the rest follow the power law: a pure power law of exponent 2.1
// leaves a quarter of the nodes without any neighbor to learn from.
constexpr uint64_t kUniformTenths = 3;

// The norm of a centroid. At noise 1 and 50 classes the best classifier of single rows is right two times in
// five, and of the mean of ten neighbors nine times in ten.
constexpr double kCentroidNorm = 2;

// The largest degrees of real graphs grow like N^(2/3) (ogbn-products: 17 k of 2.4 M; papers100M: 251 k of
// 111 M).
double PeakRatio(uint64_t node_count, double degree) {
  return std::max(2.0, ExactPow(static_cast<double>(node_count), 2.0 / 3) / degree);
}

uint64_t Fixed32(double share) { return static_cast<uint64_t>(std::llround(share * 0x1p32)); }

// Splits one random number into several: each takes bits from the top and leaves the rest uniform.
struct Bits {
  uint64_t rest;
  uint64_t Below(uint64_t bound) {
    const uint128_t product = static_cast<uint128_t>(rest) * bound;
    rest = static_cast<uint64_t>(product);
    return static_cast<uint64_t>(product >> 64);
  }
};

uint64_t DrawRank(Bits bits, const PowerLaw& law, uint64_t count) {
  const bool uniform = bits.Below(10) < kUniformTenths;
  return uniform ? bits.Below(count) : law.Rank(bits.rest, count);
}

}  // namespace

IdPermutation::IdPermutation(uint64_t count, uint64_t seed) : count_(count), mask_(std::bit_ceil(count) - 1) {
  assert(count > 0 && count <= uint64_t{1} << 62);
  shift_ = std::max(1u, static_cast<unsigned>(std::bit_width(mask_) + 1) / 2);
  for (int i = 0; i < kRounds; i++) {
    factors_[i] = MixSeed(seed, i, 0) | 1;
    offsets_[i] = MixSeed(seed, i, 1);
    inverses_[i] = factors_[i];  // right in its lower 3 bits; each of Newton's steps doubles them
    for (int step = 0; step < 5; step++) inverses_[i] *= 2 - factors_[i] * inverses_[i];
  }
}

uint64_t IdPermutation::Forward(uint64_t x) const {
  do {  // walk the cycle of the power of two until it is back in range: under two steps in the mean
    for (int i = 0; i < kRounds; i++) {
      x = (x + offsets_[i]) * factors_[i] & mask_;
      x ^= x >> shift_;
    }
  } while (x >= count_);
  return x;
}

uint64_t IdPermutation::Backward(uint64_t x) const {
  do {
    for (int i = kRounds - 1; i >= 0; i--) {
      x ^= x >> shift_;
      x = (x * inverses_[i] - offsets_[i]) & mask_;
    }
  } while (x >= count_);
  return x;
}

SyntheticGraph::SyntheticGraph(const GenerateOptions& options)
    : node_count_(options.node_count),
      class_count_(options.class_count),
      edge_count_(
          static_cast<uint64_t>(std::llround(static_cast<double>(options.node_count) * options.degree))),
      split_seed_(MixSeed(options.seed, kSplits)),
      destination_seed_(MixSeed(options.seed, kDestinations)),
      source_seed_(MixSeed(options.seed, kSources)),
      feature_seed_(MixSeed(options.seed, kFeatures)),
      homophily_(Fixed32(options.homophily)),
      train_below_(Fixed32(options.train_share)),
      valid_below_(train_below_ + Fixed32(options.valid_share)),
      test_below_(valid_below_ + Fixed32(options.test_share)),
      places_(options.node_count, MixSeed(options.seed, kPlaces)),
      in_ranks_(options.exponent, PeakRatio(options.node_count, options.degree)),
      out_ranks_(options.exponent + 1, PeakRatio(options.node_count, options.degree)),
      noise_(MakeGaussianTable(options.noise * std::sqrt(0.5))),  // of each of two terms
      centroids_(options.class_count * options.dim) {
  const GaussianTable table =
      MakeGaussianTable(kCentroidNorm * std::sqrt(0.5 / static_cast<double>(options.dim)));
  Rng rng(MixSeed(options.seed, kCentroids));
  for (float& value : centroids_) {
    value = table[rng.Below(kGaussianLevels)] + table[rng.Below(kGaussianLevels)];
  }
}

Split SyntheticGraph::SplitOf(uint64_t node) const {
  const uint64_t draw = Mix64(split_seed_ ^ Mix64(node)) >> 32;
  if (draw < train_below_) return Split::kTrain;
  if (draw < valid_below_) return Split::kValid;
  return draw < test_below_ ? Split::kTest : Split::kNone;
}

SyntheticGraph::Place SyntheticGraph::DestinationPlace(uint64_t edge) const {
  Bits bits{Mix64(destination_seed_ ^ Mix64(edge))};
  const uint64_t node_class = bits.Below(class_count_);
  return {node_class, DrawRank(bits, in_ranks_, ClassSize(node_class))};
}

uint64_t SyntheticGraph::Destination(uint64_t edge) const { return Node(DestinationPlace(edge)); }

uint64_t SyntheticGraph::Source(uint64_t edge) const {
  const Place destination = DestinationPlace(edge);
  const uint64_t draw = Mix64(source_seed_ ^ Mix64(edge));
  Bits bits{draw};
  Place source{destination.node_class, 0};
  const bool same_class = bits.Below(uint64_t{1} << 32) < homophily_;
  if (!same_class) source.node_class = (source.node_class + 1 + bits.Below(class_count_ - 1)) % class_count_;
  const uint64_t size = ClassSize(source.node_class);
  // Popular sources are half a class away from popular destinations: hubs of the two directions differ.
  source.rank = (DrawRank({Mix64(draw)}, out_ranks_, size) + size / 2) % size;
  const bool loop = same_class && source.rank == destination.rank;
  if (loop) source.rank = (source.rank + 1) % size;
  return Node(source);
}

void SyntheticGraph::Features(uint64_t node, std::span<float> out) const {
  constexpr uint64_t kMask = kGaussianLevels - 1;
  const float* centroid = centroids_.data() + static_cast<size_t>(Label(node)) * out.size();
  Rng rng(Mix64(feature_seed_ ^ Mix64(node)));
  const auto noise = [&](uint32_t draw) {
    return noise_[draw & kMask] + noise_[draw >> kGaussianBits & kMask];
  };
  size_t i = 0;
  for (; i + 2 <= out.size(); i += 2) {
    const uint64_t draw = rng();
    out[i] = centroid[i] + noise(static_cast<uint32_t>(draw));
    out[i + 1] = centroid[i + 1] + noise(static_cast<uint32_t>(draw >> 32));
  }
  if (i < out.size()) out[i] = centroid[i] + noise(static_cast<uint32_t>(rng()));
}

}  // namespace quarry
