// What a GPU moves and what a call costs, each beside its limit, measured in the same run. For a machine that has a GPU
// and nothing else of Quarry: it needs the C library, libstdc++, and the libraries that lie beside it.
//
//   bench_gpu [--device N] [--quick] [--json]
//
// --quick measures over a table of 1 GiB, thrice; otherwise 8 GiB, seven times, of which the median counts. Prints one
// table, as Markdown, or one JSON object a line.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quarry/base/mutex.h"
#include "quarry/base/units.h"
#include "quarry/format/batch_view.h"
#include "quarry/format/element_type.h"
#include "quarry/gpu/device.h"
#include "quarry/gpu/handles.h"
#include "quarry/gpu/rates.h"
#include "quarry/gpu/rows.h"

namespace quarry::gpu {
namespace {

constexpr char kUsage[] = "bench_gpu [--device N] [--quick] [--json]";
constexpr double kGiga = 1e9;

struct Options {
  uint64_t device = 0;
  bool quick = false, json = false;
};

// A line of the table.
struct Figure {
  std::string what, unit;
  double value = 0;
  std::string limit_of = {};  // what the limit is; empty: none
  double limit = 0;
  double goal = 0;  // of value / limit; 0: none
};

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class Bench {
 public:
  Bench(Device& device, const Options& options) : device_(device), options_(options) {}
  Status Run() {
    QUARRY_TRY(meter_, RateMeter::Make(device_, {.table_bytes = options_.quick ? kGiB : 8 * kGiB,
                                                 .gathered_bytes = options_.quick ? 256 * kMiB : 512 * kMiB,
                                                 .repeats = options_.quick ? 3U : 7U}));
    QUARRY_RETURN_IF_ERROR(MeasureLink());
    QUARRY_RETURN_IF_ERROR(MeasureRows());
    QUARRY_RETURN_IF_ERROR(MeasureCalls());
    for (const uint64_t frame_bytes : {kMiB, 4 * kMiB, 16 * kMiB, 64 * kMiB}) {
      QUARRY_RETURN_IF_ERROR(MeasureFrames(frame_bytes, false));
      QUARRY_RETURN_IF_ERROR(MeasureFrames(frame_bytes, true));
    }
    return Status::Ok();
  }
  bool measured() const { return meter_ != nullptr; }
  void Print() const;

 private:
  Status MeasureLink();
  Status MeasureRows();
  Status MeasureCalls();
  Status MeasureFrames(uint64_t frame_bytes, bool calls_apart);
  void Add(Figure figure) { figures_.push_back(std::move(figure)); }

  Device& device_;
  const Options options_;
  std::unique_ptr<RateMeter> meter_;
  double copy_in_ = 0;  // of 16 MiB, plain
  std::vector<Figure> figures_;
};

// The link in theory: giga-transfers a second of a lane, 128 bits of 130 of them.
double TheoryOf(const DeviceFacts& facts) {
  constexpr std::array kLane = {0.0, 0.25, 0.5, 0.985, 1.969, 3.938, 7.563};  // GB/s
  return facts.pcie_generation < kLane.size() ? kLane[facts.pcie_generation] * facts.pcie_width : 0;
}

Status Bench::MeasureLink() {
  QUARRY_TRY(copy_in_, meter_->CopyIn(16 * kMiB));
  QUARRY_TRY(const double copy_out, meter_->CopyOut(16 * kMiB));
  QUARRY_TRY(const double both, meter_->CopyBothWays(16 * kMiB));
  const double theory = TheoryOf(device_.facts());
  const std::string link = theory == 0 ? ""
                                       : fmt::format("PCIe {} x{} in theory", device_.facts().pcie_generation,
                                                     device_.facts().pcie_width);
  Add({"copies in, 16 MiB each", "GB/s", copy_in_ / kGiga, link, theory});
  Add({"copies out, 16 MiB each", "GB/s", copy_out / kGiga, link, theory});
  Add({"both at once, sum", "GB/s", both / kGiga, "each alone, sum", (copy_in_ + copy_out) / kGiga});
  for (const uint64_t bytes : {64 * kKiB, 256 * kKiB, kMiB, 4 * kMiB, 64 * kMiB}) {
    QUARRY_TRY(const double in, meter_->CopyIn(bytes));
    QUARRY_TRY(const double out, meter_->CopyOut(bytes));
    Add({fmt::format("copies in, {} each", FormatBytes(bytes)), "GB/s", in / kGiga, "16 MiB copies in",
         copy_in_ / kGiga});
    Add({fmt::format("copies out, {} each", FormatBytes(bytes)), "GB/s", out / kGiga, "16 MiB copies out",
         copy_out / kGiga});
  }
  for (const uint64_t row_bytes : {64, 128, 256, 512, 1024, 3072}) {
    QUARRY_TRY(const double rate, meter_->GatherMapped(row_bytes));
    Add({fmt::format("rows of {} B read from mapped host memory", row_bytes), "GB/s", rate / kGiga,
         "16 MiB copies in", copy_in_ / kGiga});
  }
  return Status::Ok();
}

Status Bench::MeasureRows() {
  QUARRY_TRY(const double within, meter_->CopyWithin());
  Add({"device to device, read and written", "GB/s", within / kGiga});
  for (const uint64_t row_bytes : {64, 128, 256, 512, 1024, 2048, 3072}) {
    QUARRY_TRY(const double rate, meter_->Gather(row_bytes));
    Add({fmt::format("rows of {} B gathered, read and written", row_bytes), "GB/s", rate / kGiga,
         "device to device", within / kGiga, row_bytes == 512 ? 0.8 : 0.0});
  }
  // Decoded to float32: what is read is the smaller part.
  for (const ElementType type : {ElementType::kFloat16, ElementType::kBfloat16, ElementType::kInt8}) {
    constexpr uint32_t kDim = 256;
    const uint64_t stride = RoundUp(RowBytes(type, kDim), 16), row_bytes = stride + kDim * sizeof(float);
    const uint64_t count = meter_->out().size() / (kDim * sizeof(float)),
                   slots = meter_->table().size() / stride;
    QUARRY_TRY(const uint32_t* const chosen, meter_->RandomRows(count, slots));
    const FeatureView view{.rows = meter_->table(),
                           .stride_bytes = stride,
                           .element_type = type,
                           .dim = kDim,
                           .slots = {chosen, count}};
    QUARRY_TRY(const double seconds, meter_->Seconds([&](StreamHandle stream) {
      return DecodeRows(device_, view, count, reinterpret_cast<float*>(meter_->out().data()), stream);
    }));
    Add({fmt::format("rows of {} {} gathered as float32, read and written", kDim, ElementTypeName(type)),
         "GB/s", static_cast<double>(count * row_bytes) / seconds / kGiga, "device to device",
         within / kGiga});
  }
  return Status::Ok();
}

// What the host pays for a call, and what the device needs between kernels.
Status Bench::MeasureCalls() {
  constexpr int kCalls = 500;  // fewer than a stream's queue holds
  QUARRY_TRY(const Stream stream, MakeStream(device_));
  QUARRY_TRY(const Stream other, MakeStream(device_));
  QUARRY_TRY(const Event event, MakeEvent(device_));
  const RowCopy row{.from = meter_->table().data(),
                    .to = meter_->out().data(),
                    .rows = 1,
                    .row_bytes = 16,
                    .from_stride_bytes = 16,
                    .to_stride_bytes = 16};
  const auto host_seconds = [&](const auto& call) -> Result<double> {
    double best = 1;
    for (int round = 0; round < 5; ++round) {
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < kCalls; ++i) QUARRY_RETURN_IF_ERROR(call());
      best = std::min(best, SecondsSince(start) / kCalls);
      QUARRY_RETURN_IF_ERROR(device_.Synchronize(stream.get()));
      QUARRY_RETURN_IF_ERROR(device_.Synchronize(other.get()));
    }
    return best;
  };
  QUARRY_TRY(const double launch, host_seconds([&] { return CopyRows(device_, row, stream.get()); }));
  QUARRY_TRY(const double record, host_seconds([&] { return device_.Record(event.get(), stream.get()); }));
  QUARRY_TRY(const double wait, host_seconds([&] { return device_.Wait(other.get(), event.get()); }));
  QUARRY_TRY(const double look, host_seconds([&] { return device_.HasHappened(event.get()).status(); }));
  QUARRY_TRY(const double copy, host_seconds([&] {
               return device_.CopyIn(meter_->table().data(), meter_->host().data(), 4 * kKiB, stream.get());
             }));
  std::atomic<uint64_t> calls = 0;
  QUARRY_TRY(const double call_host, host_seconds([&] {
               return device_.CallHost(
                   stream.get(), [](void* count) { ++*static_cast<std::atomic<uint64_t>*>(count); }, &calls);
             }));
  QUARRY_TRY(const double between, meter_->Seconds([&](StreamHandle timed) {
    for (int i = 0; i < kCalls; ++i) QUARRY_RETURN_IF_ERROR(CopyRows(device_, row, timed));
    return Status::Ok();
  }));
  Add({"a launch, host", "us", launch * 1e6});
  Add({"a launch of nearly nothing, device", "us", between / kCalls * 1e6});
  Add({"record an event, host", "us", record * 1e6});
  Add({"wait for an event on a stream, host", "us", wait * 1e6});
  Add({"look at an event, host", "us", look * 1e6});
  Add({"enqueue a copy of 4 KiB, host", "us", copy * 1e6});
  Add({"enqueue a call of the host, host", "us", call_host * 1e6});
  return Status::Ok();
}

// Frames of the host that a road has filled and waits to get back.
class FramePool {
 public:
  explicit FramePool(std::span<std::byte> memory, uint64_t frame_bytes) {
    for (uint64_t at = 0; at + frame_bytes <= memory.size() && frames_.size() < 4; at += frame_bytes) {
      frames_.push_back({this, memory.data() + at});
      free_.push_back(&frames_.back());
    }
  }
  struct Frame {
    FramePool* pool;
    std::byte* bytes;
  };
  Result<Frame*> Take() QUARRY_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (free_.empty()) {
      if (!given_back_.WaitUntil(mutex_, deadline) && free_.empty()) {
        return Status(Code::kIoError, "the device gave no frame back in 10 s");
      }
    }
    Frame* const frame = free_.front();
    free_.pop_front();
    return frame;
  }
  static void GiveBack(void* frame) {
    FramePool& pool = *static_cast<Frame*>(frame)->pool;
    const MutexLock lock(pool.mutex_);
    pool.free_.push_back(static_cast<Frame*>(frame));
    pool.given_back_.NotifyOne();
  }

