// Claims of one process on a folder.
//
// The lock is on the folder's own descriptor (flock): removing the file LOCK, or putting another in its
// place, lets nobody in. NFS locks no folders; there LOCK, which is locked as well, is what holds.
#pragma once

#include <string>

#include "quarry/base/status.h"
#include "quarry/io/backend.h"

namespace quarry {

// The folder's lock, and that of the file LOCK in it. Closing them gives them back, as the death of the
// process does.
class FolderLock {
 public:
  // Makes LOCK where there is none, and writes this process into it; in a read-only folder it names nobody.
  // kBusy, with what LOCK names, while another FolderLock has the folder, of this process too. kCorruption
  // when LOCK is no regular file.
  static Result<FolderLock> Acquire(const std::string& folder);

  // Whether `folder` is still what was locked, LOCK included: another process may have removed both in
  // between.
  bool Holds(const std::string& folder) const;

  bool held() const { return file_.descriptor() >= 0; }  // not moved from

 private:
  FolderLock(File folder, File file) : folder_(std::move(folder)), file_(std::move(file)) {}
  File folder_;
  File file_;
};

using StoreLock = FolderLock;  // a database's

}  // namespace quarry
