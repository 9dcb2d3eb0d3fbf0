// Rows and names that go with a change of a graph, and the nodes that it adds. Private to this room.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "quarry/base/status.h"
#include "quarry/format/manifest.h"
#include "quarry/storage/row_bitmap.h"
#include "quarry/storage/store.h"

namespace quarry {

// Used by one thread, which has the right to make runs (Store::HoldRuns). Unless it was committed, it forgets all of it
// when it goes.
class NodeChange {
 public:
  // `node_type`: of the added nodes, where there are types.
  NodeChange(Store& store, const Manifest& before, const Manifest& after, uint32_t node_type)
      : store_(store), first_(before.node_count), after_(after), node_type_(node_type) {}
  ~NodeChange();
  NodeChange(const NodeChange&) = delete;
  NodeChange& operator=(const NodeChange&) = delete;

  Status Put(const WriteBatch& rows);
  Status Name(std::span<const std::string> names);
  // What is missing of the added nodes: labels. Then the commit has all of it.
  Status Complete(Store::GraphCommit& commit);

 private:
  uint64_t added() const { return after_.node_count - first_; }
  Status Begin();

  Store& store_;
  const uint64_t first_;
  const Manifest& after_;
  const uint32_t node_type_;
  std::unique_ptr<LargeWrite> rows_;
  RowBitmap labeled_;                              // added nodes that a label was put of
  int64_t label_max_ = -1, added_label_max_ = -1;  // of all, and of added nodes
  uint64_t named_ = 0;
  bool committing_ = false;
};

}  // namespace quarry
