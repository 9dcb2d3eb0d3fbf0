// quarry serve DB --socket PATH: one open database for several trainers.
#include <charconv>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli.h"
#include "option_values.h"
#include "print_json.h"
#include "quarry/base/log.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/database.h"
#include "quarry/served_sql.h"
#include "quarry/server/server.h"

namespace quarry::cli {
namespace {

constexpr uint64_t kServeBytesMin =
    16 * kMiB;  // less serves nobody: a quarter is for all, and messages want room
constexpr std::chrono::milliseconds kLook{50};  // at whether a signal has come

struct Arguments {
  std::string database;
  std::string memory;
  double checkpoint_seconds = 60;
  std::string metrics;  // 127.0.0.1:PORT; empty: none
  ServerOptions options;
  bool json = false;
};

// The page has no password, so it is for this machine alone.
Result<uint16_t> ParseMetrics(std::string_view address) {
  const size_t colon = address.rfind(':');
  const std::string_view host = address.substr(0, colon);
  uint16_t port = 0;
  if (colon != std::string_view::npos && (host == "127.0.0.1" || host == "localhost")) {
    const char* const end = address.data() + address.size();
    const auto parsed = std::from_chars(address.data() + colon + 1, end, port);
    if (parsed.ec == std::errc() && parsed.ptr == end) return port;
  }
  return MakeStatus(Code::kUsage, "--metrics {}: 127.0.0.1:PORT; port 0 is any that is free", address);
}

void Announce(const Arguments& arguments, const Server& server, Database& database) {
  if (arguments.json) {
    nlohmann::ordered_json json = {{"database", arguments.database},
                                   {"socket", server.socket_path()},
                                   {"memory_bytes", database.budget().limit_bytes()},
                                   {"max_sessions", arguments.options.sessions_max}};
    if (server.metrics_port() != 0) json["metrics"] = fmt::format("127.0.0.1:{}", server.metrics_port());
    PrintJson(json);
    std::fflush(stdout);
  }
  const std::string page = server.metrics_port() == 0 ? ""
                                                      : fmt::format("; its status is at http://127.0.0.1:{}/",
                                                                    server.metrics_port());
  LogInfo("{} is served at {}, within {}{}", arguments.database, server.socket_path(),
          FormatBytes(database.budget().limit_bytes()), page);
}

Status Run(Arguments& arguments) {
  if (!arguments.metrics.empty()) {
    QUARRY_TRY(arguments.options.metrics_port, ParseMetrics(arguments.metrics));
  }
  DatabaseOptions options;
  if (!arguments.memory.empty()) {
    QUARRY_TRY(options.memory_bytes, ParseSize("--memory", arguments.memory, MemoryLimitBytes()));
    if (options.memory_bytes < kServeBytesMin) {
      return MakeStatus(Code::kUsage, "--memory {}: a server needs {} at least", arguments.memory,
                        FormatBytes(kServeBytesMin));
    }
  }
  QUARRY_TRY(const std::unique_ptr<Database> database,
             Database::Open(arguments.database, std::move(options)));
  const std::chrono::duration<double> checkpoints(arguments.checkpoint_seconds);
  arguments.options.checkpoint_embeddings = std::chrono::ceil<std::chrono::milliseconds>(checkpoints);
  ServerOptions serving = arguments.options;  // what runs SQL goes before the database
  serving.sql = MakeSqlRunner(database->store());
  QUARRY_TRY(const std::unique_ptr<Server> server,
             Server::Start(database->store(), database->budget(), serving));
  Announce(arguments, *server, *database);
  while (!Interrupted()) std::this_thread::sleep_for(kLook);
  return server->Stop();
}

}  // namespace

void AddServe(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("serve", "serve a database to the trainers of this machine");
  auto arguments = std::make_shared<Arguments>();
  ServerOptions& options = arguments->options;
  verb->add_option("DB", arguments->database, "database folder")->required();
  verb->add_option("--socket", options.socket_path, "where to listen; its folder is made, for the user alone")
      ->required()
      ->type_name("PATH");
  verb->add_option("--max-sessions", options.sessions_max, "clients at a time")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  verb->add_option("--max-threads", options.threads_max,
                   "threads that streams have at most; fewer where the system allows the server fewer")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
  verb->add_option(
      "--memory", arguments->memory,
      "cap on what the engine holds for all of them (default 80% of what the machine or cgroup allows)");
  verb->add_option("--checkpoint-embeddings", arguments->checkpoint_seconds,
                   "seconds from one checkpoint of the embeddings that are trained to the next; 0: never")
      ->type_name("SECONDS")
      ->check(SecondsBetween(0, 86400))
      ->capture_default_str();
  verb->add_option("--metrics", arguments->metrics,
                   "a status page, and figures for Prometheus, over HTTP: 127.0.0.1:PORT")
      ->type_name("ADDRESS");
  verb->add_option("--allow-uid", options.allow_uids, "users besides the own one who may connect")
      ->type_name("UID");
  verb->add_flag("--json", arguments->json, "one JSON object on stdout once it listens");
  verb->footer(
      "Runs until SIGTERM or Ctrl-C: then writes that have begun are finished, everything else is "
      "cancelled,\n"
      "and learned embeddings are checkpointed.\n"
      "Example: quarry serve db/ --socket run/quarry.sock --metrics 127.0.0.1:9100");
  verb->callback([arguments, &action] { action = [arguments] { return Run(*arguments); }; });
}

}  // namespace quarry::cli
