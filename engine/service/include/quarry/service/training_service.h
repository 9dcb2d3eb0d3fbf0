// TrainingService: states of training runs (quarry/storage/training_state.h), for trainers elsewhere.
//
// Thread-safe; called by workers (it reads and writes files). Lock order: this one < commits of embeddings.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/mutex.h"
#include "quarry/base/status.h"
#include "quarry/format/wire_requests.h"
#include "quarry/format/wire_responses.h"
#include "quarry/service/embedding_service.h"
#include "quarry/storage/store.h"

namespace quarry {

class TrainingService {
 public:
  // What clients may make of a database: each run has a file, and a place in the manifest.
  static constexpr size_t kRunsMax = 1000;

  // Both outlive the service.
  TrainingService(Store& store, EmbeddingService& embeddings) : store_(store), embeddings_(embeddings) {}

  struct Read {
    wire::Training training;  // without its state
    std::vector<std::byte> state;
    MemoryBudget::Reservation reservation;  // for the state
  };
  // kNotFound lists what there is; kOutOfBudget; kCorruption.
  Result<Read> ReadTraining(const wire::ReadTraining& request, MemoryBudget& budget);
  // kOutOfBudget when the run would be one more than clients may have. For a state's first piece, so that
  // nobody brings the others in vain.
  Status CheckRoom(std::string_view name);
  // The checkpoint of the run that the request names, in the place of the one before, with `state` as its
  // state. Errors as CheckRoom; on any the one before stands, but for a commit that the disk failed, which
  // may have happened.
  Result<wire::Training> Save(const wire::SaveTraining& request, std::span<const std::byte> state);

 private:
  Status CheckRoomLocked(std::string_view name) const QUARRY_REQUIRES(states_);

  Store& store_;
  EmbeddingService& embeddings_;
  Mutex states_;  // one is saved, or read, at a time
};

}  // namespace quarry
