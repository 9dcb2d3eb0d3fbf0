// Rows of an embedding table that a store has read. Private to the client libraries.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "quarry/client/store.h"

namespace quarry::client {

class OwnedEmbeddingRows final : public EmbeddingRows {
 public:
  using Source = std::array<std::byte, 16>;

  // `block`: of the shape's bytes.
  OwnedEmbeddingRows(const wire::RowBlockShape& shape, const Source& source, std::span<const std::byte> block)
      : shape_(shape), source_(source), block_(block.begin(), block.end()) {}
  // Zeros, for the caller to fill.
  OwnedEmbeddingRows(const wire::RowBlockShape& shape, const Source& source)
      : shape_(shape), source_(source), block_(wire::RowBlockBytes(shape)) {}

  wire::RowBlockShape shape() const override { return shape_; }
  // What comes from the heap lies at a multiple of 8.
  wire::RowBlockArrays<true> arrays() override {
    return wire::OpenRowBlock(std::span<std::byte>(block_), shape_).value();
  }
  std::span<const std::byte> block() const { return block_; }
  // Whose rows they are: timestamps of one server say nothing to another.
  const Source& source() const { return source_; }

 private:
  const wire::RowBlockShape shape_;
  const Source source_;
  std::vector<std::byte> block_;
};

}  // namespace quarry::client
