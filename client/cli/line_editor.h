// LineEditor: lines that are typed on a terminal, with editing, history and completion. One thread; one at a
// time in a process.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace quarry::cli {

class LineEditor {
 public:
  // The words that may stand for what begins with `word`, ascending.
  using Complete = std::function<std::vector<std::string>(std::string_view word)>;
  // History is read from the file, and written there when the editor goes; empty: none is kept.
  LineEditor(std::string history_file, Complete complete);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  enum class Outcome { kLine, kCancelled, kEnd };  // kCancelled: Ctrl-C, kEnd: Ctrl-D on an empty line
  // Without its line end.
  Outcome Read(const std::string& prompt, std::string& line);
  void Remember(const std::string& line);

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace quarry::cli
