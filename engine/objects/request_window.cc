#include "request_window.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace quarry {
namespace {

constexpr double kMebibyte = 1 << 20;
constexpr uint64_t kRequestBytes = 64 << 10;  // what a request without a body counts as
constexpr unsigned kStart = 32, kLeast = 4;
constexpr unsigned kLookAgainRounds = 16;
constexpr double kLeastBytesPerSecond = 256 << 10;  // of one request, before anything is known

}  // namespace

RequestWindow::RequestWindow(const Limits& limits)
    : limits_(limits), size_(std::min(kStart, std::max(1U, limits.requests_max))) {}

void RequestWindow::Answered(double now, double first_byte, double seconds, uint64_t bytes, bool filled) {
  const double cost = seconds / (1 + static_cast<double>(bytes) / kMebibyte);
  if (cost_mean_ < 0) {
    cost_mean_ = cost;
    cost_deviation_ = cost / 2;
  } else {
    cost_deviation_ += (std::abs(cost - cost_mean_) - cost_deviation_) / 4;
    cost_mean_ += (cost - cost_mean_) / 8;
  }
  if (!filled) {  // the caller had no more to ask for: this says nothing about the window
    round_start_ = -1;
    return;
  }
  if (round_start_ < 0) {
    round_start_ = now;
    round_bytes_ = round_answers_ = 0;
    round_delay_ = first_byte;
    return;
  }
  round_bytes_ += bytes + kRequestBytes;
  round_delay_ = std::min(round_delay_, first_byte);
  if (++round_answers_ >= size_) EndRound(now);
}

void RequestWindow::EndRound(double now) {
  const double elapsed = now - round_start_;
  const double request_bytes = static_cast<double>(round_bytes_) / round_answers_;
  round_start_ = now;
  const double rate = elapsed > 0 ? static_cast<double>(round_bytes_) / elapsed : best_;
  round_bytes_ = round_answers_ = 0;
  const double delay = std::exchange(round_delay_, 1e9);
  if (settled_rounds_ > 0) {
    if (++settled_rounds_ <= kLookAgainRounds) return;
    settled_rounds_ = 0;
    flat_rounds_ = 0;
    best_ = rate;
    size_ = std::min(limits_.requests_max, 2 * size_);
    return;
  }
  if (rate > 1.25 * best_) {
    best_ = rate;
    flat_rounds_ = 0;
    size_ = std::min(limits_.requests_max, 2 * size_);
    return;
  }
  best_ = std::max(best_, rate);
  if (++flat_rounds_ < 2) return;
  const double wanted = std::ceil(1.5 * best_ * delay / request_bytes);
  if (wanted > size_ && size_ < limits_.requests_max) {
    // Answers take no longer than their delay, so the bandwidth is not used up: the rounds were slow by chance.
    flat_rounds_ = 0;
    size_ = std::min(limits_.requests_max, 2 * size_);
    return;
  }
  size_ = std::clamp(static_cast<unsigned>(std::min(wanted, 1e6)), std::min(kLeast, size_), size_);
  settled_rounds_ = 1;
}

void RequestWindow::SlowDown() {
  size_ = std::max(1U, size_ / 2);
  round_start_ = -1;
  settled_rounds_ = 1;
}

double RequestWindow::DeadlineSeconds(uint64_t bytes, unsigned attempt) const {
  const auto size = static_cast<double>(bytes);
  const double most = limits_.deadline_max_seconds + size / kLeastBytesPerSecond;
  const double first = cost_mean_ < 0 ? limits_.first_seconds + size / kLeastBytesPerSecond
                                      : 4 * (cost_mean_ + 4 * cost_deviation_) * (1 + size / kMebibyte);
  const double seconds = std::max(limits_.deadline_min_seconds, std::min(first, most));
  return std::min(most, std::ldexp(seconds, static_cast<int>(std::min(attempt, 16U))));
}

}  // namespace quarry
