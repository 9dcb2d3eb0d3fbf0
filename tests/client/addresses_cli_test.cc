// The same commands at a database's path, and at the address of a server that has an equal database: the same
// output, the same exit codes, the same errors for the same mistakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <set>

#include "quarry_process.h"
#include "support/file_text.h"
#include "support/flip_byte.h"
#include "support/typed_set.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

// DB stands for the address, OUT for a folder that both sides have, from / on.
struct Step {
  std::string command;
  int exit_code = 0;
  const char* says = "";  // in what is printed or complained of
};

struct Script {
  const char* name;
  std::vector<Step> steps;
  const char* database = "db";
  void (*prepare)(const fs::path& database) = nullptr;
  bool figures = true;  // false: they are of the machine at that moment, and are not compared
  // Where stdout is JSON, the fields that are compared; empty: all of them.
  std::vector<const char*> only = {};
};

std::ostream& operator<<(std::ostream& out, const Script& script) { return out << script.name; }

// The fields of each line of JSON, or of its summary, whose names it adds to `seen`; any other line as it is.
std::string FieldsIn(const std::string& text, const std::vector<const char*>& fields,
                     std::set<std::string>& seen) {
  std::string found;
  for (const std::string& line : Lines(text)) {
    const json object = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!object.is_object()) {
      found += line + "\n";
      continue;
    }
    const json& record = object.contains("summary") ? object["summary"] : object;
    for (const char* const field : fields) {
      if (!record.contains(field)) continue;
      seen.insert(field);
      found += field + (": " + record[field].dump()) + "\n";
    }
  }
  return found;
}

// One side: a folder with a copy of the database, and a server of it or none.
class Side {
 public:
  Side(fs::path folder, const fs::path& database, bool served) : folder_(std::move(folder)), served_(served) {
    fs::create_directories(folder_);
    fs::copy(database, folder_ / "db", fs::copy_options::recursive);
  }
  ~Side() {
    if (!server_) return;
    server_->Signal(SIGTERM);
    EXPECT_EQ(server_->Wait().exit_code, 0);
  }

  void Start() {
    if (!served_) return;
    server_.emplace("serve db --socket run/s --memory 512MiB", folder_);
    ASSERT_TRUE(server_->WaitUntil([this] { return fs::exists(folder_ / "run/s"); }));
  }
  // The fields of script.only that a line had, so far.
  const std::set<std::string>& seen() const { return seen_; }
  std::string address() const { return served_ ? "unix:run/s" : "db"; }
  const fs::path& folder() const { return folder_; }

  Outcome Run(std::string command) const {
    command = std::regex_replace(command, std::regex(R"(\bDB\b)"), address());
    command = std::regex_replace(command, std::regex(R"(\bOUT\b)"), folder_.string());
    return Process(command, folder_).Wait();
  }

  // Without what two runs of one command need not have in common: how long it took, and where it ran.
  std::string Comparable(std::string text, const Script& script) {
    if (!script.only.empty()) text = FieldsIn(text, script.only, seen_);
    const bool figures = script.figures;
    const auto replace = [&](const std::string& what, const char* by) {
      text = std::regex_replace(text, std::regex(what), by);
    };
    replace(folder_.string() + "/", "");
    replace("unix:run/s", "db");
    replace(R"re("(\w*(rss|seconds|per_second|catalog)\w*)": *[-+.e0-9]+)re", "\"$1\": #");
    replace(R"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]+Z)", "#");
    replace(R"([0-9.]+ [KMGT]?i?B/s|[0-9]+\.[0-9]+(e[-+]?[0-9]+)?)", "#");
    replace("size +[#0-9]+ [KM]iB:.*", "size");  // the catalog's is of its logs
    if (!figures) replace(R"([0-9]+)", "#");
    if (!figures) replace(R"(# *([kM]|[KMG]iB)?/s)", "#/s");
    replace(" +", " ");
    return text;
  }

