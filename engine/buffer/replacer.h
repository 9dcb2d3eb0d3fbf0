// Replacer: which frame leaves next. Private to this room.
#pragma once

#include <cstdint>
#include <memory>

namespace quarry {

inline constexpr uint32_t kNoFrame = 0xffffffff;

// Thread-safe.
class Replacer {
 public:
  virtual ~Replacer() = default;
  virtual void Touch(uint32_t frame) = 0;  // its page was asked for
  virtual void SetEvictable(uint32_t frame, bool evictable) = 0;
  // The evictable frame that should leave; kNoFrame only when none is evictable. The caller either evicts it
  // or finds out that it must stay, and in both cases says that it is not evictable.
  virtual uint32_t Candidate() = 0;
};

// Clock: a hand goes round and takes the first frame that was not touched since it came by last. A byte a
// frame.
std::unique_ptr<Replacer> MakeClockReplacer(uint32_t frame_count);

}  // namespace quarry
