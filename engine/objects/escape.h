// Texts as S3's protocol writes them: percent-encoded names, and the elements of its XML answers. Private to this room;
// pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quarry {

// As signatures of version 4 want it: all but A-Z a-z 0-9 - . _ ~ encoded, in capitals.
std::string PercentEncoded(std::string_view text, bool keep_slashes = false);

// The text of the first element of this name, with XML's entities resolved; nothing where there is none. Elements of
// one name do not nest in S3's answers.
std::optional<std::string> XmlText(std::string_view xml, std::string_view name);
// What is between the tags of each element of this name, as it stands there.
std::vector<std::string_view> XmlElements(std::string_view xml, std::string_view name);

}  // namespace quarry
