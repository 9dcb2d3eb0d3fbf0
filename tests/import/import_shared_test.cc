// The real sets of ../shared/data: each imports by its folder alone, and its counts are those that its README
// states.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "quarry/import/import.h"
#include "quarry/storage/store.h"
#include "quarry/verify/verify.h"
#include "support/shared_data.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

struct SharedCounts {
  const char* name;
  uint64_t nodes;
  uint64_t edges;
  uint64_t dim = 0;
  uint64_t classes = 0;
  uint64_t relations = 1;
  uint64_t train = 0, valid = 0, test = 0;  // nodes, or triples
};

void PrintTo(const SharedCounts& counts, std::ostream* stream) { *stream << counts.name; }

class SharedImportTest : public testing::TestWithParam<SharedCounts> {};

std::array<uint64_t, 4> CountSplits(Store& store) {
  const auto table = store.OpenTable("split");
  std::vector<std::byte> splits((*table)->geometry().row_count);
  EXPECT_OK((*table)->ReadRows(store.backend(), 0, splits.size(), splits));
  std::array<uint64_t, 4> counts{};
  for (const std::byte split : splits) counts.at(static_cast<size_t>(split))++;
  return counts;
}

TEST_P(SharedImportTest, ImportsByItsFolderAlone) {
  const SharedCounts& expected = GetParam();
  QUARRY_SHARED_SET(set, expected.name);
  const TemporaryFolder folder("import-shared");
  const auto backend = MakeDefaultBackend();
  auto dataset = OpenDataset(set.path(), {});
  ASSERT_OK(dataset);
  const Status status = ImportDatabase(*backend, folder / "x.db", std::move(*dataset), {});
  ASSERT_OK(status);

  const auto store = Store::Open(*backend, folder / "x.db");
  ASSERT_OK(store);
  const std::shared_ptr<const Manifest> manifest = (*store)->manifest();
  const TopologyRecord* graph = manifest->FindTopology("graph");
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(manifest->node_count, expected.nodes);
  EXPECT_EQ(graph->edge_count, expected.edges);
  EXPECT_EQ(graph->relation_count, expected.relations);
  EXPECT_EQ(manifest->class_count, expected.classes);
  const TableRecord* features = manifest->FindTable("feature");
  EXPECT_EQ(features == nullptr ? 0 : features->dim, expected.dim);
  if (expected.classes > 0) {
    const std::array<uint64_t, 4> splits = CountSplits(**store);
    EXPECT_EQ(splits[1], expected.train);
    EXPECT_EQ(splits[2], expected.valid);
    EXPECT_EQ(splits[3], expected.test);
  }
  if (manifest->has_entity_names) {
    EXPECT_EQ(manifest->FindTopology("valid")->edge_count, expected.valid);
    EXPECT_EQ(manifest->FindTopology("test")->edge_count, expected.test);
  }
  const auto report = VerifyStore(**store, {});
  ASSERT_OK(report);
  for (const Status& fault : report->faults) ADD_FAILURE() << fault.ToString();
}

// From the sets' READMEs.
INSTANTIATE_TEST_SUITE_P(
    SharedData, SharedImportTest,
    testing::Values(SharedCounts{"amazon-computers", 13752, 491722, 767, 10, 1, 8251, 2750, 2751},
                    SharedCounts{"arxiv-2023", 33868, 305672, 128, 40, 1, 19461, 4682, 668},
                    SharedCounts{"citeseer", 3327, 9104, 3703, 6, 1, 120, 500, 1000},
                    SharedCounts{"cnr-2000", 325557, 3216152},
                    SharedCounts{"coauthor-physics", 34493, 495924, 8415, 5, 1, 20696, 6899, 6898},
                    SharedCounts{"cora", 2708, 10556, 1433, 7, 1, 140, 500, 1000},
                    SharedCounts{"debian-kg", 145920, 995303, 0, 0, 49, 995303, 20000, 20000},
                    SharedCounts{"debian-nodes", 63436, 300076, 128, 58, 1, 38062, 12687, 12687},
                    SharedCounts{"facebook-pagepage", 22470, 341646, 4714, 4, 1, 13482, 4494, 4494},
                    SharedCounts{"fb15k-237", 14541, 272115, 0, 0, 237, 272115, 17535, 20466},
                    SharedCounts{"github-musae", 37700, 578006, 4005, 2, 1, 22620, 7540, 7540},
                    SharedCounts{"minesweeper", 10000, 78804, 7, 2, 1, 5000, 2500, 2500},
                    SharedCounts{"npm-2016", 304031, 926384 + 1419123, 0, 0, 2},
                    SharedCounts{"tolokers", 11758, 1038000, 10, 2, 1, 5879, 2939, 2940},
                    SharedCounts{"wordnet3-kg", 116650, 211855, 0, 0, 19, 211855, 11769, 11769}),
    [](const testing::TestParamInfo<SharedCounts>& parameter) {
      std::string name = parameter.param.name;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

}  // namespace
}  // namespace quarry
