// Options of C as the engine's. A field of a struct of C is the field of that name of the engine's struct, so that an
// option is named once, in c_*.h, and nowhere in this folder. Private to the C interface.
//
// Fields that are zero or null leave what the engine's struct has, which are the defaults. A list is a pointer, as
// `fanouts`, and a length, as `fanout_count`; an enum is a name, or a number, of which 0 is the default.
#pragma once

#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "handles.h"
#include "quarry/base/fields.h"
#include "quarry/format/embedding_spec.h"
#include "quarry/format/road_spec.h"

namespace quarry::client {

// The values of an enum, in the order of C's numbers.
template <typename Enum>
struct InC;
template <>
struct InC<Direction> {
  static constexpr Direction kValues[] = {Direction::kIn, Direction::kOut, Direction::kBoth};
};
template <>
struct InC<Packing> {
  static constexpr Packing kValues[] = {Packing::kCheaper, Packing::kAlways, Packing::kNever};
};
template <>
struct InC<wire::StreamMode> {
  static constexpr wire::StreamMode kValues[] = {wire::StreamMode::kExclusive, wire::StreamMode::kShared,
                                                 wire::StreamMode::kSplit};
};
template <>
struct InC<OptimizerKind> {
  static constexpr OptimizerKind kValues[] = {OptimizerKind::kAdagrad, OptimizerKind::kSgd,
                                              OptimizerKind::kAdam};
};
template <>
struct InC<Split> {
  static constexpr Split kValues[] = {Split::kNone, Split::kTrain, Split::kValid, Split::kTest};
};
template <>
struct InC<InitKind> {
  static constexpr InitKind kValues[] = {InitKind::kUniform, InitKind::kNormal, InitKind::kZeros};
};

template <typename To>
concept Numbered = requires {
  InC<To>::kValues;
};

// The value of a number of C; `name` is what an error calls it.
template <Numbered Enum>
Result<Enum> ValueOf(std::string_view name, std::integral auto number) {
  const std::span<const Enum> values = InC<Enum>::kValues;
  if (std::cmp_less(number, 0) || std::cmp_greater_equal(number, values.size())) {
    return MakeStatus(Code::kInvalidArgument, "{} {} is unknown", name, number);
  }
  return values[static_cast<size_t>(number)];
}

namespace options_internal {

// Whether every value of From is one of To.
template <typename From, typename To>
concept Widens = std::is_arithmetic_v<From> && std::is_arithmetic_v<To> && requires(From from) {
  To{from};
};
// A flag is an int of C, of which all but 0 mean true.
template <typename From, typename To>
concept IsFlag = std::same_as<From, int> && std::same_as<To, bool>;
template <typename From, typename To>
concept IsNumber = std::integral<From> && Numbered<To>;
template <typename To>
concept Worded = std::same_as<To, std::string> || NamedEnum<To>;
template <typename From, typename To>
concept IsText = std::same_as<From, const char*> && Worded<To>;

// Which values of C there is a rule for.
template <typename From, typename To>
concept Takes = Widens<From, To> || IsFlag<From, To> || IsNumber<From, To> || IsText<From, To>;
template <typename From, typename To>
inline constexpr bool kTakesList = false;
template <typename T>
inline constexpr bool kTakesList<const T*, std::vector<T>> = true;

template <typename From, typename To>
requires Takes<From, To> Status Take(std::string_view name, From from, To& to) {
  if constexpr (Numbered<To>) {
    QUARRY_TRY(to, ValueOf<To>(name, from));
  } else if constexpr (std::is_arithmetic_v<From>) {
    if (from != 0) to = static_cast<To>(from);
  } else if constexpr (NamedEnum<To>) {
    if (from == nullptr) return Status();
    const auto named = ParseName<To>(from);
    if (!named.ok()) return Status(Code::kInvalidArgument, std::string(named.status().message()));
    to = *named;
  } else {
    if (from != nullptr) to = from;
  }
  return Status();
}

template <typename T, size_t I>
using FieldType = std::remove_cvref_t<std::tuple_element_t<I, decltype(Fields(std::declval<T&>()))>>;

// Calls visit of the number of each field, as a constant.
template <typename T>
constexpr void ForEachNumber(auto visit) {
  [&]<size_t... I>(std::index_sequence<I...>) { (visit(std::integral_constant<size_t, I>()), ...); }
  (std::make_index_sequence<kFieldCount<T>>());
}

// `fanout_count` is the length of `fanouts`.
constexpr bool IsLengthOf(std::string_view length, std::string_view list) {
  constexpr std::string_view kEnd = "_count";
  return length.ends_with(kEnd) && list.ends_with('s') &&
         length.substr(0, length.size() - kEnd.size()) == list.substr(0, list.size() - 1);
}

template <typename Given, size_t I, typename Taken, size_t J>
consteval bool Same() {
  using From = FieldType<Given, I>;
  using To = FieldType<Taken, J>;
  return FieldName<Given, I>() == FieldName<Taken, J>() && (Takes<From, To> || kTakesList<From, To>);
}

// Whether a field of Given is the length of a list that Taken has, too.
template <typename Given, size_t I, typename Taken>
consteval bool IsLengthOfTaken() {
  bool found = false;
  ForEachNumber<Given>([&](auto list) {
    ForEachNumber<Taken>([&](auto j) {
      found |= kTakesList<FieldType<Given, list>, FieldType<Taken, j>> && Same<Given, list, Taken, j>() &&
               IsLengthOf(FieldName<Given, I>(), FieldName<Given, list>());
    });
  });
  return found;
}

template <typename Given>
uint64_t LengthOf(const Given& given, std::string_view list) {
  uint64_t length = 0;
  ForEachNumber<Given>([&](auto i) {
    if constexpr (std::is_integral_v<FieldType<Given, i>>) {
      if (IsLengthOf(FieldName<Given, i>(), list)) length = std::get<i>(Fields(given));
    }
  });
  return length;
}

template <typename Given, size_t I, typename Taken, size_t J>
Status TakeField(const Given& given, Taken& taken) {
  using From = FieldType<Given, I>;
  using To = FieldType<Taken, J>;
  const From from = std::get<I>(Fields(given));
  To& to = std::get<J>(Fields(taken));
  if constexpr (kTakesList<From, To>) {
    if (from != nullptr) to = ListOf(from, LengthOf(given, FieldName<Given, I>()));
    return Status();
  } else {
    return Take(FieldName<Given, I>(), from, to);
  }
}

}  // namespace options_internal

// Fills the fields of `taken` that `given` has, too.
template <Record Given, Record Taken>
Status TakeOptions(const Given& given, Taken& taken) {
  Status status;
  options_internal::ForEachNumber<Given>([&](auto i) {
    options_internal::ForEachNumber<Taken>([&](auto j) {
      if constexpr (options_internal::Same<Given, i, Taken, j>()) {
        if (status.ok()) status = options_internal::TakeField<Given, i, Taken, j>(given, taken);
      }
    });
  });
  return status;
}

// Whether TakeOptions takes every field of Given, but for its size, lengths, and `others`, which their function takes.
template <Record Given, Record... Taken>
consteval bool TakesAllBut(std::initializer_list<std::string_view> others) {
  bool all = true;
  options_internal::ForEachNumber<Given>([&](auto i) {
    constexpr std::string_view kName = FieldName<Given, i>();
    bool taken = kName == "size";
    for (const std::string_view other : others) taken |= kName == other;
    taken |= (options_internal::IsLengthOfTaken<Given, i, Taken>() || ...);
    (options_internal::ForEachNumber<Taken>(
         [&](auto j) { taken |= options_internal::Same<Given, i, Taken, j>(); }),
     ...);
    all &= taken;
  });
  return all;
}

}  // namespace quarry::client
