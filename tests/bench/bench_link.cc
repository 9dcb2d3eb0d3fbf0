// Link prediction in memory, one batch after another: edges a second of each epoch and where its time went,
// then the ranking metrics of the test edges.
//
//   bench_link FOLDER [--decoder distmult] [--dim 50] [--loss softmax] [--margin 0.1]
//              [--negatives 500] [--batch 1000] [--chunk 500] [--degree 0] [--rate 0.05] [--init 0.1]
//              [--epochs 10] [--seed 0] [--threads 2]
//
// FOLDER holds triples (train.txt, valid.txt, test.txt). --chunk: edges that share negatives; --degree: the
// share of negatives drawn by degree; --init: standard deviation of the first vectors; --one-way: one vector
// a relation.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "link_decoder.h"
#include "quarry/base/process.h"
#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/embedding/optimizer.h"
#include "quarry/import/dataset.h"
#include "quarry/sampling/negative_sampler.h"
#include "quarry/trainer/link.h"
#include "task_pool.h"

namespace quarry::bench {
namespace {

struct Options {
  std::string folder;
  LinkSpec spec;
  NegativeOptions negatives;
  OptimizerOptions optimizer{.learning_rate = 0.05F};
  uint32_t negative_count = 500, batch_edges = 1000, chunk_edges = 500, epochs = 10;
  float init = 0.1F;
  uint64_t seed = 0;
  unsigned threads = 2;
};

template <typename T>
Status Take(Result<T> result, T& to) {
  QUARRY_TRY(to, std::move(result));
  return Status::Ok();
}

Status ParseOption(const std::string& word, const std::string& value, Options& options) {
  const auto number = [&](auto& to) {
    to = static_cast<std::remove_reference_t<decltype(to)>>(std::strtod(value.c_str(), nullptr));
    return Status::Ok();
  };
  if (word == "--dim") return number(options.spec.dim);
  if (word == "--margin") return number(options.spec.margin);
  if (word == "--negatives") return number(options.negative_count);
  if (word == "--batch") return number(options.batch_edges);
  if (word == "--chunk") return number(options.chunk_edges);
  if (word == "--degree") return number(options.negatives.degree_share);
  if (word == "--rate") return number(options.optimizer.learning_rate);
  if (word == "--init") return number(options.init);
  if (word == "--epochs") return number(options.epochs);
  if (word == "--seed") return number(options.seed);
  if (word == "--threads") return number(options.threads);
  if (word == "--decoder") return Take(ParseDecoder(value), options.spec.decoder);
  if (word == "--loss") return Take(ParseLinkLoss(value), options.spec.loss);
  return MakeStatus(Code::kUsage, "'{}': not an option of bench_link", word);
}

Result<Options> ParseOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (!word.starts_with("--")) {
      options.folder = word;
    } else if (++i < argc) {
      QUARRY_RETURN_IF_ERROR(ParseOption(word, argv[i], options));
    } else {
      return MakeStatus(Code::kUsage, "{} needs a value", word);
    }
  }
  if (options.folder.empty()) return Status(Code::kUsage, "which triples? bench_link FOLDER");
  options.negatives.seed = options.seed;
  QUARRY_RETURN_IF_ERROR(CheckLinkSpec(options.spec));
  return options;
}

struct Graph {
  std::vector<Triple> train, valid, test;
  uint64_t node_count = 0, relation_count = 0;
};

Result<std::vector<Triple>> ReadTriples(TripleReader& reader) {
  std::vector<Triple> triples(*reader.count());
  size_t filled = 0;
  while (filled < triples.size()) {
    QUARRY_TRY(const size_t count, reader.Read(std::span(triples).subspan(filled)));
    if (count == 0) break;
    filled += count;
  }
  triples.resize(filled);
  return triples;
}

Result<Graph> ReadGraph(const std::string& folder) {
  QUARRY_TRY(const Dataset dataset, OpenDataset(folder, {}));
  if (!dataset.train_triples || !dataset.valid_triples || !dataset.test_triples) {
    return MakeStatus(Code::kUsage, "{} holds no triples with train, valid and test parts", folder);
  }
  Graph graph;
  QUARRY_TRY(graph.train, ReadTriples(*dataset.train_triples));
  QUARRY_TRY(graph.valid, ReadTriples(*dataset.valid_triples));
  QUARRY_TRY(graph.test, ReadTriples(*dataset.test_triples));
  graph.node_count = dataset.entity_names.size();
  graph.relation_count = dataset.relation_names.size();
  return graph;
}

