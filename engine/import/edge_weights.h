// Weights of edges that lie beside them, in a file or an array of their own. Private to this room.
#pragma once

#include <memory>
#include <string>

#include "array_archive.h"
#include "npy_reader.h"
#include "quarry/base/status.h"
#include "quarry/import/dataset.h"

namespace quarry {

// The file with the weights of the edges in `edges_path`, by its name: `edge_weights.npy` (or .csv, .csv.gz)
// beside `edges.*`, `edge_weights_<relation>.npy` beside `edges_<relation>.*`, OGB's `edge_weight.csv.gz`
// beside `edge.csv.gz`. Empty when there is none.
std::string WeightsBeside(const std::string& edges_path);

// The edges with the weights in a file; as they are where `weights_path` is empty. The file has one weight
// for each edge, in their order: numbers of any type, which become float32 and have to be finite then.
// kInvalidArgument also when the edges have weights already.
Result<std::unique_ptr<EdgeReader>> WithWeights(std::unique_ptr<EdgeReader> edges,
                                                const std::string& weights_path);
// The same of an array, [E] or [E, 1].
Result<std::unique_ptr<EdgeReader>> WithWeights(std::unique_ptr<EdgeReader> edges, const NpyArray& weights);

// With the array of an archive that has the first of `keys`; as they are where it has none.
Result<std::unique_ptr<EdgeReader>> WithArchivedWeights(std::unique_ptr<EdgeReader> edges,
                                                        const ArrayArchive& archive,
                                                        const std::vector<std::string>& keys);

// Whether any value of an array of numbers is not 1, by a pass over them: a sparse matrix has values whether
// its edges have weights or not.
Result<bool> AnyButOnes(const NpyArray& values);

}  // namespace quarry
