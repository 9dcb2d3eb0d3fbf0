// quarry completion SHELL: a script that asks quarry itself, at each TAB, what the words may go on with.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
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

// The words before the last one, as the command line takes them.
struct Typed {
  const CLI::App* verb = nullptr;
  std::vector<std::string_view> values;  // of the verb's positional arguments
};

const CLI::Option* FindOption(const CLI::App& app, const CLI::App& verb, std::string_view word) {
  const CLI::Option* const option = verb.get_option_no_throw(std::string(word));
  return option != nullptr ? option : app.get_option_no_throw(std::string(word));
}

Typed Parse(const CLI::App& app, std::span<const std::string_view> words) {
  Typed typed{.verb = &app};
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i].starts_with('-')) {
      const CLI::Option* const option = FindOption(app, *typed.verb, words[i]);
      if (option != nullptr && option->get_expected_max() > 0) ++i;  // its value
      continue;
    }
    const std::vector<const CLI::App*> below = VerbsOf(*typed.verb);
    const auto verb = std::ranges::find(below, words[i], &CLI::App::get_name);
    if (typed.values.empty() && verb != below.end()) {
      typed.verb = *verb;
    } else {
      typed.values.push_back(words[i]);
    }
  }
  return typed;
}

// The place among the verb's positional arguments; nothing: it has none of the name.
std::optional<size_t> PlaceOf(const CLI::App& verb, std::string_view argument) {
  size_t place = 0;
  for (const CLI::Option* option : verb.get_options()) {
    if (!option->get_positional()) continue;
    if (option->get_name(/*positional=*/true) == argument) return place;
    ++place;
  }
  return {};
}

// What the value of an option names.
Named NamedByOption(std::string_view option) {
  constexpr std::pair<std::string_view, Named> kOptions[] = {
      {"--layout", Named::kLayouts}, {"--run", Named::kRuns},      {"--from", Named::kRuns},
      {"--table", Named::kTables},   {"--target", Named::kTables}, {"--partitioning", Named::kPartitionings}};
  for (const auto& [name, named] : kOptions) {
    if (name == option) return named;
  }
  return Named::kNothing;
}

// What the verb's NAME is one of, where it is next.
Named NamedByArgument(const Typed& typed) {
  if (PlaceOf(*typed.verb, "NAME") != typed.values.size()) return Named::kNothing;
  const std::string path = PathOf(*typed.verb);
  if (path.starts_with("layout")) return Named::kLayouts;
  if (path.starts_with("partition")) return Named::kPartitionings;
  constexpr std::pair<std::string_view, Named> kKinds[] = {{"layout", Named::kLayouts},
                                                           {"training", Named::kRuns},
                                                           {"table", Named::kTables},
                                                           {"embeddings", Named::kEmbeddings}};
  for (const auto& [kind, named] : kKinds) {
    if (path == "drop" && typed.values.back() == kind) return named;
  }
  return Named::kNothing;
}

// Nothing where the verb's DB is no database, or somebody else has it open. A server that does not answer is waited for a
// second, and then nothing completes.
void AddNames(Named named, const Typed& typed, std::vector<Candidate>& candidates) {
  const std::optional<size_t> place = PlaceOf(*typed.verb, "DB");
  if (named == Named::kNothing || !place || *place >= typed.values.size()) return;
  const std::string address(typed.values[*place]);
  std::error_code error;
  if (IsServerAddress(address)) {
    std::signal(SIGALRM, [](int) { _exit(0); });
    alarm(1);
  } else if (!std::filesystem::is_directory(address, error)) {
    return;
  }
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
  const Typed typed = Parse(app, words);
  const CLI::App* const verb = typed.verb;
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
      AddNames(NamedByOption(before), typed, of_option);
      return of_option;
    }
    if (option->get_positional()) AddValues(*option, values);
  }
  if (words.back().starts_with('-')) return names;
  for (const CLI::App* below : VerbsOf(*verb))
    values.push_back({below->get_name(), below->get_description()});
  AddNames(NamedByArgument(typed), typed, values);
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