// Vectors with Adagrad's state, and the rows of a batch: copies of their values, and gradients.
class Table {
 public:
  Table(uint64_t rows, uint32_t dim, float init, uint64_t seed)
      : dim_(dim), values_(rows * dim), state_(rows * dim), seen_in_(rows), local_(rows) {
    for (uint64_t i = 0; i < values_.size(); i++) {
      // A normal deviate, nearly: the sum of four uniform ones of variance 1 / 12.
      Rng rng(MixSeed(seed, i));
      const double sum = rng.Unit() + rng.Unit() + rng.Unit() + rng.Unit() - 2;
      values_[i] = init * static_cast<float>(sum * 1.7320508);
    }
  }

  void StartBatch() {
    stamp_++;
    rows_.clear();
  }
  uint32_t Local(uint32_t row) {
    if (seen_in_[row] != stamp_) {
      seen_in_[row] = stamp_;
      local_[row] = static_cast<uint32_t>(rows_.size());
      rows_.push_back(row);
    }
    return local_[row];
  }
  void Gather() {
    batch_values_.resize(rows_.size() * dim_);
    for (size_t i = 0; i < rows_.size(); i++) {
      std::copy_n(values_.data() + size_t{rows_[i]} * dim_, dim_, batch_values_.data() + i * dim_);
    }
    batch_gradients_.assign(rows_.size() * dim_, 0.0F);
  }
  void Step(const OptimizerOptions& options, size_t first, size_t last) {
    for (size_t i = first; i < last; i++) {
      const auto part = [&](std::vector<float>& all, size_t row) {
        return std::span(all).subspan(row * dim_, dim_);
      };
      OptimizerStep(OptimizerKind::kAdagrad, options, part(batch_gradients_, i), part(values_, rows_[i]),
                    part(state_, rows_[i]));
    }
  }

  size_t batch_rows() const { return rows_.size(); }
  std::span<const float> values() const { return values_; }
  std::span<const float> batch_values() const { return batch_values_; }
  std::span<float> batch_gradients() { return batch_gradients_; }

 private:
  const uint32_t dim_;
  std::vector<float> values_, state_;
  std::vector<float> batch_values_, batch_gradients_;
  std::vector<uint32_t> seen_in_, local_, rows_;
  uint32_t stamp_ = 0;
};

double UserSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec) + static_cast<double>(usage.ru_utime.tv_usec) * 1e-6;
}

struct EpochTimes {
  double prepare = 0, gather = 0, compute = 0, step = 0;
};

class Trainer {
 public:
  Trainer(const Options& options, const Graph& graph)
      : options_(options),
        graph_(graph),
        edges_(graph.train),
        nodes_(graph.node_count, options.spec.dim, options.init, MixSeed(options.seed, 1)),
        relations_(graph.relation_count, options.spec.relation_dim(), options.init, MixSeed(options.seed, 2)),
        decoder_(options.spec, options.threads),
        pool_(options.threads) {
    for (const Triple& edge : graph.train) {
      ends_[0].push_back(edge.head);
      ends_[1].push_back(edge.tail);
    }
  }

  void RunEpoch(uint32_t epoch) {
    Rng rng(MixSeed(options_.seed, 3, epoch));
    for (size_t i = edges_.size(); i > 1; i--) std::swap(edges_[i - 1], edges_[rng.Below(i)]);
    EpochTimes times;
    double loss = 0;
    size_t rows = 0;
    const double start = MonotonicSeconds(), user_start = UserSeconds();
    for (size_t first = 0, batch = 0; first < edges_.size(); first += options_.batch_edges, batch++) {
      const size_t count = std::min<size_t>(options_.batch_edges, edges_.size() - first);
      loss += RunBatch(std::span(edges_).subspan(first, count), epoch, batch, times);
      rows += nodes_.batch_rows();
    }
    const double seconds = MonotonicSeconds() - start;
    const auto edges = static_cast<double>(edges_.size());
    fmt::print(
        "epoch {:2}: loss {:7.4f}, {:4.0f} k edges/s, {:4.1f} user us an edge, {:.0f} node rows a batch; "
        "prepare {:.2f} s, gather {:.2f}, compute {:.2f}, step {:.2f}\n",
        epoch + 1, loss / edges / 2, edges / seconds / 1e3, (UserSeconds() - user_start) / edges * 1e6,
        static_cast<double>(rows) / (edges / options_.batch_edges), times.prepare, times.gather,
        times.compute, times.step);
    std::fflush(stdout);
  }

  LinkEvaluation Evaluate(const KnownEdges& known) const {
    return EvaluateLinks(options_.spec, nodes_.values(), relations_.values(), graph_.test, known,
                         options_.threads);
  }

