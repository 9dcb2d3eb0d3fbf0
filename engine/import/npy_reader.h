// Stored arrays: .npy files, members of .npz archives, of torch's .pt and of .safetensors files, and files
// without a header, and the typed cursors over them. Private to this room.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "byte_source.h"
#include "quarry/base/status.h"
#include "quarry/import/dataset.h"

namespace quarry {

inline constexpr size_t kStepItems = 64 << 10;  // items at a time of an array that is read in steps

// NumPy's dtype: kind 'f', 'i', 'u', 'b' (and 'S', 'U' for the tags that scipy stores); 'B' for bfloat16,
// which NumPy lacks.
struct NpyType {
  char kind = 0;
  uint32_t bytes = 0;
  std::string name;  // as the header has it, "<f4" or "F32"
  bool is_integer() const { return kind == 'i' || kind == 'u'; }
};

struct NpyHeader {
  NpyType type;
  std::vector<uint64_t> shape;
  uint64_t header_bytes = 0;  // where the data starts
  uint64_t items = 0;         // product of the shape
  bool fortran = false;       // the file has columns first, of a matrix
  uint64_t data_bytes() const { return items * type.bytes; }
};

// An array whose header has been read and checked. Any number of cursors can be opened on its data.
struct NpyArray {
  std::string name;  // "edges.npy" with its folder, or "x.npz: edges"
  NpyHeader header;
  // A cursor that starts `offset` bytes into the data, rows first whatever the file has first.
  using Open = std::function<Result<std::unique_ptr<ByteSource>>(uint64_t offset)>;
  Open open;
  Open open_stored;  // the same as the file has it; set where it has columns first

  size_t dims() const { return header.shape.size(); }
  uint64_t extent(size_t dim) const { return header.shape[dim]; }
  std::string ShapeText() const;  // "[2, 10556]"
};

inline constexpr std::string_view kNpyMagic = "\x93NUMPY";

// "<f4" as NumPy writes it. Refuses big-endian types, pickled objects, and what is neither number nor text.
Result<NpyType> ParseNpyType(const std::string& descr, const std::string& name);

// Parses the header at the start of a stream of `stream_bytes` bytes. Refuses, in one sentence each: a wrong
// magic or version, pickled objects, structured and big-endian arrays, arrays of three extents and more in
// Fortran order, and data that is not all there.
Result<NpyHeader> ReadNpyHeader(ByteSource& source, uint64_t stream_bytes, const std::string& name);

Result<NpyArray> OpenNpy(const std::string& path);

// Has `open` give rows first, where the header says that the file has columns first.
void ReadRowsFirst(NpyArray& array);
// The matrix with rows and columns exchanged, whose rows are those that the file has one behind the other.
// REQUIRES: header.fortran.
NpyArray Transposed(const NpyArray& array);

// The product of a shape, of items of `type`; refuses what is larger than 2^62 bytes.
Result<uint64_t> CountItems(const std::vector<uint64_t>& shape, const NpyType& type, const std::string& name);

// An array without a header, as tofile and memmap write it. Refused unless the file is exactly as large as
// `type` and `shape` say; `stated_by` is who says so, for that message.
Result<NpyArray> OpenRawArray(const std::string& path, const NpyType& type, std::vector<uint64_t> shape,
                              std::string_view stated_by);

// The string in a 0-dimensional 'S' or 'U' array: scipy's format tag.
Result<std::string> ReadTag(const NpyArray& array);

enum class IntRole : uint8_t {
  kId,     // integers only
  kLabel,  // also floats that hold integers; NaN becomes -1, and so does what a cast to int32 makes of it,
           // -2^31
};

// The items [first, first + count) of an array as int64, in order.
class IntCursor {
 public:
  // Refuses a dtype that the role does not take.
  static Result<std::unique_ptr<IntCursor>> Open(const NpyArray& array, uint64_t first, uint64_t count,
                                                 IntRole role);
  // Fills `out` as far as there are items; returns how many.
  Result<size_t> Read(std::span<int64_t> out);
  uint64_t consumed_bytes() const { return source_->consumed_bytes(); }

 private:
  IntCursor() = default;
  Status Convert(std::span<const std::byte> raw, std::span<int64_t> out) const;
  std::unique_ptr<ByteSource> source_;
  NpyType type_;
  IntRole role_ = IntRole::kId;
  std::string name_;
  uint64_t item_ = 0;  // number of the next one in the array
  uint64_t left_ = 0;
  std::vector<std::byte> raw_;
};

// Every item as float, in order; 'f', 'i', 'u' and 'b' arrays.
class FloatCursor {
 public:
  static Result<std::unique_ptr<FloatCursor>> Open(const NpyArray& array);
  Result<size_t> Read(std::span<float> out);

 private:
  FloatCursor() = default;
  std::unique_ptr<ByteSource> source_;
  NpyType type_;
  std::string name_;
  uint64_t left_ = 0;
  std::vector<std::byte> raw_;
};

// [2, E] or [E, 2]; [2, 2] is taken as the former.
Result<std::unique_ptr<EdgeReader>> MakeEdgeReader(const NpyArray& edges);
// [E, 2], and [2, 2] is that too.
Result<std::unique_ptr<EdgeReader>> MakePairReader(const NpyArray& pairs);
// Two arrays of the same length.
Result<std::unique_ptr<EdgeReader>> MakeEdgeReader(const NpyArray& sources, const NpyArray& destinations);
// The entries of a sparse matrix in CSR form: row -> column.
Result<std::unique_ptr<EdgeReader>> MakeCsrEdgeReader(const NpyArray& indptr, const NpyArray& indices);

// [N, D], or [N] taken as [N, 1].
Result<std::unique_ptr<RowReader>> MakeRowReader(const NpyArray& rows, bool u2_is_bfloat16);
// [N, D], or [N] for D = 1, of any numbers or truths, as floats.
Result<std::unique_ptr<RowReader>> MakeTargetReader(const NpyArray& rows);
// int8 [N, D] and float32 [N]: rows of elements times their scale.
Result<std::unique_ptr<RowReader>> MakeScaledRowReader(const NpyArray& rows, const NpyArray& scales);

// The three arrays of a sparse matrix in CSR form.
struct CsrArrays {
  NpyArray indptr;
  NpyArray indices;
  NpyArray data;
};
// Dense float32 rows of `dim` elements.
Result<std::unique_ptr<RowReader>> MakeCsrRowReader(const CsrArrays& csr, uint64_t dim);
// 1 + the largest column, by a pass over the indices.
Result<uint64_t> CsrColumnCount(const NpyArray& indices);

// [N] or [N, 1]. A bool array is a mask: for ids it yields the numbers of its true items.
Result<std::unique_ptr<IntReader>> MakeIntReader(const NpyArray& values, IntRole role);

}  // namespace quarry
