// `quarry plot`: pictures of what other verbs print, drawn by the real binary and the real gnuplot.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <regex>

#include "cli_database_test.h"
#include "support/file_text.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;

constexpr const char* kBlue = "rgb(  0, 114, 178)";
constexpr const char* kVermilion = "rgb(213,  94,   0)";
constexpr const char* kGreen = "rgb(  0, 158, 115)";
constexpr const char* kPale = "rgb(216, 216, 216)";

struct Point {
  double x = 0, y = 0;
};

// An SVG, read by a parser that takes well-formed XML only.
struct Svg {
  explicit Svg(const fs::path& path) : text(testing_util::FileText(path)) {
    const std::string command =
        "python3 -c 'import json, sys, xml.etree.ElementTree as tree\n"
        "print(json.dumps([\"\".join(e.itertext()) for e in tree.parse(sys.argv[1]).iter() if "
        "e.tag.endswith(\"}text\")]))' " +
        path.string();
    std::FILE* const python = popen(command.c_str(), "r");
    std::string printed(1 << 16, '\0');
    printed.resize(std::fread(printed.data(), 1, printed.size(), python));
    EXPECT_EQ(pclose(python), 0) << path << " is not well-formed";
    for (const json& word : json::parse(printed, nullptr, /*allow_exceptions=*/false)) texts.push_back(word);
  }
  // The marks of curves in a colour, in the order of drawing; those of the legend come first.
  std::vector<Point> Marks(const std::string& colour) const {
    static const std::regex kMark("translate\\(([0-9.]+),([0-9.]+)\\) scale\\([0-9.]+\\)' color='([^']+)'");
    std::vector<Point> marks;
    for (auto at = std::sregex_iterator(text.begin(), text.end(), kMark); at != std::sregex_iterator();
         ++at) {
      if ((*at)[3] == colour) marks.push_back({std::stod((*at)[1]), std::stod((*at)[2])});
    }
    return marks;
  }
  // The widths of boxes in a colour; those of the legend come first.
  std::vector<double> Widths(const std::string& colour) const {
    static const std::regex kBox("polygon fill = '([^']+)' points = '([0-9.]+),[0-9.]+ ([0-9.]+),");
    std::vector<double> widths;
    for (auto at = std::sregex_iterator(text.begin(), text.end(), kBox); at != std::sregex_iterator(); ++at) {
      if ((*at)[1] == colour) widths.push_back(std::stod((*at)[3]) - std::stod((*at)[2]));
    }
    return widths;
  }

  std::string text;
  std::vector<std::string> texts;
};

class PlotTest : public CliDatabaseTest {
 protected:
  static void SetUpTestSuite() {
    MakeDatabase(
        "plot_test",
        "--nodes 4k --degree 8 --dim 16 --classes 4 --train-share 20% --valid-share 5% --test-share 5%",
        "--trace import.trace");
  }

  // What a command prints, as a file.
  static void Save(const std::string& name, const std::string& arguments) {
    const Outcome outcome = Run(arguments);
    ASSERT_EQ(outcome.exit_code, 0) << arguments << "\n" << outcome.err;
    Write(name, outcome.out);
  }
  static Svg Draw(const std::string& arguments) {
    const Outcome drawn = Run("plot " + arguments + " -o drawn.svg");
    EXPECT_EQ(drawn.exit_code, 0) << arguments << "\n" << drawn.err;
    EXPECT_EQ(drawn.out + drawn.err, "") << arguments;
    EXPECT_FALSE(fs::exists(Path("drawn.svg.plotting")));
    return Svg(Path("drawn.svg"));
  }
  static std::string Refused(const std::string& arguments, int exit_code = 1,
                             std::vector<std::string> variables = {}) {
    const Outcome outcome = Run("plot " + arguments, std::move(variables));
    EXPECT_EQ(outcome.exit_code, exit_code) << arguments << "\n" << outcome.err;
    EXPECT_EQ(Lines(outcome.err).size(), 1u) << outcome.err;
    EXPECT_TRUE(outcome.err.starts_with("quarry: ")) << outcome.err;
    return outcome.err;
  }

