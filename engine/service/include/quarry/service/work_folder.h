// WorkFolder: a folder under construction beside its place, `<target><suffix>`.
//
//   (nothing or leftover) -> locked, empty [Make] -> target [Publish] ; else -> gone [destructor]
//
// Locked, so that two processes cannot build the same one and a leftover of a killed one can be told from a
// live one. One thread.
#pragma once

#include <string>
#include <string_view>

#include "quarry/base/status.h"
#include "quarry/io/backend.h"

namespace quarry {

class WorkFolder {
 public:
  // `command`: "`quarry generate`", for messages. kAlreadyExists when `path` is there, kBusy while another
  // process builds it, kIoError.
  static Result<WorkFolder> Make(IoBackend& backend, const std::string& path, std::string_view suffix,
                                 std::string_view command);
  WorkFolder(WorkFolder&&) = default;
  WorkFolder& operator=(WorkFolder&&) = delete;
  ~WorkFolder();

  const std::string& path() const { return lock_.path(); }
  // Renames it to its place. REQUIRES: what is in it has been synced.
  Status Publish();

 private:
  WorkFolder(IoBackend& backend, File lock, std::string target)
      : backend_(&backend), lock_(std::move(lock)), target_(std::move(target)) {}
  IoBackend* backend_;
  File lock_;
  std::string target_;
  bool published_ = false;
};

}  // namespace quarry
