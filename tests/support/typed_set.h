// A small graph with types of nodes and edges, of known content, as the folder that `quarry import` takes.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "quarry/base/random.h"
#include "support/array_files.h"
#include "support/temporary_folder.h"

namespace quarry {

struct TypedSet {
  struct Nodes {
    std::string name;
    uint64_t count = 0;
    uint64_t dim = 0;  // 0: no features
    bool labels = false;
    std::vector<int64_t> splits[3] = {};  // train, valid, test: ids in the type
    uint64_t first = 0;                   // of the type, in the database
  };
  struct Edges {
    size_t source = 0;
    std::string name;
    size_t destination = 0;
    std::vector<std::pair<int64_t, int64_t>> pairs;  // ids in their types
  };
  std::vector<Nodes> nodes;
  std::vector<Edges> edges;

  uint64_t node_count() const { return nodes.back().first + nodes.back().count; }
  float Feature(size_t type, uint64_t node, uint64_t column) const {
    return static_cast<float>(Mix64((type * 1000 + node) * 7919 + column) % 2001) / 1000.0f - 1.0f;
  }
  int64_t Label(size_t type, uint64_t node) const {
    return node % 7 == 0 ? -1 : static_cast<int64_t>(Mix64(node) % (3 + 4 * type));
  }
  std::string EdgeName(const Edges& type) const {
    return nodes[type.source].name + ":" + type.name + ":" + nodes[type.destination].name;
  }

  void WriteTo(const TemporaryFolder& folder) const {
    std::string types, relations;
    for (size_t t = 0; t < nodes.size(); ++t) {
      const Nodes& type = nodes[t];
      types += fmt::format("  - {}\n", type.name);
      folder.Write(type.name + "/metadata.yaml", fmt::format("num_nodes: {}\n", type.count));
      std::vector<float> rows;
      std::vector<int64_t> labels;
      for (uint64_t node = 0; node < type.count; ++node) {
        for (uint64_t j = 0; j < type.dim; ++j) rows.push_back(Feature(t, node, j));
        labels.push_back(Label(t, node));
      }
      if (type.dim > 0) folder.Write(type.name + "/features.npy", NpyFile(rows, {type.count, type.dim}));
      if (type.labels) folder.Write(type.name + "/labels.npy", NpyFile(labels, {type.count}));
      constexpr const char* kSplits[] = {"train", "valid", "test"};
      for (size_t i = 0; i < 3; ++i) {
        if (type.splits[i].empty()) continue;
        folder.Write(fmt::format("{}/{}_idx.npy", type.name, kSplits[i]),
                     NpyFile(type.splits[i], {type.splits[i].size()}));
      }
    }
    for (const Edges& type : edges) {
      relations += fmt::format("  - \"{}\"\n", EdgeName(type));
      std::vector<int64_t> ids;
      for (const auto& [source, destination] : type.pairs) ids.push_back(source);
      for (const auto& [source, destination] : type.pairs) ids.push_back(destination);
      folder.Write(fmt::format("{}__{}__{}/edges.npy", nodes[type.source].name, type.name,
                               nodes[type.destination].name),
                   NpyFile(ids, {2, type.pairs.size()}));
    }
    folder.Write("metadata.yaml", fmt::format("node_types:\n{}relations:\n{}", types, relations));
  }
};

// Papers with labels and splits, authors with shorter rows and a few labels, fields without rows; two relations between the same
// types, one within a type.
inline TypedSet RandomTypedSet(uint64_t seed, uint64_t papers = 400) {
  Rng rng(seed);
  TypedSet set;
  set.nodes = {{.name = "paper", .count = papers, .dim = 33, .labels = true},
               {.name = "author", .count = papers / 2 + 1, .dim = 5, .labels = true},
               {.name = "field-of_study", .count = papers / 10 + 1}};
  uint64_t first = 0;
  for (size_t t = 0; t < set.nodes.size(); ++t) {
    TypedSet::Nodes& type = set.nodes[t];
    type.first = first;
    first += type.count;
    for (uint64_t node = 0; t < 2 && node < type.count; ++node) {
      if (const uint64_t split = rng.Below(t == 0 ? 4 : 8); split < 3) {
        type.splits[split].push_back(static_cast<int64_t>(node));
      }
    }
  }
  const std::tuple<size_t, const char*, size_t, uint64_t> kinds[] = {{1, "writes", 0, 3 * papers},
                                                                     {0, "cites", 0, 5 * papers},
                                                                     {1, "reviews", 0, papers},
                                                                     {0, "rev_writes", 1, 2 * papers},
                                                                     {0, "has_topic", 2, papers}};
  for (const auto& [source, name, destination, count] : kinds) {
    TypedSet::Edges type{.source = source, .name = name, .destination = destination, .pairs = {}};
    for (uint64_t e = 0; e < count; ++e) {
      type.pairs.emplace_back(rng.Below(set.nodes[source].count), rng.Below(set.nodes[destination].count));
    }
    set.edges.push_back(std::move(type));
  }
  return set;
}

}  // namespace quarry
