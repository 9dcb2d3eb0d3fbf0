// What a database takes, of the disk and of memory.
#pragma once

#include <cstdint>

#include "quarry/format/manifest.h"
#include "quarry/storage/store.h"

namespace quarry::cli {

// By kind; files that no record names, and what an interrupted command left, are not in it.
struct DiskFootprint {
  uint64_t tables = 0, topologies = 0, layouts = 0, embeddings = 0, trainings = 0;
  uint64_t catalog = 0;  // the manifest, names, and rows that changed

  uint64_t total() const { return tables + topologies + layouts + embeddings + trainings + catalog; }
};
DiskFootprint DiskFootprintOf(const Store& store);

// The disk space of the page file of an embedding table, which has holes, and of its page map.
uint64_t EmbeddingBytes(const Store& store, const EmbeddingRecord& table);

// What whoever opens the table holds of it throughout, whatever is cached besides: its checksums.
uint64_t ResidentBytes(const TableRecord& table);

}  // namespace quarry::cli
