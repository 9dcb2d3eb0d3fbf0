// Train: the training loop of nodes' classes and targets, over any road (docs/architecture.md, "Data flow").
//
// A graph neural network (quarry/trainer/model_spec.h) on DENSE blocks (Waleffe §3.3), Adam, the loss of its task
// (quarry/trainer/node_task.h), early stopping. Metrics are those of sampled inference, or of a whole graph's. The trainer
// sees batches only, so it cannot tell one road from another; LibTorch stays behind this header.
//
// Training uses two kinds of threads: the engine's, which the road started, and LibTorch's (`torch_threads`:
// GEMM and the aggregation kernels), whose number is a setting of the whole process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/named_tensor.h"
#include "quarry/partition/partition_directory.h"
#include "quarry/pipeline/batch_stream.h"
#include "quarry/storage/node_properties.h"
#include "quarry/storage/training_state.h"
#include "quarry/trainer/communicator.h"
#include "quarry/trainer/graph_pass.h"
#include "quarry/trainer/learning_schedule.h"
#include "quarry/trainer/model_inputs.h"
#include "quarry/trainer/model_spec.h"
#include "quarry/trainer/node_task.h"

namespace quarry {

// How input rows are scaled before anything else sees them.
enum class RowNorm : uint8_t { kNone, kL1, kL2 };

struct TrainOptions {
  ModelSpec spec;
  uint32_t layers = 3;  // must equal the hops of the road's blocks
  uint32_t hidden = 256;
  uint32_t epochs = 10;
  uint32_t patience = 0;  // epochs without a better validation metric before it stops; 0 = never
  double learning_rate = 0.003;
  LearningSchedule schedule = LearningSchedule::kConstant;
  uint32_t schedule_epochs = 0;  // at least 1, but for kConstant
  double dropout = 0.5;          // rate for hidden activations
  double input_dropout = 0.0;    // rate for the first layer's inputs
  double weight_decay = 0.0;     // L2, as Adam takes it
  RowNorm row_norm = RowNorm::kNone;
  uint64_t seed = 0;
  unsigned torch_threads = 1;
  bool ordered = false;  // batches in order: with one seed, the same losses to the last bit
  // How many neighbors each node of the graph has, in the road's direction; of a spec that needs degrees.
  std::shared_ptr<const std::vector<uint32_t>> degrees = nullptr;
  // What each edge weighs, in the order of the edge ids that batches then have; of a spec that needs weights.
  std::shared_ptr<const std::span<const float>> weights = nullptr;
  ModelInputs inputs = {};  // of a spec that needs relations
  NodeTask task = NodeTask::kClasses;
  std::shared_ptr<TargetRows> targets = nullptr;  // of the other tasks
  RegressionLoss regression_loss = RegressionLoss::kMse;
  // Not null: validation and test carry all nodes of this graph through the layers (graph_pass.h), from all of their
  // neighbors, in place of the road's samples. By one trainer, over a road that knows the labels and splits of all nodes.
  std::shared_ptr<const GraphSource> whole_graph = nullptr;
};

// Columns of what a model gives: the classes of the labels or, of the other tasks, those of the targets.
uint32_t OutputsOf(const TrainOptions& options, uint32_t class_count);

// What ranking so many nodes' outputs takes when they are judged by areas under curves.
uint64_t JudgingBytes(const TrainOptions& options, uint32_t class_count, uint64_t nodes);

// Figures of one epoch. The stream's figures are those of the training pass alone; evaluation has its own.
struct EpochReport {
  uint32_t epoch = 0;  // from 1
  double learning_rate = 0;
  double loss = 0;             // mean over the seeds with a label or a target
  double seconds = 0;          // training pass
  double compute_seconds = 0;  // the part of it in the model
  StreamStats stats;
  std::optional<Evaluation> valid;  // nothing without validation nodes
  double valid_seconds = 0;
  StreamStats valid_stats;
  bool best = false;  // the best validation metric so far
  // Time that the checkpoint after the epoch took, which is safe when the epoch is reported; nothing without
  // one.
  std::optional<double> checkpoint_seconds;
};

// Figures of the whole run: unless stated otherwise, they include what was trained before it was resumed.
struct TrainSummary {
  uint32_t epochs = 0;              // epochs that ran
  uint32_t best_epoch = 0;          // its weights were tested: best by validation metric, else the last
  double best_loss = 0;             // that epoch's
  std::optional<Evaluation> valid;  // that epoch's
  std::optional<Evaluation> test;   // nothing without test nodes
  double seconds = 0;               // everything
  double train_seconds = 0;         // training passes
  StreamStats stats;                // training passes, summed
  bool stopped_early = false;
  // Figures of this call to Train alone:
  uint32_t checkpoints = 0;  // checkpoints that were taken
  double checkpoint_seconds = 0;
  std::optional<uint32_t> resumed_from_epoch;  // epoch of its checkpoint; nothing when begun anew
};

// Where a run keeps its checkpoints (quarry/storage/training_state.h), to go on after a crash or to train
// longer. A checkpoint holds weights, Adam's moments, the best weights and the figures so far; batches need
// none of it, being functions of (seed, epoch), and dropout masks of (seed, epoch, batch). So with `ordered`,
// and the same torch_threads, a run that goes on has the losses and weights of one that was never
// interrupted, to the last bit.
struct TrainRun {
  TrainingStates* states = nullptr;  // null: no checkpoints; outlives the training
  std::string name = "node";
  // Everything that decides the result, as "--option value --option value": a run goes on only with the same
  // settings.
  std::string settings;
  std::string config;  // what the training was started with, for people: kept with its checkpoints
  // Batches from one checkpoint to the next, rounded up to the end of an epoch; 0: none but the one that is
  // taken in any case at the end of training.
  uint64_t checkpoint_every = 0;
  bool resume = false;     // go on from the last checkpoint
  bool overwrite = false;  // begin anew although there is one; it stands until the first new one
  // Number of epochs after which the road's batches repeat, whatever the number of the pass (the epochs of a
  // layout). A resumed run reads those of the current cycle again that it has behind it.
  uint32_t epochs_of_cycle = 1;
  // Whose weights the training begins with, instead of drawn ones: a run's or a file's name, the same at all ranks, and
  // how rank 0 reads them, once. Empty: drawn. A run that goes on has its own.
  std::string from;
  std::function<Result<std::vector<NamedTensor>>()> read_weights;
};

// Either may be empty. An error that one returns stops the training at the next batch, and is returned.
struct TrainCallbacks {
  std::function<Status(const EpochReport&)> epoch;
  // After every batch: the phase ("epoch 3", "validation", "test") and its batches done and in all; of a whole graph, nodes
  // of each layer.
  std::function<Status(std::string_view phase, uint64_t done, uint64_t total)> progress;
};

// Refuses, before there is a road, what Train would refuse about a run: kUsage for an impossible name, or for
// a setting in which the run and its checkpoint differ; kNotFound when there is no checkpoint to go on from;
// kAlreadyExists when there is one and neither `resume` nor `overwrite`.
Status CheckTrainRun(const TrainRun& run);

// Trains and tests. `road` must have training nodes and, of classes, labels (kInvalidArgument otherwise), and no stream
// open. kUsage names an option out of range; faults of CheckTrainRun, of the road and of the disk come back
// as they are; kCancelled from the callbacks. On any error the last checkpoint stands. One training per
// process at a time: LibTorch's thread count is global.
//
// With `trainers`, all of them train one model, of which each holds a whole copy: a step takes a batch from
// every rank's road and moves the weights by the gradient of their union. So N trainers step as one would
// with batches N times as large. Batches of the ranks must be different ones of the same pass, and reports
// are the same at all ranks except for their times. Checkpoints are those of rank 0, which has `states`;
// `resume` is the same at all ranks, and brings what rank 0 reads to all of them.
Result<TrainSummary> Train(Road& road, const TrainOptions& options, const TrainCallbacks& callbacks,
                           const TrainRun& run = {}, Communicator* trainers = nullptr);

// What the largest block of a batch may have.
struct BlockBounds {
  std::vector<uint64_t> hop_nodes;  // known after each hop but the last, from the seeds on: a layer's rows
  std::vector<uint64_t> hop_edges;  // drawn by those nodes: a layer's edges
  uint64_t nodes = 0;               // known after the last hop

