// LiveStream: one pass over the live road (GNNDrive §4.1, Fig. 4).
//
//   frames -> samplers -> [sampled_] -> extractors -> [ready_] -> Next -> consumer -> [released_] -> releaser
//   ^-------------------------------------------------------------------------------------------------'
//
// A *frame* is what one batch needs beside its rows (block, slots, labels). A fixed number of frames
// circulates, so all queues are bounded by it and never block a push: a sampler takes a frame, then the next
// number, hence the lowest unfinished number always has a frame, and progress.
//
// In order: batches are admitted to the feature buffer in the order of their numbers (an extractor pops and
// acquires under one latch), so the batch that the consumer waits for never waits for slots that later ones
// hold.
//
// To a device, a batch takes its frame there as it is admitted, its rows go there as they arrive, and "ready" means that
// all of it is enqueued (live_device.h).
//
// The first error of any stage is kept, everything else is cancelled, and Next returns it. Releasing 670
// thousand rows takes 12 ms (bench_feature_buffer), so a thread of its own does it and not the consumer.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "extractor.h"
#include "held_frame.h"
#include "live_device.h"
#include "quarry/base/bounded_queue.h"
#include "quarry/base/mutex.h"
#include "quarry/base/thread.h"
#include "quarry/cache/feature_buffer.h"
#include "quarry/pipeline/batch_stream.h"
#include "quarry/sampling/sampler.h"
#include "sequenced_queue.h"

namespace quarry {

// What a pass works with; owned by the road, which outlives it. One pass at a time.
struct LiveResources {
  const RowSources* rows = nullptr;
  FeatureBuffer* buffer = nullptr;
  LiveDevice* device = nullptr;  // that has the buffer's rows; null: they are in memory
  std::span<const std::unique_ptr<NeighborSampler>> samplers;
  std::span<const std::unique_ptr<Extractor>> extractors;
  std::span<const int64_t> labels;  // by node; empty = none
  uint32_t batch_size = 0;
  uint32_t frame_count = 0;
  uint64_t batch_nodes_max = 0;  // what a frame is sized for at first
  uint64_t batch_edges_max = 0;
  bool takes_all = false;          // neighbors, of a hop: a batch of more edges than these is refused
  const RoadSpec* spec = nullptr;  // of draws, and whether frames have edge ids
  LoadStats filled;                // reads that brought rows in for this pass before it began
  uint64_t filled_rows = 0;        // so many
  uint64_t device_bytes = 0;       // that the device had been sent before these
};

class LiveStream final : public BatchStream {
 public:
  // `seeds` in the order of use. `on_end` is called by the destructor, after the threads have ended;
  // not `whole`: one of them found no memory, and the road's parts are not fit for another pass.
  LiveStream(const LiveResources& resources, PassOptions options, std::function<void(bool whole)> on_end);
  // Starts the threads: as many of each stage as the system has, since one of them does the work of all.
  // kOutOfBudget where a stage has none; the stream can then only be destroyed.
  Status Start();
  ~LiveStream() override;

  uint64_t batch_count() const override { return batch_count_; }
  Result<std::unique_ptr<Batch>> Next() override;
  StreamStats stats() const override;

 private:
  // What one extractor is at.
  struct Extraction {
    std::vector<uint32_t> misses, waits;
    DeviceFrames::Taken to_device;
  };

  void RunSampler(NeighborSampler& sampler);
  Status WhyTooLarge(const Status& status, uint64_t number) const;
  void RunExtractor(Extractor& extractor);
  void RunReleaser();
  Status Admit(Frame& frame, Extraction& extraction);
  Status Load(Extractor& extractor, Frame& frame, Extraction& extraction);
  Status LoadRows(Extractor& extractor, const Frame& frame, Extraction& extraction);
  void Fail(const Status& status) QUARRY_EXCLUDES(mutex_);
  void Break(const Status& why);
  void Cancel();

  const LiveResources resources_;
  const PassOptions options_;
  const uint64_t batch_count_;
  const std::function<void(bool)> on_end_;
  const FeatureBufferStats buffer_stats_at_start_;

  BoundedQueue<std::unique_ptr<Frame>> frames_;
  BoundedQueue<std::unique_ptr<Frame>> released_;  // never cancelled: pins must be dropped
  FrameOwner owner_;                               // frames that are given back still pin their rows
  struct Numbered {
    uint64_t number = 0;
    std::unique_ptr<Frame> frame;
  };
  SequencedQueue<Numbered> sampled_;
  SequencedQueue<std::unique_ptr<HeldFrame>> ready_;
  std::atomic<uint64_t> next_number_{0};
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> broken_{false};
  Mutex admission_;  // held while popping from sampled_ and acquiring: see "In order" above

  mutable Mutex mutex_;
  Status error_ QUARRY_GUARDED_BY(mutex_);
  StreamStats stats_ QUARRY_GUARDED_BY(mutex_);

  std::vector<Thread> workers_;
  Thread releaser_;
};

}  // namespace quarry
