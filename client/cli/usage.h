// What is wrong with a command line, and what was probably meant.
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quarry::cli {

// The named verbs under a verb, or under the whole application.
std::vector<CLI::App*> VerbsOf(CLI::App& app);
std::vector<const CLI::App*> VerbsOf(const CLI::App& app);

// "train", "layout build"; "" for the application itself.
std::string PathOf(const CLI::App& verb);

// The deepest verb that was given.
const CLI::App& ChosenVerb(const CLI::App& app);

// The candidate that `word` is most like, where it is one or two slips of the fingers away; "" where none is.
std::string Nearest(std::string_view word, std::span<const std::string> candidates);

// "; did you mean 'train'?", or nothing.
std::string DidYouMean(std::string_view word, std::span<const std::string> candidates);

// One sentence about an error of CLI11, which says of a mistyped verb only that one is required.
std::string UsageFault(const CLI::App& app, const CLI::ParseError& error);

}  // namespace quarry::cli
