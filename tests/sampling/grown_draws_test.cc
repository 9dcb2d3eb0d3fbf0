// What is drawn from lists that are put together of a file and runs has the distribution that a model's lists have, by every
// way to draw that there is: of random graphs to which edges of several relations, with weights and without, came and from
// which they went, with types of nodes and without.
//
// A comparison is the draws of one node's list (with types, of its edges of one relation); a false alarm in any of them has a
// probability of 1e-6 at most over all that a test compares (ChanceOf). That biased draws are found is tested, too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>

#include "quarry/base/units.h"
#include "quarry/cache/neighbor_cache.h"
#include "quarry/sampling/sampler.h"
#include "quarry/sampling/typed_lists.h"
#include "sampling/chi_square.h"
#include "sampling/counted_draws.h"
#include "storage/small_store.h"
#include "support/growing_graph.h"
#include "support/repetitions.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing_util::GrowingGraph;

constexpr int kMemoryRounds = 2000, kDiskMemoryRounds = 700;
constexpr size_t kNodesMax = 16;      // whose draws are looked at
constexpr size_t kListMax = 7;        // longer lists have too many outcomes to count out
constexpr double kFalseAlarm = 1e-6;  // of all comparisons of a test together

// One neighbor in a list: relation 0 where edges are drawn from alike.
struct Entry {
  uint32_t relation = 0;
  NodeId neighbor = 0;
  float weight = 1;
  bool operator==(const Entry&) const = default;
};
using List = std::vector<Entry>;
using Drawn = std::vector<NodeId>;  // ascending

// Whose list, and of which relation: kAllRelations where there are no types.
using ListOf = std::pair<NodeId, uint32_t>;
constexpr uint32_t kAllRelations = ~0U;

std::map<ListOf, List> ListsIn(const GrowingGraph& graph, Direction direction) {
  std::map<ListOf, List> lists;
  const auto add = [&](uint64_t node, uint64_t neighbor, uint32_t relation, float weight) {
    const uint32_t of = graph.shape().typed ? relation : kAllRelations;
    lists[{static_cast<NodeId>(node), of}].push_back(
        {.relation = relation, .neighbor = static_cast<NodeId>(neighbor), .weight = weight});
  };
  for (const auto& [ends, weights] : graph.edges()) {
    for (const float weight : weights) {
      if (direction != Direction::kOut) add(ends.to, ends.from, ends.relation, weight);
      if (direction != Direction::kIn) add(ends.from, ends.to, ends.relation, weight);
    }
  }
  return lists;
}

std::map<Drawn, double> DistributionOf(const List& list, const RoadSpec& spec, size_t fanout) {
  std::vector<float> weights;
  for (const Entry& entry : list) weights.push_back(spec.weighted ? entry.weight : 1);
  const bool any = std::ranges::any_of(weights, [](float weight) { return weight > 0; });
  std::map<Drawn, double> distribution;
  for (const auto& [places, probability] :
       spec.replace&& any ? Independent(weights, fanout) : Successive(weights, fanout)) {
    Drawn drawn;
    for (const size_t place : places) drawn.push_back(list[place].neighbor);
    std::ranges::sort(drawn);
    distribution[drawn] += probability;
  }
  return distribution;
}

// The comparisons of a test: how unlikely the least likely one is.
class Comparisons {
 public:
  void Add(double chance, const std::string& what) {
    ++count_;
    if (chance >= least_) return;
    least_ = chance;
    worst_ = what;
  }
  // At most the probability that draws as they should be have such a one among them.
  double chance() const { return least_ * static_cast<double>(count_); }
  uint64_t count() const { return count_; }
  const std::string& worst() const { return worst_; }

 private:
  uint64_t count_ = 0;
  double least_ = 1;
  std::string worst_;
};

// A way to draw.
struct Way {
  RoadSpec spec;
  const char* name;
};

