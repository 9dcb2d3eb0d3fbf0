// What is wrong with a command line, and what was probably meant.
#pragma once

#include <CLI/CLI.hpp>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quarry::cli {

// The named verbs under a verb, or under the whole application.
std::vector<CLI::App*> VerbsOf(CLI::App& app);
std::vector<const CLI::App*> VerbsOf(const CLI::App& app);

// "train", "layout build"; "" for the application itself.
std::string PathOf(const CLI::App& verb);

// The deepest verb that was given.
const CLI::App& ChosenVerb(const CLI::App& app);

// `text` of a help in lines of at most `width` characters (0: of any): what an option or a verb does goes on
// below where it began. Lines with a command to copy stay whole.
std::string FitHelp(std::string_view text, size_t width);

// CLI11's help, fitted.
class HelpFormatter final : public CLI::Formatter {
 public:
  explicit HelpFormatter(size_t width) : width_(width) {}
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    return FitHelp(CLI::Formatter::make_help(app, std::move(name), mode), width_);
  }

 private:
  const size_t width_;
};

// Puts options of a verb, by their names, under a title of their own in its help; those that it lacks are passed over.
void GroupOptions(CLI::App& verb, const std::string& title, std::initializer_list<const char*> names);

// The candidate that `word` is most like, where it is one or two slips of the fingers away; "" where none is.
std::string Nearest(std::string_view word, std::span<const std::string> candidates);

// "; did you mean 'train'?", or nothing.
std::string DidYouMean(std::string_view word, std::span<const std::string> candidates);

// One sentence about an error of CLI11, which says of a mistyped verb only that one is required.
std::string UsageFault(const CLI::App& app, const CLI::ParseError& error);

}  // namespace quarry::cli