 private:
  Mutex mutex_;
  CondVar given_back_;
  std::deque<Frame*> free_ QUARRY_GUARDED_BY(mutex_);
  std::deque<Frame> frames_;
};

// Batches as the planned road enqueues them: a frame's copy on one stream, its rows and as many of the device's cache
// gathered on another, ordered by events; three frames on the device, four on the host, which come back by calls of the copy
// stream, or, `calls_apart`, of a stream that waits for it, so that the next copy does not wait for the call. The host waits
// for frames alone.
Status Bench::MeasureFrames(uint64_t frame_bytes, bool calls_apart) {
  constexpr uint64_t kRow = 512, kRing = 3;
  const uint64_t rows = frame_bytes / kRow;
  const uint64_t batches =
      std::clamp((options_.quick ? kGiB : 4 * kGiB) / frame_bytes, uint64_t{16}, uint64_t{2000});
  const std::span<std::byte> table = meter_->table();
  std::byte* const ring = table.data();
  std::byte* const cache = table.data() + kRing * frame_bytes;
  QUARRY_TRY(const uint32_t* const cached,
             meter_->RandomRows(rows, (table.size() - kRing * frame_bytes) / kRow));
  QUARRY_TRY(const Stream copies, MakeStream(device_));
  QUARRY_TRY(const Stream work, MakeStream(device_));
  QUARRY_TRY(const Stream calls, MakeStream(device_));
  std::array<Event, kRing> copied, gathered;
  for (Event& event : copied) {
    QUARRY_TRY(event, MakeEvent(device_));
  }
  for (Event& event : gathered) {
    QUARRY_TRY(event, MakeEvent(device_));
  }
  const auto gather = [&](const std::byte* from, const uint32_t* slots, std::byte* to) {
    return CopyRows(device_,
                    {.from = from,
                     .to = to,
                     .from_rows = slots,
                     .rows = rows,
                     .row_bytes = kRow,
                     .from_stride_bytes = kRow,
                     .to_stride_bytes = kRow},
                    work.get());
  };
  FramePool pool(meter_->host(), frame_bytes);
  const uint64_t waits_before = device_.counts().host_waits;
  double host_seconds = 0;
  const auto start = std::chrono::steady_clock::now();
  Status failed;
  for (uint64_t i = 0; i < batches && failed.ok(); ++i) {
    const Result<FramePool::Frame*> taken = pool.Take();
    const auto enqueue_start = std::chrono::steady_clock::now();
    const uint64_t at = i % kRing;
    const auto enqueue = [&]() -> Status {
      QUARRY_TRY(FramePool::Frame* const frame, taken);
      if (i >= kRing) QUARRY_RETURN_IF_ERROR(device_.Wait(copies.get(), gathered[at].get()));
      QUARRY_RETURN_IF_ERROR(
          device_.CopyIn(ring + at * frame_bytes, frame->bytes, frame_bytes, copies.get()));
      QUARRY_RETURN_IF_ERROR(device_.Record(copied[at].get(), copies.get()));
      if (calls_apart) QUARRY_RETURN_IF_ERROR(device_.Wait(calls.get(), copied[at].get()));
      QUARRY_RETURN_IF_ERROR(
          device_.CallHost(calls_apart ? calls.get() : copies.get(), FramePool::GiveBack, frame));
      QUARRY_RETURN_IF_ERROR(device_.Wait(work.get(), copied[at].get()));
      QUARRY_RETURN_IF_ERROR(gather(ring + at * frame_bytes, nullptr, meter_->out().data()));
      QUARRY_RETURN_IF_ERROR(gather(cache, cached, meter_->out().data() + frame_bytes));
      return device_.Record(gathered[at].get(), work.get());
    };
    failed = enqueue();
    host_seconds += SecondsSince(enqueue_start);
  }
  const uint64_t waits = device_.counts().host_waits - waits_before;
  const Status copies_end = device_.Synchronize(copies.get()), work_end = device_.Synchronize(work.get());
  const Status calls_end = device_.Synchronize(calls.get());
  const double seconds = SecondsSince(start);
  QUARRY_RETURN_IF_ERROR(failed);
  QUARRY_RETURN_IF_ERROR(copies_end);
  QUARRY_RETURN_IF_ERROR(work_end);
  QUARRY_RETURN_IF_ERROR(calls_end);
  const std::string frame = FormatBytes(frame_bytes) + (calls_apart ? ", calls apart" : "");
  Add({fmt::format("batches of a frame and two gathers, bytes copied in ({})", frame), "GB/s",
       static_cast<double>(batches * frame_bytes) / seconds / kGiga, "16 MiB copies in", copy_in_ / kGiga,
       0.9});
  Add({fmt::format("the host's time to enqueue one ({})", frame), "us",
       host_seconds / static_cast<double>(batches) * 1e6});
  Add({fmt::format("the host's waits for the device in {} batches", batches), "",
       static_cast<double>(waits)});
  return Status::Ok();
}

