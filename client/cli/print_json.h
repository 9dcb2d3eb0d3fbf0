// JSON on stdout.
#pragma once

#include <nlohmann/json.hpp>

#include "cli.h"

namespace quarry::cli {

// Whether this process has printed a document.
inline bool& JsonPrinted() {
  static bool printed = false;
  return printed;
}

// One document; on a line of its own where `indent` is -1. Names, paths and sources may hold any bytes, JSON
// may not: what is no UTF-8 is replaced. What would steer a terminal leaves as \u escapes, as Print has them.
inline void PrintJson(const nlohmann::ordered_json& json, int indent = -1) {
  JsonPrinted() = true;
  Print("{}\n", json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace quarry::cli
