// The scripts of tests/sql/scripts, and running commands on them. What they expect is what plain SQLite
// tables of the same content give.
//
//   -- name: a sentence
//   -- group: the script
//   -- only: quarry       of what a connection of Quarry's own forbids; other programs may allow it
//   SELECT ...;
//   ----                  or, in its place: ---- error: what the message contains
//   the lines that `quarry sql --csv` prints
#pragma once

#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace quarry::testing_util {

struct ScriptCase {
  std::string name, group, sql;
  bool only_quarry = false;
  bool fails = false;
  std::string error;
  std::vector<std::string> lines;
};

inline std::vector<ScriptCase> ReadScript(const std::filesystem::path& path) {
  constexpr std::string_view kName = "-- name: ", kGroup = "-- group: ", kOnly = "-- only: quarry",
                             kResult = "----", kError = "---- error: ";
  std::vector<ScriptCase> cases;
  std::ifstream file(path);
  bool in_result = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(kName)) {
      in_result = false;
      cases.push_back({.name = line.substr(kName.size())});
    } else if (line.starts_with(kGroup)) {
      cases.back().group = line.substr(kGroup.size());
    } else if (line == kOnly) {
      cases.back().only_quarry = true;
    } else if (line.starts_with(kResult)) {
      in_result = true;
      cases.back().fails = line.starts_with(kError);
      if (cases.back().fails) cases.back().error = line.substr(kError.size());
    } else if (in_result) {
      cases.back().lines.push_back(line);
    } else {
      cases.back().sql += line + "\n";
    }
  }
  for (ScriptCase& c : cases) {
    if (!c.lines.empty() && c.lines.back().empty()) c.lines.pop_back();  // between two cases
  }
  return cases;
}

inline std::vector<std::filesystem::path> Scripts() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(QUARRY_SQL_SCRIPTS)) {
    paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  return paths;
}

inline std::string CsvField(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

struct Outcome {
  int exit_code = -1;
  std::string out;
};

inline Outcome RunCommand(const std::string& command) {
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return {};
  Outcome outcome;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) outcome.out += static_cast<char>(c);
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

}  // namespace quarry::testing_util
