// quarry stats DB: the figures of a database, or of the server that has it open; once, or again and again.
#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli.h"
#include "opened_store.h"
#include "option_values.h"
#include "print_json.h"
#include "quarry/base/log.h"
#include "quarry/base/units.h"
#include "screen.h"
#include "server_address.h"

namespace quarry::cli {
namespace {

struct StatsArguments {
  std::string address;
  bool json = false;
  std::optional<double> watch_seconds;
};

// Numbers by name, in the order in which they are told.
using Numbers = nlohmann::ordered_json;

// Adds the table `stats` of SQL.
Status AddDatabase(client::Store& store, Numbers& numbers) {
  QUARRY_TRY(const std::unique_ptr<client::RowCursor> rows, store.Query("SELECT metric, value FROM stats"));
  while (true) {
    QUARRY_TRY(const bool more, rows->Next());
    if (!more) return Status::Ok();
    const client::ValueView value = rows->value(1);
    if (const auto* number = std::get_if<int64_t>(&value)) numbers[rows->Text(0)] = *number;
    if (const auto* number = std::get_if<double>(&value)) numbers[rows->Text(0)] = *number;
  }
}

// What a server counts comes last, and alone where trainers have left it no memory for SQL.
Result<Numbers> LookAt(client::Store& store) {
  Numbers numbers;
  const Status added = AddDatabase(store, numbers);
  if (store.database() != nullptr) return added.ok() ? Result<Numbers>(numbers) : added;
  if (!added.ok() && added.code() != Code::kOutOfBudget && added.code() != Code::kUnsupported) return added;
  QUARRY_TRY(const wire::Counters counted, store.Stats());
  for (const wire::Counter& counter : counted.counters) numbers[counter.name] = NumberOf(counter.value);
  return numbers;
}

// Where the figures come from: a folder, or a server's socket.
class StatsSource {
 public:
  static Result<StatsSource> Open(const std::string& address) {
    StatsSource source;
    source.address_ = address;
    if (!IsServerAddress(address)) return source;
    // A session that asks for next to nothing: it takes no memory from trainers.
    QUARRY_TRY(
        source.server_,
        client::OpenRemote(address, {.memory_bytes = kMiB, .timeout_seconds = 5, .inline_only = true}));
    return source;
  }
  // A database is opened for this look alone: between two looks others have it.
  Result<Numbers> Look() {
    if (server_) return LookAt(*server_);
    QUARRY_TRY(const std::unique_ptr<client::Store> store, OpenStore(address_));
    return LookAt(*store);
  }

 private:
  std::string address_;
  std::unique_ptr<client::Store> server_;
};

std::string Text(const Numbers& figures) {
  size_t width = 0;
  for (const auto& [name, value] : figures.items()) width = std::max(width, name.size());
  std::string text;
  for (const auto& [name, value] : figures.items()) {
    text += fmt::format("{:<{}}  {}\n", name, width, value.dump());
  }
  return text;
}

std::string FirstLines(const std::string& text, size_t lines_max) {
  size_t end = 0;
  for (size_t line = 0; line < lines_max && end < text.size(); ++line) end = text.find('\n', end) + 1;
  return text.substr(0, end);
}

// A database that somebody else has open is looked at again later.
Status WatchOnTerminal(StatsSource& source, double seconds) {
  const Screen screen;
  do {
    const Result<Numbers> figures = source.Look();
    if (!figures.ok() && figures.status().code() != Code::kBusy) return figures.status();
    screen.Draw(figures.ok() ? FirstLines(Text(*figures), Screen::Rows())
                             : fmt::format("{}\ntrying again; q ends\n", figures.status().message()));
  } while (screen.WaitForNext(seconds));
  return Status::Ok();
}

Status WatchInBlocks(StatsSource& source, double seconds, bool json) {
  do {
    const Result<Numbers> figures = source.Look();
    if (figures.ok()) {
      json ? PrintJson(*figures) : Print("{}\n", Text(*figures));
      std::fflush(stdout);  // whoever reads the pipe sees a block when it is there
    } else if (figures.status().code() == Code::kBusy) {
      LogInfo("{}; trying again in {} s", figures.status().message(), seconds);
    } else {
      return figures.status();
    }
  } while (WaitUnlessInterrupted(seconds));
  return Status::Ok();
}

Status Stats(const StatsArguments& arguments) {
  QUARRY_TRY(StatsSource source, StatsSource::Open(arguments.address));
  if (arguments.watch_seconds && !arguments.json && isatty(STDOUT_FILENO) == 1) {
    return WatchOnTerminal(source, *arguments.watch_seconds);
  }
  if (arguments.watch_seconds) return WatchInBlocks(source, *arguments.watch_seconds, arguments.json);
  QUARRY_TRY(const Numbers figures, source.Look());
  arguments.json ? PrintJson(figures) : Print("{}", Text(figures));
  return Status::Ok();
}

}  // namespace

void AddStats(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("stats", "show the figures of a database, or of a server");
  auto arguments = std::make_shared<StatsArguments>();
  verb->add_option("DB", arguments->address, kAddressHelp)->required();
  verb->add_flag("--json", arguments->json, "one JSON object; with --watch, one a line");
  verb->add_option("--watch", arguments->watch_seconds, "again and again, with so many seconds in between")
      ->expected(0, 1)
      ->default_str("1")
      ->type_name("SECONDS")
      ->check(SecondsBetween(0.1, 86400));
  verb->footer(
      "A database is opened for each look and closed again; while another process has it open, --watch "
      "waits.\n"
      "With --watch, a terminal is redrawn (q ends it), and anything else gets block after block. Ctrl-C "
      "ends it.\n"
      "Example: quarry stats graph.db --json\n"
      "         quarry stats unix:run/quarry.sock --watch 5");
  verb->callback([arguments, &action] { action = [arguments] { return Stats(*arguments); }; });
}

}  // namespace quarry::cli
