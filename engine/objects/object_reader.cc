#include "object_reader.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "quarry/base/exhaustion.h"
#include "quarry/base/units.h"

namespace quarry {
namespace {

constexpr unsigned kReaderThreads = 4;
constexpr size_t kFrontsMax = 8;  // of a file
// Pieces after which a block that nobody read to its end, or a front, is no longer waited for, for each buffer.
constexpr uint64_t kPiecesOfPatience = 4;

}  // namespace

struct ObjectReader::Transfer {
  Done done;
  size_t left = 0;  // pieces
  Status status;    // the first error
};

// What a read wants of one block.
struct ObjectReader::Piece {
  std::shared_ptr<Transfer> transfer;
  Key key;
  uint64_t from = 0;  // in the block
  std::span<std::byte> out;
};

struct ObjectReader::Block {
  enum State : uint8_t { kFree, kLoading, kReady };
  State state = kFree;
  bool ahead = false;     // nobody asked for it yet
  bool finished = false;  // it was read to its end
  unsigned pins = 0;      // its bytes are being used
  uint64_t used = 0;      // the clock, then
  Key key;
  std::vector<Piece> waiters;
  IoBuffer buffer;
};

// Where a file is being read front to back.
struct ObjectReader::Front {
  size_t block = 0;  // the last one that was asked for
  size_t ahead = 0;  // the first that was not asked for ahead of it
  uint64_t used = 0;
  bool moves = false;  // it went from one block to the next
};

struct ObjectReader::Task {
  enum Kind : uint8_t { kLoad, kArrived, kCopy };
  Kind kind;
  Block* block;
  Status status = {};
  std::optional<Piece> piece = {};
};

ObjectReader::ObjectReader(ObjectStore& store, BlockCache* cache, std::vector<RemoteFile> files)
    : store_(store), cache_(cache), files_(std::move(files)) {}

Result<std::unique_ptr<ObjectReader>> ObjectReader::Make(ObjectStore& store, BlockCache* cache,
                                                         MemoryBudget& budget, std::vector<RemoteFile> files,
                                                         unsigned blocks_max) {
  std::unique_ptr<ObjectReader> reader(new ObjectReader(store, cache, std::move(files)));
  const uint64_t mapped = IoBuffer::MappedBytes(kRemoteBlockBytes);
  const uint64_t room = budget.available_bytes() / mapped;
  const auto count = static_cast<unsigned>(std::clamp<uint64_t>(room, kThinBlocksMin, blocks_max));
  QUARRY_TRY(reader->reservation_, budget.Reserve(count * mapped, "blocks of an object store"));
  for (unsigned i = 0; i < count; i++) {
    auto block = std::make_unique<Block>();
    QUARRY_TRY(block->buffer, IoBuffer::Allocate(kRemoteBlockBytes));
    reader->blocks_.push_back(std::move(block));
  }
  ObjectReader* const self = reader.get();
  QUARRY_RETURN_IF_ERROR(StartThreads(
      "object reader", kReaderThreads, [self](unsigned) { self->Run(); },
      [self](const Status& why) { self->Break(why); }, reader->threads_));
  return reader;
}

ObjectReader::~ObjectReader() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
    changed_.NotifyAll();
  }
  store_.Cancel();
  {
    MutexLock lock(mutex_);
    while (getting_ > 0) changed_.Wait(mutex_);
  }
  threads_.clear();
}

void ObjectReader::Start(size_t file, uint64_t offset, std::span<std::byte> out, Done done) {
  const RemoteFile& remote = files_[file];
  if (offset > remote.bytes || out.size() > remote.bytes - offset) {
    return done(MakeStatus(Code::kCorruption, "{}: ends at offset {}, but {} bytes are expected at offset {}",
                           remote.name, remote.bytes, out.size(), offset));
  }
  if (out.empty()) return done(Status::Ok());
  std::vector<Piece> pieces;
  auto transfer = std::make_shared<Transfer>(Transfer{.done = std::move(done)});
  while (!out.empty()) {
    const uint64_t from = offset % kRemoteBlockBytes;
    const uint64_t bytes = std::min<uint64_t>(out.size(), kRemoteBlockBytes - from);
    pieces.push_back({transfer, {file, offset / kRemoteBlockBytes}, from, out.first(bytes)});
    offset += bytes;
    out = out.subspan(bytes);
  }
  transfer->left = pieces.size();
  Status broken;
  {
    MutexLock lock(mutex_);
    broken = broken_;
    for (Piece& piece : pieces) {
      if (!broken.ok()) break;
      const Key key = piece.key;
      ++clock_;
      statistics_.bytes_used += piece.out.size();
      waiting_.push_back(std::move(piece));
      Settle();
      ReadAhead(key);
    }
  }
  if (!broken.ok()) transfer->done(broken);
}

