// What `quarry doctor` makes of a machine: pure functions from facts to findings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/gpu/device.h"

namespace quarry::cli {

// Facts of the kernel, the process's limits, and the processor. Text that the system did not tell is empty.
struct MachineFacts {
  std::string kernel;             // "6.1.0-18-amd64"
  std::string io_uring_error;     // why no ring could be made; empty: one could
  std::string io_uring_disabled;  // kernel.io_uring_disabled: "0", "1", "2"; older kernels have none
  uint64_t memlock_bytes = 0;     // RLIMIT_MEMLOCK
  uint64_t files_max = 0;         // RLIMIT_NOFILE
  uint64_t page_bytes = 0;
  uint64_t memory_bytes = 0;                // the machine's
  uint64_t memory_limit_bytes = 0;          // the least of that and the cgroups' limits
  std::string huge_pages;                   // transparent_hugepage/enabled: "always [madvise] never"
  std::string huge_page_defrag;             // transparent_hugepage/defrag
  unsigned processors_online = 0;           // the machine's
  std::optional<unsigned> processor_quota;  // the cgroups', in processors
  unsigned processors = 0;
  bool avx2 = false, f16c = false, avx512 = false;
  std::string gnuplot;  // its path
  // Devices for training, and why there are none, or why they do not work.
  struct Gpu {
    gpu::DeviceFacts facts;
    std::string pin_error;  // why no memory of the host can be pinned for it; empty: it can
  };
  std::vector<Gpu> gpus;
  Status gpu_status;
};

// Facts of the file system under a path, and the device under that.
struct PlaceFacts {
  std::string path;
  std::string file_system;   // "ext4"
  std::string direct_error;  // why O_DIRECT does not work; empty: it does
  std::string write_error;   // why no file can be made there; empty: one can
  uint64_t block_bytes = 0;  // that direct reads must be aligned to
  uint64_t free_bytes = 0, total_bytes = 0;
  std::string device;              // "nvme0n1"; empty where no single device is under the path
  std::string scheduler;           // "[none] mq-deadline"
  std::optional<bool> rotational;  // a disk that turns, or a virtual one that says so
  double measured_reads = 0;       // random reads a second, of `quarry calibrate`; 0: not measured
};

enum class Verdict : uint8_t { kOk, kSlow, kBroken };
std::string VerdictName(Verdict verdict);

struct Finding {
  std::string what;  // "io_uring"
  Verdict verdict = Verdict::kOk;
  std::string value;  // as it is
  std::string fix;    // what to do; empty where there is nothing to do
};

std::vector<Finding> JudgeMachine(const MachineFacts& facts);
std::vector<Finding> JudgePlace(const PlaceFacts& facts);

// "madvise" of "always [madvise] never"; the whole text where nothing is in brackets.
std::string ChosenOf(const std::string& modes);

}  // namespace quarry::cli
