// Two embedding tables of a database, trained and checkpointed together, whose rows are functions of (seed,
// row, timestamp): what they must hold after any crash is known without any record of what happened.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/embedding/embedding_store.h"
#include "quarry/embedding/verify_embeddings.h"
#include "quarry/io/backend.h"
#include "quarry/verify/verify.h"
#include "storage/small_store.h"
#include "support/status_matchers.h"

namespace quarry::testing_util {

// A database of nothing but its catalog.
inline Status CreateEmptyDatabase(IoBackend& backend, const std::string& path) {
  QUARRY_RETURN_IF_ERROR(CreateStoreDirectory(backend, path));
  Manifest manifest;
  manifest.database_id.fill(std::byte{9});
  QUARRY_TRY(const auto catalog, Catalog::Create(path));
  QUARRY_RETURN_IF_ERROR(catalog->CommitManifest(manifest));
  return catalog->Close();
}

// The least that a pool over the table can have: sixteen frames.
inline BufferPoolOptions FewFrames(const Store& store, std::string_view table) {
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  const EmbeddingRecord& record = *manifest->FindEmbedding(table);
  const auto backend = MakeThreadBackend(1);
  const auto file = PageFile::Open(*backend,
                                   {.path = store.path() + "/" + record.file,
                                    .database_id = manifest->database_id,
                                    .generation = record.generation,
                                    .page_bytes = record.page_bytes,
                                    .page_count = record.page_count},
                                   {});
  EXPECT_OK(file);
  return {.memory_bytes = BufferPool::BytesMin(**file)};
}

inline RowBlock AllRowsOf(const EmbeddingSpec& spec) {
  RowBlock block;
  block.ids.resize(spec.row_count);
  std::iota(block.ids.begin(), block.ids.end(), RowId{0});
  block.Resize(spec);
  return block;
}

inline std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    files.push_back(entry.path().filename());
  std::ranges::sort(files);
  return files;
}

inline std::vector<Status> FaultsOf(Store& store) {
  auto report = VerifyStore(store, {});
  EXPECT_OK(report);
  const Status status = VerifyEmbeddings(store, {}, *report);
  EXPECT_OK(status);
  return report->faults;
}

class TrainedTables {
 public:
  static constexpr size_t kTables = 2;
  static constexpr std::array<std::string_view, kTables> kNames = {"nodes", "relations"};
  // By table: which rows were written, and when last.
  using LastWrites = std::array<std::map<RowId, int64_t>, kTables>;

  explicit TrainedTables(uint64_t seed) : seed_(seed) {
    specs_[0] = {.row_count = 200, .dim = 100, .seed = seed};
    specs_[1] = {.row_count = 40,
                 .dim = 170,
                 .element_type = ElementType::kBfloat16,
                 .optimizer = OptimizerKind::kAdam,
                 .init = InitKind::kNormal,
                 .seed = seed + 1};
  }

  const EmbeddingSpec& spec(size_t i) const { return specs_[i]; }

  Status Create(Store& store) const {
    for (size_t i = 0; i < kTables; ++i) {
      QUARRY_RETURN_IF_ERROR(CreateEmbeddings(store, kNames[i], specs_[i], 4096));
    }
    return Status::Ok();
  }

  // With as few frames as can be: pages leave all the time.
  Status Open(Store& store) {
    std::array<BufferPoolOptions, kTables> options;
    for (size_t i = 0; i < kTables; ++i) options[i] = FewFrames(store, kNames[i]);
    return Open(store, options);
  }
  Status Open(Store& store, const std::array<BufferPoolOptions, kTables>& options) {
    for (size_t i = 0; i < kTables; ++i) {
      QUARRY_TRY(tables_[i], StoredEmbeddings::Open(store, budget_, kNames[i], options[i]));
    }
    return Status::Ok();
  }
  void Close() {
    for (auto& table : tables_) table.reset();
  }
  StoredEmbeddings& operator[](size_t i) { return *tables_[i]; }

