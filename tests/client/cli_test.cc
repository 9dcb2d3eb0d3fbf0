// The real binary, end to end: what a person or a script sees of it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "cli_database_test.h"
#include "support/file_text.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// 120 nodes in 20 groups of 6; a relation leads from each node to all of another group, and back.
void WriteTriples(const fs::path& folder) {
  fs::create_directories(folder);
  std::ofstream parts[] = {std::ofstream(folder / "train.txt"), std::ofstream(folder / "valid.txt"),
                           std::ofstream(folder / "test.txt")};
  for (int head = 0; head < 120; head++) {
    for (int i = 0; i < 18; i++) {
      const int relation = i / 6, tail = (5 * relation + 39 - head / 6) % 20 * 6 + i % 6;
      const int draw = (head * 18 + i) * 7919 % 20;
      parts[draw < 2 ? draw + 1 : 0] << "n" << head << "\tr" << relation << "\tn" << tail << "\n";
    }
  }
}

// Databases are made once; tests that change one make a copy.
class CliTest : public CliDatabaseTest {
 protected:
  static void SetUpTestSuite() {
    MakeDatabase(
        "cli_test",
        "--nodes 20k --degree 10 --dim 32 --classes 5 --train-share 20% --valid-share 5% --test-share 5% "
        "--seed 7");
  }

  // Runs what must fail: the exit code, nothing on stdout, and one line that starts with "quarry: ".
  static std::string Refused(const std::string& arguments, int exit_code) {
    const Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.exit_code, exit_code) << arguments << "\n" << outcome.err;
    EXPECT_TRUE(PrintedTheErrorAlone(outcome, arguments)) << arguments << "\n" << outcome.out;
    const std::vector<std::string> lines = Lines(outcome.err);
    EXPECT_FALSE(lines.empty()) << arguments;
    if (lines.empty()) return "";
    EXPECT_TRUE(lines.back().starts_with("quarry: ")) << outcome.err;
    return lines.back();
  }

  // A copy of the database with a layout.
  static void MakePlanned() {
    if (fs::exists(Path("planned"))) return;
    CopyDatabase("planned");
    const Outcome built = Run("layout build planned --fanout 5,5 --batch-size 512 --cache 10%");
    ASSERT_EQ(built.exit_code, 0) << built.err;
  }
  // A database of triples.
  static void MakeTriples() {
    if (fs::exists(Path("kg"))) return;
    WriteTriples(Path("triples"));
    ASSERT_EQ(Run("import kg triples").exit_code, 0);
  }
  static fs::path FirstFile(const std::string& folder) {
    for (const auto& entry : fs::directory_iterator(Path(folder))) return entry.path();
    return {};
  }
  static void Overwrite(const fs::path& path, uint64_t offset, const std::string& bytes) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(offset));
    file << bytes;
    ASSERT_TRUE(file.good()) << path;
  }

  static constexpr const char* kTrain =
      " --layers 2 --fanout 5,5 --hidden 32 --batch-size 512 --epochs 2 --memory 256MiB --cache 25% "
      "--threads 2 --torch-threads 1";
};

TEST_F(CliTest, HelpOfEveryVerbHasAnExample) {
  const Outcome outcome = Run("--help");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("generate"), HasSubstr("import"), HasSubstr("info"), HasSubstr("verify"),
                    HasSubstr("calibrate"), HasSubstr("train"), HasSubstr("Exit codes")));
  for (const std::string verb : {"generate", "import", "info", "verify", "calibrate", "train"}) {
    const Outcome help = Run(verb + " --help");
    EXPECT_EQ(help.exit_code, 0) << verb;
    EXPECT_THAT(help.out, HasSubstr("quarry " + verb)) << "an example";
  }
}

