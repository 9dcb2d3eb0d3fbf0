#include "plot_gnuplot.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <sstream>

#include "cli.h"

namespace quarry::cli {
namespace {

constexpr size_t kTextCharactersMax = 64;
constexpr int kPngScale = 2;

// A descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  const int fd_;
};

// How many bytes the UTF-8 character at the front of `text` has; 0: it is none that XML can hold.
size_t CharacterBytes(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned first = byte(0);
  const size_t bytes = first < 0x80   ? 1
                       : first < 0xC2 ? 0
                       : first < 0xE0 ? 2
                       : first < 0xF0 ? 3
                       : first < 0xF5 ? 4
                                      : 0;
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  if (bytes == 3) {
    const unsigned code = (first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    if (code < 0x800 || (code >= 0xD800 && code < 0xE000) || code >= 0xFFFE) return 0;
  }
  if (bytes == 4) {
    const unsigned code = (first & 0x07) << 18 | (byte(1) & 0x3F) << 12;
    if (code < 0x10000 || code > 0x10FFFF) return 0;
  }
  return bytes;
}

// gnuplot doubles a quote within a string, but takes a doubled one at its front for an empty string and what
// follows for code: so there is none in it.
std::string Quote(std::string_view text, std::string_view percent) {
  std::string shown;
  std::vector<size_t> begins;  // of characters, in `shown`
  while (!text.empty()) {
    begins.push_back(shown.size());
    const size_t bytes = CharacterBytes(text);
    const auto first = static_cast<unsigned char>(text[0]);
    if (bytes == 0) {
      shown += '?';
    } else if (first < 0x20 || first == 0x7F) {
      shown += ' ';
    } else if (first == '\'') {
      shown += "\u2019";
    } else if (first == '>' && shown.ends_with("]]")) {
      shown += " >";  // gnuplot's SVG would have ]]>, which XML forbids
    } else if (first == '%') {
      shown += percent;
    } else {
      shown += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<size_t>(1, bytes));
  }
  // Paths differ at their ends.
  if (begins.size() > kTextCharactersMax) {
    shown = "..." + shown.substr(begins[begins.size() - kTextCharactersMax]);
  }
  return "'" + shown + "'";
}

Result<std::string> FindGnuplot() {
  const char* const variable = std::getenv("PATH");
  std::istringstream folders(variable != nullptr ? variable : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string program = folder + "/gnuplot";
    if (!folder.empty() && access(program.c_str(), X_OK) == 0) return program;
  }
  return MakeStatus(Code::kNotFound,
                    "gnuplot, which draws the pictures, is not on the PATH; on Debian and Ubuntu "
                    "`apt-get install gnuplot-nox` brings it");
}

enum class Format : uint8_t { kSvg, kPng };

Result<Format> FormatOf(const std::string& path) {
  if (path.ends_with(".svg")) return Format::kSvg;
  if (path.ends_with(".png")) return Format::kPng;
  return MakeStatus(Code::kUsage, "--output {}: a picture is an .svg or a .png file", path);
}

// The terminal and the looks that all pictures have in common: texts as they are (noenhanced), thin grey
// axes, a light grid.
std::string ScriptOf(Format format, const Picture& picture) {
  const std::string terminal =
      format == Format::kSvg
          ? fmt::format(
                "svg noenhanced size {},{} font 'DejaVu Sans,Helvetica,Arial,sans-serif,14' background "
                "'#ffffff'",
                picture.width, picture.height)
          : fmt::format(
                "pngcairo noenhanced size {},{} font 'DejaVu Sans,10.5' fontscale {} linewidth {} pointscale "
                "{} "
                "background '#ffffff'",
                picture.width * kPngScale, picture.height * kPngScale, kPngScale, kPngScale, kPngScale);
  return fmt::format(
      "set encoding utf8\n"
      "set terminal {}\n"
      "set border 3 lc rgb '#808080'\n"
      "set tics nomirror out scale 0.5 tc rgb '#303030'\n"
      "set grid lt 1 lw 1 lc rgb '#E4E4E4'\n"
      "set style fill solid noborder\n"
      "{}",
      terminal, picture.script);
}

// Bytes in memory as a file. Holding script and messages there, gnuplot never waits for who reads or writes.
Result<int> MemoryFile(std::string_view bytes) {
  const int fd = memfd_create("quarry-plot", MFD_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, "make", "a file in memory");
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0) {
      const int error = errno;
      close(fd);
      return ErrnoStatus(error, "write", "a file in memory");
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  lseek(fd, 0, SEEK_SET);
  return fd;
}

// What gnuplot says is wrong: the first line that names a line of the script, for what stands before is the
// script's line itself; else the first line that is not empty.
std::string ComplaintIn(int fd) {
  std::string text(4096, '\0');
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, pread(fd, text.data(), text.size(), 0))));
  std::istringstream lines(text);
  std::string first;
  for (std::string line; std::getline(lines, line);) {
    const size_t begin = line.find_first_not_of(" \t");
    if (begin == std::string::npos) continue;
    line.erase(0, begin);
    if (line.starts_with("line ")) return line;
    if (first.empty()) first = line;
  }
  return first.empty() ? "it says nothing" : first;
}

