#include "shared_region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "quarry/base/units.h"

namespace quarry {
namespace {

// Whatever fails here is the machine's lack of memory, descriptors or mappings.
Status Refused(const char* what, uint64_t bytes) {
  return MakeStatus(Code::kOutOfBudget, "{} of shared memory: {}: {}", FormatBytes(bytes), what,
                    std::generic_category().message(errno));
}

}  // namespace

Result<std::shared_ptr<SharedRegion>> SharedRegion::Make(uint64_t bytes, wire::RegionAccess access) {
  const int fd = memfd_create("quarry", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return Refused("memfd_create", bytes);
  std::shared_ptr<SharedRegion> region(new SharedRegion(fd, access));
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) return Refused("ftruncate", bytes);
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return Refused("mmap", bytes);
  region->bytes_ = {static_cast<std::byte*>(memory), bytes};
  int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (access == wire::RegionAccess::kClientReads) seals |= F_SEAL_FUTURE_WRITE;
  if (fcntl(fd, F_ADD_SEALS, seals) != 0) return Refused("sealing it", bytes);
  return region;
}

SharedRegion::~SharedRegion() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
  close(fd_);
}

}  // namespace quarry
