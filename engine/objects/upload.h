// Uploads of single files, by parts where they are large. Private to this room; one thread.
#pragma once

#include <functional>
#include <string>

#include "quarry/base/status.h"
#include "quarry/io/backend.h"
#include "quarry/objects/object_store.h"
#include "quarry/objects/remote_manifest.h"
#include "transfer_slots.h"

namespace quarry {

// Bytes of a part of an upload of so many bytes: S3 takes 10,000 parts. The same for the same size, so that a later
// push goes on with the parts of an earlier one.
uint64_t PartBytes(uint64_t file_bytes);

class Uploader {
 public:
  // `advance` is told the bytes that the store has.
  Uploader(ObjectStore& store, IoBackend& backend, TransferSlots& slots,
           std::function<Status(uint64_t)> advance)
      : store_(store), backend_(backend), slots_(slots), advance_(std::move(advance)) {}

  // Sends the file at `path`, whose checksums are `file`'s; bytes that changed since are kCorruption, and not sent. A
  // small one may still be on its way when it returns: Drain of the slots says when all are there. Goes on with an upload
  // that was begun; where another push completes the same one first, that one counts.
  Status Send(const std::string& path, const RemoteFile& file);
  uint64_t bytes_sent() const { return bytes_sent_; }

 private:
  Status SendWhole(const std::string& path, const RemoteFile& file);
  Status SendParts(const std::string& path, const RemoteFile& file);
  Status ReadPart(const File& from, const RemoteFile& file, uint64_t offset, std::span<std::byte> out);
  // The upload that was begun for this file, and which of its parts are there; a new one, where there is none.
  Result<std::string> Resume(const RemoteFile& file, std::vector<ObjectPart>& parts);

  ObjectStore& store_;
  IoBackend& backend_;
  TransferSlots& slots_;
  const std::function<Status(uint64_t)> advance_;
  uint64_t bytes_sent_ = 0;
};

// Reads all of a file whose size may be no multiple of a page.
Result<File> OpenToRead(IoBackend& backend, const std::string& path, uint64_t bytes);

}  // namespace quarry
