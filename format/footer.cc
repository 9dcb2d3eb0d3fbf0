#include "capnp_bytes.h"
#include "metadata.capnp.h"
#include "quarry/format/superblock.h"
#include "schema_codec.h"

namespace quarry {

std::vector<std::byte> EncodeFooter(const Footer& footer) {
  capnp::MallocMessageBuilder message;
  format::WriteRoot<schema::Footer>(footer, message.initRoot<schema::Footer>());
  return MessageBytes(message);
}

Result<Footer> DecodeFooter(std::span<const std::byte> bytes, std::string_view path) {
  const uint64_t sections_max = bytes.size() / sizeof(capnp::word);  // none is without a word
  return ReadMessage<schema::Footer, Footer>(
      bytes, path, "footer", [&](schema::Footer::Reader reader) -> Result<Footer> {
        Footer footer;
        const Status status = format::ReadRoot<schema::Footer>(reader, sections_max, footer);
        if (!status.ok()) return MakeStatus(Code::kCorruption, "{}: the footer: {}", path, status.message());
        return footer;
      });
}

}  // namespace quarry
