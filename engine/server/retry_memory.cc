#include "retry_memory.h"

#include <algorithm>
#include <utility>

namespace quarry {

RetryMemory::Turn::~Turn() {
  if (!finished_) Finish(Status(Code::kCancelled, "the write was cancelled before it began"));
}

void RetryMemory::Turn::Finish(const Result<wire::Response>& result) {
  finished_ = true;
  memory_.Finish(writer_, number_, result);
}

Result<std::shared_ptr<RetryMemory::Turn>> RetryMemory::Begin(const Writer& writer, uint64_t number,
                                                              Answer answer, Clock::time_point now) {
  std::optional<wire::Response> done;
  {
    MutexLock lock(mutex_);
    const auto known = clients_.find(writer);
    const bool is_new = known == clients_.end() || !known->second.writes.contains(number);
    if (is_new && shares_.Left(writer.user) == 0 && !MakeRoom(writer.user, now)) {
      return MakeStatus(Code::kBusy,
                        "the clients of user {} have made {} writes lately, which the server remembers for "
                        "those that are sent again: try again in a minute",
                        writer.user, shares_.used(writer.user));
    }
    Client& state = clients_[writer];
    state.last = now;
    const auto found = state.writes.find(number);
    if (found == state.writes.end()) {
      if (number <= state.forgotten) {
        if (state.writes.empty()) clients_.erase(writer);
        return MakeStatus(Code::kUsage,
                          "write {} is older than the last {}: what it came to is not remembered any more",
                          number, kNumbersMax);
      }
      state.writes[number].answers.push_back(std::move(answer));
      shares_.Take(writer.user, 1);
      ForgetOld(writer.user, state);
      return std::make_shared<Turn>(*this, writer, number);
    }
    if (!found->second.response) {
      found->second.answers.push_back(std::move(answer));
      return std::shared_ptr<Turn>();
    }
    done = found->second.response;
  }
  answer(*done);
  return std::shared_ptr<Turn>();
}

void RetryMemory::Finish(const Writer& writer, uint64_t number, const Result<wire::Response>& result) {
  std::vector<Answer> answers;
  {
    MutexLock lock(mutex_);
    Client& state = clients_[writer];
    Write& write = state.writes[number];
    answers.swap(write.answers);
    if (result.ok()) {
      write.response = *result;
    } else {
      state.writes.erase(number);
      shares_.Give(writer.user, 1);
      if (state.writes.empty() && state.forgotten == 0) clients_.erase(writer);
    }
  }
  for (const Answer& answer : answers) answer(result);
}

// A write that is under way stays, however old its number.
void RetryMemory::ForgetOld(uid_t user, Client& client) {
  for (auto write = client.writes.begin();
       client.writes.size() > kNumbersMax && write != client.writes.end();) {
    if (!write->second.response) {
      ++write;
      continue;
    }
    client.forgotten = std::max(client.forgotten, write->first);
    write = client.writes.erase(write);
    shares_.Give(user, 1);
  }
}

// What has been idle for long goes, whoever's it is; of the user, then, what has been idle for less.
bool RetryMemory::MakeRoom(uid_t user, Clock::time_point now) {
  constexpr std::chrono::seconds kPause{1};  // each look is at all that is remembered
  const auto [looked, first] = looked_.emplace(user, now);
  if (!first && now - looked->second < kPause) return false;
  looked->second = now;
  const auto forget = [&](std::chrono::minutes kept, bool others) {
    mutex_.AssertHeld();
    std::erase_if(clients_, [&](const auto& entry) {
      mutex_.AssertHeld();
      const auto& [writer, client] = entry;
      const auto under_way = [](const auto& write) { return !write.second.response; };
      if ((writer.user != user && !others) || now - client.last <= kept) return false;
      if (std::ranges::any_of(client.writes, under_way)) return false;
      shares_.Give(writer.user, client.writes.size());
      return true;
    });
    return shares_.Left(user) > 0;
  };
  if (!forget(kKept, true) && !forget(kKeptAtLeast, false)) return false;
  looked_.erase(looked);
  return true;
}

}  // namespace quarry
