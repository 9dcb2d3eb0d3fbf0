#include "doctor_findings.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "quarry/base/units.h"

namespace quarry::cli {
namespace {

constexpr uint64_t kFilesMin = 256;          // the catalog may have 64 of them open
constexpr uint64_t kRingMemlockMin = kMiB;   // some rings, where they count as locked memory
constexpr uint64_t kMemoryMin = 512 * kMiB;  // code, the catalog, LibTorch, and a batch
constexpr uint64_t kFreeMin = 64 * kMiB;     // the catalog writes when it is opened
constexpr uint64_t kBlockBytesMax = 4096;    // the format's pages

// {6, 1} of "6.1.0-18-amd64".
std::pair<unsigned, unsigned> VersionOf(const std::string& release) {
  unsigned major = 0, minor = 0;
  const char* const end = release.data() + release.size();
  const auto [dot, error] = std::from_chars(release.data(), end, major);
  if (error == std::errc() && dot != end && *dot == '.') std::from_chars(dot + 1, end, minor);
  return {major, minor};
}

Finding JudgeKernel(const MachineFacts& facts) {
  Finding finding{.what = "kernel", .value = facts.kernel};
  if (VersionOf(facts.kernel) < std::pair(5U, 6U)) {
    finding.verdict = Verdict::kBroken;
    finding.fix =
        "its io_uring lacks calls that came with Linux 5.6: take a newer one, or set QUARRY_IO=threads";
  }
  return finding;
}

Finding JudgeUring(const MachineFacts& facts) {
  if (facts.io_uring_error.empty()) return {.what = "io_uring", .value = "available"};
  Finding finding{.what = "io_uring",
                  .verdict = Verdict::kSlow,
                  .value = fmt::format("not available: {}; threads read instead", facts.io_uring_error)};
  if (facts.io_uring_disabled == "1" || facts.io_uring_disabled == "2") {
    finding.value += fmt::format(" (kernel.io_uring_disabled = {})", facts.io_uring_disabled);
    finding.fix = "as root: sysctl -w kernel.io_uring_disabled=0";
  } else {
    finding.fix =
        "a container's seccomp profile mostly is the reason: allow io_uring_setup, io_uring_enter and "
        "io_uring_register in it, or run with --security-opt seccomp=unconfined";
  }
  return finding;
}

// Since 5.12 rings count against the cgroup's memory.
Finding JudgeMemlock(const MachineFacts& facts) {
  const bool unlimited = facts.memlock_bytes == UINT64_MAX;
  Finding finding{.what = "memlock limit",
                  .value = unlimited ? "unlimited" : FormatBytes(facts.memlock_bytes)};
  if (VersionOf(facts.kernel) < std::pair(5U, 12U) && facts.memlock_bytes < kRingMemlockMin) {
    finding.verdict = Verdict::kSlow;
    finding.fix = "this kernel counts io_uring's rings as locked memory: raise it, as by ulimit -l 65536";
  }
  return finding;
}

Finding JudgeFiles(const MachineFacts& facts) {
  Finding finding{.what = "open files limit",
                  .value = facts.files_max == UINT64_MAX ? "unlimited" : std::to_string(facts.files_max)};
  if (facts.files_max < kFilesMin) {
    finding.verdict = Verdict::kBroken;
    finding.fix = "a database may have more files open than that: raise it, as by ulimit -n 1024";
  }
  return finding;
}

Finding JudgeMemory(const MachineFacts& facts) {
  const bool limited = facts.memory_limit_bytes < facts.memory_bytes;
  Finding finding{.what = "memory",
                  .value = fmt::format("{}{}", FormatBytes(facts.memory_limit_bytes),
                                       limited ? fmt::format(", the cgroup's limit; the machine has {}",
                                                             FormatBytes(facts.memory_bytes))
                                               : "")};
  if (facts.memory_limit_bytes < kMemoryMin) {
    finding.verdict = Verdict::kSlow;
    finding.fix = fmt::format("training wants {} at least: {}", FormatBytes(kMemoryMin),
                              limited ? "raise the cgroup's limit" : "take a larger machine");
  }
  return finding;
}

Finding JudgeHugePages(const MachineFacts& facts) {
  Finding finding{.what = "huge pages",
                  .value = facts.huge_pages.empty() ? "not in this kernel" : ChosenOf(facts.huge_pages)};
  if (facts.huge_pages.empty() || finding.value == "never") {
    finding.verdict = Verdict::kSlow;
    finding.fix =
        "reads take 2 to 3 times as long into small pages; as root: echo madvise > "
        "/sys/kernel/mm/transparent_hugepage/enabled";
  }
  return finding;
}

// What the kernel does when no huge page is free: of these, `never` alone leaves buffers in small ones.
Finding JudgeDefrag(const MachineFacts& facts) {
  Finding finding{.what = "huge page defrag",
                  .value = facts.huge_page_defrag.empty() ? "unknown" : ChosenOf(facts.huge_page_defrag)};
  if (finding.value == "never") {
    finding.verdict = Verdict::kSlow;
    finding.fix =
        "in fragmented memory buffers get small pages; as root: echo madvise > "
        "/sys/kernel/mm/transparent_hugepage/defrag";
  }
  return finding;
}

Finding JudgePages(const MachineFacts& facts) {
  Finding finding{.what = "page size", .value = FormatBytes(facts.page_bytes)};
  if (facts.page_bytes != 4 * kKiB) {
    finding.verdict = Verdict::kBroken;
    finding.fix = "Quarry's buffers are made for pages of 4 KiB: take a kernel that has them";
  }
  return finding;
}

Finding JudgeProcessor(const MachineFacts& facts) {
  std::string features;
  for (const auto& [there, name] :
       {std::pair(facts.avx2, "AVX2"), std::pair(facts.f16c, "F16C"), std::pair(facts.avx512, "AVX-512")}) {
    if (there) features += fmt::format("{}{}", features.empty() ? "" : ", ", name);
  }
  const bool limited =
      facts.processor_quota == facts.processors && facts.processors < facts.processors_online;
  Finding finding{
      .what = "processors",
      .value = fmt::format(
          "{}{}, with {}", facts.processors,
          limited ? fmt::format(" (the cgroup's quota; the machine has {})", facts.processors_online) : "",
          features.empty() ? "none of AVX2, F16C, AVX-512" : features)};
  if (!facts.avx2 || !facts.f16c) {
    finding.verdict = Verdict::kSlow;
    finding.fix = "rows are decoded element by element without AVX2 and F16C: take a machine that has them";
  }
  return finding;
}

// Nothing but `quarry plot` wants it.
Finding JudgeGnuplot(const MachineFacts& facts) {
  if (!facts.gnuplot.empty()) return {.what = "gnuplot", .value = facts.gnuplot};
  return {
      .what = "gnuplot", .value = "not there", .fix = "quarry plot needs it: apt-get install gnuplot-nox"};
}

// Nothing needs one; what is there should work. The link's generation is not judged: a device that idles lowers it.
constexpr unsigned kLinkWidthMin = 8;

std::vector<Finding> JudgeGpus(const MachineFacts& facts) {
  if (!facts.gpu_status.ok()) {
    Finding finding{.what = "GPU", .value = std::string(facts.gpu_status.message())};
    if (facts.gpu_status.code() == Code::kUnsupported) return {finding};  // none was installed
    finding.verdict = Verdict::kSlow;
    finding.fix =
        "there is a driver that does not work: nvidia-smi may tell more; without it training is the "
        "processor's";
    return {finding};
  }
  if (facts.gpus.empty()) return {{.what = "GPU", .value = "none: the driver finds no device"}};
  std::vector<Finding> findings;
  for (const MachineFacts::Gpu& gpu : facts.gpus) {
    const gpu::DeviceFacts& device = gpu.facts;
    const std::string link = device.pcie_width == 0 ? "a link of unknown width"
                             : device.pcie_generation == 0
                                 ? fmt::format("PCIe x{}", device.pcie_width)
                                 : fmt::format("PCIe {} x{}", device.pcie_generation, device.pcie_width);
    Finding finding{.what = fmt::format("GPU {}", device.ordinal),
                    .value = fmt::format("{}, {}, sm_{}, driver of CUDA {}.{}, {}", device.name,
                                         FormatBytes(device.memory_bytes), device.capability,
                                         device.driver / 1000, device.driver % 1000 / 10, link)};
    if (!gpu.pin_error.empty()) {
      finding.verdict = Verdict::kSlow;
      finding.value += fmt::format("; no memory can be pinned for it: {}", gpu.pin_error);
      finding.fix =
          "copies wait for the processor without it: raise the memlock limit, as by ulimit -l unlimited";
    } else if (device.pcie_width != 0 && device.pcie_width < kLinkWidthMin) {
      finding.verdict = Verdict::kSlow;
      finding.fix = "rows go to it over few lanes: put it into a slot with 16";
    }
    findings.push_back(std::move(finding));
  }
  return findings;
}

Finding JudgeFileSystem(const PlaceFacts& facts) {
  Finding finding{.what = "file system", .value = fmt::format("{} at {}", facts.file_system, facts.path)};
  for (const std::string_view remote : {"nfs", "cifs", "smb3", "fuse", "9p", "ceph", "lustre"}) {
    if (facts.file_system != remote) continue;
    finding.verdict = Verdict::kSlow;
    finding.fix = "scattered reads cost a round trip each there: put databases on a disk of this machine";
  }
  if (!facts.write_error.empty()) {
    finding.verdict = Verdict::kBroken;
    finding.value += fmt::format(", not writable: {}", facts.write_error);
    finding.fix = "opening a database writes to its folder: make it writable, or choose another one";
  }
  return finding;
}

Finding JudgeDirect(const PlaceFacts& facts) {
  if (facts.direct_error.empty()) return {.what = "O_DIRECT", .value = "works"};
  return {.what = "O_DIRECT",
          .verdict = Verdict::kSlow,
          .value = fmt::format("does not work: {}", facts.direct_error),
          .fix = "the page cache is in the way, outside of --memory: use ext4 or XFS on a disk"};
}

Finding JudgeBlocks(const PlaceFacts& facts) {
  Finding finding{.what = "direct reads of", .value = FormatBytes(facts.block_bytes)};
  if (facts.block_bytes > kBlockBytesMax) {
    finding.verdict = Verdict::kBroken;
    finding.fix = fmt::format("pages of the format have {}: use a device with blocks of no more than that",
                              FormatBytes(kBlockBytesMax));
  }
  return finding;
}

Finding JudgeFreeSpace(const PlaceFacts& facts) {
  Finding finding{
      .what = "free space",
      .value = fmt::format("{} of {}", FormatBytes(facts.free_bytes), FormatBytes(facts.total_bytes))};
  if (facts.free_bytes < kFreeMin) {
    finding.verdict = Verdict::kBroken;
    finding.fix =
        fmt::format("a database that is opened writes: make {} free at least", FormatBytes(kFreeMin));
  }
  return finding;
}

// Disks that turn give a few hundred.
constexpr double kTurningReadsMax = 2000;

Finding JudgeDevice(const PlaceFacts& facts) {
  if (facts.device.empty()) return {.what = "device", .value = "no single one"};
  const std::string scheduler = ChosenOf(facts.scheduler);
  const bool measured = facts.measured_reads > 0;
  // A measurement outweighs what the device says of itself: virtual disks say that they turn.
  const bool turns = measured ? facts.measured_reads < kTurningReadsMax : facts.rotational.value_or(false);
  const std::string kind = measured ? FormatCount(facts.measured_reads) + " random reads/s measured"
                           : !facts.rotational ? "of unknown kind"
                           : *facts.rotational ? "rotational"
                                               : "not rotational";
  Finding finding{.what = "device",
                  .value = fmt::format("{}, {}, scheduler {}", facts.device, kind,
                                       scheduler.empty() ? "unknown" : scheduler)};
  if (turns) {
    finding.verdict = Verdict::kSlow;
    finding.fix =
        "a disk that turns takes milliseconds for each scattered read: use an SSD, or train with --plan";
    if (!measured)
      finding.fix += "; a virtual one may only say that it turns: quarry calibrate DB measures it";
  } else if (scheduler == "bfq" || scheduler == "kyber") {
    finding.verdict = Verdict::kSlow;
    finding.fix = fmt::format(
        "it costs more than it gives here; as root: echo none > /sys/block/{}/queue/scheduler", facts.device);
  }
  return finding;
}

}  // namespace

std::string VerdictName(Verdict verdict) {
  return verdict == Verdict::kOk ? "ok" : verdict == Verdict::kSlow ? "slow" : "broken";
}

std::string ChosenOf(const std::string& modes) {
  const size_t open = modes.find('['), close = modes.find(']');
  return open == std::string::npos || close < open ? modes : modes.substr(open + 1, close - open - 1);
}

std::vector<Finding> JudgeMachine(const MachineFacts& facts) {
  std::vector<Finding> findings = {JudgeKernel(facts), JudgeUring(facts),  JudgeMemlock(facts),
                                   JudgeFiles(facts),  JudgeMemory(facts), JudgeHugePages(facts),
                                   JudgeDefrag(facts), JudgePages(facts),  JudgeProcessor(facts),
                                   JudgeGnuplot(facts)};
  for (Finding& finding : JudgeGpus(facts)) findings.push_back(std::move(finding));
  return findings;
}

std::vector<Finding> JudgePlace(const PlaceFacts& facts) {
  return {JudgeFileSystem(facts), JudgeDirect(facts), JudgeBlocks(facts), JudgeFreeSpace(facts),
          JudgeDevice(facts)};
}

}  // namespace quarry::cli
