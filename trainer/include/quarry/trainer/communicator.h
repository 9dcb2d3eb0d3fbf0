// Communicator: connects trainers that learn one model together, each from batches of its own (data-parallel
// training). They exchange sums of gradients, counts, and who failed.
//
// They have *ranks* from 0, and are processes of one machine (which read one server's socket) or of several (each with a
// layout of its own). Every rank makes the same calls in the same order, and a call returns when all have made it. When a
// rank is gone, the call fails with kIoError at the others.
//
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "quarry/base/status.h"

namespace quarry {

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual uint32_t rank() const = 0;
  virtual uint32_t size() const = 0;
  // Replaces the values by their sums over all ranks: the same bits at every rank, and in every run.
  virtual Status AllReduceSum(std::span<float> values) = 0;
  virtual Status AllReduceSum(std::span<double> values) = 0;
  virtual Status Broadcast(std::span<std::byte> bytes, uint32_t from_rank) = 0;
  virtual Status Barrier() = 0;
};

// Exchanges the ranks' statuses: returns OK when all are OK, else, at every rank, the error of the first rank
// that has one. Returns `mine` when the others cannot be asked any more, and when there are none (null).
Status Agree(Communicator* trainers, const Status& mine);

// Where the ranks find each other.
struct Rendezvous {
  uint32_t rank = 0;
  uint32_t size = 1;
  // A host, where rank 0 listens at the port, or the absolute path of a file that does not exist yet.
  std::string address = "127.0.0.1";
  uint16_t port = 29500;
  double timeout_seconds = 300;  // for meeting
  // The ranks may be on several machines, and what they exchange goes over their network, in the clear: by the interface
  // that GLOO_SOCKET_IFNAME names, else by that of the host's name. Else it stays on the loopback.
  bool several_hosts = false;
};

// Reads this process's rank from the environment, as torchrun, Slurm, Open MPI and MPICH set it; nothing when
// the process is not one of several. `get` works as std::getenv. kUsage names a variable that makes no sense.
Result<std::optional<Rendezvous>> RendezvousFromEnvironment(
    const std::function<const char*(const char*)>& get);

// Meets the others through LibTorch's c10d over Gloo. kIoError when they do not come in time, kUnsupported in
// a build without Gloo.
Result<std::unique_ptr<Communicator>> JoinTrainers(const Rendezvous& rendezvous);
// Whether this build has Gloo: OK, or why not.
Status CheckCommunicator();

}  // namespace quarry
