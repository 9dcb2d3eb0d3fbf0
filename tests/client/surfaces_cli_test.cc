// What others may have put where the CLI reads or prints: things that are no files in the place of a
// database's files, names that steer a terminal, sizes that mean nothing, a LOCK that somebody removed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli_database_test.h"
#include "support/array_files.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class SurfacesTest : public CliDatabaseTest {
 protected:
  static void SetUpTestSuite() {
    MakeDatabase("surfaces", "--nodes 500 --degree 6 --dim 8 --classes 3 --train-share 20% --valid-share 5%");
    Expect0("layout build db --fanout 3 --batch-size 64 --cache 10%");
    Expect0(
        "train db --task link --dim 8 --epochs 1 --batch-size 1000 --valid-share 5% --test-share 5% --save");
  }

  // One that hangs is killed, and ends with 128 + SIGKILL.
  static Outcome Run(const std::string& arguments) {
    const Process process(arguments, root_);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    siginfo_t ended{};
    while (waitid(P_PID, process.id(), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == 0) {
      if (std::chrono::steady_clock::now() > deadline) process.Signal(SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return process.Wait();
  }
};

struct Thing {
  const char* name;
  void (*make)(const fs::path& path);
};
constexpr Thing kFifo = {"a FIFO", [](const fs::path& path) { ASSERT_EQ(mkfifo(path.c_str(), 0600), 0); }};
constexpr Thing kDevice = {"a device", [](const fs::path& path) { fs::create_symlink("/dev/zero", path); }};
constexpr Thing kFolder = {"a folder", [](const fs::path& path) { fs::create_directory(path); }};
constexpr Thing kSocket = {"a socket", [](const fs::path& path) {
                             // By a short name: an address has 108 bytes.
                             const fs::path before = fs::current_path();
                             fs::current_path(path.parent_path());
                             sockaddr_un address{};
                             address.sun_family = AF_UNIX;
                             path.filename().string().copy(address.sun_path, sizeof(address.sun_path) - 1);
                             const int descriptor = socket(AF_UNIX, SOCK_STREAM, 0);
                             EXPECT_EQ(
                                 bind(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
                             close(descriptor);
                             fs::current_path(before);
                           }};

TEST_F(SurfacesTest, WhatIsNoFileInThePlaceOfAFileIsNamedAndNothingHangs) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(root_ / "db")) {
    const bool catalog = entry.path().string().find("/catalog") != std::string::npos;
    if (entry.is_regular_file() && !catalog) files.push_back(entry.path());
  }
  EXPECT_GE(files.size(), 11U)
      << "tables, graph, layout and its trace, embeddings and their maps, run, VERSION, LOCK";
  const std::vector<std::string> others = {"export db out --what topology,features,labels,split,embeddings",
                                           "checkpoint db out",
                                           "compact db --dry-run",
                                           "sql db SELECT/**/sum(label)/**/FROM/**/nodes",
                                           "layout explain db",
                                           "put db --ids graph/valid_idx.npy --split test",
                                           "repair db --dry-run"};
  const std::vector<Thing> things = {kFifo, kDevice, kFolder, kSocket};
  for (const fs::path& file : files) {
    const fs::path sound = root_ / "sound";
    fs::rename(file, sound);
    for (const Thing& thing : things) {
      SCOPED_TRACE(file.string() + " is " + thing.name);
      thing.make(file);
      const Outcome verify = Run("verify db");
      EXPECT_EQ(verify.exit_code, 3) << verify.err;
      EXPECT_THAT(verify.err + verify.out,
                  HasSubstr(file.lexically_relative(root_).string() + ": is " + thing.name));
      EXPECT_THAT(Run("info db").exit_code, testing::AnyOf(0, 3)) << "it reads some of them";
      // /dev/zero has no end to a reader; a FIFO makes whoever opens it wait.
      for (const std::string& verb : &thing == &things[0] ? others : std::vector<std::string>()) {
        const Outcome outcome = Run(verb);
        EXPECT_THAT(outcome.exit_code, testing::AnyOf(0, 1, 3)) << verb << "\n" << outcome.err;
        if (outcome.exit_code != 0) {
          EXPECT_THAT(outcome.err + outcome.out, HasSubstr(file.filename().string())) << verb;
        }
        fs::remove_all(root_ / "out");
      }
      fs::remove(file);
    }
    fs::rename(sound, file);
  }
  Expect0("verify db");
}

TEST_F(SurfacesTest, ALayoutIsRebuiltOverWhatIsNoFile) {
  for (const char* file : {"layout.qlc", "trace.qlt"}) {
    fs::copy(root_ / "db", root_ / "copy", fs::copy_options::recursive);
    const fs::path path = root_ / "copy/layouts/default-1" / file;
    ASSERT_TRUE(fs::remove(path));
    kFifo.make(path);
    // An interrupted build, whose mark cannot be read either.
    fs::create_directory(root_ / "copy/layouts/default.building");
    kFifo.make(root_ / "copy/layouts/default.building/sampled");
    Expect0("layout rebuild copy default --full");
    Expect0("verify copy");
    fs::remove_all(root_ / "copy");
  }
}

TEST_F(SurfacesTest, ALinkToASoundCopyIsFollowed) {
  const fs::path file = root_ / "db/features/feature-1.qft";
  fs::rename(file, root_ / "moved.qft");
  fs::create_symlink(root_ / "moved.qft", file);
  Expect0("verify db");
  fs::remove(file);
  fs::rename(root_ / "moved.qft", file);
}

TEST_F(SurfacesTest, ASourceThatIsNoFileIsRefused) {
  fs::create_directory(root_ / "strange");
  for (const Thing& thing : {kFifo, kDevice, kSocket, kFolder}) {
    SCOPED_TRACE(thing.name);
    thing.make(root_ / "strange/x.npy");
    for (const char* verb : {"import new strange/x.npy", "import new graph --features strange/x.npy",
                             "put db --ids strange/x.npy --split test"}) {
      const Outcome outcome = Run(verb);
      EXPECT_EQ(outcome.exit_code, 1) << verb << outcome.err;
      EXPECT_FALSE(fs::exists(root_ / "new"));
    }
    fs::remove(root_ / "strange/x.npy");
  }
}

// Nothing that a terminal would obey.
void ExpectTame(const std::string& text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool control = byte < 0x20 && text[i] != '\n' && text[i] != '\t';
    const std::string three = text.substr(i, 3);
    const bool steers = (three >= "\u2028" && three <= "\u202e") || (three >= "\u2066" && three <= "\u2069");
    const bool c1 = byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    EXPECT_FALSE(control || byte == 0x7f || c1 || steers)
        << "at " << i << " of " << testing::PrintToString(text);
  }
}

TEST_F(SurfacesTest, NamesDoNotSteerTheTerminal) {
  const std::string wild = "\x1b[2J\x07\x7f\u009b31m\u202etxt\u2066\u2028x";
  fs::create_directory(root_ / "wild");
  std::ofstream(root_ / "wild/train.txt") << "a" << wild << "\tr" << wild << "\tb\n";
  Expect0("import wild.db wild");
  const std::string shown = "\\u001b[2J\\u0007\\u007f\\u009b31m\\u202etxt\\u2066\\u2028x";
  for (const char* format : {"--box", "--json"}) {
    const Outcome rows = Run(std::string("sql wild.db ") + format + " SELECT/**/*/**/FROM/**/relations");
    EXPECT_EQ(rows.exit_code, 0) << rows.err;
    EXPECT_THAT(rows.out, HasSubstr("r" + shown));
    ExpectTame(rows.out);
  }
  const Outcome document = Run("sql wild.db --json SELECT/**/name/**/FROM/**/relations");
  EXPECT_EQ(nlohmann::json::parse(document.out)[0]["name"], "r" + wild)
      << "an escape of JSON, not another name";
  EXPECT_THAT(Run("sql wild.db --csv SELECT/**/name/**/FROM/**/relations").out, HasSubstr("r" + wild))
      << "bytes, for programs";
  for (const std::string& arguments :
       {std::string("info wild.db"), std::string("info wild.db --json"), std::string("stats wild.db"),
        "sql wild.db SELECT/**/1/**/AS/**/\"" + wild + "\"",
        "sql wild.db SELECT/**/\"" + wild + "\"/**/FROM/**/x", "sql wild.db " + wild, "info " + wild,
        "info wild.db --json=" + wild, "--" + wild, wild, "train wild.db --layout " + wild,
        "drop wild.db table " + wild + " --yes", "import x.db wild/train.txt --edges " + wild}) {
    const Outcome outcome = Run(arguments);
    EXPECT_LT(outcome.exit_code, 4) << arguments;
    ExpectTame(outcome.out + outcome.err);
  }
}

TEST_F(SurfacesTest, SizesAndDurationsThatMeanNothingAreUsageErrors) {
  for (const char* arguments : {"layout build db --disk 0",
                                "layout build db --disk 0x",
                                "layout build db --disk nanx",
                                "layout build db --disk infx",
                                "layout build db --disk -1x",
                                "layout build db --disk 1e300x",
                                "layout build db --memory 0",
                                "layout build db --memory 50%",
                                "layout build db --memory nan",
                                "import new graph --memory 0",
                                "import new graph --memory -1",
                                "import new graph --memory inf",
                                "import new graph --memory 1e30GiB",
                                "import new graph --nodes 0",
                                "import new graph --nodes nan",
                                "export db new --memory 0",
                                "compact db --memory 0",
                                "put db --ids graph/valid_idx.npy --split test --memory 0",
                                "train db --memory 0",
                                "train db --memory 0% --task node",
                                "train db --task link --memory 0",
                                "serve db --socket run/s --memory 0",
                                "serve db --socket run/s --memory 1",
                                "serve db --socket run/s --checkpoint-embeddings nan",
                                "serve db --socket run/s --checkpoint-embeddings -1",
                                "sql db --timeout nan SELECT/**/1",
                                "sql db --timeout inf SELECT/**/1",
                                "sql db --timeout 0 SELECT/**/1",
                                "sql db --timeout 1e300 SELECT/**/1",
                                "stats db --watch nan",
                                "stats db --watch 1e300",
                                "generate new --train-share nan",
                                "generate new --train-share inf%"}) {
    const Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments << "\n" << outcome.out << outcome.err;
    EXPECT_FALSE(fs::exists(root_ / "new")) << arguments;
  }
}

TEST_F(SurfacesTest, RemovingLockLetsNoSecondWriterIn) {
  const Process server("serve db --socket run/s --memory 64MiB --json", root_);
  ASSERT_TRUE(server.WaitUntilItPrints());
  ASSERT_TRUE(fs::remove(root_ / "db/LOCK"));
  for (const char* verb :
       {"put db --ids graph/valid_idx.npy --split test", "info db", "serve db --socket run/t"}) {
    const Outcome outcome = Run(verb);
    EXPECT_EQ(outcome.exit_code, 1) << verb;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("busy: "), HasSubstr("db is open in another process"))) << verb;
  }
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait().exit_code, 0);
  Expect0("put db --ids graph/valid_idx.npy --split valid");
}

}  // namespace
}  // namespace quarry
