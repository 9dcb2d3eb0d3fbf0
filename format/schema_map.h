// Where the fields of a struct lie in a message of Cap'n Proto. The struct's declaration and the schema are the only
// lists of fields: MapOf matches them by name ("row_count" is rowCount), once for each struct, when it is first used.
// The names that differ, and the fields that only one of them has, stand in kExceptions (schema_map.cc); whatever else
// does not match is a fault that ends the program at once, so any test that writes or reads the struct finds it.
//
//   struct         schema
//   bool           Bool, also of the opposite meaning
//   number         the same
//   enum           UInt8, or the name as Text where the enum has names (EnumNames)
//   string         Text
//   bytes, an id   Data
//   vector         List
//   struct         a struct; or its fields lie among those of the struct around it
//   optional       a struct that may be null
//   variant        a union, the alternatives in the order of the members: a struct of no fields is Void, one of
//                  a single field is that field
//
// Private to this room.
#pragma once

#include <capnp/any.h>
#include <capnp/schema.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "quarry/base/fields.h"
#include "quarry/base/status.h"
#include "quarry/format/road_spec.h"

namespace quarry::format {

// The two sections of a struct in a message.
struct Target {
  explicit Target(capnp::AnyStruct::Builder out)
      : data(out.getDataSection()), pointers(out.getPointerSection()) {}
  kj::ArrayPtr<kj::byte> data;
  capnp::List<capnp::AnyPointer>::Builder pointers;
};
struct Source {
  explicit Source(capnp::AnyStruct::Reader in)
      : data(in.getDataSection()), pointers(in.getPointerSection()) {}
  kj::ArrayPtr<const kj::byte> data;
  capnp::List<capnp::AnyPointer>::Reader pointers;
};

// A field of a struct, or an alternative of a union, and its place in the schema's struct.
struct Slot {
  std::string name;                            // in C++; of an alternative: in the schema
  size_t member = 0;                           // bytes from the beginning of the struct to the field
  unsigned order = 0;                          // of its place in the schema's text
  capnp::schema::Type::Which type{};           // in the schema
  bool group = false;                          // a union that lies among the fields of the struct around it
  bool negated = false;                        // a Bool that means the opposite
  uint32_t at = 0;                             // in its section: in its own size, bits of a Bool, or pointers
  uint16_t data_words = 0, pointer_count = 0;  // of the struct that it is, or is a list of
  uint32_t union_at = 0;                       // where that struct says which alternative it has: in 2 bytes
  std::vector<Slot> slots;                     // of that struct's fields, or one for each alternative

  // Null for an alternative without a value. `field` is what `member` points to; more than `records_max` structs in
  // a list are refused.
  void (*write)(const void* field, const Slot& slot, Target& to) = nullptr;
  Status (*read)(const Source& from, const Slot& slot, uint64_t records_max, void* field) = nullptr;
};

template <typename T>
inline constexpr bool kIsVector = false;
template <typename T>
inline constexpr bool kIsVector<std::vector<T>> = true;
template <typename T>
inline constexpr bool kIsOptional = false;
template <typename T>
inline constexpr bool kIsOptional<std::optional<T>> = true;
template <typename T>
inline constexpr bool kIsVariant = false;
template <typename... T>
inline constexpr bool kIsVariant<std::variant<T...>> = true;
template <typename T>
inline constexpr bool kIsBytes =
    std::is_same_v<T, std::vector<std::byte>> || std::is_same_v<T, std::array<std::byte, 16>>;

// The schema's type of a T; of an element, for a list.
template <typename T>
constexpr capnp::schema::Type::Which TypeOf() {
  using capnp::schema::Type;
  if constexpr (std::is_enum_v<T>) {
    static_assert(sizeof(T) == 1, "an enum is a byte in the schema");
    return Type::UINT8;
  } else if constexpr (std::is_same_v<T, bool>) {
    return Type::BOOL;
  } else if constexpr (std::is_same_v<T, float>) {
    return Type::FLOAT32;
  } else if constexpr (std::is_same_v<T, double>) {
    return Type::FLOAT64;
  } else if constexpr (std::is_integral_v<T>) {
    constexpr Type::Which kSigned[] = {Type::INT8, Type::INT16, Type::INT32, Type::INT64};
    constexpr Type::Which kUnsigned[] = {Type::UINT8, Type::UINT16, Type::UINT32, Type::UINT64};
    constexpr size_t kLog = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
    return std::is_signed_v<T> ? kSigned[kLog] : kUnsigned[kLog];
  } else if constexpr (std::is_same_v<T, std::string>) {
    return Type::TEXT;
  } else if constexpr (kIsBytes<T>) {
    return Type::DATA;
  } else if constexpr (kIsVector<T>) {
    return Type::LIST;
  } else {
    static_assert(Record<T> || kIsOptional<T> || kIsVariant<T>, "no field of the schema is like this");
    return Type::STRUCT;
  }
}

// Makes maps, and collects what does not match.
class Mapper {
 public:
  // A slot that stands for a whole struct of the schema.
  template <typename T>
  Slot Root(capnp::StructSchema schema) {
    Slot root{.name = std::string(schema.getShortDisplayName().cStr()), .type = capnp::schema::Type::STRUCT};
    MapStruct<T>(schema, root);
    return root;
  }
  const std::vector<std::string>& faults() const { return faults_; }

  // The exceptions that there are, as "what is excepted: how", and those that were needed so far.
  static std::set<std::string> Exceptions();
  const std::set<std::string>& exceptions_used() const { return exceptions_used_; }

