#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>

#include "quarry/base/units.h"
#include "quarry/verify/verify.h"
#include "storage/small_store.h"
#include "support/fault_backend.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing_util::Medium;
using testing_util::SmallStore;

std::string FaultsOf(const VerifyReport& report) {
  std::string text;
  for (const Status& fault : report.faults) {
    EXPECT_EQ(fault.code(), Code::kCorruption);
    text += std::string(fault.message()) + "\n";
  }
  return text;
}

// Writes a database changed by `change`, and returns what verify finds.
std::string FaultsAfter(
    const std::function<void(SmallStore&)>& change,
    const std::function<void(SmallStore&)>& damage = [](SmallStore&) {}) {
  const auto backend = MakeDefaultBackend();
  SmallStore small(*backend, Medium::kMemory);
  change(small);
  const Status status = small.Write();
  EXPECT_OK(status);
  damage(small);
  const auto store = Store::Open(*backend, small.path()).value();
  return FaultsOf(VerifyStore(*store, {}).value());
}

void SetLabel(SmallStore& small, uint64_t node, int64_t label) {
  std::memcpy(&small.FindTable("label").rows[node * sizeof(int64_t)], &label, sizeof(label));
}

TEST(VerifyTest, ASoundDatabaseHasNoFaultsAndEveryByteIsRead) {
  const auto backend = MakeDefaultBackend();
  SmallStore small(*backend, Medium::kMemory);
  ASSERT_OK(small.Write());
  const auto store = Store::Open(*backend, small.path()).value();
  uint64_t done_last = 0;
  uint64_t total_last = 0;
  const VerifyReport report = VerifyStore(*store, [&](std::string_view, uint64_t done, uint64_t total) {
                                EXPECT_GE(done, done_last);
                                done_last = done;
                                total_last = total;
                                return Status::Ok();
                              }).value();
  EXPECT_EQ(FaultsOf(report), "");
  EXPECT_EQ(report.files, small.tables.size() + 1);
  uint64_t bytes = 0;
  for (const char* folder : {"/features", "/topology"}) {
    for (const auto& entry : fs::directory_iterator(small.path() + folder)) bytes += entry.file_size();
  }
  EXPECT_EQ(report.bytes, bytes);
  EXPECT_EQ(done_last, bytes);
  EXPECT_EQ(total_last, bytes);
}

TEST(VerifyTest, LabelsAndSplitsMustBeInRange) {
  EXPECT_THAT(FaultsAfter([](SmallStore& s) { SetLabel(s, 550, 5); }),
              HasSubstr("label-1.qft: the label of node 550 is 5, and there are 5 classes"));
  EXPECT_THAT(FaultsAfter([](SmallStore& s) { SetLabel(s, 3, -2); }), HasSubstr("the label of node 3 is -2"));
  EXPECT_THAT(FaultsAfter([](SmallStore& s) { s.manifest.class_count = 9; }),
              HasSubstr("the largest label is 4, and the catalog says 9 classes"));
  EXPECT_THAT(FaultsAfter([](SmallStore& s) { s.FindTable("split").rows[77] = std::byte{4}; }),
              HasSubstr("split-1.qft: the split of node 77 is 4"));
}

TEST(VerifyTest, IndptrMustAscendFromZeroToTheEdgeCount) {
  EXPECT_THAT(FaultsAfter([](SmallStore& s) { s.csc.indptr[0] = 1; }), HasSubstr("csc_indptr[0] = 1"));
  EXPECT_THAT(FaultsAfter([](SmallStore& s) { s.csr.indptr[300] = 1 << 20; }), HasSubstr("csr_indptr[301]"));
  EXPECT_THAT(FaultsAfter([](SmallStore& s) { s.csc.indptr.back() += 1; }),
              HasSubstr("csc_indptr ends with 9001, and there are 9000 edges"));
}

