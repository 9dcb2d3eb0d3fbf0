// quarry verify DB: reads every byte of a database and says what does not hold.
#include <algorithm>
#include <cstdio>

#include "cli.h"
#include "fault_json.h"
#include "objects.h"
#include "opened_store.h"
#include "print_json.h"
#include "quarry/base/log.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/verify/verify.h"
#include "repair.h"

namespace quarry::cli {
namespace {

// A server that found many faults sends the first of them, and the number of all.
uint64_t FaultCount(const wire::MaintenanceReport& report) {
  return std::max<uint64_t>(report.faults.size(), Figures(report).Count("faults"));
}

VerifyReport ReportOf(const wire::MaintenanceReport& found) {
  VerifyReport report = {
      .files = Figures(found).Count("files"), .bytes = Figures(found).Count("bytes"), .notes = found.notes};
  for (const std::string& fault : found.faults) report.faults.emplace_back(Code::kCorruption, fault);
  for (const wire::Damage& damage : found.damages) {
    report.damages.push_back(
        {static_cast<Damage::Kind>(damage.kind), damage.name, damage.first_row, damage.row_count});
  }
  return report;
}

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
  QUARRY_TRY(const std::unique_ptr<client::Store> store, OpenStore(path));
  const double start = MonotonicSeconds();
  ProgressBar bar;
  QUARRY_TRY(const std::string folder, FolderOf(*store));
  QUARRY_TRY(const wire::MaintenanceReport found, store->Maintain(wire::VerifyDatabase{}, bar.AsFunction()));
  bar.Clear();
  const VerifyReport report = ReportOf(found);
  const uint64_t faults = FaultCount(found);
  for (const std::string& note : report.notes) LogInfo("{}", note);
  const double seconds = MonotonicSeconds() - start;
  json ? PrintReportJson(folder, report, seconds) : PrintReport(folder, report, seconds);
  if (report.faults.empty()) return Status::Ok();
  return MakeStatus(Code::kCorruption, "{}: {}{} found in {}; the first: {}", folder,
                    faults >= kVerifyFaultsMax ? "at least " : "",
                    faults == 1 ? "1 fault" : fmt::format("{} faults", faults), FormatBytes(report.bytes),
                    report.faults.front().message());
}

}  // namespace

void AddVerify(CLI::App& app, Action& action) {
  auto* verb =
      app.add_subcommand("verify", "read a whole database and check every checksum and cross-reference");
  auto arguments = std::make_shared<RepairArguments>();
  auto repair = std::make_shared<bool>(false);
  verb->add_option("DB", arguments->path, kAddressHelp)->required();
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
    action = [arguments, repair]() -> Status {
      if (*repair) QUARRY_RETURN_IF_ERROR(CheckNoObjects("verify --repair", arguments->path));
      if (IsObjectAddress(arguments->path)) return VerifyObjects(arguments->path, arguments->json);
      return *repair ? Repair(*arguments) : Verify(arguments->path, arguments->json);
    };
  });
}

}  // namespace quarry::cli
