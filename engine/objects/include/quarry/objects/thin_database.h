// Thin databases: the catalog and all small files are here, and the large ones, which never change, stay at a place in an
// object store, from which they are read by blocks as they are needed.
//
// A thin database is a folder like any other. The file OBJECTS in it names the place and lists the files that stay there,
// with the checksums of their blocks; each of them is a file without blocks here (a hole), so that names and sizes are
// those of the database. What is written (rows, training runs, catalogs) is written here.
//
// Whoever reads it goes through the backend of OpenThin, which reads those files from the store, and everything else from
// the disk. Those files are refused to whoever would write, link or replace them; removing is allowed, and forgets a file.
//
// Roads that read front to back or by parts (planned, partitioned) get the store's bandwidth. The live road, whose reads
// are scattered rows, is refused (LiveRoad::Open): each row would fetch a block.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "quarry/base/status.h"
#include "quarry/io/backend.h"
#include "quarry/objects/access.h"
#include "quarry/objects/object_store.h"
#include "quarry/objects/place.h"
#include "quarry/objects/remote_manifest.h"

namespace quarry {

inline constexpr unsigned kThinBlocksMin = 4;  // buffers for blocks
// Blocks of 4 MiB. Three quarters are read ahead, and up to 128 are on their way.
inline constexpr unsigned kThinBlocksMax = 192;

struct ThinOptions {
  uint64_t memory_bytes = 0;  // of buffers and requests; ThinMemoryBytes says how much of a budget
  // Blocks that were fetched stay in this folder (BlockCache), on a disk that is faster than the store; empty: they do not.
  std::string cache_folder;
  uint64_t cache_bytes = 0;
  bool read_only = false;  // nothing that is written would last
  ObjectStoreOptions store;
};

// A quarter of the budget, and not more than kThinBlocksMax blocks need. kOutOfBudget where that is too little for
// kThinBlocksMin.
Result<uint64_t> ThinMemoryBytes(uint64_t budget_bytes);

bool IsThin(const std::string& path);

// What was read of the files in the store.
struct ObjectReadStatistics {
  uint64_t bytes_used = 0;  // by reads
  uint64_t blocks_from_store = 0, bytes_from_store = 0;
  uint64_t blocks_from_cache = 0;
  uint64_t blocks_ahead = 0;  // of both, those that were loaded before they were asked for
};

// The backend of a thin database. Thread-safe; outlives its files and ports.
class ThinBackend : public IoBackend {
 public:
  virtual ObjectReadStatistics statistics() const = 0;
};

// The thin database at `path`, over `local`, which everything else goes through. `access` says how its place is reached.
// kCorruption of OBJECTS; errors of the store's and the cache's opening. Sends nothing.
Result<std::unique_ptr<ThinBackend>> OpenThin(std::unique_ptr<IoBackend> local, const std::string& path,
                                              const ThinOptions& options);
// The same with an access that was resolved already.
Result<std::unique_ptr<ThinBackend>> OpenThin(std::unique_ptr<IoBackend> local, const std::string& path,
                                              const ObjectAccess& access, const ThinOptions& options);

// What OBJECTS says.
struct ThinFiles {
  ObjectPlace place;
  RemoteManifest manifest;  // with those files alone that stay in the store
};
std::string EncodeThinFiles(const ThinFiles& files);
Result<ThinFiles> ReadThinFiles(const std::string& path);

// Whether a thin database leaves a file in the store: it is larger than a block, and no part of the catalog, which RocksDB
// reads by itself.
bool StaysInStore(const RemoteFile& file);

}  // namespace quarry
