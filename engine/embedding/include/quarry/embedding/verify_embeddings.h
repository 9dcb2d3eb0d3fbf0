// Verifying the files of embedding tables.
#pragma once

#include "quarry/base/progress.h"
#include "quarry/base/status.h"
#include "quarry/storage/store.h"
#include "quarry/verify/verify.h"

namespace quarry {

// Adds the files of embeddings/ that no record names to the report: our own are leftovers of a crash, others
// are strangers.
Status FindEmbeddingStrays(const Store& store, VerifyReport& report);

// Reads every page of every table's checkpoint, and the timestamps in it; adds faults and strays to the
// report of VerifyStore. Leftovers of crashes are mentioned but are no faults. Holds the page maps and a
// mebibyte.
Status VerifyEmbeddings(Store& store, const ProgressFunction& progress, VerifyReport& report);

}  // namespace quarry
