// The house rules that a compiler does not enforce, held against the sources themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

const fs::path kRoot = QUARRY_SOURCE_DIR;

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// Room -> rank, as docs/architecture.md's table states them: | 4 | `engine/storage` | ... |
using Ranks = std::map<std::string, int>;
Ranks ReadRanks() {
  Ranks ranks;
  const std::regex row("\\| *(\\d+) *\\| *`([a-z/]+?)/?` *\\|.*");
  for (const std::string& line : Lines(ReadFile(kRoot / "docs/architecture.md"))) {
    std::smatch match;
    if (std::regex_match(line, match, row)) ranks[match[2]] = std::stoi(match[1]);
  }
  return ranks;
}

// The room of a path relative to the root ("engine/io/ring.cc" -> "engine/io"), "" outside of the rooms.
std::string RoomOf(const Ranks& ranks, const std::string& path) {
  for (const auto& [room, rank] : ranks) {
    if (path.starts_with(room + "/")) return room;
  }
  return "";
}

// "quarry/io/ring.h" -> "engine/io"; headers directly in quarry/ are the client's.
std::string RoomOfInclude(const Ranks& ranks, const std::string& include) {
  static const std::regex kPattern("quarry/([a-z_]+)/.*");
  std::smatch match;
  if (!std::regex_match(include, match, kPattern)) return "client";
  const std::string name = match[1];
  return ranks.contains(name) ? name : "engine/" + name;
}

// Foreign headers that only one room may include, by how their names begin; the longest beginning counts.
const std::pair<const char*, const char*> kOwners[] = {
    {"liburing", "engine/io"},
    {"rocksdb/", "engine/catalog"},
    {"capnp/", "format"},
    {"capnp/compat/json", "engine/import"},
    {"kj/", "format"},
    {"xxh", "format"},
    {"zip.h", "engine/import"},
    {"zlib.h", "engine/import"},
    {"yaml-cpp/", "engine/import"},
    {"torch/", "trainer"},
    {"ATen/", "trainer"},
    {"c10/", "trainer"},
    {"CLI/", "client"},
    {"nlohmann/", "client"},
    {"spdlog/", "engine/base"},
    {"sqlite3", "sql"},
    {"histedit", "client"},
    {"boost/", "engine/server"},
    {"metis.h", "engine/partition"},
    {"curl/", "engine/objects"},
};

// Whose the header is; "" for anybody's.
std::string OwnerOf(const std::string& include) {
  std::string_view longest, owner_of_it;
  for (const auto& [prefix, owner] : kOwners) {
    if (!include.starts_with(prefix) || std::string_view(prefix).size() < longest.size()) continue;
    longest = prefix;
    owner_of_it = owner;
  }
  return std::string(owner_of_it);
}

// Whether a source of the room may mean a header of the room by `include`: it lies beside the source, in the room's
// folder or, for programs outside, in its include/. Cap'n Proto makes x.capnp.h of x.capnp.
bool IsOfRoom(const std::string& room, const std::string& path, std::string include) {
  if (include.ends_with(".capnp.h")) include.resize(include.size() - 2);
  for (const fs::path& folder : {fs::path(path).parent_path(), fs::path(room), fs::path(room) / "include"}) {
    if (fs::exists(kRoot / folder / include)) return true;
  }
  return false;
}

// What is wrong with the includes of one source, as "path:line: ..." lines.
std::vector<std::string> IncludeFaults(const Ranks& ranks, const std::string& path, const std::string& text) {
  static const std::regex kInclude("\\s*#\\s*include\\s*([\"<])([^\">]+)[\">].*");
  const std::string room = RoomOf(ranks, path);
  std::vector<std::string> faults;
  const std::vector<std::string> lines = Lines(text);
  for (size_t i = 0; i < lines.size(); i++) {
    std::smatch match;
    if (!std::regex_match(lines[i], match, kInclude)) continue;
    const bool quoted = match[1] == "\"";
    const std::string include = match[2];
    const auto fault = [&](const std::string& what) {
      faults.push_back(path + ":" + std::to_string(i + 1) + ": " + include + ": " + what);
    };
    if (include.starts_with("quarry/")) {
      const std::string used = RoomOfInclude(ranks, include);
      if (!ranks.contains(used)) {
        fault("no room '" + used + "' in docs/architecture.md");
      } else if (used != room && ranks.at(used) >= ranks.at(room)) {
        fault(room + " may not use " + used);
      }
    } else if (quoted && !IsOfRoom(room, path, include)) {
      fault("no header of " + room);
    }
    const std::string owner = OwnerOf(include);
    if (!owner.empty() && room != owner) fault("belongs to " + owner);
  }
  return faults;
}

// Sources of the rooms, relative to the root, sorted.
std::vector<std::string> RoomSources() {
  std::vector<std::string> paths;
  for (const char* top : {"engine", "format", "client", "sql", "trainer"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / top)) {
      const fs::path& path = entry.path();
      if (path.extension() == ".h" || path.extension() == ".cc") paths.push_back(fs::relative(path, kRoot));
    }
  }
  std::ranges::sort(paths);
  return paths;
}

TEST(LintTest, TheTableOfRoomsNamesEveryRoom) {
  const Ranks ranks = ReadRanks();
  EXPECT_EQ(ranks.at("engine/base"), 0);
  EXPECT_GT(ranks.at("client"), ranks.at("trainer"));
  for (const std::string& path : RoomSources()) EXPECT_NE(RoomOf(ranks, path), "") << path;
}