  uint64_t edges() const { return hop_edges.empty() ? 0 : hop_edges.back(); }
};
// The bounds that batch size and fanouts give, nodes capped by the largest block that was seen.
BlockBounds BoundBlock(uint64_t batch_size, std::span<const uint32_t> fanouts, uint64_t nodes_max);

// Estimates the memory that training takes beside the engine's budget: code and libraries, BLAS's buffers,
// activations of the largest block, weights with their gradients and Adam's moments, and what writing a
// checkpoint holds. REQUIRES: a hop for each layer.
uint64_t EstimateTrainerBytes(const TrainOptions& options, uint32_t feature_dim, uint32_t class_count,
                              const BlockBounds& block, bool checkpoints = false);

// kOutOfBudget where that would not fit beside what the engine holds: names the label and the node that are why,
// where the number of classes is.
Status CheckTrainerMemory(const TrainOptions& options, uint32_t feature_dim, std::span<const int64_t> labels,
                          const BlockBounds& block, bool checkpoints, uint64_t engine_bytes,
                          uint64_t limit_bytes);
// The same of labels that nobody holds: `largest_label` finds the largest, and is called where it is named.
Status CheckTrainerMemory(const TrainOptions& options, uint32_t feature_dim, uint32_t class_count,
                          const std::function<Result<LargestLabel>()>& largest_label,
                          const BlockBounds& block, bool checkpoints, uint64_t engine_bytes,
                          uint64_t limit_bytes);

}  // namespace quarry
