// JSON that other verbs printed, as plots read it. Every fault names the file and the place in it.
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
};

// The objects of a file, one after the other as `train --json` prints them, or a single one over many lines.
// At least one. kInvalidArgument for what is no JSON or no object.
Result<std::vector<JsonObject>> ReadObjects(const std::string& path);

// A whole file, or what a pipe holds; kInvalidArgument when it is larger than `bytes_max`.
Result<std::string> ReadText(const std::string& path, uint64_t bytes_max);

// That `text` is no JSON, and where. `begin`: the byte at which the parser began.
Status JsonFault(const std::string& path, const std::string& text, size_t begin,
                 const nlohmann::json::parse_error& error);

// A field; empty where it is absent or null. kInvalidArgument when it is something else.
Result<std::optional<double>> NumberIn(const nlohmann::json& object, const std::string& place,
                                       const std::string& field);
// As above, for a field that must be there.
Result<double> NeedNumber(const nlohmann::json& object, const std::string& place, const std::string& field);
Result<std::string> NeedText(const nlohmann::json& object, const std::string& place,
                             const std::string& field);
// The objects in an array that must be there.
Result<std::vector<JsonObject>> NeedObjects(const nlohmann::json& object, const std::string& place,
                                            const std::string& field);

}  // namespace quarry::cli
