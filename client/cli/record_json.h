// Records of the catalog as verbs show them in JSON: every field that a record declares, under the name that verbs have
// for it, so that none is listed here. What is counted is called by its plural (node_count: "nodes"), what is there or not by
// its own name (has_csr: "csr"); what nobody has set is null.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "quarry/base/fields.h"
#include "quarry/format/manifest.h"

namespace quarry::cli {

// Keeps the fields in the order in which they are added.
using Json = nlohmann::ordered_json;

inline std::string KeyOf(std::string_view field) {
  constexpr std::string_view kHas = "has_", kCount = "_count";
  if (field.starts_with(kHas)) field.remove_prefix(kHas.size());
  if (!field.ends_with(kCount)) return std::string(field);
  field.remove_suffix(kCount.size());
  return std::string(field) + (field.ends_with("s") || field.ends_with("ch") ? "es" : "s");
}

template <Record T>
Json FieldsOf(const T& record);

template <typename T>
Json ValueOf(const T& value) {
  if constexpr (NamedEnum<T>) {
    return NameOf(value);
  } else if constexpr (std::is_same_v<T, ElementType>) {
    return ElementTypeName(value);
  } else if constexpr (std::is_same_v<T, std::string>) {
    return value.empty() ? Json() : Json(value);
  } else if constexpr (std::is_same_v<T, int64_t>) {  // a timestamp
    return value < 0 ? Json() : Json(value);
  } else if constexpr (requires { value.has_value(); }) {
    return value ? ValueOf(*value) : Json();
  } else if constexpr (std::is_arithmetic_v<T>) {
    return value;
  } else if constexpr (Record<T>) {
    return FieldsOf(value);
  } else if constexpr (std::is_same_v<typename T::value_type, std::byte>) {  // an id
    std::string text;
    for (const std::byte byte : value) text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
    return text;
  } else {
    Json list = Json::array();
    for (const auto& one : value) list.push_back(ValueOf(one));
    return list;
  }
}

template <Record T>
Json FieldsOf(const T& record) {
  Json json = Json::object();
  ForEachField(record, [&](std::string_view name, const auto& value) { json[KeyOf(name)] = ValueOf(value); });
  return json;
}

// Calls one of the fields by another name, at the end.
inline void Rename(Json& json, const char* from, const char* to) {
  json[to] = Json(json[from]);
  json.erase(std::string(from));
}

inline Json LayoutJson(const LayoutRecord& record) {
  Json json = FieldsOf(record);
  Json spec = std::move(json["spec"]);
  Rename(spec, "feature_table", "table");
  spec.erase(std::string("cache_bytes"));  // cache_rows says so
  json.erase(std::string("spec"));
  json.update(spec);
  const Json share = std::move(json["share"]);
  json.erase(std::string("share"));
  json.update(share);
  Rename(json, "row_bytes_read", "bytes_read");
  Rename(json, "useful_bytes", "bytes_useful");
  json["files"] = 2 + record.bases.size();
  json["disk_bytes"] = record.total_bytes();
  return json;
}

}  // namespace quarry::cli
