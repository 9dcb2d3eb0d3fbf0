#include <atomic>
#include <vector>

#include "replacer.h"

namespace quarry {
namespace {

constexpr uint8_t kEvictable = 1;
constexpr uint8_t kTouched = 2;

class ClockReplacer final : public Replacer {
 public:
  explicit ClockReplacer(uint32_t frame_count) : flags_(frame_count) {}

  void Touch(uint32_t frame) override {
    // Looked at first: a page that is hot shall not write to a shared cache line at every hit.
    if ((flags_[frame].load(std::memory_order_relaxed) & kTouched) == 0) flags_[frame].fetch_or(kTouched);
  }

  void SetEvictable(uint32_t frame, bool evictable) override {
    if (((flags_[frame].load() & kEvictable) != 0) == evictable) return;
    if (evictable) {
      if ((flags_[frame].fetch_or(kEvictable) & kEvictable) == 0) ++evictable_count_;
    } else {
      if ((flags_[frame].fetch_and(kTouched) & kEvictable) != 0) --evictable_count_;
    }
  }

  uint32_t Candidate() override {
    while (evictable_count_ > 0) {
      const auto frame = static_cast<uint32_t>(hand_.fetch_add(1, std::memory_order_relaxed) % flags_.size());
      const uint8_t flags = flags_[frame].load();
      if ((flags & kEvictable) == 0) continue;
      if ((flags & kTouched) == 0) return frame;
      flags_[frame].fetch_and(kEvictable);
    }
    return kNoFrame;
  }

 private:
  std::vector<std::atomic<uint8_t>> flags_;
  std::atomic<int64_t> evictable_count_{
      0};  // below 0 for a moment: a flag and its count change one after the other
  std::atomic<uint64_t> hand_{0};
};

}  // namespace

std::unique_ptr<Replacer> MakeClockReplacer(uint32_t frame_count) {
  return std::make_unique<ClockReplacer>(frame_count);
}

}  // namespace quarry
