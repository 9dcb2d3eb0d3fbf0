// A graph that drifts: nodes are in groups and move between them from round to round, and the edges of a round are mostly
// within its groups. And training that follows it: the edges of each round are ranked before they are added and trained on.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "pipeline/tiny_database.h"
#include "quarry/base/process.h"
#include "quarry/base/random.h"
#include "quarry/import/graph_change.h"
#include "quarry/storage/edges.h"
#include "quarry/storage/topology_run.h"
#include "quarry/trainer/newest_links.h"

namespace quarry::testing_util {

struct DriftOptions {
  uint64_t nodes = 400;
  uint64_t groups = 20;
  uint64_t first_edges = 2000;  // of the graph that is imported
  uint64_t edges = 600;         // of each round behind it
  double moves = 0.1;           // share of the nodes that go to another group before a round
  double within = 0.9;          // share of the edges within a group
  uint64_t seed = 0;
};

class DriftingGraph {
 public:
  explicit DriftingGraph(const DriftOptions& options) : options_(options), rng_(options.seed) {
    for (uint64_t node = 0; node < options.nodes; ++node) group_.push_back(rng_.Below(options.groups));
  }

  // The edges of the next round. No two nodes have more than one at a time, in either direction.
  std::vector<Edge> Next() {
    const uint64_t count = first_ ? options_.first_edges : options_.edges;
    for (uint64_t& group : group_) {
      if (!first_ && rng_.Unit() < options_.moves) group = rng_.Below(options_.groups);
    }
    first_ = false;
    members_.assign(options_.groups, {});
    for (uint64_t node = 0; node < options_.nodes; ++node) members_[group_[node]].push_back(node);
    std::vector<Edge> edges;
    while (edges.size() < count) {
      const uint64_t source = rng_.Below(options_.nodes);
      const std::vector<uint64_t>& own = members_[group_[source]];
      const uint64_t destination =
          rng_.Unit() < options_.within ? own[rng_.Below(own.size())] : rng_.Below(options_.nodes);
      if (source != destination && pairs_.insert(PairOf(source, destination)).second) {
        edges.push_back({source, destination});
      }
    }
    return edges;
  }

  // These are gone: they may come again.
  void Forget(std::span<const Edge> edges) {
    for (const Edge& edge : edges) pairs_.erase(PairOf(edge.source, edge.destination));
  }

  // The MRR of whoever knows the groups of the last round, and nothing else but which edges there are: rivals in a group
  // are as likely as each other, the node itself among them.
  double MrrOfGroups(std::span<const Triple> edges) const {
    double sum = 0;
    for (const Triple& edge : edges) {
      if (group_[edge.head] != group_[edge.tail]) continue;
      sum += MeanOfRanks(edge.head) + MeanOfRanks(edge.tail);
    }
    return edges.empty() ? 0 : sum / 2 / static_cast<double>(edges.size());
  }

 private:
  uint64_t PairOf(uint64_t a, uint64_t b) const { return std::min(a, b) * options_.nodes + std::max(a, b); }
  // Of 1 / rank, over the members of the node's group that it had no edge with, and the one that is asked for.
  double MeanOfRanks(NodeId node) const {
    const std::vector<uint64_t>& own = members_[group_[node]];
    const auto is_rival = [&](uint64_t other) { return !pairs_.contains(PairOf(node, other)); };
    const auto ranks = static_cast<uint64_t>(std::ranges::count_if(own, is_rival)) + 1;
    double sum = 0;
    for (uint64_t rank = 1; rank <= ranks; ++rank) sum += 1 / static_cast<double>(rank);
    return sum / static_cast<double>(ranks);
  }

  const DriftOptions options_;
  Rng rng_;
  bool first_ = true;
  std::vector<uint64_t> group_;                 // by node
  std::vector<std::vector<uint64_t>> members_;  // of groups
  std::unordered_set<uint64_t> pairs_;          // that have an edge
};

// What is ranked are the edges that come next, when `trained` are there.
struct DriftRound {
  uint64_t trained = 0;
  double growing = 0, stopped = 0, groups = 0;  // filtered MRRs
  std::optional<double> anew;                   // of a training over all that is there
  double train_seconds = 0;                     // of the model that follows
  double commit_seconds = 0;                    // of the edges that come next; 0 behind the last round
};

struct DriftCourse {
  DriftOptions graph;
  LinkTrainOptions train;     // `epochs` are those of a round
  uint32_t rounds = 1;        // of training; as many are ranked
  uint32_t window = 0;        // rounds whose edges stay, the newest ones; 0 = all
  uint64_t ranked = 1 << 30;  // edges of a round at most
  uint32_t anew_every = 0;    // rounds from one training over everything to the next; 0 = none
  uint32_t anew_epochs = 10;
};

// Follows the graph through a database in `folder`, where it is imported and then grows by commits. One thread.
class DriftFollower {
 public:
  using Told = std::function<void(const DriftRound&)>;

  DriftFollower(const DriftCourse& course, MemoryBudget& budget) : course_(course), budget_(budget) {}

