// Writes the corpus of fuzz_import: the files of published sets, and of each format that `quarry import`
// reads, one set an input.
//
//   build/release/bin/make_import_corpus tests/fuzz/corpus/import
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>

#include "import/packed_files.h"
#include "support/array_files.h"
#include "support/file_text.h"
#include "support/published_sets.h"
#include "support/safetensors_file.h"
#include "support/temporary_folder.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using Write = std::function<void(const TemporaryFolder&)>;

// The form of an input is in fuzz_import.cc.
void Add(const fs::path& corpus, std::string_view name, const Write& write) {
  const TemporaryFolder folder("corpus");
  write(folder);
  std::set<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
    if (entry.is_regular_file()) files.insert(entry.path());
  }
  std::ofstream out(corpus / name, std::ios::binary);
  for (const char* before = ""; const fs::path& file : files) {
    out << before << "=== " << file.lexically_relative(folder.path()).string() << "\n"
        << testing_util::FileText(file.string());
    before = "\n";
  }
}

// Five nodes, as the hints of fuzz_import say, and few edges: what is small is mutated most.
SmallGraph FiveNodes() {
  SmallGraph graph = RandomSmallGraph(1);
  graph.nodes = 5;
  graph.features.resize(graph.nodes * SmallGraph::kDim);
  graph.halves.resize(graph.nodes * SmallGraph::kDim);
  graph.labels.resize(graph.nodes);
  graph.edges.resize(12);
  for (auto* edges : {&graph.edges, &graph.valid, &graph.test}) {
    for (auto& edge : *edges) {
      edge.source %= 5;
      edge.destination %= 5;
    }
  }
  const std::vector<int32_t> splits[] = {{0, 1}, {2}, {3, 4}};
  for (size_t i = 0; i < 3; ++i) graph.splits[i] = splits[i];
  return graph;
}

NpzMembers SparseMembers(const std::string& prefix) {
  return {{prefix + "indptr", NpyVector<int64_t>({0, 2, 2, 3, 3, 4})},
          {prefix + "indices", NpyVector<int32_t>({1, 3, 0, 5})},
          {prefix + "data", NpyVector<float>({1, 2, 3, 4})},
          {prefix + "shape", NpyVector<int64_t>({5, 6})},
          {prefix + "format", NpyHeaderBytes({.descr = "|S3", .shape = {}}) + "csr"}};
}

void AddPublishedSets(const fs::path& corpus) {
  const SmallGraph graph = FiveNodes();
  for (const bool deflate : {false, true}) {
    Add(corpus, fmt::format("papers100m-{}", deflate ? "deflated" : "stored"),
        [&](const auto& folder) { WritePapers100M(folder, graph, deflate); });
  }
  Add(corpus, "mag240m", [&](const auto& folder) { WriteMag240M(folder, graph); });
  for (const bool headerless : {false, true}) {
    Add(corpus, headerless ? "igb-raw" : "igb", [&](const auto& folder) {
      WriteIgb(folder, graph, headerless);
      fs::remove(folder / "processed/paper/node_label_2K.npy");
    });
  }
  Add(corpus, "marius-nodes", [&](const auto& folder) { WriteMariusNodes(folder, graph); });
  Add(corpus, "marius-links", [&](const auto& folder) { WriteMariusLinks<int64_t>(folder, graph, false); });
  Add(corpus, "marius-typed", [&](const auto& folder) { WriteMariusLinks<int32_t>(folder, graph, true); });
  for (const bool typed : {false, true}) {
    Add(corpus, typed ? "ogbl-typed" : "ogbl", [&](const auto& folder) {
      WriteOgbLinks(folder, graph, typed);
      for (const char* name : {"train", "valid", "test"}) {
        WriteNpz(folder, fmt::format("split/time/{}.npz", name), TripleMembers(graph.valid), false);
      }
    });
    Add(corpus, typed ? "ogbl-torch-typed" : "ogbl-torch",
        [&](const auto& folder) { WriteOgbLinks(folder, graph, typed); });
  }
}

void AddArrays(const fs::path& corpus) {
  const std::string edges = NpyEdges({{0, 1}, {4, 2}, {1, 1}});
  Add(corpus, "arrays", [&](const auto& folder) {
    folder.Write("edges.npy", edges);
    folder.Write("features.npy", NpyFile(std::vector<double>(10, 0.5), {5, 2}));
    folder.Write("labels.npy", NpyVector<float>({1, 0, NAN, 2, 1}));
    folder.Write("train_mask.npy", NpyVector<uint8_t>({1, 1, 0, 0, 0}, "|b1"));
    folder.Write("val_idx.npy", NpyVector<uint16_t>({2}));
    folder.Write("metadata.yaml", "num_nodes: 5\nnum_edges: 3\nfeature_dim: 2\nnum_classes: 3\n");
  });
  Add(corpus, "arrays-typed", [&](const auto& folder) {
    folder.Write("edges_cites.npy", edges);
    folder.Write("edges_writes.csv", "# two\n0,1\n1,2\n");
    folder.Write("features.npy", NpyFile(std::vector<uint16_t>(10, 0x3c00), {5, 2}, "<u2", 2));
    folder.Write("metadata.yaml", "relations: [writes, cites]\n");
  });
  Add(corpus, "arrays-raw", [&](const auto& folder) {
    folder.Write("edges.npy", edges);
    folder.Write("features.npy", RawBytes(std::vector<float>(30, 1)));
  });
  Add(corpus, "arrays-csr", [&](const auto& folder) {
    folder.Write("edges.npy", edges);
    for (const auto& [key, bytes] : SparseMembers("")) folder.Write("features_" + key + ".npy", bytes);
    folder.Write("README.txt", "N = 5, D = 6\n");
  });
  Add(corpus, "npy", [&](const auto& folder) { folder.Write("edges.npy", edges); });
  Add(corpus, "npy-empty", [](const auto& folder) {
    folder.Write("edges.npy", NpyFile<int64_t>({}, {2, 0}));
    folder.Write("features.npy", NpyFile<float>({}, {0, 3}));
  });
  for (const bool deflate : {false, true}) {
    Add(corpus, deflate ? "npz-csr-deflated" : "npz-csr",
        [&](const auto& folder) { WriteNpz(folder, "adj.npz", SparseMembers(""), deflate); });
  }
  Add(corpus, "npz-attributes", [](const auto& folder) {
    NpzMembers members = SparseMembers("adj_");
    for (auto& member : SparseMembers("attr_")) members.push_back(std::move(member));
    members.emplace_back("labels", NpyVector<int64_t>({0, 1, 2, 1, 0}));
    WriteNpz(folder, "set.npz", members, false);
  });
}

