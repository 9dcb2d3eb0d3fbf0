// Batches of a server, opened and checked. Private to this library.
//
// The rows are read where the server wrote them. The arrays of the block, which say where in memory a kernel
// looks, are copied before they are checked: what is shared may change behind a check, and the server need
// not be honest. Both together cost about 1 % of a batch (docs/client.md).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "quarry/base/mutex.h"
#include "quarry/client/store.h"
#include "session.h"

namespace quarry::client {

// Memory of batches that are gone, for those to come: fresh pages cost more than the copy. Thread-safe.
class BlockMemory {
 public:
  struct Piece {
    std::unique_ptr<uint32_t[]> words;
    size_t capacity = 0;
  };
  Piece Take(size_t words);
  void Return(Piece piece);

 private:
  static constexpr size_t kPiecesMax = 4;
  Mutex mutex_;
  std::vector<Piece> pieces_ QUARRY_GUARDED_BY(mutex_);
};

// kCorruption when it is no batch, or another than number `index`. `held` dies with the batch.
Result<std::unique_ptr<Batch>> OpenRemoteBatch(Brought brought, uint64_t index, const std::string& path,
                                               const std::shared_ptr<BlockMemory>& memory,
                                               std::shared_ptr<const void> held);

// Whether a batch has what was asked for: edge ids, and types of edges, of so many (0: nobody asked). kUnsupported where the
// server knows no edge ids; kCorruption where types are missing, or others than there are.
Status CheckDrawnBy(const BatchView& view, bool edge_ids, size_t relations, const std::string& path);

}  // namespace quarry::client
