#include "quarry/service/shared_region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>
#include <utility>

#include "quarry/base/units.h"

namespace quarry {
namespace {

// Whatever fails here is the machine's lack of memory, descriptors or mappings.
Status Refused(const char* what, uint64_t bytes) {
  return MakeStatus(Code::kOutOfBudget, "{} of shared memory: {}: {}", FormatBytes(bytes), what,
                    std::generic_category().message(errno));
}

// Another description of the same file: what is counted is descriptions, however often they are duplicated.
File OpenAgain(int descriptor, int flags) {
  const std::string path = fmt::format("/proc/self/fd/{}", descriptor);
  return {open(path.c_str(), flags | O_CLOEXEC), path, false};
}

}  // namespace

RegionWitness::RegionWitness(File opened) : opened_(std::move(opened)), tells_(Leased()) {
  // Who opens the file in the instant in which the lease is held would else end the server by SIGIO.
  fcntl(opened_.descriptor(), F_SETSIG, SIGURG);
}

// A write lease is given to whom alone has the file open; mappings count, as they keep their descriptions.
// Clients are handed descriptions of their own, so the lease is refused as long as any of them is left.
bool RegionWitness::Leased() const {
  if (fcntl(opened_.descriptor(), F_SETLEASE, F_WRLCK) != 0) return false;
  fcntl(opened_.descriptor(), F_SETLEASE, F_UNLCK);
  return true;
}

bool RegionWitness::HeldByOthers() const { return tells_ && !Leased(); }

Result<std::shared_ptr<SharedRegion>> SharedRegion::Make(uint64_t bytes, wire::RegionAccess access) {
  const bool client_writes = access == wire::RegionAccess::kClientWrites;
  const File made(memfd_create("quarry", MFD_CLOEXEC | MFD_ALLOW_SEALING), "a region", false);
  const int fd = made.descriptor();
  if (fd < 0) return Refused("memfd_create", bytes);
  // Other users cannot open it anew; its owner's processes can, and find it sealed.
  if (fchmod(fd, client_writes ? 0600 : 0400) != 0) return Refused("fchmod", bytes);
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) return Refused("ftruncate", bytes);
  File opened = OpenAgain(fd, O_RDONLY);
  if (opened.descriptor() < 0) return Refused("opening it again by /proc", bytes);
  const auto witness = std::make_shared<const RegionWitness>(std::move(opened));
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return Refused("mmap", bytes);
  std::shared_ptr<SharedRegion> region(
      new SharedRegion(witness, {static_cast<std::byte*>(memory), bytes}, access));
  int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (!client_writes) seals |= F_SEAL_FUTURE_WRITE;
  if (fcntl(fd, F_ADD_SEALS, seals) != 0) return Refused("sealing it", bytes);
  return region;
}

SharedRegion::~SharedRegion() { munmap(bytes_.data(), bytes_.size()); }

Result<File> SharedRegion::HandOut() const {
  const bool client_writes = access_ == wire::RegionAccess::kClientWrites;
  File file = OpenAgain(witness_->descriptor(), client_writes ? O_RDWR : O_RDONLY);
  if (file.descriptor() < 0) return Refused("opening it again by /proc", bytes_.size());
  return file;
}

}  // namespace quarry
