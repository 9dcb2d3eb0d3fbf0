// EdgeReader: the edges of some nodes' adjacency lists, by ascending owner, then neighbor. Private to this
// room; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "id_set.h"
#include "page_cache.h"
#include "quarry/base/status.h"
#include "quarry/format/types.h"
#include "quarry/storage/edge_columns.h"
#include "session.h"

namespace quarry::sql {

// What is read beside the ends of edges.
struct EdgeParts {
  bool relations = false;
  bool weights = false;
};

class EdgeReader {
 public:
  // The lists of `owners` on a side that the topology has. Pages of several lists are read at once, by merged
  // requests.
  static Result<std::unique_ptr<EdgeReader>> Make(Session& session, Adjacency side, IdSet owners,
                                                  EdgeParts parts);
  // For one list at a time, from pages that the session keeps; null where it has no room for them. There is
  // no edge before Seek.
  static Result<std::unique_ptr<EdgeReader>> MakeLookup(Session& session, Adjacency side, EdgeParts parts);
  // Goes before the first edge of the owner's list. REQUIRES: MakeLookup; owner < node_count.
  void Seek(uint64_t owner);
  void SeekNone();

  Result<bool> Next();  // to the first edge, then to the next; false after the last
  NodeId owner() const { return static_cast<NodeId>(owners_[owner_]); }
  NodeId neighbor() const { return neighbor_; }
  uint32_t relation() const { return relation_; }          // 0 without relations
  std::optional<float> weight() const { return weight_; }  // nothing without weights
  uint64_t ordinal() const {
    return ordinal_;
  }  // among edges with the same ends, from 0; where relations are told apart
     // (Session::TellsRelationsApart), of one relation

 private:
  // Edges [first, end) of the side.
  struct Run {
    uint64_t first = 0;
    uint64_t end = 0;
  };
  // What is read of each edge: its neighbor, its relation, or its weight.
  struct Part {
    PageSection section;
    uint64_t entry_bytes = 0;                  // one edge's
    std::unique_ptr<EdgeColumnReader> edited;  // reads it instead, where there are runs
    const std::byte* at = nullptr;             // edge_'s
    // In a batch: pages that its runs need, and each run's first entry there.
    std::vector<std::byte> bytes;
    std::vector<uint64_t> places;
    // In a lookup: a piece of the pages that are kept, and the edges that it has.
    PageCache* cache = nullptr;
    PageCache::Piece piece;
    Run piece_edges;
  };

  EdgeReader(Session& session, const Topology& topology, Adjacency side)
      : session_(session), topology_(topology), indptr_(topology.indptr(side)) {}
  static Result<std::unique_ptr<EdgeReader>> Open(Session& session, Adjacency side, EdgeParts parts);
  void PlanBatch();
  Status LoadBatch();
  Status LoadPages(Part& part);
  Status LoadEdited(Part& part);
  Result<bool> NextStretch();
  Result<bool> NextRun();
  Status FindPieces();
  template <typename Function>
  Status ForEachPart(Function&& function);

  Session& session_;
  const Topology& topology_;
  const std::span<const uint64_t> indptr_;
  IdSet owners_;
  bool is_lookup_ = false;
  bool has_relations_ = false, has_weights_ = false;  // asked for, and there
  bool by_relation_ = false;                          // edges of different relations are not equal
  MemoryBudget::Reservation reservation_;

  uint64_t planned_owner_ = 0;  // where the next batch begins: place in owners_
  uint64_t planned_edge_ = 0;   // and in its list; 0: at the list's begin
  std::vector<Run> runs_;       // the batch's
  size_t run_ = 0;
  Part neighbors_, relations_, weights_;
  // Edges [edge_, stop_) lie one behind the other, from each part's `at` on; of a lookup's list, others follow
  // up to list_end_.
  uint64_t edge_ = 0, stop_ = 0, list_end_ = 0;
  uint64_t known_end_ = 0;  // neighbors are there up to this edge, beyond the list's end

  uint64_t owner_ = 0;  // place in owners_
  NodeId neighbor_ = kNoNode;
  uint32_t relation_ = 0;
  std::optional<float> weight_;
  uint64_t ordinal_ = 0;
};

}  // namespace quarry::sql
