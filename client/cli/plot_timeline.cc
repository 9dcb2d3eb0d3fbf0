// quarry plot timeline: what every thread did when, of a file that --trace wrote.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "plot.h"
#include "plot_json.h"
#include "plot_picture.h"
#include "quarry/base/units.h"

namespace quarry::cli {
namespace {

constexpr uint64_t kTraceBytesMax = kGiB;
constexpr size_t kLinesMax = 100;
constexpr size_t kPieces = 2400;   // per line: pixels of a PNG
constexpr size_t kDepthsMax = 8;   // levels of nested spans that are drawn
constexpr double kTimeMax = 1e15;  // microseconds, 30 years

constexpr std::string_view kWaiting = "#D8D8D8", kOther = "#909090";
// The colours of curves, and yellow, which is too pale for a curve but not for an area.
constexpr std::string_view kStageColours[] = {kColours[0], kColours[1], kColours[2], kColours[3],
                                              kColours[4], kColours[5], kColours[6], "#F0E442"};
constexpr size_t kStagesMax = std::size(kStageColours);  // named; the others are drawn as one

struct TimelineArguments {
  std::string path, output;
  std::vector<double> window;  // seconds
};

// In nanoseconds since the trace began: whole numbers, so that spans that adjoin do not overlap.
struct Span {
  size_t stage = 0;
  int64_t start = 0, end = 0;
  size_t depth = 0;  // spans around it
};

struct Line {
  std::string name;
  std::vector<Span> spans;
};

using LineId = std::pair<int64_t, int64_t>;  // process, thread

struct Timeline {
  std::map<LineId, Line> lines;
  std::map<std::string, size_t> stages;
};

// Takes events as the parser meets them: the tree of a trace of a million spans would take a gigabyte.
class TimelineReader {
 public:
  explicit TimelineReader(std::string path) : path_(std::move(path)) {}

  Result<Timeline> Read() {
    QUARRY_TRY(const std::string text, ReadText(path_, kTraceBytesMax));
    try {
      const Json rest = Json::parse(text, [this](int depth, Json::parse_event_t event, Json& value) {
        return Keep(depth, event, value);
      });
    } catch (const Json::parse_error& error) {
      return JsonFault(path_, text, 0, error);
    } catch (const Json::exception& error) {  // a number that no double holds
      return MakeStatus(Code::kInvalidArgument, "{}: traceEvents[{}]: no JSON: {}", path_, events_,
                        error.what());
    }
    QUARRY_RETURN_IF_ERROR(fault_);
    if (events_ > 0) return std::move(timeline_);
    return MakeStatus(Code::kInvalidArgument,
                      "{}: no \"traceEvents\" in it: --trace of a long command writes them", path_);
  }

 private:
  using Json = nlohmann::json;

  // The events are the objects in the array `traceEvents` of the outermost object.
  bool Keep(int depth, Json::parse_event_t event, const Json& value) {
    if (depth == 1 && event == Json::parse_event_t::key) in_events_ = value == "traceEvents";
    if (depth != 2 || event != Json::parse_event_t::object_end || !in_events_) return true;
    events_++;
    if (fault_.ok()) fault_ = Add({value, fmt::format("{}: traceEvents[{}]", path_, events_ - 1)});
    return false;
  }

  Status Add(const JsonObject& event) {
    QUARRY_TRY(const std::string kind, event.Text("ph"));
    if (kind != "X" && kind != "M") return Status::Ok();
    QUARRY_TRY(const std::string name, event.Text("name"));
    if (kind == "M" && name != "thread_name") return Status::Ok();
    QUARRY_TRY(const int64_t process, WholeIn(event, "pid"));
    QUARRY_TRY(const int64_t thread, WholeIn(event, "tid"));
    Line& line = timeline_.lines[{process, thread}];
    if (kind == "M") {
      const JsonObject arguments{event.value.value("args", Json::object()), event.place};
      QUARRY_TRY(line.name, arguments.Text("name"));
      return Status::Ok();
    }
    QUARRY_TRY(const double start, event.Number("ts"));
    QUARRY_TRY(const double duration, event.Number("dur"));
    if (!(start >= 0 && start <= kTimeMax && duration >= 0 && duration <= kTimeMax)) {
      return MakeStatus(Code::kInvalidArgument, "{}: a span of {} microseconds from {}", event.place,
                        duration, start);
    }
    const size_t stage = timeline_.stages.try_emplace(name, timeline_.stages.size()).first->second;
    const int64_t start_ns = std::llround(start * 1e3);
    line.spans.push_back({.stage = stage, .start = start_ns, .end = start_ns + std::llround(duration * 1e3)});
    return Status::Ok();
  }

