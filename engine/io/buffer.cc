#include "quarry/io/buffer.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "quarry/base/log.h"
#include "quarry/base/units.h"

namespace quarry {
namespace {

constexpr size_t kHugePageBytes = 2 << 20;
constexpr size_t kSmallPageBytes = 4096;
constexpr size_t kLargeBytes = kMiB;  // from here on a buffer is made of huge pages

// Whether the kernel gives huge pages to those who ask: "always [madvise] never" with never not chosen.
bool HugePagesAllowed() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string modes;
  std::getline(file, modes);
  return !modes.empty() && modes.find("[never]") == std::string::npos;
}

std::byte* Map(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

// A mapping of `bytes` that starts at a multiple of a huge page: maps one more and gives back both ends.
std::byte* MapAligned(size_t bytes) {
  std::byte* memory = Map(bytes + kHugePageBytes);
  if (memory == nullptr) return nullptr;
  const size_t head =
      (kHugePageBytes - reinterpret_cast<uintptr_t>(memory) % kHugePageBytes) % kHugePageBytes;
  if (head > 0) munmap(memory, head);
  munmap(memory + head + bytes, kHugePageBytes - head);
  return memory + head;
}

// Page faults of this thread so far that needed no I/O.
uint64_t FaultsOfThread() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return static_cast<uint64_t>(usage.ru_minflt);
}

void TellNoHugePages() {
  static std::atomic<bool> told{false};
  if (told.exchange(true)) return;
  LogWarn(
      "no huge pages for I/O buffers (see /sys/kernel/mm/transparent_hugepage/enabled): reads may take 2 to "
      "3 "
      "times as long");
}

}  // namespace

IoBuffer::IoBuffer(IoBuffer&& other) noexcept { *this = std::move(other); }

IoBuffer& IoBuffer::operator=(IoBuffer&& other) noexcept {
  if (this != &other) {
    if (data_ != nullptr) munmap(data_, mapped_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    mapped_ = std::exchange(other.mapped_, 0);
    huge_pages_ = std::exchange(other.huge_pages_, false);
  }
  return *this;
}

IoBuffer::~IoBuffer() {
  if (data_ != nullptr) munmap(data_, mapped_);
}

size_t IoBuffer::MappedBytes(size_t bytes) {
  return RoundUp(bytes == 0 ? 1 : bytes, bytes >= kLargeBytes ? kHugePageBytes : kSmallPageBytes);
}

Result<IoBuffer> IoBuffer::Allocate(size_t bytes) {
  IoBuffer buffer;
  buffer.size_ = bytes;
  const bool large = bytes >= kLargeBytes;
  if (bytes > SIZE_MAX / 2) {  // beyond any address space, and rounding up must not wrap
    return MakeStatus(Code::kOutOfBudget, "{} bytes for an I/O buffer are more than any machine has", bytes);
  }
  buffer.mapped_ = MappedBytes(bytes);
  buffer.data_ = large ? MapAligned(buffer.mapped_) : Map(buffer.mapped_);
  if (buffer.data_ == nullptr) {
    return MakeStatus(Code::kOutOfBudget, "the system refuses {} of memory for an I/O buffer: {}",
                      FormatBytes(buffer.mapped_), std::strerror(errno));
  }
  if (!large) return buffer;
  const bool advised = HugePagesAllowed() && madvise(buffer.data_, buffer.mapped_, MADV_HUGEPAGE) == 0;
  // Touched once, so that the pages are there (and huge) before the first transfer.
  const uint64_t faults_before = FaultsOfThread();
  for (size_t i = 0; i < buffer.mapped_; i += kSmallPageBytes) {
    reinterpret_cast<volatile char*>(buffer.data_)[i] = 0;
  }
  // The advice may be taken and still not followed, when memory is fragmented. A huge page costs one fault,
  // ordinary ones 512: allow a tenth of the buffer in the latter.
  const uint64_t faults = FaultsOfThread() - faults_before;
  const uint64_t huge_pages = buffer.mapped_ / kHugePageBytes;
  buffer.huge_pages_ = advised && faults <= huge_pages + huge_pages * (kHugePageBytes / kSmallPageBytes) / 10;
  if (!buffer.huge_pages_) TellNoHugePages();
  return buffer;
}

}  // namespace quarry
