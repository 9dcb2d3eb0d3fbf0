// Structs to messages of Cap'n Proto and back, by their maps (schema_map.h): one template each way for each type of
// field. What was read may be anything: ranges, names and lengths are the rules of whoever reads.
//
// Private to this room.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>

#include "capnp_bytes.h"
#include "schema_map.h"

namespace quarry::format {

static_assert(std::endian::native == std::endian::little,
              "messages are little-endian, and so is the machine");

// ---- to messages

template <typename Number>
void SetNumber(Target& to, uint32_t at, Number value) {
  std::memcpy(to.data.begin() + size_t{at} * sizeof(Number), &value, sizeof(Number));
}

inline void WriteSlots(const void* record, const Slot& slot, Target& to) {
  for (const Slot& field : slot.slots) {
    field.write(static_cast<const std::byte*>(record) + field.member, field, to);
  }
}

// The value of a struct or a union into the struct `to`.
template <typename T>
void WriteStruct(const T& value, const Slot& slot, Target& to) {
  if constexpr (kIsVariant<T>) {
    SetNumber<uint16_t>(to, slot.union_at, static_cast<uint16_t>(value.index()));
    const Slot& alternative = slot.slots[value.index()];
    if (alternative.write == nullptr) return;
    std::visit([&](const auto& chosen) { alternative.write(&chosen, alternative, to); }, value);
  } else {
    WriteSlots(&value, slot, to);
  }
}

template <typename T>
void WriteList(const std::vector<T>& values, const Slot& slot, capnp::AnyPointer::Builder out) {
  const auto count = static_cast<unsigned>(values.size());
  if constexpr (std::is_same_v<T, std::string>) {
    auto list = out.initAs<capnp::List<capnp::Text>>(count);
    for (unsigned i = 0; i < count; ++i) list.set(i, ToText(values[i]));
  } else if constexpr (std::is_arithmetic_v<T>) {
    auto list = out.initAs<capnp::List<T>>(count);
    for (unsigned i = 0; i < count; ++i) list.set(i, values[i]);
  } else {
    auto list = out.initAsListOfAnyStruct(slot.data_words, slot.pointer_count, count);
    for (unsigned i = 0; i < count; ++i) {
      Target element(list[i]);
      WriteStruct(values[i], slot, element);
    }
  }
}

template <typename T>
void WriteField(const T& value, const Slot& slot, Target& to) {
  if constexpr (std::is_same_v<T, bool>) {
    const auto bit = static_cast<kj::byte>(1U << slot.at % 8);
    if (value != slot.negated) to.data[slot.at / 8] |= bit;
  } else if constexpr (std::is_enum_v<T>) {
    if constexpr (NamedEnum<T>) {
      if (slot.type == capnp::schema::Type::TEXT)
        return to.pointers[slot.at].template setAs<capnp::Text>(ToText(ToText(value)));
    }
    SetNumber(to, slot.at, static_cast<uint8_t>(value));
  } else if constexpr (std::is_arithmetic_v<T>) {
    SetNumber(to, slot.at, value);
  } else if constexpr (std::is_same_v<T, std::string>) {
    to.pointers[slot.at].template setAs<capnp::Text>(ToText(value));
  } else if constexpr (kIsBytes<T>) {
    to.pointers[slot.at].template setAs<capnp::Data>(
        {reinterpret_cast<const capnp::byte*>(value.data()), value.size()});
  } else if constexpr (kIsVector<T>) {
    WriteList(value, slot, to.pointers[slot.at]);
  } else if constexpr (kIsOptional<T>) {
    if (value) WriteField(*value, slot, to);
  } else if (slot.group) {
    WriteStruct(value, slot, to);
  } else {
    Target inner(to.pointers[slot.at].initAsAnyStruct(slot.data_words, slot.pointer_count));
    WriteStruct(value, slot, inner);
  }
}

// ---- and back. What a message does not have is zero, empty or null.

template <typename Number>
Number GetNumber(const Source& from, uint32_t at) {
  Number value{};
  if ((size_t{at} + 1) * sizeof(Number) <= from.data.size()) {
    std::memcpy(&value, from.data.begin() + size_t{at} * sizeof(Number), sizeof(Number));
  }
  return value;
}

inline capnp::AnyPointer::Reader GetPointer(const Source& from, uint32_t at) {
  return at < from.pointers.size() ? from.pointers[at] : capnp::AnyPointer::Reader();
}

inline Status ReadSlots(const Source& from, const Slot& slot, uint64_t records_max, void* record) {
  for (const Slot& field : slot.slots) {
    QUARRY_RETURN_IF_ERROR(
        field.read(from, field, records_max, static_cast<std::byte*>(record) + field.member));
  }
  return Status();
}

template <size_t I = 0, typename... T>
void Emplace(size_t index, std::variant<T...>& out) {
  if constexpr (I < sizeof...(T)) {
    if (index == I) {
      out.template emplace<I>();
    } else {
      Emplace<I + 1>(index, out);
    }
  }
}

template <typename T>
Status ReadStruct(const Source& from, const Slot& slot, uint64_t records_max, T& out) {
  if constexpr (kIsVariant<T>) {
    const auto index = GetNumber<uint16_t>(from, slot.union_at);
    if (index >= slot.slots.size()) {
      return MakeStatus(Code::kUnsupported, "{} of kind {}, which this Quarry does not know", slot.name,
                        index);
    }
    Emplace(index, out);
    const Slot& alternative = slot.slots[index];
    if (alternative.read == nullptr) return Status();
    return std::visit([&](auto& chosen) { return alternative.read(from, alternative, records_max, &chosen); },
                      out);
  } else {
    return ReadSlots(from, slot, records_max, &out);
  }
}

// Texts of a list, whose strings take four times the memory of a message with empty ones: more than any message has.
inline constexpr uint64_t kTextsMax = uint64_t{1} << 16;

template <typename T>
Status ReadList(capnp::AnyPointer::Reader in, const Slot& slot, uint64_t records_max, std::vector<T>& out) {
  if constexpr (std::is_same_v<T, std::string>) {
    const auto list = in.getAs<capnp::List<capnp::Text>>();
    if (list.size() > kTextsMax) {
      return MakeStatus(Code::kInvalidArgument, "{} {}; the limit is {}", list.size(), slot.name, kTextsMax);
    }
    out.clear();
    out.reserve(list.size());
    for (const auto text : list) out.push_back(ToString(text));
  } else if constexpr (std::is_arithmetic_v<T>) {
    const auto list = in.getAs<capnp::List<T>>();
    out.resize(list.size());
    for (unsigned i = 0; i < list.size(); ++i) out[i] = list[i];
  } else {
    // Structs may take more memory than their messages, even without any bytes: refused before memory is taken.
    const auto any = in.getAs<capnp::AnyList>();
    if (any.getElementSize() == capnp::ElementSize::BIT) {
      return MakeStatus(Code::kInvalidArgument, "{} are bits instead of records", slot.name);
    }
    const auto list = any.template as<capnp::List<capnp::AnyStruct>>();
    if (list.size() > records_max) {
      return MakeStatus(Code::kInvalidArgument, "{} {}; the limit is {}", list.size(), slot.name,
                        records_max);
    }
    out.resize(list.size());
    for (unsigned i = 0; i < list.size(); ++i) {
      const Status status = ReadStruct(Source(list[i]), slot, records_max, out[i]);
      if (!status.ok()) return MakeStatus(status.code(), "{}[{}]: {}", slot.name, i, status.message());
    }
  }
  return Status();
}

template <typename T>
Status ReadField(const Source& from, const Slot& slot, uint64_t records_max, T& out) {
  if constexpr (std::is_same_v<T, bool>) {
    const bool set = slot.at / 8 < from.data.size() && (from.data[slot.at / 8] >> slot.at % 8 & 1) != 0;
    out = set != slot.negated;
  } else if constexpr (std::is_enum_v<T>) {
    if constexpr (NamedEnum<T>) {
      if (slot.type == capnp::schema::Type::TEXT)
        return FromText(GetPointer(from, slot.at).getAs<capnp::Text>(), out);
    }
    out = static_cast<T>(GetNumber<uint8_t>(from, slot.at));
  } else if constexpr (std::is_arithmetic_v<T>) {
    out = GetNumber<T>(from, slot.at);
  } else if constexpr (std::is_same_v<T, std::string>) {
    const auto text = GetPointer(from, slot.at).getAs<capnp::Text>();
    out.assign(text.begin(), text.size());
  } else if constexpr (kIsBytes<T>) {
    const auto data = GetPointer(from, slot.at).getAs<capnp::Data>();
    if constexpr (kIsVector<T>) out.resize(data.size());
    if (data.size() != out.size()) {
      return MakeStatus(Code::kInvalidArgument, "{} of {} bytes instead of {}", slot.name, data.size(),
                        out.size());
    }
    if (data.size() > 0) std::memcpy(out.data(), data.begin(), data.size());
  } else if constexpr (kIsVector<T>) {
    return ReadList(GetPointer(from, slot.at), slot, records_max, out);
  } else if constexpr (kIsOptional<T>) {
    out.reset();
    if (!GetPointer(from, slot.at).isNull()) return ReadField(from, slot, records_max, out.emplace());
  } else if (slot.group) {
    return ReadStruct(from, slot, records_max, out);
  } else {
    return ReadStruct(Source(GetPointer(from, slot.at).getAs<capnp::AnyStruct>()), slot, records_max, out);
  }
  return Status();
}

// ---- how maps find the two

template <typename T>
void Mapper::MapValue(capnp::StructSchema::Field field, const std::string& path, Slot& slot) {
  CheckType(field, path, TypeOf<T>(), NamedEnum<T>, slot);
  slot.write = [](const void* value, const Slot& of, Target& to) {
    WriteField(*static_cast<const T*>(value), of, to);
  };
  slot.read = [](const Source& from, const Slot& of, uint64_t records_max, void* out) {
    return ReadField(from, of, records_max, *static_cast<T*>(out));
  };
  if constexpr (TypeOf<T>() == capnp::schema::Type::STRUCT) {
    if (slot.type == capnp::schema::Type::STRUCT) MapStruct<T>(field.getType().asStruct(), slot);
  } else if constexpr (kIsVector<T> && !kIsBytes<T>) {
    using Element = typename T::value_type;
    const bool right = CheckElement(field, path, TypeOf<Element>());
    if constexpr (TypeOf<Element>() == capnp::schema::Type::STRUCT) {
      if (right) MapStruct<Element>(field.getType().asList().getStructElementType(), slot);
    }
  }
}

// ---- the two for whole messages

template <typename S, typename T>
void WriteRoot(const T& value, typename S::Builder out) {
  Target to{capnp::AnyStruct::Builder(kj::mv(out))};
  WriteStruct(value, MapOf<S, T>(), to);
}

// kInvalidArgument for more than `records_max` structs in a list and for an id of another size; kUnsupported for
// a name or a kind that this Quarry does not know.
template <typename S, typename T>
Status ReadRoot(typename S::Reader in, uint64_t records_max, T& out) {
  return ReadStruct(Source(capnp::AnyStruct::Reader(in)), MapOf<S, T>(), records_max, out);
}

}  // namespace quarry::format
