#include "retry_memory.h"

#include <algorithm>
#include <utility>

namespace quarry {

RetryMemory::Turn::~Turn() {
  if (!finished_) Finish(Status(Code::kCancelled, "the write was cancelled before it began"));
}

void RetryMemory::Turn::Finish(const Result<wire::Response>& result) {
  finished_ = true;
  memory_.Finish(client_, number_, result);
}

Result<std::shared_ptr<RetryMemory::Turn>> RetryMemory::Begin(const ClientId& client, uint64_t number,
                                                              Answer answer, Clock::time_point now) {
  std::optional<wire::Response> done;
  {
    MutexLock lock(mutex_);
    if (!clients_.contains(client)) {
      ForgetIdle(now);
      if (clients_.size() >= kClientsMax) {
        return MakeStatus(Code::kBusy, "{} clients have written in the last {} minutes: try again later",
                          clients_.size(), kKept.count());
      }
    }
    Client& state = clients_[client];
    state.last = now;
    const auto found = state.writes.find(number);
    if (found == state.writes.end()) {
      if (number <= state.forgotten) {
        return MakeStatus(Code::kUsage,
                          "write {} is older than the last {}: what it came to is not remembered any more",
                          number, kNumbersMax);
      }
      state.writes[number].answers.push_back(std::move(answer));
      ForgetOld(state);
      return std::make_shared<Turn>(*this, client, number);
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

void RetryMemory::Finish(const ClientId& client, uint64_t number, const Result<wire::Response>& result) {
  std::vector<Answer> answers;
  {
    MutexLock lock(mutex_);
    Client& state = clients_[client];
    Write& write = state.writes[number];
    answers.swap(write.answers);
    if (result.ok()) {
      write.response = *result;
    } else {
      state.writes.erase(number);
    }
  }
  for (const Answer& answer : answers) answer(result);
}

// A write that is under way stays, however old its number.
void RetryMemory::ForgetOld(Client& client) {
  for (auto write = client.writes.begin();
       client.writes.size() > kNumbersMax && write != client.writes.end();) {
    if (!write->second.response) {
      ++write;
      continue;
    }
    client.forgotten = std::max(client.forgotten, write->first);
    write = client.writes.erase(write);
  }
}

void RetryMemory::ForgetIdle(Clock::time_point now) {
  std::erase_if(clients_, [now](const auto& entry) {
    const auto under_way = [](const auto& write) { return !write.second.response; };
    return now - entry.second.last > kKept && std::ranges::none_of(entry.second.writes, under_way);
  });
}

}  // namespace quarry
