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
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/embedding/embedding_table.h"
#include "quarry/embedding/optimizer.h"
#include "quarry/pipeline/embedding_pipeline.h"
#include "quarry/storage/store.h"
#include "quarry/trainer/learning_schedule.h"
#include "quarry/trainer/link.h"
#include "quarry/trainer/model_spec.h"

namespace quarry {

class LinkRun;

struct LinkTrainOptions {
  LinkSpec spec;
  // An encoder between the vectors and the decoder: layers of this model, spec.dim wide, one for each of these
  // numbers of neighbors, from the scored nodes outwards. Neighbors are the other ends of training edges,
  // both ways; kAllNeighbors takes all of them (by parts, of those that are held, and of each side up to
  // NeighborSampler::kDegreeMax). Empty: the decoder scores the vectors themselves.
  ModelSpec encoder;
  std::vector<uint32_t> encoder_fanouts;
  float encoder_learning_rate = 0.001F;  // Adam's rate for the encoder's weights
  // Columns of the features (LinkData::features) that the encoder is given in the place of learned vectors; 0: vectors. A
  // run goes on with those of the table of this name, as its rows are then.
  uint32_t feature_dim = 0;
  std::string feature_table = {};
  uint32_t batch_edges = 1000;
  uint32_t chunk_edges = 500;  // edges that share negatives
  uint32_t negatives = 500;    // negatives of a chunk, for each side
  double degree_share = 0;     // share of negatives drawn in proportion to degree, others uniformly
  OptimizerKind optimizer = OptimizerKind::kAdagrad;
  OptimizerOptions optimizer_options{.learning_rate = 0.05F};
  // How both rates go from epoch to epoch.
  LearningSchedule schedule = LearningSchedule::kConstant;
  uint32_t schedule_epochs = 0;  // at least 1, but for kConstant
  InitKind init = InitKind::kNormal;
  float init_scale = 0.1F;
  uint32_t epochs = 10;
  uint32_t valid_every = 1;  // epochs from one validation to the next; 0 = none
  // Validations without a better MRR before training stops; 0 = never. Above 0, what is tested and kept in the end is
  // what the epoch of the best MRR has learned, whether training stops early or not.
  uint32_t patience = 0;
  uint64_t seed = 0;  // determines first vectors, order and negatives
  // In order, kSync and kOac give the same losses to the last bit, for any number of workers and threads.
  AsyncMode mode = AsyncMode::kOac;
  bool ordered = false;
  unsigned batches_in_flight = 8;
  unsigned staleness = 4;
  unsigned workers = 1;          // threads that prepare batches, and as many that write them back
  unsigned compute_threads = 1;  // threads for decoder, optimizer and ranking
};

// kUsage names an option out of range.
Status CheckLinkTrainOptions(const LinkTrainOptions& options);

// Shares of the edges of "graph" that are held out where the database has no topology of their own for them.
// Which edges these are is a function of (seed, the two nodes): edges between two nodes stay together, in
// either direction.
struct HeldOutShares {
  double valid = 0, test = 0;
  uint64_t seed = 0;
};

struct LinkData {
  std::vector<Triple> train, valid, test;
  // A run by parts, whose batches take their edges from buckets: `train` is empty, and this is how many there are;
  // and those of them that filtered rankings of `valid` and `test` leave out.
  uint64_t parted_edges = 0;
  std::vector<Triple> known;
  uint64_t node_count = 0;
  uint64_t relation_count = 1;         // 1 where edges have no type
  HeldOutShares held_out;              // shares taken from the training edges
  MemoryBudget::Reservation reserved;  // for the edges
  std::vector<float> features;  // [node_count, feature_dim]: link_features.h; empty: vectors are learned
  MemoryBudget::Reservation features_reserved;

