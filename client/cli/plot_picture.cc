#include "plot_picture.h"

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
#include <sstream>

#include "cli.h"
#include "remote/unix_socket.h"

namespace quarry::cli {
namespace {

using client::UniqueFd;

constexpr size_t kTextCharactersMax = 64;
constexpr int kPngScale = 2;

// gnuplot doubles a quote within a string, but takes a doubled one at its front for an empty string and what
// follows for code: so there is none in it.
std::string Quote(std::string_view text, std::string_view percent) {
  std::string shown;
  std::vector<size_t> begins;  // of characters, in `shown`
  while (!text.empty()) {
    begins.push_back(shown.size());
    uint32_t code_point = 0;
    const size_t bytes = DecodeUtf8(text, code_point);
    if (bytes == 0 || (code_point & 0xFFFE) == 0xFFFE) {  // XML has no U+FFFE, U+FFFF
      shown += '?';
    } else if (code_point < 0x20 || code_point == 0x7F) {
      shown += ' ';
    } else if (code_point == '\'') {
      shown += "\u2019";
    } else if (code_point == '>' && shown.ends_with("]]")) {
      shown += " >";  // gnuplot's SVG would have ]]>, which XML forbids
    } else if (code_point == '%') {
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

// Data blocks first, since a plot command names them.
std::string PanelScript(const Panel& panel) {
  std::string data;
  std::vector<std::string> plots;
  for (const Series& series : panel.series) {
    if (series.rows.empty()) continue;
    data += fmt::format("$rows{} << EOD\n{}EOD\n", plots.size(), series.rows);
    plots.push_back(fmt::format("$rows{} {} notitle", plots.size(), series.look));
  }
  return fmt::format("{}set xlabel {}\nset ylabel {}\n{}plot {}\n", data, Quoted(panel.x_label),
                     Quoted(panel.y_label), panel.axes, fmt::join(plots, ", "));
}

// Texts as they are (noenhanced), thin grey axes, a light grid. Title and legend belong to an empty plot as large
// as the picture: gnuplot drops entries that are not as high together as the plot is.
std::string ScriptOf(const Picture& picture, bool svg) {
  constexpr int kEntryHeight = 21, kAxisHeight = 70;
  const int legend_height = kEntryHeight * static_cast<int>(picture.legend.size());
  const int height = picture.height + legend_height;
  std::string script = fmt::format(
      "set encoding utf8\nset terminal {}\nset style fill solid noborder\nset multiplot\n"
      "set margins screen 0, screen 1, screen 0, screen 1\nunset border\nunset tics\n"
      "set label 1 {} at screen 0.5,{} center\n"
      "set key at screen 0.5,{} center top vertical maxcols 1 Left reverse samplen 4\nplot [0:1][0:1] ",
      svg ? fmt::format("svg noenhanced size {},{} font 'DejaVu Sans,Helvetica,Arial,sans-serif,14' "
                        "background '#ffffff'",
                        picture.width, height)
          : fmt::format(
                "pngcairo noenhanced size {0},{1} font 'DejaVu Sans,10.5' fontscale {2} linewidth {2} "
                "pointscale {2} background '#ffffff'",
                picture.width * kPngScale, height * kPngScale, kPngScale),
      Quoted(picture.title), 1 - 22.0 / height, (legend_height + 8.0) / height);
  for (const auto& [name, look] : picture.legend) {
    script += fmt::format("keyentry {} title {}, ", look, Quoted(name));
  }
  script += fmt::format(
      "NaN notitle\nunset label 1\nset key off\nset border 3 lc rgb '#808080'\n"
      "set tics nomirror out scale 0.5 tc rgb '#303030'\nset grid lt 1 lw 1 lc rgb '#E4E4E4'\n"
      "unset lmargin\nset tmargin at screen {}\nset bmargin at screen {}\n",
      1 - 45.0 / height, (kAxisHeight + legend_height + 0.0) / height);
  const auto count = static_cast<double>(picture.panels.size());
  for (size_t i = 0; i < picture.panels.size(); ++i) {
    const double end = static_cast<double>(i + 1) / count;
    // A single one has room for what stands beside it.
    if (count > 1)
      script += fmt::format("set lmargin at screen {}\n", end - 1 / count + 95.0 / picture.width);
    script += fmt::format("set rmargin at screen {}\n", end - 30.0 / picture.width);
    script += PanelScript(picture.panels[i]);
  }
  return script + "unset multiplot\n";
}

// Bytes in memory as a file. Holding script and messages there, gnuplot never waits for who reads or writes.
Result<UniqueFd> MemoryFile(std::string_view bytes) {
  UniqueFd file(memfd_create("quarry-plot", MFD_CLOEXEC));
  if (file.get() < 0) return ErrnoStatus(errno, "make", "a file in memory");
  while (!bytes.empty()) {
    const ssize_t written = write(file.get(), bytes.data(), bytes.size());
    if (written < 0) return ErrnoStatus(errno, "write", "a file in memory");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  lseek(file.get(), 0, SEEK_SET);
  return file;
}

// What gnuplot says is wrong: the first line that names a line of the script, for what stands before is the
// script's line itself; else the first line that is not empty.
std::string ComplaintIn(int fd) {
  std::string text(4096, '\0');
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, pread(fd, text.data(), text.size(), 0))));
  std::istringstream lines(text);
  std::string first;
  for (std::string line; std::getline(lines >> std::ws, line);) {
    if (line.starts_with("line ")) return line;
    if (first.empty()) first = line;
  }
  return first.empty() ? "it says nothing" : first;
}

// Runs `program` on `script`, its output going to `output`.
Status RunGnuplot(std::string program, const std::string& script, int output) {
  QUARRY_TRY(const UniqueFd input, MemoryFile(script));
  QUARRY_TRY(const UniqueFd messages, MemoryFile(""));
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
Status CheckWhole(int fd, std::string_view end, const std::string& path) {
  std::string last(16, '\0');
  const off_t size = lseek(fd, 0, SEEK_END);
  const ssize_t bytes = pread(fd, last.data(), last.size(), std::max<off_t>(0, size - 16));
  last.resize(static_cast<size_t>(std::max<ssize_t>(0, bytes)));
  if (last.find(end) != std::string::npos) {
    return fsync(fd) == 0 ? Status::Ok() : ErrnoStatus(errno, "sync", path);
  }
  return MakeStatus(Code::kIoError, "{}: gnuplot left it incomplete at {} bytes; is the disk full?", path,
                    size);
}

Status DrawBeside(const std::string& beside, const std::string& program, const Picture& picture, bool svg) {
  const UniqueFd file(open(beside.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.get() < 0) return ErrnoStatus(errno, "create", beside);
  QUARRY_RETURN_IF_ERROR(RunGnuplot(program, ScriptOf(picture, svg), file.get()));
  return CheckWhole(file.get(), svg ? "</svg>" : "IEND\xAE\x42\x60\x82", beside);
}

}  // namespace

std::string CurveLook(size_t curve) {
  constexpr std::array<int, 3> kDashes = {1, 2, 4};  // after all colours come dashes
  return fmt::format("with linespoints lc rgb '{}' dt {} lw 2 pt 7 ps 0.5",
                     kColours[curve % std::size(kColours)],
                     kDashes[curve / std::size(kColours) % kDashes.size()]);
}

Series CurveSeries(size_t curve, const Points& points) {
  std::string rows;
  for (const auto& [x, y] : points) rows += fmt::format("{} {}\n", x, y);
  // Points mark the measurements where they are not too many.
  return {rows, fmt::format("{} pointinterval {}", CurveLook(curve), 1 + points.size() / 25)};
}

std::string BoxLook(std::string_view colour) { return fmt::format("with boxxyerror lc rgb '{}'", colour); }

std::string BoxRow(double from, double to, double low, double high) {
  return fmt::format("{0} {2} {0} {1} {2} {3}\n", from, to, low, high);
}

std::string Quoted(std::string_view text) { return Quote(text, "%"); }

std::string NamedRows(const std::vector<std::string>& names) {
  std::vector<std::string> tics;
  for (const std::string& name : names) {
    tics.push_back(fmt::format("{} {}", Quote(name, "%%"), tics.size()));  // % begins a tic's format
  }
  return fmt::format("set yrange [{}:-0.6]\nset ytics scale 0 ({})\nset grid noytics\n",
                     static_cast<double>(names.size()) - 0.4, fmt::join(tics, ", "));
}

Status DrawPicture(const std::string& path, const std::function<Result<Picture>()>& compose) {
  const bool svg = path.ends_with(".svg");
  if (!svg && !path.ends_with(".png")) {
    return MakeStatus(Code::kUsage, "--output {}: a picture is an .svg or a .png file", path);
  }
  QUARRY_TRY(const std::string program, FindGnuplot());
  QUARRY_TRY(const Picture picture, compose());
  const std::string beside = path + ".plotting";
  Status status = DrawBeside(beside, program, picture, svg);
  if (status.ok() && std::rename(beside.c_str(), path.c_str()) != 0) {
    status = ErrnoStatus(errno, "rename to", path);
  }
  if (!status.ok()) unlink(beside.c_str());
  return status;
}

}  // namespace quarry::cli
