// TrainLinks: the training loop of link prediction on one machine (dissertation §3.1): vectors of nodes and
// relations in embedding tables, batches of edges through the embedding pipeline, ranking of held-out edges.
//
// Each epoch visits the training edges once, in an order that is a function of (seed, epoch). A batch's edges
// are cut into chunks whose edges share negatives. Workers of the pipeline make batches; the decoder and the
// optimizer run on the caller's thread and `compute_threads - 1` of their own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/embedding/embedding_table.h"
#include "quarry/embedding/optimizer.h"
#include "quarry/pipeline/embedding_pipeline.h"
#include "quarry/storage/store.h"
#include "quarry/trainer/link.h"

namespace quarry {

struct LinkTrainOptions {
  LinkSpec spec;
  uint32_t batch_edges = 1000;
  uint32_t chunk_edges = 500;  // that share negatives
  uint32_t negatives = 500;    // of a chunk, for each side
  double degree_share = 0;     // of the negatives: drawn in proportion to degree, the others uniformly
  OptimizerKind optimizer = OptimizerKind::kAdagrad;
  OptimizerOptions optimizer_options{.learning_rate = 0.05F};
  InitKind init = InitKind::kNormal;
  float init_scale = 0.1F;
  uint32_t epochs = 10;
  uint32_t valid_every = 1;  // epochs from one validation to the next; 0 = none
  uint32_t patience = 0;     // stop after so many validations without a better MRR; 0 = never
  uint64_t seed = 0;         // of first vectors, order and negatives
  // In order, kSync and kOac give the same losses to the last bit, for any number of workers and threads.
  AsyncMode mode = AsyncMode::kOac;
  bool ordered = false;
  unsigned batches_in_flight = 8;
  unsigned staleness = 4;
  unsigned workers = 1;          // that prepare batches, and as many that write them back
  unsigned compute_threads = 1;  // of decoder, optimizer and ranking
};

// kUsage names an option out of range.
Status CheckLinkTrainOptions(const LinkTrainOptions& options);

// Shares of the edges of "graph" that are held out where the database has no topology of their own for them.
// Which ones is a function of (seed, the two nodes): edges between two nodes stay together, either way round.
struct HeldOutShares {
  double valid = 0, test = 0;
  uint64_t seed = 0;
};

struct LinkData {
  std::vector<Triple> train, valid, test;
  uint64_t node_count = 0;
  uint64_t relation_count = 1;         // 1 where edges have no type
  MemoryBudget::Reservation reserved;  // for the edges
};

// Reads the topologies "graph", "valid" and "test" of a database. kInvalidArgument where one of the latter is
// missing and no share takes its place, where shares are given though it is there, and where no edge is left
// to train on; kOutOfBudget; errors of the store.
Result<LinkData> LoadLinkData(Store& store, MemoryBudget& budget, const HeldOutShares& shares = {});

// The most that LoadLinkData and TrainLinks reserve, with tables in memory: for a budget to be refused before
// the work begins.
uint64_t LinkMemoryBytes(const Manifest& manifest, const LinkTrainOptions& options);

// One epoch.
struct LinkEpochReport {
  uint32_t epoch = 0;                   // from 1
  double loss = 0;                      // mean over edges and sides
  double seconds = 0;                   // of training
  uint64_t edges = 0;                   // trained on
  EmbeddingPipelineStats stats;         // of this epoch; peaks: so far
  std::optional<LinkEvaluation> valid;  // of the epochs that are validated, where there are such edges
  double valid_seconds = 0;
  bool best = false;  // the best validation MRR so far
};

// Of the final vectors.
struct LinkTrainSummary {
  uint32_t epochs = 0;                  // that ran
  double loss = 0;                      // of the last epoch
  uint64_t edges = 0;                   // trained on, over all epochs
  std::optional<LinkEvaluation> valid;  // the last one
  std::optional<LinkEvaluation> test;   // nothing without test edges
  double seconds = 0;                   // everything
  double train_seconds = 0;
  double test_seconds = 0;
  EmbeddingPipelineStats stats;
  bool stopped_early = false;
};

// Any may be empty. What they return other than OK stops the training (and is returned), at the next batch.
struct LinkTrainCallbacks {
  std::function<Status(const LinkEpochReport&)> epoch;
  // After every batch, and every few thousand edges of a ranking: the phase ("epoch 3", "validation",
  // "test"), and its edges done and in all.
  std::function<Status(std::string_view phase, uint64_t done, uint64_t total)> progress;
};

// Makes the table of nodes, then that of relations (none for decoders without).
using EmbeddingTableFactory =
    std::function<Result<std::unique_ptr<EmbeddingTable>>(const EmbeddingSpec& spec)>;

// Trains, and ranks validation and test edges. Tables come from `make_table`, which answers for their memory;
// without one they lie in memory, within the budget. kUsage as CheckLinkTrainOptions; kOutOfBudget;
// kInvalidArgument when the loss is no number; errors of the tables; kCancelled from the callbacks.
Result<LinkTrainSummary> TrainLinks(const LinkData& data, const LinkTrainOptions& options,
                                    MemoryBudget& budget, const LinkTrainCallbacks& callbacks = {},
                                    const EmbeddingTableFactory& make_table = {});

}  // namespace quarry
