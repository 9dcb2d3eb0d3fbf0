// TableGuard: a file system that refuses a table of RocksDB's whose properties are damaged, before RocksDB
// reads them.
//
// RocksDB takes a table's properties block apart first and compares its checksum afterwards; a flipped bit in
// how that block ends is an assertion that fails, and with it the process. It checks every other block before
// it reads it. Here a table's end is read when it is opened: footer, metaindex, properties, some kilobytes.
//
// Private to this room.
#pragma once

#include <rocksdb/file_system.h>

#include <memory>

namespace quarry {

// `files` with that guard.
std::shared_ptr<rocksdb::FileSystem> WithTableGuard(std::shared_ptr<rocksdb::FileSystem> files);

}  // namespace quarry
