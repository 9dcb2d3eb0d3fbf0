#include "quarry/service/calibration.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core_rates.h"
#include "quarry/base/log.h"
#include "quarry/base/process.h"
#include "quarry/base/random.h"
#include "quarry/base/trace.h"
#include "quarry/base/units.h"
#include "quarry/cache/gather.h"
#include "quarry/format/feature_table.h"

namespace quarry {
namespace {

constexpr uint64_t kScratchBytes = 512 * kMiB;
constexpr double kDeviceSeconds = 2.7;
constexpr double kGatherSeconds = 0.3;
constexpr uint64_t kGatherTableBytes = 256 * kMiB;  // beyond what processors cache
constexpr uint64_t kGatherOutBytes = 32 * kMiB;

// A quarter of what is free: a measurement must not fill the disk that others write to.
Result<uint64_t> ScratchBytes(const std::string& path) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(path, error);
  if (error) return ErrnoStatus(error.value(), "tell the free space of", path);
  const uint64_t bytes = std::min<uint64_t>(kScratchBytes, space.available / 4);
  if (bytes >= kScratchBytesMin) return bytes;
  return MakeStatus(Code::kNoSpace, "{}: {} free; measuring the device needs {}", path,
                    FormatBytes(space.available), FormatBytes(4 * kScratchBytesMin));
}

// Bytes per second that all processors together gather from scattered rows.
Result<double> MeasureGather(MemoryBudget& budget, uint64_t row_bytes) {
  constexpr uint64_t kTableShare = kGatherTableBytes / kGatherOutBytes;
  const uint64_t bytes_per_row = (kTableShare + 1) * row_bytes + sizeof(uint32_t);
  const uint64_t out_rows = std::clamp<uint64_t>(budget.available_bytes() / bytes_per_row, 1,
                                                 std::max<uint64_t>(1, kGatherOutBytes / row_bytes));
  const uint64_t table_rows = out_rows * kTableShare;
  QUARRY_TRY(const MemoryBudget::Reservation reservation,
             budget.Reserve(out_rows * bytes_per_row, "measuring the memory"));
  QUARRY_TRY(const IoBuffer table, IoBuffer::Allocate(table_rows * row_bytes));
  QUARRY_TRY(const IoBuffer out, IoBuffer::Allocate(out_rows * row_bytes));
  std::vector<uint32_t> slots(out_rows);
  Rng rng(1);
  std::vector<double> rates;
  const double start_seconds = MonotonicSeconds();
  while (rates.size() < 3 || MonotonicSeconds() - start_seconds < kGatherSeconds) {
    for (uint32_t& slot : slots) slot = static_cast<uint32_t>(rng.Below(table_rows));
    const double gather_start_seconds = MonotonicSeconds();
    GatherRows({table.data(), row_bytes, row_bytes}, slots, out.span(), ProcessorCount());
    rates.push_back(static_cast<double>(out.size()) / (MonotonicSeconds() - gather_start_seconds));
  }
  return Median(std::move(rates));
}

}  // namespace

Result<Calibration> MeasureDevice(Store& store, MemoryBudget& budget) {
  RatesProbe probe{.scratch_directory = store.path(), .seconds_max = kDeviceSeconds};
  QUARRY_TRY(probe.scratch_bytes, ScratchBytes(store.path()));
  uint64_t row_bytes = probe.row_bytes;  // for a database without features
  File file;
  const std::shared_ptr<const Manifest> newest = store.manifest();
  if (const TableRecord* record = newest->FindTable("feature")) {
    QUARRY_TRY(const FeatureGeometry geometry,
               FeatureGeometry::Make(record->element_type, record->dim, record->row_count));
    row_bytes = geometry.row_bytes;
    probe.row_bytes = static_cast<uint32_t>(geometry.cell_bytes());
    QUARRY_TRY(file, store.backend().Open(store.path() + "/" + record->file, OpenMode::kReadDirect));
    if (record->file_bytes >= kMeasuredFileBytesMin) probe.file = &file;
  }
  if (probe.file == nullptr) {
    LogInfo(
        "{}: less than {} of features are too few to measure reads on; a scratch file of up to {} is read",
        store.path(), FormatBytes(kMeasuredFileBytesMin), FormatBytes(probe.scratch_bytes));
  }
  Calibration calibration{.row_bytes = probe.row_bytes};
  DeviceRecord& device = calibration.device;
  double request_seconds = 0;
  {
    QUARRY_TRY(const MemoryBudget::Reservation reservation,
               budget.Reserve(kMeasureRatesBytes, "measuring the device"));
    const ScopedSpan span("measure the device");
    QUARRY_TRY(DeviceRates rates, MeasureRates(store.backend(), probe));
    device.random_reads_per_second = rates.random_reads_per_second;
    device.sequential_bytes_per_second = rates.sequential_bytes_per_second;
    device.write_bytes_per_second = rates.write_bytes_per_second;
    calibration.random_reads = std::move(rates.random_reads);
    request_seconds = rates.request_seconds;
  }
  const ScopedSpan span("measure the memory");
  QUARRY_TRY(device.gather_bytes_per_second, MeasureGather(budget, row_bytes));
  QUARRY_TRY(device.core, MeasureCoreRates(budget, row_bytes));
  device.core.request_seconds = request_seconds;
  device.measured_utc = UtcNow();
  QUARRY_RETURN_IF_ERROR(store.UpdateManifest([&](Manifest& manifest) {
    manifest.device = device;
    return Status::Ok();
  }));
  return calibration;
}

}  // namespace quarry
