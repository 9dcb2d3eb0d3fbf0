// Makes the bytes of a bucket of its edges, and appends them to a file's section. Private to this room.
#pragma once

#include <cstdint>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/partition/partition_directory.h"
#include "quarry/storage/data_file.h"

namespace quarry {

class BucketEncoder {
 public:
  // What an edge of the bucket takes: twice as a pair and once while these are sorted (24), its relation (4), and both of
  // its lists as they are written (24 where each has one neighbor).
  static constexpr uint64_t kBytesPerEdge = 24 + 4 + 32;

  explicit BucketEncoder(bool has_relations) : has_relations_(has_relations) {}

  void Clear();
  // REQUIRES: edges come by destination, source and relation.
  void Add(uint32_t destination, uint32_t source, uint32_t relation) {
    by_destination_.push_back(LocalEdge(destination, source));
    by_source_.push_back(LocalEdge(source, destination));
    if (has_relations_) relations_.push_back(relation);
  }
  // Writes the edges as the bucket between these parts, from a page on, where `section_bytes` of the section are written,
  // and says in the directory where that is.
  Status Append(uint32_t source, uint32_t destination, DataFileWriter& writer, uint64_t& section_bytes,
                PartitionDirectory& directory);

 private:
  const bool has_relations_;
  std::vector<uint64_t> by_destination_, by_source_, scratch_;
  std::vector<uint32_t> relations_;
  std::vector<std::byte> bytes_;
};

}  // namespace quarry
