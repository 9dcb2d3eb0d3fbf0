// Verbs that read change nothing of a database, whatever is wrong with it: no file is removed, and no byte of
// one is another (but for LOCK, which says who has it open).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

#include "quarry_process.h"
#include "support/file_text.h"
#include "support/flip_byte.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing_util::FlipByte;
using testing_util::UsedLogBytes;

constexpr int kCorruption = 3;
constexpr const char* kReadingVerbs[] = {
    "info db",
    "stats db",
    "verify db",
    "verify db --json",
    "verify db --repair --dry-run",
    "repair db --dry-run",
    "upgrade db --dry-run",
    "layout list db",
    "export db ../exported",
    "checkpoint db ../copy",
};

class ReadingVerbsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = MakeGeneratedDatabase("quarry-reading", "--nodes 400 --degree 4 --dim 16 --classes 3 --seed 5");
    // A database whose server was killed: acknowledged commits are in its log alone.
    fs::create_directory(folder_ / "run");
    fs::permissions(folder_ / "run", fs::perms::owner_all);
    const Process server("serve db --socket run/q.sock", folder_);
    WriteLabels(folder_ / "ids.npy", folder_ / "labels.npy");
    int acknowledged = 0;
    for (int i = 0; i < 1000 && acknowledged < 4; ++i) {
      const Outcome put = Process("put unix:run/q.sock --ids ids.npy --labels labels.npy", folder_).Wait();
      acknowledged += put.exit_code == 0 ? 1 : 0;
    }
    ASSERT_EQ(acknowledged, 4);
    server.Signal(SIGKILL);
    server.Wait();
    fs::remove_all(folder_ / "run");
  }
  static void TearDownTestSuite() { fs::remove_all(folder_); }

  static void WriteLabels(const fs::path& ids, const fs::path& labels) {
    const auto write = [](const fs::path& path, int64_t value) {
      std::string header = "{'descr': '<i8', 'fortran_order': False, 'shape': (1,), }";
      header.resize(117, ' ');
      header += '\n';
      std::ofstream file(path, std::ios::binary);
      file << std::string("\x93NUMPY\x01\x00", 8) << static_cast<char>(header.size()) << '\0' << header;
      file.write(reinterpret_cast<const char*>(&value), sizeof(value));
    };
    write(ids, 7);
    write(labels, 1);
  }

  // A copy of it, in a folder of its own.
  fs::path Fresh() const {
    const fs::path place = folder_ / testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(place);
    fs::create_directories(place);
    fs::copy(folder_ / "db", place / "db", fs::copy_options::recursive);
    return place;
  }

  static std::map<std::string, std::string> Everything(const fs::path& database) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(database)) {
      const std::string name = fs::relative(entry.path(), database);
      if (name != "LOCK") files[name] = entry.is_regular_file() ? testing_util::FileText(entry.path()) : "";
    }
    return files;
  }

  // Damages a fresh database, and looks at it by every verb that reads. Returns the exit code of verify.
  int Look(const std::function<void(const fs::path&)>& damage) const {
    const fs::path place = Fresh();
    damage(place / "db");
    const auto before = Everything(place / "db");
    int verified = -1;
    for (const std::string arguments : kReadingVerbs) {
      SCOPED_TRACE(arguments);
      for (const char* made : {"exported", "copy"}) fs::remove_all(place.parent_path() / made);
      const Outcome outcome = Process(arguments, place).Wait();
      EXPECT_THAT(outcome.exit_code, testing::AnyOf(0, 1, kCorruption)) << outcome.err;
      if (arguments == "verify db") verified = outcome.exit_code;
      const auto after = Everything(place / "db");
      for (const auto& [name, bytes] : before) {
        const auto found = after.find(name);
        EXPECT_TRUE(found != after.end()) << name << " was removed";
        EXPECT_TRUE(found == after.end() || found->second == bytes) << name << " was changed";
      }
      EXPECT_EQ(before.size(), after.size()) << "files were made";
    }
    const Outcome query = Process("sql db SELECT\ncount(*)\nFROM\nnodes", place).Wait();
    EXPECT_THAT(query.exit_code, testing::AnyOf(0, 1, 2, kCorruption)) << query.err;
    EXPECT_TRUE(Everything(place / "db") == before) << "by sql";
    return verified;
  }

  static fs::path FileOf(const fs::path& database, const std::string& prefix, const std::string& suffix) {
    for (const auto& entry : fs::directory_iterator(database / "catalog")) {
      const std::string name = entry.path().filename();
      if (name.starts_with(prefix) && name.ends_with(suffix) && entry.file_size() > 0) return entry.path();
    }
    ADD_FAILURE() << "no " << prefix << "*" << suffix;
    return {};
  }

  static inline fs::path folder_;
};