TEST_F(CliTest, InfoTellsWhatWasGenerated) {
  const Outcome outcome = Run("info db --json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json info = json::parse(outcome.out);
  EXPECT_EQ(info["nodes"], 20'000);
  EXPECT_EQ(info["edges"], 200'000);
  EXPECT_EQ(info["classes"], 5);
  EXPECT_NEAR(info["splits"]["train"].get<double>(), 4000, 300);
  const Outcome text = Run("info db");
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, AllOf(HasSubstr("20000"), HasSubstr("float32"), HasSubstr("label")));
}

TEST_F(CliTest, VerifyFindsAFreshImportSound) {
  const Outcome outcome = Run("verify db");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("sound"));
}

// A version-1 .npy file.
void WriteNpy(const fs::path& path, const std::string& type, const std::string& shape,
              const std::string& data) {
  std::string header = "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 11, ' ');
  header += '\n';
  std::ofstream file(path, std::ios::binary);
  file << std::string("\x93NUMPY\x01\x00", 8) << static_cast<char>(header.size() % 256)
       << static_cast<char>(header.size() / 256) << header << data;
}

template <typename T>
std::string BytesOfAll(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

TEST_F(CliTest, PutChangesRowsForEveryLaterCommandOrNothing) {
  fs::copy(root_ / "db", root_ / "written", fs::copy_options::recursive);
  WriteNpy(root_ / "ids.npy", "<i8", "(2,)", BytesOfAll<int64_t>({3, 17}));
  WriteNpy(root_ / "rows.npy", "<f4", "(2, 32)", BytesOfAll(std::vector<float>(64, 0.25f)));
  WriteNpy(root_ / "short.npy", "<f4", "(2, 31)", BytesOfAll(std::vector<float>(62, 0.25f)));
  WriteNpy(root_ / "far.npy", "<i8", "(2,)", BytesOfAll<int64_t>({3, 20000}));
  WriteNpy(root_ / "nan.npy", "<f4", "(2, 32)", BytesOfAll(std::vector<float>(64, NAN)));
  EXPECT_THAT(Refused("put written --ids far.npy --features rows.npy", 1),
              HasSubstr("far.npy: row 1: node id 20000"));
  EXPECT_THAT(Refused("put written --ids ids.npy --features short.npy", 1), HasSubstr("31 columns"));
  EXPECT_THAT(Refused("put written --ids ids.npy --features nan.npy", 1),
              HasSubstr("row 0, column 0: the value is NaN"));
  EXPECT_THAT(Refused("put written --ids ids.npy", 2), HasSubstr("nothing to put"));
  const json before = json::parse(Run("info written --json").out);
  for (const json& table : before["tables"]) EXPECT_EQ(table["changed_rows"], 0);

  const Outcome put = Run("put written --ids ids.npy --features rows.npy --split train --json");
  ASSERT_EQ(put.exit_code, 0) << put.err;
  EXPECT_EQ(json::parse(put.out)["timestamp"], 1);
  EXPECT_EQ(json::parse(put.out)["rows"], 4);
  const json after = json::parse(Run("info written --json").out);
  for (const json& table : after["tables"]) {
    EXPECT_EQ(table["changed_rows"], table["name"] == "label" ? 0 : 2) << table["name"];
  }
  EXPECT_GE(after["splits"]["train"], before["splits"]["train"]);
  EXPECT_EQ(Run("verify written").exit_code, 0);
  EXPECT_EQ(json::parse(Run("put written --ids ids.npy --delete --json").out)["timestamp"], 2);
  EXPECT_EQ(Run(std::string("train written") + kTrain).exit_code, 0);
}

TEST_F(CliTest, EdgesComeAndGoForEveryLaterCommand) {
  fs::copy(root_ / "db", root_ / "grown", fs::copy_options::recursive);
  const auto edges = [&] { return json::parse(Run("info grown --json").out)["edges"].get<int64_t>(); };
  const auto there = [&](int from) {
    const std::string query =
        fmt::format("sql grown SELECT/**/count(*)/**/FROM/**/edges/**/WHERE/**/src={}/**/AND/**/dst=5", from);
    return Run(query).out;
  };
  const int64_t before = edges();
  std::ofstream(root_ / "some.csv") << "5,5\n6,5\n7,5\n";
  std::ofstream(root_ / "far.csv") << "1,2\n3,99999999\n";
  EXPECT_EQ(Run("remove grown --edges some.csv").exit_code, 0);
  const int64_t without = edges();
  EXPECT_LE(without, before);
  const Outcome added = Run("add grown --edges some.csv --json");
  ASSERT_EQ(added.exit_code, 0) << added.err;
  EXPECT_EQ(edges(), without + json::parse(added.out)["added"].get<int64_t>());
  EXPECT_GE(json::parse(added.out)["added"], 3);
  EXPECT_THAT(there(6), HasSubstr("1"));
  EXPECT_THAT(Refused("add grown --edges far.csv", 1), HasSubstr("far.csv: line 2: node id 99999999"));
  EXPECT_THAT(Refused("add grown --edges nowhere.csv", 1), HasSubstr("nowhere.csv"));
  EXPECT_THAT(Run("info grown").out, HasSubstr("3 added and 0 removed in 1 run"));
  EXPECT_THAT(Run("info grown").out, testing::ContainsRegex("growth .* of runs, .* times what their edges"));
  const json growth = json::parse(Run("info grown --json").out)["topologies"][0];
  EXPECT_EQ(growth["growth"]["run_edges_added"], 3);
  EXPECT_EQ(growth["growth"]["run_bytes"], growth["runs"][0]["file_bytes"]);
  EXPECT_EQ(growth["runs"][0]["nodes_added"], 0);
  EXPECT_EQ(Run("verify grown").exit_code, 0);
  EXPECT_EQ(Run(std::string("train grown") + kTrain).exit_code, 0);
  EXPECT_EQ(Run("export grown out").exit_code, 0);
  EXPECT_THAT(Run("compact grown").out, HasSubstr("were written as generation 2"));
  EXPECT_THAT(Run("info grown").out, Not(HasSubstr("runs")));
  EXPECT_EQ(edges(), without + json::parse(added.out)["added"].get<int64_t>());
  EXPECT_EQ(Run("verify grown").exit_code, 0);
  EXPECT_EQ(Run("remove grown --edges some.csv").exit_code, 0);
  EXPECT_EQ(edges(), without);
  // A run of three edges slows nothing down by a third, and by a millionth it does.
  const Outcome kept = Run("add grown --edges some.csv --auto-compact --json");
  EXPECT_EQ(json::parse(kept.out)["runs"], 2) << kept.err;
  const Outcome folded = Run("remove grown --edges some.csv --auto-compact=1.000001 --json");
  EXPECT_EQ(json::parse(folded.out)["runs"], 0) << folded.err;
  EXPECT_THAT(folded.err, HasSubstr("3 runs of edges folded in"));
  EXPECT_EQ(edges(), without);
  EXPECT_THAT(Refused("add grown --edges some.csv --auto-compact=1", 2), HasSubstr("a number above 1"));
  EXPECT_THAT(Refused("serve grown --socket s --auto-compact --read-only", 2), HasSubstr("contradict"));
}

// 64 MiB of rows with a quarter of that for them: one commit all the same.
TEST_F(CliTest, APutMayBeLargerThanItsMemory) {
  constexpr uint64_t kRows = 16'384, kDim = 1024, kRowBytes = kDim * sizeof(float);
  ASSERT_EQ(Run("generate wide --nodes 16384 --degree 2 --dim 1024 --classes 2 --seed 1").exit_code, 0);
  ASSERT_EQ(Run("import wide.db wide").exit_code, 0);
  std::vector<int64_t> ids(kRows);
  for (uint64_t i = 0; i < kRows; ++i) ids[i] = static_cast<int64_t>(i * 5 % kRows);
  std::vector<float> values(kRows * kDim);
  for (uint64_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i / kDim);
  WriteNpy(root_ / "all.npy", "<i8", "(16384,)", BytesOfAll(ids));
  WriteNpy(root_ / "wide.npy", "<f4", "(16384, 1024)", BytesOfAll(values));
  values.back() = NAN;
  WriteNpy(root_ / "bad.npy", "<f4", "(16384, 1024)", BytesOfAll(values));
  WriteNpy(root_ / "one.npy", "<i8", "(1,)", BytesOfAll<int64_t>({7}));
  const json small = json::parse(Run("put wide.db --ids one.npy --split test --memory 16MiB --json").out);

  EXPECT_THAT(Refused("put wide.db --ids all.npy --features bad.npy --memory 16MiB", 1),
              HasSubstr("row 16383, column 1023: the value is NaN"));
  EXPECT_THAT(Run("info wide.db --json").out, Not(HasSubstr("\"changed_rows\": 16384")));
  EXPECT_EQ(Run("verify wide.db").exit_code, 0);

  const Outcome put = Run("put wide.db --ids all.npy --features wide.npy --memory 16MiB --json");
  ASSERT_EQ(put.exit_code, 0) << put.err;
  const json report = json::parse(put.out);
  EXPECT_EQ(report["rows"], kRows);
  EXPECT_GT(report["timestamp"], small["timestamp"]);
  const auto more = report["peak_rss_bytes"].get<int64_t>() - small["peak_rss_bytes"].get<int64_t>();
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which keep what was freed
  EXPECT_LT(more, 64 << 20) << "the rows, and the catalog's own 40 MiB";
#else
  EXPECT_GT(more, 0);
#endif
  EXPECT_EQ(Run("compact wide.db").exit_code, 0);
  EXPECT_EQ(Run("verify wide.db").exit_code, 0);
  const std::string file = testing_util::FileText(Path("wide.db") / "features" / "feature-2.qft");
  for (const uint64_t i : {uint64_t{0}, uint64_t{1}, kRows / 2, kRows - 1}) {
    float value = 0;
    const auto row = static_cast<uint64_t>(ids[i]);
    std::memcpy(&value, file.data() + 4096 + row * kRowBytes, sizeof(value));
    EXPECT_EQ(value, static_cast<float>(i)) << "row " << row;
  }
}

TEST_F(CliTest, APutAtAServerIsTheSameCommit) {
  constexpr uint64_t kRows = 16'384, kDim = 1024;
  ASSERT_EQ(Run("generate far --nodes 16384 --degree 2 --dim 1024 --classes 2 --seed 1").exit_code, 0);
  ASSERT_EQ(Run("import far.db far").exit_code, 0);
  std::vector<int64_t> ids(kRows), labels(kRows, 1);
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<float> values(kRows * kDim);
  for (uint64_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i / kDim);
  WriteNpy(root_ / "far_ids.npy", "<i8", "(16384,)", BytesOfAll(ids));
  WriteNpy(root_ / "far_rows.npy", "<f4", "(16384, 1024)", BytesOfAll(values));
  WriteNpy(root_ / "far_labels.npy", "<i8", "(16384,)", BytesOfAll(labels));
  values.back() = NAN;
  WriteNpy(root_ / "far_bad.npy", "<f4", "(16384, 1024)", BytesOfAll(values));
  const Process server("serve far.db --socket far.run/s --memory 256MiB", root_);
  ASSERT_TRUE(server.WaitUntil([] { return fs::exists(root_ / "far.run/s"); }));
  const auto changed = [] {
    return Run("sql unix:far.run/s SELECT/**/count(*)/**/FROM/**/nodes/**/WHERE/**/label+(split='test')=2")
        .out;
  };
  const std::string before = changed();
  EXPECT_THAT(Refused("put unix:far.run/s --ids far_ids.npy --features far_bad.npy --memory 16MiB", 1),
              HasSubstr("row 16383, column 1023: the value is NaN"));
  EXPECT_THAT(Refused("put unix:far.run/s --ids far_ids.npy --features far_rows.npy --table nothing", 1),
              HasSubstr("there is no table \"nothing\""));
  EXPECT_EQ(changed(), before);
  for (const char* way : {"", " --inline"}) {
    const Outcome put =
        Run(std::string("put unix:far.run/s --ids far_ids.npy --features far_rows.npy --labels "
                        "far_labels.npy --split test --memory 16MiB --json") +
            way);
    ASSERT_EQ(put.exit_code, 0) << put.err;
    EXPECT_EQ(json::parse(put.out)["rows"], 3 * kRows);
  }
  EXPECT_THAT(changed(), HasSubstr("16384"));
  EXPECT_EQ(Run("put unix:far.run/s --ids far_ids.npy --delete").exit_code, 0);
  server.Signal(SIGTERM);
  const Outcome stopped = server.Wait();
  EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
  EXPECT_EQ(Run("verify far.db").exit_code, 0);
}

TEST_F(CliTest, ACheckpointIsADatabaseThatRestoresAndOutlivesItsSource) {
  MakePlanned();
  fs::copy(Path("planned"), Path("source"), fs::copy_options::recursive);
  const Outcome made = Run("checkpoint source kept --json");
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const json report = json::parse(made.out);
  EXPECT_EQ(report["timestamp"], 0);
  EXPECT_GE(report["files_linked"].get<int>(), 6) << "three tables, the graph and two files of a layout";
  EXPECT_GT(report["bytes"].get<uint64_t>(), fs::file_size(FirstFile("source/topology")));
  EXPECT_LT(report["bytes_copied"].get<uint64_t>(), report["bytes"].get<uint64_t>() / 2);
  EXPECT_THAT(Refused("checkpoint source kept", 1), HasSubstr("kept exists already"));
  EXPECT_THAT(Refused("checkpoint source source/inside", 1), HasSubstr("put it elsewhere"));
  fs::remove_all(Path("source"));
  const Outcome restored = Run("restore kept source");
  ASSERT_EQ(restored.exit_code, 0) << restored.err;
  EXPECT_THAT(restored.out, HasSubstr("source: "));
  EXPECT_EQ(Run("verify source").exit_code, 0);
  EXPECT_EQ(json::parse(Run("info source --json").out)["layouts"].size(), 1u);
  EXPECT_THAT(Refused("restore kept source", 1), HasSubstr("source exists already"));
  Overwrite(Path("kept/features/feature-1.qft"), 9000, "damage");
  EXPECT_THAT(Refused("restore kept other", 3), AllOf(HasSubstr("feature-1.qft"), HasSubstr("page 2")));
  EXPECT_FALSE(fs::exists(Path("other")));
  for (const char* name : {"source", "kept"}) fs::remove_all(Path(name));
}

TEST_F(CliTest, RepairDoesWhatCanBeDoneAndSaysTheRest) {
  MakePlanned();
  fs::copy(Path("planned"), Path("broken"), fs::copy_options::recursive);
  std::ofstream(Path("broken/features/notes")) << "mine";
  Overwrite(Path("broken/layouts/default-1/layout.qlc"), 9000, "damage");
  const Outcome dry = Run("repair broken --dry-run");
  EXPECT_EQ(dry.exit_code, 3);
  EXPECT_THAT(dry.out, AllOf(HasSubstr("features/notes: would be removed"), HasSubstr("would be dropped")));
  const Outcome repaired = Run("repair broken");
  EXPECT_EQ(repaired.exit_code, 0) << repaired.err;
  std::smatch command;
  ASSERT_TRUE(std::regex_search(repaired.out, command, std::regex("  quarry (layout build .*)")));
  EXPECT_EQ(Run(command[1].str()).exit_code, 0) << command[1];
  const auto spec_of = [](const std::string& database) {
    const json layout = json::parse(Run("layout list " + database + " --json").out).at(0);
    return std::vector<json>{layout["fanouts"],   layout["batch_size"], layout["seed"],
                             layout["policy"],    layout["cache_rows"], layout["accesses"],
                             layout["disk_bytes"]};
  };
  EXPECT_EQ(spec_of("broken"), spec_of("planned"));

  // 32 rows of 128 bytes share a page; lost ones are put again.
  Overwrite(Path("broken/features/feature-1.qft"), 4096 + 300, "damage");
  const Outcome lost = Run("repair broken");
  EXPECT_EQ(lost.exit_code, 3);
  EXPECT_THAT(lost.out, AllOf(HasSubstr("table \"feature\": rows 0 to 31: lost"), HasSubstr("quarry put")));
  std::vector<int64_t> ids(32);
  for (size_t i = 0; i < ids.size(); i++) ids[i] = static_cast<int64_t>(i);
  WriteNpy(root_ / "ids.npy", "<i8", "(32,)", BytesOfAll(ids));
  WriteNpy(root_ / "rows.npy", "<f4", "(32, 32)", BytesOfAll(std::vector<float>(1024, 0.5f)));
  EXPECT_EQ(Run("put broken --ids ids.npy --features rows.npy").exit_code, 0);
  EXPECT_THAT(Run("repair broken").out, HasSubstr("rows 0 to 31: damaged in the file, but there is a newer"));
  EXPECT_EQ(Run("compact broken --table feature").exit_code, 0);
  EXPECT_EQ(Run("repair broken").exit_code, 0);

  fs::remove(Path("broken/catalog/CURRENT"));
  EXPECT_THAT(Refused("verify broken", 3), HasSubstr("catalog"));
  EXPECT_EQ(Run("repair broken --dry-run").exit_code, 3);
  const Outcome anew = Run("repair broken");
  EXPECT_EQ(anew.exit_code, 0) << anew.err;
  EXPECT_THAT(anew.out,
              AllOf(HasSubstr("made anew"), HasSubstr("all commits, up to 1,"), HasSubstr("sound")));
  EXPECT_EQ(Run("verify broken").exit_code, 0);
  fs::remove_all(Path("broken"));
}

TEST_F(CliTest, CalibrationIsStoredAndLeavesNothingElse) {
  CopyDatabase("measured");
  const Outcome first = Run("calibrate measured --json");
  if (first.err.find("behind the page cache") != std::string::npos) GTEST_SKIP() << "no direct reads";
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.err, HasSubstr("too few to measure reads on"));
  const json fresh = json::parse(first.out);
  EXPECT_EQ(fresh["measured_now"], true);
  EXPECT_EQ(fresh["random_reads"].back()["request_bytes"], 256 << 10);
  EXPECT_EQ(Run("verify measured").exit_code, 0);
  EXPECT_FALSE(fs::exists(Path("measured/calibrate.tmp")));
  const json stored = json::parse(Run("calibrate measured --json").out);
  EXPECT_EQ(stored["measured_now"], false);
  EXPECT_EQ(json::parse(Run("info measured --json").out)["device"]["measured_utc"], stored["measured_utc"]);
  EXPECT_THAT(Run("info measured").out, HasSubstr("random reads/s"));
  for (const char* field : {"random_reads_per_second", "sequential_bytes_per_second",
                            "write_bytes_per_second", "gather_bytes_per_second", "measured_utc"}) {
    EXPECT_EQ(stored[field], fresh[field]) << field;
  }
  EXPECT_GT(stored["gather_bytes_per_second"].get<double>(), 1e6);
  EXPECT_THAT(Run("calibrate measured").out, HasSubstr("--force"));
  EXPECT_THAT(Refused("calibrate nowhere", 1), HasSubstr("nowhere"));
  fs::remove_all(Path("measured"));
}

TEST_F(CliTest, InfoListsLayoutsAndVerifyReadsThem) {
  MakePlanned();
  const json info = json::parse(Run("info planned --json").out);
  ASSERT_EQ(info["layouts"].size(), 1u);
  const json& layout = info["layouts"][0];
  EXPECT_EQ(layout["name"], "default");
  EXPECT_EQ(layout["policy"], "belady");
  EXPECT_EQ(layout["fresh"], true);
  EXPECT_EQ(layout["batches_per_segment"], 0);
  const fs::path folder = Path("planned") / layout["directory"].get<std::string>();
  EXPECT_EQ(layout["disk_bytes"], fs::file_size(folder / "layout.qlc") + fs::file_size(folder / "trace.qlt"));
  EXPECT_EQ(info["device"], nullptr);
  EXPECT_THAT(Run("info planned").out, AllOf(HasSubstr("belady"), HasSubstr("these data")));
  EXPECT_EQ(json::parse(Run("info db --json").out)["layouts"].size(), 0u);

  EXPECT_EQ(Run("verify planned").exit_code, 0);
  fs::copy(Path("planned"), Path("damaged"), fs::copy_options::recursive);
  Overwrite(Path("damaged") / layout["directory"].get<std::string>() / "trace.qlt", 5000, "damage");
  const Outcome damaged = Run("verify damaged");
  EXPECT_EQ(damaged.exit_code, 3);
  EXPECT_THAT(damaged.out, AllOf(HasSubstr("trace.qlt: page 1 "), HasSubstr("layout rebuild damaged")));
  fs::remove_all(Path("damaged"));
}

TEST_F(CliTest, RebuildTellsWhatItWouldDoAndDoesIt) {
  MakePlanned();
  fs::copy(Path("planned"), Path("rebuilt"), fs::copy_options::recursive);
  WriteNpy(root_ / "few.npy", "<i8", "(3,)", BytesOfAll<int64_t>({3, 17, 170}));
  WriteNpy(root_ / "few_rows.npy", "<f4", "(3, 32)", BytesOfAll(std::vector<float>(96, 0.5f)));
  ASSERT_EQ(Run("put rebuilt --ids few.npy --features few_rows.npy").exit_code, 0);
  const json before = json::parse(Run("layout list rebuilt --json").out)[0];
  const Outcome dry = Run("layout rebuild rebuilt --dry-run --json");
  ASSERT_EQ(dry.exit_code, 0) << dry.err;
  const json plan = json::parse(dry.out)["rebuild"];
  EXPECT_EQ(plan["changed_rows"], 3);
  EXPECT_GT(plan["places"], 0);
  EXPECT_EQ(plan["seconds"], 0);
  EXPECT_EQ(plan["bytes_written"], 0);
  EXPECT_THAT(Run("layout rebuild rebuilt --dry-run").out, HasSubstr("would be "));
  EXPECT_EQ(json::parse(Run("layout list rebuilt --json").out)[0], before) << "nothing was done";

  const json full = json::parse(Run("layout rebuild rebuilt --full --json").out);
  EXPECT_EQ(full["rebuild"]["path"], "build");
  EXPECT_EQ(full["rebuild"]["why"], "that was asked for");
  EXPECT_EQ(full["timestamp"], 1);
  EXPECT_NE(full["directory"], before["directory"]);
  EXPECT_GT(full["rebuild"]["bytes_written"], 0);
  const json again = json::parse(Run("layout rebuild rebuilt --json").out);
  EXPECT_EQ(again["rebuild"]["path"], "record") << again["rebuild"]["why"];
  EXPECT_EQ(again["rebuild"]["changed_rows"], 0);
  EXPECT_EQ(Run("verify rebuilt").exit_code, 0);
  fs::remove_all(Path("rebuilt"));
}

TEST_F(CliTest, DropRemovesWhatNothingNeeds) {
  MakePlanned();
  fs::copy(Path("planned"), Path("dropping"), fs::copy_options::recursive);
  EXPECT_THAT(Refused("drop dropping table feature", 2), AllOf(HasSubstr("MiB"), HasSubstr("--yes")));
  EXPECT_THAT(Refused("drop dropping table feature --yes", 1), HasSubstr("layout \"default\" needs table"));
  EXPECT_THAT(Refused("drop dropping table split --yes", 1), HasSubstr("layout \"default\" needs table"));
  EXPECT_THAT(Refused("drop dropping table other", 1), HasSubstr("tables: label, split, feature"));
  EXPECT_THAT(Refused("drop dropping layout other", 1), HasSubstr("default"));
  EXPECT_THAT(Refused("drop dropping embeddings other --yes", 1), HasSubstr("embedding tables: none"));
  EXPECT_THAT(Refused("drop dropping training other --yes", 1), HasSubstr("runs: none"));
  EXPECT_THAT(Refused("drop dropping nodes other", 2), HasSubstr("nodes"));
  WriteNpy(root_ / "two.npy", "<i8", "(2,)", BytesOfAll<int64_t>({5, 6}));
  EXPECT_EQ(Run("put dropping --ids two.npy --delete").exit_code, 0);
  EXPECT_THAT(Run("drop dropping layout default").out, HasSubstr("layout default: dropped"));
  const Outcome dropped = Run("drop dropping table feature --yes --json");
  ASSERT_EQ(dropped.exit_code, 0) << dropped.err;
  EXPECT_GT(json::parse(dropped.out)["bytes"], 20'000 * 128);
  EXPECT_FALSE(fs::exists(Path("dropping/features/feature-1.qft")));
  EXPECT_TRUE(fs::is_empty(Path("dropping/layouts")));
  EXPECT_EQ(Run("verify dropping").exit_code, 0);
  EXPECT_EQ(json::parse(Run("info dropping --json").out)["tables"].size(), 2u);
  fs::remove_all(Path("dropping"));
}

TEST_F(CliTest, DropRemovesRunsAndTheirVectors) {
  MakeTriples();
  fs::copy(Path("kg"), Path("kg-drop"), fs::copy_options::recursive);
  ASSERT_EQ(Run("train kg-drop --task link --dim 8 --epochs 1 --save").exit_code, 0);
  EXPECT_THAT(Refused("drop kg-drop training link", 2), HasSubstr("--yes"));
  const Outcome dropped = Run("drop kg-drop training link --yes");
  EXPECT_EQ(dropped.exit_code, 0) << dropped.err;
  for (const char* table : {"link-nodes", "link-relations"}) {
    const Outcome outcome = Run(std::string("drop kg-drop embeddings ") + table + " --yes");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, Not(HasSubstr("leftover")));
  }
  EXPECT_TRUE(fs::is_empty(Path("kg-drop/embeddings")));
  EXPECT_TRUE(fs::is_empty(Path("kg-drop/training")));
  EXPECT_EQ(Run("verify kg-drop").exit_code, 0);
  fs::remove_all(Path("kg-drop"));
}

TEST_F(CliTest, ExplainPricesEveryPathAndChoosesTheCheapest) {
  MakePlanned();
  std::ofstream(Path("planned/layouts/.explain-1")) << "left by a killed process";
  const Outcome outcome = Run("layout explain planned --json --epochs 4");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(std::distance(fs::directory_iterator(Path("planned/layouts")), fs::directory_iterator()), 1)
      << "scratch files are gone, also those of a killed process";
  const json explained = json::parse(outcome.out);
  EXPECT_EQ(explained["predicted"]["path"], "packed chunks");
  EXPECT_EQ(explained["predicted"]["policy"], "belady");
  EXPECT_EQ(explained["measured"], nullptr);
  EXPECT_EQ(explained["device"]["measured"], false);
  double least = 1e9;
  for (const json& path : explained["paths"]) {
    const double amortised = path["amortised_seconds_per_epoch"].get<double>();
    EXPECT_NEAR(amortised,
                path["seconds_per_epoch"].get<double>() + path["one_time_seconds"].get<double>() / 4, 1e-9);
    least = std::min(least, amortised);
  }
  const auto chosen = std::ranges::find_if(explained["paths"], [&](const json& path) {
    return path["path"] == explained["choice"]["path"] && path["policy"] == explained["choice"]["policy"];
  });
  ASSERT_NE(chosen, explained["paths"].end());
  EXPECT_EQ((*chosen)["amortised_seconds_per_epoch"].get<double>(), least);

  const Outcome text = Run("layout explain planned");
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("merged reads"), HasSubstr("* packed chunks"), HasSubstr("not yet"),
                              HasSubstr("quarry calibrate planned")));
  EXPECT_THAT(Refused("layout explain planned --epochs 0", 2), HasSubstr("--epochs"));
}

