#include "graph_kernels.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "elementwise.h"
#include "kernel.h"
#include "quarry/trainer/model_spec.h"

namespace quarry {
namespace {

constexpr size_t kMessagesAhead = 4;  // messages that are asked for before they are needed
constexpr float kNoScore = -3.4e38F;  // below every score

QUARRY_INLINE void AskFor(std::span<const uint32_t> sources, size_t i, const float* messages,
                          uint32_t width) {
  if (i + kMessagesAhead >= sources.size()) return;
  const float* const next = messages + size_t{sources[i + kMessagesAhead]} * width;
  for (uint32_t c = 0; c < std::min(width, 256U); c += 16) __builtin_prefetch(next + c);
}

QUARRY_KERNEL void AddMessagesOf(std::span<const uint32_t> sources, const float* messages, uint32_t dim,
                                 float scale, float* sum) {
  for (size_t i = 0; i < sources.size(); i++) {
    AskFor(sources, i, messages, dim);
    AddScaled(messages + size_t{sources[i]} * dim, scale, dim, sum);
  }
}

// An element that is no number replaces none.
QUARRY_KERNEL void KeepLargestOf(std::span<const uint32_t> sources, const float* messages, uint32_t dim,
                                 float* __restrict largest) {
  for (size_t i = 0; i < sources.size(); i++) {
    AskFor(sources, i, messages, dim);
    const float* __restrict row = messages + size_t{sources[i]} * dim;
    for (uint32_t c = 0; c < dim; c++) largest[c] = row[c] > largest[c] ? row[c] : largest[c];
  }
}

QUARRY_KERNEL void ScoreMessagesOf(const AttentionForm& form, const float* weights, uint32_t begin,
                                   uint32_t end, float* messages) {
  for (uint32_t v = begin; v < end; v++) {
    float* const message = messages + size_t{v} * form.message();
    for (uint32_t h = 0; h < form.heads; h++) {
      const size_t at = size_t{h} * form.head_dim;
      message[form.width() + h] = Dot(message + at, weights + at, form.head_dim);
    }
  }
}

// The largest of the piece first, so that a piece scales what was summed once at most.
QUARRY_INLINE void AttendToSources(const AttentionForm& form, std::span<const uint32_t> sources,
                                   const float* messages, float* state) {
  const uint32_t heads = form.heads, width = form.width();
  float* const largest = state + width;
  float* const totals = largest + heads;
  const float* const left = totals + heads;
  float now[ModelSpec::kHeadsMax];
  std::copy_n(largest, heads, now);
  const auto score = [&](const float* right, uint32_t h) __attribute__((always_inline)) {
    const float s = left[h] + right[h];
    return s > 0 ? s : kLeakySlope * s;
  };
  for (const uint32_t u : sources) {
    const float* const right = messages + size_t{u} * form.message() + width;
    for (uint32_t h = 0; h < heads; h++) now[h] = std::max(now[h], score(right, h));
  }
  for (uint32_t h = 0; h < heads; h++) {
    if (now[h] <= largest[h]) continue;
    const float share = Exp(largest[h] - now[h]);
    float* const sum = state + size_t{h} * form.head_dim;
    for (uint32_t c = 0; c < form.head_dim; c++) sum[c] *= share;
    totals[h] *= share;
    largest[h] = now[h];
  }
  for (size_t i = 0; i < sources.size(); i++) {
    AskFor(sources, i, messages, form.message());
    const float* const message = messages + size_t{sources[i]} * form.message();
    for (uint32_t h = 0; h < heads; h++) {
      const float a = Exp(score(message + width, h) - largest[h]);
      const size_t at = size_t{h} * form.head_dim;
      totals[h] += a;
      AddScaled(message + at, a, form.head_dim, state + at);
    }
  }
}

QUARRY_KERNEL void AttendToListOf(const AttentionForm& form, std::span<const uint32_t> sources,
                                  const float* messages, float* state) {
  AttendToSources(form, sources, messages, state);
}

QUARRY_KERNEL void AttendToItselfOf(const AttentionForm& form, const float* weights, const float* messages,
                                    uint32_t begin, uint32_t end, float* states) {
  for (uint32_t v = begin; v < end; v++) {
    float* const state = states + size_t{v} * form.state();
    const float* const message = messages + size_t{v} * form.message();
    float* const left = state + form.width() + 2 * form.heads;
    for (uint32_t h = 0; h < form.heads; h++) {
      const size_t at = size_t{h} * form.head_dim;
      left[h] = Dot(message + at, weights + at, form.head_dim);
    }
    AttendToSources(form, {&v, 1}, messages, state);
  }
}

QUARRY_KERNEL void FinishAttentionOf(const AttentionForm& form, const float* states, uint32_t begin,
                                     uint32_t end, float* outputs) {
  const uint32_t dim = form.head_dim, out = form.averages ? dim : form.width();
  for (uint32_t v = begin; v < end; v++) {
    const float* const state = states + size_t{v} * form.state();
    const float* const totals = state + form.width() + form.heads;
    float* const row = outputs + size_t{v} * out;
    std::memset(row, 0, out * sizeof(float));
    for (uint32_t h = 0; h < form.heads; h++) {
      const float share = 1.0F / (form.averages ? totals[h] * static_cast<float>(form.heads) : totals[h]);
      AddScaled(state + size_t{h} * dim, share, dim, row + (form.averages ? 0 : size_t{h} * dim));
    }
  }
}

}  // namespace

void AddMessages(std::span<const uint32_t> sources, const float* messages, uint32_t dim, float scale,
                 float* sum) {
  AddMessagesOf(sources, messages, dim, scale, sum);
}

void KeepLargestMessages(std::span<const uint32_t> sources, const float* messages, uint32_t dim,
                         float* largest) {
  KeepLargestOf(sources, messages, dim, largest);
}

void ScoreMessages(const AttentionForm& form, const float* right_weights, uint32_t begin, uint32_t end,
                   float* messages) {
  ScoreMessagesOf(form, right_weights, begin, end, messages);
}

void StartAttention(const AttentionForm& form, std::span<float> states) {
  std::ranges::fill(states, 0.0F);
  for (size_t at = form.width(); at < states.size(); at += form.state()) {
    std::fill_n(states.begin() + static_cast<ptrdiff_t>(at), form.heads, kNoScore);
  }
}

void AttendToItself(const AttentionForm& form, const float* left_weights, const float* messages,
                    uint32_t begin, uint32_t end, float* states) {
  AttendToItselfOf(form, left_weights, messages, begin, end, states);
}

void AttendToList(const AttentionForm& form, std::span<const uint32_t> sources, const float* messages,
                  float* state) {
  AttendToListOf(form, sources, messages, state);
}

void FinishAttention(const AttentionForm& form, const float* states, uint32_t begin, uint32_t end,
                     float* outputs) {
  FinishAttentionOf(form, states, begin, end, outputs);
}

}  // namespace quarry
