// Damage to a catalog against a model of what was committed: whatever is flipped, cut off, zeroed or removed,
// either it is found, or nothing is missing.
//
//   catalog_damage_test --trials=1500     more of each (or QUARRY_TEST_TRIALS=1500); the default is a sample
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>

#include "quarry/base/random.h"
#include "quarry/catalog/catalog.h"
#include "support/file_text.h"
#include "support/flip_byte.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing_util::FlipByte;
using testing_util::UsedLogBytes;

uint64_t trials = 60;

void WriteAll(const fs::path& path, const std::string& bytes) {
  fs::remove(path);
  std::ofstream(path, std::ios::binary) << bytes;
}

// What was committed.
struct Model {
  uint64_t node_count = 0;
  uint64_t timestamp = 0;
  std::map<std::pair<std::string, uint64_t>, std::string> rows;  // (table, row) -> newest
  std::vector<std::string> names;
  bool operator==(const Model&) const = default;
};

Result<Model> ReadModel(Catalog& catalog) {
  Model model;
  QUARRY_TRY(const Manifest manifest, catalog.ReadManifest());
  model.node_count = manifest.node_count;
  QUARRY_TRY(model.timestamp, catalog.LastTimestamp());
  for (const TableRecord& table : manifest.tables) {
    QUARRY_RETURN_IF_ERROR(catalog.ScanVersions(table.name, [&](const RowVersion& version) {
      model.rows.try_emplace({table.name, version.row}, reinterpret_cast<const char*>(version.value.data()),
                             version.value.size());
      return Status::Ok();
    }));
  }
  QUARRY_TRY(const uint64_t count, catalog.VerifyNames(NameKind::kEntity));
  for (uint64_t id = 0; id < count; ++id) {
    QUARRY_TRY(const std::optional<std::string> name, catalog.NameOfId(NameKind::kEntity, id));
    model.names.push_back(name.value_or(""));
  }
  return model;
}

// A catalog with commits in its tables, and, where it was killed, five more in its log.
class CatalogDamageTest : public testing::TestWithParam<bool> {
 protected:
  static constexpr uint64_t kRows = 50'000;  // more than share a tally
  bool killed() const { return GetParam(); }

  void SetUp() override {
    const std::string base = fs::is_directory("/dev/shm") ? "/dev/shm/" : testing::TempDir();
    folder_ = base + "quarry-damage-" + std::to_string(getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_ + "/made");
    const std::string made = folder_ + "/made";
    {
      const auto catalog = Catalog::Create(made).value();
      model_.names = {"a", "b", "c"};
      ASSERT_OK(catalog->PutNames(NameKind::kEntity, 0, model_.names));
      CommitManifest(*catalog, 7);
      Put(*catalog, 3);
      ASSERT_OK(catalog->Close());
    }
    const auto catalog = Catalog::Open(made, /*read_only=*/false).value();
    CommitManifest(*catalog, kRows);
    Put(*catalog, 5);
    if (!killed()) {
      ASSERT_OK(catalog->Close());
    }
    // A copy of a catalog that is open is what a kill leaves: it never sees Close.
    sound_ = folder_ + "/sound";
    fs::copy(made, sound_, fs::copy_options::recursive);
    damaged_ = folder_ + "/damaged";
    Restore();
  }
  void TearDown() override { fs::remove_all(folder_); }

  void CommitManifest(Catalog& catalog, uint64_t node_count) {
    Manifest manifest;
    manifest.node_count = model_.node_count = node_count;
    manifest.tables = {{.name = "feature", .file = "features/feature-1.qft", .row_count = kRows, .dim = 4},
                       {.name = "label", .file = "features/label-1.qft", .row_count = kRows, .dim = 1}};
    ASSERT_OK(catalog.CommitManifest(manifest));
  }
  void Put(Catalog& catalog, int commits) {
    for (int i = 0; i < commits; ++i) {
      ++model_.timestamp;
      std::vector<std::string> values;
      std::vector<RowVersion> versions;
      std::set<uint64_t> rows;
      while (rows.size() < 20) rows.insert(rng_.Below(kRows));
      for (const uint64_t row : rows) {
        values.emplace_back(16, static_cast<char>(rng_.Below(256)));
        model_.rows[{i % 2 == 0 ? "feature" : "label", row}] = values.back();
      }
      size_t at = 0;
      for (const uint64_t row : rows) {
        versions.push_back({i % 2 == 0 ? "feature" : "label", row, model_.timestamp,
                            std::as_bytes(std::span(values[at++]))});
      }
      ASSERT_OK(catalog.PutVersions(versions, /*sync=*/true));
    }
  }

