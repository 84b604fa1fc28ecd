// What a client sends to the API's own readers: create bodies, queries, cursors, preferences.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "api/request.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (auto body = space::parse_json_object(text)) {
    (void)space::api::read_create(*body);
    (void)space::api::read_update(*body);
  }
  (void)space::api::is_template_reference(text);
  space::http::Headers headers;
  headers.add("Prefer", std::string(text));
  (void)space::api::preferred_wait(headers);
  if (auto target = space::http::parse_target("/v1/sandboxes?" + std::string(text))) {
    space::api::Query query(*target);
    (void)space::api::read_page(query);
    (void)query.list("state");
    (void)query.starting_with("metadata.", 16);
    (void)query.done();
  }
  return 0;
}
