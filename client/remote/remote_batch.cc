#include "remote_batch.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace quarry::client {
namespace {

class RemoteBatch final : public Batch {
 public:
  RemoteBatch(Brought brought, const wire::BatchView& view, std::shared_ptr<BlockMemory> memory,
              std::shared_ptr<const void> held)
      : brought_(std::move(brought)), held_(std::move(held)), memory_(std::move(memory)), view_(view) {}
  ~RemoteBatch() override { memory_->Return(std::move(copies_)); }

  uint64_t index() const override { return view_.shape.index; }
  const wire::BatchView& view() const override { return view_; }

  void CopyBlock() {
    const size_t words =
        view_.hop_offsets.size() + view_.indptr.size() + view_.indices.size() + view_.slots.size();
    copies_ = memory_->Take(words);
    uint32_t* at = copies_.words.get();
    for (std::span<const uint32_t>* array :
         {&view_.hop_offsets, &view_.indptr, &view_.indices, &view_.slots}) {
      if (!array->empty()) std::memcpy(at, array->data(), array->size_bytes());
      *array = {at, array->size()};
      at += array->size();
    }
  }

 private:
  const Brought brought_;
  const std::shared_ptr<const void> held_;
  const std::shared_ptr<BlockMemory> memory_;
  BlockMemory::Piece copies_;
  wire::BatchView view_;
};

// Bytes out of a message lie anywhere.
bool IsAligned(std::span<const std::byte> bytes) {
  return reinterpret_cast<uintptr_t>(bytes.data()) % wire::kBatchAlignment == 0;
}

}  // namespace

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
  const Result<wire::BatchView> view = wire::OpenBatch(brought.bytes, brought.outside);
  if (!view.ok()) return strange(view.status());
  if (view->shape.index != index) {
    return MakeStatus(Code::kCorruption, "{}: the server gave batch {} as batch {}", path, view->shape.index,
                      index);
  }
  auto batch = std::make_unique<RemoteBatch>(std::move(brought), *view, memory, std::move(held));
  batch->CopyBlock();
  const Status block = wire::CheckBatch(batch->view());
  if (!block.ok()) return strange(block);
  return std::unique_ptr<Batch>(std::move(batch));
}

}  // namespace quarry::client
