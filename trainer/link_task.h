// LinkTask: what the embedding pipeline does to train link prediction: makes batches of edges and negatives,
// computes loss and gradients, and steps the rows.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "link_decoder.h"
#include "quarry/pipeline/embedding_pipeline.h"
#include "quarry/trainer/link_train.h"
#include "task_pool.h"

namespace quarry {

// Table 0 holds the nodes, table 1 the relations, where the decoder has vectors for them.
class LinkTask final : public EmbeddingTask {
 public:
  using Progress = std::function<Status(uint64_t edges)>;  // after each batch: computed so far

  // `data` and `options` outlive it.
  LinkTask(const LinkData& data, const LinkTrainOptions& options);

  // Orders the edges for this epoch, of which batches [first_batch(), first_batch() + batch_count()) are
  // then to be run. Between runs.
  void StartEpoch(uint32_t epoch, Progress progress);
  uint64_t first_batch() const { return (epoch_ - 1) * batch_count(); }
  uint64_t batch_count() const;
  double loss() const { return loss_; }  // of the epoch's batches, summed over edges and sides

  Status Prepare(EmbeddingItem& item) override;
  Status Compute(EmbeddingItem& item) override;

 private:
  void DrawNegatives(uint64_t batch, uint32_t chunks, std::span<NodeId> source_negatives,
                     std::span<NodeId> destination_negatives) const;
  void Step(RowBlock& block, std::span<const float> gradients, uint32_t part);

  const LinkData& data_;
  const LinkTrainOptions& options_;
  const bool has_relations_;
  std::vector<NodeId> ends_[2];  // heads and tails of all training edges, to draw negatives by degree

  // Of the epoch; workers read it.
  uint64_t epoch_ = 1;
  std::vector<uint32_t> order_;  // of the training edges

  // Of the computing thread.
  Progress progress_;
  LinkDecoder decoder_;
  TaskPool pool_;
  std::vector<float> node_gradients_, relation_gradients_;
  double loss_ = 0;
  uint64_t edges_done_ = 0;
};

}  // namespace quarry
