#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <tuple>

#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/format/topology.h"
#include "quarry/import/topology_builder.h"
#include "quarry/storage/data_file.h"
#include "quarry/storage/topology.h"
#include "support/status_matchers.h"
#include "support/temporary_folder.h"

namespace quarry {
namespace {

constexpr std::array<std::byte, 16> kId{std::byte{1}, std::byte{2}};

struct TypedEdge {
  uint64_t source, destination;
  uint32_t relation;
  float weight;
};
// (list, neighbor, relation, weight), as a file holds them.
using Entry = std::tuple<uint64_t, uint64_t, uint32_t, float>;

struct BuildCase {
  const char* name;
  uint64_t nodes;
  size_t edges;
  uint32_t relations = 1;
  bool csr = false;
  bool undirected = false;
  bool deduplicate = false;
  bool weighted = false;
};

std::vector<TypedEdge> RandomEdges(const BuildCase& which, uint64_t seed) {
  Rng random(seed);
  std::vector<TypedEdge> edges(which.edges);
  for (TypedEdge& edge : edges) {
    // A third of the nodes have no edge; the square makes hubs, duplicates and loops.
    const uint64_t bound = 1 + which.nodes * 2 / 3;
    edge.source = random.Below(1 + random.Below(bound));
    edge.destination = random.Below(1 + random.Below(bound));
    edge.relation = static_cast<uint32_t>(random.Below(which.relations));
    // Sixteenths, whose sums are exact in whatever order.
    edge.weight = which.weighted ? static_cast<float>(random.Below(1000)) / 16 : 0;
  }
  return edges;
}

std::vector<Entry> Oracle(const std::vector<TypedEdge>& edges, const BuildCase& which, Adjacency side) {
  const bool once = which.undirected || which.deduplicate;
  std::vector<Entry> entries;
  // The edges that are kept once: what those that were given weigh, and what the reverses weigh.
  std::map<std::tuple<uint64_t, uint64_t, uint32_t>, std::pair<std::optional<float>, float>> kept;
  for (const TypedEdge& edge : edges) {
    const bool csc = side == Adjacency::kCsc;
    const uint64_t list = csc ? edge.destination : edge.source;
    const uint64_t neighbor = csc ? edge.source : edge.destination;
    if (!once) {
      entries.emplace_back(list, neighbor, edge.relation, edge.weight);
      continue;
    }
    std::optional<float>& given = kept[{list, neighbor, edge.relation}].first;
    given = given.value_or(0) + edge.weight;
    if (which.undirected) kept[{neighbor, list, edge.relation}].second += edge.weight;
  }
  for (const auto& [edge, weights] : kept) {
    entries.push_back(std::tuple_cat(edge, std::tuple(weights.first.value_or(weights.second))));
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

// The bytes of a section that has `width` bytes for each edge.
std::vector<std::byte> ReadSection(IoBackend& backend, const std::string& path, const TopologyRecord& record,
                                   std::string_view name, uint64_t width) {
  const auto data = OpenDataFile(
      backend, path, {.kind = FileKind::kTopology, .database_id = kId, .file_bytes = record.file_bytes});
  const auto section = data->Find(name, record.edge_count * width);
  EXPECT_OK(section);
  const auto checksums = LoadChecksums(backend, *data, *section);
  std::vector<std::byte> bytes(section->bytes);
  EXPECT_OK(LoadPages(backend, *data, *section, *checksums, bytes));
  return bytes;
}

std::vector<uint32_t> ReadRelations(IoBackend& backend, const std::string& path, const TopologyRecord& record,
                                    Adjacency side) {
  std::vector<uint32_t> relations(record.edge_count);
  if (record.relation_count == 1) return relations;
  const uint64_t width = RelationIdBytes(record.relation_count);
  const auto bytes = ReadSection(backend, path, record, SectionsOf(side).relations, width);
  for (size_t i = 0; i < relations.size(); i++) std::memcpy(&relations[i], &bytes[i * width], width);
  return relations;
}

std::vector<float> ReadWeights(IoBackend& backend, const std::string& path, const TopologyRecord& record,
                               Adjacency side) {
  std::vector<float> weights(record.edge_count);
  if (!record.weighted) return weights;
  const auto bytes = ReadSection(backend, path, record, SectionsOf(side).weights, sizeof(float));
  if (!bytes.empty()) std::memcpy(weights.data(), bytes.data(), bytes.size());
  return weights;
}

void ExpectBuilds(const BuildCase& which, uint64_t seed) {
  SCOPED_TRACE(fmt::format("{} seed {}", which.name, seed));
  const TemporaryFolder folder("topology");
  std::filesystem::create_directory(folder / "scratch");
  const auto backend = MakeThreadBackend(1);
  const std::vector<TypedEdge> edges = RandomEdges(which, seed);
  ASSERT_OK_AND_ASSIGN(auto builder,
                       TopologyBuilder::Create(*backend, {.csr = which.csr,
                                                          .undirected = which.undirected,
                                                          .deduplicate = which.deduplicate,
                                                          .weighted = which.weighted,
                                                          .relation_count = which.relations,
                                                          .memory_bytes = kTopologyBuildBytesMin,
                                                          .scratch_directory = folder / "scratch"}));
  uint64_t node_count_min = 0;
  for (uint32_t relation = 0; relation < which.relations; relation++) {
    std::vector<Edge> plain;
    std::vector<float> weights;
    for (const TypedEdge& edge : edges) {
      node_count_min = std::max({node_count_min, edge.source + 1, edge.destination + 1});
      if (edge.relation != relation) continue;
      plain.push_back({edge.source, edge.destination});
      if (which.weighted) weights.push_back(edge.weight);
    }
    ASSERT_OK(builder->Add(plain, relation, weights));
  }
  EXPECT_EQ(builder->node_count_min(), node_count_min);
  ASSERT_OK_AND_ASSIGN(auto record, builder->Finish(folder / "graph.qtp", which.nodes, kId, 1));
  record.file = "graph.qtp";
  EXPECT_EQ(record.file_bytes, std::filesystem::file_size(folder / "graph.qtp"));
  EXPECT_EQ(record.has_csr, which.csr);
  EXPECT_EQ(record.weighted, which.weighted);
  EXPECT_TRUE(std::filesystem::is_empty(folder / "scratch"));

  ASSERT_OK_AND_ASSIGN(auto topology, Topology::Open(*backend, folder.path(), record, kId));
  for (const Adjacency side : {Adjacency::kCsc, Adjacency::kCsr}) {
    if (side == Adjacency::kCsr && !which.csr) continue;
    ASSERT_OK(topology->LoadIndices(*backend, side));
    const std::vector<uint32_t> relations = ReadRelations(*backend, folder / "graph.qtp", record, side);
    const std::vector<float> weights = ReadWeights(*backend, folder / "graph.qtp", record, side);
    std::vector<Entry> entries;
    const auto indptr = topology->indptr(side);
    ASSERT_EQ(indptr.size(), which.nodes + 1);
    for (uint64_t list = 0; list < which.nodes; list++) {
      for (uint64_t i = indptr[list]; i < indptr[list + 1]; i++) {
        entries.emplace_back(list, topology->indices(side)[i], relations[i], weights[i]);
      }
    }
    EXPECT_TRUE(entries == Oracle(edges, which, side));
  }
}

TEST(TopologyBuilderTest, AgreesWithASortedListOfEdges) {
  for (const BuildCase& which : {
           BuildCase{.name = "no edges", .nodes = 5, .edges = 0},
           BuildCase{.name = "no edges both ways", .nodes = 5, .edges = 0, .csr = true},
           BuildCase{.name = "one node", .nodes = 1, .edges = 3},
           BuildCase{.name = "plain", .nodes = 1000, .edges = 20'000},
           BuildCase{.name = "both directions", .nodes = 1000, .edges = 20'000, .csr = true},
           BuildCase{.name = "deduplicated", .nodes = 100, .edges = 20'000, .csr = true, .deduplicate = true},
           BuildCase{.name = "undirected", .nodes = 300, .edges = 20'000, .csr = true, .undirected = true},
           BuildCase{.name = "typed", .nodes = 500, .edges = 20'000, .relations = 3, .csr = true},
           BuildCase{
               .name = "typed, undirected", .nodes = 99, .edges = 20'000, .relations = 3, .undirected = true},
           BuildCase{
               .name = "two-byte relations", .nodes = 500, .edges = 20'000, .relations = 300, .csr = true},
           BuildCase{.name = "no edges, weighted", .nodes = 5, .edges = 0, .weighted = true},
           BuildCase{.name = "weighted", .nodes = 300, .edges = 20'000, .csr = true, .weighted = true},
           BuildCase{.name = "weighted, deduplicated",
           .nodes = 100,
           .edges = 20'000,
           .csr = true,
           .deduplicate = true,
           .weighted = true},
           BuildCase{.name = "weighted, undirected",
           .nodes = 300,
           .edges = 20'000,
           .csr = true,
           .undirected = true,
           .weighted = true},
           BuildCase{.name = "weighted, typed, undirected",
           .nodes = 99,
           .edges = 20'000,
           .relations = 3,
           .undirected = true,
           .weighted = true},
           BuildCase{
               .name = "weighted, typed", .nodes = 500, .edges = 20'000, .relations = 300, .weighted = true},
       }) {
    for (const uint64_t seed : {1, 2}) ExpectBuilds(which, seed);
  }
}

TEST(TopologyBuilderTest, AgreesWhenEdgesAndIndptrExceedTheMemory) {
  ExpectBuilds({.name = "spilled", .nodes = 400'000, .edges = 1'500'000, .csr = true}, 1);
  ExpectBuilds({.name = "spilled, undirected", .nodes = 300'000, .edges = 900'000, .undirected = true}, 2);
  ExpectBuilds({.name = "spilled, typed", .nodes = 300'000, .edges = 700'000, .relations = 2}, 3);
  ExpectBuilds(
      {.name = "spilled, weighted", .nodes = 2000, .edges = 700'000, .undirected = true, .weighted = true},
      4);
}

TEST(TopologyBuilderTest, EdgesWithoutAWeightWeighOneWhereOthersHaveOne) {
  const TemporaryFolder folder("topology");
  const auto backend = MakeThreadBackend(1);
  auto builder = TopologyBuilder::Create(*backend, {.weighted = true, .scratch_directory = folder.path()});
  const Edge edges[] = {{0, 0}, {1, 0}};
  ASSERT_OK((*builder)->Add(std::span(edges).first(1), 0));
  ASSERT_OK((*builder)->Add(std::span(edges).last(1), 0, std::array{-2.5f}));
  ASSERT_OK_AND_ASSIGN(const auto record, (*builder)->Finish(folder / "graph.qtp", 2, kId, 1));
  EXPECT_THAT(ReadWeights(*backend, folder / "graph.qtp", record, Adjacency::kCsc),
              testing::ElementsAre(1, -2.5));
}

TEST(TopologyBuilderTest, ASumThatAFloatCannotHoldIsRefused) {
  const TemporaryFolder folder("topology");
  const auto backend = MakeThreadBackend(1);
  auto builder = TopologyBuilder::Create(
      *backend, {.deduplicate = true, .weighted = true, .scratch_directory = folder.path()});
  const Edge edges[] = {{3, 7}, {3, 7}};
  ASSERT_OK((*builder)->Add(edges, 0, std::array{3e38f, 1e38f}));
  const Status status = (*builder)->Finish(folder / "graph.qtp", 8, kId, 1).status();
  EXPECT_THAT(status, IsStatus(Code::kInvalidArgument));
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr("edges from node 3 to node 7 add up to 3.99"));
}

TEST(TopologyBuilderTest, SaysTheLeastMemory) {
  const auto backend = MakeThreadBackend(1);
  const Status status = TopologyBuilder::Create(*backend, {.memory_bytes = 1 * kMiB}).status();
  EXPECT_THAT(status, IsStatus(Code::kOutOfBudget, testing::HasSubstr("16.0 MiB")));
}

}  // namespace
}  // namespace quarry
