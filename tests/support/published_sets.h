// Small graphs in the files of published sets: papers100M, MAG240M, IGB, Marius, ogbl-*.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "import/packed_files.h"
#include "quarry/base/random.h"
#include "support/array_files.h"
#include "support/temporary_folder.h"
#include "support/torch_file.h"

namespace quarry {

struct SmallGraph {
  static constexpr uint64_t kDim = 6;
  struct TypedEdge {
    int64_t source, relation, destination;
  };
  uint64_t nodes = 0;
  std::vector<TypedEdge> edges;        // relations 0 to 4
  std::vector<TypedEdge> valid, test;  // edges to predict
  std::vector<float> features;         // [nodes, kDim]
  std::vector<uint16_t> halves;        // float16, finite, as the bits
  std::vector<int64_t> labels;         // -1 = none
  std::vector<int32_t> splits[3];      // train, valid, test
  std::vector<float> FloatLabels() const {
    std::vector<float> values;
    for (const int64_t label : labels) values.push_back(label < 0 ? NAN : static_cast<float>(label));
    return values;
  }
};

inline SmallGraph RandomSmallGraph(uint64_t seed) {
  Rng random(seed);
  SmallGraph graph{.nodes = 30 + random.Below(20)};
  const auto draw = [&](std::vector<SmallGraph::TypedEdge>& edges, size_t count) {
    edges.resize(count);
    for (auto& edge : edges) {
      edge = {static_cast<int64_t>(random.Below(graph.nodes)), static_cast<int64_t>(random.Below(5)),
              static_cast<int64_t>(random.Below(graph.nodes))};
    }
  };
  draw(graph.edges, 200);
  graph.edges[0].relation = 4;  // so that there are five
  draw(graph.valid, 17);
  draw(graph.test, 2);  // [2, 2] without a header is two edges
  for (uint64_t i = 0; i < graph.nodes * SmallGraph::kDim; i++) {
    graph.features.push_back(static_cast<float>(random.Unit() * 10 - 5));
    graph.halves.push_back(static_cast<uint16_t>(random() & 0xbbff));
  }
  for (uint64_t node = 0; node < graph.nodes; node++) {
    graph.labels.push_back(static_cast<int64_t>(random.Below(8)) - 1);
    const uint64_t split = random.Below(4);
    if (split < 3) graph.splits[split].push_back(static_cast<int32_t>(node));
  }
  return graph;
}

// Sources and destinations in turns; with the relations between them where `typed`.
template <typename T>
std::vector<T> FlatEdges(const std::vector<SmallGraph::TypedEdge>& edges, bool typed) {
  std::vector<T> ids;
  for (const auto& edge : edges) {
    ids.push_back(static_cast<T>(edge.source));
    if (typed) ids.push_back(static_cast<T>(edge.relation));
    ids.push_back(static_cast<T>(edge.destination));
  }
  return ids;
}

template <typename T>
std::vector<T> Column(const std::vector<SmallGraph::TypedEdge>& edges,
                      int64_t SmallGraph::TypedEdge::*field) {
  std::vector<T> values;
  for (const auto& edge : edges) values.push_back(static_cast<T>(edge.*field));
  return values;
}

// [2, E], [E, 2].
inline std::string NpyEdgeRows(const std::vector<SmallGraph::TypedEdge>& edges) {
  std::vector<int64_t> ids = Column<int64_t>(edges, &SmallGraph::TypedEdge::source);
  const auto destinations = Column<int64_t>(edges, &SmallGraph::TypedEdge::destination);
  ids.insert(ids.end(), destinations.begin(), destinations.end());
  return NpyFile(ids, {2, edges.size()});
}
inline std::string NpyEdgePairs(const std::vector<SmallGraph::TypedEdge>& edges) {
  return NpyFile(FlatEdges<int64_t>(edges, false), {edges.size(), 2});
}

template <typename T>
std::string Lines(const std::vector<T>& values) {
  std::string text;
  for (const T& value : values) text += fmt::format("{}\n", value);
  return text;
}
inline std::string EdgeLines(const std::vector<SmallGraph::TypedEdge>& edges) {
  std::string text;
  for (const auto& edge : edges) text += fmt::format("{},{}\n", edge.source, edge.destination);
  return text;
}

inline NpzMembers Papers100MMembers(const SmallGraph& graph) {
  return {{"edge_index", NpyEdgeRows(graph.edges)},
          {"num_nodes_list", NpyVector<int64_t>({static_cast<int64_t>(graph.nodes)})},
          {"num_edges_list", NpyVector<int64_t>({static_cast<int64_t>(graph.edges.size())})},
          {"node_feat", NpyFile(graph.features, {graph.nodes, SmallGraph::kDim})},
          {"node_year", NpyFile(std::vector<int64_t>(graph.nodes, 2013), {graph.nodes, 1})}};
}

inline void WritePapers100M(const TemporaryFolder& folder, const SmallGraph& graph, bool deflate) {
  folder.Write("raw/README", "");  // makes the folder
  WriteNpz(folder, "raw/data.npz", Papers100MMembers(graph), deflate);
  WriteNpz(folder, "raw/node-label.npz", {{"node_label", NpyFile(graph.FloatLabels(), {graph.nodes, 1})}},
           deflate);
  const char* const names[] = {"train", "valid", "test"};
  for (size_t i = 0; i < 3; i++)
    folder.Write(fmt::format("split/time/{}.csv.gz", names[i]), Gzip(Lines(graph.splits[i])));
}

inline void WriteMag240M(const TemporaryFolder& folder, const SmallGraph& graph) {
  const std::vector<float> labels = graph.FloatLabels();
  folder.Write("processed/paper/node_feat.npy",
               NpyFile(graph.halves, {graph.nodes, SmallGraph::kDim}, "<f2"));
  folder.Write("processed/paper/node_label.npy",
               NpyVector(std::vector<double>(labels.begin(), labels.end())));
  folder.Write("processed/paper/node_year.npy", NpyVector(std::vector<int64_t>(graph.nodes, 2013)));
  folder.Write("processed/paper___cites___paper/edge_index.npy", NpyEdgeRows(graph.edges));
  folder.Write("processed/author___writes___paper/edge_index.npy", NpyEdges({{1, 2}}));
  std::vector<TorchArray> splits;
  for (const auto& [name, i] : {std::pair("train", 0), {"valid", 1}, {"test-whole", 2}, {"test-dev", 1}}) {
    const std::vector<int32_t>& ids = graph.splits[i];
    splits.push_back({name, {ids.size()}, {ids.begin(), ids.end()}});
  }
  folder.Write("split_dict.pt", TorchFile(splits));
  folder.Write("meta.pt", "\x80\x02 a pickle");
}

// `headerless`: as the large and full sets, where features and labels are memory maps.
inline void WriteIgb(const TemporaryFolder& folder, const SmallGraph& graph, bool headerless) {
  const std::vector<float> labels = graph.FloatLabels();
  const std::vector<float> other(graph.nodes, 2);
  folder.Write(
      "processed/paper/node_feat.npy",
      headerless ? RawBytes(graph.features) : NpyFile(graph.features, {graph.nodes, SmallGraph::kDim}));
  folder.Write("processed/paper/node_label_19.npy", headerless ? RawBytes(labels) : NpyVector(labels));
  folder.Write("processed/paper/node_label_2K.npy", headerless ? RawBytes(other) : NpyVector(other));
  folder.Write("processed/paper__cites__paper/edge_index.npy", NpyEdgePairs(graph.edges));
}

inline std::string MariusYaml(const SmallGraph& graph, size_t train, int64_t valid, int64_t test, int64_t dim,
                              int64_t classes) {
  return fmt::format(
      "dataset_dir: /data/small/\nnum_edges: {}\nnum_nodes: {}\nnum_relations: 5\nnum_train: {}\nnum_valid: "
      "{}\n"
      "num_test: {}\nnode_feature_dim: {}\nrel_feature_dim: -1\nnum_classes: {}\ninitialized: false\n",
      graph.edges.size(), graph.nodes, train, valid, test, dim, classes);
}

// A set for node classification.
inline void WriteMariusNodes(const TemporaryFolder& folder, const SmallGraph& graph) {
  folder.Write("edges/train_edges.bin", RawBytes(FlatEdges<int32_t>(graph.edges, false)));
  folder.Write("nodes/features.bin", RawBytes(graph.features));
  folder.Write("nodes/labels.bin", RawBytes(std::vector<int32_t>(graph.labels.begin(), graph.labels.end())));
  folder.Write("nodes/node_mapping.txt", "ignored\n");
  const char* const names[] = {"train", "validation", "test"};
  for (size_t i = 0; i < 3; i++)
    folder.Write(fmt::format("nodes/{}_nodes.bin", names[i]), RawBytes(graph.splits[i]));
  folder.Write("dataset.yaml",
               MariusYaml(graph, graph.splits[0].size(), static_cast<int64_t>(graph.splits[1].size()),
                          static_cast<int64_t>(graph.splits[2].size()), SmallGraph::kDim, 7));
}

// A set for link prediction; T is int32_t or int64_t.
template <typename T>
void WriteMariusLinks(const TemporaryFolder& folder, const SmallGraph& graph, bool typed) {
  folder.Write("edges/train_edges.bin", RawBytes(FlatEdges<T>(graph.edges, typed)));
  folder.Write("edges/validation_edges.bin", RawBytes(FlatEdges<T>(graph.valid, typed)));
  folder.Write("edges/test_edges.bin", RawBytes(FlatEdges<T>(graph.test, typed)));
  folder.Write("edges/train_partition_offsets.txt", "ignored\n");
  folder.Write("dataset.yaml", MariusYaml(graph, graph.edges.size(), static_cast<int64_t>(graph.valid.size()),
                                          static_cast<int64_t>(graph.test.size()), -1, -1));
}

// As downloaded: the edges to train on, and splits that are files of torch.save.
inline void WriteOgbLinks(const TemporaryFolder& folder, const SmallGraph& graph, bool typed) {
  folder.Write("raw/edge.csv.gz", Gzip(EdgeLines(graph.edges)));
  folder.Write("raw/num-node-list.csv.gz", Gzip(fmt::format("{}\n", graph.nodes)));
  folder.Write("raw/num-edge-list.csv.gz", Gzip(fmt::format("{}\n", graph.edges.size())));
  folder.Write("raw/edge_weight.csv.gz", Gzip(Lines(std::vector<int>(graph.edges.size(), 1))));
  folder.Write("raw/edge_year.csv.gz", Gzip(Lines(std::vector<int>(graph.edges.size(), 2001))));
  if (typed) {
    folder.Write("raw/edge_reltype.csv.gz",
                 Gzip(Lines(Column<int64_t>(graph.edges, &SmallGraph::TypedEdge::relation))));
  }
  for (const auto& [name, edges] :
       {std::pair("train", &graph.edges), {"valid", &graph.valid}, {"test", &graph.test}}) {
    const uint64_t count = edges->size();
    const std::vector<TorchArray> untyped = {{"edge", {count, 2}, FlatEdges<int64_t>(*edges, false)},
                                             {"weight", {count}, std::vector<int64_t>(count, 1)},
                                             {"edge_neg", {count, 2}, std::vector<int64_t>(2 * count)}};
    const std::vector<TorchArray> triples = {
        {"head", {count}, Column<int64_t>(*edges, &SmallGraph::TypedEdge::source)},
        {"relation", {count}, Column<int64_t>(*edges, &SmallGraph::TypedEdge::relation)},
        {"tail", {count}, Column<int64_t>(*edges, &SmallGraph::TypedEdge::destination)},
        {"head_neg", {count, 3}, std::vector<int64_t>(3 * count)}};
    folder.Write(fmt::format("split/time/{}.pt", name), TorchFile(typed ? triples : untyped));
  }
}

// What numpy.savez makes of a split of ogbl-wikikg2.
inline NpzMembers TripleMembers(const std::vector<SmallGraph::TypedEdge>& edges) {
  return {{"head", NpyVector(Column<int64_t>(edges, &SmallGraph::TypedEdge::source))},
          {"relation", NpyVector(Column<int64_t>(edges, &SmallGraph::TypedEdge::relation))},
          {"tail", NpyVector(Column<int64_t>(edges, &SmallGraph::TypedEdge::destination))},
          {"head_neg", NpyFile(std::vector<int64_t>(edges.size() * 3), {edges.size(), 3})}};
}

}  // namespace quarry
