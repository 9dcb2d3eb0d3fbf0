// The fields of a plain struct, from the struct itself: how many it has, what they are called, and each in turn. The
// struct's declaration is their only list; what writes records, reads them or prints them asks here for the fields
// and cannot miss one.
//
// A struct has fields in this sense when it is an aggregate without bases, whose members are no arrays of C and
// no references. Everything is known at compile time: a loop over the fields is unrolled, and costs what the same lines
// by hand would.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace quarry {
namespace fields_internal {

// Converts to whatever a member is. Never run.
struct Anything {
  template <typename T>
  operator T() const noexcept {  // NOLINT: a conversion is what it is for
    std::abort();
  }
};

template <typename T, size_t... I>
constexpr bool TakesMembers(std::index_sequence<I...>) {
  return requires { T{(static_cast<void>(I), Anything{})...}; };
}
// Any number of members up to all of them can be initialized.
template <typename T, size_t N = 0>
constexpr size_t Count() {
  if constexpr (!TakesMembers<T>(std::make_index_sequence<N + 1>())) {
    return N;
  } else {
    return Count<T, N + 1>();
  }
}

#pragma GCC diagnostic push
#ifdef __clang__
#pragma GCC diagnostic ignored "-Wundefined-internal"  // kNever has no definition, and needs none
#endif
// A T that is never made, for the addresses of its members to have names.
template <typename T>
struct Holder {
  T value;
};
template <typename T>
extern const Holder<T> kNever;
#pragma GCC diagnostic pop

// A template's argument may be a pointer to a member of an object, for clang when it is in a struct.
template <typename T>
struct Pointer {
  const T* to;
};
template <typename T>
Pointer(const T*) -> Pointer<T>;

template <auto kPointer>
constexpr auto SignatureOf() {
  return std::string_view(__PRETTY_FUNCTION__);
}
template <typename T>
constexpr auto SignatureOfType() {
  return std::string_view(__PRETTY_FUNCTION__);
}

// The word of a signature before its closing brackets: the last part of the name of a member or of a type.
constexpr std::string_view LastWord(std::string_view signature) {
  const auto in_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  size_t end = signature.size();
  while (end > 0 && !in_word(signature[end - 1])) --end;
  size_t begin = end;
  while (begin > 0 && in_word(signature[begin - 1])) --begin;
  return signature.substr(begin, end - begin);
}

}  // namespace fields_internal

template <typename T>
concept Record = std::is_aggregate_v<T> && std::is_class_v<T> && !requires {
  typename T::value_type;
};

template <Record T>
inline constexpr size_t kFieldCount = fields_internal::Count<T>();

