// What holds for every verb: help with examples, what was probably meant, options from files, completion.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>

#include "cli_database_test.h"
#include "support/file_text.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::Not;

class CommandLineTest : public CliDatabaseTest {
 protected:
  static void SetUpTestSuite() {
    MakeDatabase("command_line_test", "--nodes 2k --degree 6 --dim 8 --classes 3 --train-share 20%");
  }

  static std::string UsageFault(const std::string& arguments) {
    const Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_TRUE(PrintedTheErrorAlone(outcome, arguments)) << arguments << "\n" << outcome.out;
    EXPECT_TRUE(outcome.err.starts_with("quarry: usage: ")) << outcome.err;
    return outcome.err;
  }
};

// Names under "Subcommands:".
std::vector<std::string> VerbsIn(const std::string& help) {
  std::vector<std::string> verbs;
  const size_t at = help.find("Subcommands:\n");
  if (at == std::string::npos) return verbs;
  static const std::regex kVerb("  ([a-z-]+) .*");
  const std::vector<std::string> lines = Lines(help.substr(at));
  for (size_t i = 1; i < lines.size() && !lines[i].empty(); i++) {
    std::smatch match;
    if (std::regex_match(lines[i], match, kVerb)) verbs.push_back(match[1]);
  }
  return verbs;
}

// Help of every verb by its path: " layout build"; "" is the application.
const std::map<std::string, std::string>& AllHelp(const fs::path& root) {
  static std::map<std::string, std::string> help;
  for (std::vector<std::string> paths = help.empty() ? std::vector<std::string>{""}
                                                     : std::vector<std::string>();
       !paths.empty();) {
    std::vector<std::string> next;
    for (size_t i = 0; i < paths.size(); i += 2) {  // two at a time
      std::vector<std::unique_ptr<Process>> running;
      for (size_t j = i; j < std::min(i + 2, paths.size()); j++) {
        running.push_back(std::make_unique<Process>(paths[j] + " --help", root));
      }
      for (size_t j = 0; j < running.size(); j++) {
        const Outcome outcome = running[j]->Wait();
        EXPECT_EQ(outcome.exit_code, 0) << paths[i + j];
        for (const std::string& verb : VerbsIn(outcome.out)) next.push_back(paths[i + j] + " " + verb);
        help[paths[i + j]] = outcome.out;
      }
    }
    paths = next;
  }
  return help;
}

// The commands behind "Example:" or "Examples:", without `quarry`.
std::vector<std::string> ExamplesIn(const std::string& help) {
  std::vector<std::string> examples;
  const size_t at = help.find("\nExample");
  if (at == std::string::npos) return examples;
  static const std::regex kCommand("quarry( [^;|<>()&]+)");
  const std::string text = help.substr(at);
  for (std::sregex_iterator command(text.begin(), text.end(), kCommand), end; command != end; ++command) {
    examples.push_back((*command)[1].str().substr(0, (*command)[1].str().find('\n')));
  }
  return examples;
}

// The longest path that the command begins with.
std::string VerbOf(const std::string& command, const std::map<std::string, std::string>& help) {
  std::string verb;
  for (const auto& [path, text] : help) {
    if (command.starts_with(path + " ") && path.size() > verb.size()) verb = path;
  }
  return verb;
}

TEST_F(CommandLineTest, EveryVerbHasAnExampleWithOptionsThatItHas) {
  const std::map<std::string, std::string>& all = AllHelp(root_);
  EXPECT_GE(all.size(), 25U);
  for (const char* verb : {" stats", " doctor", " completion", " upgrade", " layout build"}) {
    EXPECT_TRUE(all.contains(verb)) << verb;
  }
  for (const auto& [path, help] : all) {
    bool has_own = !VerbsIn(help).empty();  // its verbs have examples
    for (const std::string& example : ExamplesIn(help)) {
      const std::string verb = VerbOf(example, all);
      has_own = has_own || verb == path;
      ASSERT_FALSE(verb.empty()) << example;
      for (const std::string& word : Words(example)) {
        if (!word.starts_with("--")) continue;
        const std::string option = word.substr(0, word.find('='));
        EXPECT_TRUE(std::regex_search(all.at(verb), std::regex("\n  (-.,)?" + option + "[ ,\n]"))) << example;
      }
    }
    EXPECT_TRUE(has_own) << "quarry" << path << " --help has no example";
  }
}

