#include "support/fake_device.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace quarry::testing_util {

using gpu::EventHandle;
using gpu::StreamHandle;

FakeDevice::FakeDevice(const FakeDeviceOptions& options) : options_(options), random_(options.seed) {
  facts_ = {.ordinal = 0,
            .name = "fake device",
            .bus_id = "0000:00:00.0",
            .driver = 13000,
            .capability = 90,
            .multiprocessors = 1,
            .memory_bytes = options.memory_bytes};
  streams_[nullptr];
  thread_ = std::thread([this] { RunAll(); });
}

FakeDevice::~FakeDevice() {
  Drain();
  {
    MutexLock lock(mutex_);
    ending_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

Status FakeDevice::Count(const char* call) {
  const uint64_t number = ++calls_;
  if (options_.fail_at == 0 || number < options_.fail_at ||
      (number > options_.fail_at && !options_.fails_on)) {
    return Status::Ok();
  }
  return MakeStatus(Code::kIoError, "the fake device fails at call {}, {}", number, call);
}

void FakeDevice::Blame(std::string misuse) { misuses_ += std::move(misuse) + "\n"; }

bool FakeDevice::Holds(const Ranges& ranges, const std::byte* begin, uint64_t bytes) {
  auto range = ranges.upper_bound(begin);
  if (range == ranges.begin()) return false;
  --range;
  return begin + bytes <= range->first + range->second;
}

void FakeDevice::BlameUnlessPinned(const std::byte* host, uint64_t bytes, const char* call) {
  if (!Holds(pinned_, host, bytes)) Blame(fmt::format("{} of {} bytes that are not pinned", call, bytes));
}

void FakeDevice::BlameUnlessHeld(const std::byte* device, uint64_t bytes, const char* call) {
  if (!Holds(held_, device, bytes))
    Blame(fmt::format("{} of {} bytes beyond the device's memory", call, bytes));
}

void FakeDevice::BlameIfUsed(const std::byte* begin, uint64_t bytes, const char* call) {
  const auto inside = [&](const std::byte* at) { return at >= begin && at < begin + bytes; };
  bool used = std::ranges::any_of(running_, inside);
  for (const auto& [handle, stream] : streams_) {
    for (const Work& work : stream) used = used || std::ranges::any_of(work.uses, inside);
  }
  if (used) Blame(fmt::format("{} of memory that enqueued work still uses", call));
}

Status FakeDevice::Enqueue(StreamHandle stream, Work work) {
  const auto at = streams_.find(stream.raw);
  if (at == streams_.end()) return Status(Code::kIoError, "the fake device has no such stream");
  at->second.push_back(std::move(work));
  changed_.NotifyAll();
  return Status::Ok();
}

gpu::DeviceCounts FakeDevice::counts() const {
  MutexLock lock(mutex_);
  return counts_;
}

std::string FakeDevice::misuses() const {
  MutexLock lock(mutex_);
  return misuses_;
}

uint64_t FakeDevice::held() const {
  MutexLock lock(mutex_);
  return held_.size() + pinned_.size() + streams_.size() - 1 + events_.size();
}

Result<uint64_t> FakeDevice::FreeBytes() {
  MutexLock lock(mutex_);
  QUARRY_RETURN_IF_ERROR(Count("FreeBytes"));
  return options_.memory_bytes - used_bytes_;
}

Result<std::byte*> FakeDevice::Allocate(uint64_t bytes) {
  MutexLock lock(mutex_);
  QUARRY_RETURN_IF_ERROR(Count("Allocate"));
  if (bytes > options_.memory_bytes - used_bytes_) {
    return MakeStatus(Code::kOutOfBudget, "the fake device has {} bytes free of the {} asked for",
                      options_.memory_bytes - used_bytes_, bytes);
  }
  auto memory = std::make_unique<std::byte[]>(bytes + 256);
  std::memset(memory.get(), 0xa5, bytes + 256);  // whoever reads what nobody wrote sees that
  void* aligned = memory.get();
  size_t space = bytes + 256;
  auto* const begin = static_cast<std::byte*>(std::align(256, bytes, aligned, space));
  memory_[begin] = std::move(memory);
  held_[begin] = bytes;
  used_bytes_ += bytes;
  ++counts_.allocations;
  return begin;
}

Status FakeDevice::Free(std::byte* memory) {
  MutexLock lock(mutex_);
  const auto range = held_.find(memory);
  if (range == held_.end()) {
    Blame("Free of what is not allocated");
    return Status(Code::kIoError, "not allocated");
  }
  BlameIfUsed(memory, range->second, "Free");
  used_bytes_ -= range->second;
  held_.erase(range);
  memory_.erase(memory);
  ++counts_.frees;
  return Status::Ok();
}

Status FakeDevice::Pin(std::span<std::byte> host) {
  MutexLock lock(mutex_);
  QUARRY_RETURN_IF_ERROR(Count("Pin"));
  if (reinterpret_cast<uintptr_t>(host.data()) % 4096 != 0) Blame("Pin of half a page");
  if (Holds(pinned_, host.data(), 1)) Blame("Pin of pinned memory");
  pinned_[host.data()] = host.size();
  return Status::Ok();
}

Status FakeDevice::Unpin(std::byte* host) {
  MutexLock lock(mutex_);
  const auto range = pinned_.find(host);
  if (range == pinned_.end()) {
    Blame("Unpin of what is not pinned");
    return Status(Code::kIoError, "not pinned");
  }
  BlameIfUsed(host, range->second, "Unpin");
  pinned_.erase(range);
  return Status::Ok();
}

Result<std::byte*> FakeDevice::MappedAddress(std::byte* host) {
  MutexLock lock(mutex_);
  QUARRY_RETURN_IF_ERROR(Count("MappedAddress"));
  BlameUnlessPinned(host, 1, "MappedAddress");
  return host;
}

Result<StreamHandle> FakeDevice::MakeStream() {
  MutexLock lock(mutex_);
  QUARRY_RETURN_IF_ERROR(Count("MakeStream"));
  void* const handle = reinterpret_cast<void*>(next_handle_++);  // NOLINT(performance-no-int-to-ptr)
  streams_[handle];
  return StreamHandle{handle};
}

// The work goes on: a driver's stream ends when it is through.
Status FakeDevice::DestroyStream(StreamHandle stream) {
  MutexLock lock(mutex_);
  const auto at = streams_.find(stream.raw);
  if (at == streams_.end() || stream.raw == nullptr) {
    Blame("DestroyStream of no stream");
    return Status(Code::kIoError, "no such stream");
  }
  while (!at->second.empty()) changed_.Wait(mutex_);
  streams_.erase(at);
  return Status::Ok();
}

Result<EventHandle> FakeDevice::MakeEvent(bool /*timed*/) {
  MutexLock lock(mutex_);
  QUARRY_RETURN_IF_ERROR(Count("MakeEvent"));
  void* const handle = reinterpret_cast<void*>(next_handle_++);  // NOLINT(performance-no-int-to-ptr)
  events_[handle] = nullptr;
  if (++events_made_ == options_.forgets_event) forgotten_ = handle;
  return EventHandle{handle};
}

Status FakeDevice::DestroyEvent(EventHandle event) {
  MutexLock lock(mutex_);
  if (events_.erase(event.raw) == 1) return Status::Ok();
  Blame("DestroyEvent of no event");
  return Status(Code::kIoError, "no such event");
}

Status FakeDevice::Record(EventHandle event, StreamHandle stream) {
  MutexLock lock(mutex_);
  QUARRY_RETURN_IF_ERROR(Count("Record"));
  if (!events_.contains(event.raw)) return Status(Code::kIoError, "no such event");
  const auto moment = std::make_shared<Moment>();
  QUARRY_RETURN_IF_ERROR(Enqueue(stream, {.run = {}, .waits_for = {}, .records = moment, .uses = {}}));
  events_[event.raw] = moment;
  return Status::Ok();
}

Status FakeDevice::Wait(StreamHandle stream, EventHandle event) {
  MutexLock lock(mutex_);
  QUARRY_RETURN_IF_ERROR(Count("Wait"));
  if (!events_.contains(event.raw)) return Status(Code::kIoError, "no such event");
  if (forgotten_ != nullptr && event.raw == forgotten_) return Status::Ok();
  return Enqueue(stream, {.run = {}, .waits_for = events_[event.raw], .records = {}, .uses = {}});
}

Result<bool> FakeDevice::HasHappened(EventHandle event) {
  MutexLock lock(mutex_);
  QUARRY_RETURN_IF_ERROR(Count("HasHappened"));
  const auto at = events_.find(event.raw);
  if (at == events_.end()) return Status(Code::kIoError, "no such event");
  return at->second == nullptr || at->second->happened;
}

Status FakeDevice::CallHost(StreamHandle stream, void (*call)(void*), void* context) {
  MutexLock lock(mutex_);
  QUARRY_RETURN_IF_ERROR(Count("CallHost"));
  return Enqueue(stream, {.run = [call, context] { call(context); },
                          .waits_for = {},
                          .records = {},
                          .uses = {},
                          .calls_host = true});
}

void FakeDevice::WaitFor(const std::shared_ptr<Moment>& moment) {
  MutexLock lock(mutex_);
  while (moment != nullptr && !moment->happened) changed_.Wait(mutex_);
}

// Fails behind the wait: nothing of a device that is lost is under way.
Status FakeDevice::Synchronize(EventHandle event) {
  std::shared_ptr<Moment> moment;
  Status status;
  {
    MutexLock lock(mutex_);
    status = Count("Synchronize");
    ++counts_.host_waits;
    const auto at = events_.find(event.raw);
    if (at == events_.end()) return Status(Code::kIoError, "no such event");
    moment = at->second;
  }
  WaitFor(moment);
  return status;
}

Status FakeDevice::Synchronize(StreamHandle stream) {
  const auto moment = std::make_shared<Moment>();
  Status status;
  {
    MutexLock lock(mutex_);
    status = Count("Synchronize");
    ++counts_.host_waits;
    QUARRY_RETURN_IF_ERROR(Enqueue(stream, {.run = {}, .waits_for = {}, .records = moment, .uses = {}}));
  }
  WaitFor(moment);
  return status;
}

Result<double> FakeDevice::SecondsBetween(EventHandle from, EventHandle to) {
  MutexLock lock(mutex_);
  QUARRY_RETURN_IF_ERROR(Count("SecondsBetween"));
  const auto at = [&](EventHandle event) -> Result<uint64_t> {
    const auto found = events_.find(event.raw);
    if (found == events_.end() || found->second == nullptr || !found->second->happened) {
      return Status(Code::kIoError, "the event has not happened");
    }
    return found->second->at;
  };
  QUARRY_TRY(const uint64_t begin, at(from));
  QUARRY_TRY(const uint64_t end, at(to));
  return static_cast<double>(end - begin) * 1e-6;
}

Status FakeDevice::CopyIn(std::byte* device, const std::byte* host, uint64_t bytes, StreamHandle stream) {
  MutexLock lock(mutex_);
  QUARRY_RETURN_IF_ERROR(Count("CopyIn"));
  BlameUnlessPinned(host, bytes, "CopyIn");
  BlameUnlessHeld(device, bytes, "CopyIn");
  ++counts_.copies;
  counts_.copied_bytes += bytes;
  return Enqueue(stream, {.run = [=] { std::memcpy(device, host, bytes); },
                          .waits_for = {},
                          .records = {},
                          .uses = {device, host}});
}

Status FakeDevice::CopyOut(std::byte* host, const std::byte* device, uint64_t bytes, StreamHandle stream) {
  MutexLock lock(mutex_);
  QUARRY_RETURN_IF_ERROR(Count("CopyOut"));
  BlameUnlessPinned(host, bytes, "CopyOut");
  BlameUnlessHeld(device, bytes, "CopyOut");
  ++counts_.copies;
  counts_.copied_bytes += bytes;
  return Enqueue(stream, {.run = [=] { std::memcpy(host, device, bytes); },
                          .waits_for = {},
                          .records = {},
                          .uses = {device, host}});
}

Status FakeDevice::CopyWithin(std::byte* to, const std::byte* from, uint64_t bytes, StreamHandle stream) {
  MutexLock lock(mutex_);
  QUARRY_RETURN_IF_ERROR(Count("CopyWithin"));
  BlameUnlessHeld(to, bytes, "CopyWithin");
  BlameUnlessHeld(from, bytes, "CopyWithin");
  ++counts_.copies;
  counts_.copied_bytes += bytes;
  return Enqueue(
      stream,
      {.run = [=] { std::memmove(to, from, bytes); }, .waits_for = {}, .records = {}, .uses = {to, from}});
}

Status FakeDevice::Fill(std::byte* device, uint8_t value, uint64_t bytes, StreamHandle stream) {
  MutexLock lock(mutex_);
  QUARRY_RETURN_IF_ERROR(Count("Fill"));
  BlameUnlessHeld(device, bytes, "Fill");
  return Enqueue(
      stream,
      {.run = [=] { std::memset(device, value, bytes); }, .waits_for = {}, .records = {}, .uses = {device}});
}

Status FakeDevice::Launch(const gpu::Kernel& kernel, const void* body, size_t body_bytes, uint64_t count,
                          StreamHandle stream) {
  MutexLock lock(mutex_);
  QUARRY_RETURN_IF_ERROR(Count(kernel.name));
  ++counts_.launches;
  // The struct is copied to a place for any type, and what in it may be an address counts as one.
  const auto copy =
      std::make_shared<std::vector<std::max_align_t>>(body_bytes / sizeof(std::max_align_t) + 1);
  std::memcpy(copy->data(), body, body_bytes);
  std::vector<const std::byte*> uses;
  for (size_t at = 0; at + sizeof(void*) <= body_bytes; at += sizeof(void*)) {
    const std::byte* address = nullptr;
    std::memcpy(&address, static_cast<const std::byte*>(body) + at, sizeof(address));
    if (Holds(held_, address, 1) || Holds(pinned_, address, 1)) uses.push_back(address);
  }
  const auto run = [kernel, copy, count] { kernel.run(copy->data(), 0, count); };
  return Enqueue(stream, {.run = run, .waits_for = {}, .records = {}, .uses = std::move(uses)});
}

// The head of a stream that may run now; null: none.
std::deque<FakeDevice::Work>* FakeDevice::Choose() {
  std::vector<std::pair<void*, std::deque<Work>*>> able;
  for (auto& [handle, stream] : streams_) {
    if (stream.empty()) continue;
    const std::shared_ptr<Moment>& before = stream.front().waits_for;
    if (before == nullptr || before->happened) able.emplace_back(handle, &stream);
  }
  if (able.empty()) return nullptr;
  if (starved_for_ == 0 && random_() % 4 == 0) {
    starved_ = able[random_() % able.size()].first;
    starved_for_ = static_cast<uint32_t>(random_() % 64);
  }
  if (starved_for_ > 0) --starved_for_;
  const auto& [handle, stream] = able[random_() % able.size()];
  if (handle != starved_ || starved_for_ == 0 || able.size() == 1) return stream;
  return able[(handle == able[0].first) ? 1 : 0].second;
}

void FakeDevice::RunAll() {
  MutexLock lock(mutex_);
  while (true) {
    // Callers get ahead, so that work is late.
    for (uint64_t rounds = random_() % 8; rounds > 0; --rounds) {
      mutex_.Unlock();
      std::this_thread::yield();
      mutex_.Lock();
    }
    std::deque<Work>* const stream = Choose();
    if (stream == nullptr) {
      if (ending_) return;
      changed_.Wait(mutex_);
      continue;
    }
    const Work work = std::move(stream->front());
    running_ = work.uses;
    busy_ = true;
    mutex_.Unlock();
    const bool lost = options_.fails_on && calls_ >= options_.fail_at;
    if (work.run && !(lost && work.calls_host)) work.run();
    mutex_.Lock();
    busy_ = false;
    running_.clear();
    stream->pop_front();  // last: a stream that has work is not destroyed
    ++steps_;
    if (work.records != nullptr) {
      work.records->at = steps_;
      work.records->happened = true;
    }
    changed_.NotifyAll();
  }
}

void FakeDevice::Drain() {
  MutexLock lock(mutex_);
  const auto idle = [this] {
    mutex_.AssertHeld();
    return !busy_ && std::ranges::all_of(streams_, [](const auto& stream) { return stream.second.empty(); });
  };
  while (!idle()) changed_.Wait(mutex_);
}

}  // namespace quarry::testing_util
