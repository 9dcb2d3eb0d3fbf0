#include "memory_map.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

namespace quarry::client {
namespace {

Status CheckSealed(const wire::Region& region, const UniqueFd& fd, const std::string& path) {
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return MakeStatus(Code::kCorruption, "{}: region {} of the server could shrink while it is read", path,
                      region.id);
  }
  struct stat file {};
  if (fstat(fd.get(), &file) != 0 || static_cast<uint64_t>(file.st_size) != region.bytes) {
    return MakeStatus(Code::kCorruption, "{}: region {} of the server has {} bytes instead of {}", path,
                      region.id, file.st_size, region.bytes);
  }
  return Status();
}

Result<std::span<std::byte>> Map(uint64_t bytes, int protection, int flags, int fd, const std::string& path) {
  void* const memory = mmap(nullptr, bytes, protection, flags, fd, 0);
  if (memory != MAP_FAILED) return std::span(static_cast<std::byte*>(memory), bytes);
  return MakeStatus(Code::kOutOfBudget, "{}: cannot map {} bytes: {}", path, bytes, std::strerror(errno));
}

}  // namespace

Result<std::shared_ptr<MemoryMap>> MemoryMap::OfRegion(const wire::Region& region, const UniqueFd& fd,
                                                       const std::string& path) {
  QUARRY_RETURN_IF_ERROR(CheckSealed(region, fd, path));
  const bool writes = region.access == wire::RegionAccess::kClientWrites;
  const int protection = writes ? PROT_READ | PROT_WRITE : PROT_READ;
  QUARRY_TRY(const std::span<std::byte> bytes, Map(region.bytes, protection, MAP_SHARED, fd.get(), path));
  return std::shared_ptr<MemoryMap>(new MemoryMap(bytes));
}

Result<std::shared_ptr<MemoryMap>> MemoryMap::Anonymous(uint64_t bytes, const std::string& path) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  QUARRY_TRY(const std::span<std::byte> mapped, Map(bytes, PROT_READ | PROT_WRITE, kFlags, -1, path));
  return std::shared_ptr<MemoryMap>(new MemoryMap(mapped));
}

MemoryMap::~MemoryMap() { munmap(bytes_.data(), bytes_.size()); }

}  // namespace quarry::client
