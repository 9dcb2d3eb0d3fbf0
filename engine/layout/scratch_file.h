// A scratch file that is gone with its owner. Private to this room.
#pragma once

#include <string>

#include "quarry/io/backend.h"

namespace quarry {

class ScratchFile {
 public:
  ScratchFile(IoBackend& backend, std::string path) : backend_(backend), path_(std::move(path)) {}
  ~ScratchFile() { Remove(); }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  const std::string& path() const { return path_; }
  // Once it is open its name is needed no more: so nothing is left of it however the process ends.
  void Remove() const { Discard(backend_, path_); }

 private:
  IoBackend& backend_;
  const std::string path_;
};

}  // namespace quarry
