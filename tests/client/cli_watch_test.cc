// How a person watches what Quarry does: traces of long commands, and `quarry top`.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <termios.h>

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "cli_database_test.h"
#include "fake_server.h"
#include "support/file_text.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::Not;
using testing_util::FakeServer;

class CliWatchTest : public CliDatabaseTest {
 protected:
  static void SetUpTestSuite() {
    MakeDatabase(
        "cli_watch_test",
        "--nodes 4k --degree 8 --dim 16 --classes 4 --train-share 20% --valid-share 5% --test-share 5%",
        "--trace import.json");
  }
};

// A trace that was written: names of spans by the name of their thread.
struct ReadTrace {
  explicit ReadTrace(const fs::path& path) {
    const json trace = json::parse(testing_util::FileText(path));
    std::map<int, std::string> threads;
    for (const json& event : trace["traceEvents"]) {
      if (event["name"] == "thread_name") threads[event["tid"]] = event["args"]["name"];
    }
    for (const json& event : trace["traceEvents"]) {
      if (event["ph"] != "X") continue;
      EXPECT_TRUE(threads.contains(event["tid"])) << event;
      EXPECT_GE(event["dur"].get<double>(), 0);
      spans[threads[event["tid"]]].insert(event["name"]);
      if (event.contains("args")) numbers[event["name"]].insert(event["args"]["number"].get<uint64_t>());
    }
  }
  std::set<std::string> All() const {
    std::set<std::string> all;
    for (const auto& [thread, names] : spans) all.insert(names.begin(), names.end());
    return all;
  }
  std::map<std::string, std::set<std::string>> spans;
  std::map<std::string, std::set<uint64_t>> numbers;
};

constexpr const char* kTrainSmall =
    " --hidden 8 --batch-size 100 --epochs 2 --memory 256MiB --threads 2 --torch-threads 1 --layers 2 "
    "--fanout 5,5";

// Each into a file of its own, with at least the span that it is named for here.
TEST_F(CliWatchTest, EveryLongCommandTraces) {
  const std::pair<std::string, std::string> commands[] = {
      {"generate traced-graph --nodes 1k --degree 4 --dim 8 --classes 4", "generate features"},
      {"layout build db traced --fanout 5,5 --batch-size 100 --cache 10%", "sample an epoch ahead"},
      {"layout explain db traced", "price the ways of reading"},
      {"layout trace db traced", "simulate caches"},
      {"layout drop db traced", ""},
      {"checkpoint db traced-copy", "link files"},
      {"restore traced-copy traced-db", "verify the catalog"},
      {"repair traced-db", "verify the catalog"},
      {"calibrate traced-db --force", "measure the device"},
      {"sql traced-db SELECT/**/max(feature)/**/FROM/**/features", "read a piece"},
  };
  for (const auto& [command, span] : commands) {
    const fs::path file = root_ / "every.json";
    const Outcome outcome = Run(command + (span.empty() ? "" : " --trace every.json"));
    ASSERT_EQ(outcome.exit_code, 0) << command << "\n" << outcome.err;
    if (!span.empty()) {
      EXPECT_THAT(ReadTrace(file).All(), testing::Contains(span)) << command;
    }
    fs::remove(file);
  }
}

TEST_F(CliWatchTest, ATraceOfTrainingHasSpansOfEveryStage) {
  const Outcome trained = Run(std::string("train db --trace train.json") + kTrainSmall);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr("train.json: "));
  ReadTrace live(root_ / "train.json");
  EXPECT_THAT(live.spans["sample"], testing::ElementsAre("sample"));
  EXPECT_THAT(live.spans["extract"], testing::ElementsAre("extract"));
  EXPECT_THAT(live.All(), IsSupersetOf({"wait", "compute", "step", "evaluate"}));
  // About 800 training nodes in batches of 100.
  const std::set<uint64_t>& computed = live.numbers["compute"];
  EXPECT_GE(computed.size(), 7u);
  EXPECT_EQ(*computed.rbegin() + 1, computed.size());
  EXPECT_THAT(live.numbers["sample"], IsSupersetOf({0, 7}));

  const Outcome built = Run("layout build db --fanout 5,5 --batch-size 100 --cache 10% --trace build.json");
  ASSERT_EQ(built.exit_code, 0) << built.err;
  EXPECT_THAT(ReadTrace(root_ / "build.json").All(),
              IsSupersetOf({"sample an epoch ahead", "plan the cache", "encode blocks", "pack"}));
  const Outcome planned = Run(std::string("train db --layout default --trace planned.json") + kTrainSmall);
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  ReadTrace trace(root_ / "planned.json");
  EXPECT_THAT(trace.spans["load"], IsSupersetOf({"start reads", "load"}));
  EXPECT_THAT(trace.spans["assemble"], IsSupersetOf({"assemble"}));
  EXPECT_THAT(trace.All(), IsSupersetOf({"wait", "copy", "compute", "step"}));
}

