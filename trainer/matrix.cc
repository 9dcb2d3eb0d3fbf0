#include "matrix.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <new>
#include <thread>
#include <vector>

#include "quarry/base/log.h"
#include "quarry/base/process_limits.h"
#include "quarry/base/thread.h"
#include "quarry/base/units.h"

namespace quarry {
namespace {

at::Tensor View(const MatrixRef& matrix) { return at::from_blob(matrix.data, {matrix.rows, matrix.columns}); }

// Null where no library in use has one of the name: OpenBLAS need not be the BLAS.
template <typename Function>
Function* FunctionAt(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

// Where one is refused, LibTorch's own pool waits for it for ever, OpenBLAS raises SIGINT and OpenMP ends the
// process.
bool HasThreadsFor(unsigned threads) {
  const unsigned all = std::max(1U, std::thread::hardware_concurrency()) + 2 * threads;
  return ProbeThreads(all) == all;
}

// OpenBLAS maps a buffer for each thread that calls it, with the first call, and where the system refuses, it asks for
// ever. Under a limit of address space those of `callers` are mapped now, before other things take the room, and
// std::bad_alloc is thrown where there is none.
void MapBlasBuffers(unsigned callers) {
  constexpr uint64_t kBufferBytes = 128 * kMiB, kOthersBytes = 32 * kMiB;
  const auto allocate = FunctionAt<void*(int)>("blas_memory_alloc");
  const auto release = FunctionAt<void(void*)>("blas_memory_free");
  static std::atomic<unsigned> mapped{0};  // by whoever called before
  const uint64_t left = AddressSpaceLeft();
  if (left == UINT64_MAX || callers <= mapped || allocate == nullptr || release == nullptr) return;
  if (left < (callers - mapped) * kBufferBytes + kOthersBytes) throw std::bad_alloc();
  std::vector<void*> buffers;
  for (unsigned caller = 0; caller < callers; ++caller) buffers.push_back(allocate(0));
  for (void* const buffer : buffers) release(buffer);  // they stay mapped, for the next that calls
  mapped = callers;
}

}  // namespace

bool SetBlasThreads(unsigned threads, unsigned callers) {
  MapBlasBuffers(callers);
  const auto set_openblas_threads = FunctionAt<void(int)>("openblas_set_num_threads");
  if (!HasThreadsFor(threads)) {
    LogWarn("LibTorch computes with one thread: the system has not enough of them for its pools");
    // Past at::set_num_threads, which makes its pool for all processors before it looks at the number.
    if (const auto set_openmp_threads = FunctionAt<void(int)>("omp_set_num_threads")) set_openmp_threads(1);
    if (set_openblas_threads != nullptr) set_openblas_threads(1);
    return set_openblas_threads != nullptr;
  }
  at::set_num_threads(static_cast<int>(threads));
  if (set_openblas_threads != nullptr) set_openblas_threads(static_cast<int>(threads));
  // OpenMP's come with the first loop: now, while there is room for them.
  at::parallel_for(0, threads, 1, [](int64_t, int64_t) {});
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