  void Restore() {
    fs::remove_all(damaged_);
    fs::copy(sound_, damaged_, fs::copy_options::recursive);
  }
  std::vector<fs::path> FilesNamed(const std::string& part) const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(damaged_)) {
      if (entry.is_regular_file() && entry.path().filename().string().find(part) != std::string::npos) {
        files.push_back(entry.path());
      }
    }
    std::sort(files.begin(), files.end());
    return files;
  }

  // Whether the damage is found, by opening or by recounting; where it is not, nothing is missing.
  bool Found() {
    const auto catalog = Catalog::Open(damaged_, /*read_only=*/true);
    if (!catalog.ok()) {
      EXPECT_THAT(catalog, IsStatus(Code::kCorruption));
      return true;
    }
    if (!(*catalog)->VerifyChecksums().ok()) return true;
    const auto doubts = (*catalog)->FindDoubts();
    if (!doubts.ok() || !doubts->empty()) return true;
    const auto model = ReadModel(**catalog);
    if (!model.ok()) return true;
    EXPECT_TRUE(*model == model_) << "silent: what was committed is not there, and nobody says so";
    return false;
  }

  std::string folder_, sound_, damaged_;
  Model model_;
  static constexpr uint64_t kSeed = 12;
  Rng rng_{kSeed};
};

TEST_P(CatalogDamageTest, WhatIsSoundOpensAndHoldsWhatWasCommitted) {
  EXPECT_FALSE(Found());
  // And goes on.
  const auto catalog = Catalog::Open(damaged_, /*read_only=*/false).value();
  Put(*catalog, 2);
  EXPECT_TRUE(catalog->FindDoubts().value().empty());
  ASSERT_OK(catalog->Close());
  EXPECT_FALSE(Found());
}

TEST_P(CatalogDamageTest, AFlippedBitOfTheLogIsFoundOrHarmless) {
  uint64_t found = 0, bits = 0;
  for (uint64_t i = 0; i < std::max<uint64_t>(trials, 300 * (trials / 300)); ++i) {
    for (const fs::path& log : FilesNamed(".log")) {
      const uint64_t bytes = UsedLogBytes(log);
      if (bytes == 0) continue;
      const uint64_t at = rng_.Below(bytes);
      const char mask = static_cast<char>(1 << rng_.Below(8));
      SCOPED_TRACE(testing::Message() << "seed " << kSeed << ", " << log << " at " << at);
      FlipByte(log, at, mask);
      found += Found() ? 1 : 0;
      ++bits;
      FlipByte(log, at, mask);
    }
  }
  if (killed()) {
    EXPECT_EQ(found, bits) << "every byte of the log is of a commit, up to its room";
  }
}

TEST_P(CatalogDamageTest, ALogThatIsCutOffIsFound) {
  for (const fs::path& log : FilesNamed(".log")) {
    const std::string bytes = testing_util::FileText(log);
    const uint64_t used = UsedLogBytes(log);
    if (used == 0) continue;
    for (uint64_t i = 0; i < std::max<uint64_t>(40, trials); ++i) {
      const uint64_t length = rng_.Below(used);
      SCOPED_TRACE(testing::Message() << "seed " << kSeed << ", " << log << " cut to " << length);
      WriteAll(log, bytes.substr(0, length));
      EXPECT_TRUE(Found());
    }
    fs::remove(log);
    EXPECT_TRUE(Found()) << "removed";
    WriteAll(log, bytes);
  }
  EXPECT_FALSE(Found());
}

