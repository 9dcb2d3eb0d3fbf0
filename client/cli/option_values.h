// Values of options that CLI11 does not know: one of several names, shares, sizes and durations.
#pragma once

#include <charconv>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli.h"
#include "quarry/base/units.h"
#include "quarry/format/road_spec.h"
#include "quarry/format/types.h"

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

// The same of an enum that has names, whose default is what `value` is.
template <NamedEnum Enum>
CLI::Option* AddChoice(CLI::App* verb, const std::string& name, Enum& value, const std::string& help) {
  Choices<Enum> choices;
  for (const std::string_view choice : EnumNames<Enum>::kNames) {
    choices.emplace_back(choice, static_cast<Enum>(choices.size()));
  }
  return AddChoice(verb, name, value, choices, help)->default_str(std::string(NameOf(value)));
}

// Which numbers an option takes, in the words of the message that refuses others.
struct NumberRange {
  double min = 0, max = HUGE_VAL;
  bool min_included = true, max_included = true;
  bool whole = false;
  const char* words;    // "a number above 0"
  const char* example;  // "0.003"
};

// Refuses a number, when the command line is read, by its value, the range and an example.
inline CLI::Validator NumberIn(const NumberRange& range) {
  return {[range](const std::string& text) {
            double number = 0;
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
            bool good = error == std::errc() && end == text.data() + text.size() && std::isfinite(number);
            good = good && (number > range.min || (range.min_included && number == range.min));
            good = good && (number < range.max || (range.max_included && number == range.max));
            if (range.whole) good = good && text.find_first_not_of("0123456789") == std::string::npos;
            return good ? std::string()
                        : fmt::format("'{}' is not {}, such as {}", text, range.words, range.example);
          },
          ""};
}
inline CLI::Validator WholeFrom(double min, double max, const char* words, const char* example) {
  return NumberIn({.min = min, .max = max, .whole = true, .words = words, .example = example});
}
inline constexpr double kUint32Max = 4294967295;

// For nodes; nothing where the option is not given.
inline std::optional<Split> ParseSplit(const std::string& name) {
  if (name.empty()) return std::nullopt;
  if (name == "train") return Split::kTrain;
  if (name == "valid") return Split::kValid;
  return name == "test" ? Split::kTest : Split::kNone;
}

// A time that ends: CLI11's ranges let nan pass.
inline CLI::Validator PositiveSeconds() {
  const auto check = [](const std::string& text) -> std::string {
    double seconds = 0;
    if (CLI::detail::lexical_cast(text, seconds) && std::isfinite(seconds) && seconds > 0) return "";
    return fmt::format("'{}' is not a positive number of seconds", text);
  };
  return CLI::Validator(check, "POSITIVE");
}

// "1%" or "0.01"; whoever uses it checks the range.
inline Result<double> ParseShare(std::string_view flag, std::string_view text) {
  const bool percent = text.ends_with('%');
  const std::string_view digits = percent ? text.substr(0, text.size() - 1) : text;
  double share = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), share);
  if (error != std::errc() || end != digits.data() + digits.size() || !std::isfinite(share)) {
    return MakeStatus(Code::kUsage, "{}: '{}' is not a share; write 1% or 0.01", flag, text);
  }
  return percent ? share / 100 : share;
}

// A size of at least a byte, where leaving the option out has a meaning that 0 must not get by accident. A
// percentage is of `whole_bytes`; 0: nothing that is known yet.
inline Result<uint64_t> ParseSize(std::string_view flag, std::string_view text, uint64_t whole_bytes) {
  if (text.ends_with('%') && whole_bytes == 0) {
    return MakeStatus(Code::kUsage,
                      "{} {}: there is nothing here to take a share of; write a size, as 512MiB", flag, text);
  }
  const Result<uint64_t> bytes = ParseBytes(text, whole_bytes);
  if (!bytes.ok()) return MakeStatus(Code::kUsage, "{}: {}", flag, bytes.status().message());
  if (*bytes > 0) return bytes;
  return MakeStatus(Code::kUsage, "{} {}: a size is at least a byte; leave the option out for its default",
                    flag, text);
}

// --auto-compact[=TIMES] of verbs that change the graph, or see to it; 0: not given. A text, since CLI11 counts flags that are
// numbers.
inline void AddGraphAutoCompact(CLI::App* verb, double& slowdown_max, const std::string& when) {
  const auto text = std::make_shared<std::string>();
  verb->add_flag(
          "--auto-compact{1.3}", *text,
          "fold runs of edges into the graph's file " + when +
              ", once they slow sampling down by more than 1.3 times; --auto-compact=TIMES for another "
              "bound")
      ->check(NumberIn({.min = 1, .min_included = false, .words = "a number above 1", .example = "1.3"}))
      ->each([text, &slowdown_max](const std::string& times) {
        std::from_chars(times.data(), times.data() + times.size(), slowdown_max);
      });
}

// For seconds between `min` and `max`, neither of which is nan.
inline CLI::Validator SecondsBetween(double min, double max) {
  return {[min, max](const std::string& text) {
            double seconds = 0;
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
            const bool whole = error == std::errc() && end == text.data() + text.size();
            return whole && seconds >= min && seconds <= max
                       ? std::string()
                       : fmt::format("'{}' is no number of seconds from {} to {}", text, min, max);
          },
          ""};
}

}  // namespace quarry::cli
