// What a folder states about itself in metadata.yaml and README.txt. Private to this room.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "quarry/base/status.h"

namespace quarry {

// Keys of metadata.yaml; other keys are ignored.
struct Metadata {
  std::optional<uint64_t> num_nodes, num_edges, feature_dim, num_classes;
};

// Empty when there is no such file; kInvalidArgument when it is no YAML map or a key holds no count.
Result<Metadata> ReadMetadata(const std::string& path);

// The n of the first "D = n" in a README: CSR features do not tell their number of columns. Nothing when
// there is no such file or statement.
Result<std::optional<uint64_t>> StatedColumns(const std::string& readme_path);

}  // namespace quarry