TEST_F(CliTest, TraceTellsSkewAndHitsAndBeladyFindsMost) {
  MakePlanned();
  const Outcome outcome = Run("layout trace planned --json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json trace = json::parse(outcome.out);
  EXPECT_EQ(trace["nodes"], 20'000);
  EXPECT_GT(trace["input_nodes_max"].get<double>(), 512);
  EXPECT_NEAR(trace["input_nodes_mean"].get<double>() * trace["batches"].get<double>(),
              trace["accesses"].get<double>(), 1e-3);
  double before = 0;
  for (const json& top : trace["top_shares"]) {
    EXPECT_GT(top["accesses_share"].get<double>(), before);
    before = top["accesses_share"].get<double>();
  }
  double sum = 0;
  ASSERT_EQ(trace["decile_shares"].size(), 10u);
  for (const json& share : trace["decile_shares"]) sum += share.get<double>();
  EXPECT_NEAR(sum, 1, 1e-9);
  ASSERT_EQ(trace["hit_ratios"].size(), 7u);
  for (const json& row : trace["hit_ratios"]) {
    for (const char* policy : {"none", "static-degree", "static-frequency", "fifo", "lru"}) {
      EXPECT_GE(row["belady"].get<double>(), row[policy].get<double>()) << row;
    }
    EXPECT_EQ(row["none"], 0);
    EXPECT_GT(row["lru"].get<double>(), 0);
  }
  EXPECT_EQ(trace["hit_ratios"][3]["size"], "10%");
  EXPECT_EQ(trace["hit_ratios"][3]["cache_rows"], 2000);

  const Outcome text = Run("layout trace planned --sizes 10%,256KiB");
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("belady"), HasSubstr("10%"), HasSubstr("256KiB")));
  EXPECT_THAT(Refused("layout trace planned --sizes many", 2), HasSubstr("many"));
  EXPECT_THAT(Refused("layout trace planned other", 1), AllOf(HasSubstr("other"), HasSubstr("default")));
}

