#include "schema_map.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <span>

namespace quarry::format {
namespace {

using capnp::schema::Type;

constexpr std::string_view kNone = "";          // the schema does not have it
constexpr std::string_view kAmongFields = "*";  // its fields lie among those of the struct around it

// Fields that are called otherwise in the schema; "!" before the name: the opposite. A field of a field lies in the
// struct around them.
struct Exception {
  std::string_view path;
  std::string_view name;
};
constexpr Exception kExceptions[] = {
    {"DeviceRecord.core", kAmongFields},
    {"LayoutRecord.spec", kAmongFields},
    {"LayoutRecord.spec.feature_table", "table"},
    {"LayoutRecord.share", kAmongFields},
    {"LayoutInfo.spec", kAmongFields},
    {"LayoutInfo.spec.feature_table", "table"},
    {"LayoutInfo.spec.cache_bytes", kNone},
    {"CreateEmbeddings.spec", kAmongFields},
    {"RoadSpec.seed_order", kNone},  // only what is planned has one:
    {"SuperbatchSpec.live.seed_order", "seedOrder"},
    {"BuildLayout.road", "live"},
    {"BuildLayout.road.seed_order", "seedOrder"},
    {"Put.sync", "!unsynced"},
    {"ReadTraining.with_state", "!withoutState"},
};

// Fields of the schema that no struct has.
constexpr Exception kSchemaOnly[] = {
    {"Hello", "magic"},  // always the same
    {"Welcome", "magic"},
    {"LayoutInfo", "gpuCacheRows"},  // of older versions, and so are the following
    {"LayoutRecord", "gpuCacheRows"},
    {"LayoutRecord", "gpuHits"},
};

// Alternatives whose names do not begin as the union's members are called.
constexpr Exception kAlternatives[] = {
    {"RoadSpec", "live"},
    {"PlannedSpec", "planned"},
    {"SuperbatchSpec", "superbatch"},
    {"MaintenanceReport", "maintained"},
};

std::string Shown(const Exception& exception) {
  return fmt::format("{}: {}", exception.path, exception.name);
}

const Exception* FindException(std::span<const Exception> exceptions, std::string_view path) {
  const auto found = std::ranges::find(exceptions, path, &Exception::path);
  return found == exceptions.end() ? nullptr : &*found;
}

// "row_count" as "rowCount".
std::string CamelCase(std::string_view name) {
  std::string camel;
  bool upper = false;
  for (const char c : name) {
    if (c != '_') camel += upper ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    upper = c == '_';
  }
  return camel;
}

bool SameLetters(char a, char b) {
  return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
}

bool IsZero(capnp::schema::Value::Reader value) {
  using capnp::schema::Value;
  switch (value.which()) {
    case Value::BOOL:
      return !value.getBool();
    case Value::INT8:
      return value.getInt8() == 0;
    case Value::INT16:
      return value.getInt16() == 0;
    case Value::INT32:
      return value.getInt32() == 0;
    case Value::INT64:
      return value.getInt64() == 0;
    case Value::TEXT:
      return value.getText().size() == 0;
    case Value::DATA:
      return value.getData().size() == 0;
    case Value::ENUM:
      return value.getEnum() == 0;
    case Value::UINT8:
      return value.getUint8() == 0;
    case Value::UINT16:
      return value.getUint16() == 0;
    case Value::UINT32:
      return value.getUint32() == 0;
    case Value::UINT64:
      return value.getUint64() == 0;
    case Value::FLOAT32:
      return value.getFloat32() == 0;
    case Value::FLOAT64:
      return value.getFloat64() == 0;
    default:
      return true;
  }
}

}  // namespace

bool Mapper::HasException(std::string_view path) { return FindException(kExceptions, path) != nullptr; }
bool Mapper::IsAmongFields(std::string_view path) {
  const Exception* const exception = FindException(kExceptions, path);
  if (exception == nullptr || exception->name != kAmongFields) return false;
  exceptions_used_.insert(Shown(*exception));
  return true;
}

std::set<std::string> Mapper::Exceptions() {
  std::set<std::string> all;
  for (const std::span<const Exception> some :
       {std::span<const Exception>(kExceptions), std::span<const Exception>(kSchemaOnly),
        std::span<const Exception>(kAlternatives)}) {
    for (const Exception& exception : some) all.insert(Shown(exception));
  }
  return all;
}

void Mapper::BeginStruct(capnp::StructSchema schema, Slot& slot) {
  const auto proto = schema.getProto().getStruct();
  slot.data_words = proto.getDataWordCount();
  slot.pointer_count = proto.getPointerCount();
  slot.union_at = proto.getDiscriminantOffset();
}

// Messages are written in the order of the schema's text, whatever the order of the struct.
void Mapper::EndStruct(capnp::StructSchema schema, std::string_view type, const std::vector<bool>& found,
                       Slot& slot) {
  for (const auto field : schema.getFields()) {
    if (found[field.getIndex()]) continue;
    const std::string_view name = field.getProto().getName().cStr();
    const auto known = std::ranges::find_if(
        kSchemaOnly, [&](const Exception& only) { return only.path == type && only.name == name; });
    if (known != std::end(kSchemaOnly)) {
      exceptions_used_.insert(Shown(*known));
      continue;
    }
    faults_.push_back(fmt::format("{}.{} of the schema is no field of struct {}",
                                  schema.getShortDisplayName().cStr(), name, type));
  }
  std::ranges::sort(slot.slots, {}, &Slot::order);
}

std::optional<capnp::StructSchema::Field> Mapper::Find(capnp::StructSchema schema, const std::string& path,
                                                       Slot& slot, std::vector<bool>& found) {
  const Exception* const exception = FindException(kExceptions, path);
  if (exception != nullptr) exceptions_used_.insert(Shown(*exception));
  if (exception != nullptr && exception->name == kNone) return std::nullopt;
  std::string name = exception != nullptr ? std::string(exception->name) : CamelCase(slot.name);
  slot.negated = name.starts_with('!');
  if (slot.negated) name.erase(0, 1);
  KJ_IF_MAYBE (field, schema.findFieldByName(name)) {
    slot.order = field->getProto().getCodeOrder();
    if (found[field->getIndex()]) faults_.push_back(fmt::format("{} is a second field for {}", path, name));
    found[field->getIndex()] = true;
    return *field;
  }
  faults_.push_back(
      fmt::format("{} has no field {} in the schema's {}", path, name, schema.getShortDisplayName().cStr()));
  return std::nullopt;
}

bool Mapper::CheckUnion(capnp::StructSchema schema, size_t alternatives) {
  const size_t members = schema.getUnionFields().size();
  if (members == alternatives && schema.getNonUnionFields().size() == 0) return true;
  faults_.push_back(fmt::format(
      "{} of the schema has a union of {} members, and {} other fields; the variant has {}",
      schema.getShortDisplayName().cStr(), members, schema.getNonUnionFields().size(), alternatives));
  return false;
}

void Mapper::CheckAlternative(std::string_view path, std::string_view member, std::string_view type) {
  const Exception* const exception = FindException(kAlternatives, type);
  if (exception != nullptr && exception->name == member) {
    exceptions_used_.insert(Shown(*exception));
    return;
  }
  if (type.size() >= member.size() && std::ranges::equal(member, type.substr(0, member.size()), SameLetters))
    return;
  faults_.push_back(fmt::format("{} of the schema stands where the variant has {}", path, type));
}

void Mapper::CheckType(capnp::StructSchema::Field field, std::string_view path, Type::Which type,
                       bool text_too, Slot& slot) {
  slot.type = field.getType().which();
  slot.group = field.getProto().isGroup();
  if (slot.type != type && !(text_too && slot.type == Type::TEXT)) {
    faults_.push_back(fmt::format("{} has another type in the schema: {} instead of {}", path,
                                  static_cast<int>(slot.type), static_cast<int>(type)));
  }
  if (slot.group) return;
  slot.at = field.getProto().getSlot().getOffset();
  if (!IsZero(field.getProto().getSlot().getDefaultValue())) {
    faults_.push_back(fmt::format("{} has a default in the schema that is not zero", path));
  }
}

bool Mapper::CheckElement(capnp::StructSchema::Field field, std::string_view path, Type::Which type) {
  if (field.getType().which() != Type::LIST) return false;
  const Type::Which there = field.getType().asList().getElementType().which();
  if (there == type) return true;
  faults_.push_back(fmt::format("{} is a list of another type in the schema: {} instead of {}", path,
                                static_cast<int>(there), static_cast<int>(type)));
  return false;
}

void RequireNoFaults(const Mapper& mapper) {
  if (mapper.faults().empty()) return;
  std::fputs(fmt::format("{}\n", fmt::join(mapper.faults(), "\n")).c_str(), stderr);
  std::abort();
}

}  // namespace quarry::format
