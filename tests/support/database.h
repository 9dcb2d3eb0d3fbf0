// A database that a test has open, and opens anew as another process would.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "quarry/storage/store.h"
#include "support/status_matchers.h"

namespace quarry::testing_util {

class TestStore {
 public:
  // Opens nothing yet. `backend` outlives it.
  TestStore(IoBackend& backend, std::string path) : backend_(backend), path_(std::move(path)) {}

  void Close() { store_.reset(); }
  // REQUIRES: the database is at the path, and nobody else has it open.
  void Reopen() {
    Close();
    ASSERT_OK_AND_ASSIGN(store_, Store::Open(backend_, path_));
  }
  Store& operator*() const { return *store_; }
  Store* operator->() const { return store_.get(); }
  std::shared_ptr<const Snapshot> Now() const {
    const auto snapshot = store_->TakeSnapshot();
    EXPECT_OK(snapshot);
    return snapshot.ok() ? *snapshot : nullptr;
  }

 private:
  IoBackend& backend_;
  const std::string path_;
  std::unique_ptr<Store> store_;
};

}  // namespace quarry::testing_util
