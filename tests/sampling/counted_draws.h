// What draws from a short list can give, and how likely each of it is, by trying all ways.
#pragma once

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

namespace quarry {

using Places = std::vector<size_t>;  // what a node drew, ascending

// Every set of `count` places, with the probability that drawing one after another, each with probability proportional
// to its weight among those that are left, ends with it. Places of weight 0 are not drawn.
inline void AddSuccessive(const std::vector<float>& weights, size_t count, Places drawn, double probability,
                          std::map<Places, double>& out) {
  double left = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (std::ranges::find(drawn, i) == drawn.end()) left += static_cast<double>(weights[i]);
  }
  if (drawn.size() == count || left == 0) {
    std::ranges::sort(drawn);
    out[drawn] += probability;
    return;
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == 0 || std::ranges::find(drawn, i) != drawn.end()) continue;
    Places next = drawn;
    next.push_back(i);
    AddSuccessive(weights, count, next, probability * static_cast<double>(weights[i]) / left, out);
  }
}

inline std::map<Places, double> Successive(const std::vector<float>& weights, size_t count) {
  std::map<Places, double> out;
  AddSuccessive(weights, count, {}, 1, out);
  return out;
}

// Independent draws, as a sorted list of places.
inline std::map<Places, double> Independent(const std::vector<float>& weights, size_t count) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::map<Places, double> out = {{{}, 1.0}};
  for (size_t k = 0; k < count; ++k) {
    std::map<Places, double> longer;
    for (const auto& [places, probability] : out) {
      for (size_t i = 0; i < weights.size(); ++i) {
        if (weights[i] == 0) continue;
        Places next = places;
        next.insert(std::ranges::upper_bound(next, i), i);
        longer[next] += probability * static_cast<double>(weights[i]) / sum;
      }
    }
    out = std::move(longer);
  }
  return out;
}

}  // namespace quarry
