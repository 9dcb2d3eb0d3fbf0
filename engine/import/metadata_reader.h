// What a folder states about itself in metadata.yaml, Marius' dataset.yaml and README.txt. Private to this
// room.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "quarry/base/status.h"

namespace quarry {

// Keys of metadata.yaml; other keys are ignored.
struct Metadata {
  std::optional<uint64_t> num_nodes, num_edges, feature_dim, num_classes, num_times;
  std::vector<std::string> relations;   // in the order of their ids; empty: not stated
  std::vector<std::string> node_types;  // the same
};

// Empty when there is no such file; kInvalidArgument when it is no YAML map or a key holds no count,
// `relations` or `node_types` no list.
Result<Metadata> ReadMetadata(const std::string& path);

// Keys of the dataset.yaml that marius_preprocess writes; -1 there is nothing here.
struct MariusMetadata {
  std::optional<uint64_t> num_nodes, num_edges, num_relations;
  std::optional<uint64_t> num_train, num_valid, num_test;  // nodes, or edges where edges are predicted
  std::optional<uint64_t> feature_dim, num_classes;
};

// As ReadMetadata, but the file must be there.
Result<MariusMetadata> ReadMariusMetadata(const std::string& path);

// The n of the first "D = n" in a README: CSR features do not tell their number of columns. Nothing when
// there is no such file or statement.
Result<std::optional<uint64_t>> StatedColumns(const std::string& readme_path);

}  // namespace quarry