TEST(VerifyTest, IndicesMustAscendAndBeInRange) {
  EXPECT_THAT(FaultsAfter([](SmallStore& s) { s.csc.indices[5000] = 600; }),
              HasSubstr("is 600, and there are 600 nodes"));
  const auto swap = [](SmallStore& s) {
    std::swap(s.csr.indices[s.csr.indptr[9]], s.csr.indices[s.csr.indptr[9] + 1]);
  };
  EXPECT_THAT(FaultsAfter(swap), HasSubstr("of node 9 is"));
  const auto repeat = [](SmallStore& s) {
    s.csr.indices[s.csr.indptr[9] + 1] = s.csr.indices[s.csr.indptr[9]];
  };
  EXPECT_THAT(FaultsAfter(repeat), HasSubstr("lists ascend without duplicates"));
  // Parallel edges are sound where the graph was not deduplicated.
  EXPECT_EQ(FaultsAfter([&](SmallStore& s) {
              repeat(s);
              s.graph.deduplicated = false;
            }),
            "");
  // Where equal edges are one, those of other relations are others.
  const auto repeat_as = [&](uint32_t relation) {
    return FaultsAfter([&](SmallStore& s) {
      repeat(s);
      s.graph.deduplicated = false;
      s.graph.distinct = true;
      s.csr.relations[s.csr.indptr[9]] = 1;
      s.csr.relations[s.csr.indptr[9] + 1] = static_cast<uint8_t>(relation);
    });
  };
  EXPECT_EQ(repeat_as(2), "");
  EXPECT_THAT(repeat_as(1), HasSubstr("lists ascend without duplicates"));
}

TEST(VerifyTest, RelationsMustBeInRange) {
  EXPECT_THAT(FaultsAfter([](SmallStore& s) { s.csc.relations[4321] = 3; }),
              HasSubstr("csc_relations[4321] = 3, and there are 3 relations"));
  EXPECT_THAT(FaultsAfter([](SmallStore& s) { s.graph.relation_count = 4; }),
              HasSubstr("3 relation names for 4"));
}

TEST(VerifyTest, WeightsMustBeFiniteAndThere) {
  EXPECT_THAT(
      FaultsAfter([](SmallStore& s) { s.csr.weights[8999] = std::numeric_limits<float>::quiet_NaN(); }),
      HasSubstr("csr_weights[8999] is nan, and weights are finite"));
  EXPECT_THAT(FaultsAfter([](SmallStore& s) { s.csc.weights[0] = -std::numeric_limits<float>::infinity(); }),
              HasSubstr("csc_weights[0] is -inf"));
  EXPECT_THAT(FaultsAfter([](SmallStore& s) { s.csc.weights.pop_back(); }), HasSubstr("csc_weights"));
  // A database of before there were weights.
  EXPECT_EQ(FaultsAfter([](SmallStore& s) { s.graph.weighted = false; }), "");
}

TEST(VerifyTest, CountsMustEqualTheCatalogs) {
  EXPECT_THAT(FaultsAfter([](SmallStore& s) { s.manifest.node_count = 601; }),
              HasSubstr("600 rows, and the catalog says 601 nodes"));
  EXPECT_THAT(FaultsAfter([](SmallStore& s) { s.graph.edge_count = 8999; }), HasSubstr("csc_indices"));
  EXPECT_THAT(FaultsAfter([](SmallStore& s) { s.manifest.has_entity_names = true; }),
              HasSubstr("0 entity names for 600"));
}

TEST(VerifyTest, StrayAndMissingAndExchangedFilesAreReported) {
  const auto nothing = [](SmallStore&) {};
  EXPECT_THAT(
      FaultsAfter(nothing,
                  [](SmallStore& s) { std::ofstream(s.path() + "/features/feature-old.qft") << "old"; }),
      HasSubstr("features/feature-old.qft: the catalog names no such file"));
  EXPECT_THAT(FaultsAfter(nothing, [](SmallStore& s) { std::ofstream(s.path() + "/topology/x") << "x"; }),
              HasSubstr("topology/x: the catalog names no such file"));
  EXPECT_THAT(FaultsAfter(nothing, [](SmallStore& s) { fs::remove(s.path() + "/features/wide-1.qft"); }),
              HasSubstr("wide-1.qft: the catalog names this file, and it is missing"));
  EXPECT_THAT(FaultsAfter(nothing,
                          [](SmallStore& s) {
                            fs::rename(s.path() + "/features/wide-1.qft", s.path() + "/t");
                            fs::rename(s.path() + "/features/padded-1.qft",
                                       s.path() + "/features/wide-1.qft");
                            fs::rename(s.path() + "/t", s.path() + "/features/padded-1.qft");
                          }),
              HasSubstr("bytes where the catalog says"));
}