TEST_F(CommandLineTest, WhatWasProbablyMeantIsSaid) {
  EXPECT_THAT(UsageFault("trian db"), HasSubstr("there is no verb 'trian'; did you mean 'train'?"));
  EXPECT_THAT(UsageFault("layout rebiuld db"), AllOf(HasSubstr("'layout rebiuld'"), HasSubstr("'rebuild'?")));
  EXPECT_THAT(UsageFault("frobnicate db"),
              AllOf(Not(HasSubstr("did you mean")), HasSubstr("generate, import")));
  EXPECT_THAT(UsageFault("train db --lyers 3"),
              HasSubstr("`quarry train` has no option '--lyers'; did you mean '--layers'?"));
  EXPECT_THAT(UsageFault("info --jsn"), HasSubstr("did you mean '--json'?")) << "before the missing database";
  EXPECT_THAT(UsageFault("layout build db --fanuot=5"), HasSubstr("did you mean '--fanout'?"));
  EXPECT_THAT(UsageFault("info db --frobnicate"),
              AllOf(Not(HasSubstr("did you mean")), HasSubstr("`quarry info --help` lists them")));
  EXPECT_THAT(UsageFault("info db more"), HasSubstr("more"));
}

// The database is not there: whatever is wrong with the words is told before it is looked for.
TEST_F(CommandLineTest, ValuesOutOfRangeAreRefusedByValueRangeAndExampleBeforeAnyWork) {
  const std::pair<const char*, const char*> cases[] = {
      {"--lr -1", "'-1' is not a learning rate above 0, such as 0.003"},
      {"--lr nan", "'nan' is not a learning rate above 0"},
      {"--dropout 1.5", "'1.5' is not a share from 0 to below 1, such as 0.5"},
      {"--input-dropout 1", "'1' is not a share from 0 to below 1"},
      {"--weight-decay -0.1", "a penalty of 0 or more"},
      {"--hidden 0", "'0' is not a width from 1 to 65536, such as 256"},
      {"--epochs 0", "'0' is not a number of epochs from 1 on"},
      {"--layers 0", "a number of layers from 1 to"},
      {"--batch-size 0", "'0' is not a number of seeds from 1 on"},
      {"--fanout ten", "'ten' is not a number of neighbors"},
      {"--fanout 10,0", "'0' is not a number of neighbors"},
      {"--cache 200%", "--cache 200%: all rows are 100%"},
      {"--cache much", "--cache"},
      {"--memory much", "--memory"},
      {"--plan --disk -1x", "--disk"},
      {"--plan --epochs-planned 0", "'0' is not a number of epochs from 1 on"},
  };
  for (const auto& [options, words] : cases) {
    EXPECT_THAT(UsageFault(std::string("train nowhere ") + options), HasSubstr(words)) << options;
  }
  EXPECT_THAT(UsageFault("train nowhere --seed first"), HasSubstr("--seed: 'first' is not a whole number"));
}

TEST_F(CommandLineTest, OptionsWithoutEffectInACombinationAreRefused) {
  for (const char* options :
       {"--disk 3x --road live", "--policy lru", "--epochs-planned 3", "--hash-functions 4 --road live"}) {
    const std::string fault = UsageFault(std::string("train nowhere ") + options);
    EXPECT_THAT(fault, AllOf(HasSubstr(std::string(options).substr(0, std::string(options).find(' '))),
                             HasSubstr("--plan")));
  }
  EXPECT_THAT(UsageFault("train nowhere --plan --resample every-epoch --epochs-planned 3"),
              HasSubstr("leave one of them out"));
  for (const char* options : {"--plan --road live", "--layout default --explain", "--plan --explain"}) {
    EXPECT_THAT(UsageFault(std::string("train nowhere ") + options), HasSubstr("leave one out")) << options;
  }
  for (const char* options : {"--plan --policy lru", "--road planned --policy lru", "--disk 3x"}) {
    EXPECT_THAT(Run(std::string("train nowhere ") + options).err, HasSubstr("nowhere"))
        << "taken: " << options;
  }
}