std::vector<Way> WaysFor(const GrowingGraph::Shape& shape, Rng& rng) {
  const auto fanout = [&] { return static_cast<uint32_t>(1 + rng.Below(4)); };
  const auto few = [&] { return static_cast<uint32_t>(1 + rng.Below(3)); };
  if (shape.typed) {
    std::vector<Way> ways;
    for (const bool replace : {false, true}) {
      RoadSpec spec{.fanouts = {0}, .replace = replace};
      for (uint32_t relation = 0; relation < GrowingGraph::kRelationCount; ++relation) {
        spec.relation_fanouts.push_back(few());
        spec.fanouts[0] += spec.relation_fanouts.back();
      }
      ways.push_back({spec, replace ? "typed, with replacement" : "typed"});
    }
    return ways;
  }
  std::vector<Way> ways = {{{.fanouts = {fanout()}}, "uniform"},
                           {{.fanouts = {few()}, .replace = true}, "uniform, with replacement"}};
  ways.push_back({{.fanouts = {fanout()}, .sampler = SamplerKind::kLabor}, "labor"});
  if (!shape.weighted) return ways;
  ways.push_back({{.fanouts = {fanout()}, .weighted = true}, "weighted"});
  ways.push_back({{.fanouts = {few()}, .replace = true, .weighted = true}, "weighted, with replacement"});
  ways.push_back(
      {{.fanouts = {fanout()}, .sampler = SamplerKind::kLabor, .weighted = true}, "labor, weighted"});
  return ways;
}

// Draws from the lists of some nodes by a source, and compares what came with the lists that should be there.
void Compare(const NeighborSource& source, const RoadSpec& spec, const std::map<ListOf, List>& lists,
             const std::vector<NodeId>& nodes, int rounds, uint64_t seed, const std::string& what,
             Comparisons& comparisons) {
  ASSERT_OK_AND_ASSIGN(const auto sampler, NeighborSampler::Make(source, spec));
  std::map<ListOf, std::map<Drawn, int>> counts;
  Block block;
  for (int round = 0; round < rounds; ++round) {
    ASSERT_OK(sampler->Sample(nodes, MixSeed(seed, static_cast<uint64_t>(round)), block));
    std::map<ListOf, Drawn> drawn;
    for (uint32_t v = 0; v < nodes.size(); ++v) {
      for (uint32_t e = block.indptr[v]; e < block.indptr[v + 1]; ++e) {
        const uint32_t relation = spec.relation_fanouts.empty() ? kAllRelations : block.relations[e];
        drawn[{block.nodes[v], relation}].push_back(block.nodes[block.indices[e]]);
      }
    }
    for (auto& [of, some] : drawn) {
      std::ranges::sort(some);
      ++counts[of][some];
    }
  }
  for (const NodeId node : nodes) {
    for (auto of = lists.lower_bound({node, 0}); of != lists.end() && of->first.first == node; ++of) {
      const auto& [key, list] = *of;
      std::map<Drawn, int> found = std::move(counts[key]);
      counts.erase(key);
      std::set<NodeId> distinct;
      for (const Entry& entry : list) distinct.insert(entry.neighbor);
      // LABOR gives a neighbor one number, however often it stands in the list.
      if (spec.sampler == SamplerKind::kLabor && distinct.size() < list.size()) continue;
      if (list.size() > kListMax) continue;
      int some = 0;
      for (const auto& [outcome, count] : found) some += count;
      if (some < rounds) found[{}] += rounds - some;
      const size_t fanout = key.second == kAllRelations ? spec.fanouts[0] : spec.relation_fanouts[key.second];
      comparisons.Add(ChanceOf(DistributionOf(list, spec, fanout), found, rounds),
                      fmt::format("{}, the list of node {}, relation {}", what, node,
                                  key.second == kAllRelations ? "any" : std::to_string(key.second)));
    }
  }
  for (const auto& [of, outcomes] : counts) {
    comparisons.Add(0, fmt::format("{}, node {} has no such edges", what, of.first));
  }
}

