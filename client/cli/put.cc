// quarry put DB --ids FILE ...: rows, labels and splits of existing nodes, as one commit.
#include <nlohmann/json.hpp>

#include "cli.h"
#include "opened_store.h"
#include "option_values.h"
#include "print_json.h"
#include "quarry/base/log.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/database.h"
#include "quarry/import/put.h"
#include "remote_change.h"
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

// Compacts tables of which more than the given share of rows has changed, after the commit of `timestamp`.
Status CompactBeyond(client::Store& store, const PutArguments& arguments, uint64_t timestamp) {
  if (arguments.auto_compact.empty()) return Status::Ok();
  QUARRY_TRY(const Manifest manifest, ManifestOf(store, arguments.database));
  for (const TableRecord& table : manifest.tables) {
    QUARRY_TRY(const uint64_t rows_max, ParseBytes(arguments.auto_compact, table.row_count));
    QUARRY_TRY(const wire::MaintenanceReport pending,
               store.Maintain(wire::CompactTable{table.name, /*dry_run=*/true}));
    if (Figures(pending).Count("rows_changed") <= rows_max) continue;
    ProgressBar bar;
    const auto report =
        store.Maintain(wire::CompactTable{table.name}, bar.AsFunction("the table is as it was"));
    bar.Clear();
    if (!report.ok()) {
      return MakeStatus(report.status().code(), "the rows are committed, as {}; compacting table \"{}\": {}",
                        timestamp, table.name, report.status().message());
    }
    const Figures done(*report);
    LogInfo("table {}: {} changed rows of {} were compacted in {:.2f} s", table.name,
            done.Count("rows_changed"), done.Count("rows"), done.Real("seconds"));
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
  return CheckInlineFlag(arguments.inline_only, arguments.database);
}

struct Done {
  PutReport put;
  double seconds = 0;
};

class RemoteLargeWrite final : public LargeWrite {
 public:
  explicit RemoteLargeWrite(std::unique_ptr<client::LargePut> put) : put_(std::move(put)) {}
  Status Add(const WriteBatch& batch) override {
    const std::vector<wire::PutRows> tables = TablesOf(batch);
    return tables.empty() ? Status::Ok() : put_->Add(tables);
  }
  Result<uint64_t> Commit() override { return put_->Commit(); }

 private:
  const std::unique_ptr<client::LargePut> put_;
};

// What a server's database has, and the way to it. The store outlives it.
Result<PutTarget> RemoteTarget(client::Store& store, const std::string& address) {
  QUARRY_TRY(Manifest manifest, ManifestOf(store, address));
  return PutTarget{
      .manifest = std::move(manifest),
      .write = [&store](const WriteBatch& batch) { return store.Put({.tables = TablesOf(batch)}); },
      .begin_large_write = [&store]() -> Result<std::unique_ptr<LargeWrite>> {
        QUARRY_TRY(std::unique_ptr<client::LargePut> put, store.BeginPut());
        return std::unique_ptr<LargeWrite>(std::make_unique<RemoteLargeWrite>(std::move(put)));
      }};
}

// Without a server rows go into the store as they are, and not by way of messages.
Result<PutReport> PutInto(client::Store& store, const std::string& address, const PutSource& source,
                          const PutOptions& options) {
  if (store.database() != nullptr) return PutRows(store.database()->store(), source, options);
  QUARRY_TRY(const PutTarget target, RemoteTarget(store, address));
  return PutRows(target, source, options);
}

Result<Done> Put(PutArguments& arguments) {
  const bool served = IsServerAddress(arguments.database);
  QUARRY_TRY(const std::unique_ptr<client::Store> store,
             client::Open(arguments.database, {.memory_bytes = served ? kSessionBytes : 0,
                                               .inline_only = arguments.inline_only}));
  arguments.hints.train = arguments.ids;  // a list of ids, or a mask
  QUARRY_TRY(const Dataset source, OpenArrays(arguments.hints));
  ProgressBar bar;
  arguments.options.progress = bar.AsFunction();
  const double start = MonotonicSeconds();
  const Result<PutReport> put = PutInto(*store, arguments.database,
                                        {.ids = source.train.get(),
                                         .features = source.features.get(),
                                         .labels = source.labels.get(),
                                         .split = ParseSplit(arguments.split),
                                         .delete_features = arguments.delete_features},
                                        arguments.options);
  bar.Clear();
  QUARRY_RETURN_IF_ERROR(put.status());
  const Done done{*put, MonotonicSeconds() - start};
  QUARRY_RETURN_IF_ERROR(CompactBeyond(*store, arguments, put->timestamp));
  return done;
}

Status Run(PutArguments& arguments) {
  QUARRY_RETURN_IF_ERROR(CheckArguments(arguments));
  QUARRY_TRY(arguments.options.memory_bytes, ParseSize("--memory", arguments.memory, MemoryLimitBytes()));
  QUARRY_TRY(const Done done, Put(arguments));
  const PutReport& put = done.put;
  if (arguments.json) {
    const nlohmann::ordered_json json = {{"path", arguments.database}, {"timestamp", put.timestamp},
                                         {"nodes", put.nodes},         {"rows", put.rows},
                                         {"seconds", done.seconds},    {"peak_rss_bytes", PeakRssBytes()}};
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
  verb->add_option("DB", arguments->database, kAddressHelp)->required();
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
