// Batches of this process: views of what a road or a sampler made. Private to this library.
#pragma once

#include <cstdint>
#include <memory>

#include "quarry/client/store.h"
#include "quarry/pipeline/batch_stream.h"
#include "quarry/sampling/block.h"

namespace quarry::client {

// The road's batch in place; `held` dies with it.
std::unique_ptr<Batch> WrapBatch(std::unique_ptr<quarry::Batch> batch, std::shared_ptr<const void> held);
// A block by itself; `held` as above.
std::unique_ptr<Batch> WrapBlock(Block block, std::shared_ptr<const void> held);

}  // namespace quarry::client
