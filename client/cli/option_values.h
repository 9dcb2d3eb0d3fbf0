// Values of options that CLI11 does not know: one of several names, and shares.
#pragma once

#include <charconv>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli.h"

namespace quarry::cli {

// Names and what they mean.
template <typename Value>
using Choices = std::vector<std::pair<std::string, Value>>;

template <typename Value>
std::string NameOf(const Choices<Value>& choices, Value value) {
  for (const auto& [name, meaning] : choices) {
    if (meaning == value) return name;
  }
  return "";
}

// An option that takes one of the names, and sets `value` to what it means.
template <typename Value>
CLI::Option* AddChoice(CLI::App* verb, const std::string& name, Value& value, const Choices<Value>& choices,
                       const std::string& help) {
  std::vector<std::string> names;
  for (const auto& choice : choices) names.push_back(choice.first);
  const auto take = [&value, choices](const std::string& chosen) {
    for (const auto& [choice, meaning] : choices) {
      if (choice == chosen) value = meaning;
    }
  };
  return verb->add_option_function<std::string>(name, take, help)
      ->type_name("NAME")
      ->check(CLI::IsMember(names));
}

// "1%" or "0.01"; whoever uses it checks the range.
inline Result<double> ParseShare(std::string_view flag, std::string_view text) {
  const bool percent = text.ends_with('%');
  const std::string_view digits = percent ? text.substr(0, text.size() - 1) : text;
  double share = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), share);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    return MakeStatus(Code::kUsage, "{}: '{}' is not a share; write 1% or 0.01", flag, text);
  }
  return percent ? share / 100 : share;
}

}  // namespace quarry::cli
