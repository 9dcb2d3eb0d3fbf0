// Trainers as threads of one process: what a communicator must do, in its plainest form. And a way to run
// them.
#pragma once

#include <barrier>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "quarry/trainer/communicator.h"

namespace quarry {

class ThreadTrainers {
 public:
  explicit ThreadTrainers(uint32_t size) : said_(size), barrier_(size) {}

  std::unique_ptr<Communicator> Join(uint32_t rank) { return std::make_unique<Rank>(*this, rank); }

 private:
  class Rank final : public Communicator {
   public:
    Rank(ThreadTrainers& trainers, uint32_t rank) : trainers_(trainers), rank_(rank) {}
    uint32_t rank() const override { return rank_; }
    uint32_t size() const override { return static_cast<uint32_t>(trainers_.said_.size()); }
    Status AllReduceSum(std::span<float> values) override { return Sum(values); }
    Status AllReduceSum(std::span<double> values) override { return Sum(values); }
    Status Broadcast(std::span<std::byte> bytes, uint32_t from_rank) override {
      Say(bytes);
      if (rank_ != from_rank) std::memcpy(bytes.data(), trainers_.said_[from_rank].data(), bytes.size());
      return Barrier();
    }
    Status Barrier() override {
      trainers_.barrier_.arrive_and_wait();
      return Status::Ok();
    }

   private:
    void Say(std::span<const std::byte> bytes) {
      trainers_.said_[rank_].assign(bytes.begin(), bytes.end());
      trainers_.barrier_.arrive_and_wait();
    }
    template <typename T>
    Status Sum(std::span<T> values) {
      Say(std::as_bytes(values));
      std::fill(values.begin(), values.end(), T{0});
      for (const std::vector<std::byte>& said : trainers_.said_) {
        const auto* const more = reinterpret_cast<const T*>(said.data());
        for (size_t i = 0; i < values.size(); i++) values[i] += more[i];
      }
      return Barrier();
    }

    ThreadTrainers& trainers_;
    const uint32_t rank_;
  };

  std::vector<std::vector<std::byte>> said_;  // by rank
  std::barrier<> barrier_;
};

// work(rank) on a thread for every rank; returns when all have.
inline void OnRanks(uint32_t size, const std::function<void(uint32_t)>& work) {
  std::vector<std::jthread> threads;
  for (uint32_t rank = 0; rank < size; rank++) threads.emplace_back(work, rank);
}

}  // namespace quarry
