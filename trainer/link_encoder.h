// LinkEncoder: a graph neural network between the vectors of nodes and the decoder (dissertation §2.1, §3.4): the vectors
// are its inputs, and its outputs, *representations*, are what the decoder scores. All three are trained. Features may take
// the place of vectors (§2.1, "fixed or learned"), and stay as they are.
//
// A node's neighbors are the other ends of its training edges, both ways; edges that are held out are not
// among them. In training the neighbors are sampled; a batch's own edges may be, as in Marius: without them,
// what is missing gives the answers away (measured: a lower loss, and an MRR that is lower by .003 to .017).
// For ranking, the representations of all nodes come from all of their neighbors.
//
// The weights are stepped by the computing thread in the order of computation, so OAC stays exact; products
// are cut into pieces of a fixed size, so the bits do not depend on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gnn_layers.h"
#include "link_memory.h"
#include "parted_encoder.h"
#include "quarry/base/status.h"
#include "quarry/pipeline/held_lists.h"
#include "quarry/pipeline/partitioned_road.h"
#include "quarry/sampling/block.h"
#include "quarry/sampling/sampler.h"
#include "quarry/storage/topology.h"
#include "quarry/trainer/link_train.h"
#include "quarry/trainer/train.h"

namespace quarry {

// The neighborhood of a batch; its memory is used again for later ones.
struct LinkNeighborhood {
  Block block;                 // the scored nodes are its seeds
  std::vector<uint32_t> rows;  // by node: its row in the arrays of unique input nodes
  std::unique_ptr<NeighborSampler> sampler;
};

class LinkEncoder {
 public:
  // REQUIRES: fanouts, and that BLAS is set to one thread, as LinkDecoder does. kUsage names a bad fanout, and a model that
  // tells relations apart `by_parts`. Holds 8 bytes a node and 8 a training edge (16 where relations are told apart), but
  // nothing of them `by_parts`.
  static Result<std::unique_ptr<LinkEncoder>> Make(const LinkData& data, const LinkTrainOptions& options,
                                                   bool by_parts = false);

  // By parts, before all else: neighborhoods are of the nodes and edges that the road holds, by place, and each fanout is
  // of in-neighbors and of out-neighbors apart (Waleffe §5.2). Between runs.
  void TakeStep(const PartitionedRoad& road) { road.TakeLists(step_lists_); }

  // Samples the block of `seeds`, a function of seed and batch number. Sets `rows` to the block's nodes, for
  // the caller to number. Any thread, each with a neighborhood of its own. Errors as NeighborSampler's.
  Status Sample(uint64_t batch, std::span<const NodeId> seeds, LinkNeighborhood& neighborhood) const;

  // The rest is for one thread at a time.

  // The representations [seeds, dim] by the vectors or features `values` ([rows, their columns]); valid until the next
  // call.
  Result<std::span<const float>> Forward(const LinkNeighborhood& neighborhood, std::span<const float> values);
  // After Forward of the same: steps the weights, and fills `gradients` ([rows, dim]) with those of the
  // values; of features there are none.
  Status Backward(const LinkNeighborhood& neighborhood, std::span<const float> values,
                  std::span<float> output_gradients, std::span<float> gradients);
  // Replaces the vectors or features of all nodes by their representations; holds both for a while. The same bits for any
  // number of threads. REQUIRES: not by parts.
  // Layer by layer: each takes the rows of all nodes to those of the next, from all neighbors. Every edge is
  // read once a layer, a node has one representation whatever piece of the work it occurs in, and the metric
  // has no noise of samples. Sampling in pieces would hold less, but give a node another vector in each
  // piece.
  Status EncodeAll(std::vector<float>& values);
  // The same by parts (parted_encoder.h); sums are taken in another order.
  Result<std::unique_ptr<ScratchRows>> EncodeParts(
      const PartitionedRoad& road, const std::string& scratch_folder, MemoryBudget& budget,
      const std::function<Status(std::span<const RowId>, std::span<float>)>& read_nodes,
      const std::function<Status(uint64_t done, uint64_t total)>& progress);

  void SetLearningRate(double rate) { layers_->SetLearningRate(rate); }  // of all steps from now on

  // Weights, Adam's moments and steps. TakeState: kCorruption for bytes of an encoder of another shape.
  std::vector<std::byte> State() const { return layers_->State(); }
  Status TakeState(std::span<const std::byte> state) { return layers_->TakeState(state); }

 private:
  LinkEncoder(const LinkTrainOptions& options, std::unique_ptr<Topology> topology,
              std::shared_ptr<const std::vector<uint32_t>> kinds, std::unique_ptr<GnnLayers> layers);
  BatchView View(const LinkNeighborhood& neighborhood, std::span<const float> values) const;

  const uint32_t input_dim_;  // of what the first layer is given of a node
  const bool learns_inputs_;  // else they are features
  const ModelSpec spec_;
  const std::vector<uint32_t> fanouts_;
  const bool takes_all_;
  const uint64_t sample_seed_;
  const std::unique_ptr<Topology> topology_;                  // of all training edges; null by parts
  const std::shared_ptr<const std::vector<uint32_t>> kinds_;  // of the topology's edges; null: not told apart
  HeldLists step_lists_{Direction::kBoth};                    // by parts: of what is held
  const std::unique_ptr<GnnLayers> layers_;
};

// The most nodes whose vectors a batch needs that scores `scored` nodes.
uint64_t LinkInputNodes(const LinkTrainOptions& options, const LinkCounts& counts, uint64_t scored);

// The size of LinkEncoder::State; 0 without an encoder.
uint64_t LinkEncoderStateBytes(const LinkTrainOptions& options, const LinkCounts& counts);

// The most that an encoder holds, with the neighborhoods of the batches in flight and the matrices of
// EncodeAll, or what EncodeParts takes; 0 without one.
uint64_t LinkEncoderBytes(const LinkTrainOptions& options, const LinkCounts& counts, uint64_t scored);

}  // namespace quarry
