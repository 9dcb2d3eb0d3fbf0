#include "quarry/base/fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "quarry/base/same_fields.h"

namespace quarry {
namespace {

using testing::ElementsAre;
using testing::Pair;

struct Nothing {
  bool operator==(const Nothing&) const = default;
};

struct Inner {
  std::string text;
  std::vector<int> numbers = {1, 2};
  bool operator==(const Inner&) const = default;
  int Sum() const { return numbers.empty() ? 0 : 1; }  // is no field
};

// Whatever a compiler could count wrongly: arrays, structs in structs, alternatives, defaults, two to a line.
struct Everything {
  std::array<std::byte, 16> id{};
  uint16_t first = 1, second = 2;
  std::optional<Inner> perhaps;
  std::variant<std::vector<std::byte>, Inner> either;
  std::variant<int, std::variant<std::string, Inner>> nested = 3;
  std::vector<Inner> each;
  Inner inner;
  double real_number = 0;
  bool has_it = false;
};

static_assert(kFieldCount<Nothing> == 0 && kFieldCount<Inner> == 2 && kFieldCount<Everything> == 10);
static_assert(FieldName<Everything, 0>() == "id" && FieldName<Everything, 9>() == "has_it");
static_assert(TypeName<Everything>() == "Everything");
static_assert(Record<Inner> && !Record<std::array<std::byte, 16>> && !Record<std::string> && !Record<int>);

TEST(FieldsTest, AStructsFieldsComeInTheOrderOfTheirDeclaration) {
  std::vector<std::string_view> names;
  Everything record;
  ForEachField(record, [&](std::string_view name, const auto&) { names.push_back(name); });
  EXPECT_THAT(names, ElementsAre("id", "first", "second", "perhaps", "either", "nested", "each", "inner",
                                 "real_number", "has_it"));
}

TEST(FieldsTest, FieldsAreTheStructsOwn) {
  Inner inner;
  std::get<0>(Fields(inner)) = "changed";
  EXPECT_EQ(inner.text, "changed");
  const Inner& constant = inner;
  EXPECT_EQ(&std::get<1>(Fields(constant)), &inner.numbers);
  std::vector<std::pair<std::string_view, const void*>> seen;
  ForEachField(constant, [&](std::string_view name, const auto& field) { seen.emplace_back(name, &field); });
  EXPECT_THAT(seen, ElementsAre(Pair("text", &inner.text), Pair("numbers", &inner.numbers)));
}

TEST(FieldsTest, FieldsOfOneNameAndOneTypeAreCopied) {
  struct Told {
    double has_it = 7;  // has another type
    std::string other = "stays";
    uint16_t second = 0;
    Inner inner;
  };
  static_assert(FieldsLeft<Everything, Told>() == 2);
  static_assert(FieldsLeft<Told, Told>() == 0);
  Told told;
  CopySameFields(Everything{.second = 5, .inner = {.text = "t"}, .has_it = true}, told);
  EXPECT_EQ(told.has_it, 7);
  EXPECT_EQ(told.other, "stays");
  EXPECT_EQ(told.second, 5);
  EXPECT_EQ(told.inner.text, "t");
}

TEST(FieldsTest, TwoStructsAreWalkedTogether) {
  const Inner a = {.text = "a"}, b = {.text = "b"};
  std::vector<std::string_view> different;
  ForEachField(a, b, [&](std::string_view name, const auto& of_a, const auto& of_b) {
    if (of_a != of_b) different.push_back(name);
  });
  EXPECT_THAT(different, ElementsAre("text"));
}

}  // namespace
}  // namespace quarry