void AddTensors(const fs::path& corpus) {
  Add(corpus, "safetensors", [](const auto& folder) {
    folder.Write("set.safetensors",
                 SafetensorsFile({{"edge_index", "I64", {2, 2}, RawBytes<int64_t>({0, 1, 2, 4})},
                                  {"x", "BF16", {5, 2}, std::string(20, '\1')},
                                  {"y", "I32", {5}, RawBytes<int32_t>({0, 1, 2, 1, -1})},
                                  {"train_mask", "BOOL", {5}, std::string("\1\0\1\0\0", 5)}}));
  });
  Add(corpus, "safetensors-scaled", [](const auto& folder) {
    folder.Write("edges.npy", NpyEdges({{0, 1}}));
    folder.Write("features.safetensors",
                 SafetensorsFile({{"features", "I8", {5, 4}, std::string(20, '\2')},
                                  {"scales", "F32", {5}, RawBytes<float>({1, 2, 3, 4, 5})}}));
  });
}

// As torch itself wrote them.
void AddTorchFiles(const fs::path& corpus) {
  for (const char* name : {"graph_legacy", "graph_zip", "legacy2", "legacy5", "zip2", "zip5"}) {
    Add(corpus, fmt::format("torch-{}", name), [&](const auto& folder) {
      folder.Write("set.pt", testing_util::FileText(fmt::format("{}/{}.pt", QUARRY_TORCH_FILES, name)));
    });
  }
}

void AddTexts(const fs::path& corpus) {
  Add(corpus, "csv", [](const auto& folder) {
    folder.Write("edges.csv", "\xef\xbb\xbfsource,destination\r\n0,1\r\n\"4\",2\r\n");
    folder.Write("features.csv", "a;b\n1;2.5\n-1e3;nan\n0;.5\n1;1\n3;inf\n");
    folder.Write("labels.csv", "1\n\n0\n2\n1\n0\n");
    folder.Write("train_idx.csv.gz", Gzip("0\n1\n"));
  });
  Add(corpus, "snap",
      [](const auto& folder) { folder.Write("edges.txt", "# Nodes: 5 Edges: 3\n0\t1\n4\t2\n\n1\t1\n"); });
  Add(corpus, "tsv-gz", [](const auto& folder) { folder.Write("edges.tsv.gz", Gzip("0\t1\n4\t2\n")); });
  Add(corpus, "triples", [](const auto& folder) {
    folder.Write("train.txt", "a\tlikes\tb\nb\tknows\tc\n");
    folder.Write("valid.txt", "c\tlikes\ta\n");
    folder.Write("test.txt", "a\tknows\tc\n");
    folder.Write("entities.dict", "0\ta\n1\tb\n2\tc\n");
    folder.Write("relations.dict", "0\tlikes\n1\tknows\n");
    folder.Write("labels.npy", NpyVector<int64_t>({0, 1, 0}));
  });
}

void AddGraphBolt(const fs::path& corpus) {
  Add(corpus, "graphbolt", [](const auto& folder) {
    folder.Write("metadata.yaml", R"(dataset_name: small
graph:
  nodes: [{num: 5}]
  edges: [{format: csv, path: edges.csv}]
feature_data:
  - {domain: node, name: feat, format: numpy, in_memory: false, path: feat.npy}
tasks:
  - name: node_classification
    num_classes: 4
    train_set:
      - data: [{name: seeds, format: numpy, path: train.npy}, {name: labels, format: numpy, path: y.npy}]
)");
    folder.Write("edges.csv", "0,1\n4,2\n");
    folder.Write("feat.npy", NpyFile(std::vector<float>(10, 1), {5, 2}));
    folder.Write("train.npy", NpyVector<int64_t>({4, 1}));
    folder.Write("y.npy", NpyVector<int64_t>({3, 0}));
  });
  Add(corpus, "graphbolt-typed", [](const auto& folder) {
    folder.Write("metadata.yaml", R"(
graph:
  nodes: [{type: paper, num: 4}]
  edges:
    - {type: "paper:cites:paper", format: numpy, path: cites.npy}
    - {type: "paper:likes:paper", format: csv, path: likes.csv}
)");
    folder.Write("cites.npy", NpyEdges({{0, 1}, {3, 2}}));
    folder.Write("likes.csv", "1,2\n");
  });
}

}  // namespace
}  // namespace quarry

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  const std::filesystem::path corpus = argv[1];
  std::filesystem::create_directories(corpus);
  quarry::AddPublishedSets(corpus);
  quarry::AddArrays(corpus);
  quarry::AddTensors(corpus);
  quarry::AddTorchFiles(corpus);
  quarry::AddTexts(corpus);
  quarry::AddGraphBolt(corpus);
  return 0;
}