// Every option of roads with every road: taken where it has an effect, and refused by its name where it has none.
TEST_F(CommandLineTest, OptionsGoWithTheRoadsThatTheyHaveAnEffectOn) {
  const std::vector<std::string> roads = {"",
                                          "--road live",
                                          "--road planned",
                                          "--plan",
                                          "--road fresh",
                                          "--plan --resample every-epoch",
                                          "--layout default"};
  // By option, a letter for each road: t for one that takes it, and r for one that refuses.
  const std::pair<const char*, const char*> cases[] = {
      {"--cache 10%", "ttttttr"},         {"--policy lru", "rrttttr"},  {"--epochs-planned 3", "rrttrrr"},
      {"--hash-functions 4", "rrttttr"},  {"--disk 3x", "trttttr"},     {"--seed-order proximity", "trttttr"},
      {"--dry-run", "ttttttt"},           {"--explain", "tttrtrr"},     {"--resample never", "rrrtrtr"},
      {"--explain --dry-run", "rrrrrrr"}, {"--superbatch 5", "trrrttr"}};
  for (const auto& [option, letters] : cases) {
    for (size_t i = 0; i < roads.size(); ++i) {
      SCOPED_TRACE(fmt::format("train nowhere {} {}", roads[i], option));
      if (roads[i].ends_with("every-epoch") && std::string(option).starts_with("--resample")) continue;
      const Outcome outcome = Run(fmt::format("train nowhere {} {}", roads[i], option));
      if (letters[i] == 't') {
        EXPECT_NE(outcome.exit_code, 2) << outcome.err;
        EXPECT_THAT(outcome.err, HasSubstr("nowhere"));
        continue;
      }
      EXPECT_EQ(outcome.exit_code, 2);
      const std::string name = std::string(option).substr(0, std::string(option).find(' '));
      EXPECT_THAT(outcome.err, HasSubstr(name));
    }
  }
}

TEST_F(CommandLineTest, ValuesOfTheEnvironmentThatMeanNothingAreRefused) {
  for (const char* variable : {"QUARRY_LOG=loud", "QUARRY_IO=foo"}) {
    const Outcome outcome = Process("info db", root_, {variable}).Wait();
    EXPECT_EQ(outcome.exit_code, 2) << variable;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr(variable), HasSubstr("it is one of")));
  }
  for (const char* variable : {"QUARRY_LOG=debug", "QUARRY_IO=threads", "QUARRY_LOG="}) {
    EXPECT_EQ(Process("info db", root_, {variable}).Wait().exit_code, 0) << variable;
  }
}

TEST_F(CommandLineTest, HelpIsAVerbToo) {
  EXPECT_EQ(Run("help train").out, Run("train --help").out);
  EXPECT_EQ(Run("help layout build").out, Run("layout build --help").out);
  EXPECT_EQ(Run("help").out, Run("--help").out);
  EXPECT_THAT(UsageFault(""), HasSubstr("`quarry --help` lists them"));
}

TEST_F(CommandLineTest, OptionsComeFromAFileAndTheCommandLineOverridesThem) {
  Write("quarry.toml",
        "# how we generate\n[generate]\nnodes = \"3k\"\ndim = 12\nclasses = 4\n\n[info]\njson = true\n"
        "[train]\nfanout = [10, 10]\nordered = false\n");
  const Outcome made = Run("generate made --config quarry.toml --dim 5");
  EXPECT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out,
              AllOf(HasSubstr("3000 nodes"), HasSubstr("features 3000 x 5"), HasSubstr("4 classes")));
  const Outcome before = Run("--config quarry.toml info db");
  EXPECT_EQ(json::parse(before.out)["nodes"], 2000) << "the option may stand in front of the verb";
  Write("off.toml", "[info]\njson = false\n");
  EXPECT_THAT(Run("info db --config off.toml").out, testing::ContainsRegex("database +db\n"));
  Write("nested.toml", "[layout.list]\njson = true\n");
  EXPECT_EQ(json::parse(Run("layout list db --config nested.toml").out), json::array());
}

