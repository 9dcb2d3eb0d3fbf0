// What bench_extract reads: a file of rows of known, incompressible content, and the rows of one mini-batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/feature_table.h"
#include "quarry/io/backend.h"

namespace quarry::bench {

inline constexpr uint64_t kRowBytes = 512;  // 128 x float32

// What row `row` holds; the same on every machine, and no two alike.
void FillRow(uint64_t row, std::span<std::byte> out);

// `directory`/extract-<rows>.bin, written with direct writes unless it is there whole. Creates the directory.
Result<File> OpenRowFile(IoBackend& backend, const std::string& directory, uint64_t row_count);

// `count` distinct rows of row_count, ascending. The trace's rows follow a power law, but ids are permuted:
// where a row lies says nothing about how often it is used, so the distinct rows of a batch lie as if drawn
// uniformly.
std::vector<uint32_t> DrawBatch(uint64_t row_count, uint64_t count, uint64_t seed);

// The share of the file's pages that hold one of `rows`.
double PagesTouched(std::span<const uint32_t> rows, uint64_t row_count);

}  // namespace quarry::bench
