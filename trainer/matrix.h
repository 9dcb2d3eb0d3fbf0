// Matrix products on plain arrays, by the BLAS that LibTorch brings, on the calling thread alone: who has
// more threads gives each its own product.
#pragma once

#include <cstdint>

namespace quarry {

// Row-major float32, in somebody else's memory.
struct MatrixRef {
  float* data = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
};

// A setting of the whole process, of LibTorch's own threads too; `callers` threads multiply at the same time. False when
// the BLAS in use is not OpenBLAS, whose threads at::set_num_threads does not reach. Throws std::bad_alloc where a limit
// of address space has no room for the buffers of the callers.
bool SetBlasThreads(unsigned threads, unsigned callers = 1);

void MultiplyTransposed(const MatrixRef& a, const MatrixRef& b, const MatrixRef& out);     // out = a b^T
void Multiply(const MatrixRef& a, const MatrixRef& b, const MatrixRef& out);               // out = a b
void AddTransposedMultiply(const MatrixRef& a, const MatrixRef& b, const MatrixRef& out);  // out += a^T b

}  // namespace quarry
