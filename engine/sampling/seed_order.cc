#include "quarry/sampling/seed_order.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "quarry/base/random.h"
#include "quarry/base/units.h"

namespace quarry {
namespace {

// Names of streams, apart from each other's.
constexpr uint64_t kRootStream = 1;
constexpr uint64_t kShiftStream = 2;
constexpr uint64_t kReferenceStream = 3;

// What a shuffled order shows is noisy: the mean of a few.
constexpr uint64_t kReferenceShuffles = 4;

struct Neighbors {
  std::span<const uint64_t> indptr;
  std::span<const NodeId> indices;
};

Result<Neighbors> LoadedSide(const Topology& topology) {
  for (const Adjacency side : {Adjacency::kCsc, Adjacency::kCsr}) {
    if (!topology.has(side) || topology.indices(side).size() != topology.edge_count()) continue;
    return Neighbors{topology.indptr(side), topology.indices(side)};
  }
  return MakeStatus(Code::kOutOfBudget, "ordering seeds by proximity needs the topology in memory ({})",
                    FormatBytes(topology.IndicesBytes()));
}

// Makes breadth-first sequences of the seeds. Roots are seeds: parts of the graph that hold none are not
// searched for nothing, and in a directed graph a search from elsewhere may find none.
class SequenceMaker {
 public:
  SequenceMaker(const Neighbors& neighbors, std::span<const NodeId> seeds)
      : neighbors_(neighbors),
        seeds_(seeds),
        is_seed_(neighbors.indptr.size() - 1),
        visited_(is_seed_.size()),
        queue_(is_seed_.size()) {
    for (const NodeId seed : seeds) is_seed_[seed] = true;
  }

  std::vector<NodeId> Make(uint64_t seed, uint64_t sequence) {
    std::vector<NodeId> roots(seeds_.begin(), seeds_.end());
    ShuffleSeeds(roots, MixSeed(seed, kRootStream), sequence);
    std::fill(visited_.begin(), visited_.end(), false);
    std::vector<NodeId> found;
    found.reserve(seeds_.size());
    for (const NodeId root : roots) {
      if (found.size() == seeds_.size()) break;
      if (!visited_[root]) Search(root, found);
    }
    Rng rng(MixSeed(seed, kShiftStream, sequence));
    std::rotate(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(rng.Below(found.size())),
                found.end());
    return found;
  }

 private:
  // Appends the seeds that can be reached from `root` and have not been, nearest first.
  void Search(NodeId root, std::vector<NodeId>& found) {
    size_t head = 0, tail = 0;
    queue_[tail++] = root;
    visited_[root] = true;
    while (head < tail && found.size() < seeds_.size()) {
      const NodeId node = queue_[head++];
      if (is_seed_[node]) found.push_back(node);
      for (uint64_t edge = neighbors_.indptr[node]; edge < neighbors_.indptr[node + 1]; ++edge) {
        const NodeId neighbor = neighbors_.indices[edge];
        if (visited_[neighbor]) continue;
        visited_[neighbor] = true;
        queue_[tail++] = neighbor;
      }
    }
  }

  const Neighbors neighbors_;
  const std::span<const NodeId> seeds_;
  std::vector<bool> is_seed_;
  std::vector<bool> visited_;
  std::vector<NodeId> queue_;
};

// One seed of each sequence in turn, skipping those already taken. Each sequence holds all seeds, so while
// one is left, every sequence still has it ahead.
std::vector<NodeId> RoundRobin(const std::vector<std::vector<NodeId>>& sequences, uint64_t node_count) {
  const size_t seed_count = sequences.front().size();
  std::vector<bool> taken(node_count);
  std::vector<size_t> next(sequences.size());
  std::vector<NodeId> order;
  order.reserve(seed_count);
  for (size_t turn = 0; order.size() < seed_count; turn = (turn + 1) % sequences.size()) {
    const std::vector<NodeId>& sequence = sequences[turn];
    while (taken[sequence[next[turn]]]) ++next[turn];
    order.push_back(sequence[next[turn]]);
    taken[order.back()] = true;
  }
  return order;
}

// How far the labels of batches are from those of all seeds.
class LabelMeter {
 public:
  LabelMeter(std::span<const NodeId> seeds, std::span<const int64_t> labels, const ProximityOptions& options)
      : labels_(labels), batch_size_(options.batch_size) {
    for (const NodeId seed : seeds) classes_.push_back(labels[seed]);
    std::sort(classes_.begin(), classes_.end());
    classes_.erase(std::unique(classes_.begin(), classes_.end()), classes_.end());
    shares_.resize(classes_.size());
    counts_.resize(classes_.size());
    for (const NodeId seed : seeds) shares_[ClassOf(seed)] += 1 / static_cast<double>(seeds.size());
    std::vector<NodeId> shuffled(seeds.begin(), seeds.end());
    for (uint64_t i = 0; i < kReferenceShuffles; ++i) {
      ShuffleSeeds(shuffled, MixSeed(options.seed, kReferenceStream), i);
      reference_ += MeanDistance(shuffled) / kReferenceShuffles;
    }
  }

  double ShufflingError(std::span<const NodeId> order) {
    return std::max(0.0, MeanDistance(order) - reference_);
  }

 private:
  size_t ClassOf(NodeId seed) const {
    return static_cast<size_t>(std::lower_bound(classes_.begin(), classes_.end(), labels_[seed]) -
                               classes_.begin());
  }

