#include "matrix.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <cassert>

namespace quarry {
namespace {

at::Tensor View(const MatrixRef& matrix) { return at::from_blob(matrix.data, {matrix.rows, matrix.columns}); }

}  // namespace

bool SetBlasThreads(unsigned threads) {
  at::set_num_threads(static_cast<int>(threads));
  // The symbol is there only when OpenBLAS is the BLAS in use.
  const auto set_openblas_threads =
      reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "openblas_set_num_threads"));
  if (set_openblas_threads != nullptr) set_openblas_threads(static_cast<int>(threads));
  return set_openblas_threads != nullptr;
}

void MultiplyTransposed(const MatrixRef& a, const MatrixRef& b, const MatrixRef& out) {
  assert(a.columns == b.columns && out.rows == a.rows && out.columns == b.rows);
  at::Tensor product = View(out);
  at::mm_out(product, View(a), View(b).t());
}

void Multiply(const MatrixRef& a, const MatrixRef& b, const MatrixRef& out) {
  assert(a.columns == b.rows && out.rows == a.rows && out.columns == b.columns);
  at::Tensor product = View(out);
  at::mm_out(product, View(a), View(b));
}

void AddTransposedMultiply(const MatrixRef& a, const MatrixRef& b, const MatrixRef& out) {
  assert(a.rows == b.rows && out.rows == a.columns && out.columns == b.columns);
  View(out).addmm_(View(a).t(), View(b));
}

}  // namespace quarry
