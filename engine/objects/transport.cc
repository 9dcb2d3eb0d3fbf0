#include "transport.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ctime>
#include <string_view>
#include <utility>

#include "escape.h"
#include "quarry/base/log.h"
#include "quarry/base/text.h"

namespace quarry {
namespace {

constexpr size_t kHandleBytes = 512 << 10;  // libcurl's buffers of a transfer, both ways, and its state
constexpr long kBufferBytes = 128 << 10;
constexpr size_t kShownBytes = 300;  // of an answer that is not understood

// What a server says went wrong: "503 SlowDown: Please reduce your request rate."
std::string DescribeAnswer(long status, const std::string& body) {
  const std::string code = XmlText(body, "Code").value_or("");
  const std::string message = XmlText(body, "Message").value_or("");
  if (code.empty() && message.empty()) {
    return body.empty()
               ? std::to_string(status)
               : fmt::format("{}: {}", status, Printable(std::string_view(body).substr(0, kShownBytes)));
  }
  std::string text = fmt::format("{} {}: {}", status, Printable(code), Printable(message));
  if (const auto region = XmlText(body, "Region")) {
    text += fmt::format(" (the bucket is in region {}: set AWS_REGION)", Printable(*region));
  }
  return text;
}

}  // namespace

// A request and its current attempt.
struct Transport::Attempt {
  HttpRequest request;
  unsigned number = 0;  // of attempts begun
  CURL* handle = nullptr;
  curl_slist* headers = nullptr;
  Clock::time_point begun, deadline;
  bool filled = false;  // the window, when it began
  uint64_t received = 0;
  std::string text, etag;
  bool overflow = false;
  double first_byte = 0, seconds = 0;

  static size_t OnBody(char* data, size_t size, size_t count, void* self) {
    auto& attempt = *static_cast<Attempt*>(self);
    const size_t bytes = size * count;
    if (!attempt.request.into.empty() && attempt.is_range) {
      if (bytes > attempt.request.into.size() - attempt.received) {
        attempt.overflow = true;
        return 0;
      }
      std::memcpy(attempt.request.into.data() + attempt.received, data, bytes);
    } else {
      if (bytes > attempt.request.text_bytes_max -
                      std::min<uint64_t>(attempt.request.text_bytes_max, attempt.text.size())) {
        attempt.overflow = true;
        return 0;
      }
      attempt.text.append(data, bytes);
    }
    attempt.received += bytes;
    return bytes;
  }

  static size_t OnHeader(char* data, size_t size, size_t count, void* self) {
    auto& attempt = *static_cast<Attempt*>(self);
    std::string_view line(data, size * count);
    if (line.starts_with("HTTP/")) {
      const size_t blank = line.find(' ');
      // A server that does not know ranges sends all of the object, with 200: that is no answer to the request.
      attempt.is_range = blank != std::string_view::npos && line.substr(blank + 1).starts_with("206");
    }
    constexpr std::string_view kEtag = "etag:";
    const bool is_etag = line.size() > kEtag.size() &&
                         std::equal(kEtag.begin(), kEtag.end(), line.begin(), [](char a, char b) {
                           return a == (b >= 'A' && b <= 'Z' ? b + ('a' - 'A') : b);
                         });
    if (is_etag) {
      line.remove_prefix(kEtag.size());
      const size_t first = line.find_first_not_of(' ');
      const size_t last = line.find_last_not_of(" \r\n");
      if (first != std::string_view::npos) attempt.etag = line.substr(first, last - first + 1);
    }
    return size * count;
  }