class GrownDraws : public testing::Test {
 protected:
  // A graph of a random shape, with runs over its file, and the model of it.
  void Make(uint64_t seed) {
    rng_ = Rng(seed);
    // With types draws are uniform, and lists are those of in-neighbors.
    const bool typed = seed % 3 == 0;
    graph_.emplace(seed, GrowingGraph::Shape{.typed = typed,
                                             .weighted = !typed && rng_.Below(3) > 0,
                                             .deduplicated = rng_.Below(2) == 0,
                                             .csr = !typed && rng_.Below(2) == 0,
                                             .papers = 30});
    store_.reset();
    std::filesystem::remove_all(path());
    ASSERT_OK(graph_->Import(*backend_, path()));
    ASSERT_OK_AND_ASSIGN(store_, Store::Open(*backend_, path()));
    const uint64_t folded = rng_.Below(3), runs = 2 + rng_.Below(5);
    for (uint64_t commit = 0; commit < folded + runs; ++commit) {
      if (commit == folded && folded > 0) {
        ASSERT_OK(testing_util::CompactAll(*store_, budget_));
      }
      if (commit == folded) folded_.emplace(*graph_);
      last_.emplace(*graph_);
      const GrowingGraph::Commit next = graph_->Next();
      ASSERT_OK(graph_->CommitTo(*store_, budget_, next));
      graph_->Take(next);
    }
    EXPECT_GT(store_->manifest()->FindTopology("graph")->runs.size(), 1u);
  }
  std::string path() const { return folder_.path() + "/db"; }
  std::vector<Direction> Directions() const {
    if (graph_->shape().csr) return {Direction::kIn, Direction::kOut, Direction::kBoth};
    return {Direction::kIn};
  }

  // Some of those whose lists were others before.
  std::vector<NodeId> Changed(const std::map<ListOf, List>& lists, const GrowingGraph& before,
                              Direction direction) {
    const std::map<ListOf, List> old = ListsIn(before, direction);
    std::set<NodeId> changed;
    const auto compare = [&](const auto& from, const auto& with) {
      for (const auto& [of, list] : from) {
        const auto found = with.find(of);
        if (list.size() <= kListMax && (found == with.end() || found->second != list))
          changed.insert(of.first);
      }
    };
    compare(lists, old);
    compare(old, lists);
    std::vector<NodeId> nodes(changed.begin(), changed.end());
    for (size_t i = 0; i + 1 < nodes.size(); ++i)
      std::swap(nodes[i], nodes[i + rng_.Below(nodes.size() - i)]);
    nodes.resize(std::min(nodes.size(), kNodesMax));
    return nodes;
  }

  const testing_util::ScratchFolder folder_{testing_util::Medium::kMemory};
  const std::unique_ptr<IoBackend> backend_ = MakeDefaultBackend();
  MemoryBudget budget_{kGiB};
  Rng rng_{0};
  std::unique_ptr<Store> store_;
  std::optional<GrowingGraph> graph_;
  std::optional<GrowingGraph> folded_, last_;  // before the first run, and before the last one
};

uint64_t BaseSeed() {
  const char* const given = std::getenv("QUARRY_GROWN_SEED");
  return given == nullptr ? 30 : std::strtoull(given, nullptr, 10);
}

TEST_F(GrownDraws, HaveTheDistributionOfTheModelsLists) {
  const uint64_t base = BaseSeed();
  Comparisons comparisons;
  for (uint64_t seed = base; seed < base + testing_util::Repetitions(12); ++seed) {
    SCOPED_TRACE(testing::Message() << "QUARRY_GROWN_SEED=" << base << ", graph " << seed);
    ASSERT_NO_FATAL_FAILURE(Make(seed));
    for (const Direction direction : Directions()) {
      const std::map<ListOf, List> lists = ListsIn(*graph_, direction);
      for (Way& way : WaysFor(graph_->shape(), rng_)) {
        way.spec.direction = direction;
        // Lists in memory, on disk, or on disk behind a cache of some of them.
        const uint64_t place = rng_.Below(3);
        ASSERT_OK_AND_ASSIGN(const auto topology, store_->OpenTopology("graph"));
        ASSERT_OK(NeighborSampler::LoadWeights(*backend_, way.spec, *topology));
        NeighborSource source{.topology = topology.get(), .direction = direction, .backend = backend_.get()};
        std::unique_ptr<NeighborCache> caches[2];
        for (const Adjacency side : SidesOf(direction)) {
          if (place == 0) {
            ASSERT_OK(topology->LoadIndices(*backend_, side));
          }
          if (place != 2) continue;
          ASSERT_OK_AND_ASSIGN(caches[static_cast<int>(side)],
                               NeighborCache::Build(*backend_, *topology, side, 4 * kKiB));
          source.caches[static_cast<int>(side)] = caches[static_cast<int>(side)].get();
        }
        std::unique_ptr<TypedLists> types;
        if (graph_->shape().typed) {
          ASSERT_OK_AND_ASSIGN(types, TypedLists::Load(*store_, budget_, *store_->manifest(), *topology));
          source.types = types.get();
        }
        const std::string what =
            fmt::format("graph {}, {}, {}, place {}", seed, way.name, NameOf(direction), place);
        ASSERT_NO_FATAL_FAILURE(Compare(source, way.spec, lists, Changed(lists, *folded_, direction),
                                        place == 0 ? kMemoryRounds : kDiskMemoryRounds, MixSeed(seed, 9),
                                        what, comparisons));
      }
    }
  }
  fmt::print("{} comparisons, the least likely is {}: at most {:.2g} for all together\n", comparisons.count(),
             comparisons.worst(), comparisons.chance());
  EXPECT_GT(comparisons.chance(), kFalseAlarm) << comparisons.worst();
}

