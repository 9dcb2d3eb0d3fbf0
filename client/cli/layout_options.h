// The options that say what a layout holds, for `layout build` and `train --plan`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/layout/layout.h"

namespace quarry::cli {

struct LayoutFlags {
  std::string name = "default";
  std::vector<uint32_t> fanouts = {10, 15, 20};
  uint32_t batch_size = 1024;
  std::string direction = "in";
  uint64_t seed = 0;
  std::string cache = "10%", gpu_cache;
  std::string disk;
  uint32_t epochs = 1;
  std::string policy = "belady";
  std::string order = "random";
  uint32_t hash_functions = 8;
  unsigned threads = 0;

  // All of them.
  void AddTo(CLI::App* verb);
  // Those that `train` does not have already.
  void AddPlanOptions(CLI::App* verb);
  // kUsage names what cannot be read.
  Result<LayoutSpec> ToSpec(const Manifest& manifest) const;
};

// "in", "out" or "both": of a record, which has the number.
std::string_view DirectionName(uint8_t direction);

// "3x" = times `feature_bytes`; else as ParseBytes.
Result<uint64_t> ParseDisk(const std::string& text, uint64_t feature_bytes);

}  // namespace quarry::cli