TEST_P(CatalogDamageTest, AManifestThatIsCutOffIsFoundOrHarmless) {
  const fs::path manifest = FilesNamed("MANIFEST-").front();
  const std::string bytes = testing_util::FileText(manifest);
  const uint64_t step = std::max<uint64_t>(1, trials >= 1000 ? 1 : bytes.size() / trials);
  uint64_t found = 0, lengths = 0;
  for (uint64_t length = 0; length < bytes.size(); length += step, ++lengths) {
    SCOPED_TRACE(testing::Message() << manifest << " cut to " << length);
    WriteAll(manifest, bytes.substr(0, length));
    found += Found() ? 1 : 0;
  }
  if (!killed()) {
    EXPECT_EQ(found, lengths) << "the anchor has the digest of what a closed catalog's files hold";
  }
}

TEST_P(CatalogDamageTest, AFlippedBitOfTheManifestIsFoundOrHarmless) {
  const fs::path manifest = FilesNamed("MANIFEST-").front();
  uint64_t found = 0;
  const uint64_t flips = std::min<uint64_t>(std::max<uint64_t>(trials, 1), 1000);
  for (uint64_t i = 0; i < flips; ++i) {
    const uint64_t at = rng_.Below(fs::file_size(manifest));
    const char mask = static_cast<char>(1 << rng_.Below(8));
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << ", " << manifest << " at " << at);
    FlipByte(manifest, at, mask);
    found += Found() ? 1 : 0;
    FlipByte(manifest, at, mask);
  }
  if (!killed()) {
    EXPECT_EQ(found, flips);
  }
}

// Footer, metaindex and the end of the properties, which RocksDB takes apart before it compares checksums.
TEST_P(CatalogDamageTest, AFlippedBitAtTheEndOfATableIsFoundOrHarmless) {
  constexpr uint64_t kEndBytes = 200;
  constexpr unsigned kHighBit = 7;  // tells kinds and lengths apart
  const std::vector<fs::path> tables = FilesNamed(".sst");
  ASSERT_FALSE(tables.empty());
  for (const fs::path& table : tables) {
    const uint64_t bytes = fs::file_size(table);
    for (uint64_t at = bytes - std::min(bytes, kEndBytes); at < bytes; ++at) {
      for (unsigned bit = trials >= 1000 ? 0 : kHighBit; bit <= kHighBit; ++bit) {
        SCOPED_TRACE(testing::Message() << table << " at " << at << " of " << bytes << ", bit " << bit);
        FlipByte(table, at, static_cast<char>(1U << bit));
        Found();
        FlipByte(table, at, static_cast<char>(1U << bit));
      }
    }
  }
}

TEST_P(CatalogDamageTest, TheAnchorIsTwoCopiesAndOneWillDo) {
  const fs::path anchor = damaged_ + "/ANCHOR";
  const std::string bytes = testing_util::FileText(anchor);
  ASSERT_EQ(bytes.size(), 1024u);
  for (const size_t at : {8, 100, 512, 1016}) {
    FlipByte(anchor, at);
    EXPECT_FALSE(Found()) << at;
    FlipByte(anchor, at);
  }
  FlipByte(anchor, 20);
  FlipByte(anchor, 600);
  EXPECT_TRUE(Found()) << "both";
  fs::remove(anchor);
  EXPECT_TRUE(Found()) << "none";
}

TEST_P(CatalogDamageTest, AnOlderCatalogInThePlaceOfANewerOneIsFound) {
  const fs::path older = folder_ + "/older";
  fs::copy(damaged_ + "/catalog", older, fs::copy_options::recursive);
  {
    const auto catalog = Catalog::Open(damaged_, /*read_only=*/false).value();
    Put(*catalog, 1);
    ASSERT_OK(catalog->Close());
  }
  fs::remove_all(damaged_ + "/catalog");
  fs::rename(older, damaged_ + "/catalog");
  const Status status = Catalog::Open(damaged_, /*read_only=*/true).status();
  EXPECT_THAT(status, IsStatus(Code::kCorruption, HasSubstr("commits are missing")));
}

