#include "line_editor.h"

#include <histedit.h>

#include <algorithm>
#include <cctype>
#include <cstdio>

#include "quarry/base/text.h"

namespace quarry::cli {
namespace {

constexpr int kHistoryLines = 1000;

bool IsWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.'; }

// What all of them begin with.
std::string CommonPrefix(const std::vector<std::string>& words) {
  std::string common = words.front();
  for (const std::string& word : words) {
    const auto [end, other] = std::ranges::mismatch(common, word);
    common.erase(end, common.end());
  }
  return common;
}

}  // namespace

class LineEditor::Impl {
 public:
  Impl(std::string history_file, Complete complete)
      : history_file_(std::move(history_file)),
        complete_(std::move(complete)),
        editor_(el_init("quarry", stdin, stdout, stderr)),
        history_(history_init()) {
    HistEvent event;
    history(history_, &event, H_SETSIZE, kHistoryLines);
    history(history_, &event, H_SETUNIQUE, 1);
    if (!history_file_.empty()) history(history_, &event, H_LOAD, history_file_.c_str());
    el_set(editor_, EL_CLIENTDATA, this);
    el_set(editor_, EL_PROMPT, &Impl::Prompt);
    el_set(editor_, EL_HIST, history, history_);
    el_set(editor_, EL_EDITOR, "emacs");
    // Ctrl-C gives up the line: as a character, since a signal would not end reading it.
    el_set(editor_, EL_SETTY, "-d", "-isig", nullptr);
    el_set(editor_, EL_ADDFN, "cancel-line", "give up the line", &Impl::Cancel);
    el_set(editor_, EL_BIND, "^C", "cancel-line", nullptr);
    el_set(editor_, EL_ADDFN, "complete-word", "complete a name", &Impl::CompleteWord);
    el_set(editor_, EL_BIND, "^I", "complete-word", nullptr);
    el_set(editor_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    el_source(editor_, nullptr);  // the user's own keys
  }
  ~Impl() {
    HistEvent event;
    if (!history_file_.empty()) history(history_, &event, H_SAVE, history_file_.c_str());
    el_end(editor_);
    history_end(history_);
  }

  Outcome Read(const std::string& prompt, std::string& line) {
    prompt_ = prompt;
    cancelled_ = false;
    int count = 0;
    const char* const text = el_gets(editor_, &count);
    if (cancelled_) {
      std::fputs("^C\n", stdout);
      return Outcome::kCancelled;
    }
    if (text == nullptr || count <= 0) return Outcome::kEnd;
    line.assign(text, static_cast<size_t>(count));
    if (line.ends_with('\n')) line.pop_back();
    return Outcome::kLine;
  }

  void Remember(const std::string& line) {
    HistEvent event;
    history(history_, &event, H_ENTER, line.c_str());
  }

 private:
  static Impl& Self(EditLine* editor) {
    void* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return *static_cast<Impl*>(self);
  }
  static char* Prompt(EditLine* editor) { return Self(editor).prompt_.data(); }
  static unsigned char Cancel(EditLine* editor, int) {
    Self(editor).cancelled_ = true;
    return CC_NEWLINE;
  }

  static unsigned char CompleteWord(EditLine* editor, int) {
    const LineInfo* const line = el_line(editor);
    const char* begin = line->cursor;
    while (begin > line->buffer && IsWord(begin[-1])) --begin;
    const std::string word(begin, line->cursor);
    const std::vector<std::string> words = Self(editor).complete_(word);
    if (words.empty()) return CC_ERROR;
    const std::string insert = CommonPrefix(words) + (words.size() == 1 ? " " : "");
    if (insert.size() > word.size()) {
      el_deletestr(editor, static_cast<int>(word.size()));
      el_insertstr(editor, insert.c_str());
      return CC_REFRESH;
    }
    std::fputc('\n', stdout);
    for (const std::string& other : words) std::printf("%s  ", Printable(other).c_str());
    std::fputc('\n', stdout);
    return CC_REDISPLAY;
  }

  const std::string history_file_;
  const Complete complete_;
  EditLine* const editor_;
  History* const history_;
  std::string prompt_;
  bool cancelled_ = false;
};

LineEditor::LineEditor(std::string history_file, Complete complete)
    : impl_(std::make_unique<Impl>(std::move(history_file), std::move(complete))) {}
LineEditor::~LineEditor() = default;
LineEditor::Outcome LineEditor::Read(const std::string& prompt, std::string& line) {
  return impl_->Read(prompt, line);
}
void LineEditor::Remember(const std::string& line) { impl_->Remember(line); }

}  // namespace quarry::cli
