// A graph that was changed through a server, and folded by it, is, checksum by checksum of its rows and edges, the one that an
// import of all of it makes: with types of nodes and without, with weights and without. Where ids are the same, so are files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <filesystem>
#include <map>

#include "client/growing_served.h"
#include "client/store_util.h"
#include "quarry/format/checksum.h"
#include "quarry/format/superblock.h"
#include "support/file_text.h"
#include "support/growing_graph.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using namespace testing_util;  // NOLINT: a test of what it has

// By what a database has, with nodes by their types and their numbers in them: an import has other ids.
using Checksums = std::map<std::string, uint64_t>;

class GrownImportTest : public testing::TestWithParam<StoreKind> {
 protected:
  void Fold(client::Store& store, const std::string& name, bool topology) {
    ASSERT_OK(store.Maintain(wire::CompactTable{.table = name, .topology = topology}));
  }

  // Some commits, with a fold of the edges and of some rows between, and a fold of all of it.
  void Grow(GrowingGraph& graph) {
    OpenedStore store(GetParam(), grown_);
    for (int commit = 0; commit < 12; ++commit) {
      const GrowingGraph::Commit next = graph.Next();
      ASSERT_OK(CommitServed(*store, graph, next)) << "commit " << commit;
      graph.Take(next);
      if (commit != 5) continue;
      ASSERT_NO_FATAL_FAILURE(Fold(*store, "graph", true));
      ASSERT_NO_FATAL_FAILURE(Fold(*store, graph.TableOf(0), false));
    }
    ASSERT_OK_AND_ASSIGN(const auto bytes, store->ReadManifest());
    ASSERT_OK_AND_ASSIGN(const Manifest manifest, DecodeManifest(bytes, "the store"));
    for (const TableRecord& table : manifest.tables) {
      ASSERT_NO_FATAL_FAILURE(Fold(*store, table.name, false));
    }
    ASSERT_NO_FATAL_FAILURE(Fold(*store, "graph", true));
  }

  static void ChecksumsOf(const std::string& path, const GrowingGraph& graph, Checksums& sums) {
    const auto backend = MakeDefaultBackend();
    ASSERT_OK_AND_ASSIGN(const auto store, quarry::Store::Open(*backend, path));
    ASSERT_EQ(FaultsIn(*store), "");
    const std::shared_ptr<const Manifest> manifest = store->manifest();
    const NodeTypes types(manifest->node_types);
    const auto type_of = [&](uint64_t node) { return types.empty() ? 0 : types.TypeOf(node); };
    const auto number_of = [&](uint64_t node) { return types.empty() ? node : types.RowOf(node); };
    for (uint32_t type = 0; type < graph.type_count(); ++type) {
      if (GrowingGraph::DimOf(type) == 0) continue;
      Checksum64Stream rows;
      for (const std::vector<std::byte>& row : RowsNow(*store, graph.TableOf(type))) rows.Update(row);
      sums[graph.TableOf(type)] = rows.Digest();
    }
    ASSERT_OK_AND_ASSIGN(const auto snapshot, store->TakeSnapshot());
    ASSERT_OK_AND_ASSIGN(const auto properties, LoadNodeProperties(*store, manifest->node_count, snapshot));
    for (uint64_t node = 0; node < manifest->node_count; ++node) {
      const uint64_t place = MixSeed(type_of(node), number_of(node));
      sums["labels"] += MixSeed(place, static_cast<uint64_t>(properties.labels[node]));
      sums["splits"] += MixSeed(place, properties.splits[node]);
    }
    for (uint64_t node = 0; graph.shape().named && node < graph.node_count(); ++node) {
      ASSERT_OK_AND_ASSIGN(const auto id, store->catalog()->IdOfName(NameKind::kEntity, graph.NameOf(node)));
      ASSERT_TRUE(id.has_value()) << graph.NameOf(node);
      sums["names"] += MixSeed(node, type_of(*id), number_of(*id));
    }
    ASSERT_OK_AND_ASSIGN(const GrowingGraph::Edges edges, GrowingGraph::EdgesIn(*store));
    for (const auto& [ends, weights] : edges) {
      for (const float weight : weights) {
        sums[fmt::format("edges of relation {}", ends.relation)] +=
            MixSeed(number_of(ends.from), number_of(ends.to), uint64_t{std::bit_cast<uint32_t>(weight)});
      }
    }
    for (const EdgeTypeRecord& type : manifest->edge_types) sums["count of " + type.name] = type.edge_count;
    for (const NodeTypeRecord& type : manifest->node_types) {
      sums["count of " + type.name] = NodeCount(type);
      sums["classes of " + type.name] = type.class_count;
    }
  }

