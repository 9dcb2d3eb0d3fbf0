#include "link_reader.h"

#include <algorithm>

namespace quarry {
namespace {

// `position` is called for the message alone.
template <typename Position>
Status CheckIds(const Edge& edge, int64_t relation, const LinkBounds& bounds, Position position) {
  if (edge.source >= bounds.node_count || edge.destination >= bounds.node_count) {
    const uint64_t id = edge.source >= bounds.node_count ? edge.source : edge.destination;
    return MakeStatus(Code::kInvalidArgument, "{}: node id {} is out of range; there are {} nodes, 0 to {}",
                      position(), static_cast<int64_t>(id), bounds.node_count, bounds.node_count - 1);
  }
  if (relation >= 0 && static_cast<uint64_t>(relation) < bounds.relation_count) return Status::Ok();
  return MakeStatus(Code::kInvalidArgument, "{}: relation {} is out of range, 0 to {}", position(), relation,
                    bounds.relation_count - 1);
}

Triple ToTriple(const Edge& edge, int64_t relation) {
  return {.head = static_cast<NodeId>(edge.source),
          .relation = static_cast<uint32_t>(relation),
          .tail = static_cast<NodeId>(edge.destination)};
}

class ArrayTriples final : public TripleReader {
 public:
  ArrayTriples(const NpyArray& triples, std::unique_ptr<IntCursor> ids, const LinkBounds& bounds)
      : name_(triples.name),
        cursor_(std::move(ids)),
        count_(triples.extent(0)),
        bounds_(bounds),
        ids_(3 * std::min<uint64_t>(kStepItems, count_)) {}

  Result<size_t> Read(std::span<Triple> out) override {
    QUARRY_TRY(const size_t id_count,
               cursor_->Read(std::span(ids_).first(std::min(3 * out.size(), ids_.size()))));
    const size_t n = id_count / 3;
    for (size_t i = 0; i < n; i++) {
      const int64_t* const ids = ids_.data() + 3 * i;
      const Edge edge{static_cast<uint64_t>(ids[0]), static_cast<uint64_t>(ids[2])};
      QUARRY_RETURN_IF_ERROR(
          CheckIds(edge, ids[1], bounds_, [&] { return fmt::format("{}: edge {}", name_, next_ + i); }));
      out[i] = ToTriple(edge, ids[1]);
    }
    next_ += n;
    return n;
  }
  std::optional<uint64_t> count() const override { return count_; }

 private:
  const std::string name_;
  const std::unique_ptr<IntCursor> cursor_;
  const uint64_t count_;
  const LinkBounds bounds_;
  std::vector<int64_t> ids_;
  uint64_t next_ = 0;
};

class EdgesWithRelations final : public TripleReader {
 public:
  EdgesWithRelations(std::unique_ptr<EdgeReader> edges, std::unique_ptr<IntReader> relations,
                     const LinkBounds& bounds)
      : edge_reader_(std::move(edges)), relation_reader_(std::move(relations)), bounds_(bounds) {
    edges_.resize(kStepItems);
    relations_.resize(kStepItems);
  }

  Result<size_t> Read(std::span<Triple> out) override {
    QUARRY_TRY(const size_t n,
               edge_reader_->Read(std::span(edges_).first(std::min(out.size(), edges_.size()))));
    QUARRY_RETURN_IF_ERROR(ReadRelations(n));
    for (size_t i = 0; i < n; i++) {
      QUARRY_RETURN_IF_ERROR(
          CheckIds(edges_[i], relations_[i], bounds_, [&] { return edge_reader_->Position(next_ + i); }));
      out[i] = ToTriple(edges_[i], relations_[i]);
    }
    next_ += n;
    return n;
  }
  std::optional<uint64_t> count() const override { return edge_reader_->count(); }
  bool weighted() const override { return edge_reader_->weighted(); }
  std::span<const float> weights() const override { return edge_reader_->weights(); }

 private:
  // Reads the relations of the next n edges; behind the last edge, n = 0, there must be none.
  Status ReadRelations(size_t n) {
    if (relation_reader_ == nullptr) return Status::Ok();
    const std::span<int64_t> wanted = std::span(relations_).first(std::max<size_t>(1, n));
    size_t got = 0;
    while (got < wanted.size()) {
      QUARRY_TRY(const size_t step, relation_reader_->Read(wanted.subspan(got)));
      if (step == 0) break;
      got += step;
    }
    if (got == n) return Status::Ok();
    if (got < n) {
      return MakeStatus(Code::kInvalidArgument, "{}: has no relation; there are {} of them",
                        edge_reader_->Position(next_ + got), next_ + got);
    }
    return MakeStatus(Code::kInvalidArgument, "{}: a relation beyond the {} edges",
                      relation_reader_->Position(next_), next_);
  }

  const std::unique_ptr<EdgeReader> edge_reader_;
  const std::unique_ptr<IntReader> relation_reader_;
  const LinkBounds bounds_;
  std::vector<Edge> edges_;
  std::vector<int64_t> relations_;  // zeros where nothing is read
  uint64_t next_ = 0;
};

}  // namespace

Result<std::unique_ptr<TripleReader>> MakeTripleReader(const NpyArray& triples, const LinkBounds& bounds) {
  if (triples.dims() != 2 || triples.extent(1) != 3) {
    return MakeStatus(Code::kInvalidArgument, "{}: has shape {}; expected [E, 3] (head, relation, tail)",
                      triples.name, triples.ShapeText());
  }
  QUARRY_TRY(auto ids, IntCursor::Open(triples, 0, triples.header.items, IntRole::kId));
  return std::unique_ptr<TripleReader>(std::make_unique<ArrayTriples>(triples, std::move(ids), bounds));
}

std::unique_ptr<TripleReader> MakeTripleReader(std::unique_ptr<EdgeReader> edges,
                                               std::unique_ptr<IntReader> relations,
                                               const LinkBounds& bounds) {
  return std::make_unique<EdgesWithRelations>(std::move(edges), std::move(relations), bounds);
}

}  // namespace quarry
