// SharedRegion: a memfd that the server and its clients map (docs/protocol.md, "Shared memory").
//
// Its memory is taken as it is written to; whoever makes one has reserved it. The kernel keeps that memory as
// long as anybody has the region open or mapped: a client may do so when the server has long let go of it,
// and the seal that keeps readers from writing keeps the server from punching the pages out. So who pays for
// a region asks its witness when it may stop. (Files handed out unsealed could be punched, but processes of
// the same user could open them for writing, and a trainer whose connection broke would compute on zeros.)
// Pages that nobody has written to and a client reads are the kernel's to charge, to the client's own memory
// cgroup.
//
// Thread-safe; the bytes are their users' to share out (range_allocator.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "quarry/base/status.h"
#include "quarry/format/wire_types.h"
#include "quarry/io/backend.h"

namespace quarry {

// Knows whether a region is still open or mapped in another place than the server's own mapping. Outlives the
// region, and is a descriptor without a mapping then.
class RegionWitness {
 public:
  explicit RegionWitness(File opened);
  RegionWitness(const RegionWitness&) = delete;
  RegionWitness& operator=(const RegionWitness&) = delete;

  // False, too, where the kernel does not tell (before Linux 5.3): then nobody can ever be found out.
  bool HeldByOthers() const;
  int descriptor() const { return opened_.descriptor(); }

 private:
  bool Leased() const;

  const File opened_;  // for reading; the only such description but for those that were handed out
  const bool tells_;
};

class SharedRegion {
 public:
  // Zeroed, sealed against shrinking, growing and further seals, and, when clients only read it, against new
  // writable mappings after the server's own. kOutOfBudget when the system refuses.
  static Result<std::shared_ptr<SharedRegion>> Make(uint64_t bytes, wire::RegionAccess access);
  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  // A description of its own for a client, for reading or, where it writes, for both; to be closed once it is
  // sent. kOutOfBudget when the system has no descriptors.
  Result<File> HandOut() const;
  // Clients may change a region that they write to at any moment: copy, then check, then use.
  std::span<std::byte> bytes() const { return bytes_; }
  wire::RegionAccess access() const { return access_; }
  const std::shared_ptr<const RegionWitness>& witness() const { return witness_; }

 private:
  SharedRegion(std::shared_ptr<const RegionWitness> witness, std::span<std::byte> bytes,
               wire::RegionAccess access)
      : witness_(std::move(witness)), bytes_(bytes), access_(access) {}
  const std::shared_ptr<const RegionWitness> witness_;
  const std::span<std::byte> bytes_;
  const wire::RegionAccess access_;
};

}  // namespace quarry
