#include "config_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>

#include "cli.h"
#include "usage.h"

namespace quarry::cli {
namespace {

// CLI11's reader of TOML, with rules of our own about what it has read: CLI11 names neither the file nor, of
// a value that does not parse, the key; and takes `json = false` for a flag that was given.
class ConfigFile final : public CLI::ConfigTOML {
 public:
  explicit ConfigFile(CLI::App& app) : app_(app) {}

  // Applies what it reads, and leaves nothing to CLI11.
  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    std::istringstream text(WithoutComments({std::istreambuf_iterator<char>(input), {}}));
    for (CLI::ConfigItem& item : CLI::ConfigTOML::from_config(text)) {
      for (std::string& value : item.inputs) std::ranges::replace(value, kQuotedHash, '#');
      Take(item);
    }
    return {};
  }

 private:
  static constexpr char kQuotedHash = '\x1a';

  // CLI11 ends a line at any '#'; one in a string is another character for as long as it reads.
  static std::string WithoutComments(const std::string& text) {
    std::string kept;
    char quote = 0;
    bool comment = false;
    for (size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if (c == '\n') {
        quote = 0;
        comment = false;
      } else if (quote == 0 && c == '#') {
        comment = true;
      }
      if (comment) continue;
      kept += quote != 0 && c == '#' ? kQuotedHash : c;
      if (quote == '"' && c == '\\' && i + 1 < text.size() && text[i + 1] != '\n') {
        kept += text[++i] == '#' ? kQuotedHash : text[i];
      } else if (quote != 0 ? c == quote : c == '"' || c == '\'') {
        quote = quote != 0 ? 0 : c;
      }
    }
    return kept;
  }

  [[noreturn]] void Refuse(const std::string& fault) const {
    throw CLI::ConfigError(fmt::format("{}: {}", app_.get_config_ptr()->as<std::string>(), fault));
  }

  CLI::App& FindVerb(const std::vector<std::string>& section) const {
    CLI::App* verb = &app_;
    for (const std::string& name : section) {
      const std::vector<CLI::App*> verbs = VerbsOf(*verb);
      const auto found = std::ranges::find(verbs, name, [](const CLI::App* one) { return one->get_name(); });
      if (found == verbs.end()) {
        std::vector<std::string> names;
        for (const CLI::App* one : verbs) names.push_back(one->get_name());
        Refuse(fmt::format("section [{}]: there is no verb '{}'{}", CLI::detail::join(section, "."), name,
                           DidYouMean(name, names)));
      }
      verb = *found;
    }
    return *verb;
  }

  CLI::Option& FindOption(CLI::App& verb, const std::string& name) const {
    CLI::Option* option = verb.get_option_no_throw("--" + name);
    if (option == nullptr) option = verb.get_option_no_throw(name);  // DB and what else has no dashes
    if (option == nullptr || !option->get_configurable()) {
      std::vector<std::string> names;
      for (const CLI::Option* one : verb.get_options()) {
        if (one->get_configurable()) names.push_back(one->get_single_name());
      }
      Refuse(fmt::format("section [{}]: there is no option '{}'{}", CLI::detail::join(Section(verb), "."),
                         name, DidYouMean(name, names)));
    }
    return *option;
  }

  static std::vector<std::string> Section(const CLI::App& verb) {
    return CLI::detail::split(PathOf(verb), ' ');
  }

  void Take(const CLI::ConfigItem& item) const {
    if (item.parents.empty()) {
      Refuse(
          fmt::format("'{}' stands in front of the first section; options belong to a verb, as under [train]",
                      item.name));
    }
    CLI::App& verb = FindVerb(item.parents);
    if (item.name == "++" || item.name == "--") return;  // where a section begins and ends
    CLI::Option& option = FindOption(verb, item.name);
    for (const std::string& value : item.inputs) {
      if (value.empty() || (value[0] != '"' && value[0] != '\'')) continue;
      Refuse(fmt::format("{}: the quote of {} is not closed", item.fullname(), value));
    }
    if (&verb != &ChosenVerb(app_) || !option.empty()) return;
    option.get_expected_min() == 0 ? TakeFlag(item, option) : TakeValues(item, option);
  }

  void TakeFlag(const CLI::ConfigItem& item, CLI::Option& flag) const {
    const std::string value = item.inputs.size() == 1 ? item.inputs[0] : "";
    if (value != "true" && value != "false") {
      Refuse(fmt::format("{}: '{}' is neither true nor false", item.fullname(),
                         CLI::detail::join(item.inputs, ", ")));
    }
    if (value == "true") flag.add_result(value);
  }

  void TakeValues(const CLI::ConfigItem& item, CLI::Option& option) const {
    try {
      option.add_result(item.inputs);
      option.run_callback();
    } catch (const CLI::ParseError& error) {
      Refuse(fmt::format("{}: {}", item.fullname(), error.what()));
    }
  }

  CLI::App& app_;
};

}  // namespace

void AddConfig(CLI::App& app, std::string& save_path) {
  app.config_formatter(std::make_shared<ConfigFile>(app));
  app.set_config("--config", "", "options from a file in TOML, a section for each verb")
      ->type_name("FILE")
      ->check(CLI::ExistingFile.description(""));
  app.add_option("--save-config", save_path, "write what the command runs with, for --config")
      ->type_name("FILE")
      ->configurable(false);
}

std::string EffectiveConfig(const CLI::App& app) {
  const CLI::App& verb = ChosenVerb(app);
  std::string section = PathOf(verb);
  std::ranges::replace(section, ' ', '.');
  std::string text = fmt::format("# quarry {}\n[{}]\n", QUARRY_VERSION, section);
  const CLI::Option* const task = verb.get_option_no_throw("--task");
  const bool node = task != nullptr && (task->count() == 0 || task->results().back() != "link");
  for (const CLI::Option* option : verb.get_options()) {
    if (!option->get_configurable() || (node && option->get_group() == kLinkGroup)) continue;
    const std::string name = option->get_single_name();
    const std::string standard = option->get_default_str();
    if (option->count() > 0) {
      text += fmt::format("{} = {}\n", name, CLI::detail::ini_join(option->reduced_results()));
    } else if (!standard.empty()) {
      text += fmt::format("# {} = {}\n", name, CLI::detail::convert_arg_for_ini(standard));
    }
  }
  return text;
}

Status SaveConfig(const CLI::App& app, const std::string& path) {
  std::ofstream file(path);
  file << EffectiveConfig(app);
  file.close();
  return file ? Status::Ok() : ErrnoStatus(errno, "write", path);
}

}  // namespace quarry::cli
