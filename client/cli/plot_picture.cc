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
#include <iterator>
#include <sstream>

#include "doctor_facts.h"
#include "plot.h"
#include "remote/unix_socket.h"

namespace quarry::cli {
namespace {

using client::UniqueFd;

// Texts as they are (noenhanced), thin grey axes, a light grid. Title and legend belong to an empty plot as large
// as the picture: gnuplot drops entries that are not as high together as the plot is.
constexpr const char* kScript = R"(set encoding utf8
set terminal {terminal}
set style fill solid noborder
set multiplot
set margins screen 0, screen 1, screen 0, screen 1
unset border
unset tics
set label 1 {title} at screen 0.5,{title_y} center
set key at screen 0.5,{legend_y} center top vertical maxcols 1 Left reverse samplen 4
plot [0:1][0:1] {legend} NaN notitle
unset label 1
set key off
set border 3 lc rgb '#808080'
set tics nomirror out scale 0.5 tc rgb '#303030'
set grid lt 1 lw 1 lc rgb '#E4E4E4'
unset lmargin
set tmargin at screen {top}
set bmargin at screen {bottom}
{panels}
unset multiplot
)";
constexpr const char* kSvg =
    "svg noenhanced size {},{} font 'DejaVu Sans,Helvetica,Arial,sans-serif,14' background '#ffffff'";
constexpr const char* kPng =
    "pngcairo noenhanced size {},{} font 'DejaVu Sans,10.5' fontscale 2 linewidth 2 pointscale 2 "
    "background '#ffffff'";

// The data stand in front of the command that names them.
constexpr const char* kPanel = R"({data}
{margins}
set xlabel {x_label}
set ylabel {y_label}
{axes}
plot {plots}
)";

// A text as a string of gnuplot's: in single quotes, where nothing but the quote itself is special. gnuplot doubles
// that, but takes a doubled one at the front for an empty string and what follows for code: so there is none in it.
// A long text is cut at its front, since paths differ at their ends. `percent`: what a % becomes.
std::string Quoted(std::string_view text, const char* percent = "%") {
  constexpr size_t kCharactersMax = 64;
  // XML forbids ]]> in a text, which gnuplot leaves there, and two code points.
  constexpr std::pair<const char*, const char*> kReplaced[] = {
      {"'", "\u2019"}, {"]]>", "]] >"}, {"\uFFFE", "?"}, {"\uFFFF", "?"}};
  std::string shown = Printable(text);
  for (const auto& [from, to] : kReplaced) {
    shown = CLI::detail::find_and_replace(std::move(shown), from, to);
  }
  size_t begin = shown.size();
  for (size_t left = kCharactersMax; begin > 0 && left > 0;) {
    if ((shown[--begin] & 0xC0) != 0x80) left--;  // UTF-8 goes on in bytes of the form 10xxxxxx
  }
  if (begin > 0) shown = "..." + shown.substr(begin);
  return "'" + CLI::detail::find_and_replace(std::move(shown), "%", percent) + "'";
}

std::string PanelScript(const Picture& picture, size_t index) {
  const Picture::Panel& panel = picture.panels[index];
  const auto count = static_cast<double>(picture.panels.size());
  const double end = static_cast<double>(index + 1) / count;
  std::string margins = fmt::format("set rmargin at screen {}\n", end - 30.0 / picture.width);
  // A single panel has room for what stands beside it.
  if (count > 1) margins += fmt::format("set lmargin at screen {}", end - 1 / count + 95.0 / picture.width);
  std::string data;
  std::vector<std::string> plots;
  for (const auto& [look, rows] : panel.series) {
    if (rows.empty()) continue;
    data += fmt::format("$rows{} << EOD\n{}EOD\n", plots.size(), rows);
    plots.push_back(fmt::format("$rows{} {} notitle", plots.size(), picture.looks[look].style));
  }
  return fmt::format(fmt::runtime(kPanel), fmt::arg("data", data), fmt::arg("margins", margins),
                     fmt::arg("x_label", Quoted(panel.x_label)), fmt::arg("y_label", Quoted(panel.y_label)),
                     fmt::arg("axes", panel.axes), fmt::arg("plots", fmt::join(plots, ", ")));
}

std::string ScriptOf(const Picture& picture, bool svg) {
  constexpr int kEntryHeight = 21, kAxisHeight = 70, kPngScale = 2;
  std::string legend, panels;
  int legend_height = 0;
  for (const auto& [name, style] : picture.looks) {
    if (name.empty()) continue;
    legend += fmt::format("keyentry {} title {}, ", style, Quoted(name));
    legend_height += kEntryHeight;
  }
  for (size_t i = 0; i < picture.panels.size(); ++i) panels += PanelScript(picture, i);
  const int height = picture.height + legend_height, scale = svg ? 1 : kPngScale;
  const std::string terminal =
      fmt::format(fmt::runtime(svg ? kSvg : kPng), picture.width * scale, height * scale);
  return fmt::format(
      fmt::runtime(kScript), fmt::arg("terminal", terminal), fmt::arg("title", Quoted(picture.title)),
      fmt::arg("title_y", 1 - 22.0 / height), fmt::arg("legend_y", (legend_height + 8.0) / height),
      fmt::arg("legend", legend), fmt::arg("top", 1 - 45.0 / height),
      fmt::arg("bottom", (legend_height + kAxisHeight + 0.0) / height), fmt::arg("panels", panels));
}