TEST_F(CommandLineTest, WhatAFileMayNotHoldIsRefusedByItsName) {
  const auto refused = [](const std::string& text) {
    Write("wrong.toml", text);
    const std::string fault = UsageFault("info db --config wrong.toml");
    EXPECT_THAT(fault, HasSubstr("wrong.toml: "));
    return fault;
  };
  EXPECT_THAT(refused("[train]\nepoch = 3\n"), AllOf(HasSubstr("[train]"), HasSubstr("no option 'epoch'"),
                                                     HasSubstr("did you mean 'epochs'?")));
  EXPECT_THAT(refused("[trian]\n"), AllOf(HasSubstr("'trian'"), HasSubstr("did you mean 'train'?")));
  EXPECT_THAT(refused("[layout.biuld]\nseed = 3\n"),
              AllOf(HasSubstr("[layout.biuld]"), HasSubstr("'build'?")));
  EXPECT_THAT(refused("json = true\n"), HasSubstr("'json' stands in front of the first section"));
  EXPECT_THAT(refused("[info]\njson = 3\n"), HasSubstr("info.json: '3' is neither true nor false"));
  EXPECT_THAT(refused("[info]\nentity-id = \"x\"\n"), HasSubstr("info.entity-id: "));
  EXPECT_THAT(refused("[info]\nentity = \"a\n"), HasSubstr("is not closed"));
  EXPECT_THAT(refused("[info]\nhelp = true\n"), HasSubstr("no option 'help'"));
  EXPECT_THAT(UsageFault("info db --config nowhere.toml"), HasSubstr("nowhere.toml"));
}

// Losses and accuracies of a run that prints JSON.
std::vector<json> ResultsIn(const Outcome& run) {
  std::vector<json> results;
  EXPECT_EQ(run.exit_code, 0) << run.err;
  for (const std::string& line : Lines(run.out)) {
    const json object = json::parse(line);
    if (object.contains("epoch")) results.push_back({object["loss"], object["valid_accuracy"]});
  }
  return results;
}

TEST_F(CommandLineTest, WhatACommandRanWithIsSavedAndRunsItAgain) {
  const Outcome first =
      Run("train db --layers 2 --fanout 5,5 --hidden 8 --epochs 2 --batch-size 100 --seed 3 --ordered "
          "--threads 2 "
          "--torch-threads 1 --memory 256MiB --json --save-config run.toml");
  const std::string saved = testing_util::FileText(root_ / "run.toml");
  EXPECT_THAT(saved,
              AllOf(HasSubstr("[train]\n"), HasSubstr("\nfanout = [5, 5]\n"), HasSubstr("\njson = true\n"),
                    HasSubstr("\n# dropout = "), Not(HasSubstr("save-config"))));
  const std::vector<json> results = ResultsIn(first);
  EXPECT_EQ(results.size(), 2U);
  EXPECT_EQ(ResultsIn(Run("train --config run.toml")), results);
  EXPECT_NE(ResultsIn(Run("train --config run.toml --seed 4")), results);

  const Outcome nowhere = Run("info db --save-config nowhere/run.toml");
  EXPECT_EQ(nowhere.exit_code, 1);
  EXPECT_THAT(nowhere.err, HasSubstr("nowhere/run.toml"));
  EXPECT_THAT(nowhere.out, IsEmpty());
}

class CompletionTest : public CommandLineTest {
 protected:
  // What a shell prints, quarry being in its path.
  static std::string Shell(const std::string& shell, const std::string& script) {
    Write("script", script);
    const std::string folder = fs::path(QUARRY_BINARY).parent_path().string();
    const std::string command =
        "PATH=" + folder + ":$PATH " + shell + " " + (root_ / "script").string() + " 2>&1";
    std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
    std::string printed;
    for (char piece[4096]; const size_t bytes = fread(piece, 1, sizeof(piece), pipe.get());) {
      printed.append(piece, bytes);
    }
    return printed;
  }
  static bool Has(const std::string& shell) {
    return std::system(("command -v " + shell + " > /dev/null").c_str()) == 0;
  }
};