// A disk that lost its power has any of the sectors that were not synced, and zeros in the place of others.
TEST(CatalogTailTest, WhatIsLeftOfUnsyncedCommitsIsAPrefix) {
  const std::string base = fs::is_directory("/dev/shm") ? "/dev/shm/" : testing::TempDir();
  const std::string folder = base + "quarry-tail-" + std::to_string(getpid());
  fs::remove_all(folder);
  fs::create_directories(folder + "/made");
  constexpr uint64_t kCommits = 500, kSector = 512, kSeed = 5;
  const auto catalog = Catalog::Create(folder + "/made").value();
  Manifest manifest;
  manifest.tables = {
      {.name = "feature", .file = "features/feature-1.qft", .row_count = kCommits + 1, .dim = 100}};
  ASSERT_OK(catalog->CommitManifest(manifest));
  const auto log_of = [&](const std::string& of) {
    for (const auto& entry : fs::directory_iterator(of + "/catalog")) {
      if (entry.path().extension() == ".log" && UsedLogBytes(entry.path()) > 0) return entry.path();
    }
    return fs::path();
  };
  const auto used = [&] { return UsedLogBytes(log_of(folder + "/made")); };
  const uint64_t synced = used();
  const auto commit = [&](uint64_t i, uint64_t value_bytes) {
    const std::string value(value_bytes, 'v');
    const RowVersion version{"feature", i, i, std::as_bytes(std::span(value))};
    ASSERT_OK(catalog->PutVersions(std::span(&version, 1), /*sync=*/false));
  };
  // The worst case for who reads the log: its blocks of 32 KiB end with commits and begin with commits, so
  // that what is behind a hole looks as if it followed on what is before it.
  constexpr uint64_t kCommitBytes = 1024, kSomeBytes = 400;
  commit(1, kSomeBytes);
  const uint64_t around = used() - synced - kSomeBytes;  // a value of as many digits in its length
  commit(2, 2 * kCommitBytes - used() % kCommitBytes - around);
  for (uint64_t i = 3; i <= kCommits; ++i) commit(i, kCommitBytes - around);
  const std::string bytes = testing_util::FileText(log_of(folder + "/made"));
  ASSERT_EQ(used() % kCommitBytes, 0u);
  const uint64_t first_sector = (synced + kSector - 1) / kSector, sectors = used() / kSector;
  ASSERT_GT(sectors, 300u);
  Rng rng(kSeed);
  uint64_t shorter = 0;
  for (uint64_t trial = 0; trial < std::max<uint64_t>(trials, 200); ++trial) {
    const std::string copy = folder + "/copy";
    fs::remove_all(copy);
    fs::copy(folder + "/made", copy, fs::copy_options::recursive);
    std::string left = bytes;
    std::string lost;
    for (uint64_t hole = 0; hole <= rng.Below(3); ++hole) {
      const uint64_t from = first_sector + rng.Below(sectors - first_sector);
      const uint64_t count = std::min(sectors - from, uint64_t{1} << rng.Below(8));
      std::fill_n(left.begin() + static_cast<ptrdiff_t>(from * kSector), count * kSector, '\0');
      lost += fmt::format(" {}+{}", from, count);
    }
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << ", trial " << trial << ", sectors" << lost);
    WriteAll(log_of(copy), left);
    for (const bool read_only : {true, false, true}) {
      ASSERT_OK_AND_ASSIGN(const auto opened, Catalog::Open(copy, read_only));
      EXPECT_TRUE(opened->FindDoubts().value().empty());
      const Model model = ReadModel(*opened).value();
      EXPECT_EQ(model.rows.size(), model.timestamp);
      for (uint64_t row = 1; row <= model.timestamp; ++row) {
        ASSERT_TRUE(model.rows.contains({"feature", row})) << row << " of " << model.timestamp;
      }
      shorter += model.timestamp < kCommits ? 1 : 0;
      ASSERT_OK(opened->Close());
    }
  }
  EXPECT_GT(shorter, 0u);
  ASSERT_OK(catalog->Close());
  fs::remove_all(folder);
}

