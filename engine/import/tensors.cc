#include "quarry/import/tensors.h"

#include "array_archive.h"
#include "npy_reader.h"
#include "quarry/base/units.h"

namespace quarry {

Result<std::vector<NamedTensor>> ReadTensors(const std::string& path, uint64_t bytes_max) {
  if (!path.ends_with(".safetensors")) {
    return MakeStatus(Code::kInvalidArgument, "{}: weights are read from .safetensors; give such a file",
                      path);
  }
  QUARRY_TRY(const ArrayArchive archive, OpenSafetensors(path));
  std::vector<NpyArray> arrays;
  uint64_t bytes = 0;
  for (const ArrayArchive::Member& member : archive.members) {
    QUARRY_TRY(NpyArray array, member.open());
    bytes += array.header.items * sizeof(float);
    arrays.push_back(std::move(array));
    if (bytes <= bytes_max) continue;
    return MakeStatus(Code::kOutOfBudget,
                      "{}: its tensors take {} and more as floats, and there is room for {}", path,
                      FormatBytes(bytes), FormatBytes(bytes_max));
  }
  std::vector<NamedTensor> tensors;
  for (size_t i = 0; i < arrays.size(); i++) {
    QUARRY_TRY(const std::unique_ptr<FloatCursor> cursor, FloatCursor::Open(arrays[i]));
    NamedTensor tensor{.name = archive.members[i].key, .shape = arrays[i].header.shape, .values = {}};
    tensor.values.resize(arrays[i].header.items);
    for (size_t done = 0; done < tensor.values.size();) {
      QUARRY_TRY(const size_t count, cursor->Read(std::span(tensor.values).subspan(done)));
      if (count == 0) return MakeStatus(Code::kIoError, "{}: ends early", arrays[i].name);
      done += count;
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace quarry