TEST_F(CliWatchTest, OtherLongCommandsHaveTheirPhases) {
  EXPECT_THAT(ReadTrace(root_ / "import.json").All(),
              IsSupersetOf({"read edges", "write topology", "import features", "commit the catalog"}));
  const std::pair<const char*, std::set<std::string>> commands[] = {
      {"verify db", {"verify the catalog", "verify a file"}},
      {"checkpoint db copy", {"link files", "sync"}},
      {"put db --ids graph/valid_idx.npy --split test", {"read and check", "commit"}},
      {"compact db --table feature", {}},
  };
  for (const auto& [command, spans] : commands) {
    const Outcome done = Run(std::string(command) + " --trace phases.json");
    EXPECT_EQ(done.exit_code, 0) << command << ": " << done.err;
    EXPECT_THAT(ReadTrace(root_ / "phases.json").All(), IsSupersetOf(spans)) << command;
  }
}

TEST_F(CliWatchTest, ACommandThatFailsOrIsInterruptedLeavesItsTrace) {
  EXPECT_EQ(Run("verify nothing --trace failed.json").exit_code, 1);
  EXPECT_THAT(ReadTrace(root_ / "failed.json").All(), IsEmpty());
  fs::copy(root_ / "db", root_ / "endless", fs::copy_options::recursive);
  const Process training(
      "train endless --trace stopped.json --json --layers 1 --fanout 5 --hidden 8 --epochs 100000 "
      "--memory 256MiB --threads 1 --torch-threads 1",
      root_);
  EXPECT_TRUE(training.WaitUntilItPrints());
  training.Signal(SIGINT);
  EXPECT_EQ(training.Wait().exit_code, 1);
  EXPECT_THAT(ReadTrace(root_ / "stopped.json").All(), IsSupersetOf({"sample", "extract", "compute"}));
}

TEST_F(CliWatchTest, ATraceThatCannotBeWrittenStopsTheCommandBeforeItBegins) {
  const Outcome refused = Run("import other graph --trace nowhere/trace.json");
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("nowhere/trace.json"));
  EXPECT_FALSE(fs::exists(root_ / "other"));
}

// `quarry top` and a server that tells of more batches each time it is asked.
class CliTopTest : public CliWatchTest {
 protected:
  std::optional<FakeServer::Reply> Answer(uint64_t id, const wire::Request& request) {
    if (!std::holds_alternative<wire::GetStatus>(request)) return FakeServer::Reply();
    return FakeServer::Answer(
        id, wire::ServerStatus{
                .counters = {{"quarry_request_seconds_lookup_count", 1},
                             {"quarry_request_seconds_lookup_p50", 0.001},
                             {"quarry_request_seconds_lookup_p99", 0.001}},
                .sessions = {{.id = 7, .pid = 4321, .budget_bytes = 1 << 30, .used_bytes = 1 << 29}},
                .streams = {{.id = 3,
                             .session = 7,
                             .road = "planned",
                             .group = "all",
                             .batches = 100 * ++looks_,
                             .slots = 4,
                             .cache_lookups = 200,
                             .cache_hits = 150}}});
  }
  std::string socket() const { return (root_ / "top").string(); }

  std::atomic<uint64_t> looks_{0};
  std::unique_ptr<FakeServer> server_ = std::make_unique<FakeServer>(
      socket(), [this](uint64_t id, const wire::Request& request) { return Answer(id, request); });
};

