// The options that say what a layout holds, for `layout build` and `train --plan`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/layout/layout.h"

namespace quarry::cli {

// Neighbors of a hop, in --fanout.
CLI::Validator FanoutRange();
// The same, or "all", which becomes kAllNeighbors: to transform with.
CLI::Validator FanoutRangeOrAll();

// --cache, where it is not given.
inline constexpr const char* kCacheAuto = "auto";

struct LayoutFlags {
  std::string name = "default";
  RoadSpec road = {.fanouts = {10, 15, 20}};  // cache_bytes: ToSpec reads `cache`
  std::string cache = kCacheAuto;
  std::string disk;
  uint32_t epochs = 1;
  PolicyKind policy = PolicyKind::kBelady;
  uint32_t hash_functions = 8;
  unsigned threads = 0;
  bool by_type = false;  // a model asks for draws by types of edges; no option

  // Those that say which batches a road makes, but --fanout and --seed.
  void AddRoadOptions(CLI::App* verb);
  // All of them.
  void AddTo(CLI::App* verb);
  // Those that `train` does not have already.
  void AddPlanOptions(CLI::App* verb);
  // kUsage for sizes that cannot be read, whatever the database.
  Status Check() const;
  // kUsage names what cannot be read. In a graph with types that has no such table, rows are those of the types.
  Result<LayoutSpec> ToSpec(const Manifest& manifest) const;
};

// What sizes may be shares of: the bytes of a table, or of all that a road has rows of. kInvalidArgument without any.
Result<uint64_t> FeatureBytes(const Manifest& manifest, const std::string& table);
Result<uint64_t> FeatureBytes(const Manifest& manifest, const RoadSpec& road);
// The rows of a road as those of one table, by which roads are priced: of several, as many of their mean length. The errors of
// FeatureBytes.
Result<FeatureGeometry> RowsOf(const Manifest& manifest, const RoadSpec& road);
// Columns of the rows of a road whose table is there; 0 where rows are by type of nodes.
uint32_t FeatureDim(const Manifest& manifest, const RoadSpec& road);

// So many neighbors a hop by each type of edges, of a graph with types. kUsage where these are more than a node draws in a
// hop. REQUIRES: there are types of edges.
Status DrawByType(const Manifest& manifest, const std::vector<uint32_t>& fanouts, RoadSpec& road);
// Neighbors a hop as --fanout gives them: by type of edges, those of each type.
std::vector<uint32_t> GivenFanouts(const RoadSpec& spec);
// "--fanout 10,15 --batch-size 1024 --direction in": what AddRoadOptions and --fanout read, of what is sampled.
std::string SampleFlags(const RoadSpec& spec);

// "10%" = of `feature_bytes`, at most all of them; else as ParseBytes.
Result<uint64_t> ParseCache(const std::string& text, uint64_t feature_bytes);
// "3x" = times `feature_bytes`; else as ParseBytes.
Result<uint64_t> ParseDisk(const std::string& text, uint64_t feature_bytes);

}  // namespace quarry::cli
