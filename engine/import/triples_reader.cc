#include "triples_reader.h"

#include <algorithm>
#include <unordered_map>

#include "text_lines.h"

namespace quarry {
namespace {

struct NamedTriple {
  std::string_view head, relation, tail;
  float weight = 0;
};

bool HasWeight(std::string_view line) { return std::ranges::count(line, '\t') == 3; }

// REQUIRES: lines.Next returned `line`.
Status SplitTriple(const LineReader& lines, std::string_view line, bool weighted, NamedTriple* triple) {
  if (std::ranges::count(line, '\t') != (weighted ? 3 : 2)) {
    return MakeStatus(Code::kInvalidArgument, "{}: '{}' is not head TAB relation TAB tail{}",
                      lines.Position(), Excerpt(line), weighted ? " TAB weight" : "");
  }
  const auto take = [&line] {
    const size_t end = std::min(line.find('\t'), line.size());
    const std::string_view field = line.substr(0, end);
    line.remove_prefix(std::min(end + 1, line.size()));
    return field;
  };
  const std::string_view whole = line;
  triple->head = take();
  triple->relation = take();
  triple->tail = take();
  if (triple->head.empty() || triple->relation.empty() || triple->tail.empty()) {
    return MakeStatus(Code::kInvalidArgument, "{}: '{}' has an empty name", lines.Position(), Excerpt(whole));
  }
  if (!weighted || ParseWeight(Trim(line), &triple->weight)) return Status::Ok();
  return NotAWeight(lines, line);
}

// Names and their dense ids, in order of first appearance.
class NameTable {
 public:
  // The name's id; new names get the next one. False when there are kNodeCountMax already.
  bool Add(std::string_view name) {
    if (ids_.find(name) != ids_.end()) return true;
    if (names_.size() >= kNodeCountMax) return false;
    ids_.emplace(name, static_cast<uint32_t>(names_.size()));
    names_.emplace_back(name);
    return true;
  }
  // REQUIRES: the name was added.
  uint32_t IdOf(std::string_view name) const { return ids_.find(name)->second; }
  bool Has(std::string_view name) const { return ids_.find(name) != ids_.end(); }
  std::vector<std::string> TakeNames() { return std::move(names_); }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  std::unordered_map<std::string, uint32_t, Hash, std::equal_to<>> ids_;
  std::vector<std::string> names_;
};

struct Names {
  NameTable entities;
  NameTable relations;
};

class TripleFile final : public TripleReader {
 public:
  TripleFile(std::unique_ptr<LineReader> lines, std::shared_ptr<const Names> names, uint64_t count,
             bool weighted)
      : lines_(std::move(lines)), names_(std::move(names)), count_(count), weighted_(weighted) {}

  Result<size_t> Read(std::span<Triple> out) override {
    weights_.clear();
    size_t filled = 0;
    std::string_view line;
    NamedTriple named;
    while (filled < out.size() && lines_->Next(&line)) {
      if (line.empty()) continue;
      QUARRY_RETURN_IF_ERROR(SplitTriple(*lines_, line, weighted_, &named));
      if (!names_->entities.Has(named.head) || !names_->relations.Has(named.relation) ||
          !names_->entities.Has(named.tail)) {
        return MakeStatus(Code::kInvalidArgument, "{}: the file changed while it was read",
                          lines_->Position());
      }
      out[filled++] = {.head = names_->entities.IdOf(named.head),
                       .relation = names_->relations.IdOf(named.relation),
                       .tail = names_->entities.IdOf(named.tail)};
      if (weighted_) weights_.push_back(named.weight);
    }
    QUARRY_RETURN_IF_ERROR(lines_->status());
    return filled;
  }
  std::optional<uint64_t> count() const override { return count_; }
  bool weighted() const override { return weighted_; }
  std::span<const float> weights() const override { return weights_; }

