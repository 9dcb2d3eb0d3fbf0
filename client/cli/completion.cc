// quarry completion SHELL: a script that asks quarry itself, at each TAB, what the words may go on with.
#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "cli.h"
#include "opened_store.h"
#include "server_address.h"
#include "usage.h"

namespace quarry::cli {
namespace {

// What a shell runs: the words behind `quarry`, the last of which is being typed. Where the answer is empty,
// names of files complete.
constexpr std::string_view kBashScript = R"script(# source <(quarry completion bash)
_quarry() {
  local IFS=$'\n'
  COMPREPLY=($(quarry __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2> /dev/null | cut -f 1))
}
complete -o default -F _quarry quarry
)script";

constexpr std::string_view kZshScript = R"script(#compdef quarry
# source <(quarry completion zsh), behind compinit
_quarry() {
  local -a found
  found=(${(f)"$(quarry __complete "${(@)words[2,CURRENT]}" 2> /dev/null)"})
  found=(${found/$'\t'/:})
  if (( $#found )); then _describe quarry found; else _files; fi
}
# A file of fpath is this function's body until it runs for the first time.
if [[ ${funcstack[1]} == _quarry ]]; then _quarry "$@"; else compdef _quarry quarry; fi
)script";

constexpr std::string_view kFishScript = R"script(# quarry completion fish | source
function __quarry
  set -l found (quarry __complete (commandline -opc)[2..] (commandline -ct) 2> /dev/null)
  if set -q found[1]
    string join \n -- $found
  else
    __fish_complete_path (commandline -ct)
  end
end
complete -c quarry -f -a '(__quarry)'
)script";

struct Candidate {
  std::string word, help;
};

// "{in,out,both}" of "NAME:{in,out,both}": CLI11 shows the values of a check nowhere else.
void AddValues(const CLI::Option& option, std::vector<Candidate>& candidates) {
  const std::string type = option.get_type_name();
  const size_t open = type.find('{'), close = type.find('}');
  if (open == std::string::npos || close == std::string::npos) return;
  for (const std::string& value : CLI::detail::split(type.substr(open + 1, close - open - 1), ',')) {
    candidates.push_back({value, ""});
  }
}

// What a database has names of.
enum class Named { kNothing, kLayouts, kRuns, kTables, kPartitionings, kEmbeddings };

// Of what the last word is a name: the value of the option before it, or the NAME of a verb.
Named NamedBy(const CLI::App& verb, std::span<const std::string_view> words) {
  const std::string_view before = words.size() > 1 ? words[words.size() - 2] : "";
  constexpr std::pair<std::string_view, Named> kOptions[] = {{"--layout", Named::kLayouts},
                                                             {"--run", Named::kRuns},
                                                             {"--table", Named::kTables},
                                                             {"--partitioning", Named::kPartitionings}};
  for (const auto& [option, named] : kOptions) {
    if (before == option) return named;
  }
  const CLI::Option* const name = verb.get_option_no_throw("NAME");
  if (name == nullptr || !name->get_positional() || words.back().starts_with('-')) return Named::kNothing;
  const std::string path = PathOf(verb);
  if (path.starts_with("layout")) return Named::kLayouts;
  if (path.starts_with("partition")) return Named::kPartitionings;
  constexpr std::pair<std::string_view, Named> kKinds[] = {{"layout", Named::kLayouts},
                                                           {"training", Named::kRuns},
                                                           {"table", Named::kTables},
                                                           {"embeddings", Named::kEmbeddings}};
  for (const auto& [kind, named] : kKinds) {
    if (path == "drop" && before == kind) return named;
  }
  return Named::kNothing;
}

// Nothing where no word before the last one is a database, or somebody else has it open.
void AddNames(Named named, std::span<const std::string_view> words, std::vector<Candidate>& candidates) {
  const auto database = std::ranges::find_if(words.first(words.size() - 1), [](std::string_view word) {
    std::error_code error;
    return IsServerAddress(word) || std::filesystem::is_directory(word, error);
  });
  if (named == Named::kNothing || database == words.end() - 1) return;
  const std::string address(*database);
  const Result<std::unique_ptr<client::Store>> store = OpenStore(address);
  if (!store.ok()) return;
  const Result<Manifest> manifest = ManifestOf(**store, address);
  if (!manifest.ok()) return;
  const auto add = [&](const auto& records) {
    for (const auto& record : records) candidates.push_back({record.name, ""});
  };
  if (named == Named::kLayouts) add(manifest->layouts);
  if (named == Named::kRuns) add(manifest->trainings);
  if (named == Named::kTables) add(manifest->tables);
  if (named == Named::kPartitionings) add(manifest->partitionings);
  if (named == Named::kEmbeddings) add(manifest->embeddings);
}

// What the last word may become: the value of an option before it, an option, a verb, or a value of one of the
// verb's arguments.
std::vector<Candidate> CandidatesFor(const CLI::App& app, std::span<const std::string_view> words) {
  const CLI::App* verb = &app;
  for (const std::string_view word : words.first(words.size() - 1)) {
    for (const CLI::App* below : VerbsOf(*verb)) {
      if (below->get_name() == word) verb = below;
    }
  }
  std::vector<const CLI::Option*> options = verb->get_options();
  for (const CLI::Option* option : app.get_options()) {  // those of the application stand behind a verb, too
    if (verb != &app && option != app.get_help_ptr()) options.push_back(option);
  }
  std::erase_if(options, [](const CLI::Option* option) { return option->get_group().empty(); });  // hidden
  const std::string_view before = words.size() > 1 ? words[words.size() - 2] : "";
  std::vector<Candidate> names, values;
  for (const CLI::Option* option : options) {
    for (const std::string& name : option->get_lnames()) {
      names.push_back({"--" + name, option->get_description()});
      if (names.back().word != before || option->get_expected_max() == 0) continue;
      std::vector<Candidate> of_option;
      AddValues(*option, of_option);
      AddNames(NamedBy(*verb, words), words, of_option);
      return of_option;
    }
    if (option->get_positional()) AddValues(*option, values);
  }
  if (words.back().starts_with('-')) return names;
  for (const CLI::App* below : VerbsOf(*verb))
    values.push_back({below->get_name(), below->get_description()});
  AddNames(NamedBy(*verb, words), words, values);
  return values;
}

}  // namespace

void PrintCompletions(const CLI::App& app, std::span<const std::string_view> words) {
  if (words.empty()) return;
  for (Candidate& candidate : CandidatesFor(app, words)) {
    if (!candidate.word.starts_with(words.back())) continue;
    std::ranges::replace(candidate.help, '\n', ' ');
    Print("{}\t{}\n", candidate.word, candidate.help);
  }
}

void AddCompletion(CLI::App& app, Action& action) {
  CLI::App* verb =
      app.add_subcommand("completion", "print a script that completes quarry's words in a shell");
  auto shell = std::make_shared<std::string>();
  verb->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  verb->footer(
      "At each TAB the script asks the quarry that is on the PATH. Read it from ~/.bashrc, ~/.zshrc or\n"
      "~/.config/fish/config.fish.\n"
      "Example: source <(quarry completion bash)\n"
      "         quarry completion fish | source");
  verb->callback([shell, &action] {
    action = [shell] {
      Print("{}", *shell == "bash" ? kBashScript : *shell == "zsh" ? kZshScript : kFishScript);
      return Status::Ok();
    };
  });
}

}  // namespace quarry::cli
