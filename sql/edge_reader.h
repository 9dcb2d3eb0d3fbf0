// EdgeReader: the edges of some nodes' adjacency lists, by ascending owner, then neighbor. Private to this
// room; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "id_set.h"
#include "quarry/base/status.h"
#include "quarry/format/types.h"
#include "session.h"

namespace quarry::sql {

// What is read beside the ends of edges.
struct EdgeParts {
  bool relations = false;
  bool weights = false;
};

class EdgeReader {
 public:
  // The lists of `owners` on a side that the topology has. Pages of
  // several lists are read at once, by merged requests.
  static Result<std::unique_ptr<EdgeReader>> Make(Session& session, Adjacency side, IdSet owners,
                                                  EdgeParts parts);

  Result<bool> Next();  // to the first edge, then to the next; false after the last
  NodeId owner() const { return static_cast<NodeId>(owners_[owner_]); }
  NodeId neighbor() const { return neighbor_; }
  uint32_t relation() const { return relation_; }          // 0 without relations
  std::optional<float> weight() const { return weight_; }  // nothing without weights
  uint64_t ordinal() const { return ordinal_; }            // among edges with the same ends, from 0

 private:
  // Edges [first, end) of the side.
  struct Run {
    uint64_t first = 0;
    uint64_t end = 0;
  };
  // Pages of a section, those that runs need.
  struct Pages {
    const File* file = nullptr;
    uint32_t block_bytes = 0;
    uint64_t offset = 0;       // where the section begins
    uint64_t entry_bytes = 0;  // one edge's
    std::vector<std::byte> bytes;
    std::vector<uint64_t> places;  // each run's first entry, in `bytes`
  };
  using Verify = std::function<Status(uint64_t first_page, std::span<const std::byte> bytes)>;

  EdgeReader(Session& session, const Topology& topology, Adjacency side, IdSet owners)
      : session_(session), topology_(topology), side_(side), owners_(std::move(owners)) {}
  void PlanBatch();
  Status LoadBatch();
  Status LoadPages(Pages& pages, const Verify& verify);
  Status LoadValues(const EdgeValues& values, Pages& pages);

  Session& session_;
  const Topology& topology_;
  const Adjacency side_;
  const IdSet owners_;
  const EdgeValues* relations_ = nullptr;  // these two: null when not asked for, or not there
  const EdgeValues* weights_ = nullptr;
  MemoryBudget::Reservation reservation_;

  uint64_t planned_owner_ = 0;  // where the next batch begins: place in owners_
  uint64_t planned_edge_ = 0;   // and in its list; 0: at the list's begin
  std::vector<Run> runs_;       // the batch's
  size_t run_ = 0;
  uint64_t edge_ = 0;
  Pages indices_, relation_pages_, weight_pages_;

  uint64_t owner_ = 0;  // place in owners_
  NodeId neighbor_ = kNoNode;
  uint32_t relation_ = 0;
  std::optional<float> weight_;
  uint64_t ordinal_ = 0;
};

}  // namespace quarry::sql