  uint64_t train_count() const { return train.empty() ? parted_edges : train.size(); }
};

// Reads the topologies "graph", "valid" and "test" of a database. kInvalidArgument where one of the latter is
// missing and no share takes its place, where shares are given although it exists, and where no edge is left
// to train on; kOutOfBudget; errors of the store.
Result<LinkData> LoadLinkData(Store& store, MemoryBudget& budget, const HeldOutShares& shares = {});

// The source of the edges of a database that is not open here.
struct LinkSource {
  std::string path;   // for messages
  Manifest manifest;  // its node count and its topologies
  // Returns all edges of a topology, in the order of the database. It reserves what it holds meanwhile.
  std::function<Result<std::vector<Triple>>(const TopologyRecord&)> read;
};
// The same from a LinkSource. kCorruption for an edge whose nodes or relation do not exist.
Result<LinkData> LoadLinkData(const LinkSource& source, MemoryBudget& budget, const HeldOutShares& shares);

// Gives the nodes of all edges the new ids of a partitioning, in whose order a partitioned run keeps vectors.
// kInvalidArgument for data whose held-out edges are a share of the training edges: the partitioning has them
// among these; kOutOfBudget; errors of reading.
class StoredPartitioning;
Status RenumberNodes(const StoredPartitioning& partitioning, MemoryBudget& budget, LinkData& data);

// Lets go of the training edges, which a run by parts reads from the buckets, but for the known ones: those that share
// relation and head, or relation and tail, with a held-out edge. Reads all buckets, one at a time, twice. REQUIRES: the
// nodes of `data` have new ids. kOutOfBudget; errors of reading.
Status LeaveEdgesInParts(const StoredPartitioning& partitioning, Store& store, MemoryBudget& budget,
                         LinkData& data);
// LoadLinkData for a run by parts, in new ids, with the training edges left in parts.
Result<LinkData> LoadPartedLinkData(Store& store, const StoredPartitioning& partitioning,
                                    MemoryBudget& budget);

// Where vectors lie while they are trained: in memory, in the database, or in memory with checkpoints that
// keep them in the state of their run (quarry/trainer/link_run.h).
enum class LinkTables : uint8_t { kMemory, kStored, kInState };

// The least budget that LoadLinkData and TrainLinks can do with, so that a smaller one can be refused before
// the work begins. Stored tables are faster with more.
uint64_t LinkMemoryBytes(const Manifest& manifest, const LinkTrainOptions& options,
                         LinkTables tables = LinkTables::kMemory);
// The exact size of a checkpoint of LinkTables::kInState: whoever keeps it may have a limit.
uint64_t LinkStateBytes(const Manifest& manifest, const LinkTrainOptions& options);

// Figures of one epoch. When a resumed run continues an epoch, edges, seconds and stats cover only the part
// that was left.
struct LinkEpochReport {
  uint32_t epoch = 0;                   // from 1
  double learning_rate = 0;             // of the vectors
  double loss = 0;                      // mean over edges and sides
  double seconds = 0;                   // training time, with checkpoints
  uint64_t edges = 0;                   // trained on
  EmbeddingPipelineStats stats;         // this epoch's; peaks are those so far
  std::optional<LinkEvaluation> valid;  // of the epochs that are validated, where there are such edges
  double valid_seconds = 0;
  bool best = false;  // the best validation MRR so far
};

// Figures of the vectors that are kept. Edges, seconds and stats cover this call alone.
struct LinkTrainSummary {
  uint32_t epochs = 0;                  // the last one's number
  uint32_t kept_epoch = 0;              // with patience the best validated one, else the last one
  double loss = 0;                      // the last epoch's
  uint64_t edges = 0;                   // trained on, over all epochs
  std::optional<LinkEvaluation> valid;  // with patience that of the kept epoch, else the last one
  std::optional<LinkEvaluation> test;   // nothing without test edges
  double seconds = 0;                   // everything
  double train_seconds = 0;
  double seconds_per_epoch = 0;  // training time, had it all been whole epochs
  double test_seconds = 0;
  EmbeddingPipelineStats stats;
  bool stopped_early = false;
};

// Any may be empty. An error that one returns stops the training at the next batch, and is returned.
struct LinkTrainCallbacks {
  std::function<Status(const LinkEpochReport&)> epoch;
  // After every batch, every few thousand edges of a ranking, and every part of encoding by parts: the phase ("epoch 3",
  // "encoding for test", "test"), and its edges done and in all; an encoder counts those of each node in each layer.
  std::function<Status(std::string_view phase, uint64_t done, uint64_t total)> progress;
};

// Makes the table of nodes, then that of relations (none for decoders without).
using EmbeddingTableFactory =
    std::function<Result<std::unique_ptr<EmbeddingTable>>(const EmbeddingSpec& spec)>;

// Trains, and ranks validation and test edges. Tables come from `make_table`, which accounts for their
// memory; without one they lie in memory, within the budget. kUsage as CheckLinkTrainOptions; kOutOfBudget;
// kInvalidArgument when the loss is not a number; errors of the tables; kCancelled from the callbacks. Features take the
// place of the table of nodes.
Result<LinkTrainSummary> TrainLinks(const LinkData& data, const LinkTrainOptions& options,
                                    MemoryBudget& budget, const LinkTrainCallbacks& callbacks = {},
                                    const EmbeddingTableFactory& make_table = {});

// The same in the tables of a run (whose memory is already reserved), from its place on, with its checkpoints
// and one more at the end of training. With patience one more comes behind each epoch that is the best so far, and stays
// beside the last one: a run that was stopped goes on from the last, and one that ends leaves the best epoch's, and goes on
// from there. How many validations behind it were no better stands in it then: what is known to be worse is not trained
// again, but on the way to more epochs, or with more patience. A checkpoint stands whatever happens later. kUsage when the run is
// beyond options.epochs. REQUIRES: `run` was opened with this data and these
// options.
Result<LinkTrainSummary> TrainLinks(const LinkData& data, const LinkTrainOptions& options,
                                    MemoryBudget& budget, const LinkTrainCallbacks& callbacks, LinkRun& run);

}  // namespace quarry