// Runs `program` on `script`, its output going to `output`.
Status RunGnuplot(std::string program, const std::string& script, int output) {
  QUARRY_TRY(const int script_fd, MemoryFile(script));
  const Descriptor input(script_fd);
  QUARRY_TRY(const int message_fd, MemoryFile(""));
  const Descriptor messages(message_fd);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, messages.get(), STDERR_FILENO);
  std::string defaults = "--default-settings";  // nobody's ~/.gnuplot
  const std::array<char*, 3> arguments = {program.data(), defaults.data(), nullptr};
  pid_t process = -1;
  const int error = posix_spawn(&process, program.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return ErrnoStatus(error, "start", program);
  int ended = 0;
  while (waitpid(process, &ended, 0) < 0 && errno == EINTR) {
  }
  if (Interrupted()) return {Code::kCancelled, "interrupted"};
  if (WIFEXITED(ended) && WEXITSTATUS(ended) == 0) return Status::Ok();
  return MakeStatus(Code::kInternal, "{}: {}", program, ComplaintIn(messages.get()));
}

// gnuplot does not look whether what it writes arrives.
Status CheckWhole(int fd, Format format, const std::string& path) {
  const std::string_view end = format == Format::kSvg ? "</svg>" : "IEND\xAE\x42\x60\x82";
  std::array<char, 16> last{};
  const off_t size = lseek(fd, 0, SEEK_END);
  const ssize_t bytes =
      pread(fd, last.data(), last.size(), std::max<off_t>(0, size - static_cast<off_t>(last.size())));
  if (bytes > 0 &&
      std::string_view(last.data(), static_cast<size_t>(bytes)).find(end) != std::string_view::npos) {
    return fsync(fd) == 0 ? Status::Ok() : ErrnoStatus(errno, "sync", path);
  }
  return MakeStatus(Code::kIoError, "{}: gnuplot left it incomplete at {} bytes; is the disk full?", path,
                    size);
}

Status DrawBeside(const std::string& beside, const std::string& program, Format format,
                  const Picture& picture) {
  const Descriptor file(open(beside.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.get() < 0) return ErrnoStatus(errno, "create", beside);
  QUARRY_RETURN_IF_ERROR(RunGnuplot(program, ScriptOf(format, picture), file.get()));
  return CheckWhole(file.get(), format, beside);
}

// How a curve looks: after all colours come dashes.
std::string LookOf(size_t curve) {
  constexpr std::array<int, 3> kDashes = {1, 2, 4};
  return fmt::format("lc rgb '{}' dt {} lw 2 pt 7 ps 0.5", kColours[curve % std::size(kColours)],
                     kDashes[curve / std::size(kColours) % kDashes.size()]);
}

// One panel. The first one has the legend; it lies below all.
void AddPanel(const Panel& panel, const std::vector<std::string>* legend, std::string& script) {
  std::string plots;
  for (size_t i = 0; legend != nullptr && i < legend->size(); ++i) {
    plots += fmt::format("{}keyentry with linespoints {} title {}", plots.empty() ? "" : ", ", LookOf(i),
                         Quoted((*legend)[i]));
  }
  for (size_t i = 0; i < panel.curves.size(); ++i) {
    if (panel.curves[i].empty()) continue;
    script += fmt::format("$curve{} << EOD\n", i);
    for (const auto& [x, y] : panel.curves[i]) script += fmt::format("{} {}\n", x, y);
    script += "EOD\n";
    // Points mark the measurements where they are not too many.
    plots += fmt::format("{}$curve{} using 1:2 with linespoints {} pointinterval {} notitle",
                         plots.empty() ? "" : ", ", i, LookOf(i), 1 + panel.curves[i].size() / 25);
  }
  script += fmt::format("set xlabel {}\nset ylabel {}\n{}plot {}\n", Quoted(panel.x_label),
                        Quoted(panel.y_label), panel.axes, plots);
}

}  // namespace