 private:
  const fs::path folder_;
  const bool served_;
  std::optional<Process> server_;
  std::set<std::string> seen_;
};

// The sentence of an error; notes are of whoever does the work.
std::string ErrorIn(const std::string& text) {
  std::string error;
  for (const std::string& line : Lines(text)) {
    const bool note = line.starts_with("quarry: info: ") || line.starts_with("quarry: warning: ");
    if (line.starts_with("quarry: ") && !note) error += line + "\n";
  }
  return error;
}

class AddressesTest : public testing::TestWithParam<Script> {
 protected:
  static void SetUpTestSuite() {
    root_ = MakeGeneratedDatabase(
        "addresses", "--nodes 2k --degree 8 --dim 16 --classes 4 --train-share 20% --valid-share 5%");
    fs::create_directories(root_ / "triples");
    std::ofstream(root_ / "triples/train.txt") << "ann\tknows\tbob\nbob\tlikes\tann\n";
    for (const char* command :
         {"train db --task link --dim 8 --epochs 1 --batch-size 1000 --valid-share 5% --test-share 5% --save",
          "import kg triples"}) {
      const Outcome made = Process(command, root_).Wait();
      ASSERT_EQ(made.exit_code, 0) << made.err;
    }
  }
  static void TearDownTestSuite() { fs::remove_all(root_); }

  static std::string Sides() { return (root_ / std::to_string(++sides_)).string(); }

  static inline fs::path root_;
  static inline int sides_ = 0;
};

TEST_P(AddressesTest, APathAndAServerSayTheSame) {
  const Script& script = GetParam();
  const std::string folder = Sides();
  Side path(folder + "/path", root_ / script.database, false);
  Side server(folder + "/server", root_ / script.database, true);
  for (Side* side : {&path, &server}) {
    if (script.prepare != nullptr) script.prepare(side->folder() / "db");
    ASSERT_NO_FATAL_FAILURE(side->Start());
  }
  for (const Step& step : script.steps) {
    SCOPED_TRACE(step.command);
    const Outcome here = path.Run(step.command), there = server.Run(step.command);
    EXPECT_EQ(here.exit_code, step.exit_code) << here.err;
    EXPECT_EQ(there.exit_code, step.exit_code) << there.err;
    EXPECT_THAT(here.out + here.err, HasSubstr(step.says));
    EXPECT_EQ(server.Comparable(there.out, script), path.Comparable(here.out, script));
    EXPECT_EQ(server.Comparable(ErrorIn(there.err), script), path.Comparable(ErrorIn(here.err), script));
  }
  const std::set<std::string> fields(script.only.begin(), script.only.end());
  EXPECT_EQ(path.seen(), fields) << "a field that no line has is equal on both sides";
  EXPECT_EQ(server.seen(), fields);
  for (const char* made : {"npy", "csv", "graphbolt"}) {  // what an export wrote
    if (!fs::exists(path.folder() / made)) continue;
    for (const auto& entry : fs::directory_iterator(path.folder() / made)) {
      const fs::path other = server.folder() / made / entry.path().filename();
      EXPECT_TRUE(testing_util::FileText(entry.path()) == testing_util::FileText(other)) << other;
    }
  }
}

void DamageFeatures(const fs::path& database) {
  for (const auto& entry : fs::directory_iterator(database / "features")) {
    if (entry.path().filename().string().starts_with("feature-")) {
      testing_util::FlipByte(entry.path(), 4096 + 100);
    }
  }
}

// A server takes the database as it lies there.
void TrainFirst(const fs::path& database) {
  fs::create_directories(database.parent_path() / "npy");
  const Outcome trained =
      Process("train db --fanout 4,3 --batch-size 64 --hidden 8 --epochs 1 --ordered --run sage",
              database.parent_path())
          .Wait();
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
}

