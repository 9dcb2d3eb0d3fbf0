// InputLayer: takes the rows of each type of nodes to one width, below layers that tell relations apart:
//
//   output_u = row_u W_t + b_t          [nodes, width]   t: the type of node u; one GEMM a type and tile
//
// Types may differ in columns and elements. Nodes of a type without rows have b_t alone, a vector that they share. What
// activates the output, and drops some of it, is the owner's, as of a Layer (layer.h); and the gradient of the output
// overwrites it, as there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layer.h"
#include "quarry/trainer/aggregate.h"
#include "quarry/trainer/model_inputs.h"

namespace quarry {

class InputLayer {
 public:
  // Draws W_t, and b_t of types without rows; the others' are 0. `inputs` has the types, and which nodes are of them.
  // REQUIRES: `work` outlives the layer; a type.
  InputLayer(LayerWork& work, const ModelInputs& inputs, uint32_t width, Rng& rng);

  // By type: the weight, where it has rows, and the bias.
  std::vector<Parameter*> Parameters();
  std::vector<std::string> ParameterNames() const;

  // kInternal for a batch whose rows are of other types.
  Status CheckBatch(const BatchView& batch) const;
  // Orders the nodes by type and grows the buffers. Before Forward, and once a batch. kInvalidArgument for a node that came
  // after the model was told of the types.
  Status Resize(const BatchView& batch);
  // Fills the output. `mask` drops elements of what is given.
  void Forward(const BatchView& batch, RowNorm norm, const DropoutMask& mask);
  // Leaves the gradients of the parameters, for that of the output, which has taken its place. The rest is as in the last
  // Forward.
  void Backward(const BatchView& batch, RowNorm norm, const DropoutMask& mask);

  Matrix& output() { return output_; }
  uint64_t activation_bytes() const;  // held now

 private:
  struct Type {
    InputType input;
    Parameter weight;             // [dim, width]
    Parameter bias;               // [width]
    uint32_t begin = 0, end = 0;  // its nodes in order_
  };
  size_t TypeOf(NodeId node) const { return nodes_.empty() ? 0 : nodes_.TypeOf(node); }
  FeatureView RowsOf(const BatchView& batch, size_t type) const;
  torch::Tensor Products(uint32_t rows);
  // Runs work(begin, end, rows) over tiles of a type's nodes, with their decoded rows; none of a type without.
  template <typename Work>
  void ForEachTile(const BatchView& batch, size_t type, RowNorm norm, const DropoutMask& mask,
                   const Work& work);

  LayerWork& work_;
  const uint32_t width_;
  std::vector<Type> types_;
  const NodeTypes nodes_;
  Matrix output_;                        // [nodes, width]
  std::vector<uint32_t> order_, slots_;  // by type: the block's nodes, and where their rows are
  Matrix tile_, products_;               // of a tile, one row behind the other: [rows, dim] and [rows, width]
};

}  // namespace quarry
