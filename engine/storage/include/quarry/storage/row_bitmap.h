// RowBitmap: a set of 32-bit rows (Roaring), and its form on disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <roaring/roaring.hh>
#include <span>
#include <string_view>
#include <vector>

#include "quarry/base/status.h"

// Debian 12's library has its class in no namespace, later ones have it in this one.
namespace roaring {}

namespace quarry {

namespace roaring_names {
using namespace ::roaring;  // NOLINT(google-build-using-namespace): see above
using RowBitmap = Roaring;
}  // namespace roaring_names
using roaring_names::RowBitmap;

// Roaring's portable format.
std::vector<std::byte> EncodeRows(std::span<const uint64_t> rows);
// kCorruption names `what`.
Result<RowBitmap> DecodeRows(std::span<const std::byte> bytes, std::string_view what);

}  // namespace quarry
