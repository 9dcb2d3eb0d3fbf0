// Checks a GPU: every kernel against the processor, every call of gpu::Device and its errors, and that its memory is as
// free in the end as at the start. One line a check; exit code 1 when one fails. For a machine that has a GPU and nothing
// else of Quarry: it needs the C library, libstdc++, and the libraries that lie beside it.
//
//   gpu_device_check [--device N] [--size ROWS] [--seed S] [NAME]...       (NAME: checks whose names contain it)
//
// compute-sanitizer --report-api-errors no --error-exitcode 1 --leak-check full gpu_device_check --size 100
// (and --tool racecheck, synccheck) checks the kernels' accesses; errors of calls are provoked here.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/device_checks.h"
#include "quarry/base/units.h"

namespace quarry {
namespace {

using testing_util::DeviceCheck;
using testing_util::DeviceCheckContext;

struct Options {
  uint64_t device = 0, size = 20'000, seed = 1;
  std::vector<std::string> names;
};

Result<Options> ParseOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view text = argv[i];
    uint64_t* const number = text == "--device" ? &options.device
                             : text == "--size" ? &options.size
                             : text == "--seed" ? &options.seed
                                                : nullptr;
    if (number != nullptr && i + 1 < argc) {
      QUARRY_TRY(*number, ParseCount(argv[++i]));
    } else if (number == nullptr && !text.starts_with("--")) {
      options.names.emplace_back(text);
    } else {
      return Status(Code::kUsage, "gpu_device_check [--device N] [--size ROWS] [--seed S] [NAME]...");
    }
  }
  if (options.size == 0) return Status(Code::kUsage, "--size: at least 1");
  return options;
}

bool IsNamed(const Options& options, std::string_view name) {
  for (const std::string& part : options.names) {
    if (name.find(part) != std::string_view::npos) return true;
  }
  return options.names.empty();
}

// How many failed.
Result<int> CheckAll(const Options& options) {
  QUARRY_TRY(const auto device, gpu::OpenDevice(static_cast<int>(options.device)));
  const gpu::DeviceFacts& facts = device->facts();
  fmt::print("device {}: {}, sm_{}, {} multiprocessors, {}, CUDA {}.{}, PCIe {} x{} (0: unknown), {}\n",
             facts.ordinal, facts.name, facts.capability, facts.multiprocessors,
             FormatBytes(facts.memory_bytes), facts.driver / 1000, facts.driver % 1000 / 10,
             facts.pcie_generation, facts.pcie_width, facts.bus_id);
  int failed = 0, passed = 0;
  std::optional<uint64_t> free_at_start;
  // The first round is for the driver, which keeps some of what it allocates for modules, streams and launches.
  for (const bool counts : {false, true}) {
    for (const DeviceCheck& check : testing_util::DeviceChecks()) {
      if (!IsNamed(options, check.name)) continue;
      QUARRY_TRY(const auto stream, gpu::MakeStream(*device));
      DeviceCheckContext context{
          .device = *device, .stream = stream.get(), .seed = options.seed, .size = options.size};
      const auto start = std::chrono::steady_clock::now();
      const Status status = check.run(context);
      if (!counts) continue;
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      fmt::print("{}  {:<40} {:6.3f} s{}\n", status.ok() ? "PASS" : "FAIL", check.name, seconds.count(),
                 status.ok() ? "" : "  " + status.ToString());
      std::fflush(stdout);
      ++(status.ok() ? passed : failed);
    }
    QUARRY_TRY(const uint64_t free_bytes, device->FreeBytes());
    if (counts) {
      const bool same = free_bytes >= *free_at_start;
      fmt::print("{}  {:<40} {} free, {} at the start\n", same ? "PASS" : "FAIL", "MemoryIsAsFreeAsBefore",
                 FormatBytes(free_bytes), FormatBytes(*free_at_start));
      ++(same ? passed : failed);
    }
    free_at_start = free_bytes;
  }
  const gpu::DeviceCounts counts = device->counts();
  fmt::print("{} passed, {} failed; {} launches, {} copies of {}, {} allocations, {} given back\n", passed,
             failed, counts.launches, counts.copies, FormatBytes(counts.copied_bytes), counts.allocations,
             counts.frees);
  return failed;
}

}  // namespace
}  // namespace quarry

int main(int argc, char** argv) {
  const auto options = quarry::ParseOptions(argc, argv);
  const auto failed = options.ok() ? quarry::CheckAll(*options) : quarry::Result<int>(options.status());
  if (failed.ok()) return *failed == 0 ? 0 : 1;
  std::fprintf(stderr, "%s\n", failed.status().ToString().c_str());
  return quarry::ExitCode(failed.status().code());
}
