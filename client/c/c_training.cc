// The C interface: edges, and states of training runs.
#include "handles.h"

using quarry::Code;
using quarry::Status;
using quarry::client::Ends;
using quarry::client::Given;
using quarry::client::TextOr;

int quarry_read_edges(quarry_store* store, const char* topology, uint64_t first, uint64_t count,
                      uint32_t* edges, uint64_t* edge_count) {
  return Ends([&]() -> Status {
    QUARRY_TRY(const std::vector<uint32_t> read,
               store->store->ReadEdges(TextOr(topology, "graph"), first, count));
    std::ranges::copy(read, edges);
    *edge_count = read.size() / 3;
    return Status();
  });
}

int quarry_read_training(quarry_store* store, const char* name, int with_state, quarry_training** training) {
  return Ends([&]() -> Status {
    QUARRY_TRY(auto read, store->store->ReadTraining(TextOr(name, ""), with_state != 0));
    *training = new quarry_training{std::move(read)};
    return Status();
  });
}
void quarry_training_free(quarry_training* training) { delete training; }
const char* quarry_training_settings(const quarry_training* training) {
  return training->training.settings.c_str();
}
const char* quarry_training_created_utc(const quarry_training* training) {
  return training->training.created_utc.c_str();
}
int64_t quarry_training_timestamp(const quarry_training* training) { return training->training.timestamp; }
const void* quarry_training_state(const quarry_training* training, uint64_t* bytes) {
  const std::vector<std::byte>& state = training->training.state;
  if (bytes != nullptr) *bytes = state.size();
  return state.empty() ? nullptr : state.data();
}

int quarry_save_training(quarry_store* store, const quarry_training_to_save* save,
                         quarry_training** training) {
  return Ends([&]() -> Status {
    QUARRY_TRY(const quarry_training_to_save given, Given(save, "quarry_training_to_save"));
    const auto* const state = static_cast<const std::byte*>(given.state);
    if (state == nullptr && given.state_bytes > 0) {
      return Status(Code::kUsage, "the state of a training is null");
    }
    QUARRY_TRY(auto saved, store->store->SaveTraining({.name = TextOr(given.name, ""),
                                                       .settings = TextOr(given.settings, ""),
                                                       .state = {state, given.state_bytes},
                                                       .with_embeddings = given.with_embeddings != 0}));
    if (training != nullptr) *training = new quarry_training{std::move(saved)};
    return Status();
  });
}
