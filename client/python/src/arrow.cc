#include "arrow.h"

#include <cerrno>
#include <charconv>
#include <cstring>

// The Arrow C data and stream interfaces, word for word: their layout is the contract.
extern "C" {
struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  int64_t flags;
  int64_t n_children;
  ArrowSchema** children;
  ArrowSchema* dictionary;
  void (*release)(ArrowSchema*);
  void* private_data;
};
struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void** buffers;
  ArrowArray** children;
  ArrowArray* dictionary;
  void (*release)(ArrowArray*);
  void* private_data;
};
struct ArrowArrayStream {
  int (*get_schema)(ArrowArrayStream*, ArrowSchema* out);
  int (*get_next)(ArrowArrayStream*, ArrowArray* out);
  const char* (*get_last_error)(ArrowArrayStream*);
  void (*release)(ArrowArrayStream*);
  void* private_data;
};
}

namespace quarry::python {
namespace {

constexpr int64_t kNullable = 2;  // ARROW_FLAG_NULLABLE

const char* FormatOf(const Column& column) {
  if (column.Has(QUARRY_TEXT)) return "U";
  if (column.Has(QUARRY_BLOB)) return "Z";
  return column.Has(QUARRY_REAL) ? "g" : "l";
}

// ---- schema

struct SchemaParts {
  std::vector<std::string> names;
  std::vector<ArrowSchema> columns;
  std::vector<ArrowSchema*> pointers;
};

void ReleaseLeaf(ArrowSchema* schema) { schema->release = nullptr; }

void ReleaseSchema(ArrowSchema* schema) {
  auto* const parts = static_cast<SchemaParts*>(schema->private_data);
  for (ArrowSchema& column : parts->columns) {
    if (column.release != nullptr) column.release(&column);
  }
  delete parts;
  schema->release = nullptr;
}

void FillSchema(const Table& table, ArrowSchema* out) {
  auto* const parts = new SchemaParts;
  for (const Column& column : table.columns) parts->names.push_back(column.name);
  parts->columns.resize(table.columns.size());
  for (size_t i = 0; i < table.columns.size(); ++i) {
    parts->columns[i] = {FormatOf(table.columns[i]),
                         parts->names[i].c_str(),
                         nullptr,
                         kNullable,
                         0,
                         nullptr,
                         nullptr,
                         ReleaseLeaf,
                         nullptr};
    parts->pointers.push_back(&parts->columns[i]);
  }
  *out = {"+s",
          "",
          nullptr,
          0,
          static_cast<int64_t>(parts->columns.size()),
          parts->pointers.data(),
          nullptr,
          ReleaseSchema,
          parts};
}

// ---- rows

struct ColumnBuffers {
  std::vector<uint8_t> valid;   // a bit a row
  std::vector<uint64_t> words;  // values, or offsets
  std::string bytes;
  const void* pointers[3] = {};
  int64_t null_count = 0;
};

struct ArrayParts {
  std::vector<ColumnBuffers> buffers;
  std::vector<ArrowArray> columns;
  std::vector<ArrowArray*> pointers;
  const void* none[1] = {nullptr};
};

void ReleaseLeafArray(ArrowArray* array) { array->release = nullptr; }

void ReleaseArray(ArrowArray* array) {
  auto* const parts = static_cast<ArrayParts*>(array->private_data);
  for (ArrowArray& column : parts->columns) {
    if (column.release != nullptr) column.release(&column);
  }
  delete parts;
  array->release = nullptr;
}

template <typename T>
uint64_t WordOf(T value) {
  static_assert(sizeof(T) == sizeof(uint64_t));
  uint64_t word = 0;
  std::memcpy(&word, &value, sizeof word);
  return word;
}

void AppendText(const Column& column, const Cell& cell, std::string& out) {
  char digits[32];
  std::to_chars_result end{digits, {}};
  switch (cell.type) {
    case QUARRY_INTEGER:
      end = std::to_chars(digits, digits + sizeof digits, cell.integer);
      break;
    case QUARRY_REAL:
      end = std::to_chars(digits, digits + sizeof digits, cell.real);
      break;
    default:
      out.append(column.bytes, cell.begin, cell.length);
      return;
  }
  out.append(digits, end.ptr);
}

void FillBuffers(const Column& column, ColumnBuffers& out) {
  const size_t rows = column.cells.size();
  const char format = *FormatOf(column);
  const bool texts = format == 'U' || format == 'Z';
  out.valid.assign((rows + 7) / 8, 0);
  out.words.reserve(rows + 1);
  if (texts) out.words.push_back(0);
  for (size_t row = 0; row < rows; ++row) {
    const Cell& cell = column.cells[row];
    const bool valid = cell.type != QUARRY_NULL;
    if (valid) out.valid[row / 8] = static_cast<uint8_t>(out.valid[row / 8] | (1U << (row % 8)));
    if (!valid) ++out.null_count;
    if (texts) {
      if (valid) AppendText(column, cell, out.bytes);
      out.words.push_back(out.bytes.size());
    } else if (format == 'g') {
      out.words.push_back(WordOf(cell.type == QUARRY_INTEGER ? static_cast<double>(cell.integer)
                                 : valid                     ? cell.real
                                                             : 0.0));
    } else {
      out.words.push_back(WordOf(valid ? cell.integer : int64_t{0}));
    }
  }
  out.pointers[0] = out.valid.data();
  out.pointers[1] = out.words.data();
  out.pointers[2] = out.bytes.data();
}

void FillArray(const Table& table, ArrowArray* out) {
  auto* const parts = new ArrayParts;
  const auto rows = static_cast<int64_t>(table.row_count());
  parts->buffers.resize(table.columns.size());
  parts->columns.resize(table.columns.size());
  for (size_t i = 0; i < table.columns.size(); ++i) {
    ColumnBuffers& buffers = parts->buffers[i];
    FillBuffers(table.columns[i], buffers);
    const bool texts = table.columns[i].Has(QUARRY_TEXT) || table.columns[i].Has(QUARRY_BLOB);
    parts->columns[i] = {rows,    buffers.null_count, 0,      texts ? 3 : 2, 0, buffers.pointers, nullptr,
                         nullptr, ReleaseLeafArray,   nullptr};
    parts->pointers.push_back(&parts->columns[i]);
  }
  *out = {rows,
          0,
          0,
          1,
          static_cast<int64_t>(parts->columns.size()),
          parts->none,
          parts->pointers.data(),
          nullptr,
          ReleaseArray,
          parts};
}

// ---- stream

struct StreamParts {
  std::shared_ptr<const Table> table;
  bool given = false;
};

int GetSchema(ArrowArrayStream* stream, ArrowSchema* out) {
  try {
    FillSchema(*static_cast<StreamParts*>(stream->private_data)->table, out);
    return 0;
  } catch (...) {
    return ENOMEM;
  }
}
// All rows at once, then the end: an array that is released.
int GetNext(ArrowArrayStream* stream, ArrowArray* out) {
  auto* const parts = static_cast<StreamParts*>(stream->private_data);
  *out = {};
  if (parts->given) return 0;
  try {
    FillArray(*parts->table, out);
    parts->given = true;
    return 0;
  } catch (...) {
    return ENOMEM;
  }
}
const char* GetLastError(ArrowArrayStream*) { return "no memory is left"; }
void ReleaseStream(ArrowArrayStream* stream) {
  delete static_cast<StreamParts*>(stream->private_data);
  stream->release = nullptr;
}

// A consumer that took what is in a capsule has cleared its release.
template <typename T>
void DeleteCapsule(void* p) noexcept {
  auto* const held = static_cast<T*>(p);
  if (held->release != nullptr) held->release(held);
  delete held;
}

}  // namespace

nanobind::capsule SchemaCapsule(const Table& table) {
  auto schema = std::make_unique<ArrowSchema>();
  FillSchema(table, schema.get());
  return {schema.release(), "arrow_schema", DeleteCapsule<ArrowSchema>};
}

nanobind::capsule StreamCapsule(const std::shared_ptr<const Table>& table) {
  auto stream = std::make_unique<ArrowArrayStream>();
  *stream = {GetSchema, GetNext, GetLastError, ReleaseStream, new StreamParts{table}};
  return {stream.release(), "arrow_array_stream", DeleteCapsule<ArrowArrayStream>};
}

}  // namespace quarry::python
