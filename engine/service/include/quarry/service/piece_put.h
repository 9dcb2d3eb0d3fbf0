// PiecePut: a put that comes in pieces, and is committed once all of them are there: rows alone, or rows together with what
// becomes of the graph. A server's sessions and stores of this process hold what clients put in it.
//
// Used by one thread at a time. Unless it was committed, it forgets all of it when it goes, and is gone before its store and
// budget.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/format/wire_writes.h"
#include "quarry/storage/store.h"

namespace quarry {

class GraphChange;

class PiecePut {
 public:
  // `graph`: of the first piece, if it has one: which topology changes, and which nodes come. kBusy beside another one that
  // adds rows, or changes the graph; errors as GraphChange::Create's, whose sorting takes a quarter of what the budget has.
  static Result<std::unique_ptr<PiecePut>> Begin(Store& store, MemoryBudget& budget,
                                                 const std::optional<wire::PutGraph>& graph);
  // For rows alone, which are checked against `manifest`.
  static std::unique_ptr<PiecePut> OfRows(std::unique_ptr<LargeWrite> rows,
                                          std::shared_ptr<const Manifest> manifest);
  ~PiecePut();
  PiecePut(const PiecePut&) = delete;
  PiecePut& operator=(const PiecePut&) = delete;

  bool changes_graph() const { return change_ != nullptr; }
  // The database as it will be: what rows are checked against.
  const Manifest& manifest() const;
  Status Add(const WriteBatch& rows);
  // Names, and edges and removed nodes, which are `block`. kUsage when the first piece said nothing of the graph, or other things.
  Status Change(const wire::PutGraph& graph, std::span<const std::byte> block);
  // For rows alone it has a timestamp and nothing else. Call it once.
  Result<wire::GraphChanged> Commit();

 private:
  PiecePut();

  std::shared_ptr<const Manifest> manifest_;
  std::optional<wire::PutGraph> graph_;  // topology and nodes, as the first piece has them
  std::unique_ptr<LargeWrite> rows_;     // this or the next
  std::unique_ptr<GraphChange> change_;
};

}  // namespace quarry
