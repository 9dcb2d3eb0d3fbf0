// The verbs for whoever looks after a database: info, stats, verify --repair, upgrade, doctor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "cli_database_test.h"
#include "quarry/format/checksum.h"
#include "quarry/format/superblock.h"
#include "support/file_text.h"
#include "support/flip_byte.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

class AdminCliTest : public CliDatabaseTest {
 protected:
  static void SetUpTestSuite() {
    MakeDatabase("admin_cli_test",
                 "--nodes 4k --degree 8 --dim 32 --classes 4 --train-share 20% --valid-share 5%");
    const Outcome imported = Run("import again graph");
    ASSERT_EQ(imported.exit_code, 0) << imported.err;
    EXPECT_EQ(imported.err.find('\r'), std::string::npos) << "progress is for terminals";
  }

  // The one file in a folder whose name begins so.
  static fs::path FileOf(const std::string& folder, const std::string& name) {
    for (const auto& entry : fs::directory_iterator(root_ / folder)) {
      if (entry.path().filename().string().starts_with(name)) return entry.path();
    }
    ADD_FAILURE() << folder << " has no " << name;
    return {};
  }
};

uint64_t BytesIn(const fs::path& folder) {
  uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder)) bytes += fs::file_size(entry.path());
  return bytes;
}

TEST_F(AdminCliTest, InfoTellsWhatIsTakenOfDiskAndMemory) {
  CopyDatabase("sizes");
  ASSERT_EQ(Run("layout build sizes --fanout 5 --batch-size 256 --cache 10%").exit_code, 0);
  const json before = RunJson("info sizes --json");
  EXPECT_EQ(before["disk_bytes"]["tables"], BytesIn(root_ / "sizes/features"));
  EXPECT_EQ(before["disk_bytes"]["topologies"], BytesIn(root_ / "sizes/topology"));
  EXPECT_EQ(before["disk_bytes"]["layouts"], BytesIn(root_ / "sizes/layouts/default-1"));
  EXPECT_GT(before["disk_bytes"]["catalog"], 1000);
  EXPECT_EQ(before["disk_bytes"]["trainings"], 0);
  // 32 rows of 128 bytes a page, four bytes of checksum for each; the same for the indices of 32,000 edges.
  for (const json& table : before["tables"]) {
    if (table["name"] == "feature") {
      EXPECT_EQ(table["resident_bytes"], 4000 / 32 * 4);
    }
  }
  EXPECT_EQ(before["topologies"][0]["resident_bytes"], 4001 * 8 + (32'000 * 4 + 4095) / 4096 * 4);
  const Outcome text = Run("info sizes");
  EXPECT_THAT(text.out, AllOf(HasSubstr("catalog "), HasSubstr("layouts "), HasSubstr("memory")));

  ASSERT_EQ(Run("put sizes --ids graph/valid_idx.npy --split test").exit_code, 0);
  const json after = RunJson("info sizes --json");
  EXPECT_EQ(after["timestamp"].get<uint64_t>(), before["timestamp"].get<uint64_t>() + 1);
  for (size_t i = 0; i < after["tables"].size(); i++) {
    const json &then = before["tables"][i], &now = after["tables"][i];
    const bool written = now["name"] == "split";
    EXPECT_EQ(now["changed_rows"] > 0, written) << now;
    EXPECT_EQ(now["resident_bytes"] > then["resident_bytes"], written) << "the set of changed rows";
  }
}

TEST_F(AdminCliTest, StatsAreTheTableOfSql) {
  const json stats = RunJson("stats db --json");
  const json rows = RunJson("sql db --json SELECT/**/*/**/FROM/**/stats");
  ASSERT_EQ(stats.size(), rows.size());
  for (const json& row : rows) {
    const std::string metric = row["metric"];
    if (metric.starts_with("memory_bytes")) continue;  // of the command itself
    EXPECT_EQ(stats[metric], row["value"]) << metric;
  }
  EXPECT_EQ(stats["nodes"], 4000);
  EXPECT_THAT(Run("stats db").out, testing::ContainsRegex("nodes +4000\n"));
}

TEST_F(AdminCliTest, WatchingLeavesTheDatabaseToOthersInBetween) {
  CopyDatabase("watched");
  const Process watching("stats watched --json --watch 0.3", root_);
  ASSERT_TRUE(watching.WaitUntil([&] { return !Lines(watching.Printed()).empty(); }));
  EXPECT_EQ(json::parse(Lines(watching.Printed()).front())["changed_rows"], 0);
  // It may come while the figures are read.
  const auto put = [] { return Run("put watched --ids graph/valid_idx.npy --split test").exit_code == 0; };
  EXPECT_TRUE(watching.WaitUntil(put));
  EXPECT_TRUE(watching.WaitUntil([&] {
    const std::string printed = watching.Printed();
    return printed.ends_with("\n") && json::parse(Lines(printed).back())["changed_rows"] > 0;
  }));
  watching.Signal(SIGINT);
  const Outcome outcome = watching.Wait();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
}

TEST_F(AdminCliTest, WatchingWaitsForADatabaseThatAnotherHasOpen) {
  CopyDatabase("held");
  const int lock = open((root_ / "held/LOCK").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(flock(lock, LOCK_EX | LOCK_NB), 0);
  EXPECT_EQ(Run("stats held").exit_code, 1);
  ASSERT_EQ(flock(lock, LOCK_UN), 0);
  const Process watching("stats held --watch 0.1", root_);
  EXPECT_TRUE(watching.WaitUntilItPrints());
  ASSERT_EQ(flock(lock, LOCK_EX), 0);  // between two looks
  const auto has_tried = [&watching](size_t times) {
    const std::vector<std::string> lines = Lines(watching.Complaints());
    return static_cast<size_t>(std::ranges::count_if(lines, [](const std::string& line) {
             return line.find("trying again") != std::string::npos;
           })) >= times;
  };
  EXPECT_TRUE(watching.WaitUntil([&] { return has_tried(1); }));
  const size_t printed = watching.Printed().size();
  EXPECT_TRUE(watching.WaitUntil([&] { return has_tried(4); }));
  EXPECT_EQ(watching.Printed().size(), printed);
  close(lock);
  EXPECT_TRUE(watching.WaitUntil([&] { return watching.Printed().size() > printed; }));
  watching.Signal(SIGTERM);
  const Outcome outcome = watching.Wait();
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("held"), HasSubstr("trying again")));
}

TEST_F(AdminCliTest, StatsOfAServerAreItsCounters) {
  const Process server("serve db --socket run/socket --memory 256MiB", root_);
  ASSERT_TRUE(server.WaitUntil([] { return fs::exists(root_ / "run/socket"); }));
  const json stats = RunJson("stats unix:run/socket --json");
  const json top = RunJson("top unix:run/socket --json");
  EXPECT_GT(stats.size(), 10U);
  std::set<std::string> names;
  for (const auto& [name, value] : stats.items()) names.insert(name);
  for (const auto& [name, value] : top["counters"].items()) EXPECT_TRUE(names.contains(name)) << name;
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait().exit_code, 0);
}