  // A run as `quarry train --json` prints it.
  static void SaveRun(const std::string& name, int epochs) {
    return Save(name,
                "train db --json --layers 1 --fanout 5 --hidden 8 --memory 256MiB --threads 1 "
                "--torch-threads 1 --epochs " +
                    std::to_string(epochs));
  }
};

TEST_F(PlotTest, EveryRunHasACurveOfLossAndOneOfAccuracy) {
  SaveRun("a.json", 3);
  SaveRun("b.json", 2);
  const Svg svg = Draw("training a.json b.json");
  EXPECT_THAT(svg.texts, IsSupersetOf({"a.json", "b.json", "epoch", "training loss", "validation accuracy"}));
  EXPECT_THAT(svg.texts, Not(Contains("validation AUC")));
  EXPECT_EQ(svg.Marks(kBlue).size(), 1u + 3 + 3);
  EXPECT_EQ(svg.Marks(kVermilion).size(), 1u + 2 + 2);
}

TEST_F(PlotTest, MarksStandWhereTheNumbersSay) {
  Write("link.json",
        "{\"epoch\":1,\"loss\":3.0,\"valid_mrr\":null}\n{\"epoch\":2,\"loss\":1.0,\"valid_mrr\":0.1}\n"
        "{\"epoch\":4,\"loss\":2.5,\"valid_mrr\":0.4}\n{\"summary\":{\"loss\":2.5}}\n");
  const Svg svg = Draw("training link.json");
  EXPECT_THAT(svg.texts, AllOf(Contains("validation MRR (filtered)"), Not(Contains("validation accuracy"))));
  const std::vector<Point> marks = svg.Marks(kBlue);
  ASSERT_EQ(marks.size(), 1u + 3 + 2);  // an epoch that was not validated has no mark
  const double unit = (marks[2].y - marks[1].y) / 2;
  EXPECT_GT(unit, 10);  // pixels grow downwards
  EXPECT_NEAR(marks[2].y - marks[3].y, 1.5 * unit, 0.1);
  EXPECT_NEAR(marks[3].x - marks[2].x, 2 * (marks[2].x - marks[1].x), 0.1);
}

TEST_F(PlotTest, APngHasTwiceThePixels) {
  Write("run.json", "{\"epoch\":1,\"loss\":3.0}\n{\"epoch\":2,\"loss\":1.0}\n");
  const Svg svg = Draw("training run.json");
  std::smatch size;
  ASSERT_TRUE(std::regex_search(svg.text, size, std::regex("width=\"([0-9]+)\" height=\"([0-9]+)\"")));
  ASSERT_EQ(Run("plot training run.json -o run.png").exit_code, 0);
  const std::string png = testing_util::FileText(Path("run.png"));
  ASSERT_TRUE(png.starts_with("\x89PNG\r\n\x1A\n"));
  const auto number = [&](size_t at) {
    unsigned value = 0;
    for (size_t i = at; i < at + 4; ++i) value = value << 8 | static_cast<unsigned char>(png.at(i));
    return value;
  };
  EXPECT_EQ(number(16), 2 * std::stoul(size[1]));
  EXPECT_EQ(number(20), 2 * std::stoul(size[2]));
  EXPECT_GT(png.size(), 5000u) << "something is in it";
}

TEST_F(PlotTest, EveryPolicyHasACurveOfHitRatiosButTheOneWithoutRows) {
  ASSERT_EQ(Run("layout build db cached --cache 10% --fanout 5,5 --batch-size 100 --seed 3").exit_code, 0);
  Save("trace.json", "layout trace db cached --json --sizes 1%,2%,5%,10%,20%,50%");
  const Svg svg = Draw("cache trace.json");
  EXPECT_THAT(svg.texts, IsSupersetOf({"static-degree", "static-frequency", "fifo", "lru", "belady",
                                       "memory (% of the rows)"}));
  EXPECT_THAT(svg.texts, Not(Contains("none")));
  const std::vector<Point> belady = svg.Marks(kBlue), lru = svg.Marks(kVermilion);
  ASSERT_EQ(belady.size(), 1u + 6);
  for (size_t i = 1; i < belady.size(); ++i) EXPECT_LE(belady[i].y, lru[i].y) << "no policy misses less";
  // Where a mark stands is what the trace says.
  const json sizes = json::parse(testing_util::FileText(Path("trace.json")))["hit_ratios"];
  const auto ratio = [&](size_t i) { return sizes[i]["belady"].get<double>(); };
  const auto rows = [&](size_t i) { return sizes[i]["cache_rows"].get<double>(); };
  const double unit = (belady[1].y - belady[6].y) / (ratio(5) - ratio(0));
  const double width = (belady[6].x - belady[1].x) / (rows(5) - rows(0));
  for (size_t i = 1; i < 6; ++i) {
    EXPECT_NEAR(belady[1].y - belady[1 + i].y, unit * (ratio(i) - ratio(0)), 0.1) << i;
    EXPECT_NEAR(belady[1 + i].x - belady[1].x, width * (rows(i) - rows(0)), 0.1) << i;
  }
  EXPECT_THAT(Refused("cache db -o x.svg"), HasSubstr("db is a folder"));
}

