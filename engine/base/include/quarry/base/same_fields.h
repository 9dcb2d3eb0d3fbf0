// Two structs that have fields in common: what one takes over from the other, and whether it is all that it has.
#pragma once

#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "quarry/base/fields.h"

namespace quarry {
namespace fields_internal {

template <typename T, size_t I>
using FieldType = std::remove_cvref_t<std::tuple_element_t<I, decltype(Fields(std::declval<T&>()))>>;

// The place of the field of T that has this name and this type; kFieldCount<T> when there is none.
template <typename T, typename Field>
constexpr size_t PlaceOf(std::string_view name) {
  size_t place = kFieldCount<T>;
  [&]<size_t... I>(std::index_sequence<I...>) {
    ((std::is_same_v<FieldType<T, I>, Field> && FieldName<T, I>() == name ? static_cast<void>(place = I)
                                                                          : void()),
     ...);
  }
  (std::make_index_sequence<kFieldCount<T>>());
  return place;
}

}  // namespace fields_internal

// Assigns to each field of `to` the field of `from` that has its name and its type.
template <Record From, Record To>
constexpr void CopySameFields(const From& from, To& to) {
  const auto given = Fields(from);
  const auto fields = Fields(to);
  [&]<size_t... I>(std::index_sequence<I...>) {
    const auto copy = [&]<size_t J>(std::integral_constant<size_t, J>) {
      constexpr size_t kPlace =
          fields_internal::PlaceOf<From, fields_internal::FieldType<To, J>>(FieldName<To, J>());
      if constexpr (kPlace < kFieldCount<From>) std::get<J>(fields) = std::get<kPlace>(given);
    };
    (copy(std::integral_constant<size_t, I>()), ...);
  }
  (std::make_index_sequence<kFieldCount<To>>());
}

// How many fields of To CopySameFields leaves as they are.
template <Record From, Record To>
constexpr size_t FieldsLeft() {
  return []<size_t... I>(std::index_sequence<I...>) {
    return (size_t{0} + ... +
            (fields_internal::PlaceOf<From, fields_internal::FieldType<To, I>>(FieldName<To, I>()) ==
                     kFieldCount<From>
                 ? 1
                 : 0));
  }
  (std::make_index_sequence<kFieldCount<To>>());
}

}  // namespace quarry
