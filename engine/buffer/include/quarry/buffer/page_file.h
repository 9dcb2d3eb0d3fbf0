// PageFile: pages of one size that are written in place of nothing: every write of a page goes to a free slot of
// the file (copy on write), and the *page map* says which slot holds which page. What the last checkpoint's map
// names is never overwritten before the next checkpoint has committed.
//
// So a page is never torn in the eyes of a reader: a crash during a write damages a slot that no map names. And a
// checkpoint is exact: a restart finds the pages as they were at it, none newer, without a log. A page costs one
// write (a double-write area would cost two, and an update log beside it a third); the price is space for two
// versions of the pages that changed between two checkpoints.
//
//   file   superblock | slot 0 | slot 1 | ...          a slot: page header | body
//   map    superblock | one entry a page | checksums   written whole by every checkpoint, named by the catalog
//
// A page header holds the checksum of the page, its number, and its version, which the map repeats: a read
// verifies all three, so a lost or misdirected write is found as surely as a torn one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "quarry/base/mutex.h"
#include "quarry/base/status.h"
#include "quarry/format/types.h"
#include "quarry/io/backend.h"

namespace quarry {

using PageNumber = uint32_t;

struct PageHeader {
  uint64_t checksum = 0;  // of all that follows it in the page, header included
  uint64_t version = 0;   // of the page: one more with every write of it
  uint32_t page = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(PageHeader) == 24);

}  // namespace quarry
