// Zygote: a process that was forked before this one had threads, and forks others on request. What a process
// with threads forks may find any lock taken for ever, those of a sanitizer's allocator too.
//
//   main   Zygote::Instance()       forks the zygote
//   test   Fork(deed, path, n)      the zygote forks a child, which does the deed and stays
//   test   kill(child.pid, SIGKILL)
//   test   Wait(child.pid)          the zygote reaps it
//
// For one thread. The zygote ends with the process that made it, its children with the zygote.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <string>

namespace quarry::testing_util {

class Zygote {
 public:
  // A function of this program: it is at the same address in all processes that were forked from it.
  using Deed = bool (*)(const std::string& path, uint64_t number);
  struct Child {
    pid_t pid = -1;
    bool done = false;  // what the deed returned; false when the child died in it
  };

  // Made by the first call. REQUIRES: that one is in main, before there are threads.
  static Zygote& Instance() {
    static Zygote zygote;
    return zygote;
  }

  // Returns once the deed is done; what it has not destroyed lasts as long as the child.
  Child Fork(Deed deed, const std::string& path, uint64_t number) {
    Order order{.deed = deed, .number = number};
    EXPECT_LT(path.size(), sizeof(order.path));
    path.copy(order.path, sizeof(order.path) - 1);
    const Answer answer = Ask(order);
    return {answer.pid, answer.value == 1};
  }
  // The child's status, as waitpid gives it.
  int Wait(pid_t pid) { return Ask({.pid = pid}).value; }

 private:
  struct Order {
    Deed deed = nullptr;  // null: wait for `pid`
    pid_t pid = -1;
    uint64_t number = 0;
    char path[256] = {};
  };
  struct Answer {
    pid_t pid = -1;
    int value = 0;
  };

  Zygote() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    process_ = fork();
    if (process_ == 0) {
      close(ends[0]);
      Serve(ends[1]);
    }
    close(ends[1]);
    socket_ = ends[0];
  }
  ~Zygote() {
    close(socket_);
    waitpid(process_, nullptr, 0);
  }
  Zygote(const Zygote&) = delete;
  Zygote& operator=(const Zygote&) = delete;

  Answer Ask(const Order& order) const {
    Answer answer;
    EXPECT_EQ(send(socket_, &order, sizeof(order), MSG_NOSIGNAL), static_cast<ssize_t>(sizeof(order)));
    EXPECT_EQ(recv(socket_, &answer, sizeof(answer), 0), static_cast<ssize_t>(sizeof(answer)));
    return answer;
  }

  [[noreturn]] static void Serve(int socket) {
    Order order;
    while (recv(socket, &order, sizeof(order), 0) == static_cast<ssize_t>(sizeof(order))) {
      Answer answer{.pid = order.pid};
      if (order.deed == nullptr) {
        waitpid(order.pid, &answer.value, 0);
      } else {
        answer = ForkOne(order, socket);
      }
      if (send(socket, &answer, sizeof(answer), MSG_NOSIGNAL) < 0) break;
    }
    _exit(0);
  }

  // The child says through a pipe what became of the deed; one that died says nothing.
  static Answer ForkOne(const Order& order, int socket) {
    int report[2];
    if (pipe(report) != 0) return {};
    Answer answer{.pid = fork()};
    if (answer.pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      close(socket);
      close(report[0]);
      const char done = order.deed(order.path, order.number) ? 1 : 0;
      if (write(report[1], &done, 1) != 1) _exit(1);
      while (true) pause();
    }
    close(report[1]);
    char done = 0;
    answer.value = read(report[0], &done, 1) == 1 && done == 1 ? 1 : 0;
    close(report[0]);
    return answer;
  }

  pid_t process_ = -1;
  int socket_ = -1;
};

}  // namespace quarry::testing_util