TEST_F(CliTest, TrainingReportsOneObjectPerEpochAndASummaryAndNothingElse) {
  const Outcome outcome = Run(std::string("train db --json") + kTrain);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::vector<std::string> lines = Lines(outcome.out);
  ASSERT_EQ(lines.size(), 3u) << outcome.out;
  for (size_t i = 0; i < 2; i++) {
    const json epoch = json::parse(lines[i]);
    EXPECT_EQ(epoch["epoch"], i + 1);
    for (const char* field : {"loss", "valid_accuracy", "test_accuracy", "seconds", "bytes_read",
                              "bytes_useful", "read_amplification", "cache_hit_ratio", "peak_rss_bytes",
                              "memory_budget_bytes", "cache_budget_bytes"}) {
      EXPECT_TRUE(epoch.contains(field)) << field;
    }
    EXPECT_EQ(epoch["memory_budget_bytes"], 256 << 20);
    EXPECT_EQ(epoch["cache_budget_bytes"], 20'000 * 32 * 4 / 4);
    EXPECT_GE(epoch["read_amplification"].get<double>(), 1.0);
  }
  const json summary = json::parse(lines[2]).at("summary");
  EXPECT_GT(summary["test_accuracy"].get<double>(), 0.6) << "far better than one in five";
  EXPECT_LE(summary["peak_rss_bytes"].get<uint64_t>(), summary["memory_budget_bytes"].get<uint64_t>() +
                                                           summary["memory_overhead_bytes"].get<uint64_t>());
}

TEST_F(CliTest, ADryRunTellsTheDivisionOfTheMemoryAndTrainsNothing) {
  const Outcome outcome = Run(std::string("train db --json --dry-run") + kTrain);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  ASSERT_EQ(Lines(outcome.out).size(), 1u) << outcome.out;
  const json plan = json::parse(outcome.out);
  uint64_t bytes = 0;
  for (const char* part :
       {"fixed_bytes", "cache_bytes", "flight_bytes", "topology_bytes", "neighbor_cache_bytes"}) {
    bytes += plan.at(part).get<uint64_t>();
  }
  EXPECT_GT(bytes, 0u);
  EXPECT_LE(bytes, plan["memory_budget_bytes"].get<uint64_t>());
}

TEST_F(CliTest, TrainingSaysWhichRoadItTakesAndWhy) {
  CopyDatabase("chosen");
  const std::string train = std::string("train chosen") + kTrain;
  const Outcome explained = Run(train + " --explain --json");
  ASSERT_EQ(explained.exit_code, 0) << explained.err;
  const auto roads = json::parse(explained.out).at("roads");
  std::set<std::string> names;
  for (const auto& road : roads) {
    names.insert(road.at("road"));
    EXPECT_GT(road.at("seconds"), 0);
    EXPECT_GE(road.at("epoch_seconds"), 0);
  }
  EXPECT_EQ(names, (std::set<std::string>{"fresh", "live", "planned"}));
  EXPECT_THAT(Run(train + " --explain").out, AllOf(HasSubstr("s in all"), HasSubstr("road: ")));
  // Half a second cannot be saved of so little, and what fits is not packed.
  const Outcome all_fit =
      Run("train chosen --layers 2 --fanout 5,5 --hidden 32 --epochs 1 --memory 256MiB --json");
  EXPECT_THAT(all_fit.err, HasSubstr("all rows fit into memory"));
  EXPECT_FALSE(fs::exists(Path("chosen") / "layouts" / "default-1"));

  const Outcome planned = Run(train + " --road planned --json --run repeated");
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const auto summary = json::parse(Lines(planned.out).back()).at("summary");
  EXPECT_EQ(summary.at("road"), "planned");
  EXPECT_GT(summary.at("road_seconds_predicted"), 0);
  EXPECT_THAT(planned.err, AllOf(HasSubstr("road: planned, packed"), HasSubstr("no other road: ")));
  // A run goes on along its road, and finds its layout.
  const Outcome on = Run(std::regex_replace(train, std::regex("--epochs 2"), "--epochs 3") +
                         " --resume --run repeated --json");
  ASSERT_EQ(on.exit_code, 0) << on.err;
  EXPECT_EQ(json::parse(Lines(on.out).back()).at("summary").at("plan_seconds"), 0);
}

TEST_F(CliTest, OrderedTrainingGivesTheSameLossesForAnyNumberOfThreads) {
  std::vector<std::string> losses;
  for (const std::string threads : {"1", "4"}) {
    const Outcome outcome =
        Run("train db --json --ordered --layers 2 --fanout 5,5 --hidden 16 --batch-size 256 --epochs 2 "
            "--memory 256MiB --torch-threads 1 --seed 3 --threads " +
            threads);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    std::string all;
    for (const std::string& line : Lines(outcome.out)) {
      const json object = json::parse(line);
      if (object.contains("loss")) all += object["loss"].dump() + " " + object["valid_accuracy"].dump() + " ";
    }
    losses.push_back(all);
  }
  EXPECT_EQ(losses[0], losses[1]);
}

// Loss and validation accuracy of every epoch that a run reported.
std::map<int, std::string> EpochsIn(const std::string& out) {
  std::map<int, std::string> epochs;
  for (const std::string& line : Lines(out)) {
    const json object = json::parse(line);
    if (!object.contains("epoch")) continue;
    epochs[object["epoch"]] = object["loss"].dump() + " " + object["valid_accuracy"].dump();
  }
  return epochs;
}

TEST_F(CliTest, AKilledTrainingGoesOnToTheSameLosses) {
  CopyDatabase("resumed");
  const std::string train =
      "train resumed --json --ordered --layers 2 --fanout 5,5 --hidden 16 --batch-size 512 --epochs 10 "
      "--memory 256MiB --torch-threads 1 --seed 3 --checkpoint-every 8";
  const Outcome whole = Run(train + " --run whole");
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const json expected = json::parse(Lines(whole.out).back()).at("summary");
  EXPECT_EQ(expected["run"], "whole");
  EXPECT_TRUE(expected["resumed_from_epoch"].is_null());
  EXPECT_GT(expected["checkpoint_seconds"].get<double>(), 0);

  const Process training(train, root_);
  EXPECT_TRUE(training.WaitUntilItPrints());  // an epoch
  training.Signal(SIGKILL);
  const Outcome killed = training.Wait();
  ASSERT_EQ(killed.exit_code, 128 + SIGKILL) << killed.err;
  std::map<int, std::string> epochs = EpochsIn(killed.out);
  ASSERT_GE(epochs.size(), 1u);
  ASSERT_LT(epochs.size(), 10u) << "it was killed too late";
  EXPECT_THAT(Refused(train, 1), AllOf(HasSubstr("--resume"), HasSubstr("--overwrite")));
  EXPECT_THAT(Refused(train + " --resume --lr 0.5", 2), HasSubstr("--lr is 0.5, but was 0.003"));

  const Outcome resumed = Run(train + " --resume --threads 4");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  const std::map<int, std::string> rest = EpochsIn(resumed.out);
  EXPECT_LE(rest.begin()->first, static_cast<int>(epochs.size()) + 1) << "what was reported is not lost";
  epochs.insert(rest.begin(), rest.end());
  EXPECT_EQ(epochs, EpochsIn(whole.out));
  const json summary = json::parse(Lines(resumed.out).back()).at("summary");
  EXPECT_EQ(summary["resumed_from_epoch"], rest.begin()->first - 1);
  EXPECT_EQ(summary["checkpoints"], rest.size());
  for (const char* field : {"epochs", "best_epoch", "loss", "valid_accuracy", "test_accuracy", "batches"}) {
    EXPECT_EQ(summary[field], expected[field]) << field;
  }
  EXPECT_EQ(Run("verify resumed").exit_code, 0);
}

TEST_F(CliTest, WhatATrainingWasStartedWithIsKeptWithoutAsking) {
  CopyDatabase("configured");
  const std::string train =
      "train configured --json --ordered --layers 2 --fanout 5,5 --hidden 8 --epochs 2 --batch-size 512 "
      "--memory 256MiB --threads 2 --torch-threads 1 --seed 3 ";
  const Outcome bare = Run(train);
  ASSERT_EQ(bare.exit_code, 0) << bare.err;
  const std::string printed = json::parse(Lines(bare.out).back()).at("summary").at("config");
  EXPECT_THAT(printed,
              AllOf(HasSubstr("\n[train]\n"), HasSubstr("\nhidden = 8\n"), HasSubstr("\n# lr = 0.003\n")));
  const auto trainings = [] { return json::parse(Run("info configured --json").out).at("trainings"); };
  EXPECT_EQ(trainings(), json::array()) << "one without checkpoints leaves nothing";

  const Outcome kept = Run(train + "--checkpoint-every 1 --run mine");
  ASSERT_EQ(kept.exit_code, 0) << kept.err;
  const std::string config = trainings().at(0).at("config");
  EXPECT_EQ(config, json::parse(Lines(kept.out).back()).at("summary").at("config"));
  std::ofstream(Path("run.toml")) << config;
  const Outcome again = Run("train --config run.toml --overwrite");
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(EpochsIn(again.out), EpochsIn(kept.out));
  EXPECT_THAT(trainings().at(0).at("config").get<std::string>(), HasSubstr("\noverwrite = true\n"));
}

TEST_F(CliTest, AnInterruptedTrainingSaysWhereItGoesOn) {
  CopyDatabase("stopped");
  const std::string train =
      "train stopped --json --layers 1 --fanout 5 --hidden 8 --memory 256MiB --threads 1 --torch-threads 1 "
      "--checkpoint-every 1 --epochs ";
  const Process training(train + "100000", root_);
  EXPECT_TRUE(training.WaitUntilItPrints());
  training.Signal(SIGINT);
  const Outcome outcome = training.Wait();
  EXPECT_EQ(outcome.exit_code, 1);
  const std::string last = Lines(outcome.err).back();
  std::smatch epoch;
  ASSERT_TRUE(std::regex_search(last, epoch, std::regex("--resume goes on from the end of epoch ([0-9]+)")))
      << last;
  const Outcome resumed = Run(train + std::to_string(std::stoi(epoch[1].str()) + 1) + " --resume");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(EpochsIn(resumed.out).size(), 1u);
}

TEST_F(CliTest, AResumedRunKeepsToItsLayout) {
  MakePlanned();
  fs::copy(Path("planned"), Path("kept"), fs::copy_options::recursive);
  const std::string train =
      "train kept --json --fanout 5,5 --hidden 8 --batch-size 512 --memory 256MiB --checkpoint-every 1 ";
  ASSERT_EQ(Run(train + "--plan --cache 10% --epochs 1").exit_code, 0);
  EXPECT_THAT(Refused(train + "--plan --cache 20% --epochs 2 --resume", 2), HasSubstr("--cache is "));
  EXPECT_TRUE(fs::exists(Path("kept/layouts/default-1")))
      << "it was refused before the layout was built anew";
  EXPECT_THAT(Refused(train + "--cache 20% --epochs 2 --resume", 2), HasSubstr("--cache is "));
  uint64_t epochs = 1;
  for (const char* const road : {"", "--plan --cache 10% "}) {  // the run's own road, unless one is given
    const Outcome resumed = Run(fmt::format("{}{}--epochs {} --resume", train, road, epochs + 1));
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    EXPECT_EQ(json::parse(Lines(resumed.out).back()).at("summary")["resumed_from_epoch"], epochs++);
    EXPECT_TRUE(fs::exists(Path("kept/layouts/default-1"))) << "nothing was built anew";
  }
}

// A run trains on along its own road or not at all.
TEST_F(CliTest, AResumedRunRefusesAnotherRoad) {
  CopyDatabase("roads");
  const std::string train =
      "train roads --json --fanout 5,5 --hidden 8 --batch-size 512 --memory 256MiB --cache 10% "
      "--checkpoint-every 1 --run ";
  const std::pair<std::string, std::string> roads[] = {
      {"live", "--road live"}, {"planned", "--plan"}, {"fresh", "--plan --resample every-epoch"}};
  for (const auto& [name, begun] : roads) {
    const Outcome first = Run(fmt::format("{}{} {} --epochs 1", train, name, begun));
    ASSERT_EQ(first.exit_code, 0) << first.err;
    for (const std::string given :
         {"--road live", "--road planned", "--road fresh", "--plan", "--plan --resample every-epoch"}) {
      const std::string command = fmt::format("{}{} {} --epochs 2 --resume", train, name, given);
      SCOPED_TRACE(command);
      const bool own = given == "--road " + name || given == begun;
      if (!own) {
        EXPECT_THAT(Refused(command, 2), HasSubstr(fmt::format("run \"{}\" was not trained on the ", name)));
      } else {
        const Outcome resumed = Run(std::regex_replace(command, std::regex("--epochs 2"), "--epochs 3"));
        EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
      }
    }
  }
}

// Segment caches take what chunks have no room for; where not even these have any, building says so.
TEST_F(CliTest, AnAskedForLayoutIsMadeToFitTheDisk) {
  ASSERT_EQ(Run("generate crowd --nodes 20k --dim 64 --classes 5 --degree 10 --seed 1").exit_code, 0);
  ASSERT_EQ(Run("import cramped crowd").exit_code, 0);
  const std::string train =
      "train cramped --fanout 10,10 --batch-size 128 --hidden 8 --epochs 1 --epochs-planned 3 --memory "
      "256MiB "
      "--plan --disk ";
  for (const char* const cache : {"", " --cache 10%"}) {
    SCOPED_TRACE(cache);
    const Outcome trained = Run(train + "0.5x" + cache);
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
    const auto layouts = json::parse(Run("info cramped --json").out).at("layouts");
    ASSERT_EQ(layouts.size(), 1u);
    EXPECT_LE(layouts[0].at("disk_bytes"), 20'000 * 64 * sizeof(float) / 2) << layouts[0];
    // A cache that is chosen may be such that chunks fit.
    if (*cache != '\0') {
      EXPECT_GT(layouts[0].at("batches_per_segment"), 0) << layouts[0];
    }
    EXPECT_THAT(Refused(train + "0.01x" + cache, 1), HasSubstr("no space"));
  }
}

// What is named does, at every stage.
TEST_F(CliTest, AMemoryTooSmallForALayoutIsRefusedBeforeItIsBuiltWithOneThatDoes) {
  CopyDatabase("tight");
  const std::string train =
      "train tight --plan --fanout 5,5 --batch-size 512 --hidden 8 --epochs 1 --memory ";
  const std::string refused = Refused(train + "9MiB", 1);
  EXPECT_THAT(refused, HasSubstr("nothing has been built"));
  EXPECT_EQ(fs::exists(Path("tight/layouts")) && !fs::is_empty(Path("tight/layouts")), false);
  std::smatch least;
  ASSERT_TRUE(std::regex_search(refused, least, std::regex("memory budget of ([0-9]+)MiB"))) << refused;
  Refused(train + std::to_string(std::stoi(least[1].str()) - 1) + "MiB", 1);
  const Outcome trained = Run(train + least[1].str() + "MiB");
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
}

// Nothing is built to know it; training has exactly that much, and with a MiB less is refused with the same figure.
TEST_F(CliTest, TheLeastMemoryThatADryRunTellsIsTheLeast) {
  for (const std::string shape :
       {"--fanout 5,5 --batch-size 512 --hidden 8", "--fanout 10 --batch-size 128 --hidden 16",
        "--fanout 4,3,2 --batch-size 256 --hidden 8 --cache 20%"}) {
    for (const std::string road : {"live", "planned", "fresh"}) {
      SCOPED_TRACE(fmt::format("{}, {}", shape, road));
      fs::remove_all(Path("least"));
      CopyDatabase("least");
      const std::string train =
          fmt::format("train least --epochs 2 --json --road {} {} --memory ", road, shape);
      const Outcome dry = Run(train + "1GiB --dry-run");
      ASSERT_EQ(dry.exit_code, 0) << dry.err;
      const json told = json::parse(dry.out);
      EXPECT_EQ(told.at("road"), road);
      EXPECT_FALSE(fs::exists(Path("least/layouts/default-1")));
      const uint64_t least = told.at("least_memory_bytes").get<uint64_t>() >> 20;
      EXPECT_THAT(Refused(fmt::format("{}{}MiB", train, least - 1), 1),
                  HasSubstr(fmt::format(" {}MiB", least)));
      EXPECT_FALSE(fs::exists(Path("least/layouts/default-1")));
      const Outcome trained = Run(fmt::format("{}{}MiB", train, least));
      ASSERT_EQ(trained.exit_code, 0) << trained.err;
      EXPECT_EQ(json::parse(Lines(trained.out).back()).at("summary").at("epochs"), 2);
    }
  }
}

TEST_F(CliTest, CheckpointOptionsThatMakeNoSenseAreRefused) {
  EXPECT_THAT(Refused("train db --resume", 1), HasSubstr("no checkpoint of a training run \"node\""));
  EXPECT_THAT(Refused("train db --checkpoint-every 0", 2), HasSubstr("--checkpoint-every"));
  EXPECT_THAT(Refused("train db --resume --overwrite", 2), HasSubstr("--overwrite"));
  EXPECT_THAT(Refused("train db --run a/b --checkpoint-every 1", 2), HasSubstr("a/b"));
}

TEST_F(CliTest, WrongUsageExitsWithTwoAndNamesTheArgument) {
  EXPECT_THAT(Refused("", 2), HasSubstr("there is no verb"));
  EXPECT_THAT(Refused("frobnicate", 2), HasSubstr("quarry: "));
  EXPECT_THAT(Refused("train", 2), HasSubstr("DB"));
  EXPECT_THAT(Refused("train db --no-such-flag", 2), HasSubstr("--no-such-flag"));
  EXPECT_THAT(Refused("train db --layers 2 --fanout 5,0", 2), HasSubstr("0"));
  EXPECT_THAT(Refused("train db --layers 3 --fanout 5,5", 2), HasSubstr("--layers 3 needs 3 fanouts"));
  EXPECT_THAT(Refused("train db --memory 8Gigs", 2), HasSubstr("8Gigs"));
  EXPECT_THAT(Refused("train db --cache lots", 2), HasSubstr("lots"));
  EXPECT_THAT(Refused("train db --epochs 0", 2), HasSubstr("epochs"));
  EXPECT_THAT(Refused("generate g2 --nodes many", 2), HasSubstr("many"));
  EXPECT_THAT(Refused("generate g2 --homophily 2", 2), HasSubstr("--homophily"));
  EXPECT_THAT(Refused("generate g2 --train-share most", 2), HasSubstr("--train-share"));
  EXPECT_FALSE(fs::exists(Path("g2")));
}

TEST_F(CliTest, ABudgetThatCannotHoldOneBatchIsRefusedWithTheLeastThatWould) {
  const std::string options =
      "train db --layers 2 --fanout 10,10 --batch-size 1024 --epochs 1 --hidden 8 --memory ";
  const std::string message = Refused(options + "1MiB", 1);
  EXPECT_THAT(message, HasSubstr("the budget is 1.00 MiB"));
  std::smatch least;
  ASSERT_TRUE(std::regex_search(message, least, std::regex("needs a memory budget of ([0-9]+MiB)")))
      << message;
  const Outcome outcome = Run(options + least[1].str());
  EXPECT_EQ(outcome.exit_code, 0) << "with the stated least: " << outcome.err;
}

TEST_F(CliTest, MissingAndForeignDatabasesAreNamed) {
  EXPECT_THAT(Refused("info nowhere", 1), HasSubstr("nowhere"));
  EXPECT_THAT(Refused("verify nowhere", 1), HasSubstr("nowhere"));
  EXPECT_THAT(Refused("train nowhere", 1), HasSubstr("nowhere"));
  EXPECT_THAT(Refused("info graph", 1), HasSubstr("graph")) << "a source folder is no database";
  EXPECT_THAT(Refused("import db2 nowhere", 1), HasSubstr("nowhere"));
  EXPECT_FALSE(fs::exists(Path("db2")));
  EXPECT_FALSE(fs::exists(Path("db2.importing")));
}

TEST_F(CliTest, WhatExistsIsNotOverwritten) {
  const auto before = fs::last_write_time(FirstFile("db/features"));
  EXPECT_THAT(Refused("import db graph", 1), AllOf(HasSubstr("db"), HasSubstr("exist")));
  EXPECT_THAT(Refused("generate graph --nodes 1k", 1), AllOf(HasSubstr("graph"), HasSubstr("exist")));
  EXPECT_EQ(fs::last_write_time(FirstFile("db/features")), before);
}

TEST_F(CliTest, ADatabaseIsOpenOnce) {
  // A training run holds the database until it is interrupted.
  const Process training(
      std::string("train db --epochs 100000 --layers 1 --fanout 5 --hidden 8 --memory 256MiB "
                  "--patience 0 --threads 1 --torch-threads 1 --json"),
      root_);
  EXPECT_TRUE(training.WaitUntilItPrints());  // it has the database by then
  const Outcome second = Run("info db");
  training.Signal(SIGINT);
  const Outcome first = training.Wait();
  EXPECT_EQ(second.exit_code, 1);
  EXPECT_THAT(second.err, HasSubstr("busy"));
  EXPECT_EQ(first.exit_code, 1) << first.err;
  EXPECT_THAT(first.err, HasSubstr("interrupted"));
  EXPECT_EQ(Run("info db").exit_code, 0) << "the lock falls with the process";
}

TEST_F(CliTest, CorruptionExitsWithThreeAndNamesTheFile) {
  CopyDatabase("flipped");
  const fs::path file = [&] {
    for (const auto& entry : fs::directory_iterator(Path("flipped/features"))) {
      if (entry.path().filename().string().starts_with("feature")) return entry.path();
    }
    return fs::path();
  }();
  ASSERT_FALSE(file.empty());
  Overwrite(file, 4096 + 100'000, "X!");
  const Outcome verified = Run("verify flipped");
  EXPECT_EQ(verified.exit_code, 3) << verified.err;
  EXPECT_THAT(verified.err, HasSubstr(file.filename().string()));
  const Outcome trained = Run(std::string("train flipped --json") + kTrain);
  EXPECT_EQ(trained.exit_code, 3) << "a corrupt row is never training data";
  EXPECT_THAT(trained.err, HasSubstr(file.filename().string()));
  fs::remove_all(Path("flipped"));
}

TEST_F(CliTest, AWrongMagicSaysWhatTheFileLooksLike) {
  CopyDatabase("swapped");
  const fs::path file = FirstFile("swapped/topology");
  const auto bytes = fs::file_size(file);
  fs::copy_file(Path("graph/features.npy"), file, fs::copy_options::overwrite_existing);
  fs::resize_file(file, bytes);
  const Outcome outcome = Run("verify swapped");
  EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr(file.filename().string()), HasSubstr("NumPy")));
  fs::remove_all(Path("swapped"));
}

TEST_F(CliTest, AnInterruptedGenerateLeavesNothing) {
  const Process process("generate big --nodes 3M --dim 128 --degree 30", root_);
  EXPECT_TRUE(process.WaitUntil([] { return fs::exists(Path("big.generating/edges.npy")); }));
  process.Signal(SIGTERM);
  const Outcome outcome = process.Wait();
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("interrupted"));
  EXPECT_FALSE(fs::exists(Path("big")));
  EXPECT_FALSE(fs::exists(Path("big.generating")));
}

