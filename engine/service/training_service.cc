#include "quarry/service/training_service.h"

#include <algorithm>
#include <utility>

#include "quarry/base/trace.h"
#include "quarry/storage/training_state.h"

namespace quarry {
namespace {

wire::Training AnswerOf(const TrainingRecord& record) {
  return {.settings = record.settings,
          .created_utc = record.created_utc,
          .timestamp = record.timestamp,
          .config = record.config};
}

}  // namespace

Result<TrainingService::Read> TrainingService::ReadTraining(const wire::ReadTraining& request,
                                                            MemoryBudget& budget) {
  const ScopedSpan span("read training");
  MutexLock lock(states_);
  const std::shared_ptr<const Manifest> manifest = store_.manifest();
  const TrainingRecord* const record = manifest->FindTraining(request.name);
  if (record == nullptr) return NoTraining(store_, request.name);
  Read read{.training = AnswerOf(*record)};
  if (!request.with_state) return read;
  QUARRY_TRY(read.reservation, budget.Reserve(record->file_bytes, "a training state"));
  QUARRY_TRY(read.state, ReadTrainingState(store_, request.name));
  return read;
}

Status TrainingService::CheckRoom(std::string_view name) {
  MutexLock lock(states_);
  return CheckRoomLocked(name);
}

Status TrainingService::CheckRoomLocked(std::string_view name) const {
  const std::shared_ptr<const Manifest> manifest = store_.manifest();
  if (manifest->trainings.size() < kRunsMax || manifest->FindTraining(name) != nullptr) return Status::Ok();
  return MakeStatus(Code::kOutOfBudget,
                    "{}: the database has {} training runs, and clients may add no more: save \"{}\" under "
                    "the name of one that there is, or drop some (quarry drop)",
                    store_.path(), manifest->trainings.size(), name);
}

Result<wire::Training> TrainingService::Save(const wire::SaveTraining& request,
                                             std::span<const std::byte> state) {
  const ScopedSpan span("save training");
  const auto commit = [&](const ManifestChange& change) {
    if (!request.with_embeddings) return store_.UpdateManifest(change);
    return embeddings_.Checkpoint([&](Manifest& manifest, int64_t timestamp) {
      QUARRY_RETURN_IF_ERROR(change(manifest));
      std::ranges::find(manifest.trainings, request.name, &TrainingRecord::name)->timestamp = timestamp;
      return Status::Ok();
    });
  };
  MutexLock lock(states_);
  QUARRY_RETURN_IF_ERROR(CheckRoomLocked(request.name));
  QUARRY_RETURN_IF_ERROR(CheckpointTraining(
      store_, {.name = request.name, .settings = request.settings, .config = request.config, .state = state},
      commit));
  return AnswerOf(*store_.manifest()->FindTraining(request.name));
}

}  // namespace quarry