void Bench::Print() const {
  const DeviceFacts& facts = device_.facts();
  if (!options_.json) {
    fmt::print("{}, sm_{}, CUDA {}.{}, PCIe {} x{} (0: unknown); table of {}, host pinned {}\n\n", facts.name,
               facts.capability, facts.driver / 1000, facts.driver % 1000 / 10, facts.pcie_generation,
               facts.pcie_width, FormatBytes(meter_->table().size()), FormatBytes(meter_->host().size()));
    fmt::print("| | | | beside it | ratio | goal |\n| --- | ---: | --- | --- | ---: | ---: |\n");
  }
  for (const Figure& figure : figures_) {
    const bool limited = !figure.limit_of.empty() && figure.limit > 0;
    const double ratio = limited ? figure.value / figure.limit : 0;
    if (options_.json) {
      std::string line = fmt::format(R"({{"device": "{}", "what": "{}", "value": {:.6g}, "unit": "{}")",
                                     facts.name, figure.what, figure.value, figure.unit);
      if (limited)
        line += fmt::format(R"(, "beside": "{}", "limit": {:.6g}, "ratio": {:.4f})", figure.limit_of,
                            figure.limit, ratio);
      if (figure.goal > 0) line += fmt::format(R"(, "goal": {})", figure.goal);
      fmt::print("{}}}\n", line);
    } else {
      fmt::print("| {} | {:.{}f} | {} | {} | {} | {} |\n", figure.what, figure.value,
                 figure.unit.empty() ? 0
                 : figure.value < 10 ? 2
                                     : 1,
                 figure.unit, limited ? fmt::format("{:.1f} {}", figure.limit, figure.limit_of) : "",
                 limited ? fmt::format("{:.2f}", ratio) : "",
                 figure.goal > 0 ? fmt::format(">= {}", figure.goal) : "");
    }
  }
}

Status RunBench(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view text = argv[i];
    if (text == "--quick") {
      options.quick = true;
    } else if (text == "--json") {
      options.json = true;
    } else if (text == "--device" && i + 1 < argc) {
      QUARRY_TRY(options.device, ParseCount(argv[++i]));
    } else {
      return MakeStatus(Code::kUsage, "{}: not '{}'", kUsage, text);
    }
  }
  QUARRY_TRY(const std::unique_ptr<Device> device, OpenDevice(static_cast<int>(options.device)));
  Bench bench(*device, options);
  const Status status = bench.Run();
  if (bench.measured()) bench.Print();  // also what was measured before it failed
  return status;
}

}  // namespace
}  // namespace quarry::gpu

int main(int argc, char** argv) {
  const quarry::Status status = quarry::gpu::RunBench(argc, argv);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return quarry::ExitCode(status.code());
}
