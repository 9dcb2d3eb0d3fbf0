// quarry plot timeline: what every thread did when, of a file that --trace wrote.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "plot.h"
#include "plot_json.h"

namespace quarry::cli {
namespace {

constexpr size_t kLinesMax = 100;
constexpr size_t kPieces = 2400;                    // of a line: pixels of a PNG
constexpr size_t kDepthsMax = 8;                    // levels of nested spans that are drawn
constexpr size_t kStagesMax = std::size(kColours);  // named; the others are drawn as one
constexpr std::string_view kWaiting = "#D8D8D8", kOther = "#909090";

struct TimelineArguments {
  std::string path;
  std::vector<double> window;  // seconds
};

// Times are microseconds since the trace began.
struct Span {
  size_t stage = 0;
  double start = 0, end = 0;
  size_t depth = 0;  // spans around it
};

struct Line {
  std::string name;
  std::vector<Span> spans;
};

struct Timeline {
  std::map<std::pair<double, double>, Line> lines;  // by process and thread
  std::map<std::string, size_t> stages;
};

Status AddEvent(const JsonObject& event, Timeline& timeline) {
  QUARRY_TRY(const auto kind, event.Get<std::string>("ph"));
  if (kind != "X" && kind != "M") return Status::Ok();
  QUARRY_TRY(const auto name, event.Get<std::string>("name"));
  if (kind == "M" && name != "thread_name") return Status::Ok();  // of a process, or of what has no thread
  QUARRY_TRY(const double process, event.Get<double>("pid"));
  QUARRY_TRY(const double thread, event.Get<double>("tid"));
  Line& line = timeline.lines[{process, thread}];
  if (kind == "M") {
    QUARRY_TRY(const auto arguments, event.Get<nlohmann::json>("args"));
    QUARRY_TRY(line.name, (JsonObject{arguments, event.place}.Get<std::string>("name")));
    return Status::Ok();
  }
  constexpr double kTimeMax = 1e15;  // 30 years
  QUARRY_TRY(const double start, event.Get<double>("ts"));
  QUARRY_TRY(const double duration, event.Get<double>("dur"));
  if (!(start >= 0 && start <= kTimeMax && duration >= 0 && duration <= kTimeMax)) {
    return MakeStatus(Code::kInvalidArgument, "{}: a span of {} microseconds from {}", event.place, duration,
                      start);
  }
  const size_t stage = timeline.stages.try_emplace(name, timeline.stages.size()).first->second;
  line.spans.push_back({.stage = stage, .start = start, .end = start + duration});
  return Status::Ok();
}

// Takes events as the parser meets them: the tree of a trace of a million spans would take a gigabyte.
Result<Timeline> ReadTimeline(const std::string& path) {
  using nlohmann::json;
  QUARRY_TRY(const std::string text, ReadText(path));
  Timeline timeline;
  Status fault;
  size_t events = 0;
  bool in_events = false;
  const auto keep = [&](int depth, json::parse_event_t event, json& value) {
    if (depth == 1 && event == json::parse_event_t::key) in_events = value == "traceEvents";
    if (depth != 2 || event != json::parse_event_t::object_end || !in_events) return true;
    const JsonObject object{std::move(value), fmt::format("{}: traceEvents[{}]", path, events++)};
    if (fault.ok()) fault = AddEvent(object, timeline);
    return false;
  };
  QUARRY_RETURN_IF_ERROR(ParseJson(path, text, 1, keep).status());
  QUARRY_RETURN_IF_ERROR(fault);
  if (events > 0) return timeline;
  return MakeStatus(Code::kInvalidArgument,
                    "{}: no \"traceEvents\" in it: --trace of a long command writes them", path);
}

struct Window {
  double start = HUGE_VAL, end = 0;
  double piece() const { return (end - start) / static_cast<double>(kPieces); }
  double At(size_t piece_index) const { return start + static_cast<double>(piece_index) * piece(); }
};

// Leaves of a line what can be seen in the window, in order, and says of each span how many others it lies in.
void NestAndClip(const Window& window, std::vector<Span>& spans) {
  constexpr double kRounding = 0.002;  // of a start and a duration, which are told in nanoseconds
  std::ranges::sort(spans, [](const Span& a, const Span& b) {
    return a.start != b.start ? a.start < b.start : a.end > b.end;
  });
  std::vector<double> open;  // ends of the spans around
  for (Span& span : spans) {
    while (!open.empty() && open.back() <= span.start + kRounding) open.pop_back();
    span.depth = open.size();
    open.push_back(span.end);
    span.start = std::max(span.start, window.start);
    span.end = std::min(span.end, window.end);
  }
  std::erase_if(spans, [](const Span& span) { return span.end <= span.start || span.depth >= kDepthsMax; });
}

// The stages that take most time have a look of their own, the others the last one; waiting is pale, for nothing
// happens then. Sets the look of each stage.
std::vector<Picture::Look> LooksOf(const Timeline& timeline, std::vector<size_t>& look_of_stage) {
  std::vector<double> times(timeline.stages.size());
  for (const auto& [id, line] : timeline.lines) {
    for (const Span& span : line.spans) times[span.stage] += span.end - span.start;
  }
  std::vector<std::pair<double, std::string>> by_time;
  for (const auto& [name, stage] : timeline.stages) {
    if (times[stage] > 0) by_time.emplace_back(-times[stage], name);
  }
  std::ranges::sort(by_time);
  look_of_stage.assign(times.size(), kStagesMax);
  std::vector<Picture::Look> looks;
  size_t colours = 0;
  for (const auto& [time, name] : by_time) {
    if (looks.size() == kStagesMax) {
      const size_t others = by_time.size() - kStagesMax;
      looks.push_back({fmt::format("{} other stage{}", others, others == 1 ? "" : "s"), BoxStyle(kOther)});
      break;
    }
    look_of_stage[timeline.stages.at(name)] = looks.size();
    looks.push_back({name, BoxStyle(name.starts_with("wait") ? kWaiting : kColours[colours++])});
  }
  return looks;
}

// Draws the spans of a line at one depth, in order: calls draw(look, first piece, end). Where they are shorter than
// a piece, stages and idleness take turns in proportion to their times: each has a credit of its time, the largest
// is shown and pays for the piece. Otherwise millions of spans would hide each other.
template <typename Draw>
void DrawSpans(const std::vector<Span>& spans, const Window& window, const std::vector<size_t>& look_of_stage,
               size_t look_count, Draw&& draw) {
  const size_t idle = look_count;
  std::vector<double> credits(idle + 1);
  size_t next = 0;  // the first span that does not end before the piece
  size_t drawn = idle, first = 0;
  for (size_t piece = 0; piece <= kPieces; ++piece) {
    const double from = window.At(piece), to = window.At(piece + 1);
    credits[idle] += window.piece();
    for (size_t i = next; i < spans.size() && spans[i].start < to; ++i) {
      if (i == next && spans[i].end <= from) next++;
      const double time = std::min(spans[i].end, to) - std::max(spans[i].start, from);
      if (time <= 0) continue;
      credits[look_of_stage[spans[i].stage]] += time;
      credits[idle] -= time;
    }
    const auto largest = static_cast<size_t>(std::ranges::max_element(credits) - credits.begin());
    const size_t shown = piece < kPieces ? largest : idle;
    credits[largest] -= window.piece();
    if (shown == drawn) continue;
    if (drawn != idle) draw(drawn, first, piece);
    drawn = shown;
    first = piece;
  }
}

// A layer a depth, so that spans lie on those that they are part of.
Picture PictureOf(const Timeline& timeline, const Window& window) {
  std::vector<size_t> look_of_stage;
  Picture picture{.title = "What every thread did when", .width = 1200};
  picture.looks = LooksOf(timeline, look_of_stage);
  std::map<std::pair<size_t, size_t>, std::string> boxes;  // rows by depth and look
  std::vector<std::string> names;
  for (const auto& [id, line] : timeline.lines) {
    const auto row = static_cast<double>(names.size());
    for (size_t depth = 0; depth < kDepthsMax; ++depth) {
      std::vector<Span> layer;
      std::ranges::copy_if(line.spans, std::back_inserter(layer),
                           [depth](const Span& span) { return span.depth == depth; });
      const double half = std::max(0.1, 0.42 - 0.1 * static_cast<double>(depth));
      DrawSpans(layer, window, look_of_stage, picture.looks.size(),
                [&](size_t look, size_t first, size_t end) {
                  boxes[{depth, look}] +=
                      BoxRow(window.At(first) / 1e6, window.At(end) / 1e6, row - half, row + half);
                });
    }
    names.push_back(line.name.empty() ? fmt::format("thread {}", id.second) : line.name);
  }
  picture.height = 110 + 34 * static_cast<int>(names.size());
  Picture::Panel panel{.x_label = "seconds since the trace began"};
  panel.axes = fmt::format("set xrange [{}:{}]\n{}", window.start / 1e6, window.end / 1e6, NamedRows(names));
  for (const auto& [layer, rows] : boxes) panel.series.push_back({layer.second, rows});
  picture.panels.push_back(std::move(panel));
  return picture;
}

Result<Picture> ComposeTimeline(const TimelineArguments& arguments) {
  const std::vector<double>& asked = arguments.window;
  if (!asked.empty() && !(asked[0] >= 0 && asked[0] < asked[1])) {
    return MakeStatus(Code::kUsage, "--window {},{}: two times in seconds, the earlier one first", asked[0],
                      asked[1]);
  }
  QUARRY_TRY(Timeline timeline, ReadTimeline(arguments.path));
  Window window;
  for (const auto& [id, line] : timeline.lines) {
    for (const Span& span : line.spans) {
      window = {std::min(window.start, span.start), std::max(window.end, span.end)};
    }
  }
  if (!asked.empty()) window = {std::max(window.start, asked[0] * 1e6), std::min(window.end, asked[1] * 1e6)};
  if (window.start >= window.end) {
    return MakeStatus(Code::kInvalidArgument, "{}: no spans in it{}", arguments.path,
                      asked.empty() ? "" : " between the ends of --window");
  }
  for (auto& [id, line] : timeline.lines) NestAndClip(window, line.spans);
  std::erase_if(timeline.lines, [](const auto& line) { return line.second.spans.empty(); });
  if (!timeline.lines.empty() && timeline.lines.size() <= kLinesMax) return PictureOf(timeline, window);
  return MakeStatus(Code::kInvalidArgument,
                    "{}: {} threads have spans, and a picture shows 1 to {}; --window FROM,TO takes a part",
                    arguments.path, timeline.lines.size(), kLinesMax);
}

}  // namespace

void AddPlotTimeline(CLI::App& plot, Action& action) {
  auto arguments = std::make_shared<TimelineArguments>();
  CLI::App* const verb = AddKind(plot, "timeline", "what every thread did when, of a file that --trace wrote",
                                 action, [arguments] { return ComposeTimeline(*arguments); });
  verb->add_option("TRACE.json", arguments->path, "what --trace of a long command wrote")->required();
  verb->add_option("--window", arguments->window, "seconds since the trace began; default: all of it")
      ->expected(2)
      ->delimiter(',')
      ->type_name("FROM,TO");
  verb->footer("Example: quarry plot timeline train.trace --window 10,10.5 -o train.png");
}

}  // namespace quarry::cli
