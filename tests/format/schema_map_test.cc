// Structs and the schema are two lists of the same fields; a field that only one of them has is found.
#include "schema_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "metadata.capnp.h"
#include "quarry/format/manifest.h"
#include "quarry/format/superblock.h"
#include "quarry/format/wire.h"
#include "schema_codec.h"
#include "wire.capnp.h"

namespace quarry::format {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Structs for parts of the real schema, each with a fault.
namespace planted {

struct Counter {  // lacks value
  std::string name;
};
struct Lease {  // has more
  uint64_t id = 0;
  wire::Range range;
  uint64_t expires_utc = 0;
};
struct SqlColumn {  // calls hidden otherwise
  std::string name, type;
  bool invisible = false;
};
struct Region {  // has a number of another size
  uint32_t id = 0;
  uint32_t bytes = 0;
  wire::RegionAccess access = wire::RegionAccess::kClientReads;
};
struct Edges {  // has a payload without leases
  uint64_t edges = 0;
  std::variant<std::vector<std::byte>> payload;
  uint64_t list = 0;
};
struct TraceLayout {  // lists other numbers
  std::string name;
  std::vector<uint32_t> cache_bytes;
};
using Bulk = std::variant<std::vector<std::byte>, wire::Lease>;  // a lease instead of a range

}  // namespace planted

template <typename S, typename T>
std::vector<std::string> FaultsOf() {
  Mapper mapper;
  mapper.Root<T>(capnp::Schema::from<S>());
  return mapper.faults();
}

TEST(SchemaMapTest, AFieldThatOnlyOneOfThemHasIsAFault) {
  EXPECT_THAT((FaultsOf<wire::schema::Counter, planted::Counter>()),
              ElementsAre("Counter.value of the schema is no field of struct Counter"));
  EXPECT_THAT((FaultsOf<wire::schema::Lease, planted::Lease>()),
              ElementsAre("Lease.expires_utc has no field expiresUtc in the schema's Lease"));
  EXPECT_THAT((FaultsOf<wire::schema::SqlColumn, planted::SqlColumn>()),
              ElementsAre("SqlColumn.invisible has no field invisible in the schema's SqlColumn",
                          "SqlColumn.hidden of the schema is no field of struct SqlColumn"));
}

TEST(SchemaMapTest, AFieldOfAnotherTypeIsAFault) {
  using capnp::schema::Type;
  EXPECT_THAT((FaultsOf<wire::schema::Region, planted::Region>()),
              ElementsAre(fmt::format("Region.bytes has another type in the schema: {} instead of {}",
                                      static_cast<int>(Type::UINT64), static_cast<int>(Type::UINT32))));
  EXPECT_THAT(
      (FaultsOf<wire::schema::TraceLayout, planted::TraceLayout>()),
      ElementsAre(fmt::format("TraceLayout.cache_bytes is a list of another type in the schema: {} instead "
                              "of {}",
                              static_cast<int>(Type::UINT64), static_cast<int>(Type::UINT32))));
}

TEST(SchemaMapTest, AUnionOfOtherAlternativesIsAFault) {
  EXPECT_THAT(
      (FaultsOf<wire::schema::Edges, planted::Edges>()),
      ElementsAre("Payload of the schema has a union of 2 members, and 0 other fields; the variant has 1"));
  EXPECT_THAT((FaultsOf<wire::schema::Bulk, planted::Bulk>()),
              testing::Contains("Bulk.range of the schema stands where the variant has Lease"));
}

TEST(SchemaMapDeathTest, AFaultEndsTheProgramThatUsesTheMap) {
  EXPECT_DEATH((MapOf<wire::schema::Counter, planted::Counter>()),
               "Counter.value of the schema is no field of struct Counter");
}

TEST(SchemaMapTest, EverythingThatIsStoredOrSentMatchesAndNoExceptionIsLeftOver) {
  Mapper mapper;
  mapper.Root<Manifest>(capnp::Schema::from<schema::Manifest>());
  mapper.Root<Footer>(capnp::Schema::from<schema::Footer>());
  mapper.Root<wire::Request>(capnp::Schema::from<wire::schema::Request>());
  mapper.Root<wire::Response>(capnp::Schema::from<wire::schema::Response>());
  EXPECT_THAT(mapper.faults(), IsEmpty());
  EXPECT_EQ(mapper.exceptions_used(), Mapper::Exceptions());
}

// A reader of another version: a field that the message's struct is too short for is zero.
TEST(SchemaMapTest, WhatAShorterMessageDoesNotHaveIsZero) {
  capnp::MallocMessageBuilder message;
  auto out = message.initRoot<capnp::AnyPointer>().initAsAnyStruct(1, 0);  // an id alone
  out.getDataSection()[0] = 7;
  wire::SessionStatus session = {.id = 1, .pid = 2, .seconds = 3, .requests = 4};
  ASSERT_TRUE(
      (ReadRoot<wire::schema::SessionStatus>(out.asReader().as<wire::schema::SessionStatus>(), 10, session))
          .ok());
  EXPECT_EQ(session, (wire::SessionStatus{.id = 7}));
  wire::SqlTable table = {.name = "t", .columns = {{.name = "c"}}};
  ASSERT_TRUE(
      (ReadRoot<wire::schema::SqlTable>(out.asReader().as<wire::schema::SqlTable>(), 10, table)).ok());
  EXPECT_EQ(table, wire::SqlTable());
}

// Lists that take more memory than the message that holds them are refused before it is taken.
TEST(SchemaMapTest, ListsThatGrowAsTheyAreReadAreRefused) {
  capnp::MallocMessageBuilder message;
  auto out = message.initRoot<capnp::AnyPointer>().initAsAnyStruct(0, 2);
  const auto read = [&] {
    wire::SqlTable table;
    return ReadRoot<wire::schema::SqlTable>(out.asReader().as<wire::schema::SqlTable>(), 10, table);
  };
  out.getPointerSection()[1].initAs<capnp::List<bool>>(8);
  EXPECT_EQ(read().code(), Code::kInvalidArgument) << "bits where columns belong";
  out.getPointerSection()[1].initAs<capnp::List<wire::schema::SqlColumn>>(11);
  EXPECT_EQ(read().code(), Code::kInvalidArgument) << "more than ten columns";
  auto statement = message.initRoot<capnp::AnyPointer>().initAs<wire::schema::Statement>();
  statement.initColumns((1 << 16) + 1);
  wire::Statement texts;
  EXPECT_EQ(ReadRoot<wire::schema::Statement>(statement.asReader(), 10, texts).code(),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace quarry::format
