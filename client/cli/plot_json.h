// JSON that other verbs printed, as plots read it. Every fault is kInvalidArgument and names the file and the
// place in it.
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/base/units.h"

namespace quarry::cli {

// "[json.exception.type_error.302] type must be number, but is string" without the exception's name.
inline std::string ReasonOf(const nlohmann::json::exception& error) {
  const std::string what = error.what();
  return what.substr(what.find("] ") + 2);
}

struct JsonObject {
  nlohmann::json value;
  std::string place;  // "run.json: line 3"

  // A field that must be there.
  template <typename T>
  Result<T> Get(const char* field) const {
    try {
      return value.at(field).get<T>();
    } catch (const nlohmann::json::exception& error) {
      return MakeStatus(Code::kInvalidArgument, "{}: \"{}\": {}", place, field, ReasonOf(error));
    }
  }
  // Empty where the field is absent or null.
  Result<std::optional<double>> NumberIfAny(const char* field) const {
    if (!value.contains(field) || value[field].is_null()) return std::optional<double>();
    QUARRY_TRY(const double number, Get<double>(field));
    return std::optional(number);
  }
  Result<std::vector<JsonObject>> Objects(const char* field) const {
    QUARRY_TRY(const auto array, Get<std::vector<nlohmann::json>>(field));
    std::vector<JsonObject> objects;
    for (const nlohmann::json& element : array) {
      objects.push_back({element, fmt::format("{}: {}[{}]", place, field, objects.size())});
    }
    return objects;
  }
};

// A whole file, or what a pipe holds.
inline Result<std::string> ReadText(const std::string& path) {
  constexpr uint64_t kBytesMax = kGiB;
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return MakeStatus(Code::kInvalidArgument, "{} is a folder, and not a JSON file", path);
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return ErrnoStatus(errno != 0 ? errno : EIO, "open", path);
  std::string text, piece(kMiB, '\0');
  while (file.read(piece.data(), kMiB) || file.gcount() > 0) {
    text.append(piece, 0, static_cast<size_t>(file.gcount()));
    if (text.size() <= kBytesMax) continue;
    return MakeStatus(Code::kInvalidArgument, "{} has more than the {} that can be drawn", path,
                      FormatBytes(kBytesMax));
  }
  return text;
}

// Parses text that begins at a line of the file, from 1. `keep`: as nlohmann::json::parse takes it.
inline Result<nlohmann::json> ParseJson(const std::string& path, const std::string& text, size_t line = 1,
                                        const nlohmann::json::parser_callback_t& keep = nullptr) {
  try {
    return nlohmann::json::parse(text, keep);
  } catch (const nlohmann::json::exception& error) {
    // The parser tells the place as well, counted from where it began.
    std::string reason = ReasonOf(error);
    const std::string_view place = "parse error at line ";
    if (reason.starts_with(place)) {
      size_t digits = 0;
      line += std::stoul(reason.substr(place.size()), &digits) - 1;
      reason.erase(0, place.size() + digits);
    } else {
      reason.insert(0, ": ");
    }
    return MakeStatus(Code::kInvalidArgument, "{}: line {}{}", path, line, reason);
  }
}

// The objects of a file, one a line as `train --json` prints them, or a single one over many lines. At least one.
inline Result<std::vector<JsonObject>> ReadObjects(const std::string& path) {
  QUARRY_TRY(const std::string text, ReadText(path));
  std::istringstream lines(text);
  std::vector<JsonObject> objects;
  size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    number++;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const bool single = objects.empty() && !nlohmann::json::accept(line);
    QUARRY_TRY(nlohmann::json value, ParseJson(path, single ? text : line, single ? 1 : number));
    objects.push_back({std::move(value), fmt::format("{}: line {}", path, number)});
    if (single) break;
  }
  if (objects.empty()) return MakeStatus(Code::kInvalidArgument, "{} is empty", path);
  return objects;
}

}  // namespace quarry::cli