// Flips, cuts, zeroes or removes one or two files of the catalog.
std::string DamageSomething(Rng& rng, const std::vector<fs::path>& files) {
  std::string what;
  const uint64_t count = 1 + rng.Below(2);
  for (uint64_t i = 0; i < count; ++i) {
    const fs::path& file = files[rng.Below(files.size())];
    std::string bytes = testing_util::FileText(file);
    const uint64_t kind = bytes.empty() ? 3 : rng.Below(4);
    what += file.filename().string() + std::array{" flipped; ", " cut; ", " zeroed; ", " removed; "}[kind];
    if (kind == 3) {
      fs::remove(file);
      continue;
    }
    const uint64_t at = rng.Below(bytes.size());
    if (kind == 0) bytes[at] = static_cast<char>(bytes[at] ^ (1 << rng.Below(8)));
    if (kind == 1) bytes.resize(at);
    if (kind == 2) std::fill_n(bytes.begin() + at, std::min<uint64_t>(bytes.size() - at, 64), '\0');
    WriteAll(file, bytes);
  }
  return what;
}

TEST_P(CatalogDamageTest, WhatASalvageCallsWholeIsWhole) {
  uint64_t whole = 0, doubted = 0, refused = 0, harmless = 0;
  const std::string salvaged = folder_ + "/salvaged";
  for (uint64_t i = 0; i < trials; ++i) {
    Restore();
    const std::string what = DamageSomething(rng_, FilesNamed(""));
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << ", trial " << i << ": " << what);
    if (!Found()) {
      ++harmless;
      continue;
    }
    fs::remove_all(salvaged);
    fs::create_directory(salvaged);
    const auto result = Catalog::Salvage(damaged_, salvaged);
    if (!result.ok()) {
      ++refused;
      continue;
    }
    ASSERT_OK_AND_ASSIGN(const auto catalog, Catalog::Open(salvaged, /*read_only=*/true));
    const std::vector<Doubt> doubts = catalog->FindDoubts().value();
    EXPECT_EQ(doubts.empty(), result->doubts.empty());
    const Model model = ReadModel(*catalog).value();
    if (result->doubts.empty()) {
      ++whole;
      EXPECT_TRUE(model == model_);
      continue;
    }
    ++doubted;
    // Rows that nobody doubts are as they were committed.
    for (const auto& [key, value] : model_.rows) {
      const bool in_doubt = std::ranges::any_of(doubts, [&](const Doubt& doubt) {
        return doubt.table == key.first && key.second >= doubt.first_row &&
               key.second < doubt.first_row + doubt.row_count;
      });
      const auto found = model.rows.find(key);
      if (!in_doubt) {
        EXPECT_TRUE(found != model.rows.end() && found->second == value) << key.second;
      }
    }
    // Timestamps that were handed out are not handed out again.
    if (fs::exists(damaged_ + "/ANCHOR") && what.find("ANCHOR") == std::string::npos) {
      EXPECT_GE(model.timestamp, model_.timestamp);
    }
  }
  std::printf("salvage: %lu whole, %lu with doubts, %lu without a manifest, %lu times nothing was missing\n",
              whole, doubted, refused, harmless);
  EXPECT_GT(doubted, 0u);
}

INSTANTIATE_TEST_SUITE_P(Closed, CatalogDamageTest, testing::Values(false),
                         [](const auto&) { return "AfterAClose"; });
INSTANTIATE_TEST_SUITE_P(Killed, CatalogDamageTest, testing::Values(true),
                         [](const auto&) { return "AfterAKill"; });

void SetTrials(std::string_view text) { std::from_chars(text.data(), text.data() + text.size(), trials); }

}  // namespace
}  // namespace quarry

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (const char* text = std::getenv("QUARRY_TEST_TRIALS")) quarry::SetTrials(text);
  constexpr std::string_view kTrials = "--trials=";
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with(kTrials)) quarry::SetTrials(argument.substr(kTrials.size()));
  }
  return RUN_ALL_TESTS();
}