// A graph with types of nodes and edges in its place, and files of edges that count the nodes of each type from 0.
void ImportTypes(const fs::path& database) {
  const TemporaryFolder set("typed-addresses");
  RandomTypedSet(3, 60).WriteTo(set);
  fs::remove_all(database);
  const Outcome imported = Process("import db " + set.path(), database.parent_path()).Wait();
  EXPECT_EQ(imported.exit_code, 0) << imported.err;
  std::ofstream(database.parent_path() / "writes.csv") << "30,59\n29,59\n";
  std::ofstream(database.parent_path() / "far.csv") << "31,0\n";  // there are 31 authors
  std::ofstream(database.parent_path() / "gone.csv") << "2\n30\n";
}

// The same with weights, and edges that are added with theirs: in a file of their own, and as a column.
void ImportWeights(const fs::path& database) {
  const TemporaryFolder set("weighted-addresses");
  const TypedSet typed = RandomTypedSet(3, 60);
  typed.WriteTo(set);
  for (const TypedSet::Edges& edges : typed.edges) {
    std::vector<float> weights;
    for (size_t i = 0; i < edges.pairs.size(); ++i) weights.push_back(static_cast<float>(i % 9) / 4);
    std::string folder = typed.EdgeName(edges);
    for (size_t at = 0; (at = folder.find(':')) != std::string::npos;) folder.replace(at, 1, "__");
    set.Write(folder + "/edge_weights.npy", NpyFile(weights, {weights.size()}));
  }
  fs::remove_all(database);
  const Outcome imported = Process("import db " + set.path(), database.parent_path()).Wait();
  EXPECT_EQ(imported.exit_code, 0) << imported.err;
  std::ofstream(database.parent_path() / "ends.csv") << "30,59\n29,59\n";
  std::ofstream(database.parent_path() / "heavy.csv") << "1000.5\n2000.25\n";
  std::ofstream(database.parent_path() / "three.csv") << "28,59,3000.75\n";
}

const std::string kTrainNodes =
    "train DB --fanout 4,3 --batch-size 64 --hidden 8 --epochs 2 --cache 25% --seed 3 --ordered "
    "--torch-threads 1 --json";
const std::string kTrainEdges =
    "train DB --task link --dim 8 --epochs 1 --batch-size 1000 --negatives 20 --ordered --seed 3 --json "
    "--memory 128MiB --valid-share 5% --test-share 5%";
const std::string kPut = "put DB --ids ../../graph/valid_idx.npy --split test";