  static Result<int64_t> WholeIn(const JsonObject& event, const std::string& field) {
    QUARRY_RETURN_IF_ERROR(event.Number(field).status());
    const Json& value = event.value[field];
    if (value.is_number_integer()) return value.get<int64_t>();
    return MakeStatus(Code::kInvalidArgument, "{}: \"{}\" is {}, and not a whole number", event.place, field,
                      value.dump());
  }

  const std::string path_;
  Timeline timeline_;
  Status fault_;
  size_t events_ = 0;
  bool in_events_ = false;
};

// Nanoseconds, cut into pieces.
struct Window {
  int64_t start = std::numeric_limits<int64_t>::max(), end = 0;
  double piece() const { return static_cast<double>(end - start) / static_cast<double>(kPieces); }
  double SecondsAt(size_t at) const {
    return (static_cast<double>(start) + static_cast<double>(at) * piece()) / 1e9;
  }
};

Result<Window> WindowOf(const TimelineArguments& arguments, const Timeline& timeline) {
  Window window;
  for (const auto& [id, line] : timeline.lines) {
    for (const Span& span : line.spans) {
      window.start = std::min(window.start, span.start);
      window.end = std::max(window.end, span.end);
    }
  }
  if (!arguments.window.empty()) {
    const auto nanoseconds = [&](size_t i) {
      return std::llround(std::min(arguments.window[i] * 1e9, kTimeMax * 1e3));
    };
    window.start = std::max<int64_t>(window.start, nanoseconds(0));
    window.end = std::min<int64_t>(window.end, nanoseconds(1));
  }
  if (window.start < window.end) return window;
  return MakeStatus(Code::kInvalidArgument, "{}: no spans in it{}", arguments.path,
                    arguments.window.empty() ? "" : " between the ends of --window");
}

constexpr int64_t kRounding = 2;  // nanoseconds, of a start and a duration

// Orders the spans of a line, and says of each how many others it lies in.
void Nest(std::vector<Span>& spans) {
  std::ranges::sort(spans, [](const Span& a, const Span& b) {
    return a.start != b.start ? a.start < b.start : a.end > b.end;
  });
  std::vector<int64_t> open;  // ends of the spans around
  for (Span& span : spans) {
    while (!open.empty() && open.back() <= span.start + kRounding) open.pop_back();
    span.depth = open.size();
    open.push_back(span.end);
  }
}

// Leaves what can be seen in the window.
void Clip(std::vector<Span>& spans, const Window& window) {
  Nest(spans);
  std::erase_if(spans, [&](const Span& span) {
    return span.end <= window.start || span.start >= window.end || span.depth >= kDepthsMax;
  });
  for (Span& span : spans) {
    span.start = std::max(span.start, window.start);
    span.end = std::min(span.end, window.end);
  }
}

struct Legend {
  std::vector<Picture::LegendEntry> entries;
  std::vector<size_t> of_stage;  // the entry
};

// The stages that take most time have an entry of their own; waiting is pale, for nothing happens then.
Legend LegendOf(const Timeline& timeline) {
  std::vector<int64_t> times(timeline.stages.size());
  for (const auto& [id, line] : timeline.lines) {
    for (const Span& span : line.spans) times[span.stage] += std::max<int64_t>(1, span.end - span.start);
  }
  std::vector<std::pair<int64_t, std::string>> by_time;
  for (const auto& [name, stage] : timeline.stages) {
    if (times[stage] > 0) by_time.emplace_back(-times[stage], name);
  }
  std::ranges::sort(by_time);
  Legend legend{.of_stage = std::vector<size_t>(times.size(), kStagesMax)};
  size_t colours = 0;
  for (size_t i = 0; i < std::min(by_time.size(), kStagesMax); ++i) {
    const std::string& name = by_time[i].second;
    legend.of_stage[timeline.stages.at(name)] = i;
    legend.entries.push_back({name, BoxLook(name.starts_with("wait") ? kWaiting : kStageColours[colours++])});
  }
  if (by_time.size() > kStagesMax) {
    const size_t others = by_time.size() - kStagesMax;
    legend.entries.push_back(
        {fmt::format("{} other stage{}", others, others == 1 ? "" : "s"), BoxLook(kOther)});
  }
  return legend;
}

// Pieces [first, end) of a line in the colour of an entry.
struct StageBox {
  size_t entry = 0, first = 0, end = 0;
};

// What each piece of a line shows of the spans at one depth. Where they are shorter than a piece, stages and
// idleness take turns in proportion to their times: each has a credit of its time, the largest is shown and
// pays for the piece. Otherwise millions of spans would hide each other.
std::vector<StageBox> BoxesOf(const std::vector<Span>& spans, const Legend& legend, const Window& window) {
  const size_t idle = legend.entries.size();
  std::vector<double> credits(idle + 1);
  std::vector<StageBox> boxes;
  size_t next = 0;  // the first span that does not end before the piece
  for (size_t piece = 0; piece < kPieces; ++piece) {
    const double from = static_cast<double>(window.start) + static_cast<double>(piece) * window.piece();
    const double to = from + window.piece();
    credits[idle] += window.piece();
    for (size_t i = next; i < spans.size() && static_cast<double>(spans[i].start) < to; ++i) {
      const double end = static_cast<double>(spans[i].end);
      if (i == next && end <= from) next++;
      const double time = std::min(end, to) - std::max(static_cast<double>(spans[i].start), from);
      if (time <= 0) continue;
      credits[legend.of_stage[spans[i].stage]] += time;
      credits[idle] -= time;
    }
    const auto shown = static_cast<size_t>(std::ranges::max_element(credits) - credits.begin());
    credits[shown] -= window.piece();
    if (shown == idle) continue;
    if (!boxes.empty() && boxes.back().entry == shown && boxes.back().end == piece) {
      boxes.back().end++;
    } else {
      boxes.push_back({.entry = shown, .first = piece, .end = piece + 1});
    }
  }
  return boxes;
}

// A layer a depth, so that spans lie on those that they are part of.
Picture Draw(const Timeline& timeline, const Window& window) {
  const Legend legend = LegendOf(timeline);
  std::map<std::pair<size_t, size_t>, std::string> boxes;  // rows by depth and entry of the legend
  std::vector<std::string> names;
  for (const auto& [id, line] : timeline.lines) {
    std::array<std::vector<Span>, kDepthsMax> layers;
    for (const Span& span : line.spans) layers[span.depth].push_back(span);
    const auto row = static_cast<double>(names.size());
    for (size_t depth = 0; depth < kDepthsMax; ++depth) {
      const double half = std::max(0.1, 0.42 - 0.1 * static_cast<double>(depth));
      for (const StageBox& box : BoxesOf(layers[depth], legend, window)) {
        boxes[{depth, box.entry}] +=
            BoxRow(window.SecondsAt(box.first), window.SecondsAt(box.end), row - half, row + half);
      }
    }
    names.push_back(line.name.empty() ? fmt::format("thread {}", id.second) : line.name);
  }
  Panel panel{.x_label = "seconds since the trace began",
              .axes = fmt::format("set xrange [{}:{}]\n{}", window.SecondsAt(0), window.SecondsAt(kPieces),
                                  NamedRows(names))};
  for (const auto& [layer, rows] : boxes) panel.series.push_back({rows, legend.entries[layer.second].look});
  return {.title = "What every thread did when",
          .width = 1200,
          .height = 110 + 34 * static_cast<int>(names.size()),
          .legend = legend.entries,
          .panels = {std::move(panel)}};
}

Result<Picture> Compose(const TimelineArguments& arguments) {
  QUARRY_TRY(Timeline timeline, TimelineReader(arguments.path).Read());
  QUARRY_TRY(const Window window, WindowOf(arguments, timeline));
  for (auto& [id, line] : timeline.lines) Clip(line.spans, window);
  std::erase_if(timeline.lines, [](const auto& line) { return line.second.spans.empty(); });
  if (!timeline.lines.empty() && timeline.lines.size() <= kLinesMax) return Draw(timeline, window);
  return MakeStatus(Code::kInvalidArgument,
                    "{}: {} threads have spans, and a picture shows 1 to {}; --window FROM,TO takes a part",
                    arguments.path, timeline.lines.size(), kLinesMax);
}

Status Run(const TimelineArguments& arguments) {
  const std::vector<double>& window = arguments.window;
  if (!window.empty() && !(window[0] >= 0 && window[0] < window[1])) {
    return MakeStatus(Code::kUsage, "--window {},{}: two times in seconds, the earlier one first", window[0],
                      window[1]);
  }
  return DrawPicture(arguments.output, [&] { return Compose(arguments); });
}

}  // namespace

void AddPlotTimeline(CLI::App& plot, Action& action) {
  auto arguments = std::make_shared<TimelineArguments>();
  CLI::App* const verb =
      plot.add_subcommand("timeline", "what every thread did when, of a file that --trace wrote");
  verb->add_option("TRACE.json", arguments->path, "what --trace of a long command wrote")->required();
  AddOutput(*verb, arguments->output);
  verb->add_option("--window", arguments->window, "seconds since the trace began; default: all of it")
      ->expected(2)
      ->delimiter(',')
      ->type_name("FROM,TO");
  verb->footer("Example: quarry plot timeline train.trace --window 10,10.5 -o train.png");
  verb->callback([arguments, &action] { action = [arguments] { return Run(*arguments); }; });
}

}  // namespace quarry::cli