std::string Quoted(std::string_view text) { return Quote(text, "%"); }

std::string QuotedTic(std::string_view text) { return Quote(text, "%%"); }

void AddLegendBelow(const std::vector<LegendEntry>& entries, Picture& picture) {
  constexpr double kAxisHeight = 62;  // tics and label
  constexpr double kRowHeight = 22, kBoxWidth = 26, kBoxHeight = 11, kGap = 8;
  constexpr double kCharacterWidth = 8.6;
  size_t longest = 0;
  for (const LegendEntry& entry : entries) {
    longest = std::max(longest, std::min(entry.name.size(), kTextCharactersMax));
  }
  const double entry_width = kBoxWidth + 3 * kGap + kCharacterWidth * static_cast<double>(longest);
  const size_t columns = std::clamp<size_t>(static_cast<size_t>(picture.width / entry_width), 1,
                                            std::max<size_t>(1, entries.size()));
  const size_t rows = (entries.size() + columns - 1) / columns;
  const double legend_height = kRowHeight * static_cast<double>(rows) + kGap;
  picture.height += static_cast<int>(legend_height);
  const double width = picture.width, height = picture.height;
  const double left = (width - entry_width * static_cast<double>(columns)) / 2;
  picture.script += fmt::format("set key off\nset rmargin at screen {}\nset bmargin at screen {}\n",
                                1 - 30 / width, (kAxisHeight + legend_height) / height);
  for (size_t i = 0; i < entries.size(); ++i) {
    const LegendEntry& entry = entries[i];
    const size_t row = i / columns;
    const double x = left + entry_width * static_cast<double>(i % columns);
    const double y = legend_height - kRowHeight * (0.5 + static_cast<double>(row));
    picture.script += fmt::format(
        "set object rectangle from screen {},{} to screen {},{} fillcolor rgb '{}' fillstyle solid noborder\n"
        "set label {} at screen {},{} left\n",
        x / width, (y - kBoxHeight / 2) / height, (x + kBoxWidth) / width, (y + kBoxHeight / 2) / height,
        entry.colour, Quoted(entry.name), (x + kBoxWidth + kGap) / width, y / height);
  }
}

Picture DrawCurves(std::string_view title, const std::vector<std::string>& legend,
                   const std::vector<Panel>& panels) {
  constexpr int kAxesHeight = 470, kEntryHeight = 20, kBottom = 70;
  const int legend_height = kEntryHeight * static_cast<int>(legend.size());
  Picture picture{.width = panels.size() == 1 ? 800 : 560 * static_cast<int>(panels.size()),
                  .height = kAxesHeight + legend_height};
  const double height = picture.height;
  const double bottom = (kBottom + legend_height) / height;
  picture.script = fmt::format(
      "set multiplot layout 1,{} title {} margins screen {},{},{},{} spacing screen {}\n"
      "set key at screen 0.5,{} center top vertical maxcols 1 Left reverse samplen 4\n",
      panels.size(), Quoted(title), 95.0 / picture.width, 1 - 25.0 / picture.width, bottom, 1 - 45 / height,
      105.0 / picture.width, (legend_height + 8) / height);
  for (const Panel& panel : panels) {
    AddPanel(panel, &panel == &panels.front() ? &legend : nullptr, picture.script);
  }
  picture.script += "unset multiplot\n";
  return picture;
}

Status DrawPicture(const std::string& path, const std::function<Result<Picture>()>& compose) {
  QUARRY_TRY(const Format format, FormatOf(path));
  QUARRY_TRY(const std::string program, FindGnuplot());
  QUARRY_TRY(const Picture picture, compose());
  const std::string beside = path + ".plotting";
  Status status = DrawBeside(beside, program, format, picture);
  if (status.ok() && std::rename(beside.c_str(), path.c_str()) != 0) {
    status = ErrnoStatus(errno, "rename to", path);
  }
  if (!status.ok()) unlink(beside.c_str());
  return status;
}

}  // namespace quarry::cli
