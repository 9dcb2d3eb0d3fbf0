// Record files: a data file of numbered records, each from a page on, written front to back and read in any
// order, verified. What a layout is planned with (the trace, blocks, next uses, misses) lies in such files
// and not in memory, so that a plan needs memory for nodes and not for accesses. Private to this room.
//
// Planning therefore holds 4 to 12 bytes a node, the cache's slots and a batch: a plan of 50 M nodes and 400
// M accesses runs in 2 GB (docs/benchmarks.md).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/superblock.h"
#include "quarry/io/buffer.h"
#include "quarry/storage/data_file.h"

namespace quarry {

using DatabaseId = std::array<std::byte, 16>;

// In the superblocks of scratch files, which belong to no database.
inline constexpr DatabaseId kScratchId{};
inline constexpr uint64_t kScratchGeneration = 1;

template <typename T>
std::span<const std::byte> BytesOf(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

class RecordWriter {
 public:
  static Result<std::unique_ptr<RecordWriter>> Create(IoBackend& backend, const std::string& path);
  // Appends the next record, which is the bytes of `parts` one after the other.
  Status Append(std::initializer_list<std::span<const std::byte>> parts);
  // Returns the file's bytes. `generation` and id as in every data file.
  Result<uint64_t> Finish(const DatabaseId& database_id, uint64_t generation);

 private:
  explicit RecordWriter(std::unique_ptr<DataFileWriter> writer) : writer_(std::move(writer)) {}
  std::unique_ptr<DataFileWriter> writer_;
  std::vector<uint64_t> index_;  // offset in the section and bytes, by record
  uint64_t position_ = 0;
};

// Const use is thread-safe.
class RecordFile {
 public:
  static Result<std::unique_ptr<RecordFile>> Open(IoBackend& backend, const std::string& path,
                                                  const DatabaseId& database_id, uint64_t generation,
                                                  uint64_t file_bytes);
  uint64_t size() const { return index_.size() / 2; }
  uint64_t bytes(uint64_t record) const { return index_[2 * record + 1]; }
  // Reads bytes [first, first + count) of a record, verified, through `buffer`, which grows as needed and
  // holds the result until its next use.
  Result<std::span<const std::byte>> Read(uint64_t record, uint64_t first, uint64_t count,
                                          IoBuffer& buffer) const;
  Result<std::span<const std::byte>> Read(uint64_t record, IoBuffer& buffer) const {
    return Read(record, 0, bytes(record), buffer);
  }
  uint64_t resident_bytes() const { return (index_.size() * 2 + checksums_.size()) * 4; }

 private:
  explicit RecordFile(IoBackend& backend) : backend_(backend) {}
  IoBackend& backend_;
  DataFile data_;
  Section records_;
  std::vector<uint32_t> checksums_;
  std::vector<uint64_t> index_;
};

// A record that holds an array of T.
template <typename T>
Result<std::span<const T>> ReadArray(const RecordFile& file, uint64_t record, IoBuffer& buffer) {
  QUARRY_TRY(const std::span<const std::byte> bytes, file.Read(record, buffer));
  return std::span(reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T));
}

}  // namespace quarry
