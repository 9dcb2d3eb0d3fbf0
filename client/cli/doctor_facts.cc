#include "doctor_facts.h"

#include <fcntl.h>
#include <mntent.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>

#include "quarry/base/process.h"
#include "quarry/base/processor_quota.h"
#include "quarry/base/units.h"
#include "quarry/format/feature_table.h"
#include "quarry/gpu/device.h"
#include "quarry/gpu/handles.h"
#include "quarry/gpu/rates.h"
#include "quarry/io/backend.h"
#include "quarry/io/buffer.h"

namespace quarry::cli {
namespace {

namespace fs = std::filesystem;

// The first line; empty where there is no such file.
std::string LineOf(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

uint64_t LimitOf(decltype(RLIMIT_NOFILE) resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0) return 0;
  return limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
}

// The flags of the first processor, as the kernel names them.
std::set<std::string> ProcessorFlags() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    return {std::istream_iterator<std::string>(words), {}};
  }
  return {};
}

// The mount with the longest path that leads to `path`, the last of several at one place.
std::string FileSystemOf(const std::string& path) {
  const std::unique_ptr<FILE, int (*)(FILE*)> mounts(setmntent("/proc/self/mounts", "r"), endmntent);
  std::string type = "unknown";
  size_t longest = 0;
  while (const mntent* mount = mounts ? getmntent(mounts.get()) : nullptr) {
    const std::string folder = mount->mnt_dir;
    const std::string below = folder == "/" ? folder : folder + "/";
    if ((path != folder && !path.starts_with(below)) || folder.size() < longest) continue;
    longest = folder.size();
    type = mount->mnt_type;
  }
  // "fuse.sshfs", "nfs4"
  if (type.starts_with("fuse.")) return "fuse";
  return type == "nfs4" ? "nfs" : type;
}

// Partitions have no queue of their own: their folder lies in their disk's.
void AskDevice(dev_t number, PlaceFacts& facts) {
  std::error_code error;
  fs::path folder = fs::canonical(fmt::format("/sys/dev/block/{}:{}", major(number), minor(number)), error);
  if (error) return;
  if (!fs::exists(folder / "queue", error)) folder = folder.parent_path();
  if (!fs::exists(folder / "queue", error)) return;
  facts.device = folder.filename();
  facts.scheduler = LineOf(folder / "queue/scheduler");
  const std::string rotational = LineOf(folder / "queue/rotational");
  if (!rotational.empty()) facts.rotational = rotational == "1";
}

// Writes and reads a page of a file that has lost its name already.
void TryDirect(PlaceFacts& facts) {
  std::string name = facts.path + "/doctor-XXXXXX";
  const int descriptor = mkostemp(name.data(), O_CLOEXEC);
  if (descriptor < 0) {
    facts.write_error = std::strerror(errno);
    return;
  }
  const File file(descriptor, name, /*direct=*/true);
  unlink(name.c_str());
  facts.block_bytes = LogicalBlockBytes(file);
  const Result<IoBuffer> buffer = IoBuffer::Allocate(kPageBytes);
  if (!buffer.ok()) {
    facts.direct_error = buffer.status().message();
  } else if (fcntl(descriptor, F_SETFL, O_DIRECT) != 0 ||
             pwrite(descriptor, buffer->data(), kPageBytes, 0) != static_cast<ssize_t>(kPageBytes) ||
             pread(descriptor, buffer->data(), kPageBytes, 0) != static_cast<ssize_t>(kPageBytes)) {
    facts.direct_error = std::strerror(errno);
  }
}

// Pinned for a moment, as frames are.
constexpr uint64_t kPinnedBytes = 64 * kMiB;

void AskGpus(MachineFacts& facts) {
  const Result<int> count = gpu::CountDevices();
  facts.gpu_status = count.status();
  for (int i = 0; count.ok() && i < *count && facts.gpu_status.ok(); ++i) {
    const Result<std::unique_ptr<gpu::Device>> device = gpu::OpenDevice(i);
    facts.gpu_status = device.status();
    if (!device.ok()) return;
    MachineFacts::Gpu& found = facts.gpus.emplace_back();
    found.facts = (*device)->facts();
    const Result<gpu::HostPages> pages = gpu::HostPages::Map(kPinnedBytes);
    const Status pinned = pages.ok() ? gpu::PinMemory(**device, pages->bytes()).status() : pages.status();
    found.pin_error = pinned.message();
  }
}

}  // namespace

std::string FindProgram(const std::string& name) {
  const char* const folders = std::getenv("PATH");
  std::istringstream list(folders == nullptr ? "" : folders);
  for (std::string folder; std::getline(list, folder, ':');) {
    const std::string path = folder + "/" + name;
    if (!folder.empty() && access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

MachineFacts AskMachine() {
  MachineFacts facts;
  utsname name{};
  if (uname(&name) == 0) facts.kernel = name.release;
  if (const auto uring = MakeUringBackend(); !uring.ok()) facts.io_uring_error = uring.status().message();
  facts.io_uring_disabled = LineOf("/proc/sys/kernel/io_uring_disabled");
  facts.memlock_bytes = LimitOf(RLIMIT_MEMLOCK);
  facts.files_max = LimitOf(RLIMIT_NOFILE);
  facts.page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  facts.memory_bytes = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * facts.page_bytes;
  facts.memory_limit_bytes = MemoryLimitBytes();
  facts.huge_pages = LineOf("/sys/kernel/mm/transparent_hugepage/enabled");
  facts.huge_page_defrag = LineOf("/sys/kernel/mm/transparent_hugepage/defrag");
  facts.processors = ProcessorCount();
  facts.processors_online = static_cast<unsigned>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  facts.processor_quota = ProcessorQuota();
  const std::set<std::string> flags = ProcessorFlags();
  facts.avx2 = flags.contains("avx2");
  facts.f16c = flags.contains("f16c");
  facts.avx512 = flags.contains("avx512f");
  facts.gnuplot = FindProgram("gnuplot");
  AskGpus(facts);
  return facts;
}

Result<PlaceFacts> AskPlace(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return ErrnoStatus(errno, "look at", path);
  if (!S_ISDIR(status.st_mode)) {
    return MakeStatus(Code::kInvalidArgument, "{}: not a folder; give a database, or where one shall lie",
                      path);
  }
  struct statvfs space {};
  if (statvfs(path.c_str(), &space) != 0) return ErrnoStatus(errno, "look at", path);
  std::error_code error;
  PlaceFacts facts{.path = fs::canonical(path, error)};
  facts.file_system = FileSystemOf(facts.path);
  facts.free_bytes = uint64_t{space.f_bavail} * space.f_frsize;
  facts.total_bytes = uint64_t{space.f_blocks} * space.f_frsize;
  AskDevice(status.st_dev, facts);
  TryDirect(facts);
  return facts;
}

}  // namespace quarry::cli
