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

// Where each of a batch's seeds stands among those of the pass, `order` included. REQUIRES: they are among them.
void WriteSeedPositions(const quarry_batch_arrays& arrays, const PygPass& pass, int64_t* positions);

// Nodes and edges of each hop, the seeds first.
class HopCounts {
 public:
  HopCounts() = default;
  explicit HopCounts(const quarry_batch_arrays& arrays);
  nb::list NodeList() const;
  nb::list EdgeList() const;
  uint64_t seeds() const { return nodes_[0]; }
  uint64_t nodes() const;  // of all hops

 private:
  std::vector<uint32_t> nodes_, edges_;
};

class PygBlock {
 public:
  // Throws Failure and std::bad_alloc.
  PygBlock(const quarry_batch* batch, const PygPass& pass);
  // The rows of its batch, if that has some. Throws as above.
  void Gather(const quarry_batch* batch);

  // What it has, once, with the lock: edge_index (source and destination of every edge, as local ids), n_id, where each
  // seed stood among all of them, labels, edge ids, how many nodes and edges each hop has, the seeds first, and the rows;
  // as arrays of NumPy, None where there are none.
  nb::tuple ToArrays();
  // The same by the names of PyG's attributes, without those that are not there. `tensor_of` makes a tensor of a DLPack
  // capsule, as torch.from_dlpack does.
  nb::dict ToAttributes(const nb::object& tensor_of);

 private:
  using Int64s = RecycledArray<int64_t, 1>;

  void CheckOnce();
  void WriteEdges(const quarry_batch_arrays& arrays);
  void WritePositions(const quarry_batch_arrays& arrays, const PygPass& pass);

  RecycledArray<int64_t, 2> edge_index_;
  Int64s n_id_;
  std::optional<Int64s> positions_, labels_, edge_ids_;
  std::optional<RecycledArray<float, 2>> x_;
  HopCounts hops_;
  bool taken_ = false;
};

// Makes a Data of PyG's of a block, in one call: when a batch has come, everything that is touched has left the caches,
// and a line of Python costs its trainer what a hundred do elsewhere.
class PygData {
 public:
  // `data` and `store`: the types of a Data and of its `_store`; `fields`: what a Data has beside that.
  PygData(nb::object tensor_of, nb::object data, nb::object store, nb::dict fields);
  // What the constructors would, without calling them.
  nb::object Of(PygBlock& block) const;

 private:
  // An object whose constructor is not called, and its fields.
  struct Blank {
    explicit Blank(const nb::object& type);
    nb::object object, fields;
  };

  const nb::object tensor_of_, data_, store_;
  const nb::dict fields_;
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