TEST_F(CliTopTest, OneReportForPeopleAndForPrograms) {
  const Outcome once = Run("top unix:" + socket());
  EXPECT_EQ(once.exit_code, 0) << once.err;
  EXPECT_THAT(once.out, AllOf(HasSubstr("1 session, 1 stream "), HasSubstr("4321"), HasSubstr("planned"),
                              HasSubstr("75.0%"), HasSubstr("512 MiB"), HasSubstr("1.00 GiB"),
                              HasSubstr("[=====     ]"), HasSubstr("\nlookup "), Not(HasSubstr("\033"))));
  const Outcome machine = Run("top --json " + socket());
  EXPECT_EQ(machine.exit_code, 0) << machine.err;
  const json state = json::parse(machine.out);
  EXPECT_EQ(state["sessions"][0]["pid"], 4321);
  EXPECT_EQ(state["streams"][0]["road"], "planned");
  EXPECT_EQ(state["streams"][0]["group"], "all");
  EXPECT_EQ(state["counters"]["quarry_request_seconds_lookup_count"], 1);
}

TEST_F(CliTopTest, WhatIsNoServerIsSaid) {
  EXPECT_EQ(Run("top").exit_code, 2);
  server_.reset();
  const Outcome gone = Run("top " + socket());
  EXPECT_EQ(gone.exit_code, 1);
  EXPECT_THAT(gone.err, HasSubstr(socket()));
}

// A terminal, and quarry in it.
class Terminal {
 public:
  explicit Terminal(const std::string& arguments, const char* no_color)
      : master_(posix_openpt(O_RDWR | O_NOCTTY)) {
    EXPECT_TRUE(grantpt(master_) == 0 && unlockpt(master_) == 0);
    // Held here too, so that what is set on it can be seen when the process is gone.
    slave_ = open(ptsname(master_), O_RDWR | O_NOCTTY);
    tcgetattr(slave_, &before_);
    std::vector<std::string> words = Words(arguments);
    words.insert(words.begin(), QUARRY_BINARY);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    process_ = fork();
    if (process_ != 0) return;
    setenv("NO_COLOR", no_color, 1);
    for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(slave_, descriptor);
    execv(QUARRY_BINARY, argv.data());
    _exit(127);
  }
  ~Terminal() {
    close(slave_);
    close(master_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // True once the text was on the screen.
  bool Shows(const std::string& text) {
    for (pollfd output{.fd = master_, .events = POLLIN}; screen_.find(text) == std::string::npos;) {
      char piece[4096];
      if (poll(&output, 1, 10'000) <= 0) return false;
      const ssize_t bytes = read(master_, piece, sizeof(piece));
      if (bytes <= 0) return false;
      screen_.append(piece, static_cast<size_t>(bytes));
    }
    return true;
  }
  void Press(char key) const { EXPECT_EQ(write(master_, &key, 1), 1); }
  void Signal(int signal) const { kill(process_, signal); }
  int Wait() const {
    int status = 0;
    EXPECT_EQ(waitpid(process_, &status, 0), process_);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  bool IsAsBefore() const {
    termios now{};
    return tcgetattr(slave_, &now) == 0 && now.c_lflag == before_.c_lflag;
  }
  const std::string& screen() const { return screen_; }

 private:
  const int master_;
  int slave_ = -1;
  termios before_{};
  pid_t process_ = -1;
  std::string screen_;
};

TEST_F(CliTopTest, InATerminalItRedrawsUntilQ) {
  Terminal terminal("top " + socket(), "");
  EXPECT_TRUE(terminal.Shows("planned")) << terminal.screen();
  EXPECT_TRUE(terminal.Shows("\033[1m"));
  // Rates come with the second look: then the batches per second are known.
  for (const auto start = std::chrono::steady_clock::now();
       looks_ < 3 && std::chrono::steady_clock::now() - start < std::chrono::seconds(10);) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  terminal.Press('q');
  EXPECT_TRUE(terminal.Shows("\033[?1049l")) << "the screen is as it was";
  EXPECT_THAT(terminal.screen(), testing::ContainsRegex("[1-9][0-9.]* batches/s"));
  EXPECT_EQ(terminal.Wait(), 0);
  EXPECT_TRUE(terminal.IsAsBefore());
}

TEST_F(CliTopTest, ControlCEndsItAndColorsCanBeRefused) {
  Terminal terminal("top " + socket(), "1");
  EXPECT_TRUE(terminal.Shows("planned")) << terminal.screen();
  EXPECT_THAT(terminal.screen(), Not(HasSubstr("\033[1m")));
  server_.reset();
  EXPECT_TRUE(terminal.Shows("trying again")) << terminal.screen();
  terminal.Signal(SIGINT);
  EXPECT_TRUE(terminal.Shows("\033[?1049l"));
  EXPECT_EQ(terminal.Wait(), 0);
  EXPECT_TRUE(terminal.IsAsBefore());
}

}  // namespace
}  // namespace quarry
