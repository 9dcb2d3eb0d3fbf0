// A terminal that is redrawn until the user has seen enough, for `quarry top` and `quarry stats --watch`.
#pragma once

#include <termios.h>

#include <string_view>

namespace quarry::cli {

// False where the environment sets NO_COLOR.
bool ColorWanted();

// Sleeps; false as soon as Ctrl-C has come.
bool WaitUnlessInterrupted(double seconds);

// Keys come at once and unseen, and the screen is another one, until this dies.
class Screen {
 public:
  Screen();
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void Draw(std::string_view text) const;
  static size_t Rows();
  // False when the user wants no more: q, or Ctrl-C.
  bool WaitForNext(double seconds) const;

 private:
  termios before_{};
  bool keys_ = false;
};

}  // namespace quarry::cli
