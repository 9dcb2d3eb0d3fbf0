#include "usage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace quarry::cli {
namespace {

// Letters that are missing, too many, wrong, or swapped with their neighbor (optimal string alignment).
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
    before_last.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

std::vector<std::string> NamesOf(const std::vector<const CLI::App*>& verbs) {
  std::vector<std::string> names;
  for (const CLI::App* verb : verbs) names.push_back(verb->get_name());
  return names;
}

// "--layers" of "--layers" and of "--layers=3".
std::string NameIn(const std::string& word) { return word.substr(0, word.find('=')); }

std::string UnknownOption(const CLI::App& app, const CLI::App& verb, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* taker : {&verb, &app}) {
    for (const CLI::Option* option : taker->get_options()) {
      if (option->get_group().empty()) continue;  // in no help
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
  }
  const std::string command = &verb == &app ? "quarry" : "quarry " + PathOf(verb);
  std::string meant = DidYouMean(NameIn(word), names);
  // "-o": the long one that begins so.
  if (word.size() == 2) {
    const auto longer =
        std::ranges::find_if(names, [&](const std::string& name) { return name[2] == word[1]; });
    if (longer != names.end()) meant = fmt::format("; did you mean '{}'?", *longer);
  }
  return fmt::format("`{}` has no option '{}'{}", command, NameIn(word),
                     meant.empty() ? fmt::format("; `{} --help` lists them", command) : meant);
}

std::string UnknownVerb(const CLI::App& parent, const std::string& word) {
  const std::vector<std::string> verbs = NamesOf(VerbsOf(parent));
  const std::string path = PathOf(parent);
  const std::string meant = DidYouMean(word, verbs);
  return fmt::format("there is no verb '{}'{}", path.empty() ? word : path + " " + word,
                     meant.empty() ? fmt::format("; the verbs are {}", fmt::join(verbs, ", ")) : meant);
}

// A value that an option cannot be made of. CLI11 names both, and says neither what is taken nor an example.
std::string NotConverted(const CLI::App& verb, const std::string& text) {
  constexpr std::string_view kBegin = "Could not convert: ", kBetween = " = ";
  const size_t between = text.find(kBetween);
  if (!text.starts_with(kBegin) || between == std::string::npos) return text;
  const std::string name = text.substr(kBegin.size(), between - kBegin.size());
  const CLI::Option* const option = verb.get_option_no_throw(name);
  const std::string type = option == nullptr ? "" : option->get_type_name();
  const std::string_view what = type.starts_with("UINT")    ? "a whole number of 0 or more"
                                : type.starts_with("INT")   ? "a whole number"
                                : type.starts_with("FLOAT") ? "a number"
                                                            : "what it takes";
  const std::string given = option == nullptr ? "" : option->get_default_str();
  return fmt::format("{}: '{}' is not {}{}", name, text.substr(between + kBetween.size()), what,
                     given.empty() ? "" : ", such as the default " + given);
}

}  // namespace

std::vector<CLI::App*> VerbsOf(CLI::App& app) {
  return app.get_subcommands([](const CLI::App* verb) { return !verb->get_name().empty(); });
}

std::vector<const CLI::App*> VerbsOf(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* verb) { return !verb->get_name().empty(); });
}

std::string PathOf(const CLI::App& verb) {
  if (verb.get_parent() == nullptr) return "";
  const std::string parent = PathOf(*verb.get_parent());
  return parent.empty() ? verb.get_name() : parent + " " + verb.get_name();
}

const CLI::App& ChosenVerb(const CLI::App& app) {
  const CLI::App* verb = &app;
  while (!verb->get_subcommands().empty()) verb = verb->get_subcommands().front();
  return *verb;
}

void GroupOptions(CLI::App& verb, const std::string& title, std::initializer_list<const char*> names) {
  for (const char* const name : names) {
    if (CLI::Option* const option = verb.get_option_no_throw(name)) option->group(title);
  }
}

std::string FitHelp(std::string_view text, size_t width) {
  std::string fitted;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t begin = std::min(line.find_first_not_of(' '), line.size());
    const bool command = line.find("quarry ") != std::string_view::npos;
    // Where a second column begins, if there is one.
    const size_t gap = line.find("  ", begin);
    const size_t second = gap == std::string_view::npos ? gap : line.find_first_not_of(' ', gap);
    const size_t indent = second < width / 2 ? second : begin;
    for (size_t room = width; width > 0 && !command && line.size() > room; room = width - indent) {
      const size_t space = line.rfind(' ', room);
      if (space == std::string_view::npos || (room == width && space <= indent)) break;
      fitted.append(line.substr(0, space)).append("\n").append(indent, ' ');
      line.remove_prefix(space + 1);
    }
    fitted.append(line).append("\n");
  }
  return fitted;
}

std::string Nearest(std::string_view word, std::span<const std::string> candidates) {
  std::string nearest;
  size_t least = word.size() < 6 ? 2 : 3;  // one slip in a short word, two in a long one
  for (const std::string& candidate : candidates) {
    const size_t distance = EditDistance(word, candidate);
    if (distance >= least) continue;
    least = distance;
    nearest = candidate;
  }
  return nearest;
}

std::string DidYouMean(std::string_view word, std::span<const std::string> candidates) {
  const std::string nearest = Nearest(word, candidates);
  return nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest);
}

std::string UsageFault(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& verb = ChosenVerb(app);
  const std::vector<std::string> words = app.remaining(/*recurse=*/true);
  // In front of what else is missing: `quarry train --lyers 3` lacks a database, too.
  for (const std::string& word : words) {
    if (word.size() > 1 && word[0] == '-' && word != "--") return UnknownOption(app, verb, word);
  }
  if (!VerbsOf(verb).empty() && !words.empty()) return UnknownVerb(verb, words.front());
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) return NotConverted(verb, error.what());
  if (&verb == &app && words.empty() && app.get_subcommands().empty()) {
    return "there is no verb: `quarry --help` lists them, `quarry VERB --help` has an example of one";
  }
  if (!VerbsOf(verb).empty() && words.empty() && verb.get_subcommands().empty()) {
    return fmt::format("`quarry {}` goes on with one of {}", PathOf(verb),
                       fmt::join(NamesOf(VerbsOf(verb)), ", "));
  }
  return error.what();
}

}  // namespace quarry::cli