 private:
  const std::unique_ptr<LineReader> lines_;
  const std::shared_ptr<const Names> names_;
  const uint64_t count_;
  const bool weighted_;
  std::vector<float> weights_;
};

// What a pass over a file tells.
struct TripleFacts {
  uint64_t count = 0;
  bool weighted = false;  // as its first triple has a weight, or not
};

Result<TripleFacts> CollectNames(const std::string& path, Names& names) {
  QUARRY_TRY(const auto lines, LineReader::Open(path));
  std::string_view line;
  NamedTriple triple;
  TripleFacts facts;
  while (lines->Next(&line)) {
    if (line.empty()) continue;
    if (facts.count == 0) facts.weighted = HasWeight(line);
    QUARRY_RETURN_IF_ERROR(SplitTriple(*lines, line, facts.weighted, &triple));
    if (!names.entities.Add(triple.head) || !names.entities.Add(triple.tail) ||
        !names.relations.Add(triple.relation)) {
      return MakeStatus(Code::kUnsupported, "{}: more than {} entities", lines->Position(), kNodeCountMax);
    }
    facts.count++;
  }
  QUARRY_RETURN_IF_ERROR(lines->status());
  return facts;
}

// Ids that were given before, a line "id TAB name" each, from 0 on. Nothing when there is no such file.
Status ReadDictionary(const std::string& path, NameTable& names) {
  if (!IsThere(path)) return Status::Ok();
  QUARRY_TRY(const auto lines, LineReader::Open(path));
  std::string_view line;
  for (int64_t expected = 0; lines->Next(&line); ++expected) {
    const size_t tab = line.find('\t');
    const std::string_view name = tab == std::string_view::npos ? "" : line.substr(tab + 1);
    int64_t id = -1;
    if (name.empty() || !ParseInteger(line.substr(0, tab), &id) || id != expected) {
      return MakeStatus(Code::kInvalidArgument, "{}: '{}' is not {} TAB name", lines->Position(),
                        Excerpt(line), expected);
    }
    if (names.Has(name)) {
      return MakeStatus(Code::kInvalidArgument, "{}: '{}' has the id {} already", lines->Position(),
                        Excerpt(name), names.IdOf(name));
    }
    if (!names.Add(name)) {
      return MakeStatus(Code::kUnsupported, "{}: more than {} entities", lines->Position(), kNodeCountMax);
    }
  }
  return lines->status();
}

}  // namespace

Result<bool> LooksLikeTriples(const std::string& path) {
  QUARRY_TRY(const auto lines, LineReader::Open(path));
  std::string_view line;
  NamedTriple triple;
  return lines->Next(&line) && SplitTriple(*lines, line, HasWeight(line), &triple).ok();
}

Status OpenTriples(const std::string& folder, Dataset& dataset) {
  const auto names = std::make_shared<Names>();
  QUARRY_RETURN_IF_ERROR(ReadDictionary(folder + "/entities.dict", names->entities));
  QUARRY_RETURN_IF_ERROR(ReadDictionary(folder + "/relations.dict", names->relations));
  struct Part {
    const char* file;
    std::unique_ptr<TripleReader>* reader;
    TripleFacts facts = {};
    bool present = false;
  };
  Part parts[] = {{"train.txt", &dataset.train_triples},
                  {"valid.txt", &dataset.valid_triples},
                  {"test.txt", &dataset.test_triples}};
  for (Part& part : parts) {
    const std::string path = folder + "/" + part.file;
    part.present = IsThere(path);
    if (!part.present) continue;
    QUARRY_TRY(part.facts, CollectNames(path, *names));
  }
  for (Part& part : parts) {
    if (!part.present) continue;
    QUARRY_TRY(auto lines, LineReader::Open(folder + "/" + part.file));
    *part.reader =
        std::make_unique<TripleFile>(std::move(lines), names, part.facts.count, part.facts.weighted);
  }
  dataset.entity_names = names->entities.TakeNames();
  dataset.relation_names = names->relations.TakeNames();
  dataset.node_count = dataset.entity_names.size();
  return Status::Ok();
}

}  // namespace quarry