// Every verb of a database that a server answers for, by what it is told.
const std::vector<Script> kScripts = {
    Script{"Partitions",
           {{"partition list DB", 0, "no partitionings"}, {"partition list DB --json", 0, "[]"}}},
    Script{"Train",
           {{kTrainNodes + " --run r --overwrite", 0, "\"loss\""},
            {kTrainNodes + " --run r", 1, "--resume"},
            {kTrainNodes + " --run r --resume --hidden 9", 2, "--hidden"},
            {"train DB --layout nope", 1, "nope"},
            {"train DB --layers 2 --fanout 4", 2, "2 fanouts"},
            {"predict DB --run r --split test --out OUT/classes.npy", 0, "accuracy"}},
           "db",
           nullptr,
           true,
           {"epoch", "loss", "valid_accuracy", "test_accuracy", "run", "checkpoints"}},
    Script{"TrainLinks",
           {{kTrainEdges, 0, "\"loss\""},
            {kTrainEdges + " --run l --checkpoint-every 4", 0, "\"loss\""},
            {kTrainEdges + " --fanout 4", 2, "--encoder"},
            {"train DB --task link --valid-share 60% --test-share 60%", 2, "leave no edge"}},
           "db",
           nullptr,
           true,
           {"epoch", "loss", "valid_mrr", "test_mrr", "run"}},
    Script{"Info",
           {{"info DB", 0, "train 4"},
            {"info DB --json"},
            {kPut},
            {"info DB --json"},
            {"info DB"},
            {"info DB --entity nobody", 1, "nothing has the name"},
            {"info DB --entity-id 3", 1, "has no name"}}},
    Script{"Names",
           {{"info DB --entity bob", 0, "1"},
            {"info DB --entity-id 0", 0, "ann"},
            {"info DB --entity-id 99", 1, "has no name"},
            {"info DB --relation likes", 0, "1"},
            {"info DB --relation-id 0", 0, "knows"},
            {"info DB --relation hates", 1, "nothing has the name"},
            {"info DB"}},
           "kg"},
    Script{"Verify", {{"verify DB", 0, "sound"}, {"verify DB --json"}}},
    Script{"Damage",
           {{"verify DB", 3, "feature"}, {"verify DB --json", 3, "\"page\":1"}, {"export DB OUT/npy", 3}},
           "db",
           DamageFeatures},
    Script{"Compact",
           {{kPut},
            {"compact DB --dry-run", 0, "would be"},
            {"compact DB --table split --json", 0, "\"generation\":2"},
            {"compact DB", 0, "nothing to do"},
            {"compact DB --table nope", 1, "nope"},
            {kPut + " --auto-compact 1%", 0, "committed"},
            {"compact DB", 0, "nothing to do"},
            {"info DB --json"}}},
    Script{"Layouts",
           {{"layout list DB", 0, "no layouts"},
            {"layout build DB --fanout 4,3 --batch-size 64 --cache 10% --epochs-planned 2"},
            {"layout build DB --fanout 4,0", 2},
            {"layout build DB --cache nothing", 2},
            {"layout list DB"},
            {"layout list DB --json"},
            {"layout explain DB", 0, "s/epoch"},
            {"layout explain DB --epochs 20 --json", 0, "amortised_seconds_per_epoch"},
            {"layout explain DB nope", 1, "nope"},
            {"layout explain DB --epochs 0", 2},
            {"layout trace DB", 0, "hit ratio"},
            {"layout trace DB --json --sizes 5%,64KiB", 0, "\"cache_rows\""},
            {"layout trace DB nope", 1, "nope"},
            {"layout rebuild DB --dry-run"},
            {"layout rebuild DB --full --json", 0, "\"path\""},
            {"layout rebuild DB nope", 1},
            {"info DB", 0, "these data"},
            {"layout drop DB"},
            {"layout drop DB", 1, "default"}}},
    Script{"Drop",
           {{"drop DB training nope", 1, "nope"},
            {"drop DB embeddings nope", 1, "nope"},
            {"drop DB layout nope", 1, "nope"},
            {"drop DB table nope", 1, "nope"},
            {"drop DB training link", 2, "--yes"},
            {"drop DB training link --yes", 0, "dropped"},
            {"drop DB embeddings link-nodes --yes --json", 0, "\"bytes\""},
            {"drop DB table label --yes", 0, "dropped"},
            {"info DB --json"},
            {"verify DB"}}},
    Script{"Export",
           {{"export DB OUT/npy", 0, "as of commit"},
            {"export DB OUT/npy", 1, "exists"},
            {"export DB OUT/csv --format csv --what features,labels --json"},
            {"export DB OUT/graphbolt --format graphbolt"},
            {"export DB OUT/x --table nope", 1, "nope"},
            {"export DB OUT/db/x", 1},
            {"export DB OUT/x --format pdf", 2}}},
    Script{"Predict",
           {{"predict DB --run sage --split test --out OUT/npy/classes.npy --ids OUT/npy/ids.npy", 0,
             "accuracy 0."},
            {"predict DB --run sage --what scores --out OUT/npy/scores.npy --json", 0, "\"rows\":"},
            {"predict DB --run sage --nodes ../../graph/valid_idx.npy --what embeddings --out "
             "OUT/npy/vectors.npy"},
            {"predict DB --run sage --what embeddings --table vectors", 0, "rows of 8"},
            {"predict DB --run sage --what embeddings --table vectors", 1, "already"},
            {"predict DB --run sage --what scores --table vectors --overwrite --json", 0,
             "\"table\":\"vectors\""},
            {"predict DB --run nope --out OUT/npy/x.npy", 1, "nope"},
            {"predict DB --run sage --out OUT/npy/x.csv", 2, ".npy"},
            {"predict DB --run sage --fanout 4 --out OUT/npy/x.npy", 2, "2 layers"},
            {"predict DB --run sage", 2, "--out"},
            {"predict DB --run sage --out OUT/npy/x.npy --overwrite", 2, "--overwrite"}},
           "db",
           TrainFirst},
    Script{"Checkpoint",
           {{"checkpoint DB OUT/copy", 0, "as of commit"},
            {"checkpoint DB OUT/copy", 1, "exists"},
            {"verify copy", 0, "sound"}}},
    Script{
        "Growth",
        {{"create-table DB age --dim 2 --dtype float16", 0, "2000 rows of 2 x float16"},
         {"create-table DB age --dim 2", 1, "already"},
         {"create-table DB label_code --dim 1", 1, "import it"},
         {"add DB --nodes 5 --split train --edges ../../graph/edges.npy --json", 0, "\"nodes_added\":5"},
         {"add DB --nodes ../../graph/features.npy --labels ../../graph/labels.npy", 0, "2000 nodes added"},
         {"add DB --edges ../../graph/edges.npy"},
         {"remove DB --edges ../../graph/edges.npy", 0, " removed"},
         {"info DB", 0, "times slower from memory"},
         {"info DB --json", 0, "\"run_commits\":"},
         {"sql DB --csv SELECT/**/path,added,removed,bytes,nodes/**/FROM/**/runs", 0,
          "topology/graph-1-1.qtr"},
         {"add DB --nodes 1 --labels ../../graph/labels.npy", 1, "labels"},
         {"add DB --nodes 1 --topology nope", 1, "nope"},
         {"add DB --edges ../../graph/edges.npy --times t.npy", 2, "and no times of them: keep these in an"},
         {"add DB --edges ../../graph/edges.npy --features x.npy", 2, "and no features of them: keep these"},
         {"add DB", 2, "nothing to add"},
         {"remove DB --nodes ../../graph/valid_idx.npy", 0, "nodes removed"},
         {"remove DB --nodes ../../graph/valid_idx.npy --edges ../../graph/edges.npy --json", 0,
          "\"nodes_removed\":"},
         {"remove DB --nodes ../../graph/nope.npy", 1, "nope.npy"},
         {"remove DB --nodes 7", 2, "a file with the ids of the nodes that go is wanted"},
         {"remove DB", 2, "nothing to remove"},
         {"sql DB --csv SELECT/**/count(*)/**/FROM/**/nodes", 0, "4005"},
         {"compact DB --table graph --dry-run", 0, "2005 new nodes and "},
         {"compact DB --table graph --json", 0, "\"nodes_added\":2005"},
         {"compact DB --table graph", 0, "graph: nothing to do"},
         {"compact DB --table graf", 1, "there is no table \"graf\""},
         {"compact DB --json", 0, "\"table\":\"age\""},
         {"drop DB table age --yes", 0, "dropped"},
         {"sql DB --csv SELECT/**/create_table('age',2,'float16')", 2, "this connection only reads"},
         {"sql DB --write --csv SELECT/**/create_table('age',2,'float16')", 0, "age"},
         {"sql DB --csv SELECT/**/count(*),dim/**/FROM/**/features/**/WHERE/**/[table]='age'", 0, "4005,2"},
         {"sql DB --write --csv SELECT/**/drop_table('age')", 0, "age"}}},
    Script{"TypedGrowth",
           {{"add DB --edges writes.csv --type author:writes:paper --json", 0, "\"added\":2"},
            {"add DB --edges writes.csv --type rev_writes", 1, "writes.csv: line 1: node id 59"},
            {"add DB --edges far.csv --type writes", 1,
             "far.csv: line 1: node id 31 is out of range; there are 31"},
            {"add DB --edges writes.csv", 2, "5 relations"},
            {"add DB --edges writes.csv --type likes", 1, "no relation \"likes\""},
            {"add DB --nodes 3", 2, "say by --node-type of which one they are: "},
            {"add DB --nodes 3 --node-type editor", 2,
             "no type of nodes \"editor\"; ids count from 0 in each of: "},
            {"add DB --nodes 3 --node-type author --json", 0, "\"nodes_added\":3"},
            {"add DB --nodes 2 --type field-of_study", 0, "2 nodes added, 101 to 102: field-of_study 7 to 8"},
            {"sql DB --csv SELECT/**/sum(count)/**/FROM/**/node_types", 0, "103"},
            {"sql DB --csv SELECT/**/count(*)/**/FROM/**/node_ranges", 0, "5"},
            {"sql DB --csv SELECT/**/count/**/FROM/**/edge_types/**/WHERE/**/relation=0", 0, "182"},
            {"create-table DB --type field-of_study --dim 3", 0,
             "field-of_study.feature: 9 rows of 3 x float32"},
            {"create-table DB --type field-of_study --dim 3", 1, "already"},
            {"create-table DB --type editor --dim 3", 1, "no type of nodes \"editor\"; types: "},
            {"create-table DB --dim 3", 2, "give NAME"},
            {"verify DB", 0, "sound"},
            {"drop DB table field-of_study.feature --yes", 0, "dropped"},
            {"remove DB --nodes gone.csv --node-type author", 0, "2 nodes removed"},
            {"remove DB --nodes gone.csv", 2, "ids of nodes that go count from 0 in it"},
            {"remove DB --edges writes.csv --type writes --json", 0, "\"absent\":1"},
            {"verify DB", 0, "sound"},
            {"compact DB --json", 0, "\"edges_added\":2"},
            {"sql DB --csv "
             "SELECT/**/type,count(*)/**/FROM/**/edges/**/GROUP/**/BY/**/type/**/ORDER/**/BY/**/1"},
            {"sql DB --csv SELECT/**/sum(count)/**/FROM/**/edge_types"},
            {"verify DB", 0, "sound"}},
           "db",
           ImportTypes},
    Script{
        "WeightedGrowth",
        {{"add DB --edges ends.csv --weights heavy.csv --type author:writes:paper --json", 0, "\"added\":2"},
         {"add DB --edges three.csv --type writes --json", 0, "\"added\":1"},
         {"add DB --edges three.csv --weights heavy.csv --type writes", 1, "weights"},
         {"sql DB --csv SELECT/**/type,weight/**/FROM/**/edges/**/WHERE/**/weight>999/**/ORDER/**/BY/**/2", 0,
          "author:writes:paper,1000.5\nauthor:writes:paper,2000.25\nauthor:writes:paper,3000.75"},
         {"sql DB --write "
          "UPDATE/**/edges/**/SET/**/weight=weight*2/**/WHERE/**/relation=0/**/AND/**/weight>1999"},
         {"sql DB --csv SELECT/**/weight/**/FROM/**/edges/**/WHERE/**/weight>999/**/ORDER/**/BY/**/1", 0,
          "1000.5\n4000.5\n6001.5"},
         {"sql DB --write UPDATE/**/edges/**/SET/**/src=1", 1, "its weight alone can"},
         {"sql DB --csv SELECT/**/commits,added,removed,nodes/**/FROM/**/runs", 0,
          "1,2,0,0\n1,1,0,0\n1,3,3,0"},
         {"sql DB --csv "
          "SELECT/**/topology,runs,run_commits,run_edges_added,run_edges_removed,added_nodes/**/FROM/**/"
          "growth",
          0, "graph,3,3,6,3,0"},
         {"compact DB --json", 0, "\"edges_removed\":3"},
         {"sql DB --csv SELECT/**/weight/**/FROM/**/edges/**/WHERE/**/weight>999/**/ORDER/**/BY/**/1", 0,
          "1000.5\n4000.5\n6001.5"},
         {"verify DB", 0, "sound"}},
        "db",
        ImportWeights},
    Script{"Sql",
           {{"sql DB --json SELECT/**/split,count(*)/**/FROM/**/nodes/**/GROUP/**/BY/**/split"},
            {"sql DB SELECT/**/nothing", 1, "nothing"},
            {"sql DB --write UPDATE/**/nodes/**/SET/**/label=1/**/WHERE/**/id=7"},
            {"sql DB --csv SELECT/**/label/**/FROM/**/nodes/**/WHERE/**/id=7", 0, "1"},
            {"sql DB --write INSERT/**/INTO/**/nodes/**/(label)/**/VALUES/**/(3)"},
            {"sql DB --write INSERT/**/INTO/**/edges/**/(src,dst)/**/VALUES/**/(2000,7),(7,2000)"},
            {"sql DB --write DELETE/**/FROM/**/edges/**/WHERE/**/src=2000"},
            {"sql DB --csv SELECT/**/src,dst/**/FROM/**/edges/**/WHERE/**/src=2000/**/OR/**/dst=2000", 0,
             "7,2000"},
            {"sql DB --write DELETE/**/FROM/**/nodes/**/WHERE/**/id=7"},
            {"sql DB --csv SELECT/**/label,split,in_degree/**/FROM/**/nodes/**/WHERE/**/id=7", 0, ",none,0"},
            {"sql DB --csv SELECT/**/count(*)/**/FROM/**/edges/**/WHERE/**/dst=2000", 0, "0"}}},
    Script{"Calibrate",
           {{"calibrate DB --json", 0, "\"measured_now\":true"},
            {"calibrate DB --json", 0, "\"measured_now\":false"},
            {"calibrate DB", 0, "--force"}},
           "db",
           nullptr,
           false},
    Script{"Partition",
           {{"partition build DB --method random --parts 6 --seed 3 --json", 0, "\"parts\":6"},
            {"partition build DB edges --parts 2 --chunk 50% --table none --seed 1"},
            {"partition list DB"},
            {"partition build DB --parts 5000", 2, "5000 parts"},
            {"partition build DB --table none --topology other --parts 2", 1, "other"},
            {"partition drop DB edges"},
            {"partition drop DB edges", 1, "no partitioning"},
            {"info DB --json", 0, "\"partitionings\":[{"}}},
    Script{"Doctor", {{"doctor DB --json", 0, "file system"}, {"doctor DB"}}, "db", nullptr, false}};

