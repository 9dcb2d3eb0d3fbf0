// quarry completion SHELL: a script that completes verbs, options and their values, made of the same tree
// that parses the command line.
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "cli.h"
#include "usage.h"

namespace quarry::cli {
namespace {

struct OptionWords {
  std::string name;  // without dashes
  std::string help;
  bool takes_value = false;
  std::vector<std::string> values;  // where only these are taken
};

struct VerbWords {
  std::string path;                                        // "layout build"; "" for the application
  std::vector<std::pair<std::string, std::string>> verbs;  // below it, with what they do
  std::vector<OptionWords> options;
  std::vector<std::string> arguments;  // what its arguments without dashes may be, where that is known
};

// "{in,out,both}" of "NAME:{in,out,both}": CLI11 shows the values of a check nowhere else.
std::vector<std::string> ValuesOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t open = type.find('{'), close = type.find('}');
  if (open == std::string::npos || close == std::string::npos) return {};
  return CLI::detail::split(type.substr(open + 1, close - open - 1), ',');
}

void Collect(const CLI::App& app, const CLI::App& verb, std::vector<VerbWords>& all) {
  VerbWords words{.path = PathOf(verb)};
  std::vector<const CLI::Option*> options = verb.get_options();
  for (const CLI::Option* option : app.get_options()) {  // those of the application stand behind a verb, too
    if (&verb != &app && option != app.get_help_ptr()) options.push_back(option);
  }
  std::erase_if(options, [](const CLI::Option* option) { return option->get_group().empty(); });  // hidden
  for (const CLI::Option* option : options) {
    const std::vector<std::string> values = ValuesOf(*option);
    for (const std::string& name : option->get_lnames()) {
      words.options.push_back({name, option->get_description(), option->get_expected_max() > 0, values});
    }
    if (option->get_positional()) {
      words.arguments.insert(words.arguments.end(), values.begin(), values.end());
    }
  }
  const std::vector<const CLI::App*> below = VerbsOf(verb);
  for (const CLI::App* one : below) words.verbs.emplace_back(one->get_name(), one->get_description());
  all.push_back(std::move(words));
  for (const CLI::App* one : below) Collect(app, *one, all);
}

// Within '...' of a shell, on one line.
std::string Quoted(std::string text, std::string_view quote) {
  std::ranges::replace(text, '\n', ' ');
  for (size_t at = 0; (at = text.find('\'', at)) != std::string::npos; at += quote.size()) {
    text.replace(at, 1, quote);
  }
  return text;
}

// The cases of a walk over the words so far that ends at the deepest verb: 'layout build' under 'layout'.
std::string StepsOf(const std::vector<VerbWords>& all, std::string_view separator) {
  std::vector<std::string> steps;
  for (const VerbWords& words : all) {
    for (const auto& [name, help] : words.verbs) steps.push_back(fmt::format("'{} {}'", words.path, name));
  }
  return fmt::format("{}", fmt::join(steps, separator));
}

std::string BashScript(const std::vector<VerbWords>& all) {
  std::string values, words;
  for (const VerbWords& verb : all) {
    std::vector<std::string> names;
    for (const OptionWords& option : verb.options) {
      names.push_back("--" + option.name);
      if (option.takes_value) {
        values += fmt::format("    '{} --{}') values='{}' ;;\n", verb.path, option.name,
                              fmt::join(option.values, " "));
      }
    }
    std::vector<std::string> others = verb.arguments;
    for (const auto& [name, help] : verb.verbs) others.push_back(name);
    words += fmt::format("    '{}') options='{}' words='{}' ;;\n", verb.path, fmt::join(names, " "),
                         fmt::join(others, " "));
  }
  // Where nothing is known, bash completes names of files.
  return fmt::format(R"(# source <(quarry completion bash)
_quarry() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} verb= values= options= words= i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$verb ${{COMP_WORDS[i]}}" in
      {}) verb="${{verb:+$verb }}${{COMP_WORDS[i]}}" ;;
    esac
  done
  COMPREPLY=()
  case "$verb $before" in
{}    *) values=none ;;
  esac
  if [[ $values != none ]]; then
    COMPREPLY=($(compgen -W "$values" -- "$word"))
    return
  fi
  case "$verb" in
{}  esac
  if [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$word"))
  else
    COMPREPLY=($(compgen -W "$words" -- "$word"))
  fi
}}
complete -o default -F _quarry quarry
)",
                     StepsOf(all, "|"), values, words);
}