  Status Follow(const std::string& folder, const Told& told) {
    present_ = {graph_.Next()};
    Dataset dataset;
    dataset.source = "memory";
    dataset.node_count = course_.graph.nodes;
    dataset.edges.push_back(
        {.name = "", .path = "memory", .reader = std::make_unique<VectorEdgeReader>(present_.front())});
    QUARRY_RETURN_IF_ERROR(ImportDatabase(*backend_, folder + "/drifting.db", std::move(dataset), {}));
    QUARRY_TRY(store_, Store::Open(*backend_, folder + "/drifting.db"));
    coming_ = graph_.Next();
    QUARRY_RETURN_IF_ERROR(TrainStopped());
    LinkTrainOptions train = course_.train;
    train.valid_every = train.epochs;
    train.epochs *= course_.rounds;
    DriftRound round;
    uint32_t number = 0;
    const LinkTrainCallbacks callbacks = {.epoch =
                                              [&](const LinkEpochReport& report) {
                                                round.train_seconds += report.seconds;
                                                if (!report.valid) return Status::Ok();
                                                round.trained = report.edges;
                                                round.growing = report.valid->filtered.mrr;
                                                QUARRY_RETURN_IF_ERROR(RankOthers(number, round));
                                                if (++number < course_.rounds) {
                                                  QUARRY_RETURN_IF_ERROR(AddComing(round));
                                                }
                                                told(std::exchange(round, {}));
                                                return Status::Ok();
                                              },
                                          .progress = {}};
    const NewestLinks source = {
        .is_newer = [this]() -> Result<bool> { return StructureTimestamp(*store_->manifest()) > seen_; },
        .load = [this] { return Load(); }};
    return TrainNewestLinks(source, train, budget_, callbacks).status();
  }

 private:
  // All edges of the database to train on, and those that come next to rank.
  Result<LinkData> Load() {
    LinkData data;
    seen_ = StructureTimestamp(*store_->manifest());
    QUARRY_TRY(const auto edges, EdgeList::Open(*store_, budget_, "graph"));
    data.node_count = course_.graph.nodes;
    data.train.resize(edges->size());
    edges->Read(0, data.train);
    for (const Edge& edge : coming_) {
      if (data.valid.size() == course_.ranked) break;
      data.valid.push_back({static_cast<NodeId>(edge.source), 0, static_cast<NodeId>(edge.destination)});
    }
    return data;
  }

  // The model that ends with the first round: its vectors are read when its last epoch is over.
  Status TrainStopped() {
    QUARRY_TRY(const LinkData data, Load());
    LinkTrainOptions train = course_.train;
    train.valid_every = 0;
    EmbeddingTable* table = nullptr;
    const LinkTrainCallbacks callbacks = {.epoch =
                                              [&](const LinkEpochReport&) {
                                                RowBlock rows;
                                                for (RowId id = 0; id < data.node_count; ++id) {
                                                  rows.ids.push_back(id);
                                                }
                                                rows.Resize(table->spec());
                                                QUARRY_RETURN_IF_ERROR(table->Read(rows));
                                                stopped_ = std::move(rows.values);
                                                return Status::Ok();
                                              },
                                          .progress = {}};
    const auto make = [&](const EmbeddingSpec& spec) -> Result<std::unique_ptr<EmbeddingTable>> {
      std::unique_ptr<EmbeddingTable> made = MakeMemoryEmbeddingTable(spec);
      if (made == nullptr) return Status(Code::kOutOfBudget, "the system has no memory for the vectors");
      table = made.get();
      return made;
    };
    return TrainLinks(data, train, budget_, callbacks, make).status();
  }

  Status RankOthers(uint32_t number, DriftRound& round) {
    QUARRY_TRY(const LinkData data, Load());
    std::vector<Triple> known = data.train;
    known.insert(known.end(), data.valid.begin(), data.valid.end());
    round.stopped = EvaluateLinks(course_.train.spec, stopped_, {}, data.valid, KnownEdges(std::move(known)),
                                  course_.train.compute_threads)
                        .filtered.mrr;
    round.groups = graph_.MrrOfGroups(data.valid);
    if (course_.anew_every == 0 || number % course_.anew_every != 0) return Status::Ok();
    LinkTrainOptions train = course_.train;
    train.epochs = train.valid_every = course_.anew_epochs;
    QUARRY_TRY(const LinkTrainSummary summary, TrainLinks(data, train, budget_));
    round.anew = summary.valid->filtered.mrr;
    return Status::Ok();
  }

  // They are examples from the next epoch on, and those that are too old no longer.
  Status AddComing(DriftRound& round) {
    const double start = MonotonicSeconds();
    QUARRY_TRY(const auto change,
               GraphChange::Create(*store_, budget_, {.memory_bytes = kGraphChangeBytesMin}));
    if (present_.size() == course_.window) {
      QUARRY_RETURN_IF_ERROR(change->Remove(present_.front()));
      graph_.Forget(present_.front());
      present_.pop_front();
    }
    QUARRY_RETURN_IF_ERROR(change->Add(coming_));
    present_.push_back(std::move(coming_));
    QUARRY_RETURN_IF_ERROR(change->Commit().status());
    round.commit_seconds = MonotonicSeconds() - start;
    coming_ = graph_.Next();
    return Status::Ok();
  }

  const DriftCourse course_;
  MemoryBudget& budget_;
  const std::unique_ptr<IoBackend> backend_ = MakeDefaultBackend();
  DriftingGraph graph_{course_.graph};
  std::unique_ptr<Store> store_;
  uint64_t seen_ = 0;                      // the commit of what was loaded last
  std::deque<std::vector<Edge>> present_;  // by round
  std::vector<Edge> coming_;
  std::vector<float> stopped_;  // vectors of all nodes
};

}  // namespace quarry::testing_util
