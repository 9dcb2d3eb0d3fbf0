// Ranges of a file from here and there, by merged requests. Private to this room.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "quarry/base/status.h"
#include "quarry/io/backend.h"
#include "quarry/io/coalesce.h"
#include "quarry/io/ring.h"

namespace quarry {

// The depth of the ring: more requests in flight gain nothing (docs/benchmarks.md).
inline constexpr unsigned kMergedReadDepth = 64;

// What `staging` must have at least: the largest of `reads`, in whole pages.
size_t MergedReadBytes(std::span<const MergedRead> reads);

// Reads what Coalesce has made of `ranges`, as many requests at a time as `staging` has room for, and calls
// visit(i, bytes) for each range, in any order, with what the file has there, valid during the call. What
// visit returns other than OK comes back. After an error requests may be under way: Drain the ring before
// `staging` goes. REQUIRES: nothing else is in the ring, whose depth is kMergedReadDepth.
Status ReadMerged(IoRing& ring, const File& file, std::span<const ByteRange> ranges,
                  std::span<const MergedRead> reads, std::span<std::byte> staging,
                  const std::function<Status(size_t, std::span<const std::byte>)>& visit);

}  // namespace quarry
