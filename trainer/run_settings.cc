#include "run_settings.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace quarry {
namespace {

struct Setting {
  std::string_view option;
  std::string_view value;
};

std::vector<Setting> SettingsOf(std::string_view text) {
  constexpr std::string_view kNext = " --";
  std::vector<Setting> settings;
  while (!text.empty()) {
    const std::string_view one = text.substr(0, text.find(kNext));
    text.remove_prefix(std::min(text.size(), one.size() + 1));
    const size_t blank = std::min(one.find(' '), one.size());
    settings.push_back({one.substr(0, blank), one.substr(std::min(blank + 1, one.size()))});
  }
  return settings;
}

std::string_view ValueIn(const std::vector<Setting>& settings, std::string_view option) {
  const auto found = std::ranges::find(settings, option, &Setting::option);
  return found == settings.end() ? "not set" : found->value;
}

}  // namespace

std::string_view SettingIn(std::string_view settings, std::string_view option) {
  const std::vector<Setting> all = SettingsOf(settings);
  const auto found = std::ranges::find(all, option, &Setting::option);
  return found == all.end() ? std::string_view() : found->value;
}

Status CheckSettings(std::string_view run, std::string_view stored, std::string_view given) {
  const std::vector<Setting> before = SettingsOf(stored);
  const std::vector<Setting> now = SettingsOf(given);
  for (const auto* settings : {&before, &now}) {
    for (const Setting& setting : *settings) {
      const std::string_view was = ValueIn(before, setting.option);
      const std::string_view is = ValueIn(now, setting.option);
      if (was == is) continue;
      return MakeStatus(Code::kUsage,
                        "{} is {}, but was {} when run \"{}\" took its checkpoint: --resume goes on with the "
                        "same, --overwrite begins the run anew",
                        setting.option, is, was, run);
    }
  }
  return Status::Ok();
}

}  // namespace quarry