  double MeanDistance(std::span<const NodeId> order) {
    double sum = 0;
    for (size_t first = 0; first < order.size(); first += batch_size_) {
      sum += Distance(order.subspan(first, std::min<size_t>(batch_size_, order.size() - first)));
    }
    return sum / static_cast<double>(CeilDiv(order.size(), batch_size_));
  }

  // Total variation: half the sum of |share in the batch - share in all|; a class that the batch lacks adds
  // its share, so that only classes that it has need a visit.
  double Distance(std::span<const NodeId> batch) {
    touched_.clear();
    for (const NodeId seed : batch) {
      const size_t c = ClassOf(seed);
      if (counts_[c]++ == 0) touched_.push_back(c);
    }
    double twice = 1;
    for (const size_t c : touched_) {
      const double share = static_cast<double>(counts_[c]) / static_cast<double>(batch.size());
      twice += std::abs(share - shares_[c]) - shares_[c];
      counts_[c] = 0;
    }
    return twice / 2;
  }

  const std::span<const int64_t> labels_;
  const size_t batch_size_;
  std::vector<int64_t> classes_;  // labels that occur, ascending
  std::vector<double> shares_;    // by class, of all seeds
  std::vector<size_t> counts_;    // by class; zero between calls
  std::vector<size_t> touched_;
  double reference_ = 0;
};

Status CheckArguments(const Topology& topology, std::span<const NodeId> seeds,
                      std::span<const int64_t> labels, const ProximityOptions& options) {
  if (options.batch_size == 0) return Status(Code::kInvalidArgument, "a batch needs at least one seed");
  if (!labels.empty() && labels.size() < topology.node_count()) {
    return MakeStatus(Code::kInvalidArgument, "{} labels for {} nodes", labels.size(), topology.node_count());
  }
  std::vector<bool> seen(topology.node_count());
  for (const NodeId seed : seeds) {
    if (seed >= seen.size() || seen[seed]) {
      return MakeStatus(Code::kInvalidArgument, "seed {} {}", seed,
                        seed >= seen.size() ? "is no node of the graph" : "is given twice");
    }
    seen[seed] = true;
  }
  return Status::Ok();
}

template <typename T>
void Shuffle(std::span<T> items, Rng& rng) {
  for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[rng.Below(i)]);
}

}  // namespace

void ShuffleSeeds(std::span<NodeId> seeds, uint64_t seed, uint64_t pass, uint64_t places) {
  Rng rng(MixSeed(seed, pass));
  if (places == 0) return Shuffle(seeds, rng);
  std::vector<NodeId> sorted(seeds.begin(), seeds.end());
  if (!std::ranges::is_sorted(sorted)) std::ranges::sort(sorted);
  if (sorted.empty()) return;
  std::vector<std::span<NodeId>> times;
  times.reserve(std::min<uint64_t>(sorted.size(), sorted.back() / places - sorted.front() / places + 1));
  for (std::span<NodeId> left = sorted; !left.empty();) {
    const uint64_t end = (left.front() / places + 1) * places;
    const auto next = std::ranges::lower_bound(left, end, {}, [](NodeId node) { return uint64_t{node}; });
    const auto count = static_cast<size_t>(next - left.begin());
    times.push_back(left.first(count));
    left = left.subspan(count);
  }
  Shuffle(std::span(times), rng);
  auto to = seeds.begin();
  for (const std::span<NodeId> time : times) {
    Shuffle(time, rng);
    to = std::ranges::copy(time, to).out;
  }
}

Result<OrderedSeeds> OrderByProximity(const Topology& topology, std::span<const NodeId> seeds,
                                      std::span<const int64_t> labels, const ProximityOptions& options) {
  QUARRY_RETURN_IF_ERROR(CheckArguments(topology, seeds, labels, options));
  QUARRY_TRY(const Neighbors neighbors, LoadedSide(topology));
  OrderedSeeds ordered;
  if (seeds.empty()) return ordered;
  const uint64_t batches = CeilDiv(seeds.size(), options.batch_size);
  ordered.error_bound =
      std::sqrt(double{1} * options.batch_size * options.workers) / static_cast<double>(seeds.size());
  const uint64_t sequences_max = std::max(1U, options.sequences_max);
  uint64_t count_min = 1;  // searched for by labels
  uint64_t count_max = sequences_max;
  if (options.sequences != 0) count_min = count_max = options.sequences;
  if (options.sequences == 0 && labels.empty()) {
    count_min = count_max = std::clamp<uint64_t>(batches / 5, 1, sequences_max);
  }

  SequenceMaker maker(neighbors, seeds);
  std::optional<LabelMeter> meter;
  if (!labels.empty()) meter.emplace(seeds, labels, options);
  std::vector<std::vector<NodeId>> sequences;
  while (sequences.size() < count_max) {
    sequences.push_back(maker.Make(options.seed, sequences.size()));
    if (sequences.size() < count_min) continue;
    ordered.seeds = RoundRobin(sequences, topology.node_count());
    if (meter) ordered.shuffling_error = meter->ShufflingError(ordered.seeds);
    if (ordered.shuffling_error <= ordered.error_bound) break;
  }
  ordered.sequences = static_cast<uint32_t>(sequences.size());
  return ordered;
}

}  // namespace quarry
