// quarry calibrate DB: measures the device and the memory that the database lies on, and remembers it there.
#include <algorithm>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "cli.h"
#include "opened_store.h"
#include "print_json.h"
#include "quarry/base/units.h"
#include "quarry/gpu/device.h"
#include "quarry/gpu/rates.h"
#include "quarry/service/calibration.h"
#include "record_json.h"

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

// What this machine's devices move; none where there are none. For people: nothing prices with it.
std::vector<Result<gpu::GpuRates>> MeasureGpus() {
  std::vector<Result<gpu::GpuRates>> all;
  const Result<int> count = gpu::CountDevices();
  for (int i = 0; i < (count.ok() ? *count : 0); ++i) {
    const auto measure = [i]() -> Result<gpu::GpuRates> {
      QUARRY_TRY(const std::unique_ptr<gpu::Device> device, gpu::OpenDevice(i));
      QUARRY_TRY(const uint64_t free_bytes, device->FreeBytes());
      // Others may have the most of it: no more than half of what is left.
      gpu::RateOptions options;
      options.table_bytes = std::min(options.table_bytes, free_bytes / 4);
      options.gathered_bytes = std::min(options.gathered_bytes, free_bytes / 4);
      return gpu::MeasureGpu(*device, options);
    };
    all.push_back(measure());
  }
  return all;
}

void PrintCalibrationJson(const std::string& path, const DeviceRecord& device,
                          const std::optional<Calibration>& fresh,
                          const std::vector<Result<gpu::GpuRates>>& gpus) {
  Json json = {{"path", path}};
  json.update(FieldsOf(device));
  const Json core = FieldsOf(device.core);
  for (const auto& [name, rate] : core.items()) json["core_" + name] = rate;
  json.erase(std::string("core"));
  json["measured_now"] = fresh.has_value();
  if (fresh) {
    json["row_read_bytes"] = fresh->row_bytes;
    json["random_reads"] = Json::array();
    for (const ReadRate& rate : fresh->random_reads) {
      json["random_reads"].push_back(FieldsOf(rate));
    }
    json["gpus"] = Json::array();
    for (const Result<gpu::GpuRates>& rates : gpus) {
      json["gpus"].push_back(rates.ok() ? FieldsOf(*rates) : Json{{"error", rates.status().ToString()}});
    }
  }
  PrintJson(json);
}

void PrintGpu(const gpu::GpuRates& rates) {
  Print("\n{}: {} in, {} out, {} within\n", rates.name, Bandwidth(rates.copy_in_bytes_per_second),
        Bandwidth(rates.copy_out_bytes_per_second), Bandwidth(rates.copy_within_bytes_per_second));
  Print("{:>10}  {:>14}  {:>14}\n", "rows", "mapped", "gathered");
  for (size_t i = 0; i < rates.mapped_rows.size(); ++i) {
    Print("{:>10}  {:>14}  {:>14}\n", FormatBytes(rates.mapped_rows[i].row_bytes),
          Bandwidth(rates.mapped_rows[i].bytes_per_second),
          Bandwidth(rates.gathered_rows[i].bytes_per_second));
  }
}

void PrintText(const DeviceRecord& device, const std::optional<Calibration>& fresh,
               const std::vector<Result<gpu::GpuRates>>& gpus) {
  Print("random reads of a row    {}/s{}\n", FormatCount(device.random_reads_per_second),
        fresh ? fmt::format(" ({} each)", FormatBytes(fresh->row_bytes)) : "");
  Print("sequential reads         {}\n", Bandwidth(device.sequential_bytes_per_second));
  Print("writes                   {}\n", Bandwidth(device.write_bytes_per_second));
  Print("rows gathered in memory  {}\n", Bandwidth(device.gather_bytes_per_second));
  const CoreRates& core = device.core;
  if (core.checksum_bytes_per_second > 0) {
    Print("a core                   {} of checksums, {} of copies, {} of blocks decoded, {:.1f} us a read\n",
          Bandwidth(core.checksum_bytes_per_second), Bandwidth(core.copy_bytes_per_second),
          Bandwidth(core.decode_bytes_per_second), core.request_seconds * 1e6);
  }
  if (!fresh) {
    Print("measured                 {}; --force measures again\n", device.measured_utc);
    return;
  }
  Print("\n{:>10}  {:>9}  {:>14}\n", "request", "reads/s", "bandwidth");
  for (const ReadRate& rate : fresh->random_reads) {
    Print("{:>10}  {:>9}  {:>14}\n", FormatBytes(rate.request_bytes), FormatCount(rate.reads_per_second),
          Bandwidth(rate.reads_per_second * rate.request_bytes));
  }
  for (const Result<gpu::GpuRates>& rates : gpus) {
    rates.ok() ? PrintGpu(*rates) : Print("\n{}\n", rates.status().ToString());
  }
}

// What was measured just now; nothing when it was measured before.
std::optional<Calibration> FreshOf(const wire::MaintenanceReport& report) {
  const Figures figures(report);
  if (figures.Count("measured_now") == 0) return std::nullopt;
  Calibration fresh = {.row_bytes = static_cast<uint32_t>(figures.Count("row_read_bytes"))};
  constexpr std::string_view kPrefix = "random_reads_of_";
  for (const wire::Counter& counter : report.counters) {
    if (!counter.name.starts_with(kPrefix)) continue;
    ReadRate rate = {.reads_per_second = counter.value};
    const char* const digits = counter.name.data() + kPrefix.size();
    std::from_chars(digits, counter.name.data() + counter.name.size(), rate.request_bytes);
    fresh.random_reads.push_back(rate);
  }
  return fresh;
}

Status Calibrate(const CalibrateOptions& options) {
  QUARRY_TRY(const std::unique_ptr<client::Store> store, OpenStore(options.path));
  QUARRY_TRY(const wire::MaintenanceReport report, store->Maintain(wire::CalibrateDevice{options.force}));
  QUARRY_TRY(const Manifest manifest, ManifestOf(*store, options.path));
  const std::optional<Calibration> fresh = FreshOf(report);
  const DeviceRecord device = manifest.device.value_or(DeviceRecord());
  const std::vector<Result<gpu::GpuRates>> gpus =
      fresh ? MeasureGpus() : std::vector<Result<gpu::GpuRates>>();
  options.json ? PrintCalibrationJson(options.path, device, fresh, gpus) : PrintText(device, fresh, gpus);
  return Status::Ok();
}

}  // namespace

void AddCalibrate(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("calibrate", "measure the device that a database lies on, and remember it");
  auto options = std::make_shared<CalibrateOptions>();
  verb->add_option("DB", options->path, kAddressHelp)->required();
  verb->add_flag("--force", options->force, "measure again what has been measured");
  verb->add_flag("--json", options->json, "one JSON object on stdout");
  verb->footer(
      "Takes 3.5 s, and 2 s more for each GPU; run it while nothing else uses the disk.\nExample: quarry "
      "calibrate graph.db");
  verb->callback([options, &action] { action = [options] { return Calibrate(*options); }; });
}

}  // namespace quarry::cli
