// Prefetcher: one thread that reads pages into claimed frames. Private to this room.
//
// A read that fails is nobody's error: the frame is given up, and who pins the page reads it himself and gets
// the error of that.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "frame_table.h"
#include "quarry/base/mutex.h"
#include "quarry/base/status.h"
#include "quarry/base/thread.h"
#include "quarry/buffer/page_file.h"
#include "quarry/io/ring.h"

namespace quarry {

// Add is thread-safe.
class Prefetcher {
 public:
  static uint64_t Bytes(unsigned depth, uint64_t frame_count);
  static Result<std::unique_ptr<Prefetcher>> Make(IoBackend& backend, const PageFile& file,
                                                  FrameTable& frames, unsigned depth);
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;
  ~Prefetcher();  // waits for what is on the way

  // Frames that FrameTable::ClaimForPrefetch gave.
  void Add(std::span<const uint32_t> frames);
  uint64_t pages_read() const;

 private:
  Prefetcher(IoBackend& backend, const PageFile& file, FrameTable& frames, unsigned depth,
             std::unique_ptr<IoRing> ring);
  void Run();
  bool TakeNew();
  Status Transfer();
  void Finish(uint32_t frame);
  void GiveUp();

  IoBackend& backend_;
  const PageFile& file_;
  FrameTable& frames_;
  const unsigned depth_;

  // The thread owns these.
  std::unique_ptr<IoRing>
      ring_;  // null: there was no new one after an error, and nothing is read ahead any more
  std::vector<uint32_t> new_;
  std::vector<bool> reading_;  // by frame
  size_t reading_count_ = 0;
  std::vector<IoRequest> requests_;
  std::vector<uint64_t> done_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<uint32_t> queue_ QUARRY_GUARDED_BY(mutex_);
  uint64_t pages_read_ QUARRY_GUARDED_BY(mutex_) = 0;
  bool stopping_ QUARRY_GUARDED_BY(mutex_) = false;
  Thread thread_;
};

}  // namespace quarry
