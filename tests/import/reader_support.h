// Reads a reader to its end in spans of changing size.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "quarry/base/random.h"
#include "quarry/import/dataset.h"

namespace quarry {

using EdgeList = std::vector<std::pair<int64_t, int64_t>>;

inline Result<EdgeList> ReadAll(EdgeReader& reader, uint64_t seed = 1) {
  Rng random(seed);
  EdgeList edges;
  std::vector<Edge> batch(5000);
  while (true) {
    QUARRY_TRY(const size_t n, reader.Read(std::span(batch).first(1 + random.Below(batch.size()))));
    if (n == 0) return edges;
    for (size_t i = 0; i < n; i++) {
      edges.emplace_back(static_cast<int64_t>(batch[i].source), static_cast<int64_t>(batch[i].destination));
    }
  }
}

inline Result<std::vector<int64_t>> ReadAll(IntReader& reader, uint64_t seed = 1) {
  Rng random(seed);
  std::vector<int64_t> values;
  std::vector<int64_t> batch(3000);
  while (true) {
    QUARRY_TRY(const size_t n, reader.Read(std::span(batch).first(1 + random.Below(batch.size()))));
    if (n == 0) return values;
    values.insert(values.end(), batch.begin(), batch.begin() + static_cast<ptrdiff_t>(n));
  }
}

// All rows, encoded, one after another.
inline Result<std::string> ReadAll(RowReader& reader, uint64_t seed = 1) {
  Rng random(seed);
  const uint64_t row_bytes = RowBytes(reader.element_type(), reader.dim());
  std::string rows;
  while (true) {
    std::vector<std::byte> batch((1 + random.Below(7)) * row_bytes);
    QUARRY_TRY(const size_t n, reader.Read(batch));
    if (n == 0) return rows;
    rows.append(reinterpret_cast<const char*>(batch.data()), n * row_bytes);
  }
}

inline Result<std::vector<float>> ReadFloats(RowReader& reader) {
  QUARRY_TRY(const std::string rows, ReadAll(reader));
  std::vector<float> values(rows.size() / sizeof(float));
  if (!rows.empty()) std::memcpy(values.data(), rows.data(), rows.size());
  return values;
}

// The whole source: opens it and reads every reader, so that errors of values count too.
inline Status ReadEverything(const std::string& path, const SourceHints& hints) {
  QUARRY_TRY(Dataset dataset, OpenDataset(path, hints));
  for (const EdgeInput& input : dataset.edges) QUARRY_RETURN_IF_ERROR(ReadAll(*input.reader).status());
  if (dataset.features != nullptr) QUARRY_RETURN_IF_ERROR(ReadAll(*dataset.features).status());
  for (IntReader* ints :
       {dataset.labels.get(), dataset.train.get(), dataset.valid.get(), dataset.test.get()}) {
    if (ints != nullptr) QUARRY_RETURN_IF_ERROR(ReadAll(*ints).status());
  }
  for (TripleReader* triples :
       {dataset.train_triples.get(), dataset.valid_triples.get(), dataset.test_triples.get()}) {
    std::vector<Triple> batch(100);
    for (size_t n = 1; triples != nullptr && n > 0;) {
      QUARRY_TRY(n, triples->Read(batch));
    }
  }
  return Status::Ok();
}

}  // namespace quarry
