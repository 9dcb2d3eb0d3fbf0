// The requests and answers of the local protocol that training needs besides batches: states of its runs, and
// edges (docs/protocol.md).
#pragma once

#include <cstdint>
#include <string>

#include "quarry/format/wire_types.h"

namespace quarry::wire {

// The state of a training run, to go on from: piece by piece, in order; the last one makes it the run's.
struct SaveTraining {
  std::string name;          // of the run
  std::string settings;      // all that decides its result, for it to be gone on with by the same
  uint64_t state_bytes = 0;  // size of all pieces together
  uint64_t offset = 0;       // where this piece begins
  Bulk piece;
  bool with_embeddings = false;  // in one commit with what embedding tables hold by then
  std::string config;            // what the run was started with, as text; empty: nobody says
  bool operator==(const SaveTraining&) const = default;
};

struct ReadTraining {
  std::string name;
  bool with_state = true;  // or what is said of it alone
  bool operator==(const ReadTraining&) const = default;
};

// Edges [first, first + count) of a topology, in the order of the database: by destination.
struct ReadEdges {
  std::string topology = "graph";
  uint64_t first = 0;
  uint32_t count = 0;
  uint64_t list = 0;  // that they have to be of, as an answer named it; 0: whichever there is
  bool operator==(const ReadEdges&) const = default;
};

// Answers ReadTraining: the run's last checkpoint; SaveTraining: the one that was taken, without its state.
struct Training {
  std::string settings;
  std::string created_utc;
  int64_t timestamp = -1;  // of the embedding tables that belong to it; -1: none
  Payload state;           // empty where it was not asked for
  std::string config;      // as it was saved
  bool operator==(const Training&) const = default;
};

// Answers ReadEdges: head, relation and tail of each, as uint32.
struct Edges {
  uint64_t edges = 0;  // fewer than asked for at the end alone
  Payload payload;
  uint64_t list = 0;  // that they are of: another number whenever edges came or went; 0: an older server's
  bool operator==(const Edges&) const = default;
};

}  // namespace quarry::wire