TEST_F(AdminCliTest, VerifyRepairsWhatCanBeRepaired) {
  CopyDatabase("faulty");
  std::ofstream(root_ / "faulty/features/stray") << "nobody's";
  EXPECT_EQ(Run("verify faulty").exit_code, 3);
  const Outcome dry = Run("verify faulty --repair --dry-run");
  EXPECT_EQ(dry.exit_code, 3);
  EXPECT_THAT(dry.out, HasSubstr("would be removed"));
  EXPECT_TRUE(fs::exists(root_ / "faulty/features/stray"));
  const Outcome repaired = Run("verify faulty --repair");
  EXPECT_EQ(repaired.exit_code, 0) << repaired.err;
  EXPECT_THAT(repaired.out, AllOf(HasSubstr("features/stray: removed"), HasSubstr("faulty: sound")));
  EXPECT_FALSE(fs::exists(root_ / "faulty/features/stray"));
  EXPECT_EQ(Run("verify faulty").exit_code, 0);

  testing_util::FlipByte(FileOf("faulty/features", "feature-"), 4096 + 100);
  const Outcome lost = Run("verify faulty --repair");
  EXPECT_EQ(lost.exit_code, 3);
  EXPECT_THAT(lost.out, HasSubstr("rows 0 to 31: lost"));
  EXPECT_EQ(Run("verify faulty --dry-run").exit_code, 2) << "it is of --repair";
}

