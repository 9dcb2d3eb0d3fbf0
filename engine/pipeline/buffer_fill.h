// Filling a feature buffer that has room for all rows by one scan of the table, where a pass would otherwise bring
// most of them in one by one.
#pragma once

#include <cstdint>
#include <stop_token>

#include "extractor.h"
#include "probe.h"
#include "quarry/base/status.h"
#include "quarry/cache/feature_buffer.h"
#include "quarry/io/coalesce.h"

namespace quarry {

// Distinct input nodes of a pass of so many batches, estimated from a few that were probed. Two batches of d nodes that
// share s of them seem drawn from d²/s nodes (capture and recapture): batches of a skewed graph share more, and so the
// estimate is lower for them.
uint64_t DistinctNodes(const BatchProbe& probe, uint64_t batches, uint64_t node_count);

// Whether reading `rows` of the table's rows, each by a request of its own, takes longer than a scan of the table.
bool ScanPays(const DeviceProfile& device, uint64_t rows, uint64_t table_bytes);

// Brings in all rows that are not there, `chunk_rows` at a time, in the order of the file, to where `target` has them;
// `stats` is added to. Errors as Extractor::Load; kCancelled soon after stop is requested. What had arrived stays.
// REQUIRES: the buffer retains as many rows as the table has, and nobody else uses it.
Status FillBuffer(FeatureBuffer& buffer, const RowTarget& target, Extractor& extractor, uint64_t row_count,
                  uint64_t chunk_rows, const std::stop_token& stop, LoadStats& stats);

}  // namespace quarry