TEST_F(PlotTest, BarsAreAsLongAsWhatIsPredictedAndMeasured) {
  ASSERT_EQ(Run("layout build db --fanout 5 --batch-size 100 --cache 10%").exit_code, 0);
  Save("explain.json", "layout explain db --json --epochs 7");
  Svg svg = Draw("explain explain.json");
  EXPECT_THAT(svg.texts, IsSupersetOf({"row reads, lru", "packed chunks, belady", "predicted",
                                       "packing, spread over 7 epochs"}));
  EXPECT_THAT(svg.texts, Not(Contains("measured")));
  const json explained = json::parse(testing_util::FileText(Path("explain.json")));
  std::vector<double> widths = svg.Widths(kBlue);
  ASSERT_EQ(widths.size(), 1 + explained["paths"].size());
  std::vector<double> seconds;
  double longest = 0;
  for (const json& path : explained["paths"]) {
    seconds.push_back(path["seconds_per_epoch"]);
    longest = std::max(longest, path["amortised_seconds_per_epoch"].get<double>());
  }
  // On the axis: logarithmic where the longest bar has twenty times the length of the shortest.
  const double shortest = *std::ranges::min_element(seconds);
  const auto length = [&](double value) {
    return longest > 20 * shortest ? std::log(value / (shortest / 3)) : value;
  };
  const double scale = widths[1] / length(seconds[0]);
  for (size_t i = 0; i < seconds.size(); ++i)
    EXPECT_NEAR(widths[1 + i], scale * length(seconds[i]), 0.2) << i;
  json measured = explained;
  measured["measured"] = {
      {"seconds_per_epoch", 2 * explained["predicted"]["seconds_per_epoch"].get<double>()},
      {"bytes_read", 1}};
  Write("measured.json", measured.dump(2));
  svg = Draw("explain measured.json");
  EXPECT_THAT(svg.texts, Contains("measured"));
  size_t own = 0;
  while (explained["paths"][own] != explained["predicted"]) own++;
  widths = svg.Widths(kVermilion);
  ASSERT_EQ(widths.size(), 2u);
  longest = std::max(longest, 2 * seconds[own]);
  EXPECT_NEAR(widths[1], length(2 * seconds[own]) / length(seconds[own]) * svg.Widths(kBlue)[1 + own], 0.2);
}

// A bar of a second beside one of a thousandth would leave it a sliver.
TEST_F(PlotTest, BarsOfVeryDifferentLengthsLieOnALogarithmicAxis) {
  json explained = {{"epochs", 1}, {"paths", json::array()}};
  const std::vector<double> seconds = {0.001, 0.01, 1};
  for (const double value : seconds) {
    explained["paths"].push_back({{"path", "row reads"},
                                  {"policy", "lru"},
                                  {"seconds_per_epoch", value},
                                  {"amortised_seconds_per_epoch", value}});
  }
  Write("far.json", explained.dump(2));
  const Svg svg = Draw("explain far.json");
  EXPECT_THAT(svg.texts, Contains("seconds an epoch, on a logarithmic scale"));
  const std::vector<double> widths = svg.Widths(kBlue);
  ASSERT_EQ(widths.size(), 1 + seconds.size());
  EXPECT_NEAR(widths[2] - widths[1], (widths[3] - widths[1]) / 3, 0.2);
  EXPECT_NEAR(widths[1] / (widths[2] - widths[1]), std::log10(3), 0.01)
      << "a third of the shortest before it";
}

