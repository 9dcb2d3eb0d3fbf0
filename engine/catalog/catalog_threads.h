// The threads of RocksDB's own. Private to this room.
#pragma once

#include <string>
#include <string_view>

#include "quarry/base/status.h"

namespace quarry {

// Whether the system has the threads that RocksDB starts when it opens a catalog: one that compacts and one
// that flushes, which stay as long as the process, and a timer. It throws out of the midst of its state where
// one is missing, so it is asked for before. kOutOfBudget with how many there would be; `what`: "open the
// catalog".
Status CheckRocksThreads(const std::string& path, std::string_view what);

// kOutOfBudget where the limit of address space leaves too little for RocksDB to write: an allocation that fails in the
// middle of it ends the process, or leaves its locks locked.
Status CheckRoomForWrite(const std::string& path, std::string_view what);

}  // namespace quarry
