// Verifying: every byte of a database held against its checksums, and what is found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "quarry/base/progress.h"
#include "quarry/base/status.h"
#include "quarry/storage/store.h"

namespace quarry {

// The thing in which a fault was found, for RepairStore (repair.h).
struct Damage {
  enum class Kind : uint8_t {
    kCatalog,   // its tables, names or versions
    kOldRows,   // rows of a table of which newer versions may have been lost
    kVersion,   // the file VERSION
    kFolder,    // one that every database has, and this one has not
    kStray,     // a file or folder that no record names
    kForeign,   // the same beside the database's own folders
    kLeftover,  // the same, of a command that was interrupted: mentioned, and no fault
    kTable,
    kTopology,
    kLayout,
    kPartitioning,
    kTraining,
    kEmbedding,
  };
  Kind kind = Kind::kCatalog;
  std::string name;        // as its record has it; of folders, strays and leftovers the path in the database
  uint64_t first_row = 0;  // first row, where single rows of a table are damaged
  uint64_t row_count = 0;  // 0: something other than rows
};

inline constexpr size_t kVerifyFaultsMax = 1000;

struct VerifyReport {
  uint64_t files = 0;
  uint64_t bytes = 0;
  std::vector<Status> faults;      // all kCorruption, the first kVerifyFaultsMax of them; empty = sound
  std::vector<std::string> notes;  // leftovers that are no faults, in words
  std::vector<Damage> damages;  // what they are of, each once, and neighboring rows together; of a table with
                                // more than kVerifyFaultsMax of those, the last has all that follow

  void Add(const Status& fault, const Damage& damage);
  void AddDamage(const Damage& damage);
};

// Reads everything: superblocks, footers, every cell and section checksum, padding, indptr monotone, indices
// in range and ascending within each list, counts equal to the catalog's, names, labels and splits in range,
// the files of every layout and partitioning, the file VERSION, no stray files. Holds under 16 MiB whatever the database's
// size (and four rows where they exceed a mebibyte). An error (as opposed to a fault) means that the
// verification could not run.
Result<VerifyReport> VerifyStore(Store& store, const ProgressFunction& progress);

// Finds only files that no record names, and missing folders, by listing the folders; reads no data file. A
// file that another thread is just writing is a stray until its commit.
Result<VerifyReport> FindStrays(Store& store);

}  // namespace quarry