// Events as --trace writes them: threads by name, and spans of a microsecond's multiples.
class TraceText {
 public:
  void Thread(int id, const std::string& name) {
    events_.push_back(
        {{"ph", "M"}, {"name", "thread_name"}, {"pid", 1}, {"tid", id}, {"args", {{"name", name}}}});
  }
  void Span(int thread, const std::string& name, double start, double end) {
    events_.push_back(
        {{"ph", "X"}, {"name", name}, {"pid", 1}, {"tid", thread}, {"ts", start}, {"dur", end - start}});
  }
  std::string text() const {
    return json{{"displayTimeUnit", "ms"}, {"otherData", {{"dropped_spans", 0}}}, {"traceEvents", events_}}
        .dump();
  }

 private:
  json events_ = json::array();
};

TEST_F(PlotTest, ATimelineHasALineForEachThreadAndAColourForEachStage) {
  TraceText trace;
  trace.Thread(1, "trainer");
  trace.Span(1, "compute", 500, 900);
  trace.Span(1, "compute", 100, 400);
  trace.Span(1, "epoch", 0, 1000);
  trace.Thread(2, "sampler");
  trace.Span(2, "sample", 0, 300);
  trace.Span(2, "wait", 300, 1000);
  trace.Thread(3, "idle");
  Write("small.trace", trace.text());
  const Svg svg = Draw("timeline small.trace");
  EXPECT_THAT(svg.texts, IsSupersetOf({"trainer", "sampler", "compute", "epoch", "sample", "wait"}));
  EXPECT_THAT(svg.texts, Not(Contains("idle")));
  const std::vector<double> epoch = svg.Widths(kBlue), compute = svg.Widths(kVermilion);
  ASSERT_EQ(epoch.size(), 2u);
  ASSERT_EQ(compute.size(), 3u);
  EXPECT_NEAR(compute[1], 0.3 * epoch[1], 1);
  EXPECT_NEAR(compute[2], 0.4 * epoch[1], 1);
  EXPECT_NEAR(svg.Widths(kGreen).at(1), 0.3 * epoch[1], 1);
  EXPECT_NEAR(svg.Widths(kPale).at(1), 0.7 * epoch[1], 1);
  EXPECT_LT(svg.text.rfind(kBlue), svg.text.rfind(kVermilion))
      << "what lies within another span is drawn on it";

  const Svg window = Draw("timeline small.trace --window 0.0004,0.0008");
  EXPECT_EQ(window.Widths(kBlue).size(), 2u);
  ASSERT_EQ(window.Widths(kVermilion).size(), 2u);
  EXPECT_NEAR(window.Widths(kVermilion)[1], 0.75 * window.Widths(kBlue)[1], 1);
  EXPECT_THAT(window.texts, Not(Contains("sample")));
  EXPECT_THAT(Refused("timeline small.trace --window 2,3 -o x.svg"), HasSubstr("--window"));
  EXPECT_THAT(Refused("timeline small.trace --window 3,2 -o x.svg", 2), HasSubstr("--window 3,2"));
}

