// TableGuard: a file system that refuses a table of RocksDB's whose properties are damaged, before RocksDB
// reads them, and remembers which tables could not be read, since RocksDB may forget it.
//
// RocksDB takes a table's properties block apart first and compares its checksum afterwards; a flipped bit in
// how that block ends is an assertion that fails, and with it the process. It checks every other block before
// it reads it. Here a table's end is read when it is opened: footer, metaindex, properties, some kilobytes.
//
// RocksDB 7.8 forgets some failures: an iterator over several tables goes on without one that could not be opened, or
// whose first block could not be read or is damaged (its pull request 11782), or drops an error when it seeks anew
// behind a deleted range (11785). Few descriptors are enough. A reader would then take the table's entries for missing,
// and a compaction would leave them out for good. So failures, damaged blocks among them, are counted by thread and
// database, as RocksDB reads in the thread that asks: iterators of this room (OpenDatabase::Entries) compare the count,
// and after a failure of a compaction nothing is written to the MANIFEST of that database until it is opened anew.
//
// Private to this room.
#pragma once

#include <rocksdb/file_system.h>

#include <cstdint>
#include <memory>
#include <string>

namespace quarry {

// `files` with that guard.
std::shared_ptr<rocksdb::FileSystem> WithTableGuard(std::shared_ptr<rocksdb::FileSystem> files);

// What tables of the database in the folder `path` could not be opened or read in the calling thread, since it began.
// Valid as long as the thread.
struct TableFailures {
  uint64_t count = 0;
  rocksdb::IOStatus last;
};
const TableFailures& TableFailuresOfThread(const std::string& path);

// The database that the calling thread compacts; empty: none. RocksDB's threads do one thing at a time.
void SetCompactedByThread(const std::string& path);
// Forgets that a compaction of the database failed: it is closed, or opened anew.
void ForgetFailedCompaction(const std::string& path);

}  // namespace quarry
