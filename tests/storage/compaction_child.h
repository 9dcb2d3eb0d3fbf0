// A compaction in a process of its own that dies at an operation on files: a fork would lack RocksDB's threads.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <sstream>
#include <string>

#include "quarry/storage/store.h"
#include "support/killing_backend.h"

namespace quarry::testing_util {

inline constexpr const char* kCompactionOrders = "QUARRY_COMPACTION_ORDERS";

// The child's part, in a test that RunCompactionChild names: compacts the database that it was told, and ends the process.
inline void CompactAndDie(const std::function<bool(Store&, MemoryBudget&)>& compact) {
  const char* const orders = std::getenv(kCompactionOrders);
  if (orders == nullptr) GTEST_SKIP() << "a child's part";
  uint64_t kill_at = 0;
  std::string path;
  std::istringstream(orders) >> kill_at >> path;
  const std::unique_ptr<IoBackend> real = MakeThreadBackend(2);
  KillingBackend backend(*real, kill_at);
  const auto store = Store::Open(backend, path);
  MemoryBudget budget(kGiB);
  _exit(store.ok() && compact(**store, budget) ? 0 : 3);
}

// Whether the child was killed; else it came to its end. `test`: the one above, "Suite.Name".
inline bool RunCompactionChild(const std::string& test, uint64_t kill_at, const std::string& path) {
  const std::string orders = std::to_string(kill_at) + " " + path, filter = "--gtest_filter=" + test;
  const pid_t child = fork();
  EXPECT_GE(child, 0);
  if (child == 0) {
    setenv(kCompactionOrders, orders.c_str(), 1);
    std::fclose(stdout);
    execl("/proc/self/exe", "compaction_resume_test", filter.c_str(), nullptr);
    _exit(127);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  if (WIFSIGNALED(status)) return true;
  EXPECT_EQ(WEXITSTATUS(status), 0);
  return false;
}

}  // namespace quarry::testing_util
