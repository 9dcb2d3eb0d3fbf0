// GraphLayer: a layer of GnnLayers over a whole graph, whose rows pass by in whatever order the caller has them: in
// memory (link_encoder.h), by parts (parted_encoder.h), or from disk, block by block (quarry/trainer/infer_layers.h).
//
//   StartStates   a node has a state, which nobody has told anything
//   Messages      what rows become once, whoever their neighbors are
//   AddOwn        a node's own row is added to its state, once
//   AddList       rows of some of a node's neighbors are added, parallel edges each; a list may come in pieces
//   Finish        states become rows of the next representation, biased and activated
//
// All neighbors are added, and nothing is dropped. Of one order of additions, the bits are the same for any number of
// threads where products are split. One thread drives a GraphLayer, but AddList is for any.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "quarry/base/status.h"

namespace quarry {

class Layer;
class LayerWork;

// Which of two forms linear layers take: they multiply what was added (a state is as wide as what they multiply), or add
// what was multiplied (a state is as wide as an output).
enum class GraphOrder : uint8_t {
  kProductLast,  // rows are messages as they are; a state is held for a tile of nodes at a time
  kLeastState,  // whichever makes states smaller: they are what bounds how many nodes are worked on at a time
};

// Floats of a node while a graph passes by.
struct GraphForm {
  uint32_t state = 0;
  uint32_t message = 0;
  bool raw = false;        // messages are the rows as they are
  bool own_first = false;  // AddOwn comes before AddList

  bool operator==(const GraphForm&) const = default;
};

// What is added of a node's list: messages by number, each with the kind of its edge where kinds are told apart, of a list
// that has `size` neighbors in all.
struct GraphList {
  std::span<const uint32_t> sources;
  std::span<const uint32_t> kinds = {};
  uint64_t size = 0;
};

class GraphLayer {
 public:
  using Activation = std::function<void(std::span<float> rows)>;

  // REQUIRES: layer and work outlive it; no other GraphLayer of this layer, and no batch, until it is gone.
  GraphLayer(Layer& layer, LayerWork& work, GraphOrder order, Activation activate);

  const GraphForm& form() const { return form_; }
  uint32_t in() const;
  uint32_t out() const;

  void StartStates(std::span<float> states) const;
  // The messages of `rows` [n, in]: those themselves, or what is put into `buffer` ([n, message]; none where they are raw).
  Result<std::span<const float>> Messages(std::span<const float> rows, std::span<float> buffer);
  // `list_sizes` [n]: of all of a node's neighbors.
  Status AddOwn(std::span<const float> rows, std::span<const float> messages,
                std::span<const uint64_t> list_sizes, std::span<float> states);
  // Adds messages to the state of a node.
  void AddList(const GraphList& list, const float* messages, float* state) const;
  // Fills `outputs` [n, out] from `states` [n, state], which then mean nothing.
  Status Finish(std::span<float> states, std::span<float> outputs);

  // Runs work(begin, end) over parts of [0, count), on all threads.
  void ForNodes(uint64_t count, const std::function<void(uint64_t begin, uint64_t end)>& work);
  // Runs work(i) for each i below `count`, on all threads.
  void ForEach(uint64_t count, const std::function<void(uint64_t i)>& work);

 private:
  Layer& layer_;
  LayerWork& work_;
  const GraphForm form_;
  const Activation activate_;
};

}  // namespace quarry
