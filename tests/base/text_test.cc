#include "quarry/base/text.h"

#include <gtest/gtest.h>

namespace quarry {
namespace {

TEST(PrintableTest, OrdinaryTextStaysAsItIs) {
  for (const std::string_view text :
       {"", "plain", "back\\slash \"and\" quotes", "a\tb", "\u00e9\u65e5\U0001f600", "\u00a0"}) {
    EXPECT_EQ(Printable(text), text);
  }
}

TEST(PrintableTest, WhatATerminalWouldObeyIsEscaped) {
  EXPECT_EQ(Printable("\x1b[2J\x07"), "\\u001b[2J\\u0007");
  EXPECT_EQ(Printable("a\x7f"), "a\\u007f");
  EXPECT_EQ(Printable("\u009b31m\u0080\u009f"), "\\u009b31m\\u0080\\u009f");
  EXPECT_EQ(Printable("\u202aa\u202e\u2066b\u2069"), "\\u202aa\\u202e\\u2066b\\u2069");
  EXPECT_EQ(Printable("\u2028\u2029"), "\\u2028\\u2029");
  EXPECT_EQ(Printable("\u2027\u202f\u2065\u206a"), "\u2027\u202f\u2065\u206a") << "their neighbors";
  EXPECT_EQ(Printable(std::string_view("a\0b", 3)), "a\\u0000b");
}

TEST(PrintableTest, LinesAreKeptWhereTheyAreAskedFor) {
  EXPECT_EQ(Printable("a\nb\r"), "a\\u000ab\\u000d");
  EXPECT_EQ(Printable("a\nb\r", LineEnds::kKeep), "a\nb\\u000d");
}

TEST(PrintableTest, BytesThatAreNoUtf8AreEscapedOneByOne) {
  EXPECT_EQ(Printable("\xff\xc3("), "\\xff\\xc3(");
  EXPECT_EQ(Printable("\xe2\x80"), "\\xe2\\x80") << "cut off";
  EXPECT_EQ(Printable("\x9b"), "\\x9b") << "C1 as one byte";
  EXPECT_EQ(Printable("\xc0\x9b"), "\\xc0\\x9b") << "longer than need be";
  EXPECT_EQ(Printable("\xe0\x82\x9b"), "\\xe0\\x82\\x9b");
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "half a surrogate pair";
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond the last code point";
}

}  // namespace
}  // namespace quarry
