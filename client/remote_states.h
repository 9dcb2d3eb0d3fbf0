// RemoteStates: the checkpoints of training runs that a store keeps (client::Store), which a trainer cannot
// tell from those of a database of its own.
#pragma once

#include <string>
#include <string_view>

#include "quarry/client/store.h"
#include "quarry/storage/training_state.h"

namespace quarry {

class RemoteStates final : public TrainingStates {
 public:
  // `address`: of the store, for sentences. The store outlives them.
  RemoteStates(client::Store& store, std::string address) : store_(store), address_(std::move(address)) {}

  const std::string& path() const override { return address_; }
  Result<TrainingRecord> Find(std::string_view name) override;
  Result<std::vector<std::byte>> Read(std::string_view name) override;
  Status Save(const TrainingCheckpoint& checkpoint) override;

 private:
  client::Store& store_;
  const std::string address_;
};

}  // namespace quarry
