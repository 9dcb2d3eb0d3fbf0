#include "remote_states.h"

#include <utility>

namespace quarry {

// What a server tells of the record: neither file nor generation.
Result<TrainingRecord> RemoteStates::Find(std::string_view name) {
  QUARRY_TRY(client::Training training, store_.ReadTraining(name, /*with_state=*/false));
  TrainingRecord record;
  record.name = name;
  record.settings = std::move(training.settings);
  record.timestamp = training.timestamp;
  record.created_utc = std::move(training.created_utc);
  record.config = std::move(training.config);
  return record;
}

Result<std::vector<std::byte>> RemoteStates::Read(std::string_view name) {
  QUARRY_TRY(client::Training training, store_.ReadTraining(name));
  return std::move(training.state);
}

Status RemoteStates::Save(const TrainingCheckpoint& checkpoint) {
  return store_
      .SaveTraining({.name = std::string(checkpoint.name),
                     .settings = std::string(checkpoint.settings),
                     .config = std::string(checkpoint.config),
                     .state = checkpoint.state})
      .status();
}

}  // namespace quarry