TEST_F(PlotTest, ATimelineHasNoMoreBoxesThanCanBeSeen) {
  TraceText many;
  for (int i = 0; i < 20'000; ++i) many.Span(1, i % 2 == 0 ? "even" : "odd", i, i % 2 == 0 ? i + 1 : i + 0.5);
  for (int i = 0; i < 12; ++i) many.Span(2, "stage " + std::to_string(i), 1000 * i, 1000 * (i + 1));
  Write("many.trace", many.text());
  const Svg svg = Draw("timeline many.trace");
  const std::vector<double> even = svg.Widths(kBlue), odd = svg.Widths(kVermilion);
  EXPECT_LE(even.size() + odd.size(), 2400u + 2);
  // Spans that are shorter than a pixel are seen as often as they are long.
  const double evens = std::accumulate(even.begin() + 1, even.end(), 0.0);
  EXPECT_NEAR(std::accumulate(odd.begin() + 1, odd.end(), 0.0), evens / 2, 0.01 * evens);
  EXPECT_THAT(svg.texts, IsSupersetOf({"thread 1", "6 other stages"}));

  TraceText wide;
  for (int i = 0; i <= 100; ++i) wide.Span(i, "work", 10 * i, 10 * i + 5);
  Write("wide.trace", wide.text());
  EXPECT_THAT(Refused("timeline wide.trace -o x.svg"),
              AllOf(HasSubstr("101 threads"), HasSubstr("--window")));
  Draw("timeline wide.trace --window 0,0.0005");
}

TEST_F(PlotTest, ATraceOfALongCommandIsDrawn) {
  EXPECT_THAT(Draw("timeline import.trace").texts, IsSupersetOf({"quarry", "read edges", "import features"}));
}

// gnuplot runs what stands in backquotes, after an exclamation mark and in system().
TEST_F(PlotTest, NamesAreNeverCode) {
  TraceText trace;
  const std::string names[] = {"'; system('>pwned') #",
                               "''",
                               "`>pwned`",
                               "\"`>pwned`\"",
                               "\n!>pwned\n",
                               "\nEOD\nsystem('>pwned')\nEOD\n",
                               "\\",
                               "x\\' ; system('>pwned')",
                               "@name %s %n {/Bold _^}",
                               "<b>&amp;]]>&#0;",
                               "\xEF\xBF\xBF\x01\x1B[0m",
                               "\xE6\xBC\xA2\xE5\xAD\x97"};
  for (const std::string& name : names) {
    const int thread = static_cast<int>(&name - names);
    trace.Thread(thread, name);
    trace.Span(thread, name, 0, 1000 + 10 * thread);
  }
  Write("names.trace", trace.text());
  const Svg svg = Draw("timeline names.trace");
  EXPECT_THAT(svg.texts,
              IsSupersetOf({"\xE2\x80\x99; system(\xE2\x80\x99>pwned\xE2\x80\x99) #", "`>pwned`", "\\",
                            "@name %s %n {/Bold _^}", "<b>&amp;]] >&#0;", "\xE6\xBC\xA2\xE5\xAD\x97"}));
  ASSERT_EQ(Run("plot timeline names.trace -o names.png").exit_code, 0);

  std::string files;
  for (const std::string file :
       {"';system('>pwned');'.json", "`>pwned`.json", "$(>pwned).json", "%s@x{a_b^}.json", "\xFF<&>.json"}) {
    Write(file, "{\"epoch\":1,\"loss\":2}\n");
    files += " " + file;
  }
  EXPECT_THAT(Draw("training" + files).texts,
              IsSupersetOf({"`>pwned`.json", "$(>pwned).json", "%s@x{a_b^}.json", "\\xff<&>.json"}));
  const std::string layout = json{{"epochs", 3},
                                  {"paths",
                                   {{{"path", "';system('>pwned')#"},
                                     {"policy", "`>pwned`%d"},
                                     {"seconds_per_epoch", 1},
                                     {"amortised_seconds_per_epoch", 2}}}}}
                                 .dump();
  Write("names.json", layout);
  EXPECT_THAT(Draw("explain names.json").texts, Contains(HasSubstr("`>pwned`%d")));
  EXPECT_FALSE(fs::exists(Path("pwned")));
}

TEST_F(PlotTest, WhatIsNoInputIsSaidWithItsPlace) {
  const struct {
    const char *kind, *text, *told;
  } cases[] = {
      {"training", "{\"epoch\":1,\"loss\":2}\n{\"epoch\":2,\"loss\":nope}\n", "bad: line 2, column 20"},
      {"training", "{\"epoch\":1,\"loss\":2", "bad: line 1, column 20"},
      {"training", "{\"epoch\":1,\"loss\":2}\n\n[1]\n", "bad: line 3"},
      {"training", "{\"epoch\":\"one\",\"loss\":2}\n", "bad: line 1: \"epoch\""},
      {"training", "{\"loss\":2}\n", "bad: line 1: \"epoch\": key"},
      {"training", "{\"epoch\":1,\"loss\":1e999}\n", "bad: line 1"},
      {"training", "{\"epoch\":1,\"loss\":null}\n", "bad: no epoch with a loss"},
      {"training", "", "bad is empty"},
      {"cache", "{\"nodes\":10,\"hit_ratios\":[{\"cache_rows\":1}]}",
       "bad: line 1: hit_ratios[0]: \"belady\""},
      {"cache", "{\"nodes\":10,\"hit_ratios\":7}", "\"hit_ratios\": type must be array, but is number"},
      {"explain", "{\"epochs\":1,\"paths\":[{\"path\":\"x\"}]}", "bad: line 1: paths[0]: \"policy\""},
      {"explain", "{\"epochs\":1,\"paths\":[]}", "0 bars"},
      {"timeline", "{\"traceEvents\":[\n{\"ph\":\"X\"},\n]}", "bad: line 3, column 1"},
      {"timeline",
       "{\"traceEvents\":[{\"ph\":\"X\",\"name\":\"a\",\"pid\":1,\"tid\":1,\"ts\":0,\"dur\":-1}]}",
       "traceEvents[0]"},
      {"timeline", "{\"traceEvents\":[]}", "no \"traceEvents\""},
  };
  for (const auto& [kind, text, told] : cases) {
    Write("bad", text);
    EXPECT_THAT(Refused(std::string(kind) + " bad -o x.svg"), HasSubstr(told)) << text;
  }
  EXPECT_THAT(Refused("training nothing.json -o x.svg"), HasSubstr("nothing.json"));
  EXPECT_THAT(Refused("training db -o x.svg"), HasSubstr("db is a folder"));
  EXPECT_FALSE(fs::exists(Path("x.svg")));
  EXPECT_FALSE(fs::exists(Path("x.svg.plotting")));
}

TEST_F(PlotTest, APictureIsSvgOrPng) {
  Write("run.json", "{\"epoch\":1,\"loss\":3.0}\n");
  EXPECT_THAT(Refused("training run.json -o run.pdf", 2), AllOf(HasSubstr("run.pdf"), HasSubstr(".svg")));
  EXPECT_EQ(Run("plot training run.json").exit_code, 2);
  EXPECT_THAT(Refused("training run.json -o nowhere/run.svg"), HasSubstr("nowhere/run.svg"));
}

TEST_F(PlotTest, WithoutGnuplotItSaysHowToGetIt) {
  Write("run.json", "{\"epoch\":1,\"loss\":3.0}\n");
  EXPECT_THAT(Refused("training run.json -o x.svg", 1, {"PATH="}), HasSubstr("apt-get install gnuplot-nox"));
  EXPECT_THAT(Refused("cache nothing -o x.svg", 1, {"PATH="}), HasSubstr("gnuplot-nox")) << "before it reads";
}

TEST_F(PlotTest, WhenGnuplotFailsTheOldPictureStays) {
  Write("run.json", "{\"epoch\":1,\"loss\":3.0}\n");
  Write("kept.svg", "the old one");
  fs::create_directories(Path("fake"));
  const std::pair<const char*, const char*> fakes[] = {
      {"echo >&2; echo 'gnuplot> plot' >&2; echo '   line 3: cannot do this' >&2; echo no >&2; exit 1",
       "line 3: cannot do this"},
      {"echo out of memory >&2; exit 2", "out of memory"},
      {"kill -9 $$", "gnuplot"},
      {"echo '<svg>'", "incomplete"},
  };
  for (const auto& [script, told] : fakes) {
    Write("fake/gnuplot", std::string("#!/bin/sh\n") + script + "\n");
    fs::permissions(Path("fake/gnuplot"), fs::perms::owner_all);
    EXPECT_THAT(Refused("training run.json -o kept.svg", 1, {"PATH=" + Path("fake").string()}),
                HasSubstr(told));
    EXPECT_EQ(testing_util::FileText(Path("kept.svg")), "the old one");
    EXPECT_FALSE(fs::exists(Path("kept.svg.plotting")));
  }
  ASSERT_EQ(Run("plot training run.json -o kept.svg").exit_code, 0);
  EXPECT_THAT(Svg(Path("kept.svg")).texts, Contains("run.json"));
}

}  // namespace
}  // namespace quarry
