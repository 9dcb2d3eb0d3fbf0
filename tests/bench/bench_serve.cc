// A server and its clients, each a process of its own, beside the same work embedded: batches a second on
// both roads, what several trainers of one shared stream cost the disk, and the latency of lookups.
//
//   bench_serve DB QUARRY     DB has a layout "serve"; QUARRY is the command that serves
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "quarry/base/process.h"
#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/client/store.h"

namespace quarry::bench {
namespace {

constexpr uint64_t kMemoryBytes = 4 * kGiB;
constexpr uint64_t kClientBytes = 3 * kGiB;
constexpr uint64_t kSharedBytes = 2 * kGiB;  // of the member that pays for the road
constexpr int kRounds = 3;
constexpr double kLookupSeconds = 1;

// A planned one takes a third of a second, a live one fifteen.
uint64_t PassesOf(bool planned) { return planned ? 8 : 1; }

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

// --- processes

// What a child measured; plain bytes through a pipe.
struct PassResult {
  bool ok = false;
  double seconds = 0;
  uint64_t batches = 0, bytes = 0, nodes = 0;
};

struct Child {
  pid_t pid = 0;
  int pipe = -1;
};

Child Start(const std::function<Result<PassResult>()>& work) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {};
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(ends[0]);
    PassResult result;
    if (auto measured = work(); measured.ok()) {
      result = *measured;
      result.ok = true;
    } else {
      fmt::print(stderr, "{}\n", measured.status().ToString());
    }
    const bool written = ::write(ends[1], &result, sizeof(result)) == sizeof(result);
    ::_exit(written && result.ok ? 0 : 1);
  }
  ::close(ends[1]);
  return {pid, ends[0]};
}

Result<PassResult> Finish(const Child& child) {
  PassResult result;
  const bool read = ::read(child.pipe, &result, sizeof(result)) == sizeof(result);
  ::close(child.pipe);
  ::waitpid(child.pid, nullptr, 0);
  if (!read || !result.ok) return Status(Code::kInternal, "a child failed; it said why");
  return result;
}

// `quarry serve` as a process, until Stop.
class ServerProcess {
 public:
  static Result<ServerProcess> Start(const std::string& quarry, const std::string& database,
                                     const std::string& socket) {
    std::fflush(nullptr);
    const std::string memory = std::to_string(kMemoryBytes);
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::execl(quarry.c_str(), quarry.c_str(), "serve", database.c_str(), "--socket", socket.c_str(),
              "--memory", memory.c_str(), nullptr);
      ::_exit(127);
    }
    ServerProcess server(pid, "unix:" + socket);
    const double give_up = MonotonicSeconds() + 30;
    while (!client::OpenRemote(server.address_).ok()) {
      if (MonotonicSeconds() > give_up) return Status(Code::kInternal, "the server does not answer");
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return server;
  }
  ServerProcess(ServerProcess&& other) noexcept
      : pid_(std::exchange(other.pid_, 0)), address_(other.address_) {}
  ServerProcess& operator=(ServerProcess&&) = delete;
  ~ServerProcess() {
    if (pid_ == 0) return;
    ::kill(pid_, SIGTERM);
    ::waitpid(pid_, nullptr, 0);
  }

  const std::string& address() const { return address_; }
  // From the disk, as the kernel counts them.
  uint64_t ReadBytes() const {
    std::ifstream file("/proc/" + std::to_string(pid_) + "/io");
    std::string key;
    uint64_t value = 0;
    while (file >> key >> value) {
      if (key == "read_bytes:") return value;
    }
    return 0;
  }

 private:
  ServerProcess(pid_t pid, std::string address) : pid_(pid), address_(std::move(address)) {}
  pid_t pid_;
  const std::string address_;
};

// --- batches

wire::LiveSpec Live() {
  wire::LiveSpec spec;
  spec.fanouts = {10, 15};
  spec.batch_size = 1024;
  spec.cache_bytes = 128 * kMiB;
  return spec;
}

wire::OpenStream Request(bool planned) {
  wire::OpenStream request;
  if (planned) {
    request.road = wire::PlannedSpec{.layout = "serve", .live = std::nullopt};
  } else {
    request.road = Live();
  }
  return request;
}