TEST(LintTest, IncludesPointDownTheRanksAndForeignLibrariesHaveOneOwner) {
  const Ranks ranks = ReadRanks();
  std::vector<std::string> faults;
  for (const std::string& path : RoomSources()) {
    std::ranges::copy(IncludeFaults(ranks, path, ReadFile(kRoot / path)), std::back_inserter(faults));
  }
  EXPECT_THAT(faults, IsEmpty());
}

// Where a source starts threads past Thread (engine/base), which answers with a Status, as "path:line: ..."
// lines.
std::vector<std::string> ThreadFaults(const std::string& path, const std::string& text) {
  static const std::regex kStarts(
      "\\bstd::(thread|jthread|async)\\b(?!::hardware_concurrency)|\\bpthread_create\\b");
  std::vector<std::string> faults;
  const std::vector<std::string> lines = Lines(text);
  for (size_t i = 0; i < lines.size(); i++) {
    const std::string code = lines[i].substr(0, lines[i].find("//"));
    if (std::regex_search(code, kStarts)) faults.push_back(path + ":" + std::to_string(i + 1) + ": " + code);
  }
  return faults;
}

TEST(LintTest, ThreadsAreStartedInOnePlace) {
  std::vector<std::string> faults;
  for (const std::string& path : RoomSources()) {
    if (path == "engine/base/thread.cc" || path == "engine/base/include/quarry/base/thread.h") continue;
    std::ranges::copy(ThreadFaults(path, ReadFile(kRoot / path)), std::back_inserter(faults));
  }
  EXPECT_THAT(faults, IsEmpty());
}

TEST(LintTest, AThreadThatIsStartedElsewhereIsFound) {
  EXPECT_THAT(ThreadFaults("a.cc", "int a;\nauto b = std::async(f);\n"),
              ElementsAre("a.cc:2: auto b = std::async(f);"));
  EXPECT_EQ(ThreadFaults("a.cc", "std::thread t;\nstd::jthread u;\npthread_create(&a);\n").size(), 3U);
  EXPECT_THAT(
      ThreadFaults("a.cc",
                   "std::thread::hardware_concurrency();  // std::thread\nstd::this_thread::yield();\n"),
      IsEmpty());
}

TEST(LintTest, AnUpwardIncludeAndAStolenLibraryAreFound) {
  const Ranks ranks = ReadRanks();
  EXPECT_THAT(IncludeFaults(ranks, "engine/io/ring.cc", "#include \"quarry/cache/x.h\"\n"),
              ElementsAre("engine/io/ring.cc:1: quarry/cache/x.h: engine/io may not use engine/cache"));
  EXPECT_THAT(IncludeFaults(ranks, "engine/storage/s.cc", "\n#include <rocksdb/db.h>\n"),
              ElementsAre("engine/storage/s.cc:2: rocksdb/db.h: belongs to engine/catalog"));
  EXPECT_THAT(
      IncludeFaults(ranks, "format/f.cc", "#include <capnp/compat/json.h>\n#include <capnp/message.h>\n"),
      ElementsAre("format/f.cc:1: capnp/compat/json.h: belongs to engine/import"));
  EXPECT_THAT(IncludeFaults(ranks, "trainer/t.cc", "#include \"quarry/database.h\"\n"),
              ElementsAre("trainer/t.cc:1: quarry/database.h: trainer may not use client"));
  EXPECT_THAT(IncludeFaults(ranks, "engine/io/ring.cc", "#include \"quarry/io/ring.h\"\n#include <vector>\n"),
              IsEmpty());
}

TEST(LintTest, APrivateHeaderOfAnotherRoomIsFound) {
  const Ranks ranks = ReadRanks();
  EXPECT_THAT(
      IncludeFaults(ranks, "client/embedded/embedded_store.cc",
                    "#include \"embedded_stream.h\"\n#include \"held_batches.h\"\n#include \"session.h\"\n"),
      ElementsAre("client/embedded/embedded_store.cc:3: session.h: no header of client"));
  EXPECT_THAT(IncludeFaults(ranks, "format/manifest.cc", "#include \"metadata.capnp.h\"\n"), IsEmpty());
}

TEST(LintTest, EverySourceIsListedByNameInItsRoom) {
  const Ranks ranks = ReadRanks();
  for (const std::string& path : RoomSources()) {
    if (!path.ends_with(".cc")) continue;
    const std::string room = RoomOf(ranks, path);
    const std::string lists = ReadFile(kRoot / room / "CMakeLists.txt");
    const bool listed = lists.find(path.substr(room.size() + 1)) != std::string::npos;
    EXPECT_TRUE(listed) << path << " is in no target";
  }
}

TEST(LintTest, SourcesAreShortEnoughToRead) {
  for (const std::string& path : RoomSources()) {
    const bool public_header = path.find("/include/") != std::string::npos;
    EXPECT_LE(Lines(ReadFile(kRoot / path)).size(), public_header ? 200u : 500u) << path << " wants a split";
  }
}

TEST(LintTest, LinksInDocumentsLeadToFiles) {
  std::vector<fs::path> documents;
  for (const char* name : {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"}) {
    documents.push_back(kRoot / name);
  }
  for (const auto& entry : fs::directory_iterator(kRoot / "docs")) documents.push_back(entry.path());
  const std::regex link("\\]\\(([^)#]+)(#[^)]*)?\\)");
  size_t links = 0;
  for (const fs::path& document : documents) {
    const std::string text = ReadFile(document);
    for (std::sregex_iterator match(text.begin(), text.end(), link), end; match != end; ++match) {
      const std::string target = (*match)[1];
      if (target.starts_with("http")) continue;
      EXPECT_TRUE(fs::exists(document.parent_path() / target)) << document << " links to " << target;
      links++;
    }
  }
  EXPECT_GT(links, 10u) << "the pattern finds links";
}

}  // namespace
}  // namespace quarry
