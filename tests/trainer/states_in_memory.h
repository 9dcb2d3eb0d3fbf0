// Training states in memory.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/storage/training_state.h"

namespace quarry {

class StatesInMemory final : public TrainingStates {
 public:
  const std::string& path() const override { return path_; }
  Result<TrainingRecord> Find(std::string_view name) override {
    QUARRY_RETURN_IF_ERROR(Read(name).status());
    TrainingRecord record;
    record.name = name;
    return record;
  }
  Result<std::vector<std::byte>> Read(std::string_view name) override {
    const auto found = states.find(std::string(name));
    if (found == states.end()) return MakeStatus(Code::kNotFound, "there is no run \"{}\"", name);
    return found->second;
  }
  Status Save(const TrainingCheckpoint& checkpoint) override {
    states[std::string(checkpoint.name)].assign(checkpoint.state.begin(), checkpoint.state.end());
    return Status::Ok();
  }

  std::map<std::string, std::vector<std::byte>> states;

 private:
  const std::string path_ = "db";
};

}  // namespace quarry
