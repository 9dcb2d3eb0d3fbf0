// The real binary, as a process of its own, and what it printed. QUARRY_BINARY is its path.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "support/file_text.h"
#ifdef QUARRY_TRAINER_ZYGOTE
#include "trainer_zygote.h"
#endif

namespace quarry {

struct Outcome {
  int exit_code = -1;  // 128 + the signal when one ended it
  std::string out;
  std::string err;
};

// Whether stdout is what a command leaves there that failed before it printed anything: nothing, or, where its
// `arguments` ask for JSON, one object of the error.
inline bool PrintedTheErrorAlone(const Outcome& outcome, const std::string& arguments) {
  if (arguments.find("--json") == std::string::npos) return outcome.out.empty();
  return outcome.out.starts_with("{\"error\":{\"code\":\"") &&
         outcome.out.ends_with(",\"exit_code\":" + std::to_string(outcome.exit_code) + "}}\n") &&
         outcome.out.find('\n') == outcome.out.size() - 1;
}

inline std::vector<std::string> Words(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

inline std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// A running `quarry` whose outputs go to files.
class Process {
 public:
  // `variables`: of the environment, as NAME=VALUE. `prepare` is called by the process before it becomes
  // `quarry`, which it does not when that is false.
  Process(const std::string& arguments, const std::filesystem::path& folder,
          std::vector<std::string> variables = {}, const std::function<bool()>& prepare = {})
      : out_(folder / ("out-" + std::to_string(next_))), err_(folder / ("err-" + std::to_string(next_))) {
    next_++;
    std::vector<std::string> words = Words(arguments);
    words.insert(words.begin(), QUARRY_BINARY);
#ifdef QUARRY_TRAINER_ZYGOTE
    if (!prepare && TrainerZygote::Serves(words, variables)) {
      process_ = TrainerZygote::Instance().Start(words, variables, folder, out_, err_);
      return;
    }
#endif
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    process_ = fork();
    if (process_ == 0) {
      for (std::string& variable : variables) putenv(variable.data());
      const bool ready =
          chdir(folder.c_str()) == 0 && Redirect(out_, STDOUT_FILENO) && Redirect(err_, STDERR_FILENO);
      if (ready && (!prepare || prepare())) execv(QUARRY_BINARY, argv.data());
      _exit(127);
    }
  }

  pid_t id() const { return process_; }
  void Signal(int signal) const { kill(process_, signal); }
  std::string Printed() const { return testing_util::FileText(out_); }
  std::string Complaints() const { return testing_util::FileText(err_); }
  bool HasPrinted() const { return std::filesystem::exists(out_) && std::filesystem::file_size(out_) > 0; }

  bool HasEnded() const {
    siginfo_t ended{};
    return waitid(P_PID, static_cast<id_t>(process_), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 ||
           ended.si_pid != 0;
  }
  // Until `holds` is true, however long that takes; false when the process ended before.
  bool WaitUntil(const std::function<bool()>& holds) const {
    while (!holds()) {
      if (HasEnded()) return holds();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
  }
  bool WaitUntilItPrints() const {
    return WaitUntil([this] { return HasPrinted(); });
  }

  Outcome Wait() const {
    int status = 0;
    EXPECT_EQ(waitpid(process_, &status, 0), process_);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    Outcome outcome{code, testing_util::FileText(out_), testing_util::FileText(err_)};
    std::filesystem::remove(out_);
    std::filesystem::remove(err_);
    return outcome;
  }

 private:
  static bool Redirect(const std::filesystem::path& path, int descriptor) {
    const int file = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0644);
    return file >= 0 && dup2(file, descriptor) >= 0;
  }
  static inline int next_ = 0;
  std::filesystem::path out_, err_;
  pid_t process_ = -1;
};

// A folder of the name for this process, with db in it: a graph that was generated and imported so.
inline std::filesystem::path MakeGeneratedDatabase(const std::string& name, const std::string& generate,
                                                   const std::string& import = "") {
  const auto folder = std::filesystem::path(testing::TempDir()) / (name + "-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  for (const std::string& arguments : {"generate graph " + generate, "import db graph " + import}) {
    const Outcome made = Process(arguments, folder).Wait();
    EXPECT_EQ(made.exit_code, 0) << made.err;
  }
  return folder;
}

}  // namespace quarry
