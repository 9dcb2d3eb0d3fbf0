#include "quarry/import/graphbolt.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "text_lines.h"

namespace quarry {
namespace {

// Only what is there: a field that is null counts as absent for DGL, too.
void EmitText(YAML::Emitter& out, const char* key, const std::string& value) {
  if (value.empty()) return;
  out << YAML::Key << key << YAML::Value << YAML::DoubleQuoted << value;
}

void EmitArray(YAML::Emitter& out, const GraphBolt::Array& array) {
  out << YAML::BeginMap;
  EmitText(out, "domain", array.domain);
  EmitText(out, "type", array.type);
  EmitText(out, "name", array.name);
  EmitText(out, "format", array.format);
  if (!array.domain.empty()) out << YAML::Key << "in_memory" << YAML::Value << false;
  EmitText(out, "path", array.path);
  out << YAML::EndMap;
}

void EmitArrays(YAML::Emitter& out, const char* key, const std::vector<GraphBolt::Array>& arrays) {
  out << YAML::Key << key << YAML::Value << YAML::BeginSeq;
  for (const GraphBolt::Array& array : arrays) EmitArray(out, array);
  out << YAML::EndSeq;
}

void EmitSets(YAML::Emitter& out, const char* key, const std::vector<GraphBolt::Set>& sets) {
  if (sets.empty()) return;
  out << YAML::Key << key << YAML::Value << YAML::BeginSeq;
  for (const GraphBolt::Set& set : sets) {
    out << YAML::BeginMap;
    EmitText(out, "type", set.type);
    EmitArrays(out, "data", set.arrays);
    out << YAML::EndMap;
  }
  out << YAML::EndSeq;
}

// Reads fields, each fault with its place.
class Decoder {
 public:
  explicit Decoder(const std::string& path) : path_(path) {}

  Status Decode(const YAML::Node& root, GraphBolt& graph) const {
    QUARRY_TRY(graph.name, Text(root, "dataset_name", false));
    const YAML::Node topology = root["graph"];
    if (!topology.IsDefined() || !topology.IsMap()) {
      return MakeStatus(
          Code::kInvalidArgument,
          "{}: has no map 'graph'; of a folder that DGL has preprocessed, import the one that it "
          "was made of",
          path_);
    }
    const auto add_nodes = [&](const YAML::Node& node) -> Status {
      GraphBolt::Nodes nodes;
      QUARRY_TRY(nodes.type, Text(node, "type", false));
      QUARRY_TRY(const std::optional<uint64_t> count, Count(node, "num"));
      if (!count.has_value()) return Missing(node, "num");
      nodes.count = *count;
      graph.nodes.push_back(nodes);
      return Status::Ok();
    };
    QUARRY_RETURN_IF_ERROR(ForEach(topology, "nodes", add_nodes));
    QUARRY_TRY(graph.edges, Arrays(topology, "edges"));
    QUARRY_TRY(graph.graph_features, Arrays(topology, "feature_data"));
    QUARRY_TRY(graph.features, Arrays(root, "feature_data"));
    return ForEach(root, "tasks", [&](const YAML::Node& node) -> Status {
      GraphBolt::Task task;
      QUARRY_TRY(task.name, Text(node, "name", false));
      QUARRY_TRY(task.class_count, Count(node, "num_classes"));
      QUARRY_TRY(task.train, Sets(node, "train_set"));
      QUARRY_TRY(task.valid, Sets(node, "validation_set"));
      QUARRY_TRY(task.test, Sets(node, "test_set"));
      graph.tasks.push_back(std::move(task));
      return Status::Ok();
    });
  }

 private:
  template <typename... Args>
  Status Fault(const YAML::Node& node, fmt::format_string<Args...> format, Args&&... args) const {
    return MakeStatus(Code::kInvalidArgument, "{}: line {}: {}", path_, node.Mark().line + 1,
                      fmt::format(format, std::forward<Args>(args)...));
  }
  Status Missing(const YAML::Node& node, const char* key) const {
    return Fault(node, "'{}' is missing", key);
  }

  static bool Absent(const YAML::Node& node) { return !node.IsDefined() || node.IsNull(); }

  Result<std::string> Text(const YAML::Node& map, const char* key, bool required) const {
    const YAML::Node node = map[key];
    if (Absent(node)) return required ? Result<std::string>(Missing(map, key)) : std::string();
    if (!node.IsScalar()) return Fault(node, "'{}' is not a text", key);
    // What is no line of text names no file, and would break messages.
    if (std::ranges::any_of(node.Scalar(), [](unsigned char c) { return c < 0x20; })) {
      return Fault(node, "{} is '{}', which has control characters", key, Excerpt(node.Scalar()));
    }
    return node.Scalar();
  }

  Result<std::optional<uint64_t>> Count(const YAML::Node& map, const char* key) const {
    const YAML::Node node = map[key];
    if (Absent(node)) return std::optional<uint64_t>();
    const std::string text = node.IsScalar() ? node.Scalar() : "";
    uint64_t count = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, count);
    if (error == std::errc() && rest == end) return std::optional(count);
    return Fault(node, "{} is '{}', not a count", key, Excerpt(text));
  }

