// LinkTask: what the embedding pipeline does to train link prediction: makes batches of edges and negatives,
// computes loss and gradients, and steps the rows.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "link_decoder.h"
#include "link_encoder.h"
#include "parted_encoder.h"
#include "quarry/pipeline/embedding_pipeline.h"
#include "quarry/pipeline/partitioned_road.h"
#include "quarry/trainer/link_train.h"
#include "task_pool.h"

namespace quarry {

struct LinkItem;

// Table 0 holds the nodes, table 1 the relations, where the decoder has vectors for them.
class LinkTask final : public EmbeddingTask {
 public:
  using Progress = std::function<Status(uint64_t edges)>;  // after each batch: computed so far

  // All outlive it. Without a road, an epoch is one step: all training edges of `data`, among all nodes.
  LinkTask(const LinkData& data, const LinkTrainOptions& options, PartitionedRoad* road = nullptr);

  // Before all else, where the options ask for an encoder. Errors as LinkEncoder::Make.
  Status MakeEncoder();

  // Orders the edges for this epoch, of which batches [first_batch(), first_batch() + batch_count()) are
  // then to be run, or those that are left of them: `loss` is that of the others. `batches_before`: of all epochs before
  // it, where they need not have had as many each as this one. Between runs. Errors of the road.
  Status StartEpoch(uint32_t epoch, Progress progress, double loss = 0,
                    std::optional<uint64_t> batches_before = {});
  // Goes to the step of this batch of the epoch, and returns how many batches of it are left from there on: no
  // run crosses its end. Between runs.
  Result<uint64_t> Enter(uint64_t batch);
  uint64_t first_batch() const { return first_batch_; }
  uint64_t batch_count() const;
  // Edges of the epoch's batches before this one.
  uint64_t EdgesBefore(uint64_t batch) const;
  float learning_rate() const { return optimizer_.learning_rate; }  // of the epoch
  double loss() const { return loss_; }  // sum over the edges of the epoch's batches and their sides

  // What is learned beside the tables (weights of an encoder and their optimizer's state; nothing without
  // one), as bytes. Between runs. TakeState: kCorruption for bytes of another shape; no bytes at all are a
  // run's that is at its beginning.
  std::vector<std::byte> State() const;
  Status TakeState(std::span<const std::byte> state);

  // With an encoder, what the decoder scores is not what the table of nodes has: EncodeAll replaces the
  // vectors of all nodes ([node_count, dim]) by it, and holds both for a while. Between runs.
  bool has_encoder() const { return encoder_ != nullptr; }
  Status EncodeAll(std::vector<float>& node_values) { return encoder_->EncodeAll(node_values); }
  // The same by parts, on disk (parted_encoder.h). REQUIRES: a road.
  Result<std::unique_ptr<ScratchRows>> EncodeParts(
      const std::string& scratch_folder, MemoryBudget& budget,
      const std::function<Status(std::span<const RowId>, std::span<float>)>& read_nodes,
      const std::function<Status(uint64_t done, uint64_t total)>& progress) {
    return encoder_->EncodeParts(*road_, scratch_folder, budget, read_nodes, progress);
  }

  Status Prepare(EmbeddingItem& item) override;
  Status Compute(EmbeddingItem& item) override;

 private:
  void TakeEnds(std::span<const Triple> edges);
  void DrawNegatives(uint64_t batch, uint32_t chunks, std::span<NodeId> source_negatives,
                     std::span<NodeId> destination_negatives) const;
  Status SampleNeighbors(uint64_t batch, LinkItem& link, std::vector<RowId>& ids) const;
  // Adds to loss_, and fills the gradients.
  Status ComputeGradients(const LinkItem& link, const RowBlock& node_rows, const RowBlock& relation_rows);
  Status ComputeEncoded(const LinkItem& link, const LinkBatch& batch, const RowBlock& node_rows,
                        const RowBlock& relation_rows);
  void Step(RowBlock& block, std::span<const float> gradients, uint32_t part);

  const LinkData& data_;
  const LinkTrainOptions& options_;
  PartitionedRoad* const road_;
  const bool has_relations_;

  // The epoch and its step; workers read them.
  uint64_t epoch_ = 1;
  uint64_t first_batch_ = 0;
  std::vector<uint32_t> order_;  // order of the training edges; empty with a road
  std::vector<NodeId> ends_[2];  // heads and tails of the step's edges, to draw negatives by degree

  // The computing thread owns these.
  Progress progress_;
  std::unique_ptr<LinkEncoder> encoder_;  // workers sample by it
  LinkDecoder decoder_;
  OptimizerOptions optimizer_;  // with the epoch's rate
  TaskPool pool_;
  std::vector<float> node_gradients_, relation_gradients_;
  std::vector<float> output_gradients_;  // the encoder's
  double loss_ = 0;
  uint64_t edges_done_ = 0;
};

}  // namespace quarry
