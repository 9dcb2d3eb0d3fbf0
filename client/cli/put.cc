// quarry put DB --ids FILE ...: rows, labels and splits of existing nodes, as one commit.
#include <nlohmann/json.hpp>

#include "cli.h"
#include "option_values.h"
#include "print_json.h"
#include "put_remote.h"
#include "quarry/base/log.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/storage/compaction.h"
#include "server_address.h"

namespace quarry::cli {
namespace {

struct PutArguments {
  std::string database;
  std::string ids, split, memory = "1GiB";
  std::string auto_compact;  // empty: never
  SourceHints hints;
  PutOptions options;
  bool delete_features = false;
  bool inline_only = false;
  bool json = false;
};

// The session's part of a server's memory: pieces of 16 MiB, which it holds three times, fit into half of it.
constexpr uint64_t kSessionBytes = 128 * kMiB;

std::optional<Split> ParseSplit(const std::string& name) {
  if (name.empty()) return std::nullopt;
  if (name == "train") return Split::kTrain;
  if (name == "valid") return Split::kValid;
  return name == "test" ? Split::kTest : Split::kNone;
}

// Compacts tables of which more than the given share of rows has changed, after the commit of `timestamp`.
Status CompactBeyond(Store& store, const PutArguments& arguments, uint64_t timestamp) {
  if (arguments.auto_compact.empty()) return Status::Ok();
  MemoryBudget budget(MemoryLimitBytes());
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  for (const TableRecord& table : manifest->tables) {
    QUARRY_TRY(const uint64_t rows_max, ParseBytes(arguments.auto_compact, table.row_count));
    QUARRY_TRY(const CompactionReport pending, CompactTable(store, budget, table.name, /*dry_run=*/true, {}));
    if (pending.rows_changed <= rows_max) continue;
    ProgressBar bar;
    const auto report =
        CompactTable(store, budget, table.name, /*dry_run=*/false, bar.AsFunction("the table is as it was"));
    bar.Clear();
    if (!report.ok()) {
      return MakeStatus(report.status().code(), "the rows are committed, as {}; compacting table \"{}\": {}",
                        timestamp, table.name, report.status().message());
    }
    LogInfo("table {}: {} changed rows of {} were compacted in {:.2f} s", table.name, report->rows_changed,
            report->row_count, report->seconds);
  }
  return Status::Ok();
}

Status CheckArguments(const PutArguments& arguments) {
  if (arguments.hints.features.empty() && arguments.hints.labels.empty() && arguments.split.empty() &&
      !arguments.delete_features) {
    return Status(Code::kUsage, "nothing to put: give --features, --labels, --split or --delete");
  }
  if (arguments.delete_features && !arguments.hints.features.empty()) {
    return Status(Code::kUsage, "--features and --delete contradict each other");
  }
  if (!arguments.auto_compact.empty() && !arguments.auto_compact.ends_with('%')) {
    return MakeStatus(Code::kUsage, "--auto-compact {}: a share of the rows, such as 20%",
                      arguments.auto_compact);
  }
  if (!arguments.auto_compact.empty() && IsServerAddress(arguments.database)) {
    return Status(Code::kUsage, "--auto-compact is of a database that no server has open");
  }
  return CheckInlineFlag(arguments.inline_only, arguments.database);
}

struct Done {
  PutReport put;
  double seconds = 0;
};

template <typename Target>
Result<Done> PutInto(Target& target, PutArguments& arguments) {
  arguments.hints.train = arguments.ids;  // a list of ids, or a mask
  QUARRY_TRY(const Dataset source, OpenArrays(arguments.hints));
  ProgressBar bar;
  arguments.options.progress = bar.AsFunction();
  const double start = MonotonicSeconds();
  const Result<PutReport> put = PutRows(target,
                                        {.ids = source.train.get(),
                                         .features = source.features.get(),
                                         .labels = source.labels.get(),
                                         .split = ParseSplit(arguments.split),
                                         .delete_features = arguments.delete_features},
                                        arguments.options);
  bar.Clear();
  QUARRY_RETURN_IF_ERROR(put.status());
  return Done{*put, MonotonicSeconds() - start};
}

Result<Done> PutAtServer(PutArguments& arguments) {
  QUARRY_TRY(const std::unique_ptr<client::Store> store,
             client::OpenRemote(arguments.database,
                                {.memory_bytes = kSessionBytes, .inline_only = arguments.inline_only}));
  QUARRY_TRY(const PutTarget target, RemoteTarget(*store));
  return PutInto(target, arguments);
}

Result<Done> PutIntoDatabase(PutArguments& arguments) {
  const std::unique_ptr<IoBackend> backend = MakeDefaultBackend();
  QUARRY_TRY(const std::unique_ptr<Store> store, Store::Open(*backend, arguments.database));
  QUARRY_TRY(const Done done, PutInto(*store, arguments));
  QUARRY_RETURN_IF_ERROR(CompactBeyond(*store, arguments, done.put.timestamp));
  return done;
}

Status Run(PutArguments& arguments) {
  QUARRY_RETURN_IF_ERROR(CheckArguments(arguments));
  QUARRY_TRY(arguments.options.memory_bytes, ParseSize("--memory", arguments.memory, MemoryLimitBytes()));
  QUARRY_TRY(const Done done,
             IsServerAddress(arguments.database) ? PutAtServer(arguments) : PutIntoDatabase(arguments));
  const PutReport& put = done.put;
  if (arguments.json) {
    const nlohmann::ordered_json json = {{"timestamp", put.timestamp},
                                         {"nodes", put.nodes},
                                         {"rows", put.rows},
                                         {"seconds", done.seconds},
                                         {"peak_rss_bytes", PeakRssBytes()}};
    PrintJson(json);
  } else {
    Print("{} rows of {} nodes committed as {} in {:.2f} s\n", put.rows, put.nodes, put.timestamp,
          done.seconds);
  }
  return Status::Ok();
}

}  // namespace

void AddPut(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("put", "change features, labels or splits of nodes, as one commit");
  auto arguments = std::make_shared<PutArguments>();
  verb->add_option("DB", arguments->database, "database folder, or unix:PATH of a server")->required();
  verb->add_option("--ids", arguments->ids, "file with the nodes: .npy, .npz, .csv")
      ->required()
      ->type_name("FILE");
  verb->add_option("--features", arguments->hints.features, "file with a row for each")->type_name("FILE");
  verb->add_option("--labels", arguments->hints.labels, "file with a label for each; -1: none")
      ->type_name("FILE");
  verb->add_option("--split", arguments->split, "of all of them")
      ->type_name("NAME")
      ->check(CLI::IsMember({"train", "valid", "test", "none"}));
  verb->add_flag("--delete", arguments->delete_features, "their feature rows read as zeros from now on");
  verb->add_option("--table", arguments->options.table, "of the features")->capture_default_str();
  verb->add_flag("--allow-nan", arguments->options.allow_nan, "take features that are NaN or infinite");
  verb->add_flag("--bf16", arguments->hints.u2_is_bfloat16, "two-byte unsigned features are bfloat16");
  verb->add_option("--memory", arguments->memory, "the most that the rows on their way may take")
      ->capture_default_str();
  verb->add_option("--auto-compact", arguments->auto_compact,
                   "compact a table once more than this share of its rows has changed: 20%; default: never")
      ->type_name("SHARE");
  AddInlineFlag(verb, arguments->inline_only);
  verb->add_flag("--json", arguments->json, "one JSON object on stdout");
  verb->footer(
      "All or nothing: once it returns, every reader that opens the database sees the change, after a power\n"
      "failure too. Layouts stay valid and serve the new rows.\n"
      "Example: quarry put db/ --ids ids.npy --features rows.npy");
  verb->callback([arguments, &action] { action = [arguments] { return Run(*arguments); }; });
}

}  // namespace quarry::cli