TEST_F(AdminCliTest, VerifyAndRepairSpeakJson) {
  CopyDatabase("spoken");
  const json sound = RunJson("verify spoken --json");
  EXPECT_EQ(sound["sound"], true);
  EXPECT_EQ(sound["faults"], json::array());
  EXPECT_EQ(sound["files"], 4);

  std::ofstream(root_ / "spoken/features/stray") << "nobody's";
  std::ofstream(root_ / "spoken/notes.txt") << "somebody's";
  const fs::path table = FileOf("spoken/features", "feature-");
  testing_util::FlipByte(table, 2 * 4096 + 100);
  const Outcome verified = Run("verify spoken --json");
  EXPECT_EQ(verified.exit_code, 3);
  EXPECT_THAT(verified.err, HasSubstr("3 faults found"));
  const json report = json::parse(verified.out);
  EXPECT_EQ(report["sound"], false);
  ASSERT_EQ(report["faults"].size(), 3U);
  const json& fault = report["faults"][2];
  EXPECT_EQ(fault["file"], "features/" + table.filename().string());
  EXPECT_EQ(fault["page"], 2);
  EXPECT_THAT(fault["fault"].get<std::string>(), HasSubstr("rows 32 to 63"));
  EXPECT_EQ(report["faults"][0]["page"], nullptr);
  const json damage = {{"kind", "table"}, {"name", "feature"}, {"first_row", 32}, {"row_count", 32}};
  EXPECT_EQ(report["damages"][2], damage);

  const Outcome dry = Run("repair spoken --dry-run --json");
  EXPECT_EQ(dry.exit_code, 3);
  EXPECT_EQ(json::parse(dry.out)["removed"], json::array({"features/stray"}));
  EXPECT_TRUE(fs::exists(root_ / "spoken/features/stray"));
  const Outcome repaired = Run("verify spoken --repair --json");
  EXPECT_EQ(repaired.exit_code, 3);
  const json done = json::parse(repaired.out);
  EXPECT_EQ(done["removed"], json::array({"features/stray"}));
  EXPECT_EQ(done["catalog"], nullptr);
  EXPECT_EQ(done["sound"], false);
  const json rows = {{"table", "feature"}, {"first_row", 32}, {"row_count", 32}, {"replaced", false}};
  EXPECT_EQ(done["rows"], json::array({rows}));
  ASSERT_EQ(done["lost"].size(), 1U);
  EXPECT_EQ(done["lost"][0]["name"], "notes.txt");
  EXPECT_FALSE(fs::exists(root_ / "spoken/features/stray"));
  EXPECT_TRUE(fs::exists(root_ / "spoken/notes.txt"));

  testing_util::FlipByte(table, 2 * 4096 + 100);
  fs::remove(root_ / "spoken/notes.txt");
  EXPECT_EQ(RunJson("repair spoken --json")["sound"], true);
}

TEST_F(AdminCliTest, GenerateSpeaksJson) {
  const json made = RunJson("generate spoken-graph --nodes 1k --degree 4 --dim 8 --classes 4 --json");
  EXPECT_EQ(made["nodes"], 1000);
  EXPECT_EQ(made["edges"], 4000);
  EXPECT_EQ(made["element_type"], "float32");
  EXPECT_GT(made["bytes"].get<uint64_t>(), 1000U * 8 * 4 + 4000U * 16);
}

// Gives a data file another version of the format, as the checksum of its superblock has it.
void SetVersion(const fs::path& path, uint32_t version) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  std::array<std::byte, kSuperblockBytes> bytes;
  file.read(reinterpret_cast<char*>(bytes.data()), bytes.size());
  std::memcpy(&bytes[8], &version, sizeof(version));
  const uint64_t checksum = Checksum64(std::span(bytes).first<kSuperblockBytes - 8>());
  std::memcpy(&bytes[kSuperblockBytes - 8], &checksum, sizeof(checksum));
  file.seekp(0);
  file.write(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  ASSERT_TRUE(file.good()) << path;
}

TEST_F(AdminCliTest, UpgradeNamesTheVersionOfEveryFile) {
  CopyDatabase("old");
  ASSERT_EQ(Run("layout build old --fanout 5 --batch-size 256 --cache 10%").exit_code, 0);
  for (const char* command : {"upgrade old", "upgrade old --dry-run"}) {
    const Outcome outcome = Run(command);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, AllOf(HasSubstr("old: up to date"), HasSubstr("VERSION"),
                                   HasSubstr("version 1  layouts/default-1/layout.qlc")));
  }
  const json report = RunJson("upgrade old --json");
  std::set<std::string> files;
  for (const char* folder : {"features", "topology", "layouts/default-1"}) {
    for (const auto& entry : fs::directory_iterator(root_ / "old" / folder)) {
      files.insert(fs::relative(entry.path(), root_ / "old"));
    }
  }
  EXPECT_EQ(report["files"].get<std::set<std::string>>(), files);
  EXPECT_EQ(report["version"], kFormatVersion);
}

