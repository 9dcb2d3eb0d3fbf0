#include "plot_json.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "quarry/base/units.h"

namespace quarry::cli {
namespace {

constexpr uint64_t kObjectsBytesMax = 64 * kMiB;

size_t LinesBetween(const std::string& text, size_t begin, size_t end) {
  const std::string_view part = std::string_view(text).substr(begin, end - begin);
  return static_cast<size_t>(std::ranges::count(part, '\n'));
}

// A field that must be there, and of this kind; `wanted` says which.
Result<const nlohmann::json*> Need(const JsonObject& object, const std::string& field,
                                   std::string_view wanted,
                                   bool (nlohmann::json::*is_wanted)() const noexcept) {
  const auto found = object.value.find(field);
  if (found == object.value.end()) {
    return MakeStatus(Code::kInvalidArgument, "{}: no \"{}\"", object.place, field);
  }
  if (((*found).*is_wanted)()) return &*found;
  return MakeStatus(Code::kInvalidArgument, "{}: \"{}\" is {}, and not {}", object.place, field,
                    found->type_name(), wanted);
}

Status CheckObject(const JsonObject& object) {
  if (object.value.is_object()) return Status::Ok();
  return MakeStatus(Code::kInvalidArgument, "{}: {}, and not an object", object.place,
                    object.value.type_name());
}

}  // namespace

Result<std::string> ReadText(const std::string& path, uint64_t bytes_max) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return MakeStatus(Code::kInvalidArgument, "{} is a folder, and not a JSON file", path);
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return ErrnoStatus(errno != 0 ? errno : EIO, "open", path);
  std::string text;
  std::string piece(kMiB, '\0');
  while (file.read(piece.data(), static_cast<std::streamsize>(piece.size())) || file.gcount() > 0) {
    text.append(piece, 0, static_cast<size_t>(file.gcount()));
    if (text.size() > bytes_max) {
      return MakeStatus(Code::kInvalidArgument, "{} has more than the {} that can be drawn", path,
                        FormatBytes(bytes_max));
    }
  }
  return text;
}

Status JsonFault(const std::string& path, const std::string& text, size_t begin,
                 const nlohmann::json::parse_error& error) {
  const size_t byte = begin + (error.byte > 0 ? error.byte - 1 : 0);
  const size_t line_begin = byte == 0 ? std::string::npos : text.rfind('\n', byte - 1);
  const size_t column = byte - (line_begin == std::string::npos ? 0 : line_begin + 1) + 1;
  // "[json.exception.parse_error.101] parse error at line 1, column 5: syntax error ...": its place is
  // counted from where the parser began.
  std::string what = error.what();
  if (const size_t at = what.find(": "); at != std::string::npos) what.erase(0, at + 2);
  return MakeStatus(Code::kInvalidArgument, "{}: line {}, column {}: no JSON: {}", path,
                    1 + LinesBetween(text, 0, byte), column, what);
}

Result<std::vector<JsonObject>> ReadObjects(const std::string& path) {
  QUARRY_TRY(const std::string text, ReadText(path, kObjectsBytesMax));
  std::istringstream stream(text);
  std::vector<JsonObject> objects;
  size_t line = 1, counted = 0;
  while (stream >> std::ws && stream.peek() != std::istringstream::traits_type::eof()) {
    const auto begin = static_cast<size_t>(stream.tellg());
    line += LinesBetween(text, counted, begin);
    counted = begin;
    JsonObject object{.place = fmt::format("{}: line {}", path, line)};
    try {
      stream >> object.value;
    } catch (const nlohmann::json::parse_error& error) {
      return JsonFault(path, text, begin, error);
    } catch (const nlohmann::json::exception& error) {  // a number that no double holds
      return MakeStatus(Code::kInvalidArgument, "{}: no JSON: {}", object.place, error.what());
    }
    QUARRY_RETURN_IF_ERROR(CheckObject(object));
    objects.push_back(std::move(object));
  }
  if (objects.empty()) return MakeStatus(Code::kInvalidArgument, "{} is empty", path);
  return objects;
}

Result<double> JsonObject::Number(const std::string& field) const {
  QUARRY_TRY(const nlohmann::json* const number, Need(*this, field, "a number", &nlohmann::json::is_number));
  return number->get<double>();
}

Result<std::string> JsonObject::Text(const std::string& field) const {
  QUARRY_TRY(const nlohmann::json* const text, Need(*this, field, "a text", &nlohmann::json::is_string));
  return text->get<std::string>();
}

Result<std::vector<JsonObject>> JsonObject::Objects(const std::string& field) const {
  QUARRY_TRY(const nlohmann::json* const array, Need(*this, field, "an array", &nlohmann::json::is_array));
  std::vector<JsonObject> objects;
  for (const nlohmann::json& element : *array) {
    objects.push_back({element, fmt::format("{}: {}[{}]", place, field, objects.size())});
    QUARRY_RETURN_IF_ERROR(CheckObject(objects.back()));
  }
  return objects;
}

Result<std::optional<double>> JsonObject::NumberIfAny(const std::string& field) const {
  const auto found = value.find(field);
  if (found == value.end() || found->is_null()) return std::optional<double>();
  QUARRY_TRY(const double number, Number(field));
  return std::optional<double>(number);
}

}  // namespace quarry::cli
