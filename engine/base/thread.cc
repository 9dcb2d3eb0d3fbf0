#include "quarry/base/thread.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <new>
#include <string>
#include <system_error>

#include "quarry/base/exhaustion.h"
#include "quarry/base/trace.h"

namespace quarry {
namespace {

std::atomic<uint64_t> starts_left{0};  // until one fails, that one included; 0: none does
std::atomic<uint64_t> failures_left{0};
std::atomic<uint64_t> failed{0};

bool FailsForTest() {
  if (starts_left.load(std::memory_order_relaxed) == 0) return false;
  uint64_t left = starts_left.load();
  while (left > 1 && !starts_left.compare_exchange_weak(left, left - 1)) {
  }
  if (left != 1) return false;
  uint64_t failures = failures_left.load();
  while (failures > 0 && !failures_left.compare_exchange_weak(failures, failures - 1)) {
  }
  if (failures == 0) return false;
  ++failed;
  return true;
}

Status NoThread(std::string_view name, const std::string& why) {
  return MakeStatus(
      Code::kOutOfBudget,
      "cannot start a thread ({}): {}: raise the limit of processes (ulimit -u, the cgroup's pids.max) "
      "or of memory, or ask for fewer threads",
      name, why);
}

// A name is an ornament.
void TryToName(std::string_view name) {
  try {
    NameThread(name);
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace

Result<Thread> Thread::Start(std::string_view name, Body body, OnFailure on_failure) {
  if (FailsForTest()) return NoThread(name, "a test has it fail");
  try {
    // The status is made here: there, memory may be what is missing.
    return Thread(std::thread([name = std::string(name), exhausted = OutOfMemory(name),
                               body = std::move(body), on_failure = std::move(on_failure)] {
      Status why;
      TryToName(name);
      try {
        return body();
      } catch (const std::bad_alloc&) {
        why = exhausted;
      } catch (const std::exception& error) {
        why = Unexpected(name, error);
      }
      Insist([&] { on_failure(why); });
    }));
  } catch (const std::system_error& error) {
    return NoThread(name, error.code().message());
  } catch (const std::bad_alloc&) {
    return OutOfMemory(name);
  }
}

Status StartThreads(std::string_view name, unsigned count, const std::function<void(unsigned)>& body,
                    const Thread::OnFailure& on_failure, std::vector<Thread>& threads) {
  for (unsigned i = 0; i < count; ++i) {
    const Status status = CatchExhaustion(name, [&]() -> Status {
      threads.reserve(threads.size() + count - i);
      QUARRY_TRY(Thread thread, Thread::Start(
                                    name, [body, i] { body(i); }, on_failure));
      threads.push_back(std::move(thread));
      return Status::Ok();
    });
    if (!status.ok()) return i > 0 ? Status::Ok() : status;
  }
  return Status::Ok();
}

Status RunOnThreads(std::string_view name, unsigned count, const std::function<Status(unsigned)>& body) {
  std::vector<Status> statuses(std::max(1U, count));
  {
    std::vector<Thread> threads;
    threads.reserve(statuses.size());
    for (unsigned i = 1; i < count; ++i) {
      auto thread = Thread::Start(
          name, [&, i] { statuses[i] = body(i); }, [&, i](const Status& why) { statuses[i] = why; });
      if (!thread.ok()) break;
      threads.push_back(std::move(thread).value());
    }
    statuses[0] = CatchExhaustion(name, [&] { return body(0); });
  }
  for (const Status& status : statuses) QUARRY_RETURN_IF_ERROR(status);
  return Status::Ok();
}

unsigned ProbeThreads(unsigned count) {
  std::promise<void> all_are_there;
  const std::shared_future<void> told = all_are_there.get_future().share();
  std::vector<Thread> threads;
  static_cast<void>(StartThreads(
      "probe", count, [told](unsigned) { told.wait(); }, [](const Status&) {}, threads));
  all_are_there.set_value();
  return static_cast<unsigned>(threads.size());
}

// A countdown that nobody resets between two stores would let a start pass: tests arm it while nothing
// starts.
void FailThreadStarts(uint64_t first, uint64_t count) {
  starts_left = 0;
  failures_left = count;
  failed = 0;
  starts_left = first;
}

uint64_t FailedThreadStarts() { return failed; }

}  // namespace quarry