INSTANTIATE_TEST_SUITE_P(Verbs, AddressesTest, testing::ValuesIn(kScripts),
                         [](const auto& script) { return std::string(script.param.name); });

// Verbs that are in no script.
struct Elsewhere {
  const char* verb;
  const char* why;
  const char* refused = nullptr;  // at the address of a server, which it says
};
constexpr const char* kMakes = "makes a database, which no server can have open yet";
constexpr const char* kAlone = "needs the database for itself";
constexpr Elsewhere kElsewhere[] = {
    {"generate", "makes source files"},
    {"import", kMakes, "import DB graph"},
    {"restore", kMakes, "restore copy DB"},
    {"pull", kMakes, "pull s3://bucket/db DB"},
    {"push", "brings the database to an object store: objects_cli_test.py"},
    {"repair", kAlone, "repair DB"},
    {"upgrade", kAlone, "upgrade DB"},
    {"serve", kAlone, "serve DB --socket run/t"},
    {"partition explain", "reads the partitioning's own file", "partition explain DB"},
    {"stats", "a server adds its own: StatsOfAServerHaveTheDatabasesAndItsOwn"},
    {"top", "is about servers alone: cli_watch_test.cc"},
    {"plot", "draws what other verbs printed"},
    {"completion", "is about the command alone"},
};