std::string ZshScript(const std::vector<VerbWords>& all) {
  // A colon ends the word that is described.
  const auto described = [](const std::string& word, const std::string& help) {
    return fmt::format(" '{}:{}'", word, Quoted(help, R"('\'')"));
  };
  std::string values, words;
  for (const VerbWords& verb : all) {
    words += fmt::format("    '{}')\n      options=(", verb.path);
    for (const OptionWords& option : verb.options) {
      words += described("--" + option.name, option.help);
      if (option.takes_value) {
        values += fmt::format("    '{} --{}') values=({}) ;;\n", verb.path, option.name,
                              fmt::join(option.values, " "));
      }
    }
    words += ")\n      choices=(";
    for (const std::string& argument : verb.arguments) words += " '" + argument + "'";
    for (const auto& [name, help] : verb.verbs) words += described(name, help);
    words += ") ;;\n";
  }
  return fmt::format(R"(#compdef quarry
# source <(quarry completion zsh), behind compinit
_quarry() {{
  local verb= i known=yes
  local -a values options choices
  for ((i = 2; i < CURRENT; i++)); do
    case "$verb ${{words[i]}}" in
      {}) verb="${{verb:+$verb }}${{words[i]}}" ;;
    esac
  done
  case "$verb ${{words[CURRENT-1]}}" in
{}    *) known= ;;
  esac
  if [[ -n $known ]]; then
    (( $#values )) && compadd -a values || _files
    return
  fi
  case "$verb" in
{}  esac
  if [[ ${{words[CURRENT]}} == -* ]]; then
    _describe 'option' options
  elif (( $#choices )); then
    _describe 'verb' choices
  else
    _files
  fi
}}
compdef _quarry quarry
)",
                     StepsOf(all, "|"), values, words);
}

std::string FishScript(const std::vector<VerbWords>& all) {
  std::string lines;
  for (const VerbWords& verb : all) {
    const std::string when = fmt::format("complete -c quarry -n 'test (__quarry_verb) = \"{}\"'", verb.path);
    for (const std::string& argument : verb.arguments)
      lines += fmt::format("{} -f -a '{}'\n", when, argument);
    for (const auto& [name, help] : verb.verbs) {
      lines += fmt::format("{} -f -a '{}' -d '{}'\n", when, name, Quoted(help, R"(\')"));
    }
    for (const OptionWords& option : verb.options) {
      lines += fmt::format("{} -l '{}' -d '{}'", when, option.name, Quoted(option.help, R"(\')"));
      if (!option.values.empty()) {
        lines += fmt::format(" -x -a '{}'", fmt::join(option.values, " "));
      } else if (option.takes_value) {
        lines += " -r";
      }
      lines += "\n";
    }
  }
  return fmt::format(R"(# quarry completion fish | source
function __quarry_verb
  set -l verb ''
  for word in (commandline -opc)[2..]
    switch "$verb $word"
      case {}
        set verb (string trim "$verb $word")
    end
  end
  echo "$verb"
end
{})",
                     StepsOf(all, " "), lines);
}

Status PrintCompletion(const CLI::App& app, const std::string& shell) {
  std::vector<VerbWords> all;
  Collect(app, app, all);
  Print("{}", shell == "bash" ? BashScript(all) : shell == "zsh" ? ZshScript(all) : FishScript(all));
  return Status::Ok();
}

}  // namespace

void AddCompletion(CLI::App& app, Action& action) {
  CLI::App* verb =
      app.add_subcommand("completion", "print a script that completes quarry's words in a shell");
  auto shell = std::make_shared<std::string>();
  verb->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  verb->footer(
      "It is made of the verbs and options of this very build: read it anew with each shell, from ~/.bashrc "
      "or ~/.zshrc.\n"
      "Example: source <(quarry completion bash)\n"
      "         quarry completion fish | source");
  verb->callback([&app, shell, &action] { action = [&app, shell] { return PrintCompletion(app, *shell); }; });
}

}  // namespace quarry::cli
