// What the handles of the C interface are, and how its functions end. Private to it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "asker.h"
#include "quarry.h"
#include "quarry/client/store.h"

// NOLINTBEGIN(readability-identifier-naming): names as C has them
struct quarry_store {
  std::unique_ptr<quarry::client::Store> store;
};
struct quarry_snapshot {
  std::unique_ptr<quarry::client::Snapshot> snapshot;
};
struct quarry_rows {
  std::unique_ptr<quarry::client::Rows> rows;
};
struct quarry_batch {
  std::unique_ptr<quarry::client::Batch> batch;
};
struct quarry_stream {
  std::unique_ptr<quarry::client::Stream> stream;
  quarry::client::Asker asker{*stream};
};
struct quarry_embedding_rows {
  std::unique_ptr<quarry::client::EmbeddingRows> rows;
};
struct quarry_large_put {
  std::optional<quarry::wire::PutGraph> graph;  // what all pieces say of it; none: rows alone come
  std::unique_ptr<quarry::client::LargePut> put;
};
struct quarry_training {
  quarry::client::Training training;
};
struct quarry_counters {
  quarry::wire::Counters counters;
};
// NOLINTEND(readability-identifier-naming)

namespace quarry::client {

// Keeps why for quarry_last_error; the code of the status.
int Tell(const Status& status);

// The end of every function: a code, whatever happens. Nothing is thrown into C.
template <typename Body>
int Ends(Body body) {
  try {
    const Status status = body();
    return status.ok() ? QUARRY_OK : Tell(status);
  } catch (const std::bad_alloc&) {
    return Tell(Status(Code::kOutOfBudget, "no memory is left"));
  } catch (const std::exception& error) {
    return Tell(Status(Code::kInternal, error.what()));
  } catch (...) {
    return Tell(Status(Code::kInternal, "something was thrown"));
  }
}

// What the caller's struct has, the rest as by default. Its first field says how large it is there.
template <typename T>
Result<T> Given(const T* given, const char* what) {
  T out{};
  if (given == nullptr) return out;
  if (given->size < sizeof(size_t) || given->size > 64 * sizeof(T)) {
    return MakeStatus(Code::kUsage, "{} of size {}: set it to sizeof the struct", what, given->size);
  }
  std::memcpy(&out, given, std::min(given->size, sizeof(T)));
  return out;
}

inline std::string TextOr(const char* text, const char* otherwise) {
  return text == nullptr ? otherwise : text;
}

template <typename T>
std::vector<T> ListOf(const T* values, size_t count) {
  return values == nullptr ? std::vector<T>() : std::vector<T>(values, values + count);
}

inline uint64_t IdOf(const quarry_snapshot* snapshot) {
  return snapshot == nullptr ? 0 : snapshot->snapshot->id();
}

Result<RoadSpec> SpecOf(const quarry_live_spec* spec);

}  // namespace quarry::client
