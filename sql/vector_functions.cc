// Scalar functions over vectors: blobs of float32, little-endian, as features.feature has them.
#include <array>
#include <cmath>
#include <cstring>
#include <exception>
#include <new>

#include "json_array.h"
#include "module.h"
#include "sqlite_api.h"

namespace quarry::sql {
namespace {

// Floats that may lie at any address.
class VectorView {
 public:
  VectorView() = default;
  VectorView(const std::byte* data, size_t dim) : data_(data), dim_(dim) {}
  size_t dim() const { return dim_; }
  const std::byte* data() const { return data_; }
  float operator[](size_t i) const {
    float value = 0;
    std::memcpy(&value, data_ + i * sizeof(float), sizeof(float));
    return value;
  }

 private:
  const std::byte* data_ = nullptr;
  size_t dim_ = 0;
};

using Arguments = std::span<sqlite3_value*>;

bool AnyNull(Arguments arguments) {
  for (sqlite3_value* const argument : arguments) {
    if (sqlite3_value_type(argument) == SQLITE_NULL) return true;
  }
  return false;
}

Result<VectorView> VectorOf(sqlite3_value* value, int number) {
  if (sqlite3_value_type(value) != SQLITE_BLOB) {
    return MakeStatus(Code::kInvalidArgument,
                      "argument {} is no vector (a blob of float32); vec_from_json makes one", number);
  }
  const auto* bytes = static_cast<const std::byte*>(sqlite3_value_blob(value));
  const auto count = static_cast<size_t>(sqlite3_value_bytes(value));
  if (count % sizeof(float) != 0) {
    return MakeStatus(Code::kInvalidArgument,
                      "argument {} is a blob of {} bytes; vectors have 4 for each element", number, count);
  }
  return VectorView(bytes, count / sizeof(float));
}

// The sum of term(i) over i < count in eight lanes: the compiler makes vectors of them, and the result is the
// same on every machine.
template <typename Term>
double Sum(size_t count, Term&& term) {
  constexpr size_t kLanes = 8;
  std::array<double, kLanes> lanes{};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  }
  double sum = 0;
  for (; i < count; ++i) sum += term(i);
  for (const double lane : lanes) sum += lane;
  return sum;
}

double Dot(const VectorView& a, const VectorView& b) {
  return Sum(a.dim(), [&](size_t i) { return double{a[i]} * double{b[i]}; });
}

double SquaredDistance(const VectorView& a, const VectorView& b) {
  return Sum(a.dim(), [&](size_t i) {
    const double difference = double{a[i]} - double{b[i]};
    return difference * difference;
  });
}

struct VectorPair {
  VectorView a, b;
};

Result<VectorPair> PairOf(Arguments arguments) {
  VectorPair pair;
  QUARRY_TRY(pair.a, VectorOf(arguments[0], 1));
  QUARRY_TRY(pair.b, VectorOf(arguments[1], 2));
  if (pair.a.dim() == pair.b.dim()) return pair;
  return MakeStatus(Code::kInvalidArgument, "vectors of {} and {} elements", pair.a.dim(), pair.b.dim());
}

Status VecDot(Arguments arguments, Output& out) {
  QUARRY_TRY(const VectorPair pair, PairOf(arguments));
  out.Real(Dot(pair.a, pair.b));
  return Status::Ok();
}

Status VecL2(Arguments arguments, Output& out) {
  QUARRY_TRY(const VectorPair pair, PairOf(arguments));
  out.Real(std::sqrt(SquaredDistance(pair.a, pair.b)));
  return Status::Ok();
}

// NULL where one of them is zero: there is no angle then.
Status VecCosine(Arguments arguments, Output& out) {
  QUARRY_TRY(const VectorPair pair, PairOf(arguments));
  const double squares = Dot(pair.a, pair.a) * Dot(pair.b, pair.b);
  if (squares > 0) out.Real(Dot(pair.a, pair.b) / std::sqrt(squares));
  return Status::Ok();
}

Status VecDim(Arguments arguments, Output& out) {
  QUARRY_TRY(const VectorView vector, VectorOf(arguments[0], 1));
  out.Integer(static_cast<int64_t>(vector.dim()));
  return Status::Ok();
}

// vec_slice(vector, first, end): elements first to end - 1, from 0.
Status VecSlice(Arguments arguments, Output& out) {
  QUARRY_TRY(const VectorView vector, VectorOf(arguments[0], 1));
  const int64_t first = sqlite3_value_int64(arguments[1]);
  const int64_t end = sqlite3_value_int64(arguments[2]);
  if (first < 0 || end < first || end > static_cast<int64_t>(vector.dim())) {
    return MakeStatus(Code::kInvalidArgument, "elements {} to {} of a vector of {}", first, end,
                      vector.dim());
  }
  out.Blob({vector.data() + static_cast<size_t>(first) * sizeof(float),
            static_cast<size_t>(end - first) * sizeof(float)});
  return Status::Ok();
}

Status VecToJson(Arguments arguments, Output& out) {
  QUARRY_TRY(const VectorView vector, VectorOf(arguments[0], 1));
  out.Text(WriteJsonArray(vector.dim(), [&](size_t i) { return vector[i]; }));
  return Status::Ok();
}

Status VecFromJson(Arguments arguments, Output& out) {
  const auto* text = reinterpret_cast<const char*>(sqlite3_value_text(arguments[0]));
  if (text == nullptr) return Status(Code::kOutOfBudget, "no memory for the text");
  const auto bytes = static_cast<size_t>(sqlite3_value_bytes(arguments[0]));
  QUARRY_TRY(const std::vector<float> values, JsonArray<float>::Parse({text, bytes}));
  out.Blob(std::as_bytes(std::span(values)));
  return Status::Ok();
}

struct Function {
  const char* name;
  int arguments;
  Status (*run)(Arguments arguments, Output& out);
};

constexpr Function kFunctions[] = {
    {"vec_dot", 2, VecDot},
    {"vec_l2", 2, VecL2},
    {"vec_cosine", 2, VecCosine},
    {"vec_dim", 1, VecDim},
    {"vec_slice", 3, VecSlice},
    {"vec_to_json", 1, VecToJson},
    {"vec_from_json", 1, VecFromJson},
};

// Every function of a NULL is NULL. SQLite is C: nothing may be thrown through it.
void Call(sqlite3_context* context, int count, sqlite3_value** values) {
  const auto* function = static_cast<const Function*>(sqlite3_user_data(context));
  const Arguments arguments(values, static_cast<size_t>(count));
  if (AnyNull(arguments)) return;
  try {
    Output out(context);
    const Status status = function->run(arguments, out);
    if (status.ok()) return;
    const std::string text = fmt::format("{}: {}", function->name, status.message());
    sqlite3_result_error(context, text.c_str(), -1);
  } catch (const std::bad_alloc&) {
    sqlite3_result_error_nomem(context);
  } catch (const std::exception& error) {
    sqlite3_result_error(context, error.what(), -1);
  }
}

}  // namespace

Status RegisterVectorFunctions(sqlite3* database) {
  for (const Function& function : kFunctions) {
    const int rc = sqlite3_create_function_v2(
        database, function.name, function.arguments, SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS,
        const_cast<Function*>(&function), Call, nullptr, nullptr, nullptr);
    if (rc != SQLITE_OK) {
      return MakeStatus(Code::kInternal, "SQLite takes no function {}: {}", function.name,
                        sqlite3_errstr(rc));
    }
  }
  return Status::Ok();
}

}  // namespace quarry::sql
