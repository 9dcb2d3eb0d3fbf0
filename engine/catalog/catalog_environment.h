// The environment that RocksDB gets while a CatalogFaults lives. Private to this room.
#pragma once

#include <rocksdb/env.h>

namespace quarry {

// RocksDB's own, unless a test has faults in its place.
rocksdb::Env* CatalogEnvironment();

}  // namespace quarry