TEST_F(CliTest, AnInterruptedLayoutBuildSaysWhatItLeavesAndResumeTakesItOver) {
  CopyDatabase("stopped");
  const std::string build =
      "layout build stopped --fanout 5,5 --batch-size 50 --epochs-planned 150 --cache 10%";
  const Process process(build, root_);
  EXPECT_TRUE(process.WaitUntil([] { return fs::exists(Path("stopped/layouts/default.building/sampled")); }));
  process.Signal(SIGINT);
  const Outcome outcome = process.Wait();
  ASSERT_EQ(outcome.exit_code, 1) << "it was done before the signal came: " << outcome.out;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("interrupted during"), HasSubstr("--resume takes over"),
                                 HasSubstr("stopped/layouts/default.building stays")));
  EXPECT_THAT(outcome.err, Not(HasSubstr("nothing was left")));
  EXPECT_TRUE(fs::exists(Path("stopped/layouts/default.building/sampled")));
  const Outcome resumed = Run(build + " --resume --json");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(json::parse(resumed.out)["resumed"], true);
  EXPECT_FALSE(fs::exists(Path("stopped/layouts/default.building")));
  fs::remove_all(Path("stopped"));
}

TEST_F(CliTest, GenerateIsTheSameEverywhere) {
  const std::string options =
      " --nodes 5k --degree 4 --dim 9 --classes 3 --dtype float16 --seed 5 --threads ";
  ASSERT_EQ(Run("generate g1" + options + "1").exit_code, 0);
  ASSERT_EQ(Run("generate g3" + options + "3").exit_code, 0);
  for (const auto& entry : fs::directory_iterator(Path("g1"))) {
    EXPECT_EQ(testing_util::FileText(entry.path()),
              testing_util::FileText(Path("g3") / entry.path().filename()))
        << entry.path();
  }
  const Outcome imported = Run("import half g1");
  EXPECT_EQ(imported.exit_code, 0) << imported.err;
  EXPECT_THAT(Run("info half").out, HasSubstr("float16"));
  for (const char* name : {"g1", "g3", "half"}) fs::remove_all(Path(name));
}

