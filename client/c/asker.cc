#include "asker.h"

#include <utility>

namespace quarry::client {

Asker::~Asker() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  thread_.Join();
}

Asker::Answer Asker::Ask() {
  QUARRY_TRY(std::unique_ptr<Batch> batch, stream_.Next());
  if (batch != nullptr && prepare_) prepare_(batch);
  return batch;
}

void Asker::Run() {
  while (true) {
    {
      MutexLock lock(mutex_);
      while (state_ != State::kAsked && !stopping_) changed_.Wait(mutex_);
      if (state_ != State::kAsked) return;
    }
    Answer answer = Ask();
    MutexLock lock(mutex_);
    answer_.emplace(std::move(answer));
    state_ = State::kAnswered;
    changed_.NotifyAll();
  }
}

void Asker::Break(const Status& why) {
  MutexLock lock(mutex_);
  broken_ = why;
  answer_.emplace(why);
  state_ = State::kAnswered;
  changed_.NotifyAll();
}

Status Asker::Begin() {
  if (!thread_.joinable()) {
    QUARRY_TRY(thread_, Thread::Start(
                            "next batch", [this] { Run(); }, [this](const Status& why) { Break(why); }));
  }
  MutexLock lock(mutex_);
  if (state_ != State::kIdle) return Status();
  QUARRY_RETURN_IF_ERROR(broken_);
  state_ = State::kAsked;
  changed_.NotifyAll();
  return Status();
}

Asker::Answer Asker::Take() {
  Answer answer = *std::exchange(answer_, std::nullopt);
  state_ = State::kIdle;
  return answer;
}

Result<std::optional<std::unique_ptr<Batch>>> Asker::NextWithin(Deadline deadline) {
  QUARRY_RETURN_IF_ERROR(Begin());
  MutexLock lock(mutex_);
  while (state_ != State::kAnswered && !cancelled_) {
    if (!deadline) {
      changed_.Wait(mutex_);
    } else if (!changed_.WaitUntil(mutex_, *deadline)) {
      break;
    }
  }
  if (std::exchange(cancelled_, false)) return Status(Code::kCancelled, "waiting for a batch was cancelled");
  if (state_ != State::kAnswered) return std::optional<std::unique_ptr<Batch>>();
  QUARRY_TRY(std::unique_ptr<Batch> batch, Take());
  return std::optional(std::move(batch));
}

Result<std::unique_ptr<Batch>> Asker::Next() {
  Settle();
  {
    MutexLock lock(mutex_);
    if (state_ == State::kAnswered) return Take();
  }
  return Ask();
}

void Asker::Cancel() {
  MutexLock lock(mutex_);
  cancelled_ = true;
  changed_.NotifyAll();
}

void Asker::Settle() {
  MutexLock lock(mutex_);
  while (state_ == State::kAsked) changed_.Wait(mutex_);
}

void Asker::Forget() {
  Settle();
  std::optional<Answer> dropped;  // dies outside the lock
  MutexLock lock(mutex_);
  cancelled_ = false;
  dropped.swap(answer_);
  state_ = State::kIdle;
}

}  // namespace quarry::client
