#include "capnp_bytes.h"
#include "metadata.capnp.h"
#include "quarry/format/superblock.h"

namespace quarry {

std::vector<std::byte> EncodeFooter(const Footer& footer) {
  capnp::MallocMessageBuilder message;
  auto sections =
      message.initRoot<schema::Footer>().initSections(static_cast<unsigned>(footer.sections.size()));
  for (unsigned i = 0; i < sections.size(); ++i) {
    const Section& section = footer.sections[i];
    sections[i].setName(ToText(section.name));
    sections[i].setOffset(section.offset);
    sections[i].setBytes(section.bytes);
    sections[i].setChecksum(section.checksum);
    sections[i].setCheckedBy(ToText(section.checked_by));
  }
  return MessageBytes(message);
}

Result<Footer> DecodeFooter(std::span<const std::byte> bytes, std::string_view path) {
  return ReadMessage<schema::Footer, Footer>(
      bytes, path, "footer", [](schema::Footer::Reader reader) -> Result<Footer> {
        Footer footer;
        for (const auto section : reader.getSections()) {
          footer.sections.push_back({.name = ToString(section.getName()),
                                     .offset = section.getOffset(),
                                     .bytes = section.getBytes(),
                                     .checksum = section.getChecksum(),
                                     .checked_by = ToString(section.getCheckedBy())});
        }
        return footer;
      });
}

}  // namespace quarry
