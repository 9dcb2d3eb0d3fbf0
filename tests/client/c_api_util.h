// A store of the C interface over a small database, of both kinds.
#pragma once

#include <optional>
#include <string>

#include "client/store_util.h"
#include "quarry.h"
#include "quarry/embedding/embedding_store.h"
#include "quarry/partition/stored_partitioning.h"
#include "support/status_matchers.h"

namespace quarry::testing_util {

class CStoreTest : public testing::TestWithParam<StoreKind> {
 protected:
  CStoreTest() {
    {
      const auto backend = MakeDefaultBackend();
      const auto store = quarry::Store::Open(*backend, database_.path()).value();
      MemoryBudget budget(64 * kMiB);
      Assignment parts{.parts = 6, .part_of = std::vector<uint32_t>(300)};
      for (uint32_t node = 0; node < 300; ++node) parts.part_of[node] = node % 6;
      EXPECT_OK(BuildPartitioning(*store, budget, {.table = "feature"}, std::move(parts), {}));
      EXPECT_OK(CreateEmbeddings(*store, "nodes", {.row_count = 20, .dim = 4}));
    }
    if (GetParam() != StoreKind::kEmbedded) server_.emplace(database_.path(), folder_ / "socket/q.sock");
    const quarry_open_options options = {.size = sizeof(options),
                                         .memory_bytes = 192 << 20,
                                         .inline_only = GetParam() == StoreKind::kInline ? 1 : 0};
    EXPECT_EQ(quarry_open(address().c_str(), &options, &store_), QUARRY_OK) << quarry_last_error();
  }
  ~CStoreTest() override { quarry_close(store_); }
  std::string address() const { return server_ ? server_->address() : database_.path(); }

  const TinyDatabase database_{{.nodes = 300, .dim = 32}};
  const TemporaryFolder folder_{"c_api"};
  std::optional<TestServer> server_;
  quarry_store* store_ = nullptr;
};

inline const auto kBothKinds = testing::Values(StoreKind::kEmbedded, StoreKind::kRemote);
inline std::string KindName(const testing::TestParamInfo<StoreKind>& kind) { return NameOf(kind.param); }

}  // namespace quarry::testing_util
