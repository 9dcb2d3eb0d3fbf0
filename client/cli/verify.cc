// quarry verify DB: reads every byte of a database and says what does not hold.
#include <cstdio>

#include "cli.h"
#include "fault_json.h"
#include "print_json.h"
#include "quarry/base/log.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/embedding/embedding_store.h"
#include "quarry/embedding/verify_embeddings.h"
#include "quarry/io/backend.h"
#include "quarry/verify/verify.h"
#include "repair.h"

namespace quarry::cli {
namespace {

void PrintReport(const std::string& path, const VerifyReport& report, double seconds) {
  for (const Status& fault : report.faults) Print("{}\n", fault.message());
  if (!report.faults.empty()) return;
  Print("{}: sound: {} files and the catalog, {} in {:.1f} s\n", path, report.files,
        FormatBytes(report.bytes), seconds);
}

void PrintReportJson(const std::string& path, const VerifyReport& report, double seconds) {
  PrintJson({{"path", path},
             {"sound", report.faults.empty()},
             {"files", report.files},
             {"bytes", report.bytes},
             {"seconds", seconds},
             {"faults", FaultsJson(path, report.faults)},
             {"damages", DamagesJson(report.damages)},
             {"notes", report.notes}});
}

Status Verify(const std::string& path, bool json) {
  const std::unique_ptr<IoBackend> backend = MakeDefaultBackend();
  QUARRY_TRY(const std::unique_ptr<Store> store, Store::Open(*backend, path));
  const double start = MonotonicSeconds();
  ProgressBar bar;
  QUARRY_TRY(VerifyReport report, VerifyStore(*store, bar.AsFunction()));
  QUARRY_RETURN_IF_ERROR(VerifyEmbeddings(*store, bar.AsFunction(), report));
  bar.Clear();
  for (const std::string& note : report.notes) LogInfo("{}", note);
  const double seconds = MonotonicSeconds() - start;
  json ? PrintReportJson(path, report, seconds) : PrintReport(path, report, seconds);
  if (report.faults.empty()) return Status::Ok();
  return MakeStatus(Code::kCorruption, "{}: {}{} found in {}; the first: {}", path,
                    report.faults.size() >= kVerifyFaultsMax ? "at least " : "",
                    report.faults.size() == 1 ? "1 fault" : fmt::format("{} faults", report.faults.size()),
                    FormatBytes(report.bytes), report.faults.front().message());
}

}  // namespace

void AddVerify(CLI::App& app, Action& action) {
  auto* verb =
      app.add_subcommand("verify", "Read a whole database and check every checksum and cross-reference");
  auto arguments = std::make_shared<RepairArguments>();
  auto repair = std::make_shared<bool>(false);
  verb->add_option("DB", arguments->path, "database folder")->required();
  CLI::Option* repairs =
      verb->add_flag("--repair", *repair, "do what can be done about the faults, as `quarry repair` does");
  verb->add_flag("--dry-run", arguments->options.dry_run,
                 "with --repair: say what would be done, and change nothing")
      ->needs(repairs);
  verb->add_flag("--drop-damaged", arguments->options.drop_damaged,
                 "with --repair: drop damaged checkpoints of training runs and of embeddings, too")
      ->needs(repairs);
  verb->add_flag("--json", arguments->json, "one JSON object on stdout");
  verb->footer(
      "Exit code 3 when anything does not hold, with --repair when it does not afterwards; each fault names "
      "file, page and rows.\n"
      "Example: quarry verify graph.db\n"
      "         quarry verify graph.db --repair --dry-run");
  verb->callback([arguments, repair, &action] {
    action = [arguments, repair] {
      return *repair ? Repair(*arguments) : Verify(arguments->path, arguments->json);
    };
  });
}

}  // namespace quarry::cli
