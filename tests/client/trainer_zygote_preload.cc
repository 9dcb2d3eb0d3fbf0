// Preloaded into `quarry train` by tests: quarry-train does not get to its main, but waits for orders, and forks what goes on
// there (trainer_zygote.h). An order is a row of strings, each with its zero byte: the folder, the files of stdout and of
// stderr, the number of words, the words, the environment. The answer is the process.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

namespace {

using Main = int (*)(int, char**, char**);
constexpr const char* kSocket = "QUARRY_TEST_ZYGOTE";
Main program_main = nullptr;

bool Redirect(const char* path, int descriptor) {
  const int file = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
  return file >= 0 && dup2(file, descriptor) >= 0 && close(file) == 0;
}

// OpenBLAS stops its threads before a fork, and starts them anew with the first product, where threads of the trainer that
// begin with one each at the same time would meet.
void StartBlas() {
  const auto get = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "openblas_get_num_threads"));
  const auto set = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "openblas_set_num_threads"));
  if (get != nullptr && set != nullptr) set(get());
}

// In the process that was ordered.
int GoOn(std::string& order) {
  std::vector<char*> strings;
  for (char* at = order.data(); at < order.data() + order.size(); at += strlen(at) + 1) strings.push_back(at);
  const size_t words = std::strtoul(strings[3], nullptr, 10);
  std::vector<char*> argv(strings.begin() + 4, strings.begin() + 4 + static_cast<ptrdiff_t>(words));
  argv.push_back(nullptr);
  clearenv();
  for (size_t i = 4 + words; i < strings.size(); ++i) putenv(strings[i]);
  if (chdir(strings[0]) != 0 || !Redirect(strings[1], STDOUT_FILENO) || !Redirect(strings[2], STDERR_FILENO))
    return 127;
  StartBlas();
  return program_main(static_cast<int>(words), argv.data(), environ);
}

// The child of a child, whose parent ends at once: the tests, a subreaper, inherit it, and wait for it as for their own.
// Returns there with true.
bool ForkOne(int socket) {
  int report[2];
  pid_t process = -1;
  if (pipe2(report, O_CLOEXEC) != 0) abort();
  const pid_t between = fork();
  if (between == 0) {
    process = fork();
    if (process == 0) {
      close(report[0]);
      close(report[1]);
      close(socket);
      return true;
    }
    _exit(write(report[1], &process, sizeof(process)) == sizeof(process) ? 0 : 1);
  }
  close(report[1]);
  if (read(report[0], &process, sizeof(process)) != sizeof(process)) process = -1;
  close(report[0]);
  waitpid(between, nullptr, 0);
  if (send(socket, &process, sizeof(process), MSG_NOSIGNAL) < 0) _exit(0);
  return false;
}

int Serve(int /*argc*/, char** /*argv*/, char** /*environment*/) {
  const int socket = std::atoi(getenv(kSocket));
  constexpr size_t kOrderBytes = 1 << 20;
  std::string& order = *new std::string;  // the environment, which destructors of LibTorch's look at
  while (true) {
    order.resize(kOrderBytes);
    const ssize_t bytes = recv(socket, order.data(), order.size(), 0);
    if (bytes <= 0) _exit(0);
    order.resize(static_cast<size_t>(bytes));
    if (ForkOne(socket)) return GoOn(order);
  }
}

}  // namespace

// The C library's, which the program's first instruction calls: of `quarry` too, which hands over to quarry-train.
extern "C" int __libc_start_main(Main main, int argc, char** argv, void (*init)(), void (*fini)(),
                                 void (*ended)(), void* stack) {
  const auto start = reinterpret_cast<decltype(&__libc_start_main)>(dlsym(RTLD_NEXT, "__libc_start_main"));
  program_main = main;
  const bool trainer = std::filesystem::read_symlink("/proc/self/exe").filename() == "quarry-train";
  return start(trainer && getenv(kSocket) != nullptr ? &Serve : main, argc, argv, init, fini, ended, stack);
}
