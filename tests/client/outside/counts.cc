// Prints what is in a store: counts ADDRESS
#include <cstdio>

#include "quarry/client/store.h"

namespace {

quarry::Status Print(const char* address) {
  QUARRY_TRY(const auto store, quarry::client::Open(address, {.memory_bytes = 64 << 20}));
  QUARRY_TRY(const quarry::wire::Description description, store->Describe());
  std::printf("%llu nodes, %zu tables, %llu edges\n", static_cast<unsigned long long>(description.node_count),
              description.tables.size(),
              static_cast<unsigned long long>(description.topologies.front().edge_count));
  QUARRY_TRY(const auto rows, store->Lookup({.table = "feature", .ids = std::vector<quarry::NodeId>{1, 2}}));
  std::printf("%llu rows of %u\n", static_cast<unsigned long long>(rows->count()), rows->dim());
  QUARRY_TRY(const auto stream, store->OpenStream({.road = quarry::wire::LiveSpec{.fanouts = {3, 2}}}));
  QUARRY_TRY(const uint64_t batches, stream->StartPass({.ordered = true}));
  uint64_t seeds = 0;
  while (true) {
    QUARRY_TRY(const auto batch, stream->Next());
    if (batch == nullptr) break;
    seeds += batch->view().seed_count;
  }
  std::printf("%llu batches, %llu seeds\n", static_cast<unsigned long long>(batches),
              static_cast<unsigned long long>(seeds));
  return quarry::Status();
}

}  // namespace

int main(int argc, char** argv) {
  const quarry::Status status =
      argc == 2 ? Print(argv[1]) : quarry::Status(quarry::Code::kUsage, "counts ADDRESS");
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return quarry::ExitCode(status.code());
}
