// Private to this room.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <vector>

namespace quarry {

// Descriptors that are kept for opening the catalog anew when others have taken the rest.
class DescriptorReserve {
 public:
  DescriptorReserve() = default;
  ~DescriptorReserve() { Release(); }
  DescriptorReserve(const DescriptorReserve&) = delete;
  DescriptorReserve& operator=(const DescriptorReserve&) = delete;
  void Acquire() {
    while (held_.size() < kCount) {
      const int descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC);
      if (descriptor < 0) return;
      held_.push_back(descriptor);
    }
  }
  void Release() {
    for (const int descriptor : held_) close(descriptor);
    held_.clear();
  }

 private:
  static constexpr size_t kCount = 8;  // folder, LOCK, CURRENT, MANIFEST and its successor, log, two tables
  std::vector<int> held_;
};

}  // namespace quarry
