// The checkpoints of training runs that a store keeps (client::Store), which a trainer cannot tell from those of a database
// of its own.
#pragma once

#include <memory>
#include <string>

#include "quarry/client/store.h"
#include "quarry/storage/training_state.h"

namespace quarry {

// `address`: of the store, for sentences. The store outlives them.
std::unique_ptr<TrainingStates> StatesOf(client::Store& store, std::string address);

}  // namespace quarry