  bool is_range = false;
};

double Transport::Seconds(Clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

Transport::Transport(const CurlLibrary& curl, const ObjectAccess& access, const ObjectStoreOptions& options)
    : curl_(curl),
      access_(access),
      options_(options),
      signature_("aws:amz:" + access.region + ":s3"),
      window_({.requests_max = options.in_flight_max,
               .first_seconds = options.first_deadline_seconds,
               .deadline_min_seconds = options.deadline_min_seconds,
               .deadline_max_seconds = options.deadline_max_seconds}),
      rng_(options.seed) {}

Result<std::unique_ptr<Transport>> Transport::Make(const ObjectAccess& access, MemoryBudget& budget,
                                                   const ObjectStoreOptions& options) {
  QUARRY_TRY(const CurlLibrary* const curl, LoadCurl());
  std::unique_ptr<Transport> transport(new Transport(*curl, access, options));
  QUARRY_TRY(transport->reservation_,
             budget.Reserve(options.in_flight_max * kHandleBytes, "buffers of requests to an object store"));
  transport->multi_ = curl->curl_multi_init();
  if (transport->multi_ == nullptr) return Status(Code::kOutOfBudget, "libcurl found no memory to start");
  curl->multi_setopt(transport->multi_, CURLMOPT_MAXCONNECTS, static_cast<long>(options.in_flight_max));
  Transport* const self = transport.get();
  QUARRY_TRY(transport->thread_,
             Thread::Start(
                 "objects", [self] { self->Run(); }, [self](const Status& why) { self->FailAll(why); }));
  return transport;
}

Transport::~Transport() {
  {
    MutexLock lock(mutex_);
    ending_ = cancelled_ = true;
  }
  if (multi_ != nullptr) curl_.curl_multi_wakeup(multi_);
  thread_.Join();
  for (CURL* const handle : idle_) curl_.curl_easy_cleanup(handle);
  if (multi_ != nullptr) curl_.curl_multi_cleanup(multi_);
}

void Transport::Start(HttpRequest request) {
  {
    MutexLock lock(mutex_);
    if (!ended_) {
      new_.push_back(std::move(request));
      curl_.curl_multi_wakeup(multi_);
      return;
    }
  }
  request.done(Status(Code::kInternal, "the thread of the object store has ended"));
}

Result<ObjectAnswer> Transport::Perform(HttpRequest request) {
  Mutex mutex;
  CondVar changed;
  std::optional<Result<ObjectAnswer>> answer;
  request.done = [&](Result<ObjectAnswer> given) {
    MutexLock lock(mutex);
    answer.emplace(std::move(given));
    changed.NotifyAll();
  };
  Start(std::move(request));
  MutexLock lock(mutex);
  while (!answer) changed.Wait(mutex);
  return *std::move(answer);
}

void Transport::Cancel() {
  {
    MutexLock lock(mutex_);
    cancelled_ = true;
  }
  curl_.curl_multi_wakeup(multi_);
}

ObjectStatistics Transport::statistics() const {
  MutexLock lock(mutex_);
  return statistics_;
}

void Transport::Run() {
  while (true) {
    bool cancelled = false, ending = false;
    {
      MutexLock lock(mutex_);
      cancelled = cancelled_;
      ending = ending_;
      statistics_.in_flight = window_.size();
    }
    TakeNew();
    if (cancelled) FailAll(Status(Code::kCancelled, "requests to the object store were cancelled"));
    if (ending) return;
    const auto now = Clock::now();
    while (!paused_.empty() && paused_.begin()->first <= now) {
      ready_.push_back(std::move(paused_.begin()->second));
      paused_.erase(paused_.begin());
    }
    while (!ready_.empty() && in_flight_.size() < window_.size()) {
      std::unique_ptr<Attempt> attempt = std::move(ready_.front());
      ready_.pop_front();
      Begin(std::move(attempt));
    }
    // Answers come many at a time: whether the caller had as many as the window takes shows once all are begun.
    const bool full = in_flight_.size() >= window_.size();
    for (Attempt* const attempt : begun_) attempt->filled = full;
    begun_.clear();
    int running = 0;
    curl_.curl_multi_perform(multi_, &running);
    int left = 0;
    bool any = false;
    while (const CURLMsg* const message = curl_.curl_multi_info_read(multi_, &left)) {
      if (message->msg == CURLMSG_DONE) Finish(message->easy_handle, message->data.result);
      any = true;
    }
    ReplaceLate();
    if (any) continue;  // places became free
    curl_.curl_multi_poll(multi_, nullptr, 0, PollMilliseconds(), nullptr);
  }
}

void Transport::TakeNew() {
  MutexLock lock(mutex_);
  for (HttpRequest& request : new_) {
    auto attempt = std::make_unique<Attempt>();
    attempt->request = std::move(request);
    ready_.push_back(std::move(attempt));
  }
  new_.clear();
}

int Transport::PollMilliseconds() const {
  auto next = Clock::now() + std::chrono::seconds(10);
  for (const auto& [handle, attempt] : in_flight_) next = std::min(next, attempt->deadline);
  if (!paused_.empty()) next = std::min(next, paused_.begin()->first);
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(next - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left + 1, 0, 10'000));
}

void Transport::Begin(std::unique_ptr<Attempt> attempt) {
  CURL* handle = nullptr;
  if (idle_.empty()) {
    handle = curl_.curl_easy_init();
  } else {
    handle = idle_.back();
    idle_.pop_back();
  }
  if (handle == nullptr) {
    RetryOrFail(std::move(attempt), Status(Code::kOutOfBudget, "libcurl found no memory for a request"),
                false);
    return;
  }
  attempt->handle = handle;
  RenewKeys();
  Arm(*attempt);
  {
    MutexLock lock(mutex_);
    ++statistics_.requests;
    if (attempt->number > 1) ++statistics_.retries;
  }
  begun_.push_back(attempt.get());
  in_flight_.emplace(handle, std::move(attempt));
  curl_.curl_multi_add_handle(multi_, handle);
}

// Some time before they expire. Requests wait meanwhile, a second or so; where no others are to be had, the old ones stay,
// and the store says when they are worth nothing.
void Transport::RenewKeys() {
  constexpr int64_t kBeforeSeconds = 300;
  if (access_.expires == 0 || !access_.renew || std::time(nullptr) + kBeforeSeconds < access_.expires) return;
  const auto now = Clock::now();
  if (now < next_renewal_) return;
  next_renewal_ = now + std::chrono::seconds(30);
  const Result<ObjectAccess> next = access_.renew();
  if (!next.ok()) {
    LogWarn("keys for the object store: {}", next.status().message());
    return;
  }
  access_.key_id = next->key_id;
  access_.secret = next->secret;
  access_.token = next->token;
  access_.expires = next->expires;
}

void Transport::Arm(Attempt& attempt) {
  HttpRequest& request = attempt.request;
  const std::string_view operation = request.operation;
  attempt.received = 0;
  attempt.text.clear();
  attempt.etag.clear();
  attempt.overflow = attempt.is_range = false;
  attempt.begun = Clock::now();
  const double seconds = window_.DeadlineSeconds(request.body.size() + request.into.size(), attempt.number);
  attempt.deadline =
      attempt.begun + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  ++attempt.number;
  const auto set = [&](CURLoption option, auto value) { curl_.easy_setopt(attempt.handle, option, value); };
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_AWS_SIGV4, signature_.c_str());
  set(CURLOPT_USERPWD, (access_.key_id + ":" + access_.secret).c_str());
  set(CURLOPT_USERAGENT, "quarry");
  set(CURLOPT_BUFFERSIZE, kBufferBytes);
  set(CURLOPT_TCP_KEEPALIVE, 1L);
  // Bodies above a mebibyte are announced (Expect: 100-continue), which cannot be switched off: libcurl 7.88 signs the
  // header that would do so, and does not send it. So it does not wait for the answer.
  set(CURLOPT_EXPECT_100_TIMEOUT_MS, 1L);
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(1000 * seconds) + 1);
  if (!access_.ca_bundle.empty()) set(CURLOPT_CAINFO, access_.ca_bundle.c_str());
  set(CURLOPT_WRITEFUNCTION, &Attempt::OnBody);
  set(CURLOPT_WRITEDATA, &attempt);
  set(CURLOPT_HEADERFUNCTION, &Attempt::OnHeader);
  set(CURLOPT_HEADERDATA, &attempt);
  curl_slist* headers = nullptr;
  const auto add = [&](const std::string& line) { headers = curl_.curl_slist_append(headers, line.c_str()); };
  for (const std::string& line : request.headers) add(line);
  // S3 demands it, and libcurl 7.88 sends none. A signed digest of the body would be another reading of it, and of
  // SHA-256; TLS has its own.
  add("x-amz-content-sha256: UNSIGNED-PAYLOAD");
  if (!access_.token.empty()) add("x-amz-security-token: " + access_.token);
  if (operation == "HEAD") {
    set(CURLOPT_NOBODY, 1L);
  } else if (operation == "DELETE") {
    set(CURLOPT_CUSTOMREQUEST, "DELETE");
  } else if (operation != "GET") {
    // As the fields of a form, which libcurl reads where they lie.
    set(CURLOPT_POST, 1L);
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    set(CURLOPT_POSTFIELDS, request.body.empty() ? "" : reinterpret_cast<const char*>(request.body.data()));
    set(CURLOPT_CUSTOMREQUEST, request.operation);
    add("Content-Type: application/octet-stream");
  }
  if (!request.into.empty()) {
    set(CURLOPT_RANGE,
        fmt::format("{}-{}", request.offset, request.offset + request.into.size() - 1).c_str());
  }
  attempt.headers = headers;
  set(CURLOPT_HTTPHEADER, headers);
}

void Transport::Detach(Attempt& attempt) {
  curl_.curl_multi_remove_handle(multi_, attempt.handle);
  curl_.curl_easy_reset(attempt.handle);
  curl_.curl_slist_free_all(std::exchange(attempt.headers, nullptr));
  idle_.push_back(std::exchange(attempt.handle, nullptr));
}

void Transport::ReplaceLate() {
  const auto now = Clock::now();
  std::vector<CURL*> late;
  for (const auto& [handle, attempt] : in_flight_) {
    if (attempt->deadline <= now) late.push_back(handle);
  }
  for (CURL* const handle : late) {
    std::unique_ptr<Attempt> attempt = std::move(in_flight_.extract(handle).mapped());
    Detach(*attempt);  // which closes its connection
    {
      MutexLock lock(mutex_);
      ++statistics_.replaced;
    }
    const double waited = Seconds(now) - Seconds(attempt->begun);
    Status status = Fault(*attempt, Code::kIoError, fmt::format("no whole answer within {:.1f} s", waited));
    RetryOrFail(std::move(attempt), std::move(status), /*final=*/false);
  }
}

Status Transport::Fault(const Attempt& attempt, Code code, const std::string& answer) const {
  return MakeStatus(code, "{} {}: {}{}", attempt.request.operation, attempt.request.url, answer,
                    attempt.number > 1 ? fmt::format(" (after {} attempts)", attempt.number) : "");
}

// OK: the request was answered. `final`: asking again would not help.
Status Transport::Judge(Attempt& attempt, CURLcode code, bool& final, bool& slow_down) const {
  final = false;
  const HttpRequest& request = attempt.request;
  if (attempt.overflow) {
    final = request.into.empty();
    return Fault(attempt, final ? Code::kOutOfBudget : Code::kIoError,
                 fmt::format("the answer is longer than {} bytes",
                             final ? request.text_bytes_max : request.into.size()));
  }
  if (code != CURLE_OK) {
    final = code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE;
    return Fault(attempt, Code::kIoError, curl_.curl_easy_strerror(code));
  }
  long status = 0;
  curl_.easy_getinfo(attempt.handle, CURLINFO_RESPONSE_CODE, &status);
  const std::string answer = DescribeAnswer(status, attempt.text);
  if (status == 200 || status == 204 || status == 206) {
    if (!request.into.empty()) {
      if (status != 206)
        return Fault(attempt, Code::kIoError, fmt::format("{} instead of the range asked for", status));
      if (attempt.received != request.into.size()) {
        return Fault(attempt, Code::kIoError,
                     fmt::format("{} bytes instead of {}", attempt.received, request.into.size()));
      }
      if (request.check) {
        const Status right = request.check(request.into);
        if (!right.ok()) return Fault(attempt, right.code(), std::string(right.message()));
      }
    }
    if (request.fails && request.fails(attempt.text)) return Fault(attempt, Code::kIoError, answer);
    return Status::Ok();
  }
  const std::string error = XmlText(attempt.text, "Code").value_or("");
  slow_down = status == 503 || status == 429 || error == "SlowDown";
  if (status == 409) return Fault(attempt, Code::kBusy, answer);
  final = status < 500 && status != 408 && status != 429 && error != "RequestTimeout";
  const Code kind = status == 404 ? Code::kNotFound : status == 412 ? Code::kAlreadyExists : Code::kIoError;
  return Fault(attempt, kind, answer);
}

void Transport::Finish(CURL* handle, CURLcode code) {
  const auto found = in_flight_.find(handle);
  if (found == in_flight_.end()) return;
  std::unique_ptr<Attempt> attempt = std::move(found->second);
  in_flight_.erase(found);
  bool final = false, slow_down = false;
  Status status = Judge(*attempt, code, final, slow_down);
  curl_off_t first_byte = 0, bytes = 0;
  curl_.easy_getinfo(handle, CURLINFO_STARTTRANSFER_TIME_T, &first_byte);
  curl_.easy_getinfo(handle, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &bytes);
  const bool head = std::string_view(attempt->request.operation) == "HEAD";
  Detach(*attempt);
  if (slow_down) window_.SlowDown();
  if (!status.ok()) {
    RetryOrFail(std::move(attempt), std::move(status), final);
    return;
  }
  const auto now = Clock::now();
  window_.Answered(Seconds(now), static_cast<double>(first_byte) * 1e-6,
                   Seconds(now) - Seconds(attempt->begun), attempt->received + attempt->request.body.size(),
                   attempt->filled);
  {
    MutexLock lock(mutex_);
    statistics_.bytes_received += attempt->received;
    statistics_.bytes_sent += attempt->request.body.size();
  }
  if (head) attempt->received = static_cast<uint64_t>(std::max<curl_off_t>(bytes, 0));
  Answer(*attempt, Status::Ok());
}

void Transport::Answer(Attempt& attempt, const Status& status) {
  if (!status.ok()) {
    attempt.request.done(status);
    return;
  }
  attempt.request.done(ObjectAnswer{.etag = std::move(attempt.etag),
                                    .bytes = attempt.received,
                                    .attempts = attempt.number,
                                    .body = std::move(attempt.text)});
}

void Transport::RetryOrFail(std::unique_ptr<Attempt> attempt, Status status, bool final) {
  if (final || attempt->number >= options_.attempts_max) {
    Answer(*attempt, status);
    return;
  }
  const double most = std::min(options_.backoff_max_seconds,
                               std::ldexp(options_.backoff_seconds, static_cast<int>(attempt->number) - 1));
  const double pause = most * (0.5 + rng_.Unit() / 2);
  paused_.emplace(
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(pause)),
      std::move(attempt));
}

void Transport::FailAll(const Status& why) {
  std::vector<std::unique_ptr<Attempt>> all;
  for (auto& [handle, attempt] : in_flight_) {
    Detach(*attempt);
    all.push_back(std::move(attempt));
  }
  in_flight_.clear();
  for (auto& [time, attempt] : paused_) all.push_back(std::move(attempt));
  paused_.clear();
  for (auto& attempt : ready_) all.push_back(std::move(attempt));
  ready_.clear();
  {
    MutexLock lock(mutex_);
    ended_ = ending_ || why.code() != Code::kCancelled;
    for (HttpRequest& request : new_) {
      all.push_back(std::make_unique<Attempt>());
      all.back()->request = std::move(request);
    }
    new_.clear();
  }
  for (const auto& attempt : all) Answer(*attempt, why);
}

}  // namespace quarry
