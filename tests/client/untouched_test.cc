// A database that is only read is left as it is, to the last byte and time; so it can be read where nobody may
// write.
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <tuple>

#include "client/query_util.h"
#include "client/store_util.h"
#include "quarry/layout/layout.h"
#include "support/file_text.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using namespace testing_util;  // NOLINT: a test of what it has
using testing::ElementsAre;

constexpr uint64_t kNodes = 600;
constexpr uint64_t kChanged = 7;  // the node whose label was put last
constexpr int64_t kChangedLabel = 4;
constexpr const char* kReadHere = "QUARRY_TEST_READ_HERE";  // the database that a child reads

// Reads by every call of a store that reads. What comes is held against what is known of the database.
void ReadEverything(const std::string& path) {
  auto opened = client::Open(path, {.memory_bytes = 256 * kMiB});
  ASSERT_OK(opened);
  client::Store& store = **opened;
  EXPECT_EQ(store.Describe().value().node_count, kNodes);
  EXPECT_OK(store.Stats());
  {
    const auto snapshot = store.TakeSnapshot();
    ASSERT_OK(snapshot);
    for (const uint64_t as_of : {uint64_t{0}, (*snapshot)->id()}) {
      const auto rows =
          store.Lookup({.table = "label", .ids = std::vector<NodeId>{kChanged}, .snapshot = as_of});
      ASSERT_OK(rows);
      EXPECT_EQ(At<int64_t>((*rows)->bytes(), 0), kChangedLabel);
    }
  }
  const auto block = store.Sample({.seeds = {1, 2, 3}, .fanouts = {4, 3}});
  EXPECT_OK(block);
  EXPECT_EQ(store.ReadEdges("graph", 0, 10).value().size(), 30u);
  EXPECT_EQ(store.ReadTraining("run").status().code(), Code::kNotFound);
  for (const wire::OpenStream& request :
       {SmallStream(), wire::OpenStream{.road = wire::PlannedSpec{.layout = "default"}}}) {
    const auto stream = store.OpenStream(request);
    ASSERT_OK(stream);
    const auto batches = (*stream)->StartPass({.seeds = Split::kTrain});
    ASSERT_OK(batches);
    EXPECT_EQ(DrainPass(**stream).size(), *batches);
  }
  const std::string label = "SELECT label FROM nodes WHERE id = " + std::to_string(kChanged);
  EXPECT_THAT(LinesOf(store.Query(label)), ElementsAre(std::to_string(kChangedLabel)));
  const auto checked = store.Query("SELECT count(*) FROM files WHERE checksum <> 'ok'");
  EXPECT_THAT(LinesOf(checked), ElementsAre("0"));
  // A connection that may write, and does not.
  const auto sql = store.Connect({.write = true});
  ASSERT_OK(sql);
  EXPECT_THAT(LinesOf(**sql, "BEGIN"), ElementsAre());
  EXPECT_THAT(LinesOf(**sql, label), ElementsAre(std::to_string(kChangedLabel)));
  EXPECT_THAT(LinesOf(**sql, "SELECT count(*) FROM edges WHERE src = 3 AND dst < 0"), ElementsAre("0"));
  EXPECT_THAT(LinesOf(**sql, "COMMIT"), ElementsAre());
}

// Mode, time and content of everything in the folder, and of the folder. But for LOCK, which says who has the
// database open.
using Seen = std::tuple<mode_t, int64_t, int64_t, std::string>;
std::map<std::string, Seen> Everything(const std::string& path) {
  std::map<std::string, Seen> files;
  const auto add = [&](const fs::path& file) {
    if (file.filename() == "LOCK") return;
    struct stat stated {};
    ASSERT_EQ(stat(file.c_str(), &stated), 0) << file;
    files[file] = {stated.st_mode, stated.st_mtim.tv_sec, stated.st_mtim.tv_nsec,
                   S_ISREG(stated.st_mode) ? testing_util::FileText(file) : ""};
  };
  add(path);
  for (const auto& entry : fs::recursive_directory_iterator(path)) add(entry.path());
  return files;
}

class UntouchedTest : public testing::Test {
 protected:
  // With a layout, and a commit that only the catalog's log has.
  static void SetUpTestSuite() {
    if (std::getenv(kReadHere) != nullptr) return;
    database_ = new TinyDatabase({.nodes = kNodes});
    {
      const auto backend = MakeDefaultBackend();
      auto store = Store::Open(*backend, path());
      ASSERT_OK(store);
      MemoryBudget budget(256 * kMiB);
      LayoutSpec spec;
      spec.road.fanouts = {4, 3};
      spec.road.batch_size = 32;
      const auto built = BuildLayout(**store, budget, spec, /*resume=*/false, {});
      ASSERT_OK(built);
    }
    auto store = client::Open(path(), {.memory_bytes = 256 * kMiB});
    ASSERT_OK(store);
    const auto put = (*store)->Put({.tables = {RowsToPut("label", {kChanged}, {BytesOf(kChangedLabel)})}});
    ASSERT_OK(put);
  }
  static void TearDownTestSuite() {
    delete database_;
    database_ = nullptr;
  }
  static const std::string& path() { return database_->path(); }