  // Writes some rows of both, as of this timestamp.
  Status Train(int64_t timestamp) {
    for (size_t i = 0; i < kTables; ++i) {
      RowBlock block{.ids = RowsOf(i, timestamp)};
      block.Resize(specs_[i]);
      for (size_t k = 0; k < block.ids.size(); ++k) Fill(i, timestamp, block, k);
      QUARRY_RETURN_IF_ERROR(tables_[i]->table().Write(block));
    }
    return Status::Ok();
  }
  void Note(int64_t timestamp, LastWrites& writes) const {
    for (size_t i = 0; i < kTables; ++i) {
      for (const RowId row : RowsOf(i, timestamp)) writes[i][row] = timestamp;
    }
  }
  // The last writes of training with every timestamp from 0 to this one.
  LastWrites WritesUpTo(int64_t last) const {
    LastWrites writes;
    for (int64_t timestamp = 0; timestamp <= last; ++timestamp) Note(timestamp, writes);
    return writes;
  }

  // Checkpoints both tables, and a field of the manifest, as one; with `also`, the commit is refused with it.
  Status Checkpoint(Store& store, int64_t timestamp, const Status& also = {},
                    KeptMap kept = KeptMap::kAsBefore) {
    const std::array<StoredEmbeddings*, kTables> tables = {tables_[0].get(), tables_[1].get()};
    const auto change = [&](Manifest& manifest) {
      manifest.source = std::to_string(timestamp);
      return also;
    };
    return CheckpointAll(store, tables, timestamp, change, kept);
  }
  // Returns to the checkpoint of this timestamp, which is kept. REQUIRES: they are closed.
  static Status ReturnTo(Store& store, int64_t timestamp) {
    const std::array<std::string, kTables> names = {std::string(kNames[0]), std::string(kNames[1])};
    return ReturnToKept(store, names, [&](Manifest& manifest) {
      manifest.source = std::to_string(timestamp);
      return Status::Ok();
    });
  }

  // Both tables are as a checkpoint left them.
  void ExpectState(const Store& store, int64_t timestamp, const LastWrites& writes) {
    if (timestamp != kNeverWritten) {
      EXPECT_EQ(store.manifest()->source, std::to_string(timestamp));
    }
    for (size_t i = 0; i < kTables; ++i) {
      SCOPED_TRACE(kNames[i]);
      ASSERT_NE(tables_[i], nullptr) << "is not open";
      ASSERT_EQ(tables_[i]->timestamp(), timestamp);
      ExpectRows(i, writes[i]);
    }
  }
  void ExpectRows(size_t i, const std::map<RowId, int64_t>& writes) {
    const RowBlock expected = Expected(i, writes);
    RowBlock found{.ids = expected.ids};
    const Status status = tables_[i]->table().Read(found);
    ASSERT_OK(status);
    ASSERT_EQ(found.timestamps, expected.timestamps);
    ASSERT_TRUE(found.values == expected.values && found.state == expected.state);
  }

 private:
  std::vector<RowId> RowsOf(size_t i, int64_t timestamp) const {
    Rng rng(MixSeed(seed_, i, timestamp));
    std::vector<RowId> rows(1 + rng.Below(8));
    for (RowId& row : rows) row = rng.Below(specs_[i].row_count);
    std::ranges::sort(rows);
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    return rows;
  }

  // Row k of the block, as it is written at this timestamp.
  void Fill(size_t i, int64_t timestamp, RowBlock& block, size_t k) const {
    const EmbeddingSpec& spec = specs_[i];
    Rng rng(MixSeed(seed_, i, block.ids[k], timestamp));
    const std::span<float> values(&block.values[k * spec.dim], spec.dim);
    for (float& value : values) value = static_cast<float>(rng.Unit());
    RoundToStored(spec.element_type, values);
    for (uint32_t c = 0; c < spec.state_dim(); ++c) {
      block.state[k * spec.state_dim() + c] = static_cast<float>(rng.Unit());
    }
    block.timestamps[k] = timestamp;
  }

  RowBlock Expected(size_t i, const std::map<RowId, int64_t>& writes) const {
    RowBlock block = AllRowsOf(specs_[i]);
    std::ranges::fill(block.timestamps, kNeverWritten);
    for (const RowId row : block.ids) {
      if (const auto write = writes.find(row); write != writes.end()) {
        Fill(i, write->second, block, row);
      } else {
        InitRow(specs_[i], row, {&block.values[row * specs_[i].dim], specs_[i].dim});
      }
    }
    return block;
  }

  const uint64_t seed_;
  std::array<EmbeddingSpec, kTables> specs_;
  MemoryBudget budget_{256 * kMiB};
  std::array<std::unique_ptr<StoredEmbeddings>, kTables> tables_;
};

}  // namespace quarry::testing_util
