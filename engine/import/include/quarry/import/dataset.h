// Import readers: they read foreign files as streams of edges, rows and integers. The formats, and how a
// folder is recognised, are listed in docs/cli.md under `quarry import`.
//
// A reader holds a bounded buffer (under 8 MiB, whatever the file's size) and delivers in file order. Headers
// are checked at open, values while reading. Every error is kInvalidArgument (kIoError when the system
// refused) and names the file, the line, row or edge, and the value. Readers are not thread-safe: each is
// used by one thread, and no longer after an error.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/element_type.h"
#include "quarry/format/types.h"

namespace quarry {

// Reads edges in file order. Ids are checked to be integers that are not negative, and no further.
class EdgeReader {
 public:
  virtual ~EdgeReader() = default;
  // Fills a prefix of `out`, returns its length; 0 at the end.
  virtual Result<size_t> Read(std::span<Edge> out) = 0;
  // The number of edges, when the format states it (.npy, .npz); otherwise nothing.
  virtual std::optional<uint64_t> count() const = 0;
  // Bytes read and bytes in all of the file behind it, for progress.
  virtual uint64_t bytes_read() const = 0;
  virtual uint64_t bytes_total() const = 0;
  // "edges.npy: edge 17" or "edges.csv: line 18": where the edge with this number (from 0) stands.
  // REQUIRES: the last Read delivered it.
  virtual std::string Position(uint64_t edge) const = 0;
  // Whether edges have weights. weights() has those of the edges that the last Read delivered, all finite; it
  // is empty without weights.
  virtual bool weighted() const { return false; }
  virtual std::span<const float> weights() const { return {}; }
};

// Dense rows in file order, encoded as `element_type()` (CSR sources are made dense; float64 becomes
// float32).
class RowReader {
 public:
  virtual ~RowReader() = default;
  virtual ElementType element_type() const = 0;
  virtual uint64_t dim() const = 0;
  virtual uint64_t row_count() const = 0;
  // Fills `out` with rows of RowBytes(element_type(), dim()) each, returns how many rows; 0 at the end.
  // REQUIRES: out.size() is a multiple of the row's bytes, at least one row.
  virtual Result<size_t> Read(std::span<std::byte> out) = 0;
  // "features.npy: row 17", for messages about values.
  virtual std::string Position(uint64_t row) const = 0;
};

// Integers in file order: labels, node ids of a split.
class IntReader {
 public:
  virtual ~IntReader() = default;
  virtual Result<size_t> Read(std::span<int64_t> out) = 0;  // 0 at the end
  virtual std::optional<uint64_t> count() const = 0;
  // "labels.npy: row 17" or "labels.csv: line 18", of the value with this number (from 0).
  // REQUIRES: the last Read delivered it.
  virtual std::string Position(uint64_t index) const = 0;
};

// Triples in file order, all ids in range. Names are mapped to dense ids over all files.
class TripleReader {
 public:
  virtual ~TripleReader() = default;
  virtual Result<size_t> Read(std::span<Triple> out) = 0;  // 0 at the end
  virtual std::optional<uint64_t> count() const = 0;
  virtual bool weighted() const { return false; }  // these two as an EdgeReader's
  virtual std::span<const float> weights() const { return {}; }
};

// One relation's edge list.
struct EdgeInput {
  std::string name;  // relation name, "" for the only one
  std::string path;  // for messages
  std::unique_ptr<EdgeReader> reader;
  uint32_t source = 0;  // of a typed graph: the types of the edges' ends, whose ids begin at 0 in each
  uint32_t destination = 0;
};

// The nodes of one type, and what is known of them; ids and rows count from 0 in each type.
struct NodeTypeInput {
  std::string name;
  uint64_t count = 0;
  std::unique_ptr<RowReader> features;
  std::unique_ptr<RowReader> targets;
  std::unique_ptr<IntReader> labels;
  std::unique_ptr<IntReader> train, valid, test;
};

// A source, opened and validated as far as its headers go. Owns its readers. Counts that headers state agree
// with each other: node_count is features->row_count(), targets->row_count(), labels->count() and the hint, wherever these
// are known.
struct Dataset {
  std::string source;
  std::optional<uint64_t> node_count;  // stated by the source (metadata, row counts); else 1 + the largest id
  std::optional<uint64_t> class_count;  // stated by the metadata; else 1 + the largest label
  std::unique_ptr<RowReader> features;
  std::unique_ptr<RowReader> targets;  // what a model may learn to give of each node; NaN = none
  // Nodes are places at so many times (quarry/storage/times.h): edges are between places, and these have a row for each
  // place and for each time, or are null. 1: there are no times.
  uint64_t times = 1;
  std::unique_ptr<RowReader> place_features, time_features;
  std::vector<EdgeInput> edges;
  // A typed graph's, which has neither features, labels and splits below nor triples; else empty.
  std::vector<NodeTypeInput> node_types;
  std::unique_ptr<IntReader> labels;              // -1 = none; NaN in the source becomes -1
  std::unique_ptr<IntReader> train, valid, test;  // node ids
  // Sets for link prediction only, instead of `edges`; the three parts in order, with the names that their
  // ids stand for. Without relation names every relation is 0; without entity names nodes are numbers.
  std::unique_ptr<TripleReader> train_triples, valid_triples, test_triples;
  std::vector<std::string> entity_names;    // index = node id
  std::vector<std::string> relation_names;  // index = relation id
};

// Facts about a source that a user may state where the source does not. Zero or empty = not stated.
struct SourceHints {
  uint64_t node_count = 0;      // --nodes
  uint64_t times = 0;           // --times
  uint64_t feature_dim = 0;     // --dim: columns of CSR features, and of features without a header
  bool u2_is_bfloat16 = false;  // --bf16: two-byte unsigned .npy features are bfloat16
  bool types = false;           // --types: all types of nodes, of a source that is else taken for its papers
  std::string raw_type;  // --dtype: of features without a header; node_count and feature_dim are their shape
  // Explicit files; each overrides what the folder holds under its usual name.
  std::string edges, features, targets, labels, train, valid, test;
};

// Opens a folder (.npy set with or without metadata.yaml, a folder for each type of nodes and edges, OGB, MAG240M, IGB,
// Marius, GraphBolt, triples), or a single file: an edge list (.npy, .csv, .tsv, .txt, each text also .gz), or an .npz,
// .safetensors or .pt with edges (and more) or a sparse adjacency. kNotFound and kInvalidArgument say what was looked for.
Result<Dataset> OpenDataset(const std::string& path, const SourceHints& hints);

// Opens the files that the hints name, and nothing else: features, labels and lists of ids without a graph.
// The counts of features and labels agree.
Result<Dataset> OpenArrays(const SourceHints& hints);

}  // namespace quarry