class ServedVerbsTest : public AddressesTest {};

TEST_F(ServedVerbsTest, StatsOfAServerHaveTheDatabasesAndItsOwn) {
  Side path(Sides(), root_ / "db", false), server(Sides(), root_ / "db", true);
  ASSERT_NO_FATAL_FAILURE(server.Start());
  const json here = json::parse(path.Run("stats DB --json").out);
  const json there = json::parse(server.Run("stats DB --json").out);
  for (const auto& [name, value] : here.items()) {
    ASSERT_TRUE(there.contains(name)) << name;
    if (!name.starts_with("memory_bytes")) {
      EXPECT_EQ(there[name], value) << name;
    }
  }
  EXPECT_GT(there.size(), here.size() + 10);
}

TEST_F(ServedVerbsTest, WhatAServerMakesHasAPathFromTheRootOn) {
  Side server(Sides(), root_ / "db", true);
  ASSERT_NO_FATAL_FAILURE(server.Start());
  for (const char* verb : {"checkpoint", "export"}) {
    const Outcome outcome = server.Run(std::string(verb) + " DB copy");
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_THAT(outcome.err, testing::AllOf(HasSubstr(verb), HasSubstr("\"copy\""), HasSubstr("from / on")));
  }
}

TEST_F(ServedVerbsTest, VerbsThatNeedTheDatabaseForThemselvesSaySo) {
  Side server(Sides(), root_ / "db", true);
  ASSERT_NO_FATAL_FAILURE(server.Start());
  std::vector<std::string> commands = {"verify DB --repair"};
  for (const Elsewhere& verb : kElsewhere) {
    if (verb.refused != nullptr) commands.emplace_back(verb.refused);
  }
  for (const std::string& command : commands) {
    const Outcome outcome = server.Run(command);
    EXPECT_EQ(outcome.exit_code, 2) << command;
    EXPECT_THAT(outcome.err, HasSubstr("unix:run/s is a server's")) << command;
  }
}

