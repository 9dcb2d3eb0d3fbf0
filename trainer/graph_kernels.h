// The kernels of layers over whole graphs (graph_layer.h): pure functions over one node, or over a range of them, as those
// of quarry/trainer/aggregate.h.
#pragma once

#include <cstdint>
#include <span>

#include "quarry/trainer/aggregate.h"

namespace quarry {

// sum += scale * each of the messages number `sources`, of `dim` floats.
void AddMessages(std::span<const uint32_t> sources, const float* messages, uint32_t dim, float scale,
                 float* sum);
// Keeps the larger elements.
void KeepLargestMessages(std::span<const uint32_t> sources, const float* messages, uint32_t dim,
                         float* largest);

// Attention whose softmax is taken while members come, heads side by side:
//
//   message of u  [z (heads * head_dim) | right score (heads)]
//   state of v    [sum of e^(s - largest) z | largest s | sum of e^(s - largest) | left score], the last three by head
//
// A score that is larger than all before scales what was summed.
struct AttentionForm {
  uint32_t heads = 0;
  uint32_t head_dim = 0;
  bool averages = false;  // heads are averaged in the output

  uint32_t width() const { return heads * head_dim; }
  uint32_t message() const { return width() + heads; }
  uint32_t state() const { return width() + 3 * heads; }
};

// The scores in messages [begin, end), whose z is there. `messages` is whole.
void ScoreMessages(const AttentionForm& form, const float* right_weights, uint32_t begin, uint32_t end,
                   float* messages);
void StartAttention(const AttentionForm& form, std::span<float> states);
// Scores nodes [begin, end) by their own messages, and adds these. Both pointers are whole.
void AttendToItself(const AttentionForm& form, const float* left_weights, const float* messages,
                    uint32_t begin, uint32_t end, float* states);
void AttendToList(const AttentionForm& form, std::span<const uint32_t> sources, const float* messages,
                  float* state);
// Rows [begin, end) of `outputs`. Both pointers are whole.
void FinishAttention(const AttentionForm& form, const float* states, uint32_t begin, uint32_t end,
                     float* outputs);

}  // namespace quarry
