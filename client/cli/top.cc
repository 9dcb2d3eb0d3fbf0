// quarry top: what a server does, in a terminal.
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "cli.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/client/store.h"
#include "screen.h"
#include "server_address.h"
#include "sql_print.h"
#include "top_view.h"

namespace quarry::cli {
namespace {

constexpr double kRefreshSeconds = 1;

struct TopArguments {
  std::string address;
  bool once = false;
  bool json = false;
};

// A session that asks for next to nothing: it takes no memory from trainers.
Result<std::unique_ptr<client::Store>> Connect(std::string address) {
  if (!IsServerAddress(address)) address.insert(0, client::kServerScheme);
  return client::OpenRemote(address, {.memory_bytes = kMiB, .timeout_seconds = 5, .inline_only = true});
}

Result<TopState> Look(client::Store& server) {
  QUARRY_TRY(wire::ServerStatus status, server.ServerStatus());
  return TopState{.status = std::move(status), .seconds = MonotonicSeconds()};
}

// Until the user ends it; a server that goes away may come back.
Status Watch(client::Store& server) {
  const bool color = ColorWanted();
  const Screen screen;
  std::optional<TopState> before;
  do {
    auto now = Look(server);
    if (now.ok()) {
      screen.Draw(TopText(*now, before ? &*before : nullptr,
                          {.color = color,
                           .rows_max = Screen::Rows(),
                           .columns_max = std::max<size_t>(1, TerminalWidth(stdout))}));
      before = *std::move(now);
    } else {
      screen.Draw(fmt::format("{}\ntrying again; q ends\n", Printable(now.status().message())));
    }
  } while (screen.WaitForNext(kRefreshSeconds));
  return Status::Ok();
}

Status Run(const TopArguments& arguments) {
  QUARRY_TRY(const std::unique_ptr<client::Store> server, Connect(arguments.address));
  if (!arguments.once && !arguments.json && isatty(STDOUT_FILENO) == 1) return Watch(*server);
  QUARRY_TRY(const TopState state, Look(*server));
  Print("{}\n", arguments.json ? wire::ToJson(state.status) : TopText(state, nullptr, {}));
  return Status::Ok();
}

}  // namespace

void AddTop(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("top", "show what a server does");
  auto arguments = std::make_shared<TopArguments>();
  verb->add_option("PATH", arguments->address, "a server's socket: unix:/run/quarry.sock, or the path alone")
      ->required();
  verb->add_flag("--once", arguments->once, "one report; also when stdout is no terminal");
  verb->add_flag("--json", arguments->json, "one report as JSON on stdout");
  verb->footer(
      "Redraws each second; q or Ctrl-C ends it. Rates are of the last second, so one report has none.\n"
      "Example: quarry top unix:/run/quarry/quarry.sock");
  verb->callback([arguments, &action] { action = [arguments] { return Run(*arguments); }; });
}

}  // namespace quarry::cli
