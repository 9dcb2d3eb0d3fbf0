#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "cli.h"
#include "quarry/base/process.h"
#include "quarry/base/progress.h"
#include "quarry/base/units.h"

namespace quarry::cli {

ProgressBar::ProgressBar() : terminal_(isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() { Clear(); }

void ProgressBar::Clear() {
  if (drawn_) std::fputs("\r\033[K", stderr);
  drawn_ = false;
}

void ProgressBar::Show(std::string_view phase, uint64_t done, uint64_t total, std::string_view unit) {
  if (!terminal_) return;
  const double now = MonotonicSeconds();
  if (phase != phase_) {
    phase_ = phase;
    phase_start_ = now;
  } else if (now - last_drawn_ < 0.1) {
    return;
  }
  last_drawn_ = now;
  const double seconds = now - phase_start_;
  std::string line = fmt::format("\r\033[K{:<24} ", phase);
  if (total > 0) {
    constexpr uint64_t kWidth = 30;
    const uint64_t filled = std::min(kWidth, done * kWidth / total);
    line += fmt::format("[{:=<{}}{:<{}}] {:3d}%", "", filled, "", kWidth - filled,
                        std::min<uint64_t>(100, done * 100 / total));
    if (done > 0 && done < total && seconds > 1) {
      line += fmt::format("  {:.0f} s left",
                          seconds / static_cast<double>(done) * static_cast<double>(total - done));
    }
  }
  if (seconds > 0.5 && done > 0)
    line += fmt::format("  {}{}/s", FormatCount(static_cast<double>(done) / seconds), unit);
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
  drawn_ = true;
}

ProgressFunction ProgressBar::AsFunction(std::string left) {
  return [this, left = std::move(left)](std::string_view phase, uint64_t done, uint64_t total) {
    if (Interrupted()) return MakeStatus(Code::kCancelled, "interrupted during {}; {}", phase, left);
    Show(phase, done, total);
    return Status::Ok();
  };
}

}  // namespace quarry::cli