  // Files of tables, and of the graph where nodes have the same ids, but for their superblocks.
  void ExpectSameFiles(const GrowingGraph& graph) const {
    const auto backend = MakeDefaultBackend();
    ASSERT_OK_AND_ASSIGN(const auto grown, quarry::Store::Open(*backend, grown_));
    ASSERT_OK_AND_ASSIGN(const auto whole, quarry::Store::Open(*backend, whole_));
    const auto expect = [&](const std::string& name, const std::string& file, const std::string& expected) {
      const std::string found = FileText(grown_ + "/" + file), wanted = FileText(whole_ + "/" + expected);
      ASSERT_EQ(found.size(), wanted.size()) << name;
      EXPECT_TRUE(found.substr(kSuperblockBytes) == wanted.substr(kSuperblockBytes)) << name;
    };
    for (const TableRecord& table : grown->manifest()->tables) {
      EXPECT_EQ(table.added_rows, 0u) << table.name;
      // Labels and splits are by id.
      if (graph.shape().typed && !table.name.ends_with(".feature")) continue;
      ASSERT_NO_FATAL_FAILURE(expect(table.name, table.file, whole->manifest()->FindTable(table.name)->file));
    }
    const TopologyRecord& topology = *grown->manifest()->FindTopology("graph");
    EXPECT_TRUE(topology.runs.empty());
    EXPECT_EQ(topology.added_nodes, 0u);
    if (graph.shape().typed) return;
    expect("graph", topology.file, whole->manifest()->FindTopology("graph")->file);
  }

  const TemporaryFolder folder_{"grown-import"};
  const std::string grown_ = folder_ / "grown.db", whole_ = folder_ / "whole.db";
};

INSTANTIATE_TEST_SUITE_P(Kinds, GrownImportTest, testing::Values(StoreKind::kRemote, StoreKind::kInline),
                         [](const auto& kind) { return NameOf(kind.param); });

TEST_P(GrownImportTest, AFoldedGraphIsTheOneThatIsImportedWhole) {
  const char* const given = std::getenv("QUARRY_GROWN_SEED");
  uint64_t seed = given == nullptr ? 60 : std::strtoull(given, nullptr, 10);
  const GrowingGraph::Shape shapes[] = {{.named = true},
                                        {.weighted = true, .csr = true},
                                        {.weighted = true, .deduplicated = true, .named = true},
                                        {.typed = false, .weighted = true, .named = true, .csr = true},
                                        {.typed = false, .deduplicated = true},
                                        {.typed = false, .weighted = true, .deduplicated = true}};
  for (const GrowingGraph::Shape& shape : shapes) {
    SCOPED_TRACE(testing::Message() << "QUARRY_GROWN_SEED=" << seed << (shape.typed ? ", types" : "")
                                    << (shape.weighted ? ", weights" : "")
                                    << (shape.deduplicated ? ", no equal edges" : ""));
    GrowingGraph graph(seed++, shape);
    const auto backend = MakeDefaultBackend();
    std::filesystem::remove_all(grown_);
    std::filesystem::remove_all(whole_);
    ASSERT_OK(graph.Import(*backend, grown_));
    ASSERT_NO_FATAL_FAILURE(Grow(graph));
    ASSERT_OK(graph.Import(*backend, whole_));
    Checksums found, expected;
    ASSERT_NO_FATAL_FAILURE(ChecksumsOf(grown_, graph, found));
    ASSERT_NO_FATAL_FAILURE(ChecksumsOf(whole_, graph, expected));
    EXPECT_EQ(found, expected);
    ASSERT_NO_FATAL_FAILURE(ExpectSameFiles(graph));
    ASSERT_OK_AND_ASSIGN(const auto store, quarry::Store::Open(*backend, grown_));
    ASSERT_NO_FATAL_FAILURE(graph.ExpectIn(*store));
  }
}

}  // namespace
}  // namespace quarry
