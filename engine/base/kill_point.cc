#include "quarry/base/kill_point.h"

#include <csignal>

namespace quarry {
namespace {

std::atomic<size_t> armed_index{0};
std::atomic<uint64_t> passages_left{0};

}  // namespace

std::atomic<bool> kill_point_armed{false};

void ArmKillPoint(size_t index, uint64_t passages) {
  armed_index = index;
  passages_left = passages;
  kill_point_armed = true;
}

void PassKillPoint(size_t index) {
  if (index == armed_index && passages_left.fetch_sub(1) == 1) std::raise(SIGKILL);
}

}  // namespace quarry
