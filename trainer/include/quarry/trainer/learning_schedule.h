// LearningSchedule: how the learning rate goes from epoch to epoch. It is a function of the epoch alone, so a run that goes
// on has the rates of one that was never interrupted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "quarry/format/road_spec.h"

namespace quarry {

enum class LearningSchedule : uint8_t {
  kConstant,
  kCosine,  // falls as half a cosine, to 0 behind schedule_epochs (Loshchilov, Hutter 2017, without restarts)
  kStep,    // a tenth of what it was, every schedule_epochs
};
template <>
struct EnumNames<LearningSchedule> {
  static constexpr std::string_view kWhat = "schedule";
  static constexpr std::string_view kNames[] = {"constant", "cosine", "step"};
};

// What `rate` is in an epoch, from 1. REQUIRES: at least one of `schedule_epochs`, but for kConstant.
double ScheduledRate(double rate, LearningSchedule schedule, uint32_t schedule_epochs, uint32_t epoch);

// "--schedule cosine --schedule-epochs 10", as the settings of runs have it; empty for kConstant, so that runs from before
// there were schedules have the same settings now.
std::string ScheduleSettings(LearningSchedule schedule, uint32_t schedule_epochs);

}  // namespace quarry
