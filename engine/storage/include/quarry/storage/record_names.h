// What is said where no record of the manifest has a name that was asked for.
#pragma once

#include <string>
#include <string_view>

#include "quarry/base/status.h"

namespace quarry {

// "there is no table "x"; tables: a, b": the names that there are, for the sentence's kNotFound.
template <typename Records>
std::string ThereIsNo(std::string_view kind, std::string_view name, std::string_view kinds,
                      const Records& records) {
  std::string names;
  for (const auto& record : records) names += (names.empty() ? "" : ", ") + record.name;
  return fmt::format("there is no {} \"{}\"; {}: {}", kind, name, kinds, names.empty() ? "none" : names);
}

}  // namespace quarry
