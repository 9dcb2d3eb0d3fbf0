#include "quarry/trainer/link_run.h"

#include <utility>

#include "quarry/base/log.h"
#include "quarry/base/process.h"

namespace quarry {

uint64_t LinkRun::BatchesToCheckpoint(uint64_t batches) const {
  if (!options_.keep || options_.checkpoint_every == 0) return UINT64_MAX;
  return options_.checkpoint_every - batches % options_.checkpoint_every;
}

Status LinkRun::Checkpoint(LinkState state) {
  const double start = MonotonicSeconds();
  QUARRY_RETURN_IF_ERROR(Save(state, best_ ? &*best_ : nullptr));
  last_ = std::move(state);
  stats_.checkpoints++;
  stats_.checkpoint_seconds += MonotonicSeconds() - start;
  return Status::Ok();
}

Status LinkRun::CheckpointBest(LinkState state, const LinkEvaluation& valid) {
  std::optional<LinkBest> before = std::exchange(best_, LinkBest{.state = state, .valid = valid});
  const Status status = Checkpoint(std::move(state));
  if (!status.ok()) best_ = std::move(before);
  return status;
}

Status LinkRun::Explain(const Status& cancelled) const {
  if (!options_.keep) return cancelled;
  const std::string what =
      timestamp() == kNeverWritten
          ? std::string("there is no checkpoint of this training yet")
          : fmt::format("--resume goes on behind batch {} of epoch {}", place().batches, place().epoch);
  return MakeStatus(cancelled.code(), "{}; {}", cancelled.message(), what);
}

void LinkRun::LogResumed(const TrainingRecord& record, uint64_t epoch_batches) const {
  LogInfo("run \"{}\" goes on from batch {} of {} of epoch {} (checkpoint of {})", options_.name,
          place().batches, epoch_batches, place().epoch, record.created_utc);
}

}  // namespace quarry
