// client::LargePut: a commit in pieces, for more than memory holds.
#pragma once

#include <cstdint>
#include <span>

#include "quarry/base/status.h"
#include "quarry/format/wire_writes.h"

namespace quarry::client {

// Rows for one commit, for more of them than one call of Put should have: added rows are on disk, where
// nobody sees them, until all of them are committed. For one thread at a time; must be gone before its store.
class LargePut {
 public:
  virtual ~LargePut() = default;  // forgets the rows, unless they were committed
  // As Store::Put has them; of two writes to a row the later one counts. One at a time in a database: kBusy
  // for another one. After an error all of it is forgotten, and the same error is given from then on.
  virtual Status Add(std::span<const wire::PutRows> tables) = 0;
  // Names of added nodes and edges, of a put that BeginPut was told changes the graph: with the same topology and nodes.
  virtual Status Change(const wire::PutGraph& graph) = 0;
  // Commits all of it, which is then on disk, and returns its timestamp. Call it once. From a remote store,
  // kIoError says whether the commit is known not to have happened.
  virtual Result<uint64_t> Commit() = 0;
  // What the commit has changed of the graph; zeros where it was to change nothing there.
  virtual const wire::GraphChanged& changed() const = 0;
};

}  // namespace quarry::client