TEST_F(CliTest, LinkPredictionLearnsTriplesAndTellsSo) {
  MakeTriples();
  const std::string train =
      "train kg --task link --dim 16 --lr 0.2 --batch-size 100 --chunk 50 --negatives 30 --epochs 8 --seed 3 "
      "--ordered --memory 256MiB --threads 2 --json";
  const Outcome outcome = Run(train);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::vector<std::string> lines = Lines(outcome.out);
  ASSERT_EQ(lines.size(), 9u);
  const json first = json::parse(lines[0]), last = json::parse(lines[7]);
  EXPECT_EQ(last["epoch"], 8);
  EXPECT_LT(last["loss"].get<double>(), first["loss"].get<double>());
  EXPECT_GT(last["valid_mrr"].get<double>(), 0.4);
  EXPECT_GT(last["edges_per_second"].get<double>(), 0);
  EXPECT_EQ(last["batches"].get<double>(), std::ceil(last["edges"].get<double>() / 100));
  for (const char* field : {"valid_mrr_raw", "valid_hits_1", "valid_hits_10", "seconds", "rows_computed",
                            "rows_replaced", "prepare_seconds", "compute_wait_seconds", "update_seconds",
                            "peak_rss_bytes", "memory_budget_bytes", "memory_reserved_bytes", "best"}) {
    EXPECT_TRUE(last.contains(field)) << field;
  }
  const json summary = json::parse(lines[8])["summary"];
  EXPECT_EQ(summary["epochs"], 8);
  EXPECT_GT(summary["test_mrr"].get<double>(), 0.4);
  EXPECT_GE(summary["test_hits_10"], summary["test_hits_3"]);
  EXPECT_GE(summary["test_hits_3"], summary["test_hits_1"]);
  EXPECT_EQ(summary["decoder"], "distmult");
  EXPECT_EQ(summary["embedding_mode"], "oac");
  EXPECT_LT(summary["memory_reserved_bytes"], 256 << 20);

  const Outcome sync = Run(train + " --embedding-mode sync");
  ASSERT_EQ(sync.exit_code, 0) << sync.err;
  for (size_t i = 0; i < 8; i++) {
    EXPECT_EQ(json::parse(Lines(sync.out)[i])["loss"], json::parse(lines[i])["loss"]) << "epoch " << i + 1;
  }
  const Outcome text =
      Run("train kg --task link --epochs 2 --decoder transe --loss margin --optimizer adam --lr 0.01 "
          "--embedding-mode async-bounded --staleness 2 --threads 2");
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("edges/s"), HasSubstr("test MRR"), HasSubstr("Hits@1")));
}

