// A small database behind a server, for tests of the server and of its clients.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "pipeline/tiny_database.h"
#include "quarry/base/budget.h"
#include "quarry/base/units.h"
#include "quarry/embedding/embedding_store.h"
#include "quarry/server/server.h"
#include "quarry/storage/store.h"
#include "support/eventually.h"
#include "support/status_matchers.h"
#include "wire_peer.h"

namespace quarry::testing_util {

inline size_t OpenDescriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

class ServedDatabase {
 public:
  static constexpr uint64_t kBudgetBytes = 256 << 20;

  explicit ServedDatabase(const TinyGraph& graph = {},
                          std::unique_ptr<IoBackend> own_backend = MakeDefaultBackend(),
                          uint64_t budget_bytes = kBudgetBytes)
      : backend(std::move(own_backend)), tiny(graph), budget(budget_bytes) {
    auto opened = Store::Open(*backend, tiny.path());
    EXPECT_OK(opened);
    store = std::move(opened).value();
  }
  ~ServedDatabase() {
    server.reset();
    store.reset();
    std::error_code ignored;
    std::filesystem::remove_all(folder(), ignored);
  }

  std::string folder() const { return tiny.path() + ".run"; }
  std::string socket() const { return folder() + "/s"; }

  void Start(ServerOptions options = {}) {
    options.socket_path = socket();
    ASSERT_OK_AND_ASSIGN(auto started, Server::Start(*store, budget, options));
    server = std::move(started);
  }

  std::unique_ptr<IoBackend> backend;
  TinyDatabase tiny;
  std::unique_ptr<Store> store;
  MemoryBudget budget;
  std::unique_ptr<Server> server;
};

}  // namespace quarry::testing_util
