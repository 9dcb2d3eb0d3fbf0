// FakeDevice: a gpu::Device over this process's memory, for tests of whoever enqueues work.
//
// A thread of its own runs what was enqueued, late: at every step it takes the head of any stream whose turn it may be, by
// a seeded choice that lets streams starve each other for a while. So copies read host memory long after the call, and
// streams overtake each other wherever no event forbids it. What gives the right results under many seeds is ordered by
// events. Kernels run on the processor.
//
// It keeps count of what a real device only punishes: memory freed or unpinned while enqueued work still points to it,
// copies of memory that is not pinned (misuses()), waits of the host (counts()), and what was not given back (held()).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "quarry/base/mutex.h"
#include "quarry/gpu/device.h"

namespace quarry::testing_util {

struct FakeDeviceOptions {
  uint64_t seed = 1;
  uint64_t memory_bytes = uint64_t{1} << 30;
  uint64_t fail_at = 0;   // the call that fails, from 1; 0: none. Giving back never does
  bool fails_on = false;  // every later one too: the device is lost, and calls nobody any more
  // Waits for the event that was made as this one, from 1, are left out: whatever relies on them has to fail. For tests of
  // tests. 0: none.
  uint64_t forgets_event = 0;
};

class FakeDevice final : public gpu::Device {
 public:
  explicit FakeDevice(const FakeDeviceOptions& options = {});
  // Runs what is still enqueued.
  ~FakeDevice() override;

  const gpu::DeviceFacts& facts() const override { return facts_; }
  gpu::DeviceCounts counts() const override;
  Result<uint64_t> FreeBytes() override;
  Result<std::byte*> Allocate(uint64_t bytes) override;
  Status Free(std::byte* memory) override;
  Status Pin(std::span<std::byte> host) override;
  Status Unpin(std::byte* host) override;
  Result<std::byte*> MappedAddress(std::byte* host) override;
  Result<gpu::StreamHandle> MakeStream() override;
  Status DestroyStream(gpu::StreamHandle stream) override;
  Result<gpu::EventHandle> MakeEvent(bool timed) override;
  Status DestroyEvent(gpu::EventHandle event) override;
  Status Record(gpu::EventHandle event, gpu::StreamHandle stream) override;
  Status Wait(gpu::StreamHandle stream, gpu::EventHandle event) override;
  Result<bool> HasHappened(gpu::EventHandle event) override;
  Status CallHost(gpu::StreamHandle stream, void (*call)(void*), void* context) override;
  Status Synchronize(gpu::EventHandle event) override;
  Status Synchronize(gpu::StreamHandle stream) override;
  Result<double> SecondsBetween(gpu::EventHandle from, gpu::EventHandle to) override;
  Status CopyIn(std::byte* device, const std::byte* host, uint64_t bytes, gpu::StreamHandle stream) override;
  Status CopyOut(std::byte* host, const std::byte* device, uint64_t bytes, gpu::StreamHandle stream) override;
  Status CopyWithin(std::byte* to, const std::byte* from, uint64_t bytes, gpu::StreamHandle stream) override;
  Status Fill(std::byte* device, uint8_t value, uint64_t bytes, gpu::StreamHandle stream) override;
  Status Launch(const gpu::Kernel& kernel, const void* body, size_t body_bytes, uint64_t count,
                gpu::StreamHandle stream) override;

  // Calls that may fail, so far: what fail_at counts.
  uint64_t calls() const { return calls_; }
  // The same in words, one a line; empty: nothing was done that a real device punishes.
  std::string misuses() const;
  // Allocations, pinned ranges, streams and events that were not given back.
  uint64_t held() const;
  // Until nothing is enqueued; no host wait of the code under test.
  void Drain();

 private:
  struct Moment {  // a Record; `at` is set once it has happened
    bool happened = false;
    uint64_t at = 0;
  };
  struct Work {
    std::function<void()> run;           // null: only order
    std::shared_ptr<Moment> waits_for;   // null: nothing
    std::shared_ptr<Moment> records;     // null: nothing
    std::vector<const std::byte*> uses;  // addresses in memory that must stay
    bool calls_host = false;
  };
  using Ranges = std::map<const std::byte*, uint64_t>;

  Status Count(const char* call) QUARRY_REQUIRES(mutex_);
  Status Enqueue(gpu::StreamHandle stream, Work work) QUARRY_REQUIRES(mutex_);
  void Blame(std::string misuse) QUARRY_REQUIRES(mutex_);
  void BlameUnlessPinned(const std::byte* host, uint64_t bytes, const char* call) QUARRY_REQUIRES(mutex_);
  void BlameUnlessHeld(const std::byte* device, uint64_t bytes, const char* call) QUARRY_REQUIRES(mutex_);
  void BlameIfUsed(const std::byte* begin, uint64_t bytes, const char* call) QUARRY_REQUIRES(mutex_);
  static bool Holds(const Ranges& ranges, const std::byte* begin, uint64_t bytes);
  void WaitFor(const std::shared_ptr<Moment>& moment);
  std::deque<Work>* Choose() QUARRY_REQUIRES(mutex_);
  void RunAll();

  const FakeDeviceOptions options_;
  gpu::DeviceFacts facts_;
  std::atomic<uint64_t> calls_{0};

  mutable Mutex mutex_;
  CondVar changed_;
  std::mt19937_64 random_ QUARRY_GUARDED_BY(mutex_);
  std::map<void*, std::deque<Work>> streams_ QUARRY_GUARDED_BY(mutex_);
  std::map<void*, std::shared_ptr<Moment>> events_ QUARRY_GUARDED_BY(mutex_);  // by its last Record
  void* forgotten_ QUARRY_GUARDED_BY(mutex_) = nullptr;
  std::map<void*, std::unique_ptr<std::byte[]>> memory_ QUARRY_GUARDED_BY(mutex_);
  Ranges held_ QUARRY_GUARDED_BY(mutex_), pinned_ QUARRY_GUARDED_BY(mutex_);
  std::vector<const std::byte*> running_ QUARRY_GUARDED_BY(mutex_);  // what the work that runs uses
  gpu::DeviceCounts counts_ QUARRY_GUARDED_BY(mutex_);
  std::string misuses_ QUARRY_GUARDED_BY(mutex_);
  uint64_t used_bytes_ QUARRY_GUARDED_BY(mutex_) = 0, next_handle_ QUARRY_GUARDED_BY(mutex_) = 1,
                       events_made_ QUARRY_GUARDED_BY(mutex_) = 0, steps_ QUARRY_GUARDED_BY(mutex_) = 0;
  void* starved_ QUARRY_GUARDED_BY(mutex_) = nullptr;
  uint32_t starved_for_ QUARRY_GUARDED_BY(mutex_) = 0;
  bool busy_ QUARRY_GUARDED_BY(mutex_) = false, ending_ QUARRY_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace quarry::testing_util
