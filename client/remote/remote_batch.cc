#include "remote_batch.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace quarry::client {
namespace {

// What a batch needs: the server's memory, and the copies of its block.
class BatchHold {
 public:
  BatchHold(Brought brought, std::shared_ptr<BlockMemory> memory, std::shared_ptr<const void> held)
      : brought_(std::move(brought)), held_(std::move(held)), memory_(std::move(memory)) {}
  ~BatchHold() { memory_->Return(std::move(copies_)); }
  BatchHold(const BatchHold&) = delete;
  BatchHold& operator=(const BatchHold&) = delete;

  // The view, its block in memory that is ours alone.
  BatchView CopyBlock(BatchView view) {
    const auto for_each = [&view](auto&& visit) {
      visit(view.hop_offsets);
      visit(view.indptr);
      visit(view.indices);
      visit(view.features.slots);
      visit(view.relations);
      visit(view.type_rows);
    };
    size_t words = 0;
    for_each([&words](const auto& array) { words += WordsOf(array.size_bytes()); });
    copies_ = memory_->Take(words);
    uint32_t* at = copies_.words.get();
    for_each([&at]<typename T>(std::span<const T>& array) {
      static_assert(alignof(T) <= alignof(uint32_t));
      if (!array.empty()) std::memcpy(at, array.data(), array.size_bytes());
      array = {reinterpret_cast<const T*>(at), array.size()};
      at += WordsOf(array.size_bytes());
    });
    return view;
  }

 private:
  static size_t WordsOf(size_t bytes) { return (bytes + sizeof(uint32_t) - 1) / sizeof(uint32_t); }

  const Brought brought_;
  const std::shared_ptr<const void> held_;
  const std::shared_ptr<BlockMemory> memory_;
  BlockMemory::Piece copies_;
};

// Bytes out of a message lie anywhere.
bool IsAligned(std::span<const std::byte> bytes) {
  return reinterpret_cast<uintptr_t>(bytes.data()) % wire::kBatchAlignment == 0;
}

}  // namespace

Status CheckDrawnBy(const BatchView& view, bool edge_ids, size_t relations, const std::string& path) {
  const auto lacks = [&view](const auto& array) { return array.size() != view.indices.size(); };
  if (edge_ids && lacks(view.edge_ids)) {
    return MakeStatus(Code::kUnsupported,
                      "{}: the server's batches have no edge ids: it is of an earlier Quarry", path);
  }
  if (relations == 0) return Status();
  if (lacks(view.relations)) {
    return MakeStatus(Code::kCorruption, "{}: the server gave batch {} without types of its edges", path,
                      view.index);
  }
  const auto beyond = std::ranges::find_if(view.relations, [=](uint16_t r) { return r >= relations; });
  if (beyond == view.relations.end()) return Status();
  return MakeStatus(Code::kCorruption, "{}: the server gave batch {} with an edge of type {}, of {} types",
                    path, view.index, *beyond, relations);
}

BlockMemory::Piece BlockMemory::Take(size_t words) {
  {
    MutexLock lock(mutex_);
    for (Piece& piece : pieces_) {
      if (piece.capacity < words) continue;
      Piece taken = std::move(piece);
      std::swap(piece, pieces_.back());
      pieces_.pop_back();
      return taken;
    }
  }
  const size_t capacity = words + words / 8;
  return {.words = std::make_unique_for_overwrite<uint32_t[]>(capacity), .capacity = capacity};
}

void BlockMemory::Return(Piece piece) {
  if (piece.words == nullptr) return;
  MutexLock lock(mutex_);
  if (pieces_.size() < kPiecesMax) {
    pieces_.push_back(std::move(piece));
    return;
  }
  Piece& smallest = *std::ranges::min_element(pieces_, {}, &Piece::capacity);
  if (smallest.capacity < piece.capacity) smallest = std::move(piece);
}

Result<std::unique_ptr<Batch>> OpenRemoteBatch(Brought brought, uint64_t index, const std::string& path,
                                               const std::shared_ptr<BlockMemory>& memory,
                                               std::shared_ptr<const void> held) {
  const auto strange = [&path](const Status& status) {
    return MakeStatus(status.code(), "{}: the server gave no batch: {}", path, status.message());
  };
  if (!IsAligned(brought.bytes)) {
    QUARRY_TRY(brought, CopyOf(brought, path));
  }
  const Result<BatchView> shared = wire::OpenBatch(brought.bytes, brought.outside);
  if (!shared.ok()) return strange(shared.status());
  if (shared->index != index) {
    return MakeStatus(Code::kCorruption, "{}: the server gave batch {} as batch {}", path, shared->index,
                      index);
  }
  auto hold = std::make_unique<BatchHold>(std::move(brought), memory, std::move(held));
  const BatchView view = hold->CopyBlock(*shared);
  const Status block = wire::CheckBatch(view);
  if (!block.ok()) return strange(block);
  return std::make_unique<Batch>(view, std::move(hold));
}

}  // namespace quarry::client