// References to the fields of `record`, in the order of their declaration. A structured binding has to say how many
// names it binds: hence one line for each number of fields.
template <typename T>
constexpr auto Fields(T& record) {
  constexpr size_t kCount = kFieldCount<std::remove_const_t<T>>;
  static_assert(kCount <= 32, "quarry/base/fields.h has no line for structs of so many fields");
  // clang-format off
  if constexpr (kCount == 0) { return std::tuple<>();
  } else if constexpr (kCount == 1) { auto& [a] = record; return std::tie(a);
  } else if constexpr (kCount == 2) { auto& [a, b] = record; return std::tie(a, b);
  } else if constexpr (kCount == 3) { auto& [a, b, c] = record; return std::tie(a, b, c);
  } else if constexpr (kCount == 4) { auto& [a, b, c, d] = record; return std::tie(a, b, c, d);
  } else if constexpr (kCount == 5) { auto& [a, b, c, d, e] = record; return std::tie(a, b, c, d, e);
  } else if constexpr (kCount == 6) { auto& [a, b, c, d, e, f] = record; return std::tie(a, b, c, d, e, f);
  } else if constexpr (kCount == 7) { auto& [a, b, c, d, e, f, g] = record; return std::tie(a, b, c, d, e, f, g);
  } else if constexpr (kCount == 8) { auto& [a, b, c, d, e, f, g, h] = record; return std::tie(a, b, c, d, e, f, g, h);
  } else if constexpr (kCount == 9) { auto& [a, b, c, d, e, f, g, h, j] = record; return std::tie(a, b, c, d, e, f, g, h, j);
  } else if constexpr (kCount == 10) { auto& [a, b, c, d, e, f, g, h, j, k] = record; return std::tie(a, b, c, d, e, f, g, h, j, k);
  } else if constexpr (kCount == 11) { auto& [a, b, c, d, e, f, g, h, j, k, l] = record; return std::tie(a, b, c, d, e, f, g, h, j, k, l);
  } else if constexpr (kCount == 12) { auto& [a, b, c, d, e, f, g, h, j, k, l, m] = record; return std::tie(a, b, c, d, e, f, g, h, j, k, l, m);
  } else if constexpr (kCount == 13) { auto& [a, b, c, d, e, f, g, h, j, k, l, m, n] = record; return std::tie(a, b, c, d, e, f, g, h, j, k, l, m, n);
  } else if constexpr (kCount == 14) { auto& [a, b, c, d, e, f, g, h, j, k, l, m, n, p] = record; return std::tie(a, b, c, d, e, f, g, h, j, k, l, m, n, p);
  } else if constexpr (kCount == 15) { auto& [a, b, c, d, e, f, g, h, j, k, l, m, n, p, q] = record; return std::tie(a, b, c, d, e, f, g, h, j, k, l, m, n, p, q);
  } else if constexpr (kCount == 16) { auto& [a, b, c, d, e, f, g, h, j, k, l, m, n, p, q, r] = record; return std::tie(a, b, c, d, e, f, g, h, j, k, l, m, n, p, q, r);
  } else if constexpr (kCount == 17) { auto& [a, b, c, d, e, f, g, h, j, k, l, m, n, p, q, r, s] = record; return std::tie(a, b, c, d, e, f, g, h, j, k, l, m, n, p, q, r, s);
  } else if constexpr (kCount == 18) { auto& [a, b, c, d, e, f, g, h, j, k, l, m, n, p, q, r, s, t] = record; return std::tie(a, b, c, d, e, f, g, h, j, k, l, m, n, p, q, r, s, t);
  } else if constexpr (kCount == 19) { auto& [a, b, c, d, e, f, g, h, j, k, l, m, n, p, q, r, s, t, u] = record; return std::tie(a, b, c, d, e, f, g, h, j, k, l, m, n, p, q, r, s, t, u);
  } else if constexpr (kCount == 20) { auto& [a, b, c, d, e, f, g, h, j, k, l, m, n, p, q, r, s, t, u, v] = record; return std::tie(a, b, c, d, e, f, g, h, j, k, l, m, n, p, q, r, s, t, u, v);
  } else if constexpr (kCount == 21) { auto& [a, b, c, d, e, f, g, h, j, k, l, m, n, p, q, r, s, t, u, v, w] = record; return std::tie(a, b, c, d, e, f, g, h, j, k, l, m, n, p, q, r, s, t, u, v, w);
  } else if constexpr (kCount == 22) { auto& [a, b, c, d, e, f, g, h, j, k, l, m, n, p, q, r, s, t, u, v, w, x] = record; return std::tie(a, b, c, d, e, f, g, h, j, k, l, m, n, p, q, r, s, t, u, v, w, x);
  } else if constexpr (kCount == 23) { auto& [a, b, c, d, e, f, g, h, j, k, l, m, n, p, q, r, s, t, u, v, w, x, y] = record; return std::tie(a, b, c, d, e, f, g, h, j, k, l, m, n, p, q, r, s, t, u, v, w, x, y);
  } else if constexpr (kCount == 24) { auto& [a, b, c, d, e, f, g, h, j, k, l, m, n, p, q, r, s, t, u, v, w, x, y, z] = record; return std::tie(a, b, c, d, e, f, g, h, j, k, l, m, n, p, q, r, s, t, u, v, w, x, y, z);
  } else if constexpr (kCount == 25) { auto& [a, b, c, d, e, f, g, h, j, k, l, m, n, p, q, r, s, t, u, v, w, x, y, z, a1] = record; return std::tie(a, b, c, d, e, f, g, h, j, k, l, m, n, p, q, r, s, t, u, v, w, x, y, z, a1);
  } else if constexpr (kCount == 26) { auto& [a, b, c, d, e, f, g, h, j, k, l, m, n, p, q, r, s, t, u, v, w, x, y, z, a1, b1] = record; return std::tie(a, b, c, d, e, f, g, h, j, k, l, m, n, p, q, r, s, t, u, v, w, x, y, z, a1, b1);
  } else if constexpr (kCount == 27) { auto& [a, b, c, d, e, f, g, h, j, k, l, m, n, p, q, r, s, t, u, v, w, x, y, z, a1, b1, c1] = record; return std::tie(a, b, c, d, e, f, g, h, j, k, l, m, n, p, q, r, s, t, u, v, w, x, y, z, a1, b1, c1);
  } else if constexpr (kCount == 28) { auto& [a, b, c, d, e, f, g, h, j, k, l, m, n, p, q, r, s, t, u, v, w, x, y, z, a1, b1, c1, d1] = record; return std::tie(a, b, c, d, e, f, g, h, j, k, l, m, n, p, q, r, s, t, u, v, w, x, y, z, a1, b1, c1, d1);
  } else if constexpr (kCount == 29) { auto& [a, b, c, d, e, f, g, h, j, k, l, m, n, p, q, r, s, t, u, v, w, x, y, z, a1, b1, c1, d1, e1] = record; return std::tie(a, b, c, d, e, f, g, h, j, k, l, m, n, p, q, r, s, t, u, v, w, x, y, z, a1, b1, c1, d1, e1);
  } else if constexpr (kCount == 30) { auto& [a, b, c, d, e, f, g, h, j, k, l, m, n, p, q, r, s, t, u, v, w, x, y, z, a1, b1, c1, d1, e1, f1] = record; return std::tie(a, b, c, d, e, f, g, h, j, k, l, m, n, p, q, r, s, t, u, v, w, x, y, z, a1, b1, c1, d1, e1, f1);
  } else if constexpr (kCount == 31) { auto& [a, b, c, d, e, f, g, h, j, k, l, m, n, p, q, r, s, t, u, v, w, x, y, z, a1, b1, c1, d1, e1, f1, g1] = record; return std::tie(a, b, c, d, e, f, g, h, j, k, l, m, n, p, q, r, s, t, u, v, w, x, y, z, a1, b1, c1, d1, e1, f1, g1);
  } else if constexpr (kCount == 32) { auto& [a, b, c, d, e, f, g, h, j, k, l, m, n, p, q, r, s, t, u, v, w, x, y, z, a1, b1, c1, d1, e1, f1, g1, h1] = record; return std::tie(a, b, c, d, e, f, g, h, j, k, l, m, n, p, q, r, s, t, u, v, w, x, y, z, a1, b1, c1, d1, e1, f1, g1, h1);
  }
  // clang-format on
}

