// Files that hold several arrays by name: .npz, .safetensors and torch's .pt. Private to this room.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "npy_reader.h"
#include "quarry/base/status.h"

namespace quarry {

// What an array holds is looked at when it is opened, so those that nobody asks for may hold anything.
struct ArrayArchive {
  struct Member {
    std::string key;  // in an .npz without ".npy"
    std::function<Result<NpyArray>()> open;
  };
  std::string path;
  std::vector<Member> members;
  bool Has(std::string_view key) const;
  // The first of `keys` that it has; empty when none.
  std::string FirstOf(const std::vector<std::string>& keys) const;
  // kInvalidArgument lists the keys there are.
  Result<NpyArray> Open(std::string_view key) const;
};

// By the name's end, .npz, .safetensors or .pt.
bool IsArrayArchive(const std::string& path);
// REQUIRES: IsArrayArchive(path).
Result<ArrayArchive> OpenArrayArchive(const std::string& path);

Result<ArrayArchive> OpenNpz(const std::string& path);
// https://huggingface.co/docs/safetensors: the length of the header (u64), the header (a JSON object), the
// data.
//   {"x": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ..., "__metadata__": {...}}
// Refuses a header that is longer than 1 MiB, and tensors that lie beyond the file or within each other.
Result<ArrayArchive> OpenSafetensors(const std::string& path);
// What torch.save makes of a dict of names to NumPy arrays, tensors, lists of integers and integers, as zip
// archive and as torch before 1.6 wrote it. Nothing is run: see pickle_reader.h. Elements stay in the file.
Result<ArrayArchive> OpenTorchFile(const std::string& path);

}  // namespace quarry