// `passes`, after one that fills the caches. The consumer looks at a byte of every row, as who would copy
// them to a device.
Result<PassResult> Consume(client::Stream& stream, uint64_t passes) {
  PassResult result;
  uint64_t sum = 0;
  uint64_t expected = 0;
  double start = 0;
  for (uint64_t pass = 0; pass <= passes; pass++) {
    if (pass <= 1) {
      result = {};
      expected = 0;
      start = MonotonicSeconds();
    }
    QUARRY_TRY(const uint64_t batches, stream.StartPass({.pass = pass, .ordered = true}));
    expected += batches;
    for (;;) {
      QUARRY_TRY(const std::unique_ptr<client::Batch> batch, stream.Next());
      if (!batch) break;
      const BatchView& view = batch->view();
      for (size_t i = 0; i < view.nodes.size(); i++) sum += static_cast<uint64_t>(*view.features.Row(i));
      result.batches++;
      result.nodes += view.nodes.size();
      result.bytes += view.nodes.size() * view.features.stride_bytes;
    }
    result.seconds = MonotonicSeconds() - start;
  }
  if (result.batches != expected) return Status(Code::kInternal, "batches are missing");
  if (sum == 0) return Status(Code::kInternal, "all rows are zeros");
  return result;
}

Result<PassResult> RunClient(const std::string& address, bool planned) {
  QUARRY_TRY(const auto store, client::Open(address, {.memory_bytes = kClientBytes}));
  QUARRY_TRY(const auto stream, store->OpenStream(Request(planned)));
  return Consume(*stream, PassesOf(planned));
}

Result<PassResult> RunRemote(const std::string& address, bool planned) {
  QUARRY_TRY(const auto store, client::OpenRemote(address, {.memory_bytes = kClientBytes}));
  QUARRY_TRY(const auto stream, store->OpenStream(Request(planned)));
  return Consume(*stream, PassesOf(planned));
}

double BatchRate(const PassResult& result) { return static_cast<double>(result.batches) / result.seconds; }

struct Paths {
  std::string database, quarry, socket;
};

Result<bool> MeasureRates(const Paths& paths) {
  fmt::print(
      "one trainer, {} planned and {} live passes over the training nodes; it touches every row (medians of "
      "{} rounds)\n",
      PassesOf(true), PassesOf(false), kRounds);
  fmt::print("  {:<10}{:>16}{:>14}{:>9}{:>14}{:>14}\n", "road", "embedded b/s", "remote b/s", "ratio",
             "embedded GB/s", "remote GB/s");
  bool met = true;
  for (const bool planned : {true, false}) {
    std::vector<double> embedded, remote, embedded_bytes, remote_bytes;
    for (int round = 0; round < kRounds; round++) {
      QUARRY_TRY(const PassResult here, Finish(Start([&] { return RunClient(paths.database, planned); })));
      QUARRY_TRY(const ServerProcess server,
                 ServerProcess::Start(paths.quarry, paths.database, paths.socket));
      QUARRY_TRY(const PassResult there, Finish(Start([&] { return RunRemote(server.address(), planned); })));
      embedded.push_back(BatchRate(here));
      remote.push_back(BatchRate(there));
      embedded_bytes.push_back(static_cast<double>(here.bytes) / here.seconds / 1e9);
      remote_bytes.push_back(static_cast<double>(there.bytes) / there.seconds / 1e9);
    }
    const double ratio = Median(remote) / Median(embedded);
    met &= ratio >= 0.9;
    fmt::print("  {:<10}{:>16.1f}{:>14.1f}{:>9.2f}{:>14.2f}{:>14.2f}  target 0.90: {}\n",
               planned ? "planned" : "live", Median(embedded), Median(remote), ratio, Median(embedded_bytes),
               Median(remote_bytes), ratio >= 0.9 ? "met" : "MISSED");
    std::fflush(stdout);
  }
  return met;
}