// Beside the database's own folders, where anything may have been put.
TEST(VerifyTest, WhatLiesInTheRootAndIsNotOursIsReported) {
  const auto nothing = [](SmallStore&) {};
  EXPECT_THAT(FaultsAfter(nothing, [](SmallStore& s) { std::ofstream(s.path() + "/notes.txt") << "x"; }),
              HasSubstr("/notes.txt: no such file belongs to a database"));
  EXPECT_THAT(FaultsAfter(nothing, [](SmallStore& s) { fs::create_directory(s.path() + "/graph"); }),
              HasSubstr("/graph: no such folder belongs to a database"));
  EXPECT_EQ(FaultsAfter(nothing,
                        [](SmallStore& s) {
                          fs::create_directory(s.path() + "/catalog.damaged");
                          fs::create_directory(s.path() + "/catalog.repairing");
                          fs::create_directory(s.path() + "/embeddings");
                        }),
            "");
}

TEST(VerifyTest, TheVersionIsLookedAtAgain) {
  const auto backend = MakeDefaultBackend();
  SmallStore small(*backend, Medium::kMemory);
  ASSERT_OK(small.Write());
  const auto store = Store::Open(*backend, small.path()).value();
  const std::string path = small.path() + "/VERSION";
  for (const char* text : {"quarry 7\n", "quarrx 1\n"}) {
    std::ofstream(path) << text;
    EXPECT_THAT(FaultsOf(VerifyStore(*store, {}).value()), HasSubstr(path)) << text;
  }
  fs::remove(path);
  EXPECT_THAT(FaultsOf(VerifyStore(*store, {}).value()), HasSubstr(path));
}

TEST(VerifyTest, TheCallersProgressFunctionCanStopIt) {
  const auto backend = MakeDefaultBackend();
  SmallStore small(*backend, Medium::kMemory);
  ASSERT_OK(small.Write());
  const auto store = Store::Open(*backend, small.path()).value();
  const auto result = VerifyStore(
      *store, [](std::string_view, uint64_t, uint64_t) { return MakeStatus(Code::kCancelled, "enough"); });
  EXPECT_EQ(result.status().code(), Code::kCancelled);
}

TEST(VerifyTest, AReadErrorIsAnErrorAndNotAFault) {
  const auto backend = MakeDefaultBackend();
  SmallStore small(*backend, Medium::kMemory);
  ASSERT_OK(small.Write());
  FaultBackend faulty(*backend);
  const auto store = Store::Open(faulty, small.path()).value();
  for (uint64_t at = 1; at < 500; at += 7) {
    faulty.SetPlans({{.kind = FaultKind::kRead, .at = at, .error = EIO}});
    const uint64_t strikes = faulty.strikes();
    const auto result = VerifyStore(*store, {});
    if (faulty.strikes() == strikes) {
      EXPECT_OK(result);
      EXPECT_GT(at, 20u);
      return;
    }
    ASSERT_EQ(result.status().code(), Code::kIoError) << at;
  }
}

// What a changed byte in a data file leads to, through the readers: errors, or the true contents.
void ExpectNoWrongData(Store& store, const SmallStore& small, const std::string& file) {
  for (const SmallStore::Table& expected : small.tables) {
    if (!file.ends_with(expected.record.file)) continue;
    const auto table = store.OpenTable(expected.record.name);
    if (!table.ok()) continue;
    std::vector<std::byte> rows(expected.rows.size());
    if ((*table)->ReadRows(store.backend(), 0, SmallStore::kNodes, rows).ok()) {
      EXPECT_EQ(rows, expected.rows);
    }
  }
  if (!file.ends_with(small.graph.file)) return;
  const auto topology = store.OpenTopology("graph");
  if (!topology.ok()) return;
  for (const Adjacency side : {Adjacency::kCsc, Adjacency::kCsr}) {
    const auto& expected = side == Adjacency::kCsc ? small.csc : small.csr;
    EXPECT_TRUE(std::ranges::equal((*topology)->indptr(side), expected.indptr));
    if ((*topology)->LoadIndices(store.backend(), side).ok()) {
      EXPECT_TRUE(std::ranges::equal((*topology)->indices(side), expected.indices));
    }
  }
}

