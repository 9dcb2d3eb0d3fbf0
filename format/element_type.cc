#include "quarry/format/element_type.h"

#include <array>
#include <cassert>

#include "quarry/base/units.h"

namespace quarry {
namespace {

struct TypeInfo {
  ElementType type;
  std::string_view name;
  uint8_t bytes;
};
constexpr std::array<TypeInfo, 7> kTypes = {{
    {ElementType::kFloat32, "float32", 4},
    {ElementType::kFloat16, "float16", 2},
    {ElementType::kBfloat16, "bfloat16", 2},
    {ElementType::kInt8, "int8", 1},
    {ElementType::kUint8, "uint8", 1},
    {ElementType::kInt32, "int32", 4},
    {ElementType::kInt64, "int64", 8},
}};
static_assert(kTypes[0].type == ElementType{1} && kTypes[6].type == ElementType{7} && IsElementType(7));

const TypeInfo& InfoOf(ElementType type) {
  assert(IsElementType(static_cast<uint8_t>(type)));
  return kTypes[static_cast<size_t>(type) - 1];
}

}  // namespace

std::string_view ElementTypeName(ElementType type) { return InfoOf(type).name; }

Result<ElementType> ParseElementType(std::string_view name) {
  for (const TypeInfo& info : kTypes) {
    if (info.name == name) return info.type;
  }
  return MakeStatus(Code::kUsage,
                    "\"{}\" is no element type: one of float32, float16, bfloat16, int8, uint8, int32, int64",
                    name);
}

size_t ElementBytes(ElementType type) { return InfoOf(type).bytes; }

uint64_t RowBytes(ElementType type, uint64_t dim) {
  if (type == ElementType::kInt8) return RoundUp(dim, 4) + sizeof(float);
  return dim * ElementBytes(type);
}

}  // namespace quarry
