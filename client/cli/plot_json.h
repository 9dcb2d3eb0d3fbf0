// JSON that other verbs printed, as plots read it. Every fault names the file and the place in it, and is
// kInvalidArgument.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "quarry/base/status.h"

namespace quarry::cli {

struct JsonObject {
  nlohmann::json value;
  std::string place;  // "run.json: line 3"

  // Fields that must be there.
  Result<double> Number(const std::string& field) const;
  Result<std::string> Text(const std::string& field) const;
  Result<std::vector<JsonObject>> Objects(const std::string& field) const;
  // Empty where the field is absent or null.
  Result<std::optional<double>> NumberIfAny(const std::string& field) const;
};

// The objects of a file, one after the other as `train --json` prints them, or a single one over many lines.
// At least one.
Result<std::vector<JsonObject>> ReadObjects(const std::string& path);

// A whole file, or what a pipe holds, of at most `bytes_max`.
Result<std::string> ReadText(const std::string& path, uint64_t bytes_max);

// Where `text` is no JSON. `begin`: the byte at which the parser began.
Status JsonFault(const std::string& path, const std::string& text, size_t begin,
                 const nlohmann::json::parse_error& error);

}  // namespace quarry::cli