Status ObjectReader::Read(size_t file, uint64_t offset, std::span<std::byte> out) {
  struct Answer {
    Mutex mutex;
    CondVar changed;
    std::optional<Status> status QUARRY_GUARDED_BY(mutex);
  };
  const auto answer = std::make_shared<Answer>();
  Start(file, offset, out, [answer](const Status& status) {
    MutexLock lock(answer->mutex);
    answer->status = status;
    answer->changed.NotifyAll();
  });
  MutexLock lock(answer->mutex);
  while (!answer->status) answer->changed.Wait(answer->mutex);
  return *answer->status;
}

// Gives pieces that wait, in order, to blocks: those that are there, or buffers that are to be had.
void ObjectReader::Settle() {
  while (!waiting_.empty()) {
    Piece& piece = waiting_.front();
    auto found = there_.find(piece.key);
    if (found == there_.end()) {
      if (!BeginLoading(piece.key, /*ahead=*/false)) return;
      found = there_.find(piece.key);
    }
    Block& block = *found->second;
    block.used = clock_;
    if (std::exchange(block.ahead, false)) {
      --ahead_;
      ++statistics_.blocks_ahead;
    }
    const uint64_t end = piece.from + piece.out.size();
    block.finished = block.finished || end == files_[piece.key.first].BlockBytes(piece.key.second);
    if (block.state == Block::kLoading) {
      block.waiters.push_back(std::move(piece));
    } else {
      ++block.pins;
      Push({.kind = Task::kCopy, .block = &block, .piece = std::move(piece)});
    }
    waiting_.pop_front();
  }
}

bool ObjectReader::BeginLoading(Key key, bool ahead) {
  Block* const block = TakeBuffer(ahead);
  if (block == nullptr) return false;
  block->state = Block::kLoading;
  block->key = key;
  block->ahead = ahead;
  block->finished = false;
  block->used = clock_;
  ahead_ += ahead ? 1 : 0;
  there_[key] = block;
  Push({.kind = Task::kLoad, .block = block});
  return true;
}

// What is least likely to be read again: a free buffer, the block that was read to its end longest ago, then (for a read
// that waits, or after a while) the one that was used longest ago, then the one that was loaded ahead last.
ObjectReader::Block* ObjectReader::TakeBuffer(bool ahead) {
  Block* best = nullptr;
  int best_class = 4;
  for (const std::unique_ptr<Block>& block : blocks_) {
    if (block->state == Block::kLoading || block->pins > 0) continue;
    const bool stale = block->used + kPiecesOfPatience * blocks_.size() < clock_;
    int of_class = block->state == Block::kFree ? 0 : block->finished ? 1 : block->ahead ? 3 : 2;
    if (ahead && of_class >= 2 && !stale) continue;
    const bool sooner = best != nullptr && of_class == best_class &&
                        (of_class == 3 ? block->used > best->used : block->used < best->used);
    if (best == nullptr || of_class < best_class || sooner) {
      best = block.get();
      best_class = of_class;
    }
  }
  if (best == nullptr) return nullptr;
  if (best->state == Block::kReady) {
    if (std::exchange(best->ahead, false)) --ahead_;
    there_.erase(best->key);
    best->state = Block::kFree;
  }
  return best;
}

void ObjectReader::ReadAhead(Key key) {
  const auto [file, block] = key;
  const uint64_t now = clock_, patience = kPiecesOfPatience * blocks_.size();
  std::vector<Front>& fronts = fronts_[file];
  auto front = std::ranges::find_if(
      fronts, [block = block](const Front& at) { return at.block == block || at.block + 1 == block; });
  if (front == fronts.end()) {
    if (fronts.size() == kFrontsMax) fronts.erase(std::ranges::min_element(fronts, {}, &Front::used));
    fronts.push_back({.block = block, .ahead = block + 1, .used = clock_});
    return;
  }
  front->moves = front->moves || front->block + 1 == block;
  front->block = block;
  front->used = clock_;
  front->ahead = std::max(front->ahead, block + 1);
  if (!front->moves) return;
  size_t moving = 0;
  for (const auto& [other, others] : fronts_) {
    moving += static_cast<size_t>(std::ranges::count_if(
        others, [&](const Front& at) { return at.moves && at.used + patience >= now; }));
  }
  // A quarter is left to reads of other places.
  const size_t limit = blocks_.size() * 3 / 4;
  const size_t end = std::min(files_[file].blocks.size(), block + 1 + std::max<size_t>(1, limit / moving));
  for (; front->ahead < end && ahead_ < limit; ++front->ahead) {
    const Key next = {file, front->ahead};
    if (!there_.contains(next) && !BeginLoading(next, /*ahead=*/true)) return;
  }
}

void ObjectReader::Push(Task task) {
  tasks_.push_back(std::move(task));
  changed_.NotifyAll();
}