void FlipByte(const std::string& path, uint64_t offset, std::byte mask) {
  const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
  std::byte value{};
  ASSERT_EQ(pread(descriptor, &value, 1, static_cast<off_t>(offset)), 1);
  value ^= mask;
  ASSERT_EQ(pwrite(descriptor, &value, 1, static_cast<off_t>(offset)), 1);
  close(descriptor);
}

TEST(VerifyTest, AnyFlippedByteOfADataFileIsFoundAndNeverReturnedAsData) {
  constexpr uint64_t kSeed = 21;
  Rng rng(kSeed);
  const auto backend = MakeDefaultBackend();
  SmallStore small(*backend, Medium::kMemory);
  ASSERT_OK(small.Write());
  const auto store = Store::Open(*backend, small.path()).value();
  std::vector<std::string> files = {small.graph.file};
  for (const auto& table : small.tables) files.push_back(table.record.file);
  for (const std::string& file : files) {
    const std::string path = small.path() + "/" + file;
    const uint64_t bytes = fs::file_size(path);
    std::vector<uint64_t> offsets = {0, 90, kPageBytes - 1, kPageBytes, bytes - 1, bytes - kPageBytes};
    // Half of the flips strike anywhere, half in the last pages: checksums, indptr, footer, padding.
    for (int i = 0; i < 16; ++i) {
      offsets.push_back(rng.Below(bytes));
      offsets.push_back(bytes - 1 - rng.Below(std::min(bytes, 8 * kPageBytes)));
    }
    for (const uint64_t offset : offsets) {
      SCOPED_TRACE(fmt::format("seed {}, {} at {} of {}", kSeed, file, offset, bytes));
      const auto mask = static_cast<std::byte>(1 << rng.Below(8));
      FlipByte(path, offset, mask);
      const std::string faults = FaultsOf(VerifyStore(*store, {}).value());
      EXPECT_THAT(faults, HasSubstr(file));
      EXPECT_THAT(faults, HasSubstr("page "));
      ExpectNoWrongData(*store, small, file);
      FlipByte(path, offset, mask);
    }
  }
  EXPECT_EQ(FaultsOf(VerifyStore(*store, {}).value()), "") << "all flips were undone";
}

TEST(VerifyTest, AFlippedByteOfTheCatalogIsFoundOrHarmless) {
  constexpr uint64_t kSeed = 22;
  Rng rng(kSeed);
  const auto backend = MakeDefaultBackend();
  SmallStore small(*backend, Medium::kMemory);
  ASSERT_OK(small.Write());
  const std::vector<std::byte> manifest = EncodeManifest(small.manifest);
  int found = 0;
  for (const auto& entry : fs::directory_iterator(small.path() + "/catalog")) {
    const std::string path = entry.path();
    for (int i = 0; i < 20 && entry.file_size() > 0; ++i) {
      const uint64_t offset = rng.Below(entry.file_size());
      SCOPED_TRACE(fmt::format("seed {}, {} at {}", kSeed, path, offset));
      FlipByte(path, offset, std::byte{0x10});
      const auto store = Store::Open(*backend, small.path());
      if (!store.ok()) {
        ++found;
      } else {
        EXPECT_EQ(EncodeManifest(*(*store)->manifest()), manifest);
        found += VerifyStore(**store, {}).value().faults.empty() ? 0 : 1;
      }
      FlipByte(path, offset, std::byte{0x10});
    }
  }
  EXPECT_GT(found, 20);
}

}  // namespace
}  // namespace quarry
