#include "quarry/format/wire_status.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>
#include <type_traits>

#include "quarry/base/fields.h"
#include "quarry/base/json.h"
#include "quarry/format/wire.h"

namespace quarry::wire {
namespace {

std::string Json(const std::string& text) { return JsonString(text); }

template <typename Number>
requires std::is_arithmetic_v<Number> std::string Json(Number value) {
  return std::isfinite(static_cast<double>(value)) ? fmt::format("{}", value) : "null";
}

template <Record Struct>
std::string Json(const std::vector<Struct>& records);
std::string Json(const std::vector<Counter>& counters);

// A struct's fields by their names.
template <Record Struct>
std::string Json(const Struct& record) {
  std::string json;
  ForEachField(record, [&](std::string_view name, const auto& field) {
    json += fmt::format("{}\"{}\":{}", json.empty() ? "" : ",", name, Json(field));
  });
  return "{" + json + "}";
}

template <Record Struct>
std::string Json(const std::vector<Struct>& records) {
  std::string json;
  for (const Struct& record : records) json += (json.empty() ? "" : ",") + Json(record);
  return "[" + json + "]";
}

// Counters are one object, of a field for each of them.
std::string Json(const std::vector<Counter>& counters) {
  std::string json;
  for (const Counter& counter : counters) {
    json += fmt::format("{}{}:{}", json.empty() ? "" : ",", JsonString(counter.name), Json(counter.value));
  }
  return "{" + json + "}";
}

template <typename T>
uint64_t Cut(std::vector<T>& records) {
  if (records.size() <= kListedMax) return 0;
  const uint64_t left_out = records.size() - kListedMax;
  records.resize(kListedMax);
  return left_out;
}

}  // namespace

void LeaveOutWhatFindsNoRoom(ServerStatus& status) {
  status.sessions_left_out += Cut(status.sessions);
  status.streams_left_out += Cut(status.streams);
}

std::string ToJson(const ServerStatus& status) { return Json(status); }

}  // namespace quarry::wire