 private:
  // The struct `slot` points to, by its fields.
  template <typename T>
  void MapStruct(capnp::StructSchema schema, Slot& slot) {
    BeginStruct(schema, slot);
    if constexpr (kIsVariant<T>) {
      MapUnion<T>(schema, slot, std::make_index_sequence<std::variant_size_v<T>>());
    } else if constexpr (kIsOptional<T>) {
      MapStruct<typename T::value_type>(schema, slot);
    } else {
      std::vector<bool> found(schema.getFields().size());
      MapFields<T>(schema, std::string(TypeName<T>()), 0, found, slot.slots);
      EndStruct(schema, TypeName<T>(), found, slot);
    }
  }

  // A field of C++ type Field, and the place where it begins in the struct that is mapped.
  template <typename Field>
  struct Member {
    std::string_view name;
    std::string path;
    size_t at = 0;
  };
  // Visits the members of a T that begins at `base`.
  template <typename T, typename Visit>
  static void ForEachMember(const std::string& path, size_t base, const Visit& visit) {
    T example{};
    ForEachField(example, [&]<typename Field>(std::string_view name, Field& field) {
      const auto offset = reinterpret_cast<std::byte*>(&field) - reinterpret_cast<std::byte*>(&example);
      visit(Member<Field>{name, path + "." + std::string(name), base + static_cast<size_t>(offset)});
    });
  }

  // The fields of T, which begins at `base` of the struct that is mapped.
  template <typename T>
  void MapFields(capnp::StructSchema schema, const std::string& path, size_t base, std::vector<bool>& found,
                 std::vector<Slot>& slots) {
    ForEachMember<T>(path, base, [&]<typename Field>(const Member<Field>& member) {
      if constexpr (Record<Field>) {
        if (IsAmongFields(member.path)) {
          return MapFields<Field>(schema, member.path, member.at, found, slots);
        }
        MapOutside<Field>(schema, member.path, member.at, found, slots);
      }
      MapField(schema, member, found, slots);
    });
  }
  // Those fields of a struct's field that lie outside of it, in the struct around it.
  template <typename T>
  void MapOutside(capnp::StructSchema schema, const std::string& path, size_t base, std::vector<bool>& found,
                  std::vector<Slot>& slots) {
    ForEachMember<T>(path, base, [&]<typename Field>(const Member<Field>& member) {
      if (HasException(member.path)) MapField(schema, member, found, slots);
    });
  }
  template <typename Field>
  void MapField(capnp::StructSchema schema, const Member<Field>& member, std::vector<bool>& found,
                std::vector<Slot>& slots) {
    Slot slot{.name = std::string(member.name), .member = member.at};
    const auto in_schema = Find(schema, member.path, slot, found);
    if (!in_schema) return;
    MapValue<Field>(*in_schema, member.path, slot);
    slots.push_back(std::move(slot));
  }
  // What the schema's field is, for a field of type T.
  template <typename T>
  void MapValue(capnp::StructSchema::Field field, const std::string& path, Slot& slot);

  template <typename T, size_t... I>
  void MapUnion(capnp::StructSchema schema, Slot& slot, std::index_sequence<I...>) {
    const auto members = schema.getUnionFields();
    if (!CheckUnion(schema, sizeof...(I))) return;
    slot.slots.resize(sizeof...(I));
    (MapAlternative<std::variant_alternative_t<I, T>>(schema, members[I], slot.slots[I]), ...);
  }
  template <typename T>
  void MapAlternative(capnp::StructSchema schema, capnp::StructSchema::Field member, Slot& slot) {
    slot.name = member.getProto().getName().cStr();
    const std::string path = std::string(schema.getShortDisplayName().cStr()) + "." + slot.name;
    if constexpr (Record<T>) {
      CheckAlternative(path, slot.name, TypeName<T>());
      if constexpr (kFieldCount<T> == 0) {
        return CheckType(member, path, capnp::schema::Type::VOID, false, slot);
      } else if constexpr (kFieldCount<T> == 1) {
        return MapValue<
            std::remove_reference_t<std::tuple_element_t<0, decltype(Fields(std::declval<T&>()))>>>(
            member, path, slot);
      }
    }
    MapValue<T>(member, path, slot);
  }

  static bool HasException(std::string_view path);
  bool IsAmongFields(std::string_view path);
  void BeginStruct(capnp::StructSchema schema, Slot& slot);
  void EndStruct(capnp::StructSchema schema, std::string_view type, const std::vector<bool>& found,
                 Slot& slot);
  std::optional<capnp::StructSchema::Field> Find(capnp::StructSchema schema, const std::string& path,
                                                 Slot& slot, std::vector<bool>& found);
  bool CheckUnion(capnp::StructSchema schema, size_t alternatives);
  void CheckAlternative(std::string_view path, std::string_view member, std::string_view type);
  void CheckType(capnp::StructSchema::Field field, std::string_view path, capnp::schema::Type::Which type,
                 bool text_too, Slot& slot);
  bool CheckElement(capnp::StructSchema::Field field, std::string_view path, capnp::schema::Type::Which type);

  std::vector<std::string> faults_;
  std::set<std::string> exceptions_used_;
};

// Ends the program when the map has faults: the struct and the schema are ours.
void RequireNoFaults(const Mapper& mapper);

// The map of T to the schema's struct S.
template <typename S, typename T>
const Slot& MapOf() {
  static const Slot map = [] {
    Mapper mapper;
    Slot root = mapper.Root<T>(capnp::Schema::from<S>());
    RequireNoFaults(mapper);
    return root;
  }();
  return map;
}

}  // namespace quarry::format