TEST_F(CliTest, LinkPredictionRegularizesAndKeepsItsBestEpoch) {
  MakeTriples();
  fs::copy(Path("kg"), Path("kg-best"), fs::copy_options::recursive);
  const std::string train =
      "train kg-best --task link --dim 16 --lr 1 --batch-size 100 --chunk 50 --negatives 5 --epochs 40 "
      "--patience 2 --seed 3 --ordered --memory 256MiB --threads 2 --json --decoder rotate --regularization "
      "n3 "
      "--regularization-weight 0.01";
  const Outcome outcome = Run(train + " --save");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::vector<std::string> lines = Lines(outcome.out);
  const json summary = json::parse(lines.back())["summary"];
  EXPECT_EQ(summary["decoder"], "rotate");
  EXPECT_EQ(summary["regularization"], "n3");
  EXPECT_NEAR(summary["regularization_weight"].get<double>(), 0.01, 1e-6);
  ASSERT_TRUE(summary["stopped_early"].get<bool>());
  const auto kept = summary["kept_epoch"].get<size_t>();
  ASSERT_EQ(kept + 2, summary["epochs"].get<size_t>());
  EXPECT_EQ(summary["valid_mrr"], json::parse(lines[kept - 1])["valid_mrr"]);
  for (const std::string& line : lines) {
    EXPECT_LE(json::parse(line).value("valid_mrr", 0.0), summary["valid_mrr"].get<double>());
  }
  // What was kept is what the best epoch left: going on from there stops at the same place, in memory, too.
  for (const char* again : {" --resume", ""}) {
    const Outcome other = Run(train + again);
    ASSERT_EQ(other.exit_code, 0) << other.err;
    const json same = json::parse(Lines(other.out).back())["summary"];
    EXPECT_EQ(same["test_mrr_raw"], summary["test_mrr_raw"]) << again;
    EXPECT_EQ(same["kept_epoch"], summary["kept_epoch"]) << again;
  }
  const std::string refused = "train kg --task link --epochs 1 --memory 256MiB ";
  EXPECT_THAT(Refused(refused + "--regularization l2", 2), HasSubstr("regularization weight of l2 is 0"));
  EXPECT_THAT(Refused(refused + "--regularization-weight 1", 2), HasSubstr("there is no regularization"));
  EXPECT_THAT(Refused(refused + "--regularization l1", 2), HasSubstr("l1"));
  EXPECT_THAT(Refused(refused + "--decoder rotate --dim 15", 2), HasSubstr("rotate halves its vectors"));
  EXPECT_THAT(Refused(refused + "--loss huber", 2), HasSubstr("the losses are softmax and margin"));
}

TEST_F(CliTest, LinkPredictionEncodesNeighborhoods) {
  MakeTriples();
  const std::string train =
      "train kg --task link --encoder sage --fanout 5 --dim 16 --lr 0.05 --batch-size 100 --chunk 50 "
      "--negatives 30 --epochs 4 --seed 3 --ordered --threads 2 --json";
  const Outcome outcome = Run(train);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::vector<std::string> lines = Lines(outcome.out);
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_LT(json::parse(lines[3])["loss"].get<double>(), json::parse(lines[0])["loss"].get<double>());
  EXPECT_EQ(json::parse(lines[4])["summary"]["encoder"], "sage");
  for (const std::string encoder : {"gat --heads 2", "gcn", "gin", "sage --aggregator max", "rgcn --bases 3",
                                    "rgat --heads 2 --bases 3"}) {
    const Outcome other =
        Run("train kg --task link --encoder " + encoder + " --fanout 5 --dim 16 --epochs 1 --json");
    ASSERT_EQ(other.exit_code, 0) << other.err;
    EXPECT_EQ(json::parse(Lines(other.out).back())["summary"]["encoder"],
              encoder.substr(0, encoder.find(' ')));
  }
  EXPECT_THAT(Refused("train kg --task link --encoder rgin", 2), HasSubstr("rgin"));
  EXPECT_THAT(Refused("train kg --task link --encoder gcn --bases 3", 2),
              HasSubstr("--bases is of --encoder rgcn and rgat"));
  for (const std::string encoder : {"rgcn", "rgat"}) {
    EXPECT_THAT(Refused("train kg --task link --road partitioned --encoder " + encoder, 2),
                HasSubstr("--encoder " + encoder + " asks for the relations of neighbors"));
  }
  EXPECT_THAT(Refused("train kg --task link --encoder gcn --heads 2", 2),
              HasSubstr("--heads is of --encoder gat"));
  EXPECT_THAT(Refused("train kg --task link --heads 2", 2), HasSubstr("--heads is of --encoder gat"));
}