// The lists as a sampler with a fault would have them.
std::map<ListOf, List> Faulty(const GrowingGraph& now, const GrowingGraph& before, bool twice) {
  std::map<ListOf, List> lists = ListsIn(now, Direction::kIn);
  const std::map<ListOf, List> old = ListsIn(before, Direction::kIn);
  for (auto& [of, list] : lists) {
    List left = old.contains(of) ? old.at(of) : List();
    List faulty;
    for (const Entry& entry : list) {
      const auto same = std::ranges::find_if(left, [&](const Entry& other) {
        return other.relation == entry.relation && other.neighbor == entry.neighbor;
      });
      if (same != left.end()) {
        left.erase(same);
        faulty.push_back(entry);
      } else if (twice) {
        faulty.insert(faulty.end(), 2, entry);
      }
    }
    list = faulty;
  }
  return lists;
}

// Draws from lists without what the last run added, or with each of it twice, are found in each graph, with as many rounds.
TEST_F(GrownDraws, ThatLeaveOutTheLastRunOrPreferItAreFound) {
  const uint64_t base = BaseSeed();
  for (uint64_t seed = base; seed < base + testing_util::Repetitions(6); ++seed) {
    if (seed % 3 == 0) continue;  // lists in memory have no types
    SCOPED_TRACE(testing::Message() << "QUARRY_GROWN_SEED=" << base << ", graph " << seed);
    ASSERT_NO_FATAL_FAILURE(Make(seed));
    const std::map<ListOf, List> lists = ListsIn(*graph_, Direction::kIn);
    for (const bool twice : {false, true}) {
      std::vector<uint64_t> indptr = {0};
      std::vector<NodeId> indices;
      std::vector<float> weights;
      const std::map<ListOf, List> faulty = Faulty(*graph_, *last_, twice);
      for (uint64_t node = 0; node < graph_->node_count(); ++node) {
        const auto list = faulty.find({static_cast<NodeId>(node), kAllRelations});
        for (const Entry& entry : list == faulty.end() ? List() : list->second) {
          indices.push_back(entry.neighbor);
          weights.push_back(entry.weight);
        }
        indptr.push_back(indices.size());
      }
      ASSERT_OK_AND_ASSIGN(const auto topology, Topology::FromMemory(indptr, indices));
      if (graph_->shape().weighted) {
        ASSERT_OK(topology->SetWeights(Adjacency::kCsc, weights));
      }
      for (const Way& way : WaysFor(graph_->shape(), rng_)) {
        if (way.spec.sampler == SamplerKind::kLabor) continue;  // of equal edges
        Comparisons comparisons;
        ASSERT_NO_FATAL_FAILURE(Compare({.topology = topology.get()}, way.spec, lists,
                                        Changed(lists, *last_, Direction::kIn), kMemoryRounds,
                                        MixSeed(seed, 9), way.name, comparisons));
        EXPECT_LT(comparisons.chance(), kFalseAlarm) << way.name << (twice ? ", twice" : ", left out");
      }
    }
  }
}

}  // namespace
}  // namespace quarry
