// TrainerZygote: quarry-train, stopped before its main, where LibTorch has been loaded. What it forks goes on there, so that
// of the hundreds of trainings in these tests only the first waits for LibTorch: more than half a second of a processor.
//
//   process   Start(...)   a child of this process, as fork and execv would give it: Wait() and kill(2) are the usual ones
//
// What stands still is the real program: a library that is preloaded (trainer_zygote_preload.cc) takes the place of the
// call of main.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

namespace quarry {

// QUARRY_BINARY is the program, QUARRY_TRAINER_ZYGOTE the library.
class TrainerZygote {
 public:
  static TrainerZygote& Instance() {
    static TrainerZygote zygote;
    return zygote;
  }

  // Whether what runs so is what a start of the program would be: variables of others are read as libraries are loaded.
  static bool Serves(const std::vector<std::string>& words, const std::vector<std::string>& variables) {
    return words.size() > 1 && (words[1] == "train" || words[1] == "predict") &&
           std::ranges::find(words, "--workers") ==
               words.end() &&  // which start as this process was, by /proc
           std::ranges::all_of(variables, [](const std::string& it) { return it.starts_with("QUARRY_"); });
  }

  // `words`: argv. From any thread.
  pid_t Start(const std::vector<std::string>& words, const std::vector<std::string>& variables,
              const std::filesystem::path& folder, const std::filesystem::path& out,
              const std::filesystem::path& err) {
    const std::scoped_lock lock(mutex_);
    std::string order;
    const auto add = [&](const std::string& text) { order.append(text.c_str(), text.size() + 1); };
    add(folder);
    add(out);
    add(err);
    add(std::to_string(words.size()));
    for (const std::string& word : words) add(word);
    for (char** variable = environ; *variable != nullptr; ++variable) add(*variable);
    for (const std::string& variable : variables) add(variable);
    pid_t process = -1;
    EXPECT_EQ(send(socket_, order.data(), order.size(), MSG_NOSIGNAL), static_cast<ssize_t>(order.size()));
    EXPECT_EQ(recv(socket_, &process, sizeof(process), 0), static_cast<ssize_t>(sizeof(process)));
    EXPECT_GT(process, 0);
    return process;
  }

 private:
  TrainerZygote() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    // What the zygote forks is left by its parent at once, and so becomes this process's.
    EXPECT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    const std::string descriptor = std::to_string(ends[1]);
    const pid_t process = fork();
    if (process == 0) {
      fcntl(ends[1], F_SETFD, 0);
      setenv("LD_PRELOAD", QUARRY_TRAINER_ZYGOTE, 1);
      setenv("QUARRY_TEST_ZYGOTE", descriptor.c_str(), 1);
      execl(QUARRY_BINARY, "quarry", "train", nullptr);
      _exit(127);
    }
    EXPECT_GT(process, 0);
    close(ends[1]);
    socket_ = ends[0];
  }

  std::mutex mutex_;
  int socket_ = -1;  // the zygote ends as this process does
};

}  // namespace quarry
