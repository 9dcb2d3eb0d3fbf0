#include "remote_states.h"

#include <string_view>
#include <utility>
#include <vector>

namespace quarry {
namespace {

class StoreStates final : public TrainingStates {
 public:
  StoreStates(client::Store& store, std::string address) : store_(store), address_(std::move(address)) {}

  const std::string& path() const override { return address_; }
  // What a server tells of the record: neither file nor generation.
  Result<TrainingRecord> Find(std::string_view name) override {
    QUARRY_TRY(client::Training training, store_.ReadTraining(name, /*with_state=*/false));
    TrainingRecord record;
    record.name = name;
    record.settings = std::move(training.settings);
    record.timestamp = training.timestamp;
    record.created_utc = std::move(training.created_utc);
    record.config = std::move(training.config);
    return record;
  }
  Result<std::vector<std::byte>> Read(std::string_view name) override {
    QUARRY_TRY(client::Training training, store_.ReadTraining(name));
    return std::move(training.state);
  }
  Status Save(const TrainingCheckpoint& checkpoint) override {
    return store_
        .SaveTraining({.name = std::string(checkpoint.name),
                       .settings = std::string(checkpoint.settings),
                       .config = std::string(checkpoint.config),
                       .state = checkpoint.state})
        .status();
  }

 private:
  client::Store& store_;
  const std::string address_;
};

}  // namespace

std::unique_ptr<TrainingStates> StatesOf(client::Store& store, std::string address) {
  return std::make_unique<StoreStates>(store, std::move(address));
}

}  // namespace quarry
