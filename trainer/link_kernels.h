// The loops of LinkDecoder between its matrix products. Pure functions over row-major float32, the same bits
// whatever thread runs them; `rows` counts rows, each `dim` wide.
#pragma once

#include <cstdint>
#include <span>

namespace quarry {

// Rows of an array, chosen by index.
struct RowsRef {
  const float* values = nullptr;
  uint64_t stride = 0;
  const uint32_t* indices = nullptr;
  const float* operator[](uint32_t i) const { return values + indices[i] * stride; }
};

void GatherRows(const RowsRef& from, uint32_t rows, uint32_t dim, float* out);

// Queries of known nodes and relations.
void DistMultQueries(const RowsRef& nodes, const RowsRef& relations, uint32_t rows, uint32_t dim,
                     float* queries);
void ComplExQueries(const RowsRef& nodes, const RowsRef& relations, uint32_t rows, uint32_t dim,
                    float* queries);
void TransEQueries(const RowsRef& nodes, const RowsRef& relations, uint32_t rows, uint32_t dim,
                   float* queries);
void RotatEQueries(const RowsRef& nodes, const RowsRef& relations, uint32_t rows, uint32_t dim,
                   float* queries);

// The gradients of the queries, brought back to the known nodes and the relations.
void DistMultBackward(const RowsRef& nodes, const RowsRef& relations, uint32_t rows, uint32_t dim,
                      const float* query_gradients, float* node_gradients, float* relation_gradients);
void ComplExBackward(const RowsRef& nodes, const RowsRef& relations, uint32_t rows, uint32_t dim,
                     const float* query_gradients, float* node_gradients, float* relation_gradients);
void RotatEBackward(const RowsRef& nodes, const RowsRef& relations, uint32_t rows, uint32_t dim,
                    const float* query_gradients, float* node_gradients, float* relation_gradients);

// Adds the derivatives of `weight` times the sum of all floats' squares, or of their magnitudes' cubes, to
// `gradients`, and returns that sum, times the weight. Complex rows are [real half | imaginary half].
double AddSquares(float weight, const RowsRef& values, uint32_t rows, uint32_t dim, float* gradients);
double AddCubes(float weight, const RowsRef& values, uint32_t rows, uint32_t dim, float* gradients);
double AddComplexCubes(float weight, const RowsRef& values, uint32_t rows, uint32_t dim, float* gradients);

// Products of each query with its truth, or minus their distance.
void PositiveScores(bool is_distance, const float* queries, const RowsRef& truths, uint32_t rows,
                    uint32_t dim, float* scores);

// Adds the positives' part to the gradients of queries, and makes that of the truths. `weights`: the
// derivatives of the loss with respect to the positives' scores, for distances as in DistanceWeights.
void PositiveGradients(bool is_distance, const float* weights, const float* queries, const RowsRef& truths,
                       uint32_t rows, uint32_t dim, float* query_gradients, float* truth_gradients);

// Squared lengths of rows.
void SquaredLengths(const float* values, uint32_t rows, uint32_t dim, float* lengths);

// Products q . n of [rows, columns] become -|q - n|; `inverse` keeps 1 / |q - n| for the way back.
void ProductsToDistances(const float* query_lengths, const float* negative_lengths, uint32_t rows,
                         uint32_t columns, float* scores, float* inverse);

// The derivative of -|q - n| with respect to q is (n - q) / |q - n|. So a score's derivative over its
// distance is a weight w: q gets w (n - q), and n gets w (q - n). Matrix products give the first terms, and
// SubtractScaled by the sums of weights the second. Sums of columns are added to what is there.
void DistanceWeights(const float* inverse, uint32_t rows, uint32_t columns, float* weights, float* row_sums,
                     float* column_sums);

// Row i of `out` -= scales[i] * row i of `values`.
void SubtractScaled(const float* scales, const float* values, uint32_t rows, uint32_t dim, float* out);

// Adds row i of `staged` to row targets[i] of `gradients` (`stride` floats apart), for targets in [first,
// last), in the order of i.
void ScatterAdd(const float* staged, std::span<const uint32_t> targets, uint32_t dim, uint64_t stride,
                uint32_t first, uint32_t last, float* gradients);

}  // namespace quarry