// Bytes that `members` trainers of one shared stream make the server read.
Result<uint64_t> SharedBytes(const Paths& paths, uint32_t members, bool planned, double& seconds) {
  QUARRY_TRY(const ServerProcess server, ServerProcess::Start(paths.quarry, paths.database, paths.socket));
  wire::OpenStream request = Request(planned);
  request.mode = wire::StreamMode::kShared;
  request.group = "bench";
  request.members = members;
  const uint64_t before = server.ReadBytes();
  std::vector<Child> children;
  for (uint32_t i = 0; i < members; i++) {
    children.push_back(Start([&]() -> Result<PassResult> {
      QUARRY_TRY(const auto store,
                 client::OpenRemote(server.address(), {.memory_bytes = i == 0 ? kSharedBytes : 16 * kMiB}));
      QUARRY_TRY(const auto stream, store->OpenStream(request));
      return Consume(*stream, 1);
    }));
    // The first pays for the road.
    if (i == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  }
  for (const Child& child : children) {
    QUARRY_TRY(const PassResult result, Finish(child));
    seconds = std::max(seconds, result.seconds);
  }
  return server.ReadBytes() - before;
}

Result<bool> MeasureShared(const Paths& paths) {
  fmt::print("\nfour trainers on one shared stream, beside one\n");
  bool met = true;
  for (const bool planned : {true, false}) {
    double one_seconds = 0, four_seconds = 0;
    QUARRY_TRY(const uint64_t one, SharedBytes(paths, 1, planned, one_seconds));
    QUARRY_TRY(const uint64_t four, SharedBytes(paths, 4, planned, four_seconds));
    const double ratio = static_cast<double>(four) / static_cast<double>(one);
    met &= ratio <= 1.1;
    fmt::print(
        "  {:<10}{:>8.2f} GB read for one, {:>6.2f} GB for four: {:.3f}; a pass {:.2f} s and {:.2f} s  "
        "target 1.10: {}\n",
        planned ? "planned" : "live", static_cast<double>(one) / 1e9, static_cast<double>(four) / 1e9, ratio,
        one_seconds, four_seconds, ratio <= 1.1 ? "met" : "MISSED");
    std::fflush(stdout);
  }
  return met;
}

// --- lookups

struct Latencies {
  double p50 = 0, p99 = 0, per_second = 0;
};

Result<Latencies> Lookups(std::span<const std::unique_ptr<client::Store>> clients, uint32_t ids,
                          uint64_t rows) {
  std::vector<std::vector<double>> seconds(clients.size());
  std::vector<Status> statuses(clients.size());
  std::vector<std::thread> threads;
  const double start = MonotonicSeconds();
  for (size_t c = 0; c < clients.size(); c++) {
    threads.emplace_back([&, c] {
      Rng rng(MixSeed(c, ids));
      while (statuses[c].ok() && MonotonicSeconds() - start < kLookupSeconds) {
        std::vector<NodeId> nodes(ids);
        for (NodeId& node : nodes) node = static_cast<NodeId>(rng.Below(rows));
        const double asked = MonotonicSeconds();
        statuses[c] = clients[c]->Lookup({.table = "feature", .ids = std::move(nodes)}).status();
        seconds[c].push_back(MonotonicSeconds() - asked);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double elapsed = MonotonicSeconds() - start;
  std::vector<double> all;
  for (size_t c = 0; c < clients.size(); c++) {
    QUARRY_RETURN_IF_ERROR(statuses[c]);
    all.insert(all.end(), seconds[c].begin(), seconds[c].end());
  }
  std::ranges::sort(all);
  return Latencies{all[all.size() / 2], all[all.size() * 99 / 100],
                   static_cast<double>(all.size()) / elapsed};
}

Result<Latencies> LookupsOf(const std::string& address, unsigned clients, uint32_t ids) {
  std::vector<std::unique_ptr<client::Store>> stores;
  for (unsigned i = 0; i < clients; i++) {
    QUARRY_TRY(auto store, client::Open(address, {.memory_bytes = 40 * kMiB}));
    stores.push_back(std::move(store));
  }
  QUARRY_TRY(const wire::Description description, stores[0]->Describe());
  return Lookups(stores, ids, description.node_count);
}

void PrintLookup(const char* who, unsigned clients, uint32_t ids, const Latencies& measured) {
  fmt::print("  {:<10}{:>8}{:>6}{:>12.0f}{:>12.0f}{:>14.0f}{:>14.0f}\n", who, clients, ids,
             measured.p50 * 1e6, measured.p99 * 1e6, measured.per_second, measured.per_second * ids);
  std::fflush(stdout);
}

Status MeasureLookups(const Paths& paths) {
  fmt::print("\nlookups of random feature rows, {} s each\n", kLookupSeconds);
  fmt::print("  {:<10}{:>8}{:>6}{:>12}{:>12}{:>14}{:>14}\n", "", "clients", "ids", "p50 us", "p99 us",
             "lookups/s", "rows/s");
  for (const uint32_t ids : {1U, 16U, 256U}) {
    QUARRY_TRY(const Latencies measured, LookupsOf(paths.database, 1, ids));
    PrintLookup("embedded", 1, ids, measured);
  }
  QUARRY_TRY(const ServerProcess server, ServerProcess::Start(paths.quarry, paths.database, paths.socket));
  for (const uint32_t ids : {1U, 16U, 256U}) {
    for (const unsigned clients : {1U, 4U, 16U, 64U}) {
      QUARRY_TRY(const Latencies measured, LookupsOf(server.address(), clients, ids));
      PrintLookup("remote", clients, ids, measured);
    }
  }
  return {};
}

Result<bool> Run(const Paths& paths) {
  QUARRY_TRY(const bool rates, MeasureRates(paths));
  QUARRY_TRY(const bool shared, MeasureShared(paths));
  QUARRY_RETURN_IF_ERROR(MeasureLookups(paths));
  return rates && shared;
}

}  // namespace
}  // namespace quarry::bench

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: bench_serve DB QUARRY\n");
    return 2;
  }
  const std::string folder = std::filesystem::path(argv[1]).parent_path() / "socket";
  const auto met = quarry::bench::Run({argv[1], argv[2], folder + "/quarry.sock"});
  if (!met.ok()) fmt::print(stderr, "{}\n", met.status().ToString());
  return met.ok() && *met ? 0 : 1;
}