#pragma GCC diagnostic push
#ifdef __clang__
#pragma GCC diagnostic ignored "-Wundefined-var-template"  // kNever has no definition, and needs none
#endif
// The name of field I, as the struct declares it.
template <Record T, size_t I>
constexpr std::string_view FieldName() {
  return fields_internal::LastWord(fields_internal::SignatureOf<fields_internal::Pointer{
                                       &std::get<I>(Fields(fields_internal::kNever<T>.value))}>());
}

#pragma GCC diagnostic pop

// The name of a struct, without its namespace.
template <typename T>
constexpr std::string_view TypeName() {
  return fields_internal::LastWord(fields_internal::SignatureOfType<T>());
}

// Calls visit(name, field) for each field of `record`.
template <typename T, typename Visit>
constexpr void ForEachField(T& record, Visit visit) {
  using Struct = std::remove_const_t<T>;
  const auto fields = Fields(record);
  [&]<size_t... I>(std::index_sequence<I...>) { (visit(FieldName<Struct, I>(), std::get<I>(fields)), ...); }
  (std::make_index_sequence<kFieldCount<Struct>>());
}

// Calls visit(name, field of a, field of b) for each field of two structs of one type.
template <typename T, typename Visit>
constexpr void ForEachField(T& a, const std::remove_const_t<T>& b, Visit visit) {
  using Struct = std::remove_const_t<T>;
  const auto of_a = Fields(a);
  const auto of_b = Fields(b);
  [&]<size_t... I>(std::index_sequence<I...>) {
    (visit(FieldName<Struct, I>(), std::get<I>(of_a), std::get<I>(of_b)), ...);
  }
  (std::make_index_sequence<kFieldCount<Struct>>());
}

}  // namespace quarry
