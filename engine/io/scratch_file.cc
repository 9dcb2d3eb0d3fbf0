#include "quarry/io/scratch_file.h"

#include <atomic>

namespace quarry {

Result<File> OpenScratchFile(IoBackend& backend, const std::string& prefix) {
  static std::atomic<uint64_t> serial = 0;
  while (true) {
    const std::string path = fmt::format("{}-{}.qet", prefix, serial++);
    auto file = backend.Open(path, OpenMode::kCreateDirect);
    if (!file.ok() && file.status().code() == Code::kAlreadyExists) continue;
    if (!file.ok()) return file;
    const Status removed = backend.Remove(path);
    if (removed.ok()) return file;
    Discard(backend, path);
    return removed;
  }
}

}  // namespace quarry