// Bytes in memory as a file. Holding script and messages there, gnuplot never waits for who reads or writes.
Result<UniqueFd> MemoryFile(std::string_view bytes) {
  UniqueFd file(memfd_create("quarry-plot", MFD_CLOEXEC));
  const ssize_t written = file.get() < 0 ? -1 : pwrite(file.get(), bytes.data(), bytes.size(), 0);
  if (written == static_cast<ssize_t>(bytes.size())) return file;
  return ErrnoStatus(errno, "write", "a file in memory");
}

// The last bytes of a file.
std::string TailOf(int fd, off_t bytes_max) {
  const off_t size = lseek(fd, 0, SEEK_END);
  std::string tail(static_cast<size_t>(std::min(size, bytes_max)), '\0');
  const ssize_t read = pread(fd, tail.data(), tail.size(), size - static_cast<off_t>(tail.size()));
  tail.resize(static_cast<size_t>(std::max<ssize_t>(0, read)));
  return tail;
}

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
  std::istringstream words(TailOf(messages.get(), 400));
  const std::vector<std::string> said{std::istream_iterator<std::string>(words), {}};
  return MakeStatus(Code::kInternal, "{} failed{}{}", program, said.empty() ? "" : ": ",
                    fmt::join(said, " "));
}

Status DrawBeside(const std::string& beside, const std::string& program, const Picture& picture, bool svg) {
  const UniqueFd file(open(beside.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.get() < 0) return ErrnoStatus(errno, "create", beside);
  QUARRY_RETURN_IF_ERROR(RunGnuplot(program, ScriptOf(picture, svg), file.get()));
  // gnuplot does not look whether what it writes arrives.
  if (TailOf(file.get(), 16).find(svg ? "</svg>" : "IEND\xAE\x42\x60\x82") == std::string::npos) {
    return MakeStatus(Code::kIoError, "{}: gnuplot left it incomplete; is the disk full?", beside);
  }
  return fsync(file.get()) == 0 ? Status::Ok() : ErrnoStatus(errno, "sync", beside);
}

Status DrawPicture(const std::string& path, const std::function<Result<Picture>()>& compose) {
  const bool svg = path.ends_with(".svg");
  if (!svg && !path.ends_with(".png")) {
    return MakeStatus(Code::kUsage, "--output {}: a picture is an .svg or a .png file", path);
  }
  const std::string program = FindProgram("gnuplot");
  if (program.empty()) {
    return MakeStatus(Code::kNotFound,
                      "gnuplot, which draws the pictures, is not on the PATH; on Debian and Ubuntu "
                      "`apt-get install gnuplot-nox` brings it");
  }
  QUARRY_TRY(const Picture picture, compose());
  const std::string beside = path + ".plotting";
  Status status = DrawBeside(beside, program, picture, svg);
  if (status.ok() && std::rename(beside.c_str(), path.c_str()) != 0) {
    status = ErrnoStatus(errno, "rename to", path);
  }
  if (!status.ok()) unlink(beside.c_str());
  return status;
}

}  // namespace

std::string BoxStyle(std::string_view colour) { return fmt::format("with boxxyerror lc rgb '{}'", colour); }

std::string BoxRow(double from, double to, double low, double high) {
  return fmt::format("{0} {2} {0} {1} {2} {3}\n", from, to, low, high);
}

std::string NamedRows(const std::vector<std::string>& names) {
  std::vector<std::string> tics;
  for (const std::string& name : names) {
    tics.push_back(fmt::format("{} {}", Quoted(name, "%%"), tics.size()));  // % begins a tic's format
  }
  return fmt::format("set yrange [{}:-0.6]\nset ytics scale 0 ({})\nset grid noytics\n",
                     static_cast<double>(names.size()) - 0.4, fmt::join(tics, ", "));
}

CLI::App* AddKind(CLI::App& plot, const std::string& name, const std::string& description, Action& action,
                  std::function<Result<Picture>()> compose) {
  auto output = std::make_shared<std::string>();
  CLI::App* const verb = plot.add_subcommand(name, description);
  verb->add_option("-o,--output", *output, "the picture: FILE.svg or FILE.png")
      ->type_name("FILE")
      ->required();
  verb->callback([output, compose = std::move(compose), &action] {
    action = [output, compose] { return DrawPicture(*output, compose); };
  });
  return verb;
}

}  // namespace quarry::cli
