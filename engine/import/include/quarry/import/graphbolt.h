// The metadata.yaml of a folder that DGL's GraphBolt opens as an OnDiskDataset: which files hold the graph,
// its features and its training sets. Fields and their meaning:
// https://www.dgl.ai/dgl_docs/stochastic_training/ondisk-dataset-specification.html. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "quarry/base/status.h"

namespace quarry {

// Types are empty in a graph of one type of nodes and edges, else "paper", "author:writes:paper". Paths are
// relative to the folder.
struct GraphBolt {
  struct Nodes {
    std::string type;
    uint64_t count = 0;
  };
  struct Array {
    std::string domain;  // of features: "node", "edge"
    std::string type;    // of features and edges
    std::string name;    // of features and of a set's arrays: "feat", "seeds", "labels"
    std::string format;  // "numpy", "csv" (edges), "torch"
    std::string path;
  };
  struct Set {
    std::string type;
    std::vector<Array> arrays;
  };
  struct Task {
    std::string name;
    std::optional<uint64_t> class_count;
    std::vector<Set> train, valid, test;
  };
  std::string name;
  std::vector<Nodes> nodes;
  std::vector<Array> edges;
  std::vector<Array> graph_features;  // of the graph itself, those that sampling uses: weights of edges
  std::vector<Array> features;
  std::vector<Task> tasks;
};

// Features are marked to stay on disk (in_memory: false).
std::string EncodeGraphBolt(const GraphBolt& graph);

// kInvalidArgument names `path`, the line and the field that is missing or has the wrong type, or a path that
// leaves the folder.
Result<GraphBolt> DecodeGraphBolt(const std::string& text, const std::string& path);

// Whether `text` is YAML that describes such a folder.
bool LooksLikeGraphBolt(const std::string& text);

}  // namespace quarry