// Those that the help of `words` lists, each with the words before it.
std::vector<std::string> VerbsIn(const fs::path& folder, const std::string& words) {
  std::vector<std::string> verbs;
  bool listed = false;
  for (const std::string& line : Lines(Process(words + " --help", folder).Wait().out)) {
    if (listed && !line.starts_with("  ")) break;
    if (listed && line[2] != ' ') verbs.push_back(words + (words.empty() ? "" : " ") + Words(line).front());
    listed = listed || line.starts_with("Subcommands:");
  }
  return verbs;
}

// A verb that is added has a script here, or says why not.
TEST_F(ServedVerbsTest, EveryVerbHasAScriptOrAReason) {
  std::set<std::string> scripted, elsewhere, all;
  for (const Script& script : kScripts) {
    for (const Step& step : script.steps) scripted.insert(step.command.substr(0, step.command.find(" DB")));
  }
  for (const Elsewhere& verb : kElsewhere) elsewhere.insert(verb.verb);
  for (const std::string& verb : VerbsIn(root_, "")) {
    const std::vector<std::string> below = VerbsIn(root_, verb);
    if (below.empty() || elsewhere.contains(verb)) all.insert(verb);
    if (!elsewhere.contains(verb)) all.insert(below.begin(), below.end());
  }
  EXPECT_GT(all.size(), 25U) << "help was read";
  for (const std::string& verb : all) {
    EXPECT_NE(scripted.contains(verb), elsewhere.contains(verb)) << "`quarry " << verb << "`: one of the two";
  }
  for (const std::string& verb : elsewhere) EXPECT_TRUE(all.contains(verb)) << "there is no " << verb;
}

}  // namespace
}  // namespace quarry
