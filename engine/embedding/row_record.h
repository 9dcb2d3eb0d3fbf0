// RowRecord: how a row lies in memory and in pages, and RowLatches: what makes reading or writing it one
// step.
//
//   record | timestamp int64 | vector dim x element | 0..3 bytes | state state_dim x float32 | 0..7 bytes |
//
// Records are as long as a multiple of 8 bytes, so that in an array of them every part is aligned.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "quarry/base/mutex.h"
#include "quarry/base/status.h"
#include "quarry/base/units.h"
#include "quarry/embedding/embedding_table.h"

namespace quarry {

class RowRecord {
 public:
  explicit RowRecord(const EmbeddingSpec& spec)
      : spec_(spec),
        vector_bytes_(RowBytes(spec.element_type, spec.dim)),
        state_offset_(RoundUp(kVectorOffset + vector_bytes_, sizeof(float))),
        state_bytes_(spec.state_dim() * sizeof(float)),
        bytes_(RoundUp(state_offset_ + state_bytes_, sizeof(int64_t))) {}

  const EmbeddingSpec& spec() const { return spec_; }
  uint64_t bytes() const { return bytes_; }

  static int64_t Timestamp(const std::byte* record) {
    int64_t timestamp;
    std::memcpy(&timestamp, record, sizeof(timestamp));
    return timestamp;
  }

  // Records of rows that nobody has written: `records` holds those from `first` on, as many as fit.
  void Init(RowId first, std::span<std::byte> records) const {
    std::memset(records.data(), 0, records.size());
    std::vector<float> values(spec_.dim);
    std::byte* record = records.data();
    for (uint64_t i = 0; i < records.size() / bytes_; ++i, record += bytes_) {
      std::memcpy(record, &kNeverWritten, sizeof(kNeverWritten));
      InitRow(spec_, first + i, values);
      EncodeRow(spec_.element_type, values, {record + kVectorOffset, vector_bytes_});
    }
  }

  void DecodeVector(const std::byte* record, std::span<float> values) const {
    DecodeRow(spec_.element_type, {record + kVectorOffset, vector_bytes_}, values);
  }

  // Between a record and row i of a block.
  void Load(const std::byte* record, RowBlock& block, size_t i) const {
    block.timestamps[i] = Timestamp(record);
    DecodeVector(record, {&block.values[i * spec_.dim], spec_.dim});
    if (state_bytes_ == 0) return;
    std::memcpy(&block.state[i * spec_.state_dim()], record + state_offset_, state_bytes_);
  }
  void Store(const RowBlock& block, size_t i, std::byte* record) const {
    std::memcpy(record, &block.timestamps[i], sizeof(int64_t));
    EncodeRow(spec_.element_type, {&block.values[i * spec_.dim], spec_.dim},
              {record + kVectorOffset, vector_bytes_});
    if (state_bytes_ == 0) return;
    std::memcpy(record + state_offset_, &block.state[i * spec_.state_dim()], state_bytes_);
  }

 private:
  static constexpr uint64_t kVectorOffset = sizeof(int64_t);

  const EmbeddingSpec spec_;
  const uint64_t vector_bytes_;
  const uint64_t state_offset_;
  const uint64_t state_bytes_;
  const uint64_t bytes_;
};

// Row latches, striped. A thread holds one at a time, for the copy of one row, and takes nothing else while
// it does: so no two threads can wait for each other.
class RowLatches {
 public:
  Mutex& Of(RowId row) { return (*latches_)[row % kCount]; }

 private:
  static constexpr size_t kCount = 4096;
  std::unique_ptr<std::array<Mutex, kCount>> latches_ = std::make_unique<std::array<Mutex, kCount>>();
};

// kInvalidArgument for ids beyond the table. REQUIRES: ascending and unique.
Status CheckRowIds(const EmbeddingSpec& spec, std::span<const RowId> ids);

}  // namespace quarry
