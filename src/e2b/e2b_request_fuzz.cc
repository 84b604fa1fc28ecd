// What a client writes into queries and bodies of E2B's API.
#include <cstdlib>

#include "base/encoding.h"
#include "e2b/request.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace space;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto filter = e2b::read_metadata_filter(text)) {
    for (const auto& [name, value] : *filter)
      if (!is_utf8(name) || !is_utf8(value)) std::abort();
  }
  (void)e2b::parse_time(text);
  if (const auto id = e2b::sandbox_id(text)) {
    if (id->find('-') != std::string::npos) std::abort();
  }
  if (const auto reference = e2b::template_reference(text)) {
    if (reference->find('/') != std::string::npos) std::abort();
  }
  if (const auto target = http::parse_target(text)) (void)e2b::read_list(*target);
  if (const auto object = parse_json_object(text)) {
    const auto create = e2b::read_create(*object, 300, true);
    if (create && !e2b::decode_settings(e2b::encode(create->settings))) std::abort();
  }
  return 0;
}
