#include "quarry/base/trace.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <iterator>
#include <memory>
#include <vector>

#include "quarry/base/json.h"
#include "quarry/base/mutex.h"

namespace quarry {
namespace {

constexpr size_t kSystemNameBytes = 15;
constexpr size_t kWriteBytes = 64 << 10;

struct Span {
  const char* name;
  uint64_t number;
  uint64_t start_ns, end_ns;
};

// A line of the trace: the spans of one thread at a time.
struct Track {
  Track(uint32_t track_id, std::string track_name) : id(track_id), name(std::move(track_name)) {}
  const uint32_t id;
  const std::string name;
  bool taken = true;  // by a thread that lives; the recorder's mutex guards it
  Mutex mutex;
  std::deque<Span> spans QUARRY_GUARDED_BY(mutex);
};

class Recorder {
 public:
  void Start(uint64_t spans_max) {
    MutexLock lock(mutex_);
    std::erase_if(tracks_, [](const auto& track) { return !track->taken; });
    for (const auto& track : tracks_) {
      MutexLock track_lock(track->mutex);
      track->spans.clear();
    }
    spans_max_ = spans_max;
    spans_ = 0;
    start_ns_ = trace_internal::Now();
    trace_internal::recording = true;
  }

  Track& Take(const std::string& name) {
    MutexLock lock(mutex_);
    for (const auto& track : tracks_) {
      if (track->taken || track->name != name) continue;
      track->taken = true;
      return *track;
    }
    tracks_.push_back(std::make_unique<Track>(++last_id_, name));
    return *tracks_.back();
  }
  void GiveBack(Track& track) {
    MutexLock lock(mutex_);
    track.taken = false;
  }

  void Add(Track& track, const Span& span) {
    if (span.start_ns < start_ns_) return;  // begun in a trace before this one
    if (spans_.fetch_add(1, std::memory_order_relaxed) >= spans_max_) return;
    MutexLock lock(track.mutex);
    track.spans.push_back(span);
  }

  Result<TraceReport> Write(int fd, std::string_view path);

 private:
  Mutex mutex_;
  std::vector<std::unique_ptr<Track>> tracks_ QUARRY_GUARDED_BY(mutex_);
  uint32_t last_id_ QUARRY_GUARDED_BY(mutex_) = 0;
  std::atomic<uint64_t> start_ns_{0};
  std::atomic<uint64_t> spans_max_{0};
  std::atomic<uint64_t> spans_{0};  // what was dropped included
};

// Function-local so that no static constructor runs before main.
Recorder& TheRecorder() {
  static Recorder recorder;
  return recorder;
}

std::string SystemName() {
  char name[kSystemNameBytes + 1] = "";
  pthread_getname_np(pthread_self(), name, sizeof(name));
  return name;
}

// The calling thread's track, from its first span to its end.
class OwnTrack {
 public:
  ~OwnTrack() { Leave(); }
  Track& Get() {
    if (track_ == nullptr) track_ = &TheRecorder().Take(name_.empty() ? SystemName() : name_);
    return *track_;
  }
  void Rename(std::string_view name) {
    Leave();
    name_ = name;
  }

 private:
  void Leave() {
    if (track_ != nullptr) TheRecorder().GiveBack(*track_);
    track_ = nullptr;
  }
  std::string name_;
  Track* track_ = nullptr;
};

thread_local OwnTrack own_track;

// Text to a file, in pieces.
class TextFile {
 public:
  TextFile(int fd, std::string_view path) : fd_(fd), path_(path) {}
  template <typename... Args>
  Status Append(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    return text_.size() < kWriteBytes ? Status::Ok() : Flush();
  }
  Status Flush() {
    for (std::string_view left = text_; !left.empty();) {
      const ssize_t written = write(fd_, left.data(), left.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return ErrnoStatus(errno, "write", path_);
      left.remove_prefix(static_cast<size_t>(written));
    }
    text_.clear();
    return Status::Ok();
  }

 private:
  const int fd_;
  const std::string_view path_;
  std::string text_;
};

Status WriteTrack(TextFile& file, Track& track, pid_t pid, uint64_t start_ns, uint64_t& spans) {
  QUARRY_RETURN_IF_ERROR(
      file.Append(",\n{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{},\"tid\":{},"
                  "\"args\":{{\"name\":{}}}}}",
                  pid, track.id, JsonString(track.name)));
  MutexLock lock(track.mutex);
  spans += track.spans.size();
  for (const Span& span : track.spans) {
    const auto microseconds = [](uint64_t ns) { return static_cast<double>(ns) / 1e3; };
    QUARRY_RETURN_IF_ERROR(
        file.Append(",\n{{\"ph\":\"X\",\"name\":{},\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f}",
                    JsonString(span.name), pid, track.id, microseconds(span.start_ns - start_ns),
                    microseconds(span.end_ns - span.start_ns)));
    if (span.number != ScopedSpan::kNoNumber) {
      QUARRY_RETURN_IF_ERROR(file.Append(",\"args\":{{\"number\":{}}}", span.number));
    }
    QUARRY_RETURN_IF_ERROR(file.Append("}}"));
  }
  return Status::Ok();
}

Result<TraceReport> Recorder::Write(int fd, std::string_view path) {
  const uint64_t spans = spans_, spans_max = spans_max_;
  TraceReport report{.dropped = spans > spans_max ? spans - spans_max : 0};
  TextFile file(fd, path);
  const pid_t pid = getpid();
  QUARRY_RETURN_IF_ERROR(
      file.Append("{{\"displayTimeUnit\":\"ms\",\"otherData\":{{\"dropped_spans\":{}}},\"traceEvents\":[\n"
                  "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{},\"args\":{{\"name\":\"quarry\"}}}}",
                  report.dropped, pid));
  MutexLock lock(mutex_);
  for (const auto& track : tracks_) {
    QUARRY_RETURN_IF_ERROR(WriteTrack(file, *track, pid, start_ns_, report.spans));
  }
  report.threads = static_cast<uint32_t>(tracks_.size());
  QUARRY_RETURN_IF_ERROR(file.Append("\n]}}\n"));
  QUARRY_RETURN_IF_ERROR(file.Flush());
  return report;
}

}  // namespace

void NameThread(std::string_view name) {
  pthread_setname_np(pthread_self(), std::string(name.substr(0, kSystemNameBytes)).c_str());
  own_track.Rename(name);
}

void StartTrace(uint64_t spans_max) { TheRecorder().Start(spans_max); }

void StopTrace() { trace_internal::recording = false; }

Result<TraceReport> WriteTrace(int fd, std::string_view path) { return TheRecorder().Write(fd, path); }

namespace trace_internal {

std::atomic<bool> recording{false};

uint64_t Now() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

void Record(const char* name, uint64_t number, uint64_t start_ns) {
  if (!recording.load(std::memory_order_relaxed)) return;
  TheRecorder().Add(own_track.Get(), {name, number, start_ns, Now()});
}

}  // namespace trace_internal
}  // namespace quarry