 private:
  static TinyDatabase* database_;
};
TinyDatabase* UntouchedTest::database_ = nullptr;

TEST_F(UntouchedTest, NoByteAndNoTimeOfItChanges) {
  const auto before = Everything(path());
  ReadEverything(path());
  const auto after = Everything(path());
  for (const auto& [file, seen] : before) {
    const auto found = after.find(file);
    ASSERT_TRUE(found != after.end()) << file << " was removed";
    EXPECT_TRUE(found->second == seen) << file << " was changed";
  }
  EXPECT_EQ(before.size(), after.size()) << "files were made";
}

TEST_F(UntouchedTest, AWriteThatFollowsIsThere) {
  auto store = client::Open(path(), {.memory_bytes = 256 * kMiB});
  ASSERT_OK(store);
  const auto sql = (*store)->Connect({.write = true});
  ASSERT_OK(sql);
  const std::string label = "SELECT label FROM nodes WHERE id = 8";
  // Rows that are read while another connection writes for the first time.
  const auto rows = (*store)->Query("SELECT id FROM features");
  ASSERT_OK(rows);
  ASSERT_TRUE((*rows)->Next().value());
  EXPECT_THAT(LinesOf(**sql, "UPDATE nodes SET label = 2 WHERE id = 8"), ElementsAre());
  EXPECT_EQ(LinesOf(**rows).size(), kNodes - 1);
  EXPECT_THAT(LinesOf((*store)->Query(label)), ElementsAre("2"));
}

TEST_F(UntouchedTest, ItCanBeReadOnAReadOnlyMount) {
  const TemporaryFolder place("untouched");
  const std::string here = place / "mounted";
  fs::create_directory(here);
  if (mount(path().c_str(), here.c_str(), nullptr, MS_BIND, nullptr) != 0) {
    GTEST_SKIP() << "no folder can be mounted here (needs root): " << std::strerror(errno);
  }
  if (mount(nullptr, here.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr) == 0) {
    ReadEverything(here);
    auto store = client::Open(here, {.memory_bytes = 256 * kMiB});
    ASSERT_OK(store);
    const auto put = (*store)->Put({.tables = {RowsToPut("label", {kChanged}, {BytesOf(kChangedLabel)})}});
    EXPECT_EQ(put.status().code(), Code::kIoError) << "a write is refused: " << put.status().ToString();
  } else {
    ADD_FAILURE() << "the mount cannot be made read-only: " << std::strerror(errno);
  }
  EXPECT_EQ(umount2(here.c_str(), MNT_DETACH), 0) << std::strerror(errno);
}

// In a child, since a process does not become root again.
TEST_F(UntouchedTest, ItCanBeReadByAUserWhoMayNotWrite) {
  std::map<fs::path, fs::perms> modes = {{path(), fs::status(path()).permissions()}};
  for (const auto& entry : fs::recursive_directory_iterator(path())) {
    modes[entry.path()] = entry.status().permissions();
  }
  for (const auto& [file, mode] : modes) {
    const bool folder = fs::is_directory(file);
    fs::permissions(file, folder ? fs::perms{0555} : fs::perms{0444});
  }
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    constexpr uid_t kNobody = 65534;
    const bool stranger =
        getuid() != 0 || (setgroups(0, nullptr) == 0 && setgid(kNobody) == 0 && setuid(kNobody) == 0);
    if (!stranger || setenv(kReadHere, path().c_str(), 1) != 0) _exit(2);
    execl("/proc/self/exe", "untouched_test", "--gtest_also_run_disabled_tests",
          "--gtest_filter=UntouchedTest.DISABLED_ReadsWhatItIsTold", nullptr);
    _exit(3);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status << "; see above";
  for (const auto& [file, mode] : modes) fs::permissions(file, mode);
}

// What the child does.
TEST_F(UntouchedTest, DISABLED_ReadsWhatItIsTold) {
  const char* const here = std::getenv(kReadHere);
  if (here == nullptr) GTEST_SKIP() << "for the child of another test";
  ASSERT_NE(access((std::string(here) + "/VERSION").c_str(), W_OK), 0) << "it may write";
  ReadEverything(here);
}

}  // namespace
}  // namespace quarry