TEST_F(CompletionTest, BashCompletesVerbsOptionsAndValues) {
  const std::string printed = Shell("bash", R"(source <(quarry completion bash)
complete -p quarry
try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _quarry; echo "${COMPREPLY[*]}"; }
try quarry tra
try quarry layout re
try quarry train db --lay
try quarry train db --direction o
try quarry train db --memory ""
try quarry train db --model g
try quarry train db --aggregator ""
try quarry layout build db --po
try quarry completion z
try quarry --config
try quarry info db --conf
try quarry ""
)");
  const std::vector<std::string> lines = Lines(printed);
  ASSERT_EQ(lines.size(), 13U) << printed;
  EXPECT_EQ(lines[0], "complete -o default -F _quarry quarry");
  EXPECT_EQ(lines[1], "train");
  EXPECT_EQ(lines[2], "rebuild");
  EXPECT_THAT(Words(lines[3]), testing::UnorderedElementsAre("--layers", "--layout"));
  EXPECT_EQ(lines[4], "out");
  EXPECT_EQ(lines[5], "") << "bash completes names of files";
  EXPECT_THAT(Words(lines[6]), ElementsAre("gcn", "gat", "gin"));
  EXPECT_THAT(Words(lines[7]), ElementsAre("mean", "max", "sum"));
  EXPECT_EQ(lines[8], "--policy");
  EXPECT_EQ(lines[9], "zsh");
  EXPECT_EQ(lines[10], "--config");
  EXPECT_EQ(lines[11], "--config");
  EXPECT_EQ(Words(lines[12]), VerbsIn(AllHelp(root_).at("")));
}

TEST_F(CompletionTest, NamesOfTheDatabaseComplete) {
  ASSERT_EQ(Run("import named graph").exit_code, 0);
  ASSERT_EQ(Run("layout build named first-one --fanout 3 --batch-size 100").exit_code, 0);
  ASSERT_EQ(Run("train named --fanout 3 --batch-size 100 --epochs 1 --hidden 4 --run mine").exit_code, 0);
  for (const auto& [words, completed] :
       {std::pair{"layout drop named fi", "first-one"}, std::pair{"layout explain named f", "first-one"},
        std::pair{"drop named layout fir", "first-one"}, std::pair{"train named --layout f", "first-one"},
        std::pair{"compact named --table la", "label"}, std::pair{"predict named --run m", "mine"},
        std::pair{"drop named training m", "mine"}}) {
    EXPECT_EQ(Run(fmt::format("__complete {}", words)).out, std::string(completed) + "\t\n") << words;
  }
  EXPECT_EQ(Run("__complete layout drop nowhere fi").out, "");
  EXPECT_EQ(Run("__complete train named --fanout fi").out, "") << "a value that is no name";
  EXPECT_EQ(Run("__complete layout build named --batch-size fi").out, "");
  EXPECT_EQ(Run("__complete layout build named --policy fi").out, "fifo\t\n") << "no layouts beside policies";
  EXPECT_EQ(Run("__complete layout drop named first-one fi").out, "") << "a second name";
  // Folders that are called as verbs or values are, and a database behind options.
  std::filesystem::create_directory(root_ / "layout");
  std::filesystem::create_directory(root_ / "training");
  for (const auto& [words, completed] :
       {std::pair{"layout drop named fi", "first-one"}, std::pair{"drop named training m", "mine"},
        std::pair{"layout build --fanout layout named fi", "first-one"},
        std::pair{"train --epochs 1 named --layout f", "first-one"}}) {
    EXPECT_EQ(Run(fmt::format("__complete {}", words)).out, std::string(completed) + "\t\n") << words;
  }
}

TEST_F(CompletionTest, WordsCompleteWithWhatTheyMean) {
  EXPECT_THAT(Run("__complete tra").out, testing::MatchesRegex("train\t.+\n"));
  EXPECT_THAT(Run("__complete layout build db --pol").out, testing::MatchesRegex("--policy\t.+\n"));
  EXPECT_EQ(Run("__complete train db --direction o").out, "out\t\n");
  EXPECT_EQ(Run("__complete train db --memory g").out, "") << "shells complete names of files then";
  EXPECT_EQ(Run("__complete frobnicate --lyers").out, "");
}

TEST_F(CompletionTest, ZshAndFishKnowTheSameWords) {
  const std::string zsh = Run("completion zsh").out;
  EXPECT_TRUE(zsh.starts_with("#compdef quarry\n"));
  if (Has("zsh")) {
    EXPECT_EQ(Shell("zsh -n", zsh), "");
  }
  if (!Has("fish")) return;
  EXPECT_EQ(Shell("fish --no-config",
                  "quarry completion fish | source\ncomplete -C 'quarry tra' | string split -f1 \\t\n"),
            "train\n");
}

TEST_F(CompletionTest, OnlyShellsThatItKnowsAreTaken) {
  EXPECT_THAT(UsageFault("completion tcsh"), AllOf(HasSubstr("tcsh"), HasSubstr("bash")));
}

}  // namespace
}  // namespace quarry
