// One epoch of mini-batches, as a trainer takes them: batches DATABASE
//
// DATABASE is a folder, or unix:SOCKET of `quarry serve`, where any number of trainers share one copy of the caches.
#include <cstdio>
#include <vector>

#include "quarry/client/store.h"

namespace {

quarry::Status ReadEpoch(const char* address) {
  QUARRY_TRY(const auto store, quarry::client::Open(address, {.memory_bytes = 256 << 20}));
  // Sampled as it is used. After `quarry layout build`, PlannedSpec{.layout = "default"} reads what was packed.
  const quarry::wire::LiveSpec road = {.fanouts = {10, 5}, .batch_size = 256, .cache_bytes = 16 << 20};
  QUARRY_TRY(const auto stream, store->OpenStream({.road = road}));
  QUARRY_TRY(const uint64_t batches, stream->StartPass({.seeds = quarry::Split::kTrain, .pass = 0}));
  uint64_t seeds = 0, nodes = 0, edges = 0;
  double sum = 0;
  std::vector<float> row(stream->feature_dim());
  while (true) {
    QUARRY_TRY(const auto batch, stream->Next());
    if (batch == nullptr) break;
    const quarry::BatchView& view = batch->view();  // valid until the batch dies
    seeds += view.seed_count;
    nodes += view.nodes.size();
    edges += view.indices.size();
    const size_t row_bytes = quarry::RowBytes(view.features.element_type, stream->feature_dim());
    // The seeds come first. Rows are decoded from where they lie: nothing else copies them.
    for (size_t node = 0; node < view.seed_count; node++) {
      quarry::DecodeRow(view.features.element_type, {view.features.Row(node), row_bytes}, row);
      for (const float value : row) sum += value;
    }
  }
  std::printf("%llu batches, %llu seeds; %.1f nodes and %.1f edges a seed; features of seeds sum to %.4g\n",
              static_cast<unsigned long long>(batches), static_cast<unsigned long long>(seeds),
              static_cast<double>(nodes) / static_cast<double>(seeds),
              static_cast<double>(edges) / static_cast<double>(seeds), sum);
  return quarry::Status();
}

}  // namespace

int main(int argc, char** argv) {
  const quarry::Status status =
      argc == 2 ? ReadEpoch(argv[1]) : quarry::Status(quarry::Code::kUsage, "batches DATABASE");
  if (!status.ok()) std::fprintf(stderr, "batches: %s\n", status.ToString().c_str());
  return quarry::ExitCode(status.code());
}
