// quarry verify DB: reads every byte of a database and says what does not hold.
#include <cstdio>

#include "cli.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/embedding/embedding_store.h"
#include "quarry/io/backend.h"

namespace quarry::cli {
namespace {

Status Verify(const std::string& path) {
  const std::unique_ptr<IoBackend> backend = MakeDefaultBackend();
  QUARRY_TRY(const std::unique_ptr<Store> store, Store::Open(*backend, path));
  const double start = MonotonicSeconds();
  ProgressBar bar;
  QUARRY_TRY(VerifyReport report, VerifyStore(*store, bar.AsFunction()));
  QUARRY_RETURN_IF_ERROR(VerifyEmbeddings(*store, bar.AsFunction(), report));
  bar.Clear();
  const double seconds = MonotonicSeconds() - start;
  if (report.faults.empty()) {
    Print("{}: sound: {} files and the catalog, {} in {:.1f} s\n", path, report.files,
          FormatBytes(report.bytes), seconds);
    return Status::Ok();
  }
  for (const Status& fault : report.faults) Print("{}\n", fault.message());
  return MakeStatus(Code::kCorruption, "{}: {}{} found in {}; the first: {}", path,
                    report.faults.size() >= kVerifyFaultsMax ? "at least " : "",
                    report.faults.size() == 1 ? "1 fault" : fmt::format("{} faults", report.faults.size()),
                    FormatBytes(report.bytes), report.faults.front().message());
}

}  // namespace

void AddVerify(CLI::App& app, Action& action) {
  auto* verb =
      app.add_subcommand("verify", "Read a whole database and check every checksum and cross-reference");
  auto path = std::make_shared<std::string>();
  verb->add_option("DB", *path, "database folder")->required();
  verb->footer(
      "Exit code 3 when anything does not hold; each fault names file, page and rows.\nExample: quarry "
      "verify graph.db");
  verb->callback([path, &action] { action = [path] { return Verify(*path); }; });
}

}  // namespace quarry::cli
