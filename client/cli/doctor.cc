// quarry doctor: what of this machine keeps Quarry from working, or from working fast.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "doctor_facts.h"
#include "doctor_findings.h"
#include "opened_store.h"
#include "print_json.h"
#include "server_address.h"

namespace quarry::cli {
namespace {

struct DoctorArguments {
  std::string path = ".";
  bool json = false;
};

void PrintFindingsJson(const std::vector<Finding>& findings) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    json.push_back({{"what", finding.what},
                    {"verdict", VerdictName(finding.verdict)},
                    {"value", finding.value},
                    {"fix", finding.fix}});
  }
  PrintJson(json);
}

void PrintText(const std::vector<Finding>& findings) {
  size_t width = 0;
  for (const Finding& finding : findings) width = std::max(width, finding.what.size());
  for (const Finding& finding : findings) {
    Print("{:<6}  {:<{}}  {}\n", VerdictName(finding.verdict), finding.what, width, finding.value);
    if (!finding.fix.empty()) Print("{:<6}  {:<{}}  -> {}\n", "", "", width, finding.fix);
  }
}

// A server, which is on this machine, says where its database lies.
Result<std::string> PlaceOf(const std::string& address) {
  if (!IsServerAddress(address)) return address;
  QUARRY_TRY(const std::unique_ptr<client::Store> store, OpenStore(address, "1MiB"));
  return FolderOf(*store);
}

// What `quarry calibrate` kept in the database: 0 where there is none, or it cannot be opened just now.
double MeasuredReads(const std::string& address) {
  const auto store = OpenStore(address, "1MiB");
  if (!store.ok()) return 0;
  const Result<Manifest> manifest = ManifestOf(**store, address);
  return manifest.ok() && manifest->device ? manifest->device->random_reads_per_second : 0;
}

Status Doctor(const DoctorArguments& arguments) {
  QUARRY_TRY(const std::string path, PlaceOf(arguments.path));
  QUARRY_TRY(PlaceFacts place, AskPlace(path));
  place.measured_reads = MeasuredReads(arguments.path);
  std::vector<Finding> findings = JudgeMachine(AskMachine());
  for (Finding& finding : JudgePlace(place)) findings.push_back(std::move(finding));
  arguments.json ? PrintFindingsJson(findings) : PrintText(findings);
  const auto broken = std::ranges::find(findings, Verdict::kBroken, &Finding::verdict);
  if (broken == findings.end()) return Status::Ok();
  return MakeStatus(Code::kUnsupported, "{}: {}: {}", broken->what, broken->value, broken->fix);
}

}  // namespace

void AddDoctor(CLI::App& app, Action& action) {
  CLI::App* verb =
      app.add_subcommand("doctor", "say what of this machine is slow or broken, and how to fix it");
  auto arguments = std::make_shared<DoctorArguments>();
  verb->add_option("PATH", arguments->path,
                   "a database, a server's address, unix:PATH, or a folder where a database shall lie")
      ->capture_default_str();
  verb->add_flag("--json", arguments->json, "one JSON array on stdout");
  verb->footer(
      "Looks, and changes nothing. Exit code 1 when something is broken.\n"
      "Example: quarry doctor /data\n"
      "         quarry doctor graph.db --json");
  verb->callback([arguments, &action] { action = [arguments] { return Doctor(*arguments); }; });
}

}  // namespace quarry::cli