  // Relative, and without a step out of the folder.
  Result<std::string> Path(const YAML::Node& map) const {
    QUARRY_TRY(std::string path, Text(map, "path", true));
    const std::filesystem::path steps(path);
    bool leaves = path.empty() || steps.is_absolute();
    for (const auto& step : steps) leaves = leaves || step == "..";
    if (leaves) return Fault(map["path"], "the path '{}' leads out of the folder; move the file there", path);
    return path;
  }

  Result<std::vector<GraphBolt::Array>> Arrays(const YAML::Node& map, const char* key) const {
    std::vector<GraphBolt::Array> arrays;
    QUARRY_RETURN_IF_ERROR(ForEach(map, key, [&](const YAML::Node& node) -> Status {
      GraphBolt::Array array;
      QUARRY_TRY(array.domain, Text(node, "domain", false));
      QUARRY_TRY(array.type, Text(node, "type", false));
      QUARRY_TRY(array.name, Text(node, "name", false));
      QUARRY_TRY(array.format, Text(node, "format", true));
      QUARRY_TRY(array.path, Path(node));
      arrays.push_back(std::move(array));
      return Status::Ok();
    }));
    return arrays;
  }

  Result<std::vector<GraphBolt::Set>> Sets(const YAML::Node& map, const char* key) const {
    std::vector<GraphBolt::Set> sets;
    QUARRY_RETURN_IF_ERROR(ForEach(map, key, [&](const YAML::Node& node) -> Status {
      GraphBolt::Set set;
      QUARRY_TRY(set.type, Text(node, "type", false));
      QUARRY_TRY(set.arrays, Arrays(node, "data"));
      sets.push_back(std::move(set));
      return Status::Ok();
    }));
    return sets;
  }

  // The maps of a list that may be absent.
  template <typename Visit>
  Status ForEach(const YAML::Node& map, const char* key, const Visit& visit) const {
    const YAML::Node list = map[key];
    if (Absent(list)) return Status::Ok();
    if (!list.IsSequence()) return Fault(list, "'{}' is not a list", key);
    for (const YAML::Node& node : list) {
      if (!node.IsMap()) return Fault(node, "an entry of '{}' is not a map", key);
      QUARRY_RETURN_IF_ERROR(visit(node));
    }
    return Status::Ok();
  }

  const std::string& path_;
};

}  // namespace

std::string EncodeGraphBolt(const GraphBolt& graph) {
  YAML::Emitter out;
  out << YAML::BeginMap;
  EmitText(out, "dataset_name", graph.name);
  out << YAML::Key << "graph" << YAML::Value << YAML::BeginMap;
  out << YAML::Key << "nodes" << YAML::Value << YAML::BeginSeq;
  for (const GraphBolt::Nodes& nodes : graph.nodes) {
    out << YAML::BeginMap;
    EmitText(out, "type", nodes.type);
    out << YAML::Key << "num" << YAML::Value << nodes.count << YAML::EndMap;
  }
  out << YAML::EndSeq;
  EmitArrays(out, "edges", graph.edges);
  if (!graph.graph_features.empty()) EmitArrays(out, "feature_data", graph.graph_features);
  out << YAML::EndMap;
  EmitArrays(out, "feature_data", graph.features);
  out << YAML::Key << "tasks" << YAML::Value << YAML::BeginSeq;
  for (const GraphBolt::Task& task : graph.tasks) {
    out << YAML::BeginMap;
    EmitText(out, "name", task.name);
    if (task.class_count.has_value()) out << YAML::Key << "num_classes" << YAML::Value << *task.class_count;
    EmitSets(out, "train_set", task.train);
    EmitSets(out, "validation_set", task.valid);
    EmitSets(out, "test_set", task.test);
    out << YAML::EndMap;
  }
  out << YAML::EndSeq << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

Result<GraphBolt> DecodeGraphBolt(const std::string& text, const std::string& path) {
  GraphBolt graph;
  try {
    const YAML::Node root = YAML::Load(text);
    if (!root.IsMap()) return MakeStatus(Code::kInvalidArgument, "{}: holds no YAML map", path);
    QUARRY_RETURN_IF_ERROR(Decoder(path).Decode(root, graph));
  } catch (const YAML::Exception& error) {  // the library reports by throwing; it ends at this door
    return MakeStatus(Code::kInvalidArgument, "{}: line {}: {}", path, error.mark.line + 1,
                      Excerpt(error.msg));
  }
  return graph;
}

bool LooksLikeGraphBolt(const std::string& text) {
  try {
    const YAML::Node root = YAML::Load(text);
    return root.IsMap() && (root["graph"].IsDefined() || root["graph_topology"].IsDefined());
  } catch (const YAML::Exception&) {
    return false;
  }
}

}  // namespace quarry