void ObjectReader::Run() {
  while (true) {
    std::optional<Task> task;
    {
      MutexLock lock(mutex_);
      while (tasks_.empty() && !ending_) changed_.Wait(mutex_);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    switch (task->kind) {
      case Task::kLoad:
        Load(*task->block);
        break;
      case Task::kArrived:
        Arrive(*task->block, task->status, /*from_store=*/true);
        break;
      case Task::kCopy:
        std::vector<Piece> pieces;
        pieces.push_back(*std::move(task->piece));
        Serve(*task->block, pieces, Status::Ok());
        break;
    }
  }
}

// Its key is constant while it loads.
void ObjectReader::Load(Block& block) {
  const RemoteFile& file = files_[block.key.first];
  const size_t number = block.key.second;
  const uint64_t bytes = file.BlockBytes(number);
  bool found = false;
  if (cache_ != nullptr) {
    static_cast<void>(CatchExhaustion("looking for a block", [&] {
      found = cache_->Get(file.blocks[number], bytes, block.buffer.span());
      return Status::Ok();
    }));
  }
  if (found) return Arrive(block, Status::Ok(), /*from_store=*/false);
  bool ends = false;
  {
    MutexLock lock(mutex_);
    ends = ending_;
    if (!ends) ++getting_;
  }
  if (ends) return Arrive(block, Status(Code::kCancelled, "the object store is being closed"), true);
  store_.StartGet(
      {.key = file.Key(),
       .offset = number * kRemoteBlockBytes,
       .into = block.buffer.span().first(bytes),
       .check = [&file, number](std::span<const std::byte> got) { return file.Check(number, got); }},
      [this, &block](const Result<ObjectAnswer>& answer) {
        MutexLock lock(mutex_);
        --getting_;
        Push({.kind = Task::kArrived, .block = &block, .status = answer.status()});
      });
}

void ObjectReader::Arrive(Block& block, const Status& status, bool from_store) {
  const RemoteFile& file = files_[block.key.first];
  const size_t number = block.key.second;
  const uint64_t bytes = file.BlockBytes(number);
  std::vector<Piece> pieces;
  {
    MutexLock lock(mutex_);
    pieces.swap(block.waiters);
    block.pins += 2;  // for those who waited, and for the cache
    if (status.ok()) {
      block.state = Block::kReady;
      ++(from_store ? statistics_.blocks_from_store : statistics_.blocks_from_cache);
      statistics_.bytes_from_store += from_store ? bytes : 0;
    } else {
      if (std::exchange(block.ahead, false)) --ahead_;
      there_.erase(block.key);
      block.state = Block::kFree;
    }
  }
  Serve(block, pieces, status);
  if (status.ok() && from_store && cache_ != nullptr) {
    static_cast<void>(CatchExhaustion("keeping a block", [&] {
      cache_->Put(file.blocks[number], bytes, block.buffer.span());
      return Status::Ok();
    }));
  }
  MutexLock lock(mutex_);
  --block.pins;
  Settle();
}

// Copies what pieces want of a block that is theirs by a pin, and ends those reads that have all of theirs.
void ObjectReader::Serve(Block& block, std::span<Piece> pieces, const Status& status) {
  for (const Piece& piece : pieces) {
    if (status.ok()) std::memcpy(piece.out.data(), block.buffer.data() + piece.from, piece.out.size());
  }
  {
    MutexLock lock(mutex_);
    for (Piece& piece : pieces) {
      Transfer& transfer = *piece.transfer;
      if (transfer.status.ok()) transfer.status = status;
      if (--transfer.left > 0) piece.transfer.reset();
    }
    --block.pins;
    Settle();
  }
  for (const Piece& piece : pieces) {
    if (piece.transfer != nullptr) piece.transfer->done(piece.transfer->status);
  }
}

// A thread found no memory for what it was at: reads that wait, and those to come, end with that.
void ObjectReader::Break(const Status& why) {
  std::vector<std::shared_ptr<Transfer>> ended;
  {
    MutexLock lock(mutex_);
    if (broken_.ok()) broken_ = why;
    const auto end = [&](const Piece& piece) {
      if (piece.transfer != nullptr && std::exchange(piece.transfer->left, 0) > 0)
        ended.push_back(piece.transfer);
    };
    for (const Piece& piece : waiting_) end(piece);
    waiting_.clear();
    for (const std::unique_ptr<Block>& block : blocks_) {
      for (const Piece& piece : block->waiters) end(piece);
      block->waiters.clear();
    }
  }
  for (const std::shared_ptr<Transfer>& transfer : ended) transfer->done(why);
}

ObjectReadStatistics ObjectReader::statistics() const {
  MutexLock lock(mutex_);
  return statistics_;
}

}  // namespace quarry
