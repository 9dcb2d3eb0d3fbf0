// The rows of a statement, column by column, and as an Arrow C stream (the C data interface of Apache Arrow,
// whose structs are part of that interface and declared here as it asks).
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "quarry.h"

namespace quarry::python {

// A value; texts and blobs lie in their column's bytes.
struct Cell {
  int type = QUARRY_NULL;
  uint32_t length = 0;
  union {
    int64_t integer = 0;
    double real;
    uint64_t begin;
  };
};

struct Column {
  std::string name;
  std::vector<Cell> cells;
  std::string bytes;
  unsigned types = 0;  // bit t: there is a value of type t

  bool Has(int type) const { return ((types >> type) & 1) != 0; }
  void AddNull() { Append({}); }
  void Add(int64_t value) {
    Cell cell{.type = QUARRY_INTEGER};
    cell.integer = value;
    Append(cell);
  }
  void Add(double value) {
    Cell cell{.type = QUARRY_REAL};
    cell.real = value;
    Append(cell);
  }
  void Add(int type, const char* data, uint64_t count) {
    Cell cell{.type = type, .length = static_cast<uint32_t>(count)};
    cell.begin = bytes.size();
    bytes.append(data == nullptr ? "" : data, count);
    Append(cell);
  }

 private:
  void Append(const Cell& cell) {
    types |= 1U << cell.type;
    cells.push_back(cell);
  }
};

struct Table {
  std::vector<Column> columns;
  size_t row_count() const { return columns.empty() ? 0 : columns.front().cells.size(); }
};

// Capsules "arrow_schema" and "arrow_array_stream", as the Arrow PyCapsule interface names them. A column is
// int64 where all of its values are integers, float64 where some are reals, large_utf8 where there is a text,
// large_binary where there are only blobs; numbers among texts are written as texts are.
nanobind::capsule SchemaCapsule(const Table& table);
nanobind::capsule StreamCapsule(const std::shared_ptr<const Table>& table);

}  // namespace quarry::python