TEST_F(ReadingVerbsTest, OfASoundDatabase) {
  EXPECT_EQ(Look([](const fs::path&) {}), 0);
}

TEST_F(ReadingVerbsTest, WhereCommandsWereInterrupted) {
  EXPECT_EQ(Look([](const fs::path& database) {
              fs::copy(database / "features/feature-1.qft", database / "features/feature-2.qft");
              fs::create_directories(database / "training");
              std::ofstream(database / "training/9.qts") << "state";
              fs::create_directories(database / "layouts/default-3");
              fs::create_directories(database / "layouts/default.passing");
              fs::create_directories(database / "layouts/other.building");
            }),
            0)
      << "leftovers are no faults";
}

TEST_F(ReadingVerbsTest, WithABitOfTheLogFlipped) {
  for (const uint64_t place : {100, 300, 500}) {
    EXPECT_EQ(Look([&](const fs::path& database) { FlipByte(FileOf(database, "", ".log"), place, 4); }),
              kCorruption);
  }
}

TEST_F(ReadingVerbsTest, WithTheLogCutOffOrRemoved) {
  EXPECT_EQ(Look([](const fs::path& database) {
              const fs::path log = FileOf(database, "", ".log");
              fs::resize_file(log, UsedLogBytes(log) / 2);
            }),
            kCorruption);
  EXPECT_EQ(Look([](const fs::path& database) { fs::remove(FileOf(database, "", ".log")); }), kCorruption);
}

TEST_F(ReadingVerbsTest, WithAShorterManifestOrWithoutOne) {
  EXPECT_EQ(Look([](const fs::path& database) {
              const fs::path manifest = FileOf(database, "MANIFEST-", "");
              fs::resize_file(manifest, fs::file_size(manifest) / 2);
            }),
            kCorruption);
  EXPECT_EQ(Look([](const fs::path& database) { fs::remove(FileOf(database, "MANIFEST-", "")); }),
            kCorruption);
}

TEST_F(ReadingVerbsTest, WithoutAnchor) {
  EXPECT_EQ(Look([](const fs::path& database) { fs::remove(database / "ANCHOR"); }), kCorruption);
}

// What an older manifest beside newer files looks like: the newer one is the only copy of its rows. No verb
// removes it, and none that writes either.
TEST_F(ReadingVerbsTest, WhereANewerFileIsTheOnlyCopy) {
  const auto damage = [](const fs::path& database) {
    fs::rename(database / "features/feature-1.qft", database / "features/feature-2.qft");
  };
  EXPECT_EQ(Look(damage), kCorruption);
  const fs::path place = Fresh();
  damage(place / "db");
  WriteLabels(place / "ids.npy", place / "labels.npy");
  for (const std::string arguments : {"put db --ids ids.npy --labels labels.npy", "compact db --table label",
                                      "repair db", "compact db", "repair db --drop-damaged"}) {
    Process(arguments, place).Wait();
    EXPECT_TRUE(fs::exists(place / "db/features/feature-2.qft")) << arguments;
  }
}

}  // namespace
}  // namespace quarry
