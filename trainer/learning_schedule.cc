#include "quarry/trainer/learning_schedule.h"

#include <fmt/format.h>

#include <cmath>

namespace quarry {

double ScheduledRate(double rate, LearningSchedule schedule, uint32_t schedule_epochs, uint32_t epoch) {
  const uint32_t behind = epoch - 1;
  switch (schedule) {
    case LearningSchedule::kCosine: {
      if (behind >= schedule_epochs) return 0;
      constexpr double kPi = 3.14159265358979323846;
      return rate * (1 + std::cos(kPi * behind / schedule_epochs)) / 2;
    }
    case LearningSchedule::kStep:
      return rate * std::pow(0.1, behind / schedule_epochs);
    case LearningSchedule::kConstant:
      break;
  }
  return rate;
}

std::string ScheduleSettings(LearningSchedule schedule, uint32_t schedule_epochs) {
  if (schedule == LearningSchedule::kConstant) return {};
  return fmt::format("--schedule {} --schedule-epochs {}", NameOf(schedule), schedule_epochs);
}

}  // namespace quarry