TEST_F(CliTest, LinkPredictionHoldsEdgesOutOfAGraphWithoutTriples) {
  EXPECT_THAT(Refused("train db --task link", 1), HasSubstr("--valid-share 5%"));
  const Outcome outcome = Run(
      "train db --task link --decoder dot --dim 8 --valid-share 0.5% --test-share 0.005 --epochs 1 --json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json epoch = json::parse(Lines(outcome.out)[0]);
  EXPECT_NEAR(epoch["edges"].get<double>(), 198'000, 500);
}

TEST_F(CliTest, LinkPredictionRefusesWhatItCannotDo) {
  MakeTriples();
  EXPECT_THAT(Refused("train kg --task edges", 2), HasSubstr("edges"));
  EXPECT_THAT(Refused("train kg --task link --layers 2", 2), HasSubstr("--layers belongs to --task node"));
  EXPECT_THAT(Refused("train db --decoder dot", 2), HasSubstr("--decoder belongs to --task link"));
  EXPECT_THAT(Refused("train kg --task link --decoder complex --dim 7", 2), HasSubstr("odd"));
  EXPECT_THAT(Refused("train kg --task link --negatives 0", 2), HasSubstr("negatives is 0"));
  EXPECT_THAT(Refused("train kg --task link --lr 1e300", 2), HasSubstr("learning rate"));
  EXPECT_THAT(Refused("train kg --task link --valid-share much", 2), HasSubstr("much"));

  const std::string refusal = Refused("train kg --task link --epochs 1 --memory 1MiB", 1);
  std::smatch least;
  ASSERT_TRUE(std::regex_search(refusal, least, std::regex("at least ([0-9.]+) MiB"))) << refusal;
  const Outcome enough = Run("train kg --task link --epochs 1 --memory " + least[1].str() + "MiB");
  EXPECT_EQ(enough.exit_code, 0) << enough.err;
}

TEST_F(CliTest, AKilledLinkPredictionGoesOnToTheSameVectors) {
  MakeTriples();
  fs::copy(Path("kg"), Path("kg-run"), fs::copy_options::recursive);
  const std::string train =
      "train kg-run --task link --dim 16 --lr 0.2 --batch-size 100 --chunk 50 --negatives 30 --epochs 8 "
      "--seed 3 --ordered --memory 256MiB --threads 2 --checkpoint-every 7 --json";
  const Outcome whole = Run(train + " --run whole");
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_THAT(whole.err, HasSubstr("stored in the database, as those of run \"whole\""));
  const json expected = json::parse(Lines(whole.out).back()).at("summary");
  EXPECT_EQ(expected["tables"], "stored");
  EXPECT_EQ(expected["run"], "whole");
  EXPECT_TRUE(expected["resumed_from_epoch"].is_null());
  EXPECT_EQ(expected["checkpoints"], (expected["batches"].get<int>() + 6) / 7);
  EXPECT_THAT(expected["config"].get<std::string>(), HasSubstr("\ntask = \"link\"\n"));
  EXPECT_EQ(json::parse(Run("info kg-run --json").out)["trainings"][0]["config"], expected["config"]);

  const Process training(train, root_);
  EXPECT_TRUE(training.WaitUntilItPrints());  // an epoch
  training.Signal(SIGKILL);
  const Outcome killed = training.Wait();
  ASSERT_EQ(killed.exit_code, 128 + SIGKILL) << killed.err;
  EXPECT_THAT(Refused(train, 1), AllOf(HasSubstr("--resume"), HasSubstr("--overwrite")));
  EXPECT_THAT(Refused(train + " --resume --dim 8", 2), HasSubstr("--dim"));
  const Outcome resumed = Run(train + " --resume --embedding-mode sync");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  const std::vector<std::string> lines = Lines(resumed.out);
  const json summary = json::parse(lines.back()).at("summary");
  EXPECT_EQ(summary["resumed_from_epoch"], json::parse(lines.front())["epoch"]);
  EXPECT_LT(summary["edges"], expected["edges"]);
  for (const char* field : {"epochs", "loss", "valid_mrr", "test_mrr", "test_mrr_raw", "test_hits_10"}) {
    EXPECT_EQ(summary[field], expected[field]) << field;
  }
  for (size_t i = 0; i + 1 < lines.size(); i++) {
    const json epoch = json::parse(lines[i]);
    const json before = json::parse(Lines(whole.out)[epoch["epoch"].get<size_t>() - 1]);
    EXPECT_EQ(epoch["loss"], before["loss"]) << lines[i];
    EXPECT_EQ(epoch["best"], before["best"]) << lines[i];
  }
  EXPECT_EQ(Run("verify kg-run").exit_code, 0);
  const json info = json::parse(Run("info kg-run --json").out);
  ASSERT_EQ(info["embeddings"].size(), 4u);
  EXPECT_EQ(info["embeddings"][0]["name"], "whole-nodes");
  EXPECT_EQ(info["embeddings"][0]["rows"], 120);
  EXPECT_EQ(info["embeddings"][0]["dim"], 16);
  EXPECT_EQ(info["embeddings"][0]["optimizer"], "adagrad");
  EXPECT_EQ(info["embeddings"][0]["init"], "normal");
  EXPECT_GT(info["embeddings"][0]["disk_bytes"], 0);
  EXPECT_EQ(info["embeddings"][0]["timestamp"], expected["batches"].get<int>() - 1);
  ASSERT_EQ(info["trainings"].size(), 2u);
  EXPECT_EQ(info["trainings"][1]["name"], "link");
  EXPECT_THAT(info["trainings"][1]["settings"].get<std::string>(), HasSubstr("--dim 16"));
  EXPECT_THAT(Run("info kg-run").out, AllOf(HasSubstr("whole-relations"), HasSubstr("--task link")));
}

TEST_F(CliTest, LinkPredictionOfMoreVectorsThanMemoryHoldsStoresThem) {
  const std::string train =
      "train db --task link --decoder dot --dim 64 --batch-size 10000 --chunk 5000 --negatives 100 --epochs "
      "1 "
      "--valid-share 0.1% --test-share 0.1% --threads 2 --ordered --json";
  const Outcome in_memory = Run(train);
  ASSERT_EQ(in_memory.exit_code, 0) << in_memory.err;
  std::smatch least;
  const std::string refusal = Refused(train + " --memory 1MiB", 1);
  ASSERT_TRUE(std::regex_search(refusal, least, std::regex("at least ([0-9.]+) MiB"))) << refusal;
  const Outcome stored = Run(train + " --memory " + least[1].str() + "MiB");
  ASSERT_EQ(stored.exit_code, 0) << stored.err;
  EXPECT_THAT(stored.err, HasSubstr("in memory they would take"));
  const json expected = json::parse(Lines(in_memory.out).back()).at("summary");
  const json summary = json::parse(Lines(stored.out).back()).at("summary");
  EXPECT_EQ(expected["tables"], "memory");
  EXPECT_EQ(summary["tables"], "stored");
  EXPECT_EQ(summary["test_mrr"], expected["test_mrr"]);
  EXPECT_EQ(summary["loss"], expected["loss"]);
  EXPECT_GT(summary["pages_read"], 0);
  EXPECT_LT(summary["pool_hit_ratio"], 0.99);
  EXPECT_EQ(summary["checkpoints"], 0);
  EXPECT_LE(summary["memory_reserved_bytes"], summary["memory_budget_bytes"]);
  EXPECT_EQ(json::parse(Run("info db --json").out)["embeddings"].size(), 0u) << "scratch tables are gone";
}

TEST_F(CliTest, InterruptedLinkPredictionSaysWhereItGoesOn) {
  MakeTriples();
  fs::copy(Path("kg"), Path("kg-stop"), fs::copy_options::recursive);
  const std::string train =
      "train kg-stop --task link --dim 16 --batch-size 100 --valid-every 0 --checkpoint-every 30 --json "
      "--epochs ";
  const Process training(train + "100000", root_);
  EXPECT_TRUE(training.WaitUntil([&] { return Lines(training.Printed()).size() >= 3; }));
  training.Signal(SIGINT);
  const Outcome outcome = training.Wait();
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  std::smatch place;
  ASSERT_TRUE(
      std::regex_search(outcome.err, place, std::regex("goes on behind batch ([0-9]+) of epoch ([0-9]+)")))
      << outcome.err;
  const Outcome resumed = Run(train + place[2].str() + " --resume");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  const json summary = json::parse(Lines(resumed.out).back()).at("summary");
  EXPECT_EQ(summary["resumed_from_batch"].dump(), place[1].str());
  EXPECT_EQ(summary["resumed_from_epoch"].dump(), place[2].str());
  EXPECT_EQ(Run(train + place[2].str() + " --overwrite --save").exit_code, 0);
  EXPECT_THAT(Refused("train kg-stop --task link --overwrite", 2), HasSubstr("--save"));
}

TEST_F(CliTest, FailuresAreJsonWhereJsonIsAskedFor) {
  const Outcome failed = Run("import nosuch.db nosuch --json");
  const json error = json::parse(failed.out)["error"];
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_EQ(error["code"], "not found");
  EXPECT_EQ(error["exit_code"], 1);
  EXPECT_EQ("quarry: not found: " + error["message"].get<std::string>() + "\n", failed.err);
  const Outcome misspelt = Run("info db --json --lyers 3");
  EXPECT_EQ(json::parse(misspelt.out)["error"]["code"], "usage");
  // One line an object, so that line by line is enough for whoever reads.
  for (const std::string verb : {"info db", "stats db", "layout list db", "doctor db", "upgrade db"}) {
    const Outcome outcome = Run(verb + " --json");
    EXPECT_EQ(Lines(outcome.out).size(), 1u) << verb << ": " << outcome.out << outcome.err;
  }
}

TEST_F(CliTest, TablesOfTrainingFitEightyColumns) {
  for (const std::string arguments :
       {"--fanout 5,5 --hidden 8 --batch-size 512 --epochs 1",
        "--task link --valid-share 1% --test-share 1% --epochs 1 --dim 8 --negatives 20"}) {
    const Outcome outcome = Run("train db --memory 512MiB " + arguments);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const std::vector<std::string> lines = Lines(outcome.out);
    const auto head = std::ranges::find_if(lines, [](const auto& line) { return line.starts_with("epoch"); });
    ASSERT_LT(head, lines.end() - 1) << outcome.out;
    EXPECT_LE(head->size(), 80u);
    EXPECT_EQ(head[1].size(), head->size()) << outcome.out;
  }
}

TEST_F(CliTest, InterruptedLinkPredictionStops) {
  const Process training(
      "train db --task link --decoder dot --valid-share 1% --test-share 1% --epochs 100000 --json", root_);
  EXPECT_TRUE(training.WaitUntilItPrints());  // an epoch
  training.Signal(SIGINT);
  const Outcome outcome = training.Wait();
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("interrupted in"));
}

}  // namespace
}  // namespace quarry
