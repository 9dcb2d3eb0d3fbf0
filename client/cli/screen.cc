#include "screen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "cli.h"

namespace quarry::cli {
namespace {

int Milliseconds(double seconds) { return static_cast<int>(std::lround(seconds * 1000)); }

}  // namespace

bool ColorWanted() {
  const char* const no_color = std::getenv("NO_COLOR");
  return no_color == nullptr || *no_color == '\0';
}

bool WaitUnlessInterrupted(double seconds) {
  if (!Interrupted()) WaitForInterrupt(Milliseconds(seconds));
  return !Interrupted();
}

Screen::Screen() {
  std::fputs("\033[?1049h\033[?25l", stdout);
  if (tcgetattr(STDIN_FILENO, &before_) != 0) return;
  termios raw = before_;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  keys_ = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
}

Screen::~Screen() {
  if (keys_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  std::fputs("\033[?25h\033[?1049l", stdout);
  std::fflush(stdout);
}

void Screen::Draw(std::string_view text) const {
  std::string screen = "\033[H";
  for (const char c : text) screen += c == '\n' ? std::string("\033[K\n") : std::string(1, c);
  std::fputs((screen + "\033[J").c_str(), stdout);
  std::fflush(stdout);
}

size_t Screen::Rows() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 2 ? size.ws_row - 2U : 22U;
}

bool Screen::WaitForNext(double seconds) const {
  pollfd input{.fd = keys_ ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0};
  WaitForInterrupt(Milliseconds(seconds), {&input, 1});
  if (input.revents != 0) {
    char key = 0;
    if (read(STDIN_FILENO, &key, 1) <= 0 || key == 'q' || key == 'Q') return false;
  }
  return !Interrupted();
}

}  // namespace quarry::cli
