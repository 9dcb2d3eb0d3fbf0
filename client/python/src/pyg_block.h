// What PyG has of a batch: ids of 64 bits and rows of float32, in memory of its own. It is made without the
// interpreter's lock, on the stream's thread where a pass asks for it, so that a Loader's batch has nothing left to
// convert when it is asked for. Rows come when the batch is taken: made ahead, they would be those of one batch more.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "bindings.h"
#include "memory.h"

namespace quarry::python {

// What the blocks of a pass need to know.
struct PygPass {
  std::vector<uint32_t> sorted;  // the seeds, all of them; empty: nobody asks where a seed stands
  std::vector<uint32_t> order;   // where each of them stood before they were sorted; empty: there
};

class PygBlock {
 public:
  // Throws Failure and std::bad_alloc.
  PygBlock(const quarry_batch* batch, const PygPass& pass);
  // The rows of its batch, if that has some. Throws as above.
  void Gather(const quarry_batch* batch);

  // In one call, since each costs a trainer's cold caches some 10 us: edge_index (source and destination of every edge,
  // as local ids), n_id, where each seed stood among all of them, labels, edge ids, how many nodes and edges each hop
  // has, the seeds first, and the rows. None where there are none. Arrays of NumPy, or DLPack's capsules, which Torch
  // makes a tensor of in half the time. Once, with the lock.
  nb::tuple ToPython(bool dlpack) &&;

 private:
  using Int64s = RecycledArray<int64_t, 1>;

  void WriteEdges(const quarry_batch_arrays& arrays);
  void WritePositions(const quarry_batch_arrays& arrays, const PygPass& pass);

  RecycledArray<int64_t, 2> edge_index_;
  Int64s n_id_;
  std::optional<Int64s> positions_, labels_, edge_ids_;
  std::optional<RecycledArray<float, 2>> x_;
  std::vector<uint32_t> nodes_, edges_;  // of each hop
};

// Makes the blocks of a pass, as `quarry_prepare` wants it. There is one batch at a time between Run and Take: the stream
// is asked for the next one after this one was taken.
class Preparation {
 public:
  explicit Preparation(std::shared_ptr<PygPass> pass) : pass_(std::move(pass)) {}
  static void Run(const quarry_batch* batch, void* preparation) noexcept;
  // Throws what Run met.
  std::unique_ptr<PygBlock> Take();

 private:
  const std::shared_ptr<PygPass> pass_;
  std::unique_ptr<PygBlock> made_;
  std::exception_ptr error_;
};

}  // namespace quarry::python
