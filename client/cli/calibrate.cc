// quarry calibrate DB: measures the device and the memory that the database lies on, and remembers it there.
#include <nlohmann/json.hpp>
#include <optional>

#include "cli.h"
#include "print_json.h"
#include "quarry/base/units.h"
#include "quarry/database.h"

namespace quarry::cli {
namespace {

struct CalibrateOptions {
  std::string path;
  bool force = false;
  bool json = false;
};

std::string Bandwidth(double bytes_per_second) {
  return FormatBytes(static_cast<uint64_t>(bytes_per_second)) + "/s";
}

void PrintCalibrationJson(const std::string& path, const DeviceRecord& device,
                          const std::optional<Calibration>& fresh) {
  using Json = nlohmann::ordered_json;
  Json json = {{"path", path},
               {"random_reads_per_second", device.random_reads_per_second},
               {"sequential_bytes_per_second", device.sequential_bytes_per_second},
               {"write_bytes_per_second", device.write_bytes_per_second},
               {"gather_bytes_per_second", device.gather_bytes_per_second},
               {"measured_utc", device.measured_utc},
               {"measured_now", fresh.has_value()}};
  if (fresh) {
    json["row_read_bytes"] = fresh->row_bytes;
    json["random_reads"] = Json::array();
    for (const ReadRate& rate : fresh->random_reads) {
      json["random_reads"].push_back(
          {{"request_bytes", rate.request_bytes}, {"reads_per_second", rate.reads_per_second}});
    }
  }
  PrintJson(json, 2);
}

void PrintText(const DeviceRecord& device, const std::optional<Calibration>& fresh) {
  Print("random reads of a row    {}/s{}\n", FormatCount(device.random_reads_per_second),
        fresh ? fmt::format(" ({} each)", FormatBytes(fresh->row_bytes)) : "");
  Print("sequential reads         {}\n", Bandwidth(device.sequential_bytes_per_second));
  Print("writes                   {}\n", Bandwidth(device.write_bytes_per_second));
  Print("rows gathered in memory  {}\n", Bandwidth(device.gather_bytes_per_second));
  if (!fresh) {
    Print("measured                 {}; --force measures again\n", device.measured_utc);
    return;
  }
  Print("\n{:>10}  {:>9}  {:>14}\n", "request", "reads/s", "bandwidth");
  for (const ReadRate& rate : fresh->random_reads) {
    Print("{:>10}  {:>9}  {:>14}\n", FormatBytes(rate.request_bytes), FormatCount(rate.reads_per_second),
          Bandwidth(rate.reads_per_second * rate.request_bytes));
  }
}

Status Calibrate(const CalibrateOptions& options) {
  QUARRY_TRY(const std::unique_ptr<Database> database, Database::Open(options.path));
  std::optional<Calibration> fresh;
  if (options.force || !database->manifest()->device) {
    QUARRY_TRY(fresh, database->Recalibrate());
  }
  const std::shared_ptr<const Manifest> manifest = database->manifest();
  const DeviceRecord& device = *manifest->device;
  options.json ? PrintCalibrationJson(options.path, device, fresh) : PrintText(device, fresh);
  return Status::Ok();
}

}  // namespace

void AddCalibrate(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("calibrate", "Measure the device that a database lies on, and remember it");
  auto options = std::make_shared<CalibrateOptions>();
  verb->add_option("DB", options->path, "database folder")->required();
  verb->add_flag("--force", options->force, "measure again what has been measured");
  verb->add_flag("--json", options->json, "one JSON object on stdout");
  verb->footer("Takes 3 s; run it while nothing else uses the disk.\nExample: quarry calibrate graph.db");
  verb->callback([options, &action] { action = [options] { return Calibrate(*options); }; });
}

}  // namespace quarry::cli