TEST_F(AdminCliTest, UpgradeRefusesEveryOtherVersionByTheNameOfTheFile) {
  CopyDatabase("other");
  const fs::path file = FileOf("other/features", "label-");
  const auto refused = [] {
    const Outcome outcome = Run("upgrade other");
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_THAT(outcome.out, IsEmpty());
    return outcome.err;
  };
  SetVersion(file, kFormatVersion + 1);
  EXPECT_THAT(refused(), AllOf(HasSubstr("other/features/" + file.filename().string()),
                               HasSubstr("version 2"), HasSubstr("use a newer one")));
  SetVersion(file, kFormatVersion - 1);
  EXPECT_THAT(refused(), AllOf(HasSubstr("other/features/" + file.filename().string()),
                               HasSubstr("version 0"), HasSubstr("use the one that wrote it")));
  SetVersion(file, kFormatVersion);
  EXPECT_EQ(Run("upgrade other").exit_code, 0) << "nothing else was touched";
  testing_util::FlipByte(file, 8);
  EXPECT_EQ(Run("upgrade other").exit_code, 3) << "a damaged version is no version";
  for (const char* version : {"quarry 0\n", "quarry 4\n"}) {
    fs::remove(root_ / "other/VERSION");
    std::ofstream(root_ / "other/VERSION") << version;
    EXPECT_THAT(refused(),
                AllOf(HasSubstr("other/VERSION"), HasSubstr(std::string("version ") + version[7])));
  }
}

TEST_F(AdminCliTest, DoctorLooksAtThisMachine) {
  const Outcome outcome = Run("doctor db --json");
  bool broken = false;
  std::set<std::string> subjects;
  for (const json& finding : json::parse(outcome.out)) {
    EXPECT_THAT(finding["verdict"].get<std::string>(), testing::AnyOf("ok", "slow", "broken"));
    broken = broken || finding["verdict"] == "broken";
    subjects.insert(finding["what"]);
    if (finding["verdict"] != "ok") {
      EXPECT_FALSE(finding["fix"].get<std::string>().empty()) << finding;
    }
    if (finding["what"].get<std::string>().starts_with("GPU")) subjects.insert("GPU");
    if (finding["what"] == "page size") {
      EXPECT_EQ(finding["value"], "4.00 KiB");
    }
    if (finding["what"] == "file system") {
      EXPECT_THAT(finding["value"].get<std::string>(), HasSubstr(fs::canonical(root_ / "db").string()));
    }
  }
  EXPECT_EQ(outcome.exit_code, broken ? 1 : 0);
  EXPECT_THAT(subjects,
              testing::IsSupersetOf({"kernel", "io_uring", "memlock limit", "open files limit", "memory",
                                     "huge pages", "huge page defrag", "page size", "processors", "gnuplot",
                                     "GPU", "file system", "O_DIRECT", "free space", "device"}));
  for (const auto& entry : fs::directory_iterator(root_ / "db")) {
    EXPECT_FALSE(entry.path().filename().string().starts_with("doctor")) << "it leaves nothing behind";
  }
  EXPECT_THAT(Run("doctor db").out, AllOf(HasSubstr("page size"), HasSubstr("4.00 KiB")));
  EXPECT_EQ(Run("doctor nowhere").exit_code, 1);
  EXPECT_EQ(Run("doctor graph/labels.npy").exit_code, 1);
}

TEST_F(AdminCliTest, DoctorFailsWhereSomethingIsBroken) {
  // Every command raises its soft limit to the hard one, which only a process of its own can lower.
  const std::string out = root_ / "few.out", err = root_ / "few.err";
  const std::string command = fmt::format("cd '{}' && (ulimit -n 64 && exec '{}' doctor db) >'{}' 2>'{}'",
                                          root_.string(), QUARRY_BINARY, out, err);
  const int status = std::system(command.c_str());
  const Outcome outcome{WEXITSTATUS(status), testing_util::FileText(out), testing_util::FileText(err)};
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("broken"), HasSubstr("ulimit -n")));
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("open files limit"), HasSubstr("64")));
}

}  // namespace
}  // namespace quarry
