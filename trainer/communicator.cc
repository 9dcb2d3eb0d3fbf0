#include "quarry/trainer/communicator.h"

#include <torch/types.h>

#ifdef QUARRY_GLOO
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#endif

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gnn_layers.h"
#include "quarry/base/process.h"

namespace quarry {
namespace {

constexpr size_t kSentenceBytes = 1024;

#ifdef QUARRY_GLOO
// The timeout of one call: what a rank does between two of them takes minutes at most.
constexpr std::chrono::minutes kCallTimeout(30);

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

class GlooCommunicator final : public Communicator {
 public:
  explicit GlooCommunicator(const Rendezvous& rendezvous) : rendezvous_(rendezvous) {}

  Status Meet() {
    const double start = MonotonicSeconds();
    const Status status = Guard([&] {
      const c10::intrusive_ptr<c10d::Store> store = MakeStore();
      WaitForAll(*store);
      const auto options = c10d::ProcessGroupGloo::Options::create(kCallTimeout);
      options->devices.push_back(Device());
      group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(store, static_cast<int>(rendezvous_.rank),
                                                           static_cast<int>(rendezvous_.size), options);
    });
    if (status.ok()) return status;
    const std::string where =
        MeetInFile() ? rendezvous_.address
                     : fmt::format("{}:{} (MASTER_ADDR, MASTER_PORT)", rendezvous_.address, rendezvous_.port);
    return MakeStatus(status.code(), "{} trainers did not meet at {} in {:.1f} s: {}", rendezvous_.size,
                      where, MonotonicSeconds() - start, status.message());
  }

  uint32_t rank() const override { return rendezvous_.rank; }
  uint32_t size() const override { return rendezvous_.size; }

  Status AllReduceSum(std::span<float> values) override {
    return AllReduce(torch::from_blob(values.data(), {static_cast<int64_t>(values.size())}));
  }
  Status AllReduceSum(std::span<double> values) override {
    return AllReduce(torch::from_blob(values.data(), {static_cast<int64_t>(values.size())}, torch::kFloat64));
  }

  Status Broadcast(std::span<std::byte> bytes, uint32_t from_rank) override {
    return Guard([&] {
      std::vector<at::Tensor> tensors = {
          torch::from_blob(bytes.data(), {static_cast<int64_t>(bytes.size())}, torch::kUInt8)};
      c10d::BroadcastOptions options;
      options.rootRank = from_rank;
      group_->broadcast(tensors, options)->wait();
    });
  }

  Status Barrier() override {
    std::array<float, 1> nothing = {0};
    return AllReduceSum(nothing);
  }

 private:
  // Where all are on this machine, nothing is offered to its network.
  std::shared_ptr<::gloo::transport::Device> Device() const {
    if (!rendezvous_.several_hosts) return c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1");
    const char* const interface = std::getenv("GLOO_SOCKET_IFNAME");
    if (interface != nullptr && *interface != 0)
      return c10d::ProcessGroupGloo::createDeviceForInterface(interface);
    return c10d::ProcessGroupGloo::createDefaultDevice();
  }

  bool MeetInFile() const { return rendezvous_.address.starts_with('/'); }

  c10::intrusive_ptr<c10d::Store> MakeStore() const {
    const std::chrono::milliseconds timeout = Milliseconds(rendezvous_.timeout_seconds);
    if (MeetInFile()) {
      auto store =
          c10::make_intrusive<c10d::FileStore>(rendezvous_.address, static_cast<int>(rendezvous_.size));
      store->setTimeout(timeout);
      return store;
    }
    c10d::TCPStoreOptions options;
    options.port = rendezvous_.port;
    options.isServer = rendezvous_.rank == 0;
    options.numWorkers = rendezvous_.size;
    options.timeout = timeout;
    return c10::make_intrusive<c10d::TCPStore>(rendezvous_.address, options);
  }

  // With a time of its own: Gloo has one for meeting and for all calls.
  void WaitForAll(c10d::Store& store) const {
    std::vector<std::string> names;
    for (uint32_t rank = 0; rank < rendezvous_.size; rank++) names.push_back(fmt::format("trainer-{}", rank));
    store.set(names[rendezvous_.rank], std::vector<uint8_t>{1});
    store.wait(names, Milliseconds(rendezvous_.timeout_seconds));
  }

  Status AllReduce(const torch::Tensor& values) {
    return Guard([&] {
      std::vector<at::Tensor> tensors = {values};
      group_->allreduce(tensors, c10d::AllreduceOptions())->wait();
    });
  }

  template <typename Work>
  static Status Guard(const Work& work) {
    const Status status = GuardTorch([&] {
      work();
      return Status::Ok();
    });
    if (status.ok()) return status;
    return MakeStatus(Code::kIoError, "another trainer is gone, or cannot be reached: {}", status.message());
  }

  const Rendezvous rendezvous_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};
#endif

}  // namespace

Status CheckCommunicator() {
#ifdef QUARRY_GLOO
  return Status::Ok();
#else
  return MakeStatus(Code::kUnsupported,
                    "this build trains alone: install libgloo-dev, configure and build again");
#endif
}

Result<std::unique_ptr<Communicator>> JoinTrainers([[maybe_unused]] const Rendezvous& rendezvous) {
#ifdef QUARRY_GLOO
  auto trainers = std::make_unique<GlooCommunicator>(rendezvous);
  QUARRY_RETURN_IF_ERROR(trainers->Meet());
  return std::unique_ptr<Communicator>(std::move(trainers));
#else
  return CheckCommunicator();
#endif
}

Status Agree(Communicator* trainers, const Status& mine) {
  if (trainers == nullptr) return mine;
  std::vector<double> codes(trainers->size(), 0);
  codes[trainers->rank()] = static_cast<double>(mine.code());
  const Status asked = trainers->AllReduceSum(codes);
  if (!asked.ok()) return mine.ok() ? asked : mine;
  const auto failed = std::ranges::find_if(codes, [](double code) { return code != 0; });
  if (failed == codes.end()) return Status::Ok();
  const auto rank = static_cast<uint32_t>(failed - codes.begin());
  std::array<char, kSentenceBytes> sentence = {};
  if (rank == trainers->rank()) {
    const size_t bytes = std::min(mine.message().size(), sentence.size() - 1);
    std::memcpy(sentence.data(), mine.message().data(), bytes);
  }
  const Status told = trainers->Broadcast(std::as_writable_bytes(std::span(sentence)), rank);
  if (!told.ok()) return mine.ok() ? told : mine;
  return MakeStatus(static_cast<Code>(static_cast<int>(*failed)), "trainer {}: {}", rank, sentence.data());
}

}  // namespace quarry
