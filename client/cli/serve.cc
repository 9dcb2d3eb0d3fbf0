// quarry serve DB --socket PATH: one open database for several trainers.
#include <sys/statvfs.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "objects.h"
#include "option_values.h"
#include "print_json.h"
#include "quarry/base/log.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/database.h"
#include "quarry/served_sql.h"
#include "quarry/server/server.h"
#include "quarry/sql/connection.h"
#include "server_address.h"

namespace quarry::cli {
namespace {

constexpr uint64_t kServeBytesMin =
    16 * kMiB;  // less serves nobody: a quarter is for all, and messages want room

struct ServeArguments {
  std::string database;
  std::string memory;
  double checkpoint_seconds = 60;
  std::string metrics_tcp;  // [HOST:]PORT; empty: none
  std::string sql_temp;
  std::vector<std::string> allow_uids;
  ServerOptions options;
  bool json = false;
};

// The page has no password, so it is for this machine alone.
Result<uint16_t> ParseMetrics(std::string_view address) {
  const size_t colon = address.rfind(':');
  const std::string_view host = colon == std::string_view::npos ? "localhost" : address.substr(0, colon);
  const std::string_view digits = colon == std::string_view::npos ? address : address.substr(colon + 1);
  uint16_t port = 0;
  const char* const end = digits.data() + digits.size();
  const auto [parsed, error] = std::from_chars(digits.data(), end, port);
  if (error == std::errc() && parsed == end && (host == "127.0.0.1" || host == "localhost")) return port;
  return MakeStatus(Code::kUsage, "--metrics-tcp {}: [127.0.0.1:]PORT; port 0 is any that is free", address);
}

// UID, or UID:ro.
Status AddUser(const std::string& text, ServerOptions& options) {
  constexpr std::string_view kReadOnly = ":ro";
  std::string_view digits = text;
  const bool read_only = digits.ends_with(kReadOnly);
  if (read_only) digits.remove_suffix(kReadOnly.size());
  uid_t uid = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), uid);
  if (error != std::errc() || end != digits.data() + digits.size() || uid == static_cast<uid_t>(-1)) {
    return MakeStatus(Code::kUsage,
                      "--allow-uid {}: the number of a user, or NUMBER:ro for one who may only read", text);
  }
  options.allow_uids.push_back(uid);
  if (read_only) options.read_only_uids.push_back(uid);
  return Status::Ok();
}

// By default half of what is free where they lie: a full disk would be the database's trouble too.
Result<uint64_t> ParseSqlTemp(const std::string& text) {
  constexpr uint64_t kMost = 16 * kGiB;
  struct statvfs disk {};
  const bool known = statvfs(sql::TempFolder().c_str(), &disk) == 0;
  const uint64_t free_bytes = known ? uint64_t{disk.f_bavail} * disk.f_frsize : 2 * kMost;
  if (text.empty()) return std::min<uint64_t>(kMost, free_bytes / 2);
  return ParseBytes(text, free_bytes);
}

std::string MetricsUrl(const Server& server) {
  return fmt::format("http://127.0.0.1:{}/", server.metrics_port());
}

void Announce(const ServeArguments& arguments, const Server& server, Database& database) {
  if (arguments.json) {
    nlohmann::ordered_json json = {{"path", arguments.database},
                                   {"socket", server.socket_path()},
                                   {"memory_bytes", database.budget().limit_bytes()},
                                   {"max_sessions", arguments.options.sessions_max}};
    if (arguments.options.metrics) json["metrics"] = MetricsPath(server.socket_path());
    if (server.metrics_port() != 0) json["metrics_tcp"] = MetricsUrl(server);
    PrintJson(json);
    std::fflush(stdout);
  }
  std::string page = arguments.options.read_only ? ", read-only" : "";
  if (arguments.options.metrics)
    page += fmt::format("; its status is at {}", MetricsPath(server.socket_path()));
  if (server.metrics_port() != 0) {
    page += fmt::format("; its status is at {}", MetricsUrl(server));
  }
  LogInfo("{} is served at {}, within {}{}", arguments.database, server.socket_path(),
          FormatBytes(database.budget().limit_bytes()), page);
}

