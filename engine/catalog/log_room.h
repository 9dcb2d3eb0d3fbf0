// LogRoom: the file system that catalogs are on, which gives their logs room ahead. Private to this room.
//
// A log that grows with every commit has its new size to be synced as well, which takes the file system's
// journal another write. Here a log's size runs ahead of what is in it, kLogRoomBytes at a time, and a sync
// has the commit's own bytes to write and, but for one in some hundreds, nothing else. That gives back what
// ledger and anchor cost a synced commit. Behind the last commit a log has zeros then, as RocksDB knows them
// from files that it maps; one that is closed is cut to what it holds.
#pragma once

#include <rocksdb/file_system.h>

#include <memory>

namespace quarry {

inline constexpr size_t kLogRoomBytes = size_t{256} << 10;

// RocksDB's own file system with room in logs.
std::shared_ptr<rocksdb::FileSystem> FileSystemWithLogRoom();

}  // namespace quarry
