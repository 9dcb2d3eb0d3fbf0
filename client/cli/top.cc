// quarry top: what a server does, in a terminal.
#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli.h"
#include "http_get.h"
#include "print_json.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/client/store.h"
#include "screen.h"
#include "server_address.h"
#include "top_view.h"

namespace quarry::cli {
namespace {

constexpr double kRefreshSeconds = 1;

struct TopArguments {
  std::string address;
  std::string url;
  bool once = false;
  bool json = false;
};

// As FromCounters has them, from /status.json.
Result<std::vector<wire::Counter>> CountersIn(const std::string& text, std::string_view url) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  std::vector<wire::Counter> counters;
  const auto add_items = [&](const char* list, std::string_view kind) {
    for (const nlohmann::json& item : json.value(list, nlohmann::json::array())) {
      if (!item.is_object() || !item.contains("id") || !item["id"].is_number_unsigned()) continue;
      for (const auto& [field, value] : item.items()) {
        const std::string name = fmt::format("{}_{}_{}", kind, item["id"].get<uint64_t>(), field);
        if (value.is_number() && field != "id") counters.push_back({name, value.get<double>()});
        if (value.is_string() && !value.get_ref<const std::string&>().empty()) {
          counters.push_back({name + "_" + value.get<std::string>(), 1});
        }
      }
    }
  };
  if (!json.is_object() || !json.contains("counters") || !json["counters"].is_object()) {
    return MakeStatus(Code::kIoError, "{}: this is not the status of a server of Quarry", url);
  }
  for (const auto& [name, value] : json["counters"].items()) {
    if (value.is_number()) counters.push_back({name, value.get<double>()});
  }
  add_items("sessions", "session");
  add_items("streams", "stream");
  return counters;
}

// Where the figures come from: a server's socket, or its page.
class TopSource {
 public:
  static Result<TopSource> Open(const TopArguments& arguments) {
    if (arguments.url.empty() == arguments.address.empty()) {
      return MakeStatus(Code::kUsage, "give either the path of a server's socket, or --url");
    }
    TopSource source;
    source.url_ = arguments.url;
    if (!arguments.url.empty()) return source;
    std::string address = arguments.address;
    if (!IsServerAddress(address)) address.insert(0, client::kServerScheme);
    // A session that asks for next to nothing: it takes no memory from trainers.
    QUARRY_TRY(
        source.store_,
        client::OpenRemote(address, {.memory_bytes = kMiB, .timeout_seconds = 5, .inline_only = true}));
    return source;
  }

  Result<TopState> Look() {
    std::vector<wire::Counter> counters;
    if (store_ != nullptr) {
      QUARRY_TRY(wire::Counters answer, store_->Stats());
      counters = std::move(answer.counters);
    } else {
      QUARRY_TRY(const std::string text, HttpGet(url_, "/status.json"));
      QUARRY_TRY(counters, CountersIn(text, url_));
    }
    return TopState::FromCounters(counters, MonotonicSeconds());
  }

 private:
  std::string url_;
  std::unique_ptr<client::Store> store_;
};

// Until the user ends it; a server that goes away may come back.
Status Watch(TopSource& source) {
  const bool color = ColorWanted();
  const Screen screen;
  std::optional<TopState> before;
  do {
    auto now = source.Look();
    if (now.ok()) {
      screen.Draw(TopText(*now, before ? &*before : nullptr, {.color = color, .rows_max = Screen::Rows()}));
      before = *std::move(now);
    } else {
      screen.Draw(fmt::format("{}\ntrying again; q ends\n", Printable(now.status().message())));
    }
  } while (screen.WaitForNext(kRefreshSeconds));
  return Status::Ok();
}

Status Run(const TopArguments& arguments) {
  QUARRY_TRY(TopSource source, TopSource::Open(arguments));
  if (!arguments.once && !arguments.json && isatty(STDOUT_FILENO) == 1) return Watch(source);
  QUARRY_TRY(const TopState state, source.Look());
  arguments.json ? PrintJson(TopJson(state)) : Print("{}", TopText(state, nullptr, {}));
  return Status::Ok();
}

}  // namespace

void AddTop(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("top", "show what a server does");
  auto arguments = std::make_shared<TopArguments>();
  verb->add_option("PATH", arguments->address, "a server's socket: unix:/run/quarry.sock, or the path alone");
  verb->add_option("--url", arguments->url, "ask the server's HTTP port instead")
      ->type_name("http://127.0.0.1:PORT");
  verb->add_flag("--once", arguments->once, "one report; also when stdout is no terminal");
  verb->add_flag("--json", arguments->json, "one report as JSON on stdout");
  verb->footer(
      "Redraws each second; q or Ctrl-C ends it. Rates are of the last second, so one report has none.\n"
      "Example: quarry top unix:/run/quarry/quarry.sock");
  verb->callback([arguments, &action] { action = [arguments] { return Run(*arguments); }; });
}

}  // namespace quarry::cli