Status Run(ServeArguments& arguments) {
  QUARRY_RETURN_IF_ERROR(CheckNoServer("serve", arguments.database));
  if (arguments.options.read_only && arguments.options.auto_compact > 0) {
    return Status(Code::kUsage,
                  "--auto-compact and --read-only contradict each other: nobody adds edges then");
  }
  if (!arguments.metrics_tcp.empty()) {
    QUARRY_TRY(arguments.options.metrics_port, ParseMetrics(arguments.metrics_tcp));
  }
  for (const std::string& user : arguments.allow_uids) {
    QUARRY_RETURN_IF_ERROR(AddUser(user, arguments.options));
  }
  QUARRY_TRY(arguments.options.sql_temp_bytes, ParseSqlTemp(arguments.sql_temp));
  DatabaseOptions options;
  if (!arguments.memory.empty()) {
    QUARRY_TRY(options.memory_bytes, ParseSize("--memory", arguments.memory, MemoryLimitBytes()));
    if (options.memory_bytes < kServeBytesMin) {
      return MakeStatus(Code::kUsage, "--memory {}: a server needs {} at least", arguments.memory,
                        FormatBytes(kServeBytesMin));
    }
  }
  QUARRY_RETURN_IF_ERROR(CheckNoObjects("serve", arguments.database));
  // Clients may be in another folder: a sentence that names a file names it from / on.
  QUARRY_TRY(const std::unique_ptr<Database> database,
             Database::Open(std::filesystem::absolute(arguments.database), std::move(options)));
  const std::chrono::duration<double> checkpoints(arguments.checkpoint_seconds);
  arguments.options.checkpoint_embeddings = std::chrono::ceil<std::chrono::milliseconds>(checkpoints);
  ServerOptions serving = arguments.options;  // what runs SQL goes before the database
  serving.sql = MakeSqlRunner(database->store());
  QUARRY_TRY(const std::unique_ptr<Server> server,
             Server::Start(database->store(), database->budget(), serving));
  Announce(arguments, *server, *database);
  while (!Interrupted()) WaitForInterrupt(-1);
  return server->Stop();
}

}  // namespace

void AddServe(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("serve", "serve a database to the trainers of this machine");
  auto arguments = std::make_shared<ServeArguments>();
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
  verb->add_option(
          "--sql-temp", arguments->sql_temp,
          "cap on temporary files of SQL, a quarter of it for a connection (default half of what is free, "
          "at most 16 GiB)")
      ->type_name("SIZE");
  verb->add_flag("--metrics", options.metrics,
                 "a status page, and figures for Prometheus, over HTTP on the Unix socket PATH.metrics");
  verb->add_option("--metrics-tcp", arguments->metrics_tcp,
                   "the same on 127.0.0.1, for all users of the machine")
      ->type_name("[HOST:]PORT");
  verb->add_option("--allow-uid", arguments->allow_uids,
                   "users besides the own one who may connect; UID:ro may only read")
      ->type_name("UID[:ro]");
  AddGraphAutoCompact(verb, options.auto_compact, "beside whoever reads it");
  verb->add_flag("--read-only", options.read_only, "no client may write anything");
  verb->add_flag("--json", arguments->json, "one JSON object on stdout once it listens");
  verb->footer(
      "Runs until SIGTERM or Ctrl-C: then writes that have begun are finished, everything else is "
      "cancelled,\n"
      "and learned embeddings are checkpointed.\n"
      "Example: quarry serve db/ --socket run/quarry.sock --metrics");
  verb->callback([arguments, &action] { action = [arguments] { return Run(*arguments); }; });
}

}  // namespace quarry::cli