 private:
  double RunBatch(std::span<const Triple> edges, uint32_t epoch, uint64_t batch, EpochTimes& times) {
    const double start = MonotonicSeconds();
    Prepare(edges, epoch, batch);
    const double prepared = MonotonicSeconds();
    nodes_.Gather();
    relations_.Gather();
    const double gathered = MonotonicSeconds();
    const LinkBatch link_batch{
        local_[0],     local_[1],    local_[2], options_.chunk_edges, options_.negative_count,
        negatives_[0], negatives_[1]};
    const double loss = decoder_.Compute(link_batch, nodes_.batch_values(), relations_.batch_values(),
                                         nodes_.batch_gradients(), relations_.batch_gradients());
    const double computed = MonotonicSeconds();
    pool_.Run(options_.threads, [this](uint32_t task, unsigned) {
      for (Table* table : {&nodes_, &relations_}) {
        const size_t rows = table->batch_rows();
        table->Step(options_.optimizer, rows * task / options_.threads, rows * (task + 1) / options_.threads);
      }
    });
    times.prepare += prepared - start;
    times.gather += gathered - prepared;
    times.compute += computed - gathered;
    times.step += MonotonicSeconds() - computed;
    return loss;
  }

  // Local rows of the edges, and of negatives for them.
  void Prepare(std::span<const Triple> edges, uint32_t epoch, uint64_t batch) {
    nodes_.StartBatch();
    relations_.StartBatch();
    for (std::vector<uint32_t>& column : local_) column.clear();
    for (const Triple& edge : edges) {
      local_[0].push_back(nodes_.Local(edge.head));
      if (options_.spec.relation_dim() > 0) local_[1].push_back(relations_.Local(edge.relation));
      local_[2].push_back(nodes_.Local(edge.tail));
    }
    const auto chunks = static_cast<uint32_t>(CeilDiv(edges.size(), options_.chunk_edges));
    for (uint32_t side = 0; side < 2; side++) {
      std::vector<uint32_t>& negatives = negatives_[side];
      negatives.resize(size_t{chunks} * options_.negative_count);
      for (uint32_t chunk = 0; chunk < chunks; chunk++) {
        SampleNegatives(
            options_.negatives, {0, graph_.node_count, ends_[side]}, {epoch, batch, chunk, side},
            std::span(negatives).subspan(size_t{chunk} * options_.negative_count, options_.negative_count));
      }
      for (uint32_t& negative : negatives) negative = nodes_.Local(negative);
    }
  }

  const Options& options_;
  const Graph& graph_;
  std::vector<Triple> edges_;
  std::vector<NodeId> ends_[2];
  Table nodes_, relations_;
  LinkDecoder decoder_;
  TaskPool pool_;
  std::vector<uint32_t> local_[3];  // sources, relations, destinations
  std::vector<uint32_t> negatives_[2];
};

void Print(const char* name, const LinkMetrics& metrics) {
  fmt::print("test, {:<8}: MRR {:.4f}, Hits@1 {:.4f}, @3 {:.4f}, @10 {:.4f}\n", name, metrics.mrr,
             metrics.hits_1, metrics.hits_3, metrics.hits_10);
}

Status Run(int argc, char** argv) {
  QUARRY_TRY(const Options options, ParseOptions(argc, argv));
  QUARRY_TRY(const Graph graph, ReadGraph(options.folder));
  fmt::print("{} nodes, {} relations, {} + {} + {} edges; {} of {} dimensions, {}, {} threads\n",
             graph.node_count, graph.relation_count, graph.train.size(), graph.valid.size(),
             graph.test.size(), DecoderName(options.spec.decoder), options.spec.dim,
             LinkLossName(options.spec.loss), options.threads);
  Trainer trainer(options, graph);
  for (uint32_t epoch = 0; epoch < options.epochs; epoch++) trainer.RunEpoch(epoch);
  std::vector<Triple> all = graph.train;
  all.insert(all.end(), graph.valid.begin(), graph.valid.end());
  all.insert(all.end(), graph.test.begin(), graph.test.end());
  const KnownEdges known(std::move(all));
  const double start = MonotonicSeconds();
  const LinkEvaluation evaluation = trainer.Evaluate(known);
  const double seconds = MonotonicSeconds() - start;
  Print("filtered", evaluation.filtered);
  Print("raw", evaluation.raw);
  fmt::print("{} rankings among {} nodes in {:.2f} s\n", evaluation.raw.rankings, graph.node_count, seconds);
  return Status::Ok();
}

}  // namespace
}  // namespace quarry::bench

int main(int argc, char** argv) {
  const quarry::Status status = quarry::bench::Run(argc, argv);
  if (!status.ok()) fmt::print(stderr, "bench_link: {}\n", status.message());
  return quarry::ExitCode(status.code());
}
