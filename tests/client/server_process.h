// A server of a process of its own, for programs whose main serves when it is given "--serve DATABASE
// SOCKET".
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

extern char** environ;

namespace quarry::testing_util {

// It can be killed.
class ServerProcess {
 public:
  ServerProcess(const std::string& database, const std::string& socket)
      : database_(database), socket_(socket) {
    Start();
  }
  ~ServerProcess() { Kill(); }
  void Start() {
    int ready[2];
    ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ready[1], 1);
    std::string self = "/proc/self/exe", verb = "--serve";
    char* const arguments[] = {self.data(), verb.data(), database_.data(), socket_.data(), nullptr};
    ASSERT_EQ(posix_spawn(&pid_, self.c_str(), &actions, nullptr, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ready[1]);
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1) << "the server did not start";
    close(ready[0]);
  }
  // It does nothing, and its sockets stay open, until it goes on.
  void Stop() { kill(pid_, SIGSTOP); }
  void GoOn() { kill(pid_, SIGCONT); }
  void Kill() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

 private:
  std::string database_;
  std::string socket_;
  pid_t pid_ = -1;
};

}  // namespace quarry::testing_util
